/* The life of a job: a table of legal moves, submission, cancellation. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "daemon/membership/core/state.h"
#include "daemon/plan/job_options.h"

#define QUEUED    TRAIND__V1__JOB_STATE__JOB_STATE_QUEUED
#define STARTING  TRAIND__V1__JOB_STATE__JOB_STATE_STARTING
#define RUNNING   TRAIND__V1__JOB_STATE__JOB_STATE_RUNNING
#define DONE      TRAIND__V1__JOB_STATE__JOB_STATE_DONE
#define FAILED    TRAIND__V1__JOB_STATE__JOB_STATE_FAILED
#define CANCELLED TRAIND__V1__JOB_STATE__JOB_STATE_CANCELLED

#define TO(state)      (1u << (state))
#define JOB_STATES     7
#define SPEC_BYTES_MAX (1u << 20)

static const struct {
	const char *name;
	unsigned to;
} moves[JOB_STATES] = {
	[QUEUED] = { "queued", TO(STARTING) | TO(FAILED) | TO(CANCELLED) },
	[STARTING] = { "starting",
	    TO(QUEUED) | TO(RUNNING) | TO(DONE) | TO(FAILED) | TO(CANCELLED) },
	[RUNNING] = { "running", TO(QUEUED) | TO(DONE) | TO(FAILED) | TO(CANCELLED) },
	[DONE] = { "done", 0 },
	[FAILED] = { "failed", 0 },
	[CANCELLED] = { "cancelled", 0 },
};

const char *job_state_name(Traind__V1__JobState state)
{
	if ((unsigned)state >= JOB_STATES || moves[state].name == NULL)
		return "unknown";
	return moves[state].name;
}

bool job_move_legal(Traind__V1__JobState from, Traind__V1__JobState to)
{
	return (unsigned)from < JOB_STATES && (unsigned)to < JOB_STATES &&
	    (moves[from].to & TO(to)) != 0;
}

void job_wait(struct membership *m, struct job *job, const char *format, ...)
{
	char text[REASON_MAX];
	va_list args;
	va_start(args, format);
	(void)vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	if (strcmp(text, job->soft.waiting) == 0)
		return;
	copy_text(job->soft.waiting, sizeof(job->soft.waiting), text);
	if (text[0] != '\0')
		action_log(m, false, "job %llu waits: %s", (unsigned long long)job->id, text);
	action_changed(m, job->id);
}

void job_append_moved(struct membership *m, struct job *job, Traind__V1__JobState to,
    int32_t exit_code, const char *reason, const Traind__V1__Progress *progress, uint64_t *cookie)
{
	Traind__Peer__LogEntry entry = TRAIND__PEER__LOG_ENTRY__INIT;
	Traind__Peer__JobMoved moved = TRAIND__PEER__JOB_MOVED__INIT;
	Traind__V1__Progress copy;
	char text[TR_ERROR_TEXT_MAX];
	copy_text(text, sizeof(text), reason);
	moved.job_id = job->id;
	moved.state = to;
	moved.reason = text;
	moved.exit_code = exit_code;
	if (progress != NULL) {
		copy = *progress;
		moved.progress = &copy;
	}
	entry.body_case = TRAIND__PEER__LOG_ENTRY__BODY_JOB_MOVED;
	entry.job_moved = &moved;
	action_log(m, to == FAILED, "job %llu: %s -> %s%s%s", (unsigned long long)job->id,
	    job_state_name(job->state), job_state_name(to), text[0] != '\0' ? ": " : "", text);
	action_append(m, &entry, PENDING_JOB, job->id, cookie);
}

/* The same request came before: answers it, or lets it wait for the same entry. */
static bool submitted_before(struct membership *m, uint64_t request, const char *request_id)
{
	if (request_id[0] == '\0')
		return false;
	for (size_t i = m->jobs.count; i-- > 0;) {
		const struct job *job = m->jobs.items[i];
		if (strcmp(job->request_id, request_id) == 0) {
			action_reply(m, request, TR_OK, job->id, true, "");
			return true;
		}
	}
	for (size_t i = 0; i < m->waiters_count; i++) {
		struct waiter other = m->waiters[i];
		if (strcmp(other.request_id, request_id) == 0) {
			pending_wait(m, other.cookie, request, other.job, true, request_id);
			return true;
		}
	}
	return false;
}

static size_t jobs_not_ended(const struct membership *m)
{
	size_t count = 0;
	for (size_t i = 0; i < m->jobs.count; i++)
		count += state_job_ended(m->jobs.items[i]) ? 0 : 1;
	return count;
}

static void append_submitted(struct membership *m, uint64_t request, const char *request_id,
    Traind__V1__JobSpec *spec)
{
	Traind__Peer__LogEntry entry = TRAIND__PEER__LOG_ENTRY__INIT;
	Traind__Peer__JobSubmitted submitted = TRAIND__PEER__JOB_SUBMITTED__INIT;
	if (m->soft_next_job < m->next_job)
		m->soft_next_job = m->next_job;
	uint64_t id = m->soft_next_job++, cookie = 0;
	char name[TR_NAME_MAX];
	copy_text(name, sizeof(name), request_id);
	submitted.job_id = id;
	submitted.request_id = name;
	submitted.spec = spec;
	entry.body_case = TRAIND__PEER__LOG_ENTRY__BODY_JOB_SUBMITTED;
	entry.job_submitted = &submitted;
	action_append(m, &entry, PENDING_JOB, id, &cookie);
	pending_wait(m, cookie, request, id, false, name);
}

void job_submit(struct membership *m, uint64_t request, const Traind__V1__SubmitJobRequest *submit)
{
	if (strlen(submit->request_id) >= TR_NAME_MAX) {
		action_reply(m, request, TR_EINVAL, 0, false,
		    "request_id: found more than 63 bytes, allowed: 0 to 63 bytes");
		return;
	}
	if (submitted_before(m, request, submit->request_id))
		return;
	if (submit->spec == NULL) {
		action_reply(m, request, TR_EINVAL, 0, false, "spec: found none, allowed: a job");
		return;
	}
	if (traind__v1__job_spec__get_packed_size(submit->spec) > SPEC_BYTES_MAX) {
		action_reply(m, request, TR_EINVAL, 0, false,
		    "spec: found more than 1 MiB, allowed: up to 1 MiB");
		return;
	}
	if (jobs_not_ended(m) >= TR_JOBS_MAX - 1) {
		action_reply(m, request, TR_ELIMIT, 0, false,
		    "4095 jobs are queued or running already: cancel some or try again later");
		return;
	}
	Traind__V1__JobSpec *spec = copy_message(m, &submit->spec->base);
	if (spec == NULL)
		return;
	struct tr_error error = { 0 };
	if (job_validate(spec, &error) != TR_OK)
		action_reply(m, request, TR_EINVAL, 0, false, error.text);
	else if (spec->train != NULL && spec->mesh->auto_ && spec->plan == NULL)
		action_reply(m, request, TR_EINVAL, 0, false,
		    "mesh.auto: found true and no plan, allowed: false with mesh.nodes, tp and pp, "
		    "or "
		    "a plan as `trainctl launch` makes it");
	else
		append_submitted(m, request, submit->request_id, spec);
	traind__v1__job_spec__free_unpacked(spec, NULL);
}

void job_cancel(struct membership *m, uint64_t request, uint64_t id, const char *reason)
{
	struct job *job = state_job(m, id);
	if (job == NULL) {
		char text[96];
		(void)snprintf(text, sizeof(text), "there is no job %llu", (unsigned long long)id);
		action_reply(m, request, TR_ENOTFOUND, id, false, text);
		return;
	}
	if (state_job_ended(job)) {
		action_reply(m, request, TR_OK, id, true, "");
		return;
	}
	char text[TR_ERROR_TEXT_MAX];
	uint64_t cookie = 0;
	copy_text(text, sizeof(text),
	    reason != NULL && reason[0] != '\0' ? reason : "cancelled by request");
	job_append_moved(m, job, CANCELLED, 0, text, NULL, &cookie);
	pending_wait(m, cookie, request, id, false, "");
}

void job_think(struct membership *m)
{
	for (size_t i = 0; i < m->jobs.count; i++) {
		struct job *job = m->jobs.items[i];
		peer_think(m, &job->peers);
		facts_think(m, job);
		if (!state_job_live(job) || pending_any(m, PENDING_JOB, job->id))
			continue;
		if (job->spec->command != NULL)
			command_think(m, job);
		else
			native_think(m, job);
	}
	queue_think(m);
}

uint64_t job_deadline_ms(const struct membership *m)
{
	uint64_t deadline = UINT64_MAX;
	for (size_t i = 0; i < m->jobs.count; i++) {
		const struct job *job = m->jobs.items[i];
		if (state_job_live(job) && job->soft.place_after_ms > m->now_ms &&
		    job->soft.place_after_ms < deadline)
			deadline = job->soft.place_after_ms;
		if (state_job_live(job) && job->soft.grow_after_ms > m->now_ms &&
		    job->soft.grow_after_ms < deadline)
			deadline = job->soft.grow_after_ms;
		uint64_t at_ms = elsewhere_ms(job);
		if (at_ms > m->now_ms && at_ms < deadline)
			deadline = at_ms;
	}
	return deadline;
}
