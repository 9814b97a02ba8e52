#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/log.h"
#include "daemon/checkpoint/checkpoint_dir.h"
#include "daemon/worker/metrics.h"
#include "daemon/worker/trainer_inside.h"

#define PLAN_FIRST_LOOK 20 /* steps */
#define PLAN_LOOK_EVERY 200

/* Reports are for people: one that is lost does no harm, so their status is not looked at. */
static struct tr_report blank(const struct trainer *t)
{
	return (struct tr_report){ .step = t->counters->step,
		.steps = t->steps,
		.loss = NAN,
		.val_loss = NAN,
		.tokens_per_s = NAN,
		.grad_norm = NAN,
		.lr = NAN };
}

void trainer_report_event(struct trainer *t, const char *text)
{
	struct tr_report report = blank(t);
	report.step = report.steps = 0; /* an event and no figures */
	report.event = text;
	log_warn("trainer", "%s", text);
	(void)tr_report(t->group, &report);
}

void trainer_report_checkpoint(struct trainer *t, const char *path)
{
	struct tr_report report = blank(t);
	report.checkpoint = path;
	log_info("trainer", "checkpoint %s", path);
	(void)tr_report(t->group, &report);
}

static uint64_t unix_ms(void)
{
	struct timespec now;
	(void)clock_gettime(CLOCK_REALTIME, &now);
	return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

void trainer_look_for_another_job(struct trainer *t, uint64_t step, bool writes)
{
	char name[CHECKPOINT_NAME_MAX], text[TR_ERROR_TEXT_MAX];
	struct tr_assignment assignment = { 0 };
	if (t->reported)
		return;
	t->reported = true;
	(void)tr_assignment_get(t->group, &assignment);
	/* A job that began again may find its own: who wrote them died before it told. */
	if (assignment.restarts > 0 || !writes || t->folder.dir[0] == '\0' ||
	    !checkpoint_dir_newest(t->folder.dir, UINT64_MAX, name) ||
	    strtoull(strchr(name, '-') + 1, NULL, 10) < step)
		return;
	(void)snprintf(text, sizeof(text),
	    "%.300s has checkpoints of another job (%s): this one writes over them, "
	    "and adds to its metrics.jsonl; give each job a checkpoint.dir of its own",
	    t->folder.dir, name);
	trainer_report_event(t, text);
}

static void add_metrics(struct trainer *t, const struct tr_round *round,
    const struct tr_report *report, bool ended)
{
	struct metrics_row row = { .step = report->step,
		.job = t->owner.id,
		.submitted_unix_ms = t->owner.submitted_unix_ms,
		.unix_ms = unix_ms(),
		.view = round->view,
		.contributors = round->contributors,
		.loss = report->loss,
		.val_loss = report->val_loss,
		.grad_norm = report->grad_norm,
		.lr = report->lr,
		.tokens_per_s = report->tokens_per_s,
		.sent_bytes = report->merges != 0 ? (double)report->sent_bytes : NAN,
		.dense_bytes = report->merges != 0 ? (double)report->dense_bytes : NAN,
		.hidden = report->merges != 0 ? report->hidden : NAN,
		.step_s = t->step_s > 0 ? t->step_s : NAN,
		.planned_step_s = t->planned_step_s > 0 ? t->planned_step_s : NAN };
	bool writes = round->index == 0;
	trainer_look_for_another_job(t, row.step, writes);
	bool failed = ended ? !metrics_end(&t->metrics, t->folder.dir, report->val_loss, writes)
	                    : !metrics_add(&t->metrics, t->folder.dir, &row, writes);
	if (failed && !t->metrics_failed) {
		char text[TR_ERROR_TEXT_MAX];
		(void)snprintf(text, sizeof(text),
		    "cannot write %.300s/metrics.jsonl (is the disk full?): training goes on, and "
		    "`trainctl plot` may lack steps",
		    t->folder.dir);
		trainer_report_event(t, text);
	}
	t->metrics_failed = failed;
}

static const struct sync_costs *costs_of(const struct trainer *t)
{
	return t->sharded != NULL ? &t->sharded->state->costs : outer_costs(t);
}

static void report_costs(const struct trainer *t, struct tr_report *report)
{
	const struct sync_costs *costs = costs_of(t);
	bool rare = t->outer.sync != NULL || (t->sharded != NULL && t->sharded->apart != NULL);
	if (!rare || !(costs->dense_bytes > 0 && costs->flight_s > 0))
		return;
	report->merges = costs->merges;
	report->sent_bytes = (uint64_t)costs->sent_bytes;
	report->dense_bytes = (uint64_t)costs->dense_bytes;
	report->hidden = fmax(0, 1 - costs->waited_s / costs->flight_s);
}

/* Now and then, so that a job's log says how good its plan was. */
static void log_beside_plan(const struct trainer *t)
{
	uint64_t step = t->counters->step;
	if (!(t->planned_step_s > 0) || !(t->tokens_per_s > 0) ||
	    (step != PLAN_FIRST_LOOK && step % PLAN_LOOK_EVERY != 0))
		return;
	double takes_s = t->sums->loss_tokens / t->tokens_per_s;
	log_info("trainer", "step %llu: a step takes %.4g ms, planned were %.4g ms (%+.0f %%)",
	    (unsigned long long)step, 1e3 * takes_s, 1e3 * t->planned_step_s,
	    100 * (takes_s / t->planned_step_s - 1));
}

static void report_round(struct trainer *t, const struct tr_round *round, double loss,
    double val_loss, double grad_norm, bool ended)
{
	struct tr_report report = blank(t);
	report.loss = loss;
	report.val_loss = val_loss;
	report.grad_norm = grad_norm;
	double base[2];
	report.lr = outer_lr(t, t->counters->step);
	if (outer_lr_base(t, base))
		report.lr *= base[0];
	report.tokens_per_s = t->tokens_per_s > 0 ? t->tokens_per_s : NAN;
	report_costs(t, &report);
	t->planned_step_s = t->sharded != NULL ? sharded_planned_step_s(t) : t->planned_step_s;
	struct tr_plan_now plan;
	if (t->sharded != NULL && sharded_plan_now(t, &plan))
		report.plan = &plan;
	add_metrics(t, round, &report, ended);
	if (round->index != 0)
		return;
	log_beside_plan(t);
	(void)tr_report(t->group, &report);
}

void trainer_report_step(struct trainer *t, const struct tr_round *round, double loss,
    double val_loss, double grad_norm)
{
	report_round(t, round, loss, val_loss, grad_norm, false);
}

void trainer_report_end(struct trainer *t, const struct tr_round *round)
{
	report_round(t, round, NAN, trainer_validation_loss(t), NAN, true);
}

void trainer_report_sample(struct trainer *t, const char *sample)
{
	char text[TR_SAMPLE_REPORT_MAX];
	struct tr_report report = blank(t);
	size_t length = strlen(sample);
	if (length >= sizeof(text)) {
		length = sizeof(text) - 1;
		while (((unsigned char)sample[length] & 0xc0) == 0x80)
			length--; /* not in the middle of a character */
	}
	memcpy(text, sample, length);
	text[length] = '\0';
	report.sample = text;
	(void)tr_report(t->group, &report);
}

double trainer_validation_loss(const struct trainer *t)
{
	return t->sums->validation_tokens > 0 ? t->sums->validation / t->sums->validation_tokens
	                                      : NAN;
}

/* A checkpoint is of the state between two rounds. */
static uint64_t moments_age(const struct trainer *t)
{
	if (t->sharded != NULL && t->sharded->apart != NULL)
		return t->sharded->apart->moments.age;
	return t->outer.sync != NULL ? t->outer.age : t->counters->step;
}

struct manifest trainer_manifest(const struct trainer *t)
{
	struct manifest manifest = { .job = t->owner,
		.step = t->counters->step,
		.seed = t->spec->optimizer->seed,
		.samples = t->counters->samples,
		.dropout = t->spec->optimizer->dropout,
		.tokens = t->counters->tokens,
		.costs = costs_to_save(costs_of(t)),
		.account = *t->account };
	manifest.age = moments_age(t);
	uint64_t round = t->sharded != NULL ? t->sharded->state->step_round
	    : t->outer.sync != NULL         ? t->outer.round
	                                    : manifest.step;
	if (round != manifest.step)
		manifest.round = round;
	lease_release(&manifest.account);
	(void)outer_lr_base(t, manifest.lr_base);
	for (size_t i = 0; i < sizeof(manifest.spec); i++)
		manifest.spec[i] = t->spec_digest[i];
	for (size_t i = 0; i < sizeof(manifest.order); i++)
		manifest.order[i] = t->order_digest[i];
	return manifest;
}
