/* What nodes tell about training: progress (soft, noted now and then), events. Committed rounds: rounds.c. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/membership/core/state.h"

#define NOTE_EVERY_MS     2000u
#define EVENTS_PER_SECOND 20u
#define TEXT_MAX          4096u
#define SAMPLE_MAX        131072u /* sample.tokens is at most 65,536 */

static void append_note(struct membership *m, const struct job *job, const char *text,
    const Traind__V1__Progress *progress)
{
	Traind__Peer__LogEntry entry = TRAIND__PEER__LOG_ENTRY__INIT;
	Traind__Peer__JobNote note = TRAIND__PEER__JOB_NOTE__INIT;
	Traind__V1__Progress copy;
	char words[TR_ERROR_TEXT_MAX];
	copy_text(words, sizeof(words), text);
	note.job_id = job->id;
	note.text = words;
	if (progress != NULL) {
		copy = *progress;
		note.progress = &copy;
	}
	entry.body_case = TRAIND__PEER__LOG_ENTRY__BODY_JOB_NOTE;
	entry.job_note = &note;
	action_append(m, &entry, PENDING_NOTE, job->id, NULL);
}

void facts_note(struct membership *m, const struct job *job, const char *text)
{
	append_note(m, job, text, NULL);
}

static bool progress_valid(const Traind__V1__Progress *progress)
{
	return strlen(progress->checkpoint) < TEXT_MAX && strlen(progress->sample) <= SAMPLE_MAX;
}

/* Facts that came once stay: a later report need not repeat them. */
static void keep(struct membership *m, char **to, const char *from)
{
	if ((*to)[0] != '\0' || from[0] == '\0')
		return;
	char *copy = copy_string(m, from);
	if (copy == NULL)
		return;
	if (*to != protobuf_c_empty_string)
		free(*to);
	*to = copy;
}

static double kept(double now, double before)
{
	return now == now ? now : before; /* NaN: no news */
}

static void take_progress(struct membership *m, struct job *job,
    const Traind__V1__Progress *progress)
{
	const Traind__V1__Progress *before = job->soft.progress != NULL ? job->soft.progress
	                                                                : job->progress;
	if (progress->steps != 0)
		job->soft.late.told_step = progress->step;
	if (before != NULL && progress->step < before->step)
		return; /* from a peer that is behind */
	Traind__V1__Progress *copy = copy_message(m, &progress->base);
	if (copy == NULL)
		return;
	/* The account comes by itself (samples.c). */
	if (copy->samples != NULL)
		traind__v1__sample_account__free_unpacked(copy->samples, NULL);
	copy->samples = before != NULL && before->samples != NULL
	    ? copy_message(m, &before->samples->base)
	    : NULL;
	bool checkpoint = copy->checkpoint[0] != '\0' &&
	    (before == NULL || strcmp(copy->checkpoint, before->checkpoint) != 0);
	bool sample = copy->sample[0] != '\0' && (before == NULL || before->sample[0] == '\0');
	if (before != NULL) {
		keep(m, &copy->checkpoint, before->checkpoint);
		keep(m, &copy->sample, before->sample);
		copy->loss = kept(copy->loss, before->loss);
		copy->val_loss = kept(copy->val_loss, before->val_loss);
		/* Each peer says its own first one; the earliest stays. */
		copy->first_loss = kept(before->first_loss, copy->first_loss);
		copy->grad_norm = kept(copy->grad_norm, before->grad_norm);
		copy->lr = kept(copy->lr, before->lr);
		if (copy->merges == NULL && before->merges != NULL)
			copy->merges = copy_message(m, &before->merges->base);
		if (copy->plan == NULL && before->plan != NULL)
			copy->plan = copy_message(m, &before->plan->base);
		if (copy->steps == 0)
			copy->steps = before->steps;
		if (!(copy->tokens_per_s > 0)) /* NaN: no news */
			copy->tokens_per_s = before->tokens_per_s;
	}
	copy->first_loss = kept(copy->first_loss, copy->loss); /* the first that we hear of */
	if (job->soft.progress != NULL)
		traind__v1__progress__free_unpacked(job->soft.progress, NULL);
	job->soft.progress = copy;
	if (checkpoint || sample)
		job->soft.note_due = true;
	action_changed(m, job->id);
}

static void take_event(struct membership *m, struct job *job, const char *text)
{
	if (m->now_ms - job->soft.events_from_ms >= 1000 || job->soft.events_from_ms == 0) {
		job->soft.events_from_ms = m->now_ms;
		job->soft.events_in_window = 0;
	}
	if (++job->soft.events_in_window > EVENTS_PER_SECOND) {
		action_ignored(m, "an event of job %llu: more than %u in a second",
		    (unsigned long long)job->id, EVENTS_PER_SECOND);
		return;
	}
	append_note(m, job, text, NULL);
}

void facts_report(struct membership *m, struct node *node, const Traind__Peer__PeerReport *report)
{
	struct job *job = report->job_id != 0 ? state_job(m, report->job_id) : NULL;
	const struct peer *peer = job != NULL ? state_peer(&job->peers, report->peer) : NULL;
	if (peer == NULL || peer->node != node->id ||
	    peer->incarnation != node->hello->incarnation ||
	    (peer->group != job->group && report->event[0] == '\0') ||
	    (report->progress != NULL && !progress_valid(report->progress))) {
		action_ignored(m, "a report about peer p%llu of job %llu from node n%llu",
		    (unsigned long long)report->peer, (unsigned long long)report->job_id,
		    (unsigned long long)node->id);
		return;
	}
	/* Of a run that is over words alone count: they may say why it ended. */
	bool counts = peer->group == job->group;
	if (counts && report->progress != NULL) {
		take_progress(m, job, report->progress);
		planned_look(m, job);
	}
	if (counts && report->samples != NULL)
		samples_take(m, job, report->samples);
	if (report->event[0] != '\0')
		take_event(m, job, report->event);
}

static void tell_if_over(struct membership *m, const struct peer *peer)
{
	const struct job *job = peer->job != 0 ? state_job(m, peer->job) : NULL;
	if (job != NULL && (!state_job_live(job) || job->group != peer->group))
		peer_left_over(m, job, peer->group);
}

void facts_left(struct membership *m, struct peer *peer, const Traind__Peer__LastWords *words)
{
	if (words == NULL || !words->learning_left)
		return;
	peer->soft.learning_left = true;
	tell_if_over(m, peer);
}

void facts_last_words(struct membership *m, struct node *node, struct peer *peer,
    const Traind__Peer__LastWords *words)
{
	Traind__Peer__RoundCommits commits = TRAIND__PEER__ROUND_COMMITS__INIT;
	Traind__Peer__PeerReport report = TRAIND__PEER__PEER_REPORT__INIT;
	if (words == NULL)
		return;
	peer->soft.state_left = words->state_left;
	peer->soft.learning_left = words->learning_left;
	tell_if_over(m, peer);
	commits.group = peer->group;
	commits.peer = report.peer = peer->id;
	commits.n_rounds = words->n_rounds;
	commits.rounds = words->rounds;
	if (words->n_rounds > 0)
		rounds_told(m, node, &commits);
	report.job_id = peer->job;
	report.progress = words->progress;
	report.samples = words->samples;
	if (peer->job != 0 && (words->progress != NULL || words->samples != NULL))
		facts_report(m, node, &report);
	report.progress = NULL;
	report.samples = NULL;
	for (size_t i = 0; peer->job != 0 && i < words->n_events; i++) {
		report.event = words->events[i];
		facts_report(m, node, &report);
	}
}

void facts_think(struct membership *m, struct job *job)
{
	if (job->soft.progress == NULL || pending_any(m, PENDING_NOTE, job->id))
		return;
	const Traind__V1__SampleAccount *durable = job->progress != NULL ? job->progress->samples
	                                                                 : NULL;
	const Traind__V1__SampleAccount *newest = samples_of(job);
	bool news = job->progress == NULL || job->soft.progress->step != job->progress->step ||
	    (newest != NULL && (durable == NULL || newest->round != durable->round));
	if (!job->soft.note_due && !(news && m->now_ms - job->soft.noted_ms >= NOTE_EVERY_MS))
		return;
	job->soft.note_due = false;
	job->soft.noted_ms = m->now_ms;
	append_note(m, job, "", job->soft.progress);
}
