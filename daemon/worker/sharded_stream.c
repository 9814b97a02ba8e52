/* Work of a replica that goes on through merges (sharded_stream.h): when a fragment is taken, what of it, and what a commit makes of the work. */
#include <string.h>

#include "collectives/sync/outer.h"
#include "daemon/plan/job_mesh_sync.h"
#include "daemon/worker/trainer_inside.h"

/* ---- made and unmade ---- */

tr_status sharded_stream_make(struct trainer *t, struct tr_error *error)
{
	struct sharded *s = t->sharded;
	struct apart_stream *stream = &s->apart->stream;
	size_t most = sharded_fragment_most(t) * sizeof(float),
	       all = mesh_shards_most(&s->shards) * sizeof(float);
	struct {
		float **array;
		size_t bytes;
	} wanted[] = { { &stream->delta, most }, { &stream->sum, most }, { &stream->start, all },
		{ &stream->lead, all }, { &stream->lead_momentum, all } };
	unsigned count = !stream->on ? 0 : s->apart->options.mode == TR_SYNC_EAGER ? 5 : 2;
	for (unsigned i = 0; i < count; i++) {
		*wanted[i].array = mesh_memory_take(&s->memory, wanted[i].bytes);
		if (*wanted[i].array == NULL)
			return tr_error_set(error, TR_ENOMEM,
			    "sync.mode: no shared memory for what a merge is made of while its "
			    "replica trains on (%zu MiB)",
			    wanted[i].bytes >> 20);
	}
	return TR_OK;
}

void sharded_stream_unmake(struct trainer *t)
{
	struct mesh_memory *memory = &t->sharded->memory;
	struct apart_stream *stream = &t->sharded->apart->stream;
	mesh_memory_give(memory, stream->delta);
	mesh_memory_give(memory, stream->sum);
	mesh_memory_give(memory, stream->start);
	mesh_memory_give(memory, stream->lead);
	mesh_memory_give(memory, stream->lead_momentum);
	*stream = (struct apart_stream){ .on = stream->on, .shard = RANKS_NONE };
}

/* ---- which merge is next ---- */

static struct sync_schedule schedule_of(const struct trainer *t)
{
	const struct tr_sync_options *o = &t->sharded->apart->options;
	uint64_t start = t->counters->start; /* its checkpoint may have more steps than the job */
	return (struct sync_schedule){ .steps = t->steps > start ? t->steps - start : 0,
		.period = o->inner_steps,
		.overlap = (uint64_t)o->overlap,
		.fragments = o->fragments };
}

bool sharded_stream_slot(const struct trainer *t, struct stream_slot *slot)
{
	struct sync_schedule schedule = schedule_of(t);
	struct sync_slot now, before = { 0 };
	uint64_t merges = t->sharded->state->merges;
	if (schedule.steps == 0 || !sync_schedule_slot(&schedule, merges + 1, &now))
		return false;
	if (merges > 0)
		(void)sync_schedule_slot(&schedule, merges, &before);
	*slot = (struct stream_slot){ now.fragment, now.merge - before.merge,
		now.take - before.merge };
	return true;
}

uint64_t sharded_stream_merges(const struct trainer *t, uint64_t step)
{
	struct sync_schedule schedule = schedule_of(t);
	struct sync_slot slot;
	uint64_t merges = 0, done = step - t->counters->start;
	while (schedule.steps > 0 && sync_schedule_slot(&schedule, merges + 1, &slot) &&
	    slot.merge <= done)
		merges++;
	return merges;
}

/* ---- this worker's work ---- */

uint64_t sharded_stream_lineage(uint64_t before, uint64_t round, bool merged)
{
	const uint64_t from[] = { before, round, merged };
	return sharded_apart_word(from, sizeof(from));
}

void sharded_stream_drop(struct trainer *t)
{
	t->sharded->apart->stream.lineage = 0;
}

/* What this replica would have without a word from the others. */
static void clear(struct apart_stream *stream)
{
	memset(stream->tokens, 0, sizeof(stream->tokens));
	memset(stream->steps, 0, sizeof(stream->steps));
	stream->since = (struct apart_given){ 0 };
	stream->gave = stream->share = 0;
}

void sharded_stream_begin(struct trainer *t, uint64_t round, uint64_t workers)
{
	struct sharded *s = t->sharded;
	struct apart_stream *stream = &s->apart->stream;
	size_t bytes = t->layout.count * sizeof(float);
	const uint64_t from[] = { round, workers };
	clear(stream);
	stream->shard = ranks_shard(&s->shards.mesh, s->rank);
	stream->lineage = sharded_apart_word(from, sizeof(from));
	memcpy(s->apart->work, t->arrays.params, bytes);
	if (stream->start == NULL)
		return;
	memcpy(stream->start, t->arrays.params, bytes);
	memset(stream->lead, 0, bytes);
	memset(stream->lead_momentum, 0, bytes);
	memset(stream->delta, 0, sharded_fragment_numbers(t, 0) * sizeof(float));
}

void sharded_stream_count(struct trainer *t, double tokens, double norm)
{
	struct sharded_apart *a = t->sharded->apart;
	struct apart_stream *stream = &a->stream;
	for (unsigned f = 0; f < a->options.fragments; f++) {
		stream->tokens[f] += tokens;
		stream->steps[f]++;
	}
	stream->since.loss += a->own.step_loss;
	stream->since.tokens += tokens;
	stream->lineage = sharded_apart_lineage(&a->own, stream->lineage, norm);
}

/* ---- take ---- */

/* Of the last merge, which no step lies before: eager does not run ahead of it. */
static bool is_last(const struct stream_slot *slot)
{
	return slot->take >= slot->steps;
}

/* What the replica counts for until it is told: an equal part of those that there were at the last commit, which all its workers know alike. */
static float share_of(const struct sharded *s)
{
	uint32_t replicas = ranks_replicas(&s->state->ranks);
	if (s->apart->stream.share > 0)
		return (float)s->apart->stream.share;
	if (replicas == 0)
		replicas = s->shards.mesh.size[MESH_DP] / sharded_copies(s);
	return 1 / (float)replicas;
}

/* As run_ahead and start_ahead of collectives/sync/sync.c: this replica's newest movement in place of the one before it, which the others' result will bring. */
static void run_ahead(struct trainer *t, const struct stream_piece *p, float before, float weight)
{
	struct sharded_apart *a = t->sharded->apart;
	struct apart_stream *stream = &a->stream;
	float *work = a->work + p->offset, *start = stream->start + p->offset,
	      *lead = stream->lead + p->offset, *delta = stream->delta + p->packed,
	      *newest = stream->sum + p->packed; /* free between merge and take */
	outer_newer(newest, start, work, delta, before, p->count);
	outer_step(lead, stream->lead_momentum + p->offset, newest, share_of(t->sharded),
	    (float)a->options.outer_lr, (float)a->options.outer_momentum, p->count);
	outer_delta(delta, start, work, weight, p->count);
	outer_add(start, t->arrays.params + p->offset, lead, p->count);
	memcpy(work, start, p->count * sizeof(float));
}

/* As if it had not moved, and were not ahead. */
static void put_back(struct trainer *t, const struct stream_piece *p)
{
	struct sharded_apart *a = t->sharded->apart;
	struct apart_stream *stream = &a->stream;
	const float *outer = t->arrays.params + p->offset;
	size_t bytes = p->count * sizeof(float);
	memcpy(a->work + p->offset, outer, bytes);
	if (stream->start == NULL)
		return;
	memcpy(stream->start + p->offset, outer, bytes);
	memset(stream->lead + p->offset, 0, bytes);
	memset(stream->lead_momentum + p->offset, 0, bytes);
	memset(stream->delta + p->packed, 0, bytes);
}

/* With carry: where the merge would bring this replica if all had moved as it has (collectives/sync/late.h). */
static void foresee(const struct trainer *t, const struct stream_piece *p, float *out)
{
	const struct sharded_apart *a = t->sharded->apart;
	const float *momentum = t->arrays.outer != NULL ? t->arrays.outer + p->offset : NULL;
	outer_foresee(out, t->arrays.params + p->offset, momentum, a->stream.delta + p->packed,
	    (float)(1 / a->own.given.weight), (float)a->options.outer_lr,
	    (float)a->options.outer_momentum, p->count);
}

static void take(struct trainer *t, const struct stream_slot *slot)
{
	struct sharded_apart *a = t->sharded->apart;
	struct apart_stream *stream = &a->stream;
	const float *from = stream->start != NULL ? stream->start : t->arrays.params;
	float before = stream->gave > 0 ? (float)(1 / stream->gave) : 0;
	struct stream_piece p = { 0 };
	a->own.given = stream->since;
	a->own.given.weight = stream->gave = outer_weight(a->options.weights,
	    stream->tokens[slot->fragment], stream->steps[slot->fragment]);
	stream->since = (struct apart_given){ 0 };
	stream->tokens[slot->fragment] = stream->steps[slot->fragment] = 0;
	while (sharded_next_piece(t, slot->fragment, &p)) {
		if (!sharded_inner_sound(t, a->work + p.offset, p.count))
			put_back(t, &p);
		if (stream->start != NULL && !is_last(slot))
			run_ahead(t, &p, before, (float)stream->gave);
		else
			outer_delta(stream->delta + p.packed, from + p.offset, a->work + p.offset,
			    (float)stream->gave, p.count);
		if (a->options.carry && stream->gave > 0)
			foresee(t, &p, a->work + p.offset);
	}
	stream->lineage = sharded_stream_lineage(stream->lineage, a->own.round, false);
	a->own.taken = true;
	a->own.taken_s = trainer_monotonic_s();
}

tr_status sharded_stream_take(struct trainer *t, struct tr_error *error)
{
	const struct sharded_apart *a = t->sharded->apart;
	struct stream_slot slot;
	if (!a->stream.on || a->own.taken || !sharded_stream_slot(t, &slot) ||
	    a->own.steps < slot.take)
		return TR_OK;
	take(t, &slot);
	return sharded_submit_fragment(t, slot.fragment, error);
}

tr_status sharded_stream_submit(struct trainer *t, struct tr_error *error)
{
	const struct sharded_apart *a = t->sharded->apart;
	struct stream_slot slot;
	if (!a->stream.on || !sharded_stream_slot(t, &slot))
		return TR_OK;
	bool trains = sharded_apart_part(t)->trains;
	if (!trains) /* delta may be a movement's that is still of use: this try may not be the one that counts */
		memset(a->stream.sum, 0, sharded_fragment_numbers(t, slot.fragment) * sizeof(float));
	return !trains || a->own.taken ? sharded_submit_fragment(t, slot.fragment, error) : TR_OK;
}

/* ---- merge ---- */

static void step_outer(struct trainer *t, const struct stream_piece *p, double weight)
{
	const struct tr_sync_options *o = &t->sharded->apart->options;
	float *momentum = t->arrays.outer != NULL ? t->arrays.outer + p->offset : NULL;
	if (weight > 0)
		outer_step(t->arrays.params + p->offset, momentum, t->arrays.grads + p->offset,
		    (float)(1 / weight), (float)o->outer_lr, (float)o->outer_momentum, p->count);
}

static void merge_piece(struct trainer *t, const struct stream_piece *p,
    const struct stream_slot *slot, double weight)
{
	struct sharded_apart *a = t->sharded->apart;
	const struct tr_sync_options *o = &a->options;
	const float *outer = t->arrays.params + p->offset;
	float *work = a->work + p->offset, *delta = a->stream.delta + p->packed;
	bool trains = sharded_apart_part(t)->trains,
	     late = trains && o->carry && a->own.given.weight > 0;
	if (late)
		foresee(t, p, delta);
	step_outer(t, p, weight);
	if (late)
		outer_carry(work, outer, delta, 1 - (float)o->alpha, p->count);
	else if (trains && (a->stream.start == NULL || is_last(slot)))
		outer_merge(work, outer, (float)o->alpha, p->count);
}

void sharded_stream_merge(struct trainer *t, double weight)
{
	struct sharded *s = t->sharded;
	struct apart_stream *stream = &s->apart->stream;
	struct stream_piece p = { 0 };
	struct stream_slot slot;
	if (s->rank == RANKS_NONE || !sharded_stream_slot(t, &slot)) {
		stream->lineage = 0;
		return;
	}
	if (s->dp.count > 1 && weight > 0)
		sharded_keep_fragment_lost(t, slot.fragment);
	while (sharded_next_piece(t, slot.fragment, &p))
		merge_piece(t, &p, &slot, weight);
	stream->share = weight > 0 ? s->apart->own.given.weight / weight : 0;
	stream->lineage = sharded_apart_part(t)->trains
	    ? sharded_stream_lineage(stream->lineage, s->apart->own.round, true)
	    : 0;
}
