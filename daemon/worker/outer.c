#include "daemon/worker/outer.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "collectives/sync/pace.h"
#include "common/log.h"
#include "daemon/plan/job_sync.h"
#include "daemon/worker/ending.h"
#include "daemon/worker/kept.h"
#include "daemon/worker/trainer_inside.h"

/* Of the two seconds of ending.c. */
#define NEWS_WAIT_MS 500
#define NEWS_LOOKS   50
/* Of a batch on which losses are compared. */
#define PROBE_SEQUENCES 32

/* What is summed with each merge. */
enum { SUM_LOSS, SUM_TOKENS, SUM_VALIDATION, SUM_VALIDATION_TOKENS, SUMS };
_Static_assert((int)SUMS <= (int)TR_SYNC_SUMS, "more sums than a merge takes");

/* An abandoned round takes no work from us: tr_sync_step begins it again. Who is told to end has no time for the rest of a step. */
static bool on_progress(void *arg)
{
	(void)tr_progress(arg);
	return !ending_wanted();
}

/* struct tr_sync_options, lr_probe: windows of the training text, drawn anew for each batch. */
static double probe(void *arg, uint64_t batch)
{
	struct trainer *t = arg;
	struct model_hooks hooks = { on_progress, NULL, t->group };
	return trainer_loss_of_draw(t, batch, PROBE_SEQUENCES, &hooks);
}

static tr_status create_sync(struct trainer *t, struct tr_error *error)
{
	struct tr_sync_options options;
	uint64_t start = t->counters->start,
	         left = t->steps > start ? t->steps - start : TR_SYNC_ALL_DONE - (start - t->steps);
	tr_status status = job_sync_options(t->spec, left, &options, error);
	options.peers_most = t->peers_most;
	options.lr_probe = probe;
	options.lr_probe_arg = t;
	if (status == TR_OK && !pace_overlaps(&options))
		options.scratch = t->arrays.grads;
	struct tr_sync_tensor *tensors = calloc(t->layout.tensor_count, sizeof(*tensors));
	if (status == TR_OK && tensors == NULL)
		status = tr_error_set(error, TR_ENOMEM, "no memory for a table of tensors");
	for (size_t i = 0; status == TR_OK && i < t->layout.tensor_count; i++) {
		const struct layout_tensor *tensor = &t->layout.tensors[i];
		tensors[i] = (struct tr_sync_tensor){ .name = tensor->name,
			.data = t->arrays.params + tensor->offset,
			.count = layout_numbers(tensor),
			.layer = layout_block(&t->layout, tensor->offset) };
	}
	if (status == TR_OK)
		status = tr_sync_create(t->group, &options, tensors, t->layout.tensor_count,
		    &t->outer.sync, error);
	free(tensors);
	return status;
}

tr_status outer_allocate(struct trainer *t, struct tr_error *error)
{
	t->arrays.outer = calloc(t->layout.count, sizeof(float));
	if (t->arrays.outer == NULL)
		return tr_error_set(error, TR_ENOMEM, "no memory for outer momentum");
	return TR_OK;
}

static void forget_momentum(struct trainer *t)
{
	free(t->arrays.outer);
	t->arrays.outer = NULL;
}

tr_status outer_create(struct trainer *t, struct tr_error *error)
{
	tr_status status = create_sync(t, error);
	if (status != TR_OK)
		return status;
	for (size_t i = 0; i < t->layout.tensor_count; i++) {
		float *from = t->arrays.outer + t->layout.tensors[i].offset;
		float *momentum = tr_sync_momentum(t->outer.sync, i);
		if (momentum != NULL) /* else a checkpoint of another mode may have had some */
			memcpy(momentum, from,
			    layout_numbers(&t->layout.tensors[i]) * sizeof(float));
	}
	forget_momentum(t);
	for (unsigned i = 0; t->spec->sync->lr_search && i < 2; i++) {
		status = tr_sync_follow(t->outer.sync, i == 0 ? t->arrays.first : t->arrays.second,
		    t->layout.count, error);
		if (status != TR_OK)
			return status;
	}
	/* What goes on from a checkpoint is not begun anew: it has no races. */
	if (t->outer.lr_base[0] > 0 || t->counters->start > 0) {
		double *base = tr_sync_lr_base(t->outer.sync);
		if (t->outer.lr_base[0] > 0)
			memcpy(base, t->outer.lr_base, sizeof(t->outer.lr_base));
	}
	*tr_sync_costs(t->outer.sync) = t->outer.costs;
	*tr_sync_leases(t->outer.sync) = *t->account;
	t->account = tr_sync_leases(t->outer.sync);
	return TR_OK;
}

bool outer_lr_base(const struct trainer *t, double base[2])
{
	if (t->sharded != NULL)
		return sharded_lr_base(t, base);
	bool has = t->outer.sync != NULL && strcmp(t->spec->sync->mode, "hdet") == 0;
	base[0] = base[1] = 0;
	if (has)
		memcpy(base, tr_sync_lr_base(t->outer.sync), 2 * sizeof(base[0]));
	return has;
}

static uint64_t origin_of(const struct trainer *t)
{
	return t->outer.sync != NULL ? tr_sync_origin(t->outer.sync) : 0;
}

/* Of the steps from where training began anew. */
static struct optim_settings settings_of(const struct trainer *t)
{
	struct optim_settings settings = t->settings;
	settings.steps -= origin_of(t);
	return settings;
}

double outer_lr(const struct trainer *t, uint64_t step)
{
	struct optim_settings settings = settings_of(t);
	uint64_t origin = origin_of(t);
	return optim_lr(&settings, step > origin ? step - origin : 0);
}

const struct sync_costs *outer_costs(const struct trainer *t)
{
	return t->outer.sync != NULL ? tr_sync_costs(t->outer.sync) : &t->outer.costs;
}

void outer_destroy(struct trainer *t)
{
	tr_sync_destroy(t->outer.sync);
	forget_momentum(t);
}

void outer_fetch(const struct trainer *t, float *params)
{
	for (size_t i = 0; i < t->layout.tensor_count; i++) {
		const struct layout_tensor *tensor = &t->layout.tensors[i];
		memcpy(params + tensor->offset, tr_sync_outer(t->outer.sync, i),
		    layout_numbers(tensor) * sizeof(float));
	}
}

tr_status outer_fetch_momentum(struct trainer *t, struct tr_error *error)
{
	tr_status status = t->arrays.outer == NULL ? outer_allocate(t, error) : TR_OK;
	for (size_t i = 0; status == TR_OK && i < t->layout.tensor_count; i++) {
		const struct layout_tensor *tensor = &t->layout.tensors[i];
		const float *momentum = tr_sync_momentum(t->outer.sync, i);
		if (momentum != NULL)
			memcpy(t->arrays.outer + tensor->offset, momentum,
			    layout_numbers(tensor) * sizeof(float));
	}
	return status;
}

/* The group's, which may have begun with another checkpoint than the one that this worker found. */
static void take_start(struct trainer *t)
{
	uint64_t left = tr_sync_steps(t->outer.sync), more = TR_SYNC_ALL_DONE - left;
	/* It may have more steps than the job, see create_sync. */
	uint64_t start = left <= t->steps ? t->steps - left : t->steps + more;
	if (start != t->counters->start)
		log_info("trainer",
		    "the others began at step %llu, the checkpoint that was read here is of step "
		    "%llu",
		    (unsigned long long)start, (unsigned long long)t->counters->start);
	t->counters->start = start;
}

/* Done by the job, also before this run. Workers that go by time or speed are not at the same step; the furthest one's counts at a merge. */
static uint64_t step_of(const struct trainer *t, const struct tr_sync_now *now)
{
	return t->counters->start + now->step;
}

/* Moments are zeros where training begins anew, and the winner's where races have ended: of so many steps, also in who came late. */
static void begin_anew(struct trainer *t, const struct tr_sync_now *now)
{
	uint64_t origin = origin_of(t);
	bool races = tr_sync_races(t->outer.sync);
	if (t->outer.origin != origin || (t->outer.raced && !races))
		t->outer.age = now->step > origin ? now->step - origin : 0;
	t->outer.origin = origin;
	t->outer.raced = races;
}

/* With the next merge, whether there is a step to do until then or not. */
static void tell_validation(struct trainer *t, struct tr_sync_work *did)
{
	did->sums[SUM_VALIDATION] = t->outer.val_loss;
	did->sums[SUM_VALIDATION_TOKENS] = t->outer.val_tokens;
	t->outer.val_loss = t->outer.val_tokens = 0;
}

/* Of steps that follow each other the first is told. */
static void tell_skipped(struct trainer *t, const struct tr_sync_now *now, bool skipped)
{
	char event[256];
	bool before = t->outer.skipped;
	t->outer.skipped = skipped;
	if (before || !skipped)
		return;
	(void)snprintf(event, sizeof(event), "step %llu was not applied by worker %u: %s",
	    (unsigned long long)step_of(t, now) + 1, now->index, TRAINER_NOT_FINITE);
	trainer_report_event(t, event);
}

/* False: it was told to end; nothing was consumed. Without samples (share_by_speed) there is no step to do. */
static bool inner_step(struct trainer *t, const struct tr_sync_now *now, struct tr_sync_work *did)
{
	struct model_hooks hooks = { on_progress, NULL, t->group };
	struct optim_settings settings = settings_of(t);
	size_t count = (size_t)now->samples;
	*did = (struct tr_sync_work){ 0 };
	tell_validation(t, did);
	begin_anew(t, now);
	if (count == 0)
		return true;
	settings.lr *= now->lr_scale;
	settings.min_lr *= now->lr_scale;
	memset(t->arrays.grads, 0, t->layout.count * sizeof(float));
	t->sums->loss = 0;
	for (size_t i = 0; i < count; i++)
		t->numbers[i] = tr_sync_sample(t->outer.sync, i);
	trainer_account_note(t, now->round, count);
	if (!trainer_gradient(t, count, &hooks)) {
		trainer_account_unnote(t);
		return false;
	}
	double norm = optim_step(t->ops, t->pool, &t->layout, &settings, &t->arrays,
	    1 / t->sums->loss_tokens, step_of(t, now) + 1 - t->outer.origin, ++t->outer.age);
	bool skipped = !isfinite(norm);
	if (skipped)
		t->outer.age--;
	tell_skipped(t, now, skipped);
	did->tokens = t->sums->loss_tokens;
	did->samples = (double)count;
	did->loss = t->sums->loss / t->sums->loss_tokens;
	did->sums[SUM_LOSS] = t->sums->loss;
	did->sums[SUM_TOKENS] = t->sums->loss_tokens;
	return true;
}

/* Whether a multiple of `every` lies in (before, now]. */
static bool crossed(uint64_t every, uint64_t before, uint64_t now)
{
	return every > 0 && now / every > before / every;
}

/* This worker's part of a validation of the outer parameters; reported with the next merge. */
static void validate(struct trainer *t, const struct tr_sync_now *now)
{
	struct model_hooks hooks = { on_progress, NULL, t->group };
	float *params = t->arrays.grads; /* of no use between two steps */
	outer_fetch(t, params);
	model_bind(t->model, params, NULL);
	(void)trainer_validate(t, now->index, now->contributors, &hooks);
	model_bind(t->model, t->arrays.params, t->arrays.grads);
	t->outer.val_loss = t->sums->validation;
	t->outer.val_tokens = t->sums->validation_tokens;
}

/* Who goes on from a checkpoint does not know where races began training anew: so there is none until the warm-up is over. */
static bool begun(const struct trainer *t)
{
	uint64_t origin = origin_of(t);
	return !tr_sync_races(t->outer.sync) &&
	    (origin == 0 || t->counters->step >= origin + t->settings.warmup);
}

static void checkpoint(struct trainer *t, uint64_t before)
{
	uint64_t every = t->spec->checkpoint != NULL ? t->spec->checkpoint->every : 0;
	if (t->folder.dir[0] == '\0' || every == 0 || !begun(t))
		return;
	if (!crossed(every, before, t->counters->step)) {
		saver_prepare(t->saver, true);
		return;
	}
	if (!tr_sync_sound(t->outer.sync)) {
		log_warn("trainer",
		    "no checkpoint at step %llu: what is to be saved changed in memory, and is put "
		    "right at the next merge",
		    (unsigned long long)t->counters->step);
		return;
	}
	struct tr_error error;
	struct manifest manifest = trainer_manifest(t);
	if (saver_check(t->saver, &manifest, &error) != TR_OK) {
		trainer_report_event(t, error.text);
		return;
	}
	if (outer_fetch_momentum(t, &error) != TR_OK) {
		char event[TR_ERROR_TEXT_MAX + 64];
		(void)snprintf(event, sizeof(event), "checkpoint of step %llu left out: %s",
		    (unsigned long long)t->counters->step, error.text);
		trainer_report_event(t, event);
		return;
	}
	struct optim_arrays arrays = t->arrays;
	arrays.params = t->arrays.grads;
	outer_fetch(t, arrays.params);
	trainer_save(t, &arrays);
	trainer_settle_save(t); /* the next step changes moments, and what is copied here */
	forget_momentum(t);
}

/* Of all windows, else NaN: members that came to a merge on both sides of a death, or of a join, cut them by other numbers, so that some were read twice and others by nobody. */
static double validation_of(const struct trainer *t, const struct tr_sync_now *now)
{
	double tokens = now->sums[SUM_VALIDATION_TOKENS],
	       all = (double)(t->samples.validation * t->layout.config.context);
	return tokens > 0 && tokens == all ? now->sums[SUM_VALIDATION] / tokens : NAN;
}

static void merged(struct trainer *t, const struct tr_sync_now *now)
{
	uint64_t before = t->counters->step;
	struct tr_round round = { .round = now->merged_round,
		.view = now->view,
		.index = now->index,
		.contributors = now->contributors,
		.peers = now->peers };
	t->outer.round = now->merged_round;
	take_start(t); /* if it was put right */
	t->counters->step = t->counters->start + now->merged_step;
	t->counters->samples = lease_counted(t->account);
	t->counters->tokens += (uint64_t)now->sums[SUM_TOKENS];
	t->sums->loss_tokens = now->sums[SUM_TOKENS]; /* of all, for the speed */
	trainer_measure_speed(t);
	if (now->sums[SUM_TOKENS] > 0)
		trainer_report_step(t, &round, now->sums[SUM_LOSS] / now->sums[SUM_TOKENS],
		    validation_of(t, now), NAN);
	trainer_account_tell(t, &round, now->finished);
	if (now->finished)
		return;
	if (now->index == 0)
		checkpoint(t, before);
	if (t->samples.validation > 0 &&
	    crossed(t->spec->optimizer->eval_every, before, t->counters->step))
		validate(t, now);
}

static bool has_moments(const struct trainer *t)
{
	for (size_t i = 0; i < t->layout.count; i++)
		if (t->arrays.first[i] != 0)
			return true;
	return false;
}

/* Who joins after a new beginning has no moments yet: their age counts from here, but where the round that it waited for gave it the winner's. */
static void begin_moments(struct trainer *t, const struct tr_sync_now *now)
{
	t->outer.origin = origin_of(t);
	t->outer.raced = tr_sync_races(t->outer.sync);
	if (t->outer.age == 0 && t->outer.origin > 0 && has_moments(t))
		t->outer.age = now->step - t->outer.origin;
}

/* They are of parameters that were not finite, as they may be themselves. */
static void forget_moments(struct trainer *t)
{
	memset(t->arrays.first, 0, t->layout.count * sizeof(float));
	memset(t->arrays.second, 0, t->layout.count * sizeof(float));
	t->outer.age = 0;
}

/* A joiner comes in the middle: by then whole batches were trained on. */
static tr_status started(struct trainer *t, const struct tr_sync_now *now, struct tr_error *error)
{
	uint64_t read = t->counters->step;
	bool merged_last = now->finished && now->after.round == 0;
	t->outer.round = merged_last ? now->round : now->round - 1;
	take_start(t);
	begin_moments(t, now);
	t->counters->step = step_of(t, now);
	t->counters->samples = lease_counted(t->account);
	if (t->counters->step > read)
		t->counters->tokens += (t->counters->step - read) * t->batch *
		    t->layout.config.context;
	struct tr_round round = { .index = now->index, .contributors = now->contributors };
	return trainer_first_round(t, &round, error);
}

void trainer_keep(struct trainer *t, const char *folder)
{
	if (t->outer.sync == NULL || t->spec->sync->alone_steps == 0 ||
	    strlen(folder) >= sizeof(t->outer.kept))
		return;
	(void)snprintf(t->outer.kept, sizeof(t->outer.kept), "%s", folder);
	ending_wait();
	kept_bring(t);
}

/* Says so once. */
static void note_alone(const struct tr_sync_now *now, bool *alone)
{
	if (now->alone && !*alone)
		log_warn("trainer",
		    "the merge of round %llu has not come in %.1f s: trains on alone",
		    (unsigned long long)now->round, now->waited_s);
	if (*alone && now->merged)
		log_info("trainer", "is no longer alone: merged in round %llu",
		    (unsigned long long)now->merged_round);
	*alone = now->alone;
}

/* It was told to end. If it was put out of its group, a call says so, as soon as the engine has heard what traind heard: the signal may be faster. */
static tr_status end_of(struct trainer *t, struct tr_error *error)
{
	const struct timespec pause = { .tv_nsec = NEWS_WAIT_MS * 1000000L / NEWS_LOOKS };
	tr_status status = TR_OK;
	for (unsigned look = 0; status != TR_EEVICTED && look < NEWS_LOOKS; look++) {
		if (look > 0)
			(void)nanosleep(&pause, NULL);
		status = tr_wait_for(t->group, TAG_LOSS, 0, error);
	}
	return status == TR_EEVICTED ? status : tr_error_set(error, TR_ECANCELLED, "told to end");
}

tr_status outer_run(struct trainer *t, struct tr_round *after, struct tr_error *error)
{
	struct tr_sync_now now;
	struct tr_sync_work did;
	bool alone = false;
	tr_status status = tr_sync_start(t->outer.sync, &now, error);
	if (status == TR_OK)
		status = trainer_check_start(t, now.round, false, error);
	if (status == TR_OK) {
		status = started(t, &now, error);
		if (now.event != NULL)
			trainer_report_event(t, now.event);
	}
	while (status == TR_OK && !now.finished) {
		if (!inner_step(t, &now, &did)) {
			status = end_of(t, error);
			break;
		}
		status = tr_sync_step(t->outer.sync, &did, &now, error);
		if (status == TR_OK && now.event != NULL && (now.index == 0 || now.unsound))
			trainer_report_event(t, now.event);
		if (status == TR_OK && now.unsound)
			forget_moments(t);
		if (status == TR_OK && now.merged)
			merged(t, &now);
		trainer_finish_checkpoint(t);
		tr_sync_resume(t->outer.sync);
		if (status == TR_OK)
			note_alone(&now, &alone);
		if (status == TR_OK && ending_wanted())
			status = end_of(t, error);
	}
	if (status == TR_EEVICTED)
		kept_write(t);
	*after = now.after;
	return status;
}
