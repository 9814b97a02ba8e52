/* The public face (coll.h) over the channel to an engine, wherever that runs. */
#include "collectives/coll.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "collectives/engine/coll_group.h"
#include "collectives/engine/sized.h"
#include "traind/peer/peer.pb-c.h"

/* ---- attaching, leaving ---- */

tr_status coll_group_open(int fd, struct tr_group **group, struct tr_error *error)
{
	struct tr_group *made = calloc(1, sizeof(*made));
	struct channel_worker *channel = NULL;
	tr_status st = channel_worker_open(fd, &channel, error);
	if (st == TR_OK && made == NULL)
		st = tr_error_set(error, TR_ENOMEM, "no memory for a group");
	if (st != TR_OK) {
		channel_worker_close(channel);
		free(made);
		return st;
	}
	made->channel = channel;
	coll_take(made);
	coll_turn_open(made);
	made->first_loss = (double)NAN;
	*group = made;
	return TR_OK;
}

void coll_group_close(struct tr_group *group)
{
	coll_turn_close(group); /* before the engine hears that the seat is free */
	channel_worker_close(group->channel);
	free(group->uses);
	tag_set_finish(&group->released);
	coll_state_finish(group);
	free(group);
}

tr_status tr_group_attach(tr_group **group, struct tr_error *error)
{
	const char *text = getenv(CHANNEL_ENV);
	char *end = NULL;
	if (text == NULL || text[0] == '\0')
		return tr_error_set(error, TR_ENOTFOUND,
		    "not started by traind: " CHANNEL_ENV " is not set");
	long fd = strtol(text, &end, 10);
	if (*end != '\0' || fd < 0 || fd > INT_MAX || fcntl((int)fd, F_GETFD) < 0)
		return tr_error_set(error, TR_EINVAL,
		    CHANNEL_ENV "=%.20s is not an open descriptor", text);
	return coll_group_open((int)fd, group, error);
}

void tr_group_leave(tr_group *group)
{
	if (group == NULL)
		return;
	/* In a child of fork only the descriptors and the memory are its own to give back. */
	struct coll_join *join = coll_own(group, NULL) == TR_OK ? group->join : NULL;
	coll_group_close(group);
	coll_join_leave(join);
}

/* ---- memory ---- */

void *tr_alloc(tr_group *group, size_t bytes)
{
	return coll_own(group, NULL) != TR_OK ? NULL : channel_worker_alloc(group->channel, bytes);
}

void *tr_alloc_sparse(tr_group *group, size_t bytes)
{
	return coll_own(group, NULL) != TR_OK ? NULL
	                                      : channel_worker_alloc_sparse(group->channel, bytes);
}

/* ---- rounds ---- */

static tr_status call(struct tr_group *group, struct channel_submission *submission,
    struct channel_answer *answer, struct tr_error *error)
{
	tr_status st = coll_own(group, error);
	return st == TR_OK ? channel_worker_call(group->channel, submission, answer, error) : st;
}

tr_status tr_round_begin(tr_group *group, struct tr_round *round, struct tr_error *error)
{
	struct channel_answer answer;
	struct channel_submission s = { .call = CHANNEL_BEGIN };
	tr_status st = call(group, &s, &answer, error);
	if (st == TR_ETIMEDOUT) /* it was asked for, so none is under way */
		group->open = false;
	if (st != TR_OK)
		return st;
	group->op_count = group->use_count = 0;
	tag_set_clear(&group->released);
	group->index = answer.round.index;
	group->contributors = answer.round.contributors;
	group->begun = group->open = true;
	memcpy(group->contributor_ids, answer.peers,
	    group->contributors * sizeof(group->contributor_ids[0]));
	atomic_store(&group->abandons, answer.abandons);
	coll_turn_begun(group, answer.round.round, answer.attempt);
	*round = answer.round;
	return TR_OK;
}

tr_status tr_round_contributors(tr_group *group, uint64_t *peers, size_t max, size_t *count,
    struct tr_error *error)
{
	tr_status st = coll_own(group, error);
	if (st != TR_OK)
		return st;
	if (!group->begun)
		return tr_error_set(error, TR_EINVAL, "contributors: no round was begun");
	if (max > group->contributors)
		max = group->contributors;
	if (max > 0)
		memcpy(peers, group->contributor_ids, max * sizeof(*peers));
	*count = group->contributors;
	return TR_OK;
}

static uint64_t deadline_of(const struct tr_group *group)
{
	return group->op_deadline_ms > 0 ? group->op_deadline_ms : UINT64_MAX;
}

/* Makes the op in turn; *made: the engine need not be asked for it. */
static tr_status wait_here(struct tr_group *group, uint64_t milliseconds, bool *made,
    struct tr_error *error)
{
	bool passed;
	tr_status st = coll_turn_wait(group, milliseconds, &passed, error);
	*made = !passed;
	return passed ? coll_op_pass(group, error) : st;
}

/* `limit`: of CHANNEL_WAIT. */
static tr_status wait_for(struct tr_group *group, uint32_t tag, uint64_t limit,
    uint64_t milliseconds, struct tr_error *error)
{
	struct channel_answer answer;
	struct channel_submission s = { .call = CHANNEL_WAIT, .tag = tag, .count = limit };
	bool made = false;
	tr_status st = coll_own(group, error);
	if (st == TR_OK && coll_turn_awaits(group, tag))
		st = wait_here(group, milliseconds, &made, error);
	else if (st == TR_OK && coll_op_here(group, tag)) {
		made = true; /* before */
		st = coll_turn_goes_on(group, error);
	}
	if (st != TR_OK || made)
		return st;
	st = call(group, &s, &answer, error);
	if (st == TR_OK)
		coll_turn_waited(group, tag);
	return st;
}

tr_status tr_wait(tr_group *group, uint32_t tag, struct tr_error *error)
{
	return wait_for(group, tag, 0, deadline_of(group), error);
}

tr_status tr_wait_for(tr_group *group, uint32_t tag, uint32_t milliseconds, struct tr_error *error)
{
	return wait_for(group, tag, (uint64_t)milliseconds + 1, milliseconds, error);
}

static tr_status commit_round(tr_group *group, const struct tr_commit *commit,
    struct tr_round *round, uint64_t limit, struct tr_error *error)
{
	struct channel_answer answer;
	struct channel_submission s = { .call = CHANNEL_COMMIT, .count = limit };
	if (commit != NULL &&
	    ((commit->flags & ~(uint64_t)TR_DEFER_STATE) != 0 ||
	        !sized_unused(commit->reserved, SIZED_ROOM(commit->reserved))))
		return tr_error_set(error, TR_EINVAL,
		    "commit: the program sets a field that this library is too old for, or did not "
		    "initialise the struct");
	if (commit != NULL)
		s.commit = *commit;
	bool made;
	tr_status st = coll_own(group, error);
	if (st == TR_OK && group->turn.open && group->turn.here)
		st = wait_here(group, limit > 0 ? limit - 1 : deadline_of(group), &made, error);
	if (st != TR_OK)
		return st;
	coll_turn_closes(group, true);
	st = call(group, &s, &answer, error);
	if (st != TR_OK && st != TR_ETIMEDOUT)
		coll_turn_closes(group, false);
	if (st != TR_OK)
		return st;
	group->open = group->turn.open = false;
	coll_turn_committed(group);
	if (round != NULL)
		*round = answer.round;
	return TR_OK;
}

tr_status tr_round_commit(tr_group *group, const struct tr_commit *commit, struct tr_round *round,
    struct tr_error *error)
{
	return commit_round(group, commit, round, 0, error);
}

tr_status tr_round_commit_for(tr_group *group, const struct tr_commit *commit,
    struct tr_round *round, uint32_t milliseconds, struct tr_error *error)
{
	return commit_round(group, commit, round, (uint64_t)milliseconds + 1, error);
}

bool tr_progress(tr_group *group)
{
	return coll_own(group, NULL) == TR_OK &&
	    channel_worker_progress(group->channel, atomic_load(&group->abandons));
}

tr_status tr_contributors(tr_group *group, uint32_t tag, size_t element, uint64_t *peers,
    size_t max, size_t *count)
{
	struct channel_answer answer;
	struct channel_submission s = { .call = CHANNEL_CONTRIBUTORS,
		.tag = tag,
		.offset = element };
	tr_status st = call(group, &s, &answer, NULL);
	if (st != TR_OK)
		return st;
	size_t n = answer.count < TR_GROUP_PEERS_MAX ? answer.count : TR_GROUP_PEERS_MAX;
	if (max > n)
		max = n;
	if (max > 0)
		memcpy(peers, answer.peers, max * sizeof(*peers));
	*count = n;
	return TR_OK;
}

tr_status tr_run_elements(tr_group *group, uint32_t tag, size_t *elements)
{
	struct channel_answer answer = { .run = 0 };
	struct channel_submission s = { .call = CHANNEL_CONTRIBUTORS, .tag = tag };
	tr_status st = call(group, &s, &answer, NULL);
	if (answer.run == 0)
		return st != TR_OK ? st : TR_ENOTFOUND;
	*elements = (size_t)answer.run; /* the first element may be another member's */
	return TR_OK;
}

/* ---- facts ---- */

/* NaN or zero: no news. */
static double news(double value)
{
	return value == 0 ? (double)NAN : value;
}

static bool has_figures(const struct tr_report *r)
{
	return r->step != 0 || r->steps != 0 || !isnan(news(r->loss)) ||
	    !isnan(news(r->val_loss)) || !isnan(news(r->tokens_per_s)) ||
	    !isnan(news(r->grad_norm)) || !isnan(news(r->lr)) || r->checkpoint != NULL ||
	    r->sample != NULL || r->merges != 0;
}

static tr_status say(struct tr_group *group, const Traind__Peer__PeerReport *message)
{
	size_t bytes = traind__peer__peer_report__get_packed_size(message);
	if (bytes > TR_CHANNEL_MESSAGE_MAX)
		return TR_ELIMIT;
	uint8_t *packed = malloc(bytes + 1);
	if (packed == NULL)
		return TR_ENOMEM;
	(void)traind__peer__peer_report__pack(message, packed);
	tr_status st = channel_worker_report(group->channel, packed, bytes, NULL);
	free(packed);
	return st;
}

tr_status tr_report(tr_group *group, const struct tr_report *report)
{
	Traind__Peer__PeerReport message = TRAIND__PEER__PEER_REPORT__INIT;
	Traind__V1__Progress progress = TRAIND__V1__PROGRESS__INIT;
	Traind__V1__Merges merges = TRAIND__V1__MERGES__INIT;
	Traind__V1__PlanNow plan = TRAIND__V1__PLAN_NOW__INIT;
	if (coll_own(group, NULL) != TR_OK ||
	    !sized_unused(report->reserved, SIZED_ROOM(report->reserved)))
		return TR_EINVAL;
	progress.step = report->step;
	progress.steps = report->steps;
	progress.loss = news(report->loss);
	progress.val_loss = news(report->val_loss);
	if (isnan(group->first_loss))
		group->first_loss = progress.loss;
	progress.first_loss = group->first_loss;
	progress.tokens_per_s = news(report->tokens_per_s);
	progress.grad_norm = news(report->grad_norm);
	progress.lr = news(report->lr);
	merges.count = report->merges;
	merges.sent_bytes = report->sent_bytes;
	merges.dense_bytes = report->dense_bytes;
	merges.hidden = report->hidden;
	if (report->merges != 0)
		progress.merges = &merges;
	if (report->plan != NULL) {
		plan.step_s = report->plan->step_s;
		plan.dp = report->plan->dp;
		plan.pp = report->plan->pp;
		plan.tp = report->plan->tp;
		progress.plan = &plan;
	}
	/* proto3 strings are not written to */
	if (report->checkpoint != NULL)
		progress.checkpoint = (char *)(uintptr_t)report->checkpoint;
	if (report->sample != NULL)
		progress.sample = (char *)(uintptr_t)report->sample;
	if (report->event != NULL)
		message.event = (char *)(uintptr_t)report->event;
	if (has_figures(report))
		message.progress = &progress;
	if (report->samples == NULL)
		return say(group, &message);
	message.samples = traind__v1__sample_account__unpack(NULL, report->samples_bytes,
	    report->samples);
	if (message.samples == NULL)
		return TR_EINVAL;
	tr_status st = say(group, &message);
	traind__v1__sample_account__free_unpacked(message.samples, NULL);
	return st;
}

tr_status tr_assignment_get(tr_group *group, struct tr_assignment *assignment)
{
	const struct channel_control *control = channel_worker_control(group->channel);
	tr_status st = coll_own(group, NULL);
	if (st != TR_OK)
		return st;
	if (group->join != NULL)
		return TR_ENOTFOUND;
	*assignment = (struct tr_assignment){ .spec = control + 1,
		.spec_bytes = control->spec_bytes,
		.job = control->job,
		.peer = control->peer,
		.rank = control->rank,
		.world_size = control->world_size,
		.threads = control->threads,
		.restarts = control->restarts };
	return TR_OK;
}

uint32_t coll_op_deadline_ms(const struct tr_group *group)
{
	return group->op_deadline_ms;
}

bool coll_is_allocated(const struct tr_group *group, const void *data, size_t bytes)
{
	uint32_t arena;
	uint64_t offset;
	return channel_worker_locate(group->channel, data, bytes, &arena, &offset) == TR_OK;
}

uint64_t tr_peer_id(const tr_group *group)
{
	return channel_worker_control(group->channel)->peer;
}
