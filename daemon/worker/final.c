/* The round after the last step: contributor 0 generates the sample and writes the last checkpoint before it commits, so that its death
 * is repaired like any other: somebody else is contributor 0 of the next attempt.
 */
#include <stdlib.h>
#include <string.h>

#include "daemon/worker/generate.h"
#include "daemon/worker/patience.h"
#include "daemon/worker/trainer_inside.h"

bool trainer_wants_sample(const struct trainer *t)
{
	return t->spec->sample != NULL && t->spec->sample->tokens > 0;
}

static char *make_sample(struct trainer *t, struct model *model, const struct layout *layout)
{
	const Traind__V1__Sample *s = t->spec->sample;
	if (model == NULL || !trainer_wants_sample(t))
		return NULL;
	struct generate options = { .prompt = s->prompt != NULL ? s->prompt : "",
		.tokens = s->tokens,
		.temperature = s->temperature,
		.seed = t->spec->optimizer->seed,
		.bpe = t->bpe,
		.progress = trainer_progress(t) };
	return generate_text(model, &layout->config, &options);
}

uint64_t trainer_end_save(struct trainer *t)
{
	struct progress progress = trainer_progress(t);
	saver_wait(t->saver, &progress, PATIENCE_MS);
	return trainer_finish_checkpoint(t);
}

static tr_status write_files(struct trainer *t, const struct trainer_final *what,
    const char *sample, const struct progress *progress, char path[CHECKPOINT_PATH_MAX],
    struct tr_error *error)
{
	struct manifest manifest = trainer_manifest(t);
	if (t->folder.dir[0] == '\0')
		return tr_error_set(error, TR_EINVAL,
		    "no checkpoint was written: checkpoint.dir is empty");
	if (what->source != NULL)
		return checkpoint_write_from(&t->folder, what->layout, what->source, &manifest,
		    sample, progress, path, error);
	return checkpoint_write(&t->folder, what->layout, what->arrays, &manifest, sample, progress,
	    path, error);
}

static void write_checkpoint(struct trainer *t, const struct trainer_final *what, const char *sample)
{
	char path[CHECKPOINT_PATH_MAX];
	struct tr_error error;
	(void)trainer_end_save(t);
	/* The others are in the round already, and wait for this. */
	struct patience patience;
	patience_begin(&patience, trainer_progress(t), PATIENCE_MS);
	struct progress progress = patience_progress(&patience);
	tr_status status = write_files(t, what, sample, &progress, path, &error);
	patience_end(&patience);
	t->final_written = status == TR_OK;
	t->final_failed = status != TR_OK;
	if (status == TR_OK)
		trainer_report_checkpoint(t, path);
	else
		trainer_report_event(t, error.text);
}

void trainer_write_final(struct trainer *t, const struct trainer_final *what)
{
	if (t->final_written || t->final_failed)
		return;
	/* Before our own is there, which has the number of the last step. */
	trainer_look_for_another_job(t, t->counters->step + 1, true);
	char *sample = make_sample(t, what->model, what->layout);
	write_checkpoint(t, what, sample);
	if (sample != NULL)
		trainer_report_sample(t, sample);
	free(sample);
}

tr_status trainer_submit_final(struct trainer *t, const struct tr_round *round,
    struct tr_error *error)
{
	tr_status status = TR_OK;
	bool writes = trainer_contributes(round) && round->index == 0 && alike_may_write(t);
	if (t->outer.sync != NULL)
		outer_fetch(t, t->arrays.params);
	if (t->outer.sync != NULL && writes)
		status = outer_fetch_momentum(t, error);
	if (status == TR_OK && t->samples.validation > 0)
		status = trainer_submit_validation(t, round, error);
	if (status != TR_OK)
		return status;
	if (writes)
		trainer_write_final(t,
		    &(struct trainer_final){ t->model, &t->layout, &t->arrays, NULL });
	t->sums->final_written = writes && t->final_written ? 1 : 0;
	t->sums->final_failed = writes && t->final_failed ? 1 : 0;
	return tr_allreduce(t->group, TAG_FINAL, &t->sums->final_written, 2, TR_F64, TR_SUM,
	    trainer_contributes(round) ? TR_CONTRIBUTE : 0, error);
}
