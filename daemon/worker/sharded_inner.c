/* Steps of a replica that trains apart (sharded_apart.h): the gradient of its share of a batch, made whole among its workers, all copies of a shard together, then one sum of theirs alone, of the squares of it, shard by shard;
 * so all clip by the same bits. With that sum's result each knows that all have waited for the step's other sums, and for the sum of the step before: their memory is the next step's.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "collectives/sync/outer.h"
#include "daemon/plan/job_mesh_sync.h"
#include "daemon/worker/trainer_inside.h"

enum { SUM_SHARED, SUM_TABLE, SUM_SQUARES, SUM_COPIES };
_Static_assert(SUM_COPIES + 2 == JOB_MESH_INNER_SUMS, "tags of a step");

struct inner {
	struct trainer *t;
	tr_status status;
	struct tr_error *error;
};

static bool on_progress(void *arg)
{
	const struct inner *i = arg;
	return tr_progress(i->t->group);
}

uint32_t sharded_inner_tag(const struct sharded *s, uint64_t step)
{
	return TAG_INNER + job_mesh_inner_tags(sharded_copies(s), s->owners) * (uint32_t)step;
}

static uint32_t tag_of(const struct trainer *t, unsigned sum)
{
	return sharded_inner_tag(t->sharded, t->sharded->apart->own.steps) + sum;
}

static tr_status sum_and_wait(struct trainer *t, unsigned sum, const struct sharded_scope *scope,
    struct tr_op *op, struct tr_error *error)
{
	op->tag = tag_of(t, sum);
	op->reduce = TR_SUM;
	op->scope = (struct tr_scope){ scope->members, scope->count };
	tr_status status = tr_submit(t->group, op, error);
	op->scope.members = NULL;
	return status == TR_OK ? tr_wait(t->group, op->tag, error) : status;
}

/* With sequence parallelism each has of what all of its tensor-parallel group hold the gradient of its own rows. */
static bool has_parts(const struct sharded *s)
{
	return s->row_parts > 1;
}

/* And of three copies' sums the last bits would be others at each of the group (sharded_shared.c). */
static bool sums_shared(const struct sharded *s)
{
	return has_parts(s) || (sharded_copies(s) > 2 && s->tp.count > 1);
}

/* Whether these sums stay apart from the gradients until the step is taken: there the copies' sums lie, which are others, and are not this worker's to change. */
static bool keeps_shared(const struct sharded *s)
{
	return sums_shared(s) && sharded_copies(s) > 1;
}

static tr_status sum_shared(struct trainer *t, struct tr_error *error)
{
	struct sharded *s = t->sharded;
	struct sharded_scope stage;
	struct tr_op op = TR_OP_INIT;
	if (!sums_shared(s))
		return TR_OK;
	op.output = s->shared;
	op.count = sharded_copy_shared(t, false);
	if (!has_parts(s) && s->shard.rank != 0)
		sharded_add_nothing(s->shared, op.count);
	sharded_copies_stage(s, &stage);
	return sum_and_wait(t, SUM_SHARED, &stage, &op, error);
}

/* Of the replica's copies, each of which has its own sequences: all but a table that stages have copies of, numbers [first, end) of which are left out. */
static tr_status sum_copies(struct trainer *t, struct tr_error *error)
{
	const struct sharded *s = t->sharded;
	size_t first = t->layout.count, numbers = 0;
	if (sharded_copies(s) < 2)
		return TR_OK;
	if (!sharded_has_copy(t, &first, &numbers))
		first = t->layout.count;
	const struct owners_range ranges[] = { { 0, first }, { first + numbers, t->layout.count } };
	tr_status status = TR_OK;
	for (unsigned i = 0; i < 2 && status == TR_OK; i++) {
		struct tr_op op = TR_OP_INIT;
		op.output = t->arrays.grads + ranges[i].first;
		op.count = ranges[i].end - ranges[i].first;
		if (op.count > 0)
			status = sum_and_wait(t, SUM_COPIES + i, &s->copies, &op, error);
	}
	return status;
}

static tr_status sum_table(struct trainer *t, struct tr_error *error)
{
	struct sharded_scope ends;
	struct tr_op op = TR_OP_INIT;
	size_t offset;
	if (!sharded_has_copy(t, &offset, &op.count))
		return TR_OK;
	op.output = t->arrays.grads + offset;
	sharded_copies_ends(t->sharded, &ends);
	return sum_and_wait(t, SUM_TABLE, &ends, &op, error);
}

static double own_squares(const struct trainer *t)
{
	const struct sharded *s = t->sharded;
	bool apart = keeps_shared(s);
	double shared = apart && s->shard.rank == 0 ? sharded_kept_squares(t) : 0;
	return sharded_squares(t, !apart) + shared;
}

static tr_status sum_squares(struct trainer *t, double *norm, struct tr_error *error)
{
	struct sharded *s = t->sharded;
	struct sharded_apart *a = s->apart;
	double *squares = a->squares[a->own.steps % 2], sum = 0;
	struct sharded_scope replica;
	struct tr_op op = TR_OP_INIT;
	op.output = squares;
	op.dtype = TR_F64;
	/* Of the first copy; the others say that they have waited, and their loss. */
	uint32_t members = ranks_members(&s->next), shards = ranks_shards(&s->shards.mesh);
	bool copies = sharded_copies(s) > 1;
	op.count = copies ? members + 1 : members;
	replica.count = ranks_beside(&s->next, s->self, replica.members);
	memset(squares, 0, op.count * sizeof(*squares));
	if (ranks_copy(&s->next, s->self) == 0)
		squares[ranks_shard(&s->shards.mesh, s->rank)] = own_squares(t);
	if (copies && sharded_speaks(t))
		squares[members] = a->own.step_loss;
	a->own.ready = true; /* from here on another worker may know the norm */
	tr_status status = sum_and_wait(t, SUM_SQUARES, &replica, &op, error);
	for (size_t k = 0; k < shards && status == TR_OK; k++)
		sum += squares[k];
	if (copies && status == TR_OK)
		a->own.step_loss = squares[members];
	*norm = sqrt(sum) / (double)(a->own.share * t->layout.config.context);
	return status;
}

/* Of this step, and the sum of squares of the one before and what was left of its exchange, if that was made in this try of the round. */
static tr_status release(struct trainer *t, bool first, struct tr_error *error)
{
	size_t offset = t->layout.count, numbers = 0;
	tr_status status = TR_OK;
	if (sums_shared(t->sharded))
		status = tr_release(t->group, tag_of(t, SUM_SHARED), error);
	bool table = sharded_has_copy(t, &offset, &numbers);
	if (status == TR_OK && table)
		status = tr_release(t->group, tag_of(t, SUM_TABLE), error);
	if (!table)
		offset = t->layout.count;
	bool copies = sharded_copies(t->sharded) > 1;
	if (status == TR_OK && copies && offset > 0)
		status = tr_release(t->group, tag_of(t, SUM_COPIES), error);
	if (status == TR_OK && copies && offset + numbers < t->layout.count)
		status = tr_release(t->group, tag_of(t, SUM_COPIES + 1), error);
	if (status != TR_OK || first)
		return status;
	status = tr_release(t->group,
	    sharded_inner_tag(t->sharded, t->sharded->apart->own.steps - 1) + SUM_SQUARES, error);
	return status == TR_OK ? sharded_owners_release(t, error) : status;
}

static tr_status compute(struct trainer *t, struct tr_error *error)
{
	struct sharded *s = t->sharded;
	struct apart_own *own = &s->apart->own;
	struct inner i = { .t = t, .error = error };
	struct model_hooks hooks = { on_progress, NULL, &i };
	uint64_t place = own->claim.first + own->steps * own->share, first, last;
	sharded_copy_samples(s, own->share, &first, &last);
	for (uint64_t k = first; k < last; k++)
		t->numbers[k - first] = claims_sample(t->account, place + k);
	own->ready = false;
	t->sums->loss = t->sums->loss_tokens = 0;
	memset(t->arrays.grads, 0, t->layout.count * sizeof(float));
	if (!(s->pipeline != NULL ? sharded_pipeline_gradient : trainer_gradient)(t,
	        (size_t)(last - first), &hooks))
		return sharded_stopped(t, error);
	own->step_loss = t->sums->loss;
	tr_status status = sum_shared(t, error);
	if (status == TR_OK)
		status = sum_copies(t, error);
	if (status == TR_OK && sums_shared(s) && !keeps_shared(s))
		(void)sharded_copy_shared(t, true);
	return status == TR_OK ? sum_table(t, error) : status;
}

/* Of steps that follow each other the first is told. */
static void tell_skipped(struct trainer *t, uint64_t step, bool skipped)
{
	const struct sharded *s = t->sharded;
	char event[256];
	bool before = s->apart->skipped;
	s->apart->skipped = skipped;
	if (before || !skipped)
		return;
	(void)snprintf(event, sizeof(event), "step %llu was not applied by replica %u: %s",
	    (unsigned long long)step, ranks_replica(&s->next, s->self), TRAINER_NOT_FINITE);
	if (ranks_number(&s->next, s->self) == 0)
		trainer_report_event(t, event);
}

bool sharded_inner_sound(struct trainer *t, const float *work, size_t count)
{
	const struct sharded *s = t->sharded;
	char event[256];
	if (outer_sound(work, count))
		return true;
	(void)snprintf(event, sizeof(event),
	    "own parameters of worker %u (rank %u) are not finite: its shard has no part in the "
	    "merge at step %llu, and goes on from the outer parameters",
	    s->self, s->rank, (unsigned long long)(t->counters->step + s->apart->own.steps));
	trainer_report_event(t, event);
	sharded_clear_moments(t);
	/* They are of no lineage: its replica begins with fresh ones as a whole. */
	sharded_apart_begin_moments(t, 0, 0);
	return false;
}

void sharded_inner_take(struct trainer *t, double norm)
{
	struct sharded_apart *a = t->sharded->apart;
	struct apart_own *own = &a->own;
	struct apart_moments *m = &a->moments;
	struct optim_arrays arrays = t->arrays;
	double scale = 1 / (double)(own->share * t->layout.config.context);
	struct optim_settings settings = t->settings;
	struct optim_by by = { &settings, scale, norm, t->counters->step + own->steps + 1,
		m->age + 1 };
	if (keeps_shared(t->sharded))
		(void)sharded_copy_shared(t, true);
	settings.lr *= own->lr_scale;
	settings.min_lr *= own->lr_scale;
	arrays.params = a->work;
	struct owners_range owned[2];
	unsigned ranges = sharded_owned(t, owned);
	for (unsigned i = 0; i < ranges; i++)
		optim_update_range(t->ops, t->pool, &t->layout, &arrays, &by, owned[i].first,
		    owned[i].end);
	own->lacks = sharded_owners_share(t->sharded);
	m->lineage = sharded_apart_lineage(own, m->lineage, norm);
	sharded_stream_count(t, (double)(own->share * t->layout.config.context), norm);
	m->used = t->counters->step;
	if (isfinite(norm))
		m->age++;
	tell_skipped(t, by.step, !isfinite(norm));
	own->norm = norm;
	own->newest_loss = own->step_loss;
	own->loss += own->step_loss;
	own->steps++;
	own->ready = false;
}

tr_status sharded_inner_steps(struct trainer *t, struct tr_error *error)
{
	struct sharded_apart *a = t->sharded->apart;
	struct apart_own *own = &a->own;
	uint64_t before = own->steps;
	double since_s = trainer_monotonic_s();
	tr_status status = TR_OK;
	for (bool first = true; own->steps < own->quota && status == TR_OK; first = false) {
		double norm = 0;
		status = sharded_stream_take(t, error);
		if (status == TR_OK)
			status = compute(t, error);
		if (status == TR_OK)
			status = sum_squares(t, &norm, error);
		if (status == TR_OK)
			status = release(t, first, error);
		if (status == TR_OK)
			sharded_inner_take(t, norm);
		if (status == TR_OK && own->lacks)
			status = sharded_owners_exchange(t, error);
	}
	if (status == TR_OK)
		status = sharded_stream_take(t, error);
	if (status == TR_OK && own->steps > before)
		a->step_ns = (uint64_t)(1e9 * (trainer_monotonic_s() - since_s)) /
		    (own->steps - before);
	return status;
}
