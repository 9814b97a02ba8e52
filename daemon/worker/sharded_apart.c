#include "daemon/worker/sharded_apart.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "collectives/sync/pace.h"
#include "common/log.h"
#include "daemon/plan/job_mesh_sync.h"
#include "daemon/plan/job_sync.h"
#include "daemon/worker/trainer_inside.h"

/* ---- made and unmade ---- */

static tr_status no_memory(struct tr_error *error)
{
	return tr_error_set(error, TR_ENOMEM, "sync.mode: no memory for replicas that train apart");
}

tr_status sharded_apart_create(struct trainer *t, struct tr_error *error)
{
	struct sharded_apart *a = calloc(1, sizeof(*a));
	if (a == NULL)
		return no_memory(error);
	t->sharded->apart = a;
	a->moments.shard = a->lost.shard = a->stream.shard = RANKS_NONE;
	a->steps_most = JOB_MESH_INNER_TAGS / job_mesh_inner_tags(t->copies, t->zero_owners);
	tr_status status = job_sync_options(t->spec, t->steps, &a->options, error);
	a->stream.on = status == TR_OK && job_mesh_sync_streams(&a->options);
	return status;
}

void sharded_apart_destroy(struct trainer *t)
{
	free(t->sharded->apart);
	t->sharded->apart = NULL;
}

tr_status sharded_apart_attach(struct trainer *t, struct tr_error *error)
{
	struct sharded_apart *a = t->sharded->apart;
	a->roster = tr_alloc(t->group, TR_GROUP_PEERS_MAX * sizeof(*a->roster));
	a->squares = tr_alloc(t->group, 2 * sizeof(*a->squares));
	a->sums = tr_alloc(t->group, sizeof(*a->sums));
	return a->roster != NULL && a->squares != NULL && a->sums != NULL ? TR_OK
	                                                                  : no_memory(error);
}

tr_status sharded_apart_make(struct trainer *t, struct tr_error *error)
{
	struct sharded *s = t->sharded;
	struct sharded_apart *a = s->apart;
	size_t bytes = mesh_shards_most(&s->shards) * sizeof(float);
	bool feedback = a->options.codec != TR_CODEC_NONE && a->options.feedback > 0;
	sharded_adopt_moments(t);
	float **const arrays[] = { &a->work, &a->moments.first, &a->moments.second, &a->lost.now,
		&a->lost.next };
	unsigned wanted = feedback ? 5 : 3;
	for (unsigned i = 0; i < wanted; i++) {
		if (*arrays[i] == NULL)
			*arrays[i] = mesh_memory_take(&s->memory, bytes);
		if (*arrays[i] == NULL)
			return tr_error_set(error, TR_ENOMEM,
			    "sync.mode: no shared memory for a shard's own parameters, moments%s "
			    "(%u "
			    "x %zu MiB)",
			    feedback ? " and what coding loses" : "", wanted, bytes >> 20);
	}
	struct job_mesh_rounds rounds = sharded_apart_rounds(t);
	a->mesh_steps_most = job_mesh_rounds_most(&rounds, &s->shards.mesh,
	    (uint32_t)s->state->ranks.copies, t->batch);
	return sharded_stream_make(t, error);
}

void sharded_apart_unmake(struct trainer *t)
{
	struct sharded *s = t->sharded;
	struct sharded_apart *a = s->apart;
	if (a->work !=
	    NULL) /* with another mesh other workers make up a replica: what was sent until then is of no merge */
		a->sent_bytes = a->sent_now = UINT64_MAX;
	mesh_memory_give(&s->memory, a->work);
	mesh_memory_give(&s->memory, a->moments.first);
	mesh_memory_give(&s->memory, a->moments.second);
	mesh_memory_give(&s->memory, a->lost.now);
	mesh_memory_give(&s->memory, a->lost.next);
	a->work = NULL;
	a->moments = (struct apart_moments){ .shard = RANKS_NONE };
	a->lost = (struct apart_lost){ .shard = RANKS_NONE };
	a->own = (struct apart_own){ 0 };
	a->step_ns = 0; /* with another mesh they take other times */
	sharded_stream_unmake(t);
}

/* ---- moments ---- */

void sharded_apart_bind(struct trainer *t)
{
	const struct sharded_apart *a = t->sharded->apart;
	t->arrays.first = a->moments.first;
	t->arrays.second = a->moments.second;
}

uint64_t sharded_apart_word(const void *data, size_t bytes)
{
	return tr_digest_of(data, bytes).low >> 1 | 1;
}

static int64_t bits_of(double number)
{
	int64_t bits;
	memcpy(&bits, &number, sizeof(bits));
	return bits;
}

static uint32_t own_shard(const struct sharded *s)
{
	return ranks_shard(&s->shards.mesh, s->rank);
}

void sharded_apart_begin_moments(struct trainer *t, uint64_t age, uint64_t lineage)
{
	struct apart_moments *m = &t->sharded->apart->moments;
	m->shard = own_shard(t->sharded);
	m->number = ranks_number(&t->sharded->next, t->sharded->self);
	m->whole = false;
	m->age = age;
	m->used = t->counters->step;
	m->lineage = lineage;
}

/* A step's checkpoint may be another one after training went back. */
void sharded_apart_loaded(struct trainer *t, const struct manifest *manifest)
{
	uint64_t step = manifest != NULL ? manifest->step : 0,
	         lineage = sharded_apart_word(&step, sizeof(step));
	if (manifest != NULL)
		lineage = sharded_apart_word(manifest->optimizer, sizeof(manifest->optimizer));
	uint64_t age = manifest != NULL ? manifest->age : 0;
	if (age == 0) /* as its writer had them, whatever the others had */
		sharded_clear_moments(t);
	sharded_apart_begin_moments(t, age, lineage);
	t->sharded->apart->moments.whole = true;
	sharded_stream_drop(t);
	t->sharded->apart->untold = (struct apart_given){ 0 };
}

static bool holds_moments(const struct sharded *s)
{
	const struct apart_moments *m = &s->apart->moments;
	return m->shard == own_shard(s) &&
	    (s->owners == 0 || m->whole || m->number == ranks_number(&s->next, s->self));
}

void sharded_apart_settle_moments(struct trainer *t, bool mixed)
{
	const struct sharded *s = t->sharded;
	if (s->rank == RANKS_NONE || (!mixed && holds_moments(s)))
		return;
	sharded_clear_moments(t);
	sharded_apart_begin_moments(t, 0, 0);
}

uint64_t sharded_apart_lineage(const struct apart_own *own, uint64_t before, double norm)
{
	const uint64_t from[] = { before, own->workers, own->claim.first, own->steps,
		(uint64_t)bits_of(norm) };
	return sharded_apart_word(from, sizeof(from));
}

/* ---- what a round has to do ---- */

static bool goes_by_time(const struct sharded_apart *a)
{
	return a->options.inner_seconds > 0;
}

/* Of the replicas that have a part in this merge, of the fastest. */
static uint64_t most_steps(const struct sharded *s)
{
	uint64_t most = 1;
	for (uint32_t i = 0; i < ranks_replicas(&s->next); i++)
		if (s->apart->parts[i].trains && s->apart->parts[i].steps > most)
			most = s->apart->parts[i].steps;
	return most;
}

uint64_t sharded_apart_steps(const struct trainer *t)
{
	const struct sharded *s = t->sharded;
	struct stream_slot slot;
	if (s->apart->stream.on)
		return sharded_stream_slot(t, &slot) ? slot.steps : 0;
	uint64_t left = t->steps - t->counters->step,
	         most = goes_by_time(s->apart) ? most_steps(s) : s->apart->options.inner_steps;
	return left < most ? left : most;
}

struct job_mesh_rounds sharded_apart_rounds(const struct trainer *t)
{
	const struct sharded_apart *a = t->sharded->apart;
	return a == NULL ? (struct job_mesh_rounds){ NULL, 0, 0 }
	                 : job_mesh_rounds_of(t->spec, t->mesh_spec, &a->options);
}

bool sharded_apart_may_change(const struct trainer *t)
{
	const struct sharded *s = t->sharded;
	return s->state->born == 0 || t->steps - t->counters->step > s->apart->options.inner_steps;
}

bool sharded_apart_is_done(const struct trainer *t)
{
	struct stream_slot slot;
	return t->counters->step >= t->steps &&
	    !(t->sharded->apart->stream.on && sharded_stream_slot(t, &slot));
}

bool sharded_apart_crossed(const struct trainer *t, uint64_t every)
{
	uint64_t now = t->counters->step, steps = t->sharded->state->merged_steps;
	uint64_t before = now - t->counters->start > steps ? now - steps : t->counters->start;
	return every > 0 && now / every > before / every;
}

bool sharded_apart_saves(const struct trainer *t)
{
	const struct sharded *s = t->sharded;
	uint64_t every = t->spec->checkpoint != NULL ? t->spec->checkpoint->every : 0;
	/* Of several merges at the last step the last one is the final round's. */
	return s->apart != NULL && s->state->born != 0 && t->folder.dir[0] != '\0' &&
	    t->counters->step < t->steps && sharded_apart_crossed(t, every) &&
	    s->state->gathered != t->counters->step;
}

const struct apart_part *sharded_apart_part(const struct trainer *t)
{
	const struct sharded *s = t->sharded;
	return s->rank != RANKS_NONE ? &s->apart->parts[ranks_replica(&s->next, s->self)] : NULL;
}

/* ---- the roster ---- */

uint64_t sharded_apart_workers(const struct sharded *s, uint32_t replica)
{
	uint64_t ids[TR_GROUP_PEERS_MAX];
	uint32_t members = ranks_members(&s->next);
	for (uint32_t k = 0; k < members; k++)
		ids[k] = s->next.peers[ranks_member(&s->next, replica, k)].peer;
	return sharded_apart_word(ids, members * sizeof(*ids));
}

static double number_of(int64_t bits)
{
	double number;
	memcpy(&number, &bits, sizeof(number));
	return number;
}

static uint64_t own_workers(const struct sharded *s)
{
	return sharded_apart_workers(s, ranks_replica(&s->next, s->self));
}

/* What this worker has of a round that it takes no part in any more: its samples are others'. */
static void drop_own(struct trainer *t)
{
	struct apart_own *own = &t->sharded->apart->own;
	if (own->steps > 0 || own->taken)
		sharded_stream_drop(t);
	*own = (struct apart_own){ 0 };
}

static void say(struct trainer *t, const struct tr_round *round)
{
	struct sharded *s = t->sharded;
	struct sharded_apart *a = s->apart;
	struct apart_word *word = &a->roster[s->self];
	if (a->own.round != round->round || a->own.workers != own_workers(s))
		drop_own(t);
	if (a->own.round != 0)
		*word = (struct apart_word){ .first = (int64_t)a->own.claim.first + 1,
			.share = (int64_t)a->own.share,
			.steps = (int64_t)a->own.steps,
			.quota = (int64_t)a->own.quota,
			.began = (int64_t)a->own.began,
			.norm = bits_of(a->own.norm),
			.loss = sharded_copies(s) > 1 ? bits_of(a->own.newest_loss) : 0 };
	if (holds_moments(s)) {
		word->lineage = (int64_t)a->moments.lineage;
		word->age = (int64_t)a->moments.age;
		word->used = (int64_t)a->moments.used;
	}
	word->lacks = a->own.lacks;
	if (a->stream.shard == own_shard(s) && !a->own.lacks)
		word->work = (int64_t)a->stream.lineage;
	word->step_ns = (int64_t)a->step_ns;
}

tr_status sharded_apart_exchange(struct trainer *t, const struct tr_round *round,
    struct tr_error *error)
{
	const struct sharded *s = t->sharded;
	tr_status status = tr_allreduce(t->group, TAG_ROSTER, s->apart->roster,
	    (size_t)s->next.count * APART_WORDS, TR_I64, TR_SUM,
	    trainer_contributes(round) ? TR_CONTRIBUTE : 0, error);
	return status == TR_OK ? tr_wait(t->group, TAG_ROSTER, error) : status;
}

static tr_status exchange_roster(struct trainer *t, const struct tr_round *round,
    struct tr_error *error)
{
	struct sharded *s = t->sharded;
	memset(s->apart->roster, 0, TR_GROUP_PEERS_MAX * sizeof(*s->apart->roster));
	if (s->rank != RANKS_NONE)
		say(t, round);
	return sharded_apart_exchange(t, round, error);
}

/* What all workers of a replica say: the same claim, from the same beginning (who had the roster of another try may have begun from other work), and steps that differ by one at most. */
static struct apart_part part_of(const struct sharded *s, uint32_t replica)
{
	const struct apart_word *roster = s->apart->roster;
	const struct apart_word *first = &roster[ranks_member(&s->next, replica, 0)];
	struct apart_part part = { .trains = first->first > 0,
		.alike = first->lineage != 0,
		.goes_on = first->work != 0 };
	int64_t least = first->steps, most = first->steps;
	for (uint32_t k = 1; k < ranks_members(&s->next); k++) {
		const struct apart_word *word = &roster[ranks_member(&s->next, replica, k)];
		part.trains = part.trains && word->first == first->first &&
		    word->share == first->share && word->quota == first->quota &&
		    word->began == first->began;
		part.alike = part.alike && word->lineage == first->lineage;
		part.goes_on = part.goes_on && word->work == first->work;
		least = word->steps < least ? word->steps : least;
		most = word->steps > most ? word->steps : most;
	}
	part.trains = part.trains && most - least <= 1;
	part.lineage = sharded_lineage_of(s, replica);
	if (part.trains) {
		part.share = (uint64_t)first->share;
		part.steps = (uint64_t)first->quota;
		part.claim = (struct claim){ (uint64_t)first->first - 1, part.share * part.steps };
	}
	return part;
}

/* Of its workers the slowest; 0: none of them has taken any. */
static double step_s_of(const struct sharded *s, uint32_t replica)
{
	int64_t most = 0;
	for (uint32_t k = 0; k < ranks_members(&s->next); k++) {
		const struct apart_word *word = &s->apart->roster[ranks_member(&s->next, replica, k)];
		most = word->step_ns > most ? word->step_ns : most;
	}
	return (double)most * 1e-9;
}

/* `slowest_s`: for a replica that does not know its own. */
static uint64_t steps_in_time(const struct trainer *t, double step_s, double slowest_s)
{
	const struct sharded_apart *a = t->sharded->apart;
	uint64_t most = t->steps - t->counters->step;
	most = a->steps_most < most ? a->steps_most : most;
	most = a->mesh_steps_most < most ? a->mesh_steps_most : most;
	if (!(step_s > 0))
		step_s = slowest_s;
	if (!(step_s > 0) || a->options.inner_seconds < 2 * step_s)
		return 1;
	double steps = a->options.inner_seconds / step_s;
	return steps < (double)most ? (uint64_t)steps : most;
}

/* How many steps each replica takes. */
static void set_quotas(const struct trainer *t, uint32_t replicas)
{
	const struct sharded *s = t->sharded;
	struct tr_sync_options options = s->apart->options;
	struct pace_agreed agreed = { 0 };
	options.inner_steps = sharded_apart_steps(t);
	for (uint32_t i = 0; i < replicas; i++) {
		double step_s = step_s_of(s, i);
		if (step_s > 0 && (agreed.fastest_s == 0 || step_s < agreed.fastest_s))
			agreed.fastest_s = step_s;
		if (step_s > agreed.slowest_s)
			agreed.slowest_s = step_s;
	}
	for (uint32_t i = 0; i < replicas; i++)
		s->apart->parts[i].steps = s->apart->stream.on ? options.inner_steps
		    : goes_by_time(s->apart) ? steps_in_time(t, step_s_of(s, i), agreed.slowest_s)
		                             : pace_quota(&options, &agreed, step_s_of(s, i));
}

/* Of the replicas that begin the round, those that take its steps; which shards come meanwhile, at the rate that all know, is for the others to wait for. Returns how many. */
static uint32_t choose_parts(const struct trainer *t, uint32_t replicas)
{
	const struct sharded *s = t->sharded;
	double steps_s = 0;
	uint32_t count = 0;
	for (uint32_t i = 0; i < replicas; i++)
		steps_s = fmax(steps_s, (double)s->apart->parts[i].steps * step_s_of(s, i));
	bool sits_out = steps_s > 0 && sharded_hold_up(s, steps_s);
	for (uint32_t i = 0; i < replicas; i++) {
		struct apart_part *part = &s->apart->parts[i];
		part->trains = part->anew = !sits_out || !sharded_waits_for_shards(s, i);
		count += part->trains;
	}
	return count;
}

/* The batch of each step is shared out as evenly as it goes; the places of a replica's steps lie one behind the other. */
static void begin_parts(const struct trainer *t, uint32_t replicas)
{
	uint64_t place = 0;
	uint32_t number = 0;
	set_quotas(t, replicas);
	uint32_t count = choose_parts(t, replicas);
	for (uint32_t i = 0; i < replicas; i++) {
		struct apart_part *part = &t->sharded->apart->parts[i];
		uint64_t first, last;
		if (!part->trains)
			continue;
		samples_share(t->batch, number++, count, &first, &last);
		part->share = last - first;
		part->claim = (struct claim){ place, part->share * part->steps };
		place += part->claim.count;
	}
}

static void derive_parts(struct trainer *t)
{
	struct sharded *s = t->sharded;
	uint32_t replicas = ranks_replicas(&s->next);
	bool any = false;
	for (uint32_t i = 0; i < replicas; i++) {
		s->apart->parts[i] = part_of(s, i);
		any = any || s->apart->parts[i].trains;
	}
	if (!any)
		begin_parts(t, replicas);
}

/* ---- this worker ---- */

static void begin_own(struct trainer *t, const struct tr_round *round, const struct apart_part *part)
{
	struct sharded *s = t->sharded;
	struct sharded_apart *a = s->apart;
	a->own = (struct apart_own){ .round = round->round,
		.workers = own_workers(s),
		.claim = part->claim,
		.share = part->share,
		.quota = part->steps,
		.lr_scale = sharded_choose_rate(t) };
	if (!a->stream.on)
		memcpy(a->work, t->arrays.params, t->layout.count * sizeof(float));
	else if (!part->goes_on)
		sharded_stream_begin(t, round->round, a->own.workers);
	a->own.began = a->stream.lineage;
	sharded_owners_begin(t);
	if (part->alike || part->lineage != 0)
		return;
	const uint64_t from[] = { round->round, a->own.workers };
	sharded_clear_moments(t);
	sharded_apart_begin_moments(t, 0, sharded_apart_word(from, sizeof(from)));
}

/* The others of its replica may be a step ahead. */
static tr_status take_theirs(struct trainer *t, struct tr_error *error)
{
	struct sharded *s = t->sharded;
	struct sharded_apart *a = s->apart;
	uint32_t replica = ranks_replica(&s->next, s->self);
	for (uint32_t k = 0; k < ranks_members(&s->next); k++) {
		const struct apart_word *word = &a->roster[ranks_member(&s->next, replica, k)];
		if ((uint64_t)word->steps != a->own.steps + 1)
			continue;
		if (!a->own.ready)
			return tr_error_set(error, TR_EINTERNAL,
			    "sync.mode: another worker of this replica has taken a step of which "
			    "this one has no gradient");
		if (sharded_copies(s) > 1)
			a->own.step_loss = number_of(word->loss);
		sharded_inner_take(t, number_of(word->norm));
		return TR_OK;
	}
	return TR_OK;
}

/* With ZeRO-1 what copies make of a step for each other comes again, where one of this shard's takes it now, or lacks some of it. Not else: one may have changed its work at a take, and another not. */
static tr_status catch_up(struct trainer *t, struct tr_error *error)
{
	const struct sharded *s = t->sharded;
	const struct apart_word *roster = s->apart->roster;
	uint32_t replica = ranks_replica(&s->next, s->self);
	int64_t most = 0;
	bool again = false;
	for (uint32_t k = 0; k < ranks_members(&s->next); k++) {
		int64_t steps = roster[ranks_member(&s->next, replica, k)].steps;
		most = steps > most ? steps : most;
	}
	for (uint32_t i = 0; i < s->copies.count; i++) {
		const struct apart_word *word = &roster[s->copies.members[i]];
		again = again || word->lacks != 0 || word->steps != most;
	}
	tr_status status = take_theirs(t, error);
	return status == TR_OK && again && sharded_owners_share(s)
	    ? sharded_owners_exchange(t, error)
	    : status;
}

static tr_status begin_or_go_on(struct trainer *t, const struct tr_round *round,
    struct tr_error *error)
{
	const struct apart_part *part = sharded_apart_part(t);
	if (!part->trains) {
		drop_own(t);
		return TR_OK;
	}
	tr_status status = sharded_wait_arrival(t, error);
	if (status != TR_OK)
		return status;
	if (!part->anew)
		return catch_up(t, error);
	if (!part->alike && part->lineage != 0)
		status = sharded_give_moments(t, part->lineage, error);
	if (status == TR_OK)
		begin_own(t, round, part);
	return status;
}

/* Of the outer parameters: of the round before. */
static bool validates(const struct trainer *t)
{
	return t->samples.validation > 0 &&
	    sharded_apart_crossed(t, t->spec->optimizer->eval_every);
}

static tr_status train(struct trainer *t, struct tr_error *error)
{
	const struct apart_part *part = sharded_apart_part(t);
	tr_status status = part != NULL ? sharded_stream_submit(t, error) : TR_OK;
	if (part == NULL || !part->trains || status != TR_OK)
		return status;
	model_bind(t->model, t->sharded->apart->work, t->arrays.grads);
	status = sharded_inner_steps(t, error);
	model_bind(t->model, t->arrays.params, t->arrays.grads);
	return status;
}

tr_status sharded_submit_apart(struct trainer *t, const struct tr_round *round,
    struct tr_error *error)
{
	tr_status status = exchange_roster(t, round, error);
	if (status == TR_OK)
		derive_parts(t);
	if (status == TR_OK && t->sharded->rank != RANKS_NONE)
		status = begin_or_go_on(t, round, error);
	t->sums->validation = t->sums->validation_tokens = 0;
	if (status == TR_OK && validates(t))
		status = sharded_submit_validation(t, round, error);
	if (status == TR_OK)
		status = train(t, error);
	return status == TR_OK ? sharded_submit_merge(t, round, error) : status;
}
