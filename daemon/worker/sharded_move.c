/* Shards on their way: to who has a new rank, and to who writes a checkpoint. What is sent does not change before the commit: who holds a shard and gets another
 * one gets it beside that. */
#include <string.h>

#include "daemon/worker/trainer_inside.h"

/* Of those that go to who writes, what does not go by pieces. */
unsigned sharded_arrays_gathered(const struct sharded *s)
{
	return s->owners > 0 ? sharded_arrays_moved(s) : sharded_arrays_whole(s);
}

/* These arrays (a bit each) of shard `number`. `other`: contributor. */
static tr_status submit(struct trainer *t, uint32_t tag, enum tr_collective what, uint32_t number,
    unsigned which, const struct optim_arrays *arrays, uint32_t other, struct tr_error *error)
{
	struct shard shard;
	size_t count = mesh_shards_layout(&t->sharded->shards, number, &shard)->count;
	tr_status status = TR_OK;
	for (unsigned a = 0; a < SHARDED_ARRAYS_ALL && status == TR_OK; a++) {
		struct tr_op op = TR_OP_INIT;
		if ((which >> a & 1) == 0)
			continue;
		op.tag = tag + a;
		op.collective = what;
		op.count = count;
		op.root = other;
		if (what == TR_SEND)
			op.input = sharded_array(arrays, a);
		else
			op.output = sharded_array(arrays, a);
		status = tr_submit(t->group, &op, error);
	}
	return status;
}

/* Its memory is this worker's again: from there it gives what came to others, in the same round. */
static tr_status take(struct trainer *t, uint32_t tag, unsigned which, struct tr_error *error)
{
	tr_status status = TR_OK;
	for (uint32_t a = 0; a < SHARDED_ARRAYS_ALL && status == TR_OK; a++) {
		if ((which >> a & 1) == 0)
			continue;
		status = tr_wait(t->group, tag + a, error);
		if (status == TR_OK)
			status = tr_release(t->group, tag + a, error);
	}
	return status;
}

static tr_status make_arrays(struct trainer *t, unsigned which, struct optim_arrays *arrays,
    struct tr_error *error)
{
	return arrays->params != NULL
	    ? TR_OK
	    : sharded_take_arrays(t, mesh_shards_most(&t->sharded->shards), which, arrays, error);
}

/* ---- to new ranks ---- */

void trainer_pause_join(struct trainer *t, unsigned milliseconds)
{
	t->join_pause_ms = milliseconds;
}

static uint32_t transfer_tag(size_t i)
{
	return TAG_SHARD + SHARDED_ARRAYS_ALL * (uint32_t)i;
}

/* But for the gradients, and moments that are not the shard's. */
static void use(struct trainer *t, const struct optim_arrays *arrays)
{
	t->arrays.params = arrays->params;
	t->arrays.outer = arrays->outer;
	if (t->sharded->apart != NULL)
		return;
	t->arrays.first = arrays->first;
	t->arrays.second = arrays->second;
}

static tr_status receive(struct trainer *t, size_t i, struct tr_error *error)
{
	struct sharded *s = t->sharded;
	tr_status status = TR_OK;
	s->into_other = s->next.peers[s->self].shard != RANKS_NONE;
	if (s->into_other) {
		status = make_arrays(t, sharded_arrays_held(s), &s->other, error);
		use(t, &s->other);
	}
	return status == TR_OK
	    ? submit(t, transfer_tag(i), TR_RECV, s->transfers[i].shard, sharded_arrays_moved(s),
	          &t->arrays, s->transfers[i].from, error)
	    : status;
}

/* Does this worker give what it gets itself: to another copy of its replica, when it is there (ranks_transfers)? */
static bool hands_on(const struct sharded *s, const struct ranks_transfer *move)
{
	bool gets = false;
	for (size_t i = 0; i < s->transfer_count && s->next.copies > 1; i++)
		gets = gets ||
		    (s->transfers[i].to == s->self && s->transfers[i].shard == move->shard);
	return gets && move->from == s->self;
}

static tr_status hand_on(struct trainer *t, struct tr_error *error)
{
	const struct sharded *s = t->sharded;
	tr_status status = TR_OK;
	for (size_t i = 0; i < s->transfer_count && status == TR_OK; i++) {
		const struct ranks_transfer *move = &s->transfers[i];
		if (hands_on(s, move))
			status = submit(t, transfer_tag(i), TR_SEND, move->shard,
			    sharded_arrays_moved(s), &t->arrays, move->to, error);
	}
	return status;
}

tr_status sharded_hand_on(struct trainer *t, struct tr_error *error)
{
	const struct sharded *s = t->sharded;
	bool waits = false;
	for (size_t i = 0; i < s->transfer_count && s->arriving > 0; i++)
		waits = waits || hands_on(s, &s->transfers[i]);
	return waits ? sharded_wait_arrival(t, error) : TR_OK;
}

static tr_status submit_transfers(struct trainer *t, size_t *mine, struct tr_error *error)
{
	struct sharded *s = t->sharded;
	tr_status status = TR_OK;
	*mine = s->transfer_count;
	for (size_t i = 0; i < s->transfer_count && status == TR_OK; i++) {
		const struct ranks_transfer *move = &s->transfers[i];
		if (move->from == s->self && !hands_on(s, move))
			status = submit(t, transfer_tag(i), TR_SEND, move->shard,
			    sharded_arrays_moved(s), &s->held, move->to, error);
		if (move->to != s->self)
			continue;
		*mine = i;
		status = receive(t, i, error);
	}
	return status;
}

void sharded_end_moves(struct trainer *t)
{
	struct sharded *s = t->sharded;
	if (!s->into_other)
		return;
	struct optim_arrays before = s->held;
	s->held = s->other;
	s->held.grads = before.grads; /* stays with who is held */
	s->other = before;
	s->other.grads = NULL;
	if (s->owners > 0) /* of the moments the other shard's pieces have pages */
		sharded_give_arrays(t, &s->other);
	s->into_other = false;
}

/* ---- to who writes ---- */

static uint32_t gather_tag(uint32_t shard)
{
	return TAG_GATHER + SHARDED_ARRAYS_ALL * shard;
}

/* Places of replicas that a checkpoint may be taken from, moments and all: of those that train apart what each has made together. */
static uint64_t fitting(const struct sharded *s)
{
	/* With ZeRO-1 a piece may be of those who are gone. */
	uint64_t fit = (s->apart != NULL && s->owners > 0
	        ? ranks_stood
	        : ranks_stood_shards)(&s->state->ranks, &s->next);
	return s->apart != NULL ? fit & s->state->trained : fit;
}

/* Those that work, whose numbers were compared in this round: not a spare, which may hold some as well. By now each holds its rank's, also who got them in this round. All of one replica (ranks_source), any copy of it. */
static uint32_t source_of(const struct sharded *s, uint32_t shard)
{
	uint32_t replica = ranks_source(&s->next, fitting(s));
	uint32_t stood = ranks_stood_with(&s->state->ranks, &s->next, replica, shard);
	return stood != RANKS_NONE ? stood : ranks_worker_of(&s->next, shard, replica);
}

/* Since the newest merge each replica has lost somebody: moments of some of its workers would not fit those of others. */
static bool is_mixed(const struct sharded *s)
{
	return fitting(s) == 0 && s->state->merged_steps > 0 && s->rank != RANKS_NONE &&
	    ranks_replica(&s->next, s->self) == ranks_source(&s->next, 0);
}

bool sharded_moments_fit(const struct sharded *s)
{
	return s->apart == NULL || fitting(s) != 0;
}

uint32_t sharded_writer_of(const struct trainer *t, uint32_t shard)
{
	return source_of(t->sharded, t->sharded->in_shards ? shard : 0);
}

bool sharded_writes(const struct trainer *t)
{
	const struct sharded *s = t->sharded;
	return s->rank != RANKS_NONE &&
	    sharded_writer_of(t, ranks_shard(&s->shards.mesh, s->rank)) == s->self;
}

/* All pieces of the moments of all shards that this worker writes. */
static tr_status stage_moments(struct trainer *t, struct tr_error *error)
{
	struct sharded *s = t->sharded;
	tr_status status = TR_OK;
	for (uint32_t k = 0; k < ranks_shards(&s->shards.mesh) && status == TR_OK; k++)
		if (sharded_writer_of(t, k) == s->self)
			status = make_arrays(t, sharded_arrays_whole(s), &s->staged[k], error);
	return status == TR_OK ? sharded_submit_gathered_moments(t, error) : status;
}

void sharded_give_staged(struct trainer *t)
{
	struct sharded *s = t->sharded;
	for (uint32_t k = 0; s->owners > 0 && k < ranks_shards(&s->shards.mesh); k++)
		sharded_give_arrays(t, &s->staged[k]);
}

tr_status sharded_submit_gather(struct trainer *t, struct tr_error *error)
{
	struct sharded *s = t->sharded;
	tr_status status = TR_OK;
	if (s->apart != NULL)
		sharded_apart_settle_moments(t, is_mixed(s));
	if (s->owners > 0)
		status = stage_moments(t, error);
	for (uint32_t k = 0; k < ranks_shards(&s->shards.mesh) && status == TR_OK; k++) {
		uint32_t from = source_of(s, k), writer = sharded_writer_of(t, k);
		if (from == s->self && from != writer)
			status = submit(t, gather_tag(k), TR_SEND, k, sharded_arrays_gathered(s),
			    &t->arrays, writer, error);
		if (from == writer || s->self != writer)
			continue;
		status = make_arrays(t, sharded_arrays_whole(s), &s->staged[k], error);
		if (status == TR_OK)
			status = submit(t, gather_tag(k), TR_RECV, k, sharded_arrays_gathered(s),
			    &s->staged[k], from, error);
	}
	return status;
}

tr_status sharded_wait_gathered(struct trainer *t, struct tr_error *error)
{
	const struct sharded *s = t->sharded;
	tr_status status = TR_OK;
	for (uint32_t k = 0; k < ranks_shards(&s->shards.mesh) && status == TR_OK; k++)
		if (sharded_writer_of(t, k) == s->self && source_of(s, k) != s->self)
			status = take(t, gather_tag(k), sharded_arrays_gathered(s), error);
	return status == TR_OK && s->owners > 0 ? sharded_wait_gathered_moments(t, error) : status;
}

tr_status sharded_stage_own(struct trainer *t, struct tr_error *error)
{
	struct sharded *s = t->sharded;
	return make_arrays(t, sharded_arrays_whole(s),
	    &s->staged[ranks_shard(&s->shards.mesh, s->rank)], error);
}

tr_status sharded_submit_moves(struct trainer *t, struct tr_error *error)
{
	struct sharded *s = t->sharded;
	size_t mine = s->transfer_count;
	tr_status status = TR_OK;
	if (s->self != RANKS_NONE)
		status = submit_transfers(t, &mine, error);
	if (status == TR_OK)
		status = sharded_submit_moments(t, error);
	s->arriving = mine < s->transfer_count ? mine + 1 : 0;
	if (status == TR_OK && !s->behind)
		status = sharded_wait_arrival(t, error);
	return status == TR_OK ? sharded_wait_moments(t, error) : status;
}

tr_status sharded_wait_arrival(struct trainer *t, struct tr_error *error)
{
	struct sharded *s = t->sharded;
	size_t number = s->arriving;
	s->arriving = 0;
	if (number == 0)
		return TR_OK;
	sharded_pause_for_tests(t, t->join_pause_ms);
	tr_status status = take(t, transfer_tag(number - 1), sharded_arrays_moved(s), error);
	return status == TR_OK ? hand_on(t, error) : status;
}
