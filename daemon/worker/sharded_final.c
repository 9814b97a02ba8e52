/* The round after the last step of a sharded job: shards go to who writes, which puts the model together for sample and checkpoint. */
#include <stdlib.h>

#include "daemon/worker/trainer_inside.h"

static float *numbers(size_t count)
{
	float *made = aligned_alloc(64, (count * sizeof(float) + 63) / 64 * 64);
	for (size_t i = 0; made != NULL && i < count; i++)
		made[i] = 0;
	return made;
}

static void failed(struct trainer *t, const char *why)
{
	t->final_failed = true;
	trainer_report_event(t, why);
}

static void write_with(struct trainer *t, const struct optim_arrays *whole)
{
	struct sharded *s = t->sharded;
	struct model *model;
	struct tr_error error;
	sharded_assemble(t, whole);
	if (model_create(&s->whole, 1, t->pool, &model, &error) != TR_OK) {
		failed(t, error.text);
		return;
	}
	model_bind(model, whole->params, NULL);
	trainer_write_final(t, model, &s->whole, whole);
	model_destroy(model);
}

static void write_whole(struct trainer *t)
{
	size_t count = t->sharded->whole.count;
	struct optim_arrays whole = { .params = numbers(count),
		.first = numbers(count),
		.second = numbers(count),
		.outer = t->arrays.outer != NULL ? numbers(count) : NULL };
	bool has_outer = whole.outer != NULL || t->arrays.outer == NULL;
	if (whole.params == NULL || whole.first == NULL || whole.second == NULL || !has_outer)
		failed(t, "no last checkpoint: no memory to put the whole model together");
	else
		write_with(t, &whole);
	free(whole.params);
	free(whole.first);
	free(whole.second);
	free(whole.outer);
}

tr_status sharded_submit_final(struct trainer *t, const struct tr_round *round,
    struct tr_error *error)
{
	bool writes = sharded_writes(t);
	tr_status status = TR_OK;
	if (t->samples.validation > 0)
		status = sharded_submit_validation(t, round, error);
	if (status == TR_OK && writes)
		status = sharded_wait_gathered(t, error);
	if (status != TR_OK)
		return status;
	if (writes && !t->final_written && !t->final_failed)
		write_whole(t);
	t->sums->final_written = writes && t->final_written ? 1 : 0;
	t->sums->final_failed = writes && t->final_failed ? 1 : 0;
	return tr_allreduce(t->group, TAG_FINAL, &t->sums->final_written, 2, TR_F64, TR_SUM,
	    trainer_contributes(round) ? TR_CONTRIBUTE : 0, error);
}
