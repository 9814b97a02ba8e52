/* The round after the last step of a sharded job: shards go to who writes, which puts the parameters together for the sample. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/worker/trainer_inside.h"

/* Of the whole layout; NULL: there is no memory for them. */
static float *put_together(const struct trainer *t, const struct checkpoint_source *source)
{
	const struct layout *whole = &t->sharded->whole;
	size_t bytes = (whole->count * sizeof(float) + 63) / 64 * 64;
	float *params = aligned_alloc(64, bytes);
	if (params == NULL)
		return NULL;
	memset(params, 0, bytes);
	for (size_t i = 0; i < whole->tensor_count; i++) {
		const struct layout_tensor *tensor = &whole->tensors[i];
		source->read(source->arg, 0, i, tensor->offset,
		    tensor->offset + layout_numbers(tensor), params + tensor->offset);
	}
	return params;
}

/* A job whose model no one worker has room for has a checkpoint all the same. */
static struct model *make_model(struct trainer *t, float *params)
{
	struct model *model = NULL;
	struct tr_error error = { .text = "no memory for the whole model's parameters" };
	if (params == NULL ||
	    model_create(&t->sharded->whole, 1, t->pool, &model, &error) != TR_OK) {
		char event[TR_ERROR_TEXT_MAX + 16];
		(void)snprintf(event, sizeof(event), "no sample: %s", error.text);
		trainer_report_event(t, event);
		return NULL;
	}
	model_bind(model, params, NULL);
	return model;
}

static void write_parts(struct trainer *t, const struct checkpoint_source *source)
{
	struct trainer_final what = { NULL, &t->sharded->whole, NULL, source };
	float *params = NULL;
	if (trainer_wants_sample(t)) {
		params = put_together(t, source);
		what.model = make_model(t, params);
	}
	trainer_write_final(t, &what);
	model_destroy(what.model);
	free(params);
}

static void write_whole(struct trainer *t)
{
	struct saver_parts parts;
	struct tr_error error;
	/* The others may need it before the last one is there. */
	uint64_t saved = trainer_end_save(t);
	if (saved > 0)
		t->sharded->saved_here = saved;
	if (sharded_lend_parts(t, &parts, &error) == TR_OK) {
		write_parts(t, &parts.source);
		sharded_take_back_parts(t);
	} else {
		t->final_failed = true;
		trainer_report_event(t, error.text);
	}
}

/* The rounds before this one have written them, or could not (sharded_saving.h). Returns whether this worker says it. */
static bool end_in_shards(struct trainer *t, const struct tr_round *round)
{
	t->final_written = t->sharded->state->saved >= t->counters->step;
	t->final_failed = !t->final_written;
	if (round->index == 0 && trainer_wants_sample(t))
		trainer_report_event(t,
		    "no sample: with checkpoint.sharded no worker has all parameters");
	return trainer_contributes(round) && round->index == 0;
}

tr_status sharded_submit_final(struct trainer *t, const struct tr_round *round,
    struct tr_error *error)
{
	bool writes = sharded_writes(t) && !t->sharded->in_shards;
	tr_status status = TR_OK;
	if (t->samples.validation > 0)
		status = sharded_submit_validation(t, round, error);
	if (status == TR_OK && writes)
		status = sharded_wait_gathered(t, error);
	if (status != TR_OK)
		return status;
	if (writes && !t->final_written && !t->final_failed)
		write_whole(t);
	if (t->sharded->in_shards)
		writes = end_in_shards(t, round);
	t->sums->final_written = writes && t->final_written ? 1 : 0;
	t->sums->final_failed = writes && t->final_failed ? 1 : 0;
	return tr_allreduce(t->group, TAG_FINAL, &t->sums->final_written, 2, TR_F64, TR_SUM,
	    trainer_contributes(round) ? TR_CONTRIBUTE : 0, error);
}
