/* A worker's part of a step: its share of the global batch in micro-batches, gradients accumulated as sums, each bucket handed over
 * as soon as the last micro-batch has made it final, so that the network works while the backward pass goes on.
 */
#include <math.h>
#include <string.h>

#include "common/rng.h"
#include "daemon/worker/trainer_inside.h"

/* Of draws of this file: so that they are no others'. */
#define DRAW_KEY 0x64726177u

struct attempt {
	struct trainer *t;
	unsigned flags;
	size_t submitted; /* buckets */
	tr_status status;
	struct tr_error *error;
};

static bool on_progress(void *arg)
{
	struct attempt *attempt = arg;
	return tr_progress(attempt->t->group) && attempt->status == TR_OK;
}

static void on_final(void *arg, size_t offset)
{
	struct attempt *a = arg;
	const struct buckets *b = &a->t->buckets;
	while (a->status == TR_OK && a->submitted < b->count && b->first[a->submitted] >= offset) {
		size_t i = a->submitted++, first = b->first[i];
		a->status = tr_allreduce(a->t->group, (uint32_t)i, a->t->arrays.grads + first,
		    buckets_end(b, i) - first, TR_F32, TR_SUM, a->flags, a->error);
	}
}

/* After the model stopped early: why. The group knows whether the round was abandoned, so it is asked. */
static tr_status stopped(struct attempt *a)
{
	if (a->status != TR_OK)
		return a->status;
	return tr_error_set(a->error, TR_ERESTART, "the round was abandoned");
}

static tr_status submit_sums(struct attempt *a, enum trainer_tag tag, double *sums, size_t count)
{
	return tr_allreduce(a->t->group, (uint32_t)tag, sums, count, TR_F64, TR_SUM, a->flags,
	    a->error);
}

bool trainer_gradient(struct trainer *t, size_t all, const struct model_hooks *hooks)
{
	size_t context = t->layout.config.context;
	struct model_hooks now = { hooks->progress, NULL, hooks->arg };
	for (size_t at = 0; at < all; at += t->micro) {
		size_t count = all - at < t->micro ? all - at : t->micro;
		struct model_batch batch = { t->inputs, t->targets, count, context,
			t->numbers + at };
		double loss;
		for (size_t i = 0; i < count; i++)
			samples_get(&t->samples, t->numbers[at + i], t->inputs + i * context,
			    t->targets + i * context);
		if (at + count == all)
			now.gradients_final = hooks->gradients_final;
		if (!model_gradient_of(t->model, &batch, &now, &loss))
			return false;
		t->sums->loss += loss;
	}
	t->sums->loss_tokens = (double)(all * context);
	return true;
}

/* Sequences [first, last) of the batch. */
static tr_status compute_share(struct attempt *a, uint64_t first, uint64_t last)
{
	struct model_hooks hooks = { on_progress, on_final, a };
	for (uint64_t i = first; i < last; i++)
		a->t->numbers[i - first] = a->t->account->cursor + i;
	return trainer_gradient(a->t, (size_t)(last - first), &hooks) ? a->status : stopped(a);
}

/* Who brings how many tokens, known to all before the work begins: a round that ends without one of them needs it (arrived.c). */
static tr_status submit_roster(struct attempt *a, const struct tr_round *round, uint64_t tokens)
{
	struct trainer *t = a->t;
	memset(t->sums->roster, 0, sizeof(t->sums->roster));
	if (trainer_contributes(round)) {
		t->sums->roster[2 * round->index] = (double)tr_peer_id(t->group);
		t->sums->roster[2 * round->index + 1] = (double)tokens;
	}
	return submit_sums(a, TAG_ROSTER, t->sums->roster, 2 * (size_t)round->contributors);
}

bool trainer_validates(const struct trainer *t, uint64_t step)
{
	uint64_t every = t->spec->optimizer->eval_every;
	return t->samples.validation > 0 && every > 0 && (step - 1) % every == 0;
}

tr_status trainer_submit_step(struct trainer *t, const struct tr_round *round,
    struct tr_error *error)
{
	struct attempt a = { .t = t, .error = error };
	uint64_t first = 0, last = 0;
	tr_status status = TR_OK;
	if (trainer_contributes(round)) {
		a.flags = TR_CONTRIBUTE;
		samples_share(t->batch, round->index, round->contributors, &first, &last);
	}
	memset(t->arrays.grads, 0, t->layout.count * sizeof(float));
	t->sums->loss = t->sums->loss_tokens = 0;
	t->sums->validation = t->sums->validation_tokens = 0;
	if (t->drop)
		status = submit_roster(&a, round, (last - first) * t->layout.config.context);
	if (status == TR_OK && trainer_validates(t, round->round))
		status = trainer_submit_validation(t, round, error);
	if (status == TR_OK)
		status = compute_share(&a, first, last);
	if (status != TR_OK)
		return status;
	on_final(&a, 0); /* what is left, if there was nothing to compute */
	return a.status == TR_OK ? submit_sums(&a, TAG_LOSS, &t->sums->loss, 2) : a.status;
}

bool trainer_validate(struct trainer *t, unsigned index, unsigned contributors,
    const struct model_hooks *hooks)
{
	size_t context = t->layout.config.context;
	uint64_t next = index < contributors ? index : t->samples.validation;
	t->sums->validation = t->sums->validation_tokens = 0;
	while (next < t->samples.validation) {
		size_t count = 0;
		double loss;
		for (; count < t->micro && next < t->samples.validation; count++) {
			samples_get_validation(&t->samples, next, t->inputs + count * context,
			    t->targets + count * context);
			next += contributors;
		}
		if (!model_loss(t->model, t->inputs, t->targets, count, context, hooks, &loss))
			return false;
		t->sums->validation += loss;
		t->sums->validation_tokens += (double)(count * context);
	}
	return true;
}

double trainer_loss_of_draw(struct trainer *t, uint64_t draw, size_t count,
    const struct model_hooks *hooks)
{
	size_t context = t->layout.config.context, done = 0;
	struct rng_key key = rng_key(t->spec->optimizer->seed, draw, DRAW_KEY);
	double sum = 0, loss;
	while (done < count) {
		size_t n = 0;
		for (; n < t->micro && done + n < count; n++)
			samples_get(&t->samples, rng_below(key, 0, done + n, t->samples.per_epoch),
			    t->inputs + n * context, t->targets + n * context);
		if (!model_loss(t->model, t->inputs, t->targets, n, context, hooks, &loss))
			return NAN;
		sum += loss;
		done += n;
	}
	return sum / (double)(count * context);
}

tr_status trainer_submit_validation(struct trainer *t, const struct tr_round *round,
    struct tr_error *error)
{
	struct attempt a = { .t = t, .error = error };
	struct model_hooks hooks = { on_progress, NULL, &a };
	if (trainer_contributes(round))
		a.flags = TR_CONTRIBUTE;
	if (!trainer_validate(t, round->index, round->contributors, &hooks))
		return stopped(&a);
	return submit_sums(&a, TAG_VALIDATION, &t->sums->validation, 2);
}
