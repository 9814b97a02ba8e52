/* The loop. A round is a step, committed or done again; the update comes after the commit, so nothing is ever rolled back. */
#include <math.h>
#include <stdio.h>
#include <time.h>

#include "common/log.h"
#include "daemon/worker/patience.h"
#include "daemon/worker/trainer_inside.h"

double trainer_monotonic_s(void)
{
	struct timespec now;
	(void)clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static void gets_on(void *arg)
{
	(void)tr_progress(arg);
}

struct progress trainer_progress(const struct trainer *t)
{
	return (struct progress){ gets_on, t->group, NULL };
}

void trainer_measure_speed(struct trainer *t)
{
	double now = trainer_monotonic_s(), before = t->last_round_s;
	t->last_round_s = now;
	if (before == 0 || now <= before)
		return;
	t->step_s = now - before;
	speed_add(&t->speed, t->sums->loss_tokens, t->step_s);
	t->tokens_per_s = speed_tokens_per_s(&t->speed);
}

/* Its job ends well, and whoever meant it to train should know that it did not. A job that begins again after losses did train. */
static void tell_if_nothing_is_left(struct trainer *t, const struct tr_round *round)
{
	char event[192];
	struct tr_assignment assignment = { 0 };
	if (t->told_nothing_left || round->index != 0 || !trainer_contributes(round) ||
	    t->account->round > 0 || t->counters->start < t->steps)
		return;
	t->told_nothing_left = true;
	(void)tr_assignment_get(t->group, &assignment);
	if (assignment.restarts > 0)
		return;
	(void)snprintf(event, sizeof(event),
	    "checkpoint.resume: the checkpoint is of step %llu and train.steps is %llu: nothing is "
	    "left to train",
	    (unsigned long long)t->counters->start, (unsigned long long)t->steps);
	trainer_report_event(t, event);
}

tr_status trainer_first_round(struct trainer *t, const struct tr_round *round,
    struct tr_error *error)
{
	if (t->account->round > 0)
		return TR_OK;
	trainer_account_tell(t, round, false);
	tell_if_nothing_is_left(t, round);
	return round->index == 0 && t->folder.dir[0] != '\0'
	    ? checkpoint_make_folder(&t->folder, error)
	    : TR_OK;
}

void trainer_save(struct trainer *t, const struct optim_arrays *arrays)
{
	struct tr_error error;
	struct manifest manifest = trainer_manifest(t);
	if (saver_start(t->saver, arrays, &manifest, &error) != TR_OK)
		trainer_report_event(t, error.text);
}

static void start_checkpoint(struct trainer *t, const struct tr_round *round)
{
	uint64_t every = t->spec->checkpoint != NULL ? t->spec->checkpoint->every : 0;
	if (round->index != 0 || every == 0 || t->folder.dir[0] == '\0')
		return;
	uint64_t next = (round->round + every - 1) / every * every;
	if (next == round->round && next < t->steps)
		trainer_save(t, &t->arrays);
	else if (next < t->steps)
		saver_prepare(t->saver, t->arrays.outer != NULL);
}

void trainer_settle_save(struct trainer *t)
{
	struct progress progress = trainer_progress(t);
	saver_settle(t->saver, &progress, PATIENCE_MS);
}

uint64_t trainer_finish_checkpoint(struct trainer *t)
{
	struct saver_result result;
	if (!saver_result(t->saver, false, &result))
		return 0;
	if (result.status == TR_OK)
		log_info("trainer",
		    "checkpoint of step %llu: training waited %.2f ms for it; %.1f ms of a core, "
		    "%.0f ms "
		    "to the disk",
		    (unsigned long long)result.step, 1e3 * result.waited_s, 1e3 * result.cpu_s,
		    1e3 * result.took_s);
	if (t->sharded != NULL)
		sharded_take_back_parts(t);
	if (t->sharded != NULL && sharded_shard_ended(t, &result))
		return 0;
	if (result.status == TR_OK)
		trainer_report_checkpoint(t, result.path);
	else
		trainer_report_event(t, result.error.text);
	return result.status == TR_OK ? result.step : 0;
}

/* Nobody applies it: what it would do to the parameters cannot be told. */
void trainer_skip_step(struct trainer *t, const struct tr_round *round, uint64_t step,
    const char *why)
{
	char event[256];
	t->counters->skipped++;
	(void)snprintf(event, sizeof(event), "step %llu was not applied: %s",
	    (unsigned long long)step, why);
	if (round->index == 0)
		trainer_report_event(t, event);
}

/* The step is decided: apply it, unless its gradient was made at different parameters. */
static tr_status apply_step(struct trainer *t, const struct tr_round *round, bool alike,
    struct tr_error *error)
{
	double tokens = (double)(t->batch * t->layout.config.context);
	char event[256];
	if (round->partial) {
		tr_status status = trainer_scale_arrived(t, round, event, sizeof(event), error);
		if (status != TR_OK)
			return status;
		if (round->index == 0)
			trainer_report_event(t, event);
	}
	double norm = NAN;
	if (alike)
		norm = optim_step(t->ops, t->pool, &t->layout, &t->settings, &t->arrays, 1 / tokens,
		    round->round, round->round);
	tr_status counted = trainer_account_batch(t, round, alike, error);
	if (counted != TR_OK)
		return counted;
	t->counters->step = round->round;
	t->counters->samples = lease_counted(t->account);
	t->counters->tokens += (uint64_t)t->sums->loss_tokens;
	if (!alike)
		trainer_skip_step(t, round, round->round, "some worker's parameters were wrong");
	else if (!isfinite(norm))
		trainer_skip_step(t, round, round->round, TRAINER_NOT_FINITE);
	trainer_measure_speed(t);
	trainer_report_step(t, round, t->sums->loss / t->sums->loss_tokens,
	    trainer_validation_loss(t), norm);
	trainer_account_tell(t, round, false);
	start_checkpoint(t, round);
	return TR_OK;
}

/* Of a step: how many samples are in what was reduced, so that it is the same everywhere and a contributor that died after its data arrived is
 * counted. */
static tr_status samples_reduced(struct trainer *t, uint64_t *samples, struct tr_error *error)
{
	tr_status status = tr_wait(t->group, TAG_LOSS, error);
	if (status == TR_OK)
		*samples = (uint64_t)llround(
		    t->sums->loss_tokens / (double)t->layout.config.context);
	return status;
}

/* *alike: no worker's parameters were wrong. */
static tr_status commit(struct trainer *t, struct tr_round *round, bool step, bool *alike,
    struct tr_error *error)
{
	uint64_t samples = 0;
	tr_status status = TR_OK;
	trainer_settle_save(t); /* nothing has changed the state since a checkpoint began */
	if (step)
		status = alike_settle(t, round, error);
	if (status == TR_OK && step)
		status = samples_reduced(t, &samples, error);
	if (status != TR_OK)
		return status;
	if (round->receive_state) {
		status = tr_state_receive(t->group, error);
		if (status != TR_OK)
			return status;
	}
	struct tr_commit close = { .samples = samples, .salt = alike_salt(t, round) };
	struct tr_round committed = *round;
	status = tr_round_commit(t->group, &close, &committed, error);
	if (status == TR_EDIGEST)
		alike_tell_beginning(t, round);
	if (status != TR_OK)
		return status;
	round->partial = committed.partial; /* who shared the batch, and how, stays as it began */
	*alike = alike_mend(t, round);
	return TR_OK;
}

static tr_status step_round(struct trainer *t, struct tr_round *round, struct tr_error *error)
{
	tr_status status = trainer_first_round(t, round, error);
	if (status == TR_OK)
		status = trainer_submit_step(t, round, error);
	if (status != TR_OK)
		return status;
	bool alike = true;
	status = commit(t, round, true, &alike, error);
	return status == TR_OK ? apply_step(t, round, alike, error) : status;
}

/* *finished: the last checkpoint is written, or will not be. */
static tr_status final_round(struct trainer *t, struct tr_round *round, bool *finished,
    struct tr_error *error)
{
	bool alike;
	tell_if_nothing_is_left(t, round);
	tr_status status = alike_settle(t, round, error);
	if (status == TR_OK)
		status = trainer_submit_final(t, round, error);
	if (status == TR_OK)
		status = commit(t, round, false, &alike, error);
	if (status != TR_OK)
		return status;
	trainer_account_tell(t, round, true);
	/* Nobody wrote if contributor 0 died and the others finished its round, or if somebody's state was wrong: then one more round. */
	*finished = t->sums->final_written + t->sums->final_failed > 0;
	trainer_report_end(t, round);
	return TR_OK;
}

tr_status trainer_run(struct trainer *t, struct tr_error *error)
{
	struct tr_round round = { 0 };
	if (t->sharded != NULL)
		return sharded_run(t, error);
	tr_status status = t->outer.sync != NULL ? outer_run(t, &round, error) : TR_OK;
	bool begun = round.round > 0;
	if (status != TR_OK)
		return status;
	for (bool finished = false; !finished; begun = false) {
		if (!begun)
			status = tr_round_begin(t->group, &round, error);
		if (status == TR_OK && !begun)
			status = trainer_check_start(t, round.round, round.receive_state, error);
		if (status == TR_OK && t->outer.sync == NULL && round.round <= t->steps)
			status = step_round(t, &round, error);
		else if (status == TR_OK)
			status = final_round(t, &round, &finished, error);
		if (status == TR_ERESTART)
			log_info("trainer", "round %llu starts again: %s",
			    (unsigned long long)round.round, error->text);
		else if (status != TR_OK)
			return status;
		(void)trainer_finish_checkpoint(t);
	}
	return TR_OK;
}
