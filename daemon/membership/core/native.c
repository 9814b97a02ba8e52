/* What a native job needs next: a replacement, its end, or to be queued again from its newest
 * checkpoint. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/membership/core/state.h"

#define BACK_OFF_LEAST_MS 100u
#define BACK_OFF_MOST_MS  30000u
#define STALLED_MAX       3u

struct census {
	uint32_t live, finished, members, target;
	const struct peer *last_lost;
};

static struct census census_of(const struct membership *m, const struct job *job)
{
	struct census c = { .target = state_job_workers(job, job->group) };
	const struct group *group = state_group(m, job->group);
	for (size_t i = 0; i < job->peers.count; i++) {
		const struct peer *peer = job->peers.items[i];
		if (peer->group != job->group)
			continue;
		bool live = state_peer_live(peer);
		c.live += live ? 1 : 0;
		c.finished += peer->state == PEER_FINISHED || peer->soft.fate == PEER_FINISHED ? 1
		                                                                               : 0;
		c.members += live && group != NULL && state_view_peer(group, peer->id) != NULL ? 1
		                                                                               : 0;
		bool lost = peer->state == PEER_LOST || peer->soft.fate == PEER_LOST;
		bool told = c.last_lost != NULL && c.last_lost->id == job->soft.last_lost;
		if (!live && lost && !told)
			c.last_lost = peer;
	}
	return c;
}

static const char *words_of(const struct peer *peer)
{
	if (peer == NULL)
		return "unknown";
	return peer->soft.reason[0] != '\0' ? peer->soft.reason : peer->reason;
}

static bool peers_settled(const struct job *job)
{
	for (size_t i = 0; i < job->peers.count; i++) {
		const struct peer *peer = job->peers.items[i];
		if (peer->state == PEER_PLACED && peer->soft.fate != PEER_PLACED)
			return false;
	}
	return true;
}

void native_back_off(struct membership *m, struct job *job)
{
	uint64_t wait = BACK_OFF_LEAST_MS << (job->fast_deaths < 10 ? job->fast_deaths : 10);
	job->soft.place_after_ms = m->now_ms + (wait < BACK_OFF_MOST_MS ? wait : BACK_OFF_MOST_MS);
}

static void fail_at_start(struct membership *m, struct job *job, const struct census *c)
{
	char text[TR_ERROR_TEXT_MAX];
	(void)snprintf(text, sizeof(text),
	    "workers died before they finished a round, %u times in a row; the last one "
	    "on %s: %s. See `trainctl logs "
	    "%llu`, correct the cause and launch it again",
	    job->fast_deaths, c->last_lost != NULL ? c->last_lost->node_name : "?",
	    words_of(c->last_lost), (unsigned long long)job->id);
	job_append_moved(m, job, TRAIND__V1__JOB_STATE__JOB_STATE_FAILED, 1, text, NULL, NULL);
}

/* The step in ".../step-00000200"; 0 if the path has another form. */
static uint64_t step_of(const char *checkpoint)
{
	const char *name = strrchr(checkpoint, '/');
	unsigned long long step = 0;
	if (name == NULL || sscanf(name, "/step-%llu", &step) != 1)
		return 0;
	return step;
}

static void requeue_or_fail(struct membership *m, struct job *job, const struct census *c)
{
	const Traind__V1__Progress *newest = job->soft.progress != NULL ? job->soft.progress
	                                                                : job->progress;
	bool checkpoint = newest != NULL && newest->checkpoint[0] != '\0';
	char text[TR_ERROR_TEXT_MAX];
	if (!checkpoint && ledger_recorded(job->ledger) > 0) {
		(void)snprintf(text, sizeof(text),
		    "every worker was lost (the last on %s: %s) and there is no "
		    "checkpoint yet to go on from; set "
		    "checkpoint.every to have some",
		    c->last_lost != NULL ? c->last_lost->node_name : "?", words_of(c->last_lost));
		job_append_moved(m, job, TRAIND__V1__JOB_STATE__JOB_STATE_FAILED, 1, text, newest,
		    NULL);
		return;
	}
	if (job->stalled_restarts >= STALLED_MAX) {
		(void)snprintf(text, sizeof(text),
		    "every worker was lost, %u times without a new checkpoint in "
		    "between; the last on %s: %s",
		    job->stalled_restarts + 1, c->last_lost != NULL ? c->last_lost->node_name : "?",
		    words_of(c->last_lost));
		job_append_moved(m, job, TRAIND__V1__JOB_STATE__JOB_STATE_FAILED, 1, text, newest,
		    NULL);
		return;
	}
	(void)snprintf(text, sizeof(text),
	    "every worker was lost (the last: %s): goes on from %s%.190s", words_of(c->last_lost),
	    checkpoint ? "checkpoint " : "the start", checkpoint ? newest->checkpoint : "");
	if (!checkpoint) {
		job_append_moved(m, job, TRAIND__V1__JOB_STATE__JOB_STATE_QUEUED, 0, text, NULL,
		    NULL);
		return;
	}
	Traind__V1__Progress from = *newest;
	from.step = step_of(newest->checkpoint);
	job_append_moved(m, job, TRAIND__V1__JOB_STATE__JOB_STATE_QUEUED, 0, text, &from, NULL);
}

/* For people: what comes after the job's end, or its next beginning, is no longer read as its cause. */
static bool words_due(const struct membership *m, const struct job *job)
{
	bool due = false;
	for (size_t i = 0; i < job->peers.count; i++) {
		const struct peer *peer = job->peers.items[i];
		due = due || (peer->group == job->group && peer_may_say_why(m, peer));
	}
	return due;
}

static void end_the_rest(struct membership *m, struct job *job, bool ended)
{
	for (size_t i = 0; i < job->peers.count; i++) {
		struct peer *peer = job->peers.items[i];
		if (peer->group != job->group)
			continue;
		if (ended)
			peer_end(m, peer, PEER_LOST, false, "the job ended before it entered");
		else
			peer_end_without_state(m, peer);
	}
}

void native_think(struct membership *m, struct job *job)
{
	if (!peers_settled(job))
		return;
	const struct group *group = state_group(m, job->group);
	struct census c = census_of(m, job);
	bool begun = group != NULL && group->view != NULL;
	/* What they told before they ended: with its group goes what no entry has yet. */
	if (c.live == 0 && group != NULL && rounds_pending(m, group))
		return;
	if (c.live == 0 && c.finished > 0) {
		job_append_moved(m, job, TRAIND__V1__JOB_STATE__JOB_STATE_DONE, 0, "",
		    job->soft.progress != NULL ? job->soft.progress : job->progress, NULL);
	} else if (c.finished > 0) {
		/* It ends: who is not in the view by now has nothing left to do. */
		if (c.members == 0)
			end_the_rest(m, job, true);
	} else if (job->fast_deaths >= TR_WORKER_FAST_DEATHS_MAX && !state_job_trained(job)) {
		/* Where others have trained, the cause is with the nodes where these died: they
		 * are tried again, ever more rarely. */
		if (!words_due(m, job))
			fail_at_start(m, job, &c);
	} else if (begun && c.live == 0) {
		if (!words_due(m, job))
			requeue_or_fail(m, job, &c);
	} else if (begun && c.members == 0) {
		end_the_rest(m, job, false);
	} else if (c.live < c.target && m->now_ms >= job->soft.place_after_ms) {
		queue_replace(m, job);
	} else if (begun) {
		queue_grow(m, job);
	}
}
