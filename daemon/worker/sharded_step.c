/* A step of a sharded job: the replica's part of the batch, gradients reduced over dp in buckets while the backward pass goes on, then one sum of all: loss and
 * tokens, which one worker of each replica says, and the squares of the gradient, which the first replica says, shard by shard. */
#include <math.h>
#include <stddef.h>
#include <string.h>

#include "common/log.h"
#include "daemon/worker/trainer_inside.h"

struct attempt {
	struct trainer *t;
	size_t submitted; /* buckets */
	tr_status status;
	struct tr_error *error;
};

static bool on_progress(void *arg)
{
	struct attempt *a = arg;
	return tr_progress(a->t->group) && a->status == TR_OK;
}

tr_status sharded_submit_bucket(struct trainer *t, uint32_t bucket,
    const struct sharded_scope *scope, struct tr_error *error)
{
	size_t first = t->buckets.first[bucket];
	struct tr_op op = TR_OP_INIT;
	op.tag = bucket;
	op.output = t->arrays.grads + first;
	op.count = buckets_end(&t->buckets, bucket) - first;
	op.reduce = TR_SUM;
	op.scope = (struct tr_scope){ scope->members, scope->count };
	return tr_submit(t->group, &op, error);
}

static void on_final(void *arg, size_t offset)
{
	struct attempt *a = arg;
	const struct buckets *b = &a->t->buckets;
	while (a->status == TR_OK && a->submitted < b->count && b->first[a->submitted] >= offset) {
		uint32_t i = (uint32_t)a->submitted++;
		struct sharded_scope scope;
		sharded_keep_shared(a->t, b->first[i], buckets_end(b, i));
		sharded_sum_scope(a->t, b->first[i], &scope);
		if (scope.count > 1)
			a->status = sharded_submit_bucket(a->t, i, &scope, a->error);
	}
}

tr_status sharded_stopped(struct trainer *t, struct tr_error *error)
{
	const struct sharded_exchange *x = &t->sharded->exchange;
	if (x->status != TR_OK)
		return tr_error_set(error, x->status, "%s", x->error.text);
	if (t->sharded->pipeline != NULL) {
		tr_status status;
		const struct tr_error *why = sharded_pipeline_failed(t, &status);
		if (status != TR_OK)
			return tr_error_set(error, status, "%s", why->text);
	}
	return tr_error_set(error, TR_ERESTART, "the round was abandoned");
}

static tr_status stopped(const struct attempt *a)
{
	return a->status != TR_OK ? a->status : sharded_stopped(a->t, a->error);
}

/* Of those with the loss, at the pipeline's end. */
bool sharded_speaks(const struct trainer *t)
{
	const struct sharded *s = t->sharded;
	if (s->rank == RANKS_NONE)
		return false;
	struct mesh_at at = mesh_at(&s->shards.mesh, s->rank);
	return at.at[MESH_TP] == 0 && at.at[MESH_PP] + 1 == s->shards.mesh.size[MESH_PP];
}

/* Part `part` of `parts`. */
static bool validate_part(struct trainer *t, uint32_t replica, uint32_t replicas,
    const struct model_hooks *hooks)
{
	const struct sharded *s = t->sharded;
	return s->pipeline != NULL ? sharded_pipeline_validate(t, replica, replicas, hooks)
	                           : trainer_validate(t, replica, replicas, hooks);
}

static bool validate_strict(struct trainer *t, uint32_t part, const struct model_hooks *hooks)
{
	return validate_part(t, part, STRICT_PARTS_MAX, hooks);
}

static bool validate(struct trainer *t, const struct model_hooks *hooks)
{
	const struct sharded *s = t->sharded;
	if (t->strict)
		return sharded_strict_validate(t, hooks, validate_strict);
	uint32_t own = ranks_replica(&s->next, s->self), part = 0, parts = 0;
	for (uint32_t i = 0; i < ranks_replicas(&s->next); i++) {
		bool takes = !sharded_waits_for_shards(s, i);
		part += takes && i < own;
		parts += takes;
	}
	uint32_t copies = sharded_copies(s);
	return sharded_waits_for_shards(s, own) ||
	    validate_part(t, part * copies + ranks_copy(&s->next, s->self), parts * copies, hooks);
}

tr_status sharded_submit_validation(struct trainer *t, const struct tr_round *round,
    struct tr_error *error)
{
	unsigned flags = trainer_contributes(round) ? TR_CONTRIBUTE : 0;
	tr_status status = TR_OK;
	struct sharded *s = t->sharded;
	struct attempt a = { .t = t, .error = error };
	struct model_hooks hooks = { on_progress, NULL, &a };
	t->sums->validation = t->sums->validation_tokens = 0;
	if (s->rank != RANKS_NONE && !validate(t, &hooks))
		return stopped(&a);
	if (!sharded_speaks(t))
		t->sums->validation = t->sums->validation_tokens = 0;
	if (t->strict)
		status = sharded_strict_submit_validation(t, sharded_speaks(t), flags, error);
	return status == TR_OK ? tr_allreduce(t->group, TAG_VALIDATION, &t->sums->validation, 2,
	                             TR_F64, TR_SUM, flags, error)
	                       : status;
}

static tr_status compute_strict(struct attempt *a)
{
	struct model_hooks hooks = { on_progress, NULL, a };
	return sharded_strict_gradient(a->t, &hooks, &a->status, a->error) ? TR_OK : stopped(a);
}

/* This replica's sequences of the batch. */
static tr_status compute(struct attempt *a)
{
	struct trainer *t = a->t;
	struct sharded *s = t->sharded;
	struct model_hooks hooks = { on_progress, on_final, a };
	uint64_t first, last;
	if (t->strict)
		return compute_strict(a);
	sharded_share(t, ranks_replica(&s->next, s->self), &first, &last);
	s->share = last - first;
	for (uint64_t i = first; i < last; i++)
		t->numbers[i - first] = t->account->cursor + i;
	memset(t->arrays.grads, 0, t->layout.count * sizeof(float));
	sharded_begin_work(t);
	if (!(s->pipeline != NULL ? sharded_pipeline_gradient : trainer_gradient)(t,
	        (size_t)s->share, &hooks))
		return stopped(a);
	sharded_end_work(t);
	on_final(a, 0);
	if (a->status == TR_OK)
		a->status = sharded_submit_shared(t, a->error);
	return a->status == TR_OK ? sharded_submit_table(t, a->error) : a->status;
}

double sharded_squares(const struct trainer *t, bool with_shared)
{
	const struct sharded *s = t->sharded;
	double sum = 0;
	size_t copy, numbers;
	if (ranks_shards(&s->shards.mesh) == 1) /* to the bit as a job that is not split */
		return optim_squares(t->ops, t->pool, t->arrays.grads, t->layout.count);
	bool copied = t->layout.depth.head && sharded_has_copy(t, &copy, &numbers);
	for (size_t i = 0; i < t->layout.tensor_count; i++) {
		const struct layout_tensor *tensor = &t->layout.tensors[i];
		if (copied && tensor->offset == copy)
			continue;
		bool shared = shard_whole(&s->whole, &t->layout, i);
		if (!shared || (s->shard.rank == 0 && with_shared))
			sum += optim_squares(t->ops, t->pool, t->arrays.grads + tensor->offset,
			    layout_numbers(tensor));
	}
	return sum;
}

/* Also those whose squares another one says, where their memory is to be used again. */
static tr_status wait_for_gradients(struct trainer *t, struct tr_error *error)
{
	size_t offset, numbers;
	tr_status status = TR_OK;
	for (uint32_t i = 0; i < t->buckets.count && status == TR_OK; i++) {
		struct sharded_scope scope;
		sharded_sum_scope(t, t->buckets.first[i], &scope);
		if (scope.count > 1)
			status = tr_wait(t->group, i, error);
	}
	if (status == TR_OK && sharded_has_copy(t, &offset, &numbers))
		status = tr_wait(t->group, TAG_TABLE, error);
	if (status == TR_OK && sharded_gathers_update(t) && sharded_has_shared(t))
		status = tr_wait(t->group, TAG_SHARED, error);
	return status;
}

/* With ZeRO-1 it says that all have waited for the gradients' sums, so it has to have something of each worker (tr_release). */
static size_t count_of_sums(const struct sharded *s)
{
	size_t count = 2 + ranks_shards(&s->shards.mesh);
	return s->owners > 0 && s->next.count > count ? s->next.count : count;
}

static tr_status submit_all(struct attempt *a, unsigned flags)
{
	struct sharded *s = a->t->sharded;
	return tr_allreduce(a->t->group, TAG_LOSS, s->sums, count_of_sums(s), TR_F64, TR_SUM, flags,
	    a->error);
}

static tr_status submit_sums(struct attempt *a, const struct tr_round *round)
{
	struct trainer *t = a->t;
	struct sharded *s = t->sharded;
	unsigned flags = trainer_contributes(round) ? TR_CONTRIBUTE : 0;
	bool first = s->rank != RANKS_NONE && ranks_replica(&s->next, s->self) == 0;
	memset(s->sums, 0, offsetof(struct sharded_sums, digests));
	if (sharded_speaks(t)) {
		s->sums->loss = t->sums->loss;
		s->sums->tokens = t->sums->loss_tokens;
	}
	if (t->strict) {
		tr_status status = sharded_wait_forwarded(t, a->error);
		if (status == TR_OK)
			status = sharded_strict_submit_sums(t, sharded_speaks(t), flags, a->error);
		return status == TR_OK ? submit_all(a, flags) : status;
	}
	tr_status status = first || sharded_gathers_update(t) ? wait_for_gradients(t, a->error)
	                                                      : sharded_wait_nothing(t, a->error);
	if (status != TR_OK)
		return status;
	double shared = 0;
	if (first && s->shard.rank == 0 && sharded_has_shared(t))
		status = sharded_shared_squares(t, &shared, a->error);
	if (status != TR_OK)
		return status;
	if (first)
		s->sums->squares[ranks_shard(&s->shards.mesh, s->rank)] = sharded_squares(t,
		                                                              !sharded_has_shared(
		                                                                  t)) +
		    shared;
	return submit_all(a, flags);
}

tr_status sharded_submit_step(struct trainer *t, const struct tr_round *round,
    struct tr_error *error)
{
	struct attempt a = { .t = t, .error = error };
	tr_status status = TR_OK;
	t->sums->loss = t->sums->loss_tokens = 0;
	t->sums->validation = t->sums->validation_tokens = 0;
	t->sharded->share = 0;
	if (trainer_validates(t, t->counters->step + 1))
		status = sharded_submit_validation(t, round, error);
	if (status == TR_OK && t->sharded->rank != RANKS_NONE)
		status = compute(&a);
	if (status == TR_OK)
		status = (t->strict ? sharded_forward_gradients : sharded_submit_nothing)(t, error);
	if (status == TR_OK)
		status = sharded_submit_work(t, round, error);
	if (status == TR_OK)
		status = sharded_submit_stages(t, round, error);
	if (status == TR_OK)
		status = sharded_submit_replan(t, round, error);
	return status == TR_OK ? submit_sums(&a, round) : status;
}

/* ---- committed ---- */

static void count(struct trainer *t, const struct tr_round *round)
{
	const struct sharded *s = t->sharded;
	t->sums->loss = s->sums->loss;
	t->sums->loss_tokens = s->sums->tokens;
	if (sharded_speaks(t))
		trainer_account_note(t, round->round, (size_t)s->share);
	(void)lease_batch(t->account, t->batch, round->round);
	t->counters->step++;
	t->counters->samples = lease_counted(t->account);
	t->counters->tokens += (uint64_t)s->sums->tokens;
}

static void remember(struct sharded *s, const struct tr_round *round)
{
	struct sharded_state *state = s->state;
	state->born = 1;
	s->loaded = RANKS_NONE;
	state->step_round = round->round;
}

/* Of whole models nobody waits inside a step. */
static void tell_waits(struct trainer *t)
{
	struct sharded *s = t->sharded;
	struct tr_stats stats = TR_STATS_INIT;
	struct tr_error error;
	char text[WAITS_TEXT];
	double now_s = trainer_monotonic_s();
	if (ranks_shards(&s->shards.mesh) > 1 &&
	    waits_step(&s->waits, now_s, s->exchange.waited_s) &&
	    tr_stats_get(t->group, &stats, &error) == TR_OK &&
	    waits_end(&s->waits, now_s, 1e-6 * (double)stats.waited_us, text))
		log_info("trainer", "%s", text);
}

void sharded_apply_step(struct trainer *t, const struct tr_round *round)
{
	struct sharded *s = t->sharded;
	struct optim_by by = sharded_step_by(t);
	count(t, round);
	sharded_update(t, &by);
	if (!isfinite(by.norm))
		trainer_skip_step(t, round, t->counters->step, TRAINER_NOT_FINITE);
	remember(s, round);
	trainer_measure_speed(t);
	tell_waits(t);
	trainer_report_step(t, round, t->sums->loss / t->sums->loss_tokens,
	    trainer_validation_loss(t), by.norm);
	trainer_account_tell(t, round, false);
}
