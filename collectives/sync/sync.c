/* Rounds of low-communication training. A round is begun as soon as the one before is committed, so that the outer state, which does not change
 * until this one is committed, can be streamed to a joiner all the while; its ops are submitted when the fragment is taken.
 *
 *	begun --take--> taken --commit--> committed, the next one is begun --merge--> begun ... finished
 *
 * How it ends, and how much of that hides behind inner steps too: closing.h. TR_ERESTART, wherever it comes from, begins the round again and submits again
 * what was taken.
 */
#include <math.h>
#include <string.h>
#include <time.h>

#include "collectives/engine/sized.h"
#include "collectives/sync/alone.h"
#include "collectives/sync/arriving.h"
#include "collectives/sync/closing.h"
#include "collectives/sync/hdet.h"
#include "collectives/sync/late.h"
#include "collectives/sync/local.h"
#include "collectives/sync/outer.h"
#include "collectives/sync/searching.h"
#include "collectives/sync/sync_internal.h"
#include "common/error.h"

double sync_monotonic_s(void)
{
	struct timespec now;

	(void)clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* Weights are f32 on their way, and so are their inverses. */
#define TOKENS_LEAST 1e-9
#define TOKENS_MOST  1e12
#define SAMPLES_MOST 1e12

/* Between this round's take and merge this peer trains on from where its own share would bring it. */
static bool will_run_ahead(const struct tr_sync *s)
{
	if (s->options.mode != TR_SYNC_EAGER)
		return false;
	return pace_decides(&s->options) ? !pace_is_final(&s->agreed, s->round.round)
	                                 : s->slot.take < s->slot.merge;
}

/* ---- rounds ---- */

static tr_status submit_fragment(struct tr_sync *s, unsigned flags, struct tr_error *error)
{
	struct tr_op op = TR_OP_INIT;
	size_t first = s->first[s->slot.fragment];

	op.tag = SYNC_TAG_FRAGMENT;
	op.input = s->delta;
	op.output = s->sum;
	op.count = sync_fragment_count(s, s->slot.fragment);
	op.codec = s->options.codec;
	op.flags = flags;
	if (s->residual) {
		op.residual = s->residual + first;
		op.residual_next = s->residual_next + first;
		op.beta = (float)s->options.feedback;
	}
	return tr_submit(s->group, &op, error);
}

/* Each contributor's report in its place: this peer's own here, the others' by the sum. */
static tr_status submit_reports(struct tr_sync *s, unsigned flags, struct tr_error *error)
{
	memset(s->reports, 0, TR_GROUP_PEERS_MAX * sizeof(s->reports[0]));
	if (sync_contributes(s))
		s->reports[s->round.index] = s->report;
	return tr_allreduce(s->group, SYNC_TAG_REPORTS, s->reports,
	    (size_t)s->options.peers_most * SYNC_REPORT_NUMBERS, TR_F64, TR_SUM, flags, error);
}

static tr_status submit(struct tr_sync *s, struct tr_error *error)
{
	unsigned flags = sync_contributes(s) ? TR_CONTRIBUTE : 0;
	tr_status status = submit_fragment(s, flags, error);

	*s->totals = s->given;
	if (status == TR_OK && s->reports)
		status = submit_reports(s, flags, error);
	if (status == TR_OK && s->told)
		status = searching_submit(s, flags, error);
	if (status == TR_OK && s->leases)
		status = sync_leasing_submit_said(s, flags, error);
	return status == TR_OK ? tr_allreduce(s->group, SYNC_TAG_TOTALS, s->totals, SYNC_TOTALS,
	                             TR_F64, TR_SUM, flags, error)
	                       : status;
}

/* All submit ops of as many places, also who joins a round that others began with more contributors: so it is not their number that counts. */
static tr_status check_places(const struct tr_sync *s, struct tr_error *error)
{
	if (s->round.contributors <= s->options.peers_most)
		return TR_OK;
	return tr_error_set(error, TR_ELIMIT, "sync: %u members train, peers_most allows %u",
	    s->round.contributors, s->options.peers_most);
}

/* A round that is begun again finds a peer that has trained already: its learning rate stays. */
static void choose_rate(struct tr_sync *s)
{
	s->lr_scale = 1;
	s->loss = s->loss_tokens = 0;
	if (s->options.mode == TR_SYNC_HDET && sync_contributes(s) && !searching_choose(s))
		s->lr_scale = s->counters->lr_base[0] *
		    hdet_factor(&s->options, s->round.round, s->round.index, s->round.contributors);
}

/* False: there is no such round. */
static bool enter_slot(struct tr_sync *s, uint64_t round)
{
	if (!pace_decides(&s->options) || sync_schedule_is_over(s->options.steps))
		return sync_schedule_slot(&s->schedule, round, &s->slot);
	s->paced_by = s->agreed;
	s->slot.fragment = (unsigned)((round - 1) % s->options.fragments);
	return !pace_is_past(&s->options, &s->agreed, round);
}

/* Nothing is left to do but to merge: there is no step that this peer could contribute. */
static bool is_late(const struct tr_sync *s)
{
	return s->options.steps > 0 && s->progress.step >= s->options.steps;
}

/* A joiner needs some of the state first: where training is, and how long it goes on, is the group's affair; so are the ops of a round in a race, and whether there are any, as in a round of the caller's own, behind
 * the last merge. */
static tr_status follow(struct tr_sync *s, struct tr_error *error)
{
	tr_status status = s->round.receive_state ? arriving_head(s, error) : TR_OK;

	if (status != TR_OK)
		return status;
	sync_follow_schedule(s);
	s->agreed = s->counters->agreed;
	s->finished = !enter_slot(s, s->round.round);
	s->follows = true;
	return TR_OK;
}

/* Begins the round after the last merged one, again if it has been begun before. */
tr_status sync_begin(struct tr_sync *s, struct tr_error *error)
{
	uint64_t before = s->round.round;
	tr_status status;

	do {
		s->compared = s->settled = s->closed = s->defers = false;
		status = tr_round_begin(s->group, &s->round, error);
		if (s->round.round != before || s->begun_s == 0)
			s->begun_s = sync_monotonic_s();
		if (status == TR_OK)
			status = check_places(s, error);
		if (status == TR_OK && !s->follows)
			status = follow(s, error);
		if (status == TR_OK && s->leases && !s->finished)
			status = sync_leasing_submit(s, sync_contributes(s) ? TR_CONTRIBUTE : 0,
			    error);
		if (status == TR_OK && s->taken && !s->committed)
			status = submit(s, error);
	} while (status == TR_ERESTART);
	return status;
}

static tr_status no_samples(const struct tr_sync *s, struct tr_error *error)
{
	return tr_error_set(error, TR_ELIMIT,
	    "sync: step %llu: no samples are left for this peer: all 2^53 were handed out",
	    (unsigned long long)s->progress.step);
}

/* After a merge, or to begin with. */
static tr_status check_samples(const struct tr_sync *s, struct tr_error *error)
{
	bool wanted = s->leases && !s->finished && !is_late(s) && sync_contributes(s);

	return wanted && sync_leasing_has_none(s) ? no_samples(s, error) : TR_OK;
}

static bool is_there(const struct tr_sync *s, uint64_t round)
{
	struct sync_slot slot;

	return pace_decides(&s->options) ? !pace_is_past(&s->options, &s->agreed, round)
	                                 : sync_schedule_slot(&s->schedule, round, &slot);
}

tr_status sync_begin_ahead(struct tr_sync *s, struct tr_error *error)
{
	s->begun_ahead = is_there(s, s->merging + 1);
	return s->begun_ahead ? sync_begin(s, error) : TR_OK;
}

static tr_status next_round(struct tr_sync *s, struct tr_error *error)
{
	bool begun = s->begun_ahead;
	sync_leasing_merge(s);
	s->taken = s->committed = s->begun_ahead = false;
	s->finished = !enter_slot(s, s->merging + 1);
	tr_status status = s->finished || begun ? TR_OK : sync_begin(s, error);
	if (status == TR_OK)
		choose_rate(s);
	return status;
}

/* ---- steps ---- */

static void make_report(struct tr_sync *s)
{
	bool known = isfinite(s->loss) && s->loss_tokens > 0;
	struct pace_progress *p = &s->progress;

	if (p->since_take > 0)
		p->step_s = (p->worked_s > 0 ? p->worked_s : 1e-9) / (double)p->since_take;
	double samples = p->since_take > 0 ? p->samples / (double)p->since_take : 0;
	p->since_take = 0;
	p->worked_s = p->samples = 0;
	s->report = (struct sync_report){ .lr_scale = known ? s->lr_scale : -s->lr_scale,
		.samples = s->options.share_by_speed ? samples : 0,
		.share = s->options.share_by_speed ? sync_leasing_part(s) : 0,
		.loss = known ? s->loss / s->loss_tokens : 0,
		.step = (double)p->step,
		.step_s = p->step_s };
}

/* Up to the merge before. */
static void say_costs(struct tr_sync *s)
{
	struct tr_stats stats = TR_STATS_INIT;
	struct tr_error error;

	s->given.costs = (struct sync_costs_said){ .members = 1,
		.waited_s = s->waited_s,
		.flight_s = s->flight_s };
	s->waited_s = s->flight_s = 0;
	if (tr_stats_get(s->group, &stats, &error) != TR_OK)
		return;
	uint64_t sent = stats.tcp_sent_bytes + stats.shm_sent_bytes;
	if (sent > s->sent_bytes)
		s->given.costs.sent_bytes = (double)(sent - s->sent_bytes);
	s->sent_bytes = sent;
}

static tr_status take(struct tr_sync *s, struct tr_sync_now *now, struct tr_error *error)
{
	bool counts = searching_take(s);
	now->unsound = counts && local_drop_unsound(s);
	counts = counts && !now->unsound;
	double before = s->given.weight;
	unsigned f = s->slot.fragment;

	s->given.tokens = counts ? s->tokens[f] : 0;
	s->given_steps = counts ? s->steps[f] : 0;
	s->given.weight = outer_weight(s->options.weights, s->given.tokens, s->given_steps);
	if (s->apart && counts && s->given_steps == 0)
		s->given.weight = 1; /* the winner gives what it learned in all of the race */
	s->given.samples = s->samples;
	s->given_lost = s->lost;
	memcpy(s->given.sums, s->sums, sizeof(s->sums));
	say_costs(s);
	s->tokens[f] = s->steps[f] = 0;
	s->samples = s->lost = 0;
	memset(s->sums, 0, sizeof(s->sums));
	make_report(s);
	s->runs_ahead = will_run_ahead(s);
	if (s->runs_ahead) {
		local_run_ahead(s, before > 0 ? (float)(1 / before) : 0);
		local_delta(s, s->start, (float)s->given.weight);
		local_start_ahead(s);
	} else if (counts) {
		local_delta(s, s->start ? s->start : s->outer, (float)s->given.weight);
	} else {
		memset(s->delta, 0, sync_fragment_count(s, s->slot.fragment) * sizeof(float));
	}
	late_foresee(s);
	s->taken = true;
	s->departed_s = sync_monotonic_s();
	tr_status status = submit(s, error);
	return status == TR_ERESTART ? sync_begin(s, error) : status;
}

/* From the furthest peer's take on, all count their steps on. */
static void count_on(struct tr_sync *s)
{
	struct pace_progress *p = &s->progress;

	p->step = s->agreed.step + p->since_take;
	if (s->options.steps > 0 && p->step > s->options.steps)
		p->step = s->options.steps;
}

/* Steps beyond the schedule, from parameters that are the winner's now. */
static void drop_alone(struct tr_sync *s)
{
	s->lost += s->samples;
	s->samples = 0;
	s->tokens[0] = s->steps[0] = 0;
	memset(s->sums, 0, sizeof(s->sums));
}

static tr_status merge(struct tr_sync *s, struct tr_sync_now *now, struct tr_error *error)
{
	/* Without a step in between, what it takes to hand the fragment over is waited for too. */
	double begun_s = s->progress.since_take > 0 || s->trains_alone ? sync_monotonic_s()
	                                                               : s->departed_s;
	if (!s->trains_alone)
		s->merge_since_s = begun_s;
	tr_status status = closing_wait(s, error);
	double done_s = sync_monotonic_s();

	now->waited_s += done_s - begun_s;
	s->waited_s += done_s - begun_s;
	now->alone = status == TR_ETIMEDOUT;
	if (now->alone)
		return TR_OK;
	if (status != TR_OK)
		return status;
	if (pace_decides(&s->options))
		count_on(s);
	now->merged = true;
	now->merged_round = s->merging;
	now->fragment = s->slot.fragment;
	now->merged_step = pace_decides(&s->options) ? s->agreed.step : s->progress.step;
	now->tokens = s->result.totals->tokens;
	for (unsigned i = 0; i < TR_SYNC_SUMS; i++)
		now->sums[i] += s->result.totals->sums[i];
	now->flight_s = done_s - s->departed_s;
	s->flight_s += now->flight_s;
	now->bytes += sync_fragment_count(s, s->slot.fragment) * sizeof(float);
	bool race_ends = s->apart && searching_race_ends(s);
	if (race_ends && s->alone > 0)
		drop_alone(s);
	else if (s->apart && s->alone > 0)
		s->raced_late = true; /* it has had more steps than the others: it tells nothing */
	if (s->outcast || race_ends)
		local_begin(s);
	else if (!s->apart && !late_merge(s) && !s->runs_ahead)
		local_merge(s);
	s->trains_alone = false;
	s->alone = 0;
	status = next_round(s, error);
	return status == TR_OK ? check_samples(s, error) : status;
}

static bool due(const struct tr_sync *s)
{
	if (!s->finished && pace_decides(&s->options) && sync_leasing_is_dry(s))
		return true;
	uint64_t round = s->committed ? s->merging : s->round.round;
	if (!s->finished && pace_decides(&s->options))
		return (s->taken ? pace_merges : pace_takes)(&s->options, &s->paced_by,
		    &s->progress, round);
	return !s->finished && s->progress.step >= (s->taken ? s->slot.merge : s->slot.take);
}

static void tell(const struct tr_sync *s, struct tr_sync_now *now)
{
	now->step = s->progress.step;
	now->round = s->round.round;
	now->view = s->round.view;
	now->index = s->round.index;
	now->contributors = s->round.contributors;
	now->peers = s->round.peers;
	now->finished = s->finished;
	now->lr_scale = s->lr_scale;
	now->event = s->event[0] ? s->event : NULL;
	now->samples = sync_leasing_samples(s);
}

tr_status tr_sync_step(tr_sync *s, const struct tr_sync_work *work, struct tr_sync_now *now,
    struct tr_error *error)
{
	tr_status status = TR_OK;

	memset(now, 0, sizeof(*now));
	if (!sized_unused(work->reserved, SIZED_ROOM(work->reserved)))
		return tr_error_set(error, TR_EINVAL,
		    "work: the program sets a field that this library is too old for, or did not "
		    "initialise the struct");
	if (!s->trains || s->finished)
		return tr_error_set(error, TR_EINVAL, "sync: step %llu: %s",
		    (unsigned long long)s->progress.step,
		    s->finished ? "all steps are done" : "training begins with tr_sync_start");
	bool idle = s->options.share_by_speed && work->tokens == 0 && work->samples == 0;
	if (!idle && !(work->tokens >= TOKENS_LEAST && work->tokens <= TOKENS_MOST))
		return tr_error_set(error, TR_EINVAL,
		    "sync: step %llu: tokens: found %g, allowed: 1e-9 to 1e12",
		    (unsigned long long)s->progress.step, work->tokens);
	s->event[0] = '\0';
	double most = s->leases ? (double)sync_leasing_samples(s) : SAMPLES_MOST;
	bool whole = work->samples >= 0 && work->samples == floor(work->samples);
	if (!(whole && work->samples <= most))
		return tr_error_set(error, TR_EINVAL,
		    "sync: step %llu: samples: found %g, allowed: whole, at most %s",
		    (unsigned long long)s->progress.step, work->samples,
		    s->leases ? "those that were named" : "1e12");
	if (s->trains_alone) {
		s->alone++;
	} else {
		s->progress.step++;
		s->progress.since_take++;
		s->progress.worked_s += sync_monotonic_s() - s->resumed_s;
		s->progress.samples += work->samples;
	}
	for (unsigned f = 0; f < s->options.fragments; f++) {
		s->tokens[f] += work->tokens;
		s->steps[f] += !idle;
	}
	s->samples += work->samples;
	s->loss += idle ? 0 : work->loss * work->tokens;
	s->loss_tokens += work->tokens;
	for (unsigned i = 0; i < TR_SYNC_SUMS; i++)
		s->sums[i] += work->sums[i];
	/* If its commit was asked for, that says so. */
	if (!tr_progress(s->group) && !s->closed)
		status = sync_begin(s, error);
	if (status == TR_OK && s->taken && !due(s))
		status = closing_go_on(s, error);
	while (status == TR_OK && !now->alone && due(s))
		status = s->taken ? merge(s, now, error) : take(s, now, error);
	if (status == TR_OK && !s->finished && sync_leasing_is_dry(s))
		status = no_samples(s, error); /* fewer than the schedule has steps */
	tell(s, now);
	s->resumed_s = sync_monotonic_s();
	return status;
}

/* Where training is. */
static void find_step(struct tr_sync *s)
{
	struct sync_slot before;

	if (pace_decides(&s->options))
		s->progress.step = s->counters->agreed.step;
	else if (sync_schedule_slot(&s->schedule, s->counters->round, &before))
		s->progress.step = before.merge;
}

/* A joiner, or a peer that lost its parameters: it gives nothing to the round under way, has its result and goes on from there. */
static tr_status sit_out(struct tr_sync *s, struct tr_error *error)
{
	s->taken = true;
	memset(&s->given, 0, sizeof(s->given));
	memset(s->delta, 0, sync_fragment_count(s, s->slot.fragment) * sizeof(float));
	make_report(s);
	tr_status status = submit(s, error);
	if (status == TR_ERESTART)
		status = sync_begin(s, error);
	if (status == TR_OK)
		status = closing_wait(s, error);
	find_step(s); /* before it has a rate: whether it comes late to a race goes by it */
	return status == TR_OK ? next_round(s, error) : status;
}

/* One that holds no samples waits until all have begun the round: then its lease is agreed. */
static tr_status enroll(struct tr_sync *s, struct tr_error *error)
{
	tr_status status = TR_OK;

	while (status == TR_OK && s->leases && !s->finished && sync_leasing_is_new(s)) {
		status = tr_wait(s->group, SYNC_TAG_ROSTER, error);
		if (status == TR_OK)
			sync_leasing_enroll(s);
		else if (status == TR_ERESTART)
			status = sync_begin(s, error);
	}
	return status == TR_OK ? check_samples(s, error) : status;
}

/* Parts of a movement may then be of other members than its weight is. */
static tr_status check_policy(const struct tr_sync *s, struct tr_error *error)
{
	if (s->round.policy != TR_KEEP)
		return TR_OK;
	return tr_error_set(error, TR_EINVAL,
	    "sync: policy: found keep, allowed: uniform, replay (TR_UNIFORM in tr_join_options)");
}

tr_status tr_sync_start(tr_sync *s, struct tr_sync_now *now, struct tr_error *error)
{
	memset(now, 0, sizeof(*now));
	if (s->trains)
		return tr_error_set(error, TR_EINVAL, "sync: training was started before");
	s->started = true;
	tr_status status = sync_begin(s, error);
	if (status == TR_OK)
		status = check_policy(s, error);
	if (status == TR_OK && s->finished) {
		status = arriving_all(s, error);
		now->after = s->round;
	}
	find_step(s);
	while (status == TR_OK && !s->finished && (!sync_contributes(s) || is_late(s)))
		status = sit_out(s, error);
	if (status == TR_OK && s->finished && s->deferred > 0)
		status = arriving_too_late(s, error);
	if (status == TR_OK)
		status = enroll(s, error);
	if (status != TR_OK)
		return status;
	choose_rate(s);
	if (s->start && !s->finished)
		local_start_ahead(s);
	else
		local_fetch(s, s->outer);
	s->event[0] = '\0';
	alone_begin(s);
	s->trains = true;
	tell(s, now);
	s->resumed_s = sync_monotonic_s();
	return TR_OK;
}

void tr_sync_resume(tr_sync *s)
{
	s->resumed_s = sync_monotonic_s();
}

uint64_t tr_sync_steps(const tr_sync *s)
{
	return s->options.steps;
}
