/* Moments by pieces (ZeRO-1; daemon/plan/owners.h says who holds which): on their way to who owns them from now on, to who writes a checkpoint, and to who has to give them to another mesh.
 *
 * Arrays of moments are as long as the shard, so that every offset is the layout's; of what a worker does not hold there are no pages, and nobody reads it. What comes goes to its place there at
 * once: until the round is committed no table says that it is held. What is left of that, and what is owned no more, is given back when a round is committed. */
#include <string.h>

#include "daemon/worker/trainer_inside.h"

enum { MOMENTS = 2 };

static float *moments_of(const struct optim_arrays *arrays, unsigned which)
{
	return which == 0 ? arrays->first : arrays->second;
}

size_t sharded_numbers(const struct sharded *s, uint32_t number)
{
	struct shard shard;
	return mesh_shards_layout(&s->shards, number, &shard)->count;
}

uint32_t sharded_table_owners(const struct sharded *s)
{
	return s->apart == NULL ? s->owners : 0;
}

/* ---- plans ---- */

static void note_lost(struct sharded *s)
{
	if (s->lost != RANKS_NONE || s->moments.lost == RANKS_NONE)
		return;
	s->lost = s->moments.lost;
	s->lost_moments = true;
}

tr_status sharded_plan_moments(struct trainer *t, struct tr_error *error)
{
	struct sharded *s = t->sharded;
	size_t numbers[TR_GROUP_PEERS_MAX];
	s->lost_moments = false;
	owners_plan_clear(&s->moments);
	if (sharded_table_owners(s) == 0 || s->state->born == 0 || ranks_replicas(&s->next) == 0)
		return TR_OK;
	for (uint32_t k = 0; k < ranks_shards(&s->shards.mesh); k++)
		numbers[k] = sharded_numbers(s, k);
	tr_status status = owners_plan_next(&s->moments, &s->next, s->owners, numbers, error);
	if (status == TR_OK)
		note_lost(s);
	return status;
}

tr_status sharded_plan_whole(const struct sharded *s, struct owners_plan *plan,
    const struct ranks *ranks, uint32_t to, uint32_t shard, struct tr_error *error)
{
	size_t numbers = sharded_numbers(s, shard);
	return owners_plan_add(plan, ranks, s->owners, to, shard, numbers,
	    (struct owners_range){ 0, numbers }, error);
}

static bool gives_to_mesh(const struct sharded *s, uint32_t peer)
{
	for (size_t i = 0; i < s->moves.message_count; i++)
		if (s->moves.messages[i].from == peer)
			return true;
	return false;
}

tr_status sharded_plan_whole_moments(struct trainer *t, struct tr_error *error)
{
	struct sharded *s = t->sharded;
	tr_status status = TR_OK;
	owners_plan_clear(&s->moments);
	if (sharded_table_owners(s) == 0)
		return TR_OK;
	for (uint32_t i = 0; i < s->next.count && status == TR_OK; i++)
		if (gives_to_mesh(s, i))
			status = sharded_plan_whole(s, &s->moments, &s->next, i,
			    s->next.peers[i].shard, error);
	if (status == TR_OK)
		note_lost(s);
	return status;
}

/* ---- on their way ---- */

/* In the order in which they are planned in a round. */
static uint32_t tag_of(const struct sharded *s, const struct owners_plan *plan, size_t move,
    unsigned which)
{
	size_t before = 0;
	if (plan != &s->moments)
		before += s->moments.count;
	if (plan == &s->gathered)
		before += s->pieces_moments.count;
	return TAG_MOMENTS + MOMENTS * (uint32_t)(before + move) + which;
}

/* This worker's end of a move: from what it holds, into `to`. */
static tr_status submit_move(struct trainer *t, uint32_t tag, unsigned which,
    const struct owners_move *move, const struct optim_arrays *from, const struct optim_arrays *to,
    struct tr_error *error)
{
	struct tr_op op = TR_OP_INIT;
	op.tag = tag;
	op.count = move->range.end - move->range.first;
	if (move->from == t->sharded->self) {
		op.collective = TR_SEND;
		op.input = moments_of(from, which) + move->range.first;
		op.root = move->to;
	} else {
		op.collective = TR_RECV;
		op.output = moments_of(to, which) + move->range.first;
		op.root = move->from;
	}
	return tr_submit(t->group, &op, error);
}

/* to: by shard, or (NULL) what this worker works with. */
static tr_status submit_plan(struct trainer *t, const struct owners_plan *plan,
    const struct optim_arrays *from, const struct optim_arrays *to, struct tr_error *error)
{
	struct sharded *s = t->sharded;
	tr_status status = TR_OK;
	for (size_t i = 0; i < plan->count && status == TR_OK; i++) {
		const struct owners_move *move = &plan->moves[i];
		if (move->from != s->self && move->to != s->self)
			continue;
		s->untidy = s->untidy || (to == NULL && move->to == s->self);
		for (unsigned which = 0; which < MOMENTS && status == TR_OK; which++)
			status = submit_move(t, tag_of(s, plan, i, which), which, move, from,
			    to != NULL ? &to[move->shard] : &t->arrays, error);
	}
	return status;
}

/* Their memory is this worker's again: from there it gives what came to others, in the same round. */
static tr_status take(struct trainer *t, const struct owners_plan *plan, struct tr_error *error)
{
	const struct sharded *s = t->sharded;
	tr_status status = TR_OK;
	for (size_t i = 0; i < plan->count && status == TR_OK; i++) {
		for (unsigned which = 0; which < MOMENTS && status == TR_OK; which++) {
			uint32_t tag = tag_of(s, plan, i, which);
			if (plan->moves[i].to != s->self)
				continue;
			status = tr_wait(t->group, tag, error);
			if (status == TR_OK)
				status = tr_release(t->group, tag, error);
		}
	}
	return status;
}

tr_status sharded_submit_moments(struct trainer *t, struct tr_error *error)
{
	const struct sharded *s = t->sharded;
	const struct optim_arrays *from = s->apart != NULL ? &t->arrays : &s->held;
	return s->self == RANKS_NONE ? TR_OK : submit_plan(t, &s->moments, from, NULL, error);
}

tr_status sharded_wait_moments(struct trainer *t, struct tr_error *error)
{
	return take(t, &t->sharded->moments, error);
}

/* ---- to newcomers, who hold all moments of what has come until they work ---- */

tr_status sharded_submit_pieces_moments(struct trainer *t, struct tr_error *error)
{
	struct sharded *s = t->sharded;
	tr_status status = TR_OK;
	owners_plan_clear(&s->pieces_moments);
	for (uint64_t i = 0; s->owners > 0 && i < s->newcomers.count && status == TR_OK; i++) {
		const struct newcomer *newcomer = &s->newcomers.of[i];
		struct owners_range piece = { newcomer->got, newcomer->got + newcomer->piece };
		if (newcomer->piece > 0)
			status = owners_plan_add(&s->pieces_moments, &s->next, s->owners,
			    ranks_find(&s->next, newcomer->peer), (uint32_t)newcomer->shard,
			    newcomer->numbers, piece, error);
	}
	return status == TR_OK && s->self != RANKS_NONE
	    ? submit_plan(t, &s->pieces_moments, &s->held, NULL, error)
	    : status;
}

tr_status sharded_wait_pieces_moments(struct trainer *t, struct tr_error *error)
{
	return take(t, &t->sharded->pieces_moments, error);
}

/* ---- to who writes ---- */

/* What who writes has itself. */
static void copy_own(struct trainer *t)
{
	struct sharded *s = t->sharded;
	struct owners_range held[2];
	struct ranks_part part = ranks_part(&s->next, s->self);
	const struct optim_arrays *staged = &s->staged[ranks_shard(&s->shards.mesh, s->rank)];
	unsigned count = owners_ranges(t->layout.count, &part, s->owners, held);
	for (unsigned i = 0; i < count; i++)
		for (unsigned which = 0; which < MOMENTS; which++)
			memcpy(moments_of(staged, which) + held[i].first,
			    moments_of(&t->arrays, which) + held[i].first,
			    (held[i].end - held[i].first) * sizeof(float));
}

/* Where replicas train apart another one's moments are others. */
static void hold_one_replicas(const struct sharded *s, uint32_t writer, struct ranks *held)
{
	for (uint32_t i = 0; i < held->count && s->apart != NULL; i++)
		if (ranks_replica(&s->next, i) != ranks_replica(&s->next, writer))
			held->peers[i].shard = RANKS_NONE;
}

tr_status sharded_submit_gathered_moments(struct trainer *t, struct tr_error *error)
{
	struct sharded *s = t->sharded;
	struct ranks held = s->next;
	tr_status status = TR_OK;
	owners_plan_clear(&s->gathered);
	ranks_settle(&held, true); /* who got its part in this round gives that */
	hold_one_replicas(s, sharded_writer_of(t, 0), &held);
	for (uint32_t k = 0; k < ranks_shards(&s->shards.mesh) && status == TR_OK; k++)
		status = sharded_plan_whole(s, &s->gathered, &held, sharded_writer_of(t, k), k,
		    error);
	if (status == TR_OK && sharded_writes(t))
		copy_own(t);
	return status == TR_OK ? submit_plan(t, &s->gathered, &t->arrays, s->staged, error)
	                       : status;
}

tr_status sharded_wait_gathered_moments(struct trainer *t, struct tr_error *error)
{
	return take(t, &t->sharded->gathered, error);
}

/* ---- pages ---- */

static void clear(const struct optim_arrays *arrays, size_t first, size_t end)
{
	for (unsigned which = 0; which < MOMENTS && first < end; which++)
		mesh_memory_clear(moments_of(arrays, which) + first, (end - first) * sizeof(float));
}

void sharded_clear_range(struct trainer *t, size_t first, size_t end)
{
	clear(&t->arrays, first, end);
}

void sharded_clear_moments(struct trainer *t)
{
	sharded_clear_range(t, 0, t->layout.count);
}

void sharded_tidy_moments(struct trainer *t)
{
	struct sharded *s = t->sharded;
	struct ranks_peer mine = { .shard = RANKS_NONE };
	struct owners_range held[2];
	/* The next table is of another mesh than the arrays, which go with theirs. */
	if (sharded_table_owners(s) == 0 || s->kind == SHARDED_REMESH)
		return;
	/* No table has what was read for training to begin with: it stays whole until it does, however many rounds wait for it. */
	if (s->loaded != RANKS_NONE)
		return;
	if (s->self != RANKS_NONE)
		mine = s->next.peers[s->self];
	if (mine.shard == RANKS_NONE && sharded_is_newcomer(t))
		return;
	bool same = mine.shard == s->tidied.shard && mine.part.of == s->tidied.part.of &&
	    mine.part.place == s->tidied.part.place;
	if (same && !s->untidy)
		return;
	size_t numbers = mine.shard != RANKS_NONE ? sharded_numbers(s, mine.shard) : 0, at = 0;
	unsigned count = mine.shard != RANKS_NONE
	    ? owners_ranges(numbers, &mine.part, s->owners, held)
	    : 0;
	for (unsigned i = 0; i < count; at = held[i++].end)
		clear(&s->held, at, held[i].first);
	clear(&s->held, at, mesh_shards_most(&s->shards));
	s->tidied = mine;
	s->untidy = false;
}
