/* What nodes tell about training: committed rounds (durable, each once), progress (soft, noted now
 * and then), events. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/membership/core/state.h"

#define BATCH_MAX         65536u
#define NOTE_EVERY_MS     2000u
#define EVENTS_PER_SECOND 20u
#define TEXT_MAX          4096u
#define SAMPLE_MAX        131072u /* sample.tokens is at most 65,536 */
#define ENTRY_BYTES \
	(1u << 20) /* of records in one entry; the log refuses one of 4 MiB, and so it would for ever */

/* What its members may forget. Where the disk has refused records, only what has none missing before it; else also what is behind a gap that nobody
 * can fill (a member had no room for more while memberd was away). */
static uint64_t recorded_up_to(const struct membership *m, const struct group *group)
{
	const struct ledger *ledger = state_ledger(m, group);
	return group->soft.refused ? ledger_frontier(ledger) : ledger_newest(ledger);
}

static void send_recorded(struct membership *m, uint64_t conn, const struct group *group)
{
	Traind__Peer__ToNode message = TRAIND__PEER__TO_NODE__INIT;
	Traind__Peer__RoundsRecorded recorded = TRAIND__PEER__ROUNDS_RECORDED__INIT;
	recorded.group = group->id;
	recorded.round = recorded_up_to(m, group);
	recorded.frontier = ledger_frontier(state_ledger(m, group));
	message.body_case = TRAIND__PEER__TO_NODE__BODY_ROUNDS_RECORDED;
	message.rounds_recorded = &recorded;
	action_send(m, conn, &message);
}

static void append_rounds(struct membership *m, struct group *group,
    Traind__Peer__RoundCommits *rounds)
{
	Traind__Peer__LogEntry entry = TRAIND__PEER__LOG_ENTRY__INIT;
	entry.body_case = TRAIND__PEER__LOG_ENTRY__BODY_ROUNDS;
	entry.rounds = rounds;
	action_append(m, &entry, PENDING_ROUNDS, group->id, NULL);
}

static int compare(uint64_t a, uint64_t b)
{
	return a < b ? -1 : a > b;
}

static int by_round(const void *left, const void *right)
{
	const Traind__Peer__RoundCommit *a = *(Traind__Peer__RoundCommit *const *)left;
	const Traind__Peer__RoundCommit *b = *(Traind__Peer__RoundCommit *const *)right;
	const int order[] = { compare(a->round, b->round), compare(a->digest_low, b->digest_low),
		compare(a->digest_high, b->digest_high), compare(a->view, b->view),
		compare(a->attempt, b->attempt) };
	for (size_t i = 0; i < sizeof(order) / sizeof(order[0]); i++)
		if (order[i] != 0)
			return order[i];
	return 0;
}

static bool same_record(const Traind__Peer__RoundCommit *a, const Traind__Peer__RoundCommit *b)
{
	return a->round == b->round && a->digest_low == b->digest_low &&
	    a->digest_high == b->digest_high && a->n_contributors == b->n_contributors &&
	    memcmp(a->contributors, b->contributors,
	        a->n_contributors * sizeof(*a->contributors)) == 0;
}

/* After a time without us all members tell the same rounds at once: each waits once, the oldest first, and none that came into the log meanwhile. */
static void batch_tidy(const struct membership *m, const struct group *group)
{
	Traind__Peer__RoundCommits *batch = group->soft.batch;
	const struct ledger *ledger = state_ledger(m, group);
	size_t kept = 0;
	qsort(batch->rounds, batch->n_rounds, sizeof(Traind__Peer__RoundCommit *), by_round);
	for (size_t i = 0; i < batch->n_rounds; i++) {
		Traind__Peer__RoundCommit *row = batch->rounds[i];
		enum ledger_verdict verdict = ledger_look(ledger, row);
		if ((verdict != LEDGER_NEW && verdict != LEDGER_CONTRADICTS) ||
		    (kept > 0 && same_record(batch->rounds[kept - 1], row)))
			traind__peer__round_commit__free_unpacked(row, NULL);
		else
			batch->rounds[kept++] = row;
	}
	batch->n_rounds = kept;
}

/* Adds copies of the records to those that wait for the log. */
static void batch_add(struct membership *m, struct group *group,
    const Traind__Peer__RoundCommits *rounds)
{
	Traind__Peer__RoundCommits *batch = group->soft.batch;
	if (batch == NULL) {
		group->soft.batch = copy_message(m, &rounds->base);
		return;
	}
	if (batch->n_rounds + rounds->n_rounds > BATCH_MAX)
		batch_tidy(m, group);
	if (batch->n_rounds + rounds->n_rounds > BATCH_MAX) {
		action_ignored(m, "%zu round records of group %llu: the log does not keep up",
		    rounds->n_rounds, (unsigned long long)group->id);
		return;
	}
	Traind__Peer__RoundCommit **grown = realloc(batch->rounds,
	    (batch->n_rounds + rounds->n_rounds) * sizeof(*grown));
	if (grown == NULL) {
		m->oom = true;
		return;
	}
	batch->rounds = grown;
	for (size_t i = 0; i < rounds->n_rounds; i++) {
		Traind__Peer__RoundCommit *copy = copy_message(m, &rounds->rounds[i]->base);
		if (copy == NULL)
			return;
		batch->rounds[batch->n_rounds++] = copy;
	}
}

/* Those worth an entry: new ones, and contradictions, which are to be seen by all. Returns how
 * many. */
static size_t worth_it(struct membership *m, const struct group *group,
    const Traind__Peer__RoundCommits *rounds, Traind__Peer__RoundCommit **kept)
{
	const struct ledger *ledger = state_ledger(m, group);
	size_t count = 0;
	for (size_t i = 0; i < rounds->n_rounds; i++) {
		enum ledger_verdict verdict = ledger_look(ledger, rounds->rounds[i]);
		if (verdict == LEDGER_NEW || verdict == LEDGER_CONTRADICTS)
			kept[count++] = rounds->rounds[i];
		else if (verdict == LEDGER_BAD)
			action_ignored(m, "a malformed record of round %llu of group %llu",
			    (unsigned long long)rounds->rounds[i]->round,
			    (unsigned long long)group->id);
	}
	return count;
}

void facts_rounds(struct membership *m, struct node *node, const Traind__Peer__RoundCommits *rounds)
{
	struct group *group = state_group(m, rounds->group);
	const struct peer *peer = group != NULL ? state_group_peer(m, group, rounds->peer) : NULL;
	/* Of an ended peer too: the others decide without it. */
	if (peer == NULL || peer->node != node->id || !state_peer_live(peer) ||
	    state_ledger(m, group) == NULL || rounds->n_rounds == 0 ||
	    rounds->n_rounds > BATCH_MAX) {
		action_ignored(m,
		    "%zu round records of group %llu from node n%llu, which hosts no live member "
		    "of it",
		    rounds->n_rounds, (unsigned long long)rounds->group,
		    (unsigned long long)node->id);
		return;
	}
	Traind__Peer__RoundCommits copy = *rounds;
	copy.rounds = state_alloc(m, rounds->n_rounds * sizeof(*copy.rounds));
	if (copy.rounds == NULL)
		return;
	copy.n_rounds = worth_it(m, group, rounds, copy.rounds);
	group->soft.reply_conn = node->soft.conn;
	if (copy.n_rounds == 0) {
		send_recorded(m, node->soft.conn, group);
	} else {
		batch_add(m, group, &copy);
		facts_rounds_think(m, group);
	}
	free(copy.rounds);
}

bool facts_rounds_pending(const struct membership *m, const struct group *group)
{
	return group->soft.batch != NULL || pending_any(m, PENDING_ROUNDS, group->id);
}

void facts_rounds_applied(struct membership *m, struct group *group)
{
	const struct ledger *ledger = state_ledger(m, group);
	if (!m->leading)
		return;
	group->soft.refused = group->soft.refused &&
	    ledger_frontier(ledger) < ledger_newest(ledger);
	if (state_node_of_conn(m, group->soft.reply_conn) != NULL)
		send_recorded(m, group->soft.reply_conn, group);
}

void facts_rounds_refused(struct membership *m, uint64_t id)
{
	struct group *group = state_group(m, id);
	if (group != NULL)
		group->soft.refused = true;
}

/* Those before them are in the log, or did not get there. */
void facts_rounds_think(struct membership *m, struct group *group)
{
	Traind__Peer__RoundCommits *batch = group->soft.batch;
	size_t count = 0, bytes = 0;
	if (batch == NULL || pending_any(m, PENDING_ROUNDS, group->id))
		return;
	batch_tidy(m, group);
	for (; count < batch->n_rounds && bytes < ENTRY_BYTES; count++)
		bytes += traind__peer__round_commit__get_packed_size(batch->rounds[count]);
	Traind__Peer__RoundCommits first = *batch;
	first.n_rounds = count;
	if (count > 0)
		append_rounds(m, group, &first);
	for (size_t i = 0; i < count; i++)
		traind__peer__round_commit__free_unpacked(batch->rounds[i], NULL);
	batch->n_rounds -= count;
	memmove(batch->rounds, batch->rounds + count, batch->n_rounds * sizeof(*batch->rounds));
	if (batch->n_rounds > 0)
		return;
	traind__peer__round_commits__free_unpacked(batch, NULL);
	group->soft.batch = NULL;
}

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
		if (copy->tokens_per_s <= 0)
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
		facts_rounds(m, node, &commits);
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
