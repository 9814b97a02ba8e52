/* What memberd is told in batches: round records, which are kept until they are in its log, and a worker's reports, of which
 * figures may be skipped and events may not.
 */
#include "collectives/engine/engine_internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/log.h"
#include "proto/unpack.h"

/* ---- round records ---- */

static void on_records_timer(uv_timer_t *timer);
static void send_reports(struct member *member);
static void note_told(struct member *member);

/* Sends what was not sent, at most `max` records; no more are on their way at a time than memberd's connection has room for, with all
 * members of a node. */
static void send_records(struct member *member, size_t max)
{
	size_t room = member->record_sent < TR_RECORDS_SENT_MAX
	    ? TR_RECORDS_SENT_MAX - member->record_sent
	    : 0;
	max = max < room ? max : room;
	if (member->record_sent == 0)
		member->records_since_ms = uv_now(&member->engine->loop);
	while (member->record_sent < member->record_count && max > 0) {
		size_t count = member->record_count - member->record_sent;
		count = count < TR_RECORDS_BATCH ? count : TR_RECORDS_BATCH;
		count = count < max ? count : max;
		Traind__Peer__RoundCommits commits = TRAIND__PEER__ROUND_COMMITS__INIT;
		Traind__Peer__ToMember message = TRAIND__PEER__TO_MEMBER__INIT;
		commits.group = member->group;
		commits.peer = member->peer;
		commits.n_rounds = count;
		commits.rounds = member->records + member->record_sent;
		message.body_case = TRAIND__PEER__TO_MEMBER__BODY_ROUND_COMMITS;
		message.round_commits = &commits;
		engine_tell(member->engine, &message);
		member->record_sent += count;
		max -= count;
	}
	/* Records that do not reach the log, since memberd is away, are sent again: the oldest ones, the others follow
	 * when those are logged. */
	if (member->record_count > 0 && !member->over)
		(void)uv_timer_start(&member->records_timer, on_records_timer, TR_RECORDS_AGAIN_MS,
		    0);
}

static void on_records_timer(uv_timer_t *timer)
{
	struct member *member = timer->data;
	/* Also while new ones come all the time. */
	bool again = member->record_sent == member->record_count ||
	    uv_now(&member->engine->loop) - member->records_since_ms >= TR_RECORDS_AGAIN_MS;
	if (again)
		member->record_sent = 0;
	send_records(member, again ? TR_RECORDS_BATCH : SIZE_MAX);
}

static void forget_records(struct member *member, size_t count)
{
	for (size_t i = 0; i < count; i++)
		traind__peer__round_commit__free_unpacked(member->records[i], NULL);
	member->record_count -= count;
	member->record_sent = member->record_sent > count ? member->record_sent - count : 0;
	memmove(member->records, member->records + count,
	    member->record_count * sizeof(*member->records));
}

static bool make_room(struct member *member)
{
	if (member->record_count == TR_RECORDS_UNLOGGED_MAX) {
		log_warn("engine",
		    "peer %lu: memberd is away for long: record of round %lu is dropped",
		    (unsigned long)member->peer, (unsigned long)member->records[0]->round);
		forget_records(member, 1);
	}
	if (member->record_count < member->record_capacity)
		return true;
	size_t capacity = member->record_capacity > 0 ? 2 * member->record_capacity : 64;
	void *grown = realloc(member->records, capacity * sizeof(*member->records));
	if (grown == NULL)
		return false;
	member->records = grown;
	member->record_capacity = capacity;
	return true;
}

/* The place of `record` among those kept, which are in ascending order; the core says some again after a view change and when
 * it leaves. */
static size_t place_of(const struct member *member, const Traind__Peer__RoundCommit *record)
{
	size_t at = member->record_count;
	while (at > 0 && member->records[at - 1]->round >= record->round)
		at--;
	return at;
}

static void send_soon(struct member *member)
{
	if (uv_timer_get_due_in(&member->records_timer) > TR_RECORDS_INTERVAL_MS ||
	    !uv_is_active((uv_handle_t *)&member->records_timer))
		(void)uv_timer_start(&member->records_timer, on_records_timer,
		    TR_RECORDS_INTERVAL_MS, 0);
}

void notices_record(struct member *member, Traind__Peer__RoundCommit *record)
{
	if (record->round <= member->recorded_round || !make_room(member)) {
		traind__peer__round_commit__free_unpacked(record, NULL);
		return;
	}
	size_t at = place_of(member, record);
	if (at < member->record_count && member->records[at]->round == record->round) {
		traind__peer__round_commit__free_unpacked(member->records[at], NULL);
	} else {
		memmove(member->records + at + 1, member->records + at,
		    (member->record_count - at) * sizeof(*member->records));
		member->record_count++;
	}
	member->records[at] = record;
	bool newest = at + 1 == member->record_count;
	if (member->record_sent > at)
		member->record_sent = at;
	/* What is said again comes one by one, all of it at a time, and goes together. */
	if (newest && member->record_count - member->record_sent >= TR_RECORDS_BATCH)
		send_records(member, SIZE_MAX);
	else
		send_soon(member);
}

void notices_recorded(struct member *member, uint64_t round)
{
	size_t logged = 0;
	if (round > member->recorded_round)
		member->recorded_round = round;
	while (logged < member->record_sent && member->records[logged]->round <= round)
		logged++;
	if (logged == 0)
		return;
	forget_records(member, logged);
	member->records_since_ms = uv_now(&member->engine->loop);
	/* What came meanwhile, or is told again behind those, goes with the next batch: a log that is quick is no reason for more. */
	if (member->record_count - member->record_sent >= TR_RECORDS_BATCH ||
	    (member->over && member->record_sent == 0))
		send_records(member, SIZE_MAX);
	else if (member->record_count > member->record_sent && !member->over)
		send_soon(member);
}

void notices_again(struct member *member)
{
	member_tell_failure(member);
	if (member->over)
		return;
	if (member->ready && member->view == 0)
		member_tell_ready(member);
	member->record_sent = 0;
	send_records(member, SIZE_MAX);
	/* It may have died with the newest figures: a checkpoint is told once, and so is an account. */
	member->account_told = false;
	if (member->told != NULL) {
		note_told(member);
		member->progress = member->told;
		member->told = NULL;
	}
	send_reports(member);
}

/* ---- reports ---- */

static void tell_report(struct member *member, Traind__V1__Progress *progress,
    Traind__V1__SampleAccount *account, char *event)
{
	Traind__Peer__PeerReport report = TRAIND__PEER__PEER_REPORT__INIT;
	Traind__Peer__ToMember message = TRAIND__PEER__TO_MEMBER__INIT;
	report.job_id = member->job;
	report.peer = member->peer;
	report.progress = progress;
	report.samples = account;
	if (event != NULL)
		report.event = event;
	message.body_case = TRAIND__PEER__TO_MEMBER__BODY_PEER_REPORT;
	message.peer_report = &report;
	engine_tell(member->engine, &message);
}

static void newer_double(double *into, double value)
{
	if (!isnan(value))
		*into = value;
}

/* Moves what `from` has news of into `into`. */
static void merge_progress(Traind__V1__Progress *into, Traind__V1__Progress *from)
{
	if (from->step > into->step)
		into->step = from->step;
	if (from->steps != 0)
		into->steps = from->steps;
	newer_double(&into->loss, from->loss);
	newer_double(&into->val_loss, from->val_loss);
	newer_double(&into->first_loss, from->first_loss);
	newer_double(&into->tokens_per_s, from->tokens_per_s);
	newer_double(&into->grad_norm, from->grad_norm);
	newer_double(&into->lr, from->lr);
	if (from->merges != NULL) {
		Traind__V1__Merges *newer = from->merges;
		from->merges = into->merges;
		into->merges = newer;
	}
	if (from->plan != NULL) {
		Traind__V1__PlanNow *newer = from->plan;
		from->plan = into->plan;
		into->plan = newer;
	}
	if (from->checkpoint[0] != '\0') {
		char *newer = from->checkpoint;
		from->checkpoint = into->checkpoint;
		into->checkpoint = newer;
	}
	if (from->sample[0] != '\0') {
		char *newer = from->sample;
		from->sample = into->sample;
		into->sample = newer;
	}
}

/* The newest figures were sent, or are to be said last: `told` has all of them. */
static void note_told(struct member *member)
{
	if (member->told == NULL) {
		member->told = member->progress;
	} else if (member->progress != NULL) {
		merge_progress(member->told, member->progress);
		traind__v1__progress__free_unpacked(member->progress, NULL);
	}
	member->progress = NULL;
}

/* Takes it over. */
static void newest_account(struct member *member, Traind__V1__SampleAccount *account)
{
	if (member->account != NULL)
		traind__v1__sample_account__free_unpacked(member->account, NULL);
	member->account = account;
	member->account_told = false;
}

static void send_reports(struct member *member)
{
	if (member->engine->memberd_lost)
		return;
	Traind__V1__SampleAccount *account = member->account_told ? NULL : member->account;
	if (member->progress != NULL || account != NULL || member->event_count > 0)
		tell_report(member, member->progress, account,
		    member->event_count > 0 ? member->events[0] : NULL);
	for (unsigned i = 1; i < member->event_count; i++)
		tell_report(member, NULL, NULL, member->events[i]);
	member->account_told = true;
	for (unsigned i = 0; i < member->event_count; i++)
		free(member->events[i]);
	member->event_count = 0;
	note_told(member);
}

static void on_reports_timer(uv_timer_t *timer)
{
	struct member *member = timer->data;
	send_reports(member);
	member_calls_resume(member);
}

static void drop_event(struct member *member)
{
	log_warn("engine", "peer %lu: memberd is away for long: an event is dropped: %s",
	    (unsigned long)member->peer, member->events[0]);
	free(member->events[0]);
	member->event_count--;
	memmove(member->events, member->events + 1, member->event_count * sizeof(*member->events));
}

static void reports_soon(struct member *member)
{
	if (!uv_is_active((uv_handle_t *)&member->reports_timer))
		(void)uv_timer_start(&member->reports_timer, on_reports_timer,
		    TR_REPORT_INTERVAL_MS, 0);
}

void notices_event(struct member *member, const char *text)
{
	char *copy = strdup(text);
	if (copy == NULL)
		return;
	if (member->event_count == TR_REPORT_EVENTS_MAX)
		drop_event(member);
	member->events[member->event_count++] = copy;
	reports_soon(member);
}

bool notices_report(void *arg, const void *packed, size_t bytes)
{
	struct member *member = arg;
	if (member->event_count == TR_REPORT_EVENTS_MAX && member->engine->memberd_lost)
		drop_event(member); /* rather than let the worker wait for memberd */
	if (member->event_count == TR_REPORT_EVENTS_MAX)
		return false;
	struct unpack_budget budget;
	Traind__Peer__PeerReport *report = traind__peer__peer_report__unpack(unpack_budget(&budget,
	                                                                         bytes),
	    bytes, packed);
	if (report == NULL)
		return true; /* nonsense, or no memory: facts for people only */
	if (report->event[0] != '\0')
		member->events[member->event_count++] = strdup(report->event);
	if (member->event_count > 0 && member->events[member->event_count - 1] == NULL)
		member->event_count--;
	if (report->progress != NULL && member->progress == NULL) {
		member->progress = report->progress;
		report->progress = NULL;
	} else if (report->progress != NULL) {
		merge_progress(member->progress, report->progress);
	}
	if (report->samples != NULL) {
		newest_account(member, report->samples);
		report->samples = NULL;
	}
	traind__peer__peer_report__free_unpacked(report, NULL);
	reports_soon(member);
	return true;
}

/* ---- life ---- */

void notices_start(struct member *member)
{
	(void)uv_timer_init(&member->engine->loop, &member->records_timer);
	(void)uv_timer_init(&member->engine->loop, &member->reports_timer);
	member->records_timer.data = member->reports_timer.data = member;
	member->holds += 2;
}

void notices_flush(struct member *member)
{
	send_records(member, SIZE_MAX);
	send_reports(member);
}

/* The newest records that fit into a message beside the rest. */
static size_t records_that_fit(const struct member *member)
{
	size_t count = 0, bytes = 0;
	while (count < member->record_count) {
		const Traind__Peer__RoundCommit
		    *record = member->records[member->record_count - 1 - count];
		bytes += traind__peer__round_commit__get_packed_size(record) + 8;
		if (bytes > TR_LAST_WORDS_BYTES_MAX)
			break;
		count++;
	}
	if (count < member->record_count)
		log_warn("engine",
		    "peer %lu: memberd is away for long: records up to round %lu are dropped",
		    (unsigned long)member->peer,
		    (unsigned long)member->records[member->record_count - 1 - count]->round);
	return count;
}

void notices_last_words(struct member *member, Traind__Peer__LastWords *words)
{
	send_reports(member);
	note_told(member);
	words->progress = member->told;
	words->n_rounds = records_that_fit(member);
	words->rounds = member->records;
	if (words->n_rounds < member->record_count)
		words->rounds += member->record_count - words->n_rounds;
	words->n_events = member->event_count;
	words->events = member->events;
	words->samples = member->account;
}

void notices_finish(struct member *member)
{
	if (member->records != NULL)
		forget_records(member, member->record_count);
	free(member->records);
	for (unsigned i = 0; i < member->event_count; i++)
		free(member->events[i]);
	newest_account(member, NULL);
	note_told(member);
	if (member->told != NULL)
		traind__v1__progress__free_unpacked(member->told, NULL);
}
