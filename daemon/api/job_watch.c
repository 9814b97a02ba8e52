#include "daemon/api/job_watch.h"

#include <assert.h>
#include <stdlib.h>

#include "common/limits.h"
#include "daemon/api/api_message.h"
#include "daemon/api/job_lookup.h"

struct job_watcher {
	struct job_watch *watch;
	struct job_watcher *next;
	struct grpc_call *call;
	uint64_t job, sent_ms;
	Traind__V1__JobState state; /* last sent */
	bool changed, slow;         /* since the last message; the client has not read it yet */
	bool unchecked;             /* changed, and whether the state did is not known yet */
};

void job_watch_init(struct job_watch *watch, uv_loop_t *loop, const struct trainer_backend *backend,
    void *arg)
{
	*watch = (struct job_watch){ .loop = loop, .backend = backend, .arg = arg };
}

void job_watch_finish(struct job_watch *watch)
{
	assert(watch->watchers == NULL);
	ticker_close(&watch->ticker);
}

static void watch_remove(struct job_watcher *watcher)
{
	struct job_watch *watch = watcher->watch;
	struct job_watcher **at = &watch->watchers;
	while (*at != watcher)
		at = &(*at)->next;
	*at = watcher->next;
	free(watcher);
	if (watch->watchers == NULL)
		ticker_close(&watch->ticker);
}

static void watch_end(struct job_watcher *watcher, enum grpc_status status, const char *text)
{
	grpc_call_end(watcher->call, status, text);
	watch_remove(watcher);
}

static bool watch_is_last(const Traind__V1__Job *job)
{
	return job->state == TRAIND__V1__JOB_STATE__JOB_STATE_DONE ||
	    job->state == TRAIND__V1__JOB_STATE__JOB_STATE_FAILED ||
	    job->state == TRAIND__V1__JOB_STATE__JOB_STATE_CANCELLED;
}

/* Sends the state of now. The watcher may be gone afterwards. */
static void watch_send(struct job_watcher *watcher)
{
	struct job_watch *watch = watcher->watch;
	Traind__V1__Job *job = job_lookup(watch->backend, watch->arg, watcher->job, watcher->call);
	if (job == NULL) {
		watch_remove(watcher);
		return;
	}
	tr_status status = api_message_send(watcher->call, &job->base);
	bool last = watch_is_last(job);
	watcher->state = job->state;
	traind__v1__job__free_unpacked(job, NULL);
	watcher->changed = watcher->unchecked = false;
	watcher->sent_ms = uv_now(watch->loop);
	watcher->slow = status == TR_EAGAIN;
	if (status != TR_OK && status != TR_EAGAIN)
		watch_end(watcher, grpc_status_of(status), tr_status_text(status));
	else if (last)
		watch_end(watcher, GRPC_OK, NULL);
}

static bool watch_waits(const struct job_watcher *watcher)
{
	return watcher->changed && !watcher->slow;
}

static uint64_t watch_due_ms(const struct job_watcher *watcher)
{
	return watcher->unchecked ? 0 : watcher->sent_ms + TR_JOB_WATCH_INTERVAL_MS;
}

/* A new state does not wait for the interval: whoever launched a job of 10 ms wants to know. */
static bool watch_has_new_state(struct job_watcher *watcher)
{
	struct job_watch *watch = watcher->watch;
	Traind__V1__Job *job = watch->backend->job(watch->arg, watcher->job, false);
	bool differs = job == NULL || job->state != watcher->state;
	watcher->unchecked = false;
	if (job != NULL)
		traind__v1__job__free_unpacked(job, NULL);
	return differs;
}

static void watch_arm(struct job_watch *watch)
{
	uint64_t due_ms = UINT64_MAX, now_ms = uv_now(watch->loop);
	for (struct job_watcher *watcher = watch->watchers; watcher != NULL; watcher = watcher->next)
		if (watch_waits(watcher) && watch_due_ms(watcher) < due_ms)
			due_ms = watch_due_ms(watcher);
	if (due_ms != UINT64_MAX)
		ticker_arm(&watch->ticker, due_ms > now_ms ? due_ms - now_ms : 0);
}

static void watch_tick(void *arg)
{
	struct job_watch *watch = arg;
	uint64_t now_ms = uv_now(watch->loop);
	for (struct job_watcher *watcher = watch->watchers, *next; watcher != NULL; watcher = next) {
		next = watcher->next;
		if (!watch_waits(watcher))
			continue;
		if ((watcher->unchecked && watch_has_new_state(watcher)) ||
		    watch_due_ms(watcher) <= now_ms)
			watch_send(watcher);
	}
	watch_arm(watch);
}

static void watch_writable(void *arg)
{
	struct job_watcher *watcher = arg;
	watcher->slow = false;
	watch_arm(watcher->watch);
}

static void watch_cancelled(void *arg)
{
	watch_remove(arg);
}

void job_watch_add(struct job_watch *watch, struct grpc_call *call, uint64_t job)
{
	struct job_watcher *watcher = calloc(1, sizeof(*watcher));
	if (watcher == NULL ||
	    ticker_open(&watch->ticker, watch->loop, watch_tick, watch) != TR_OK) {
		free(watcher);
		grpc_call_end(call, GRPC_RESOURCE_EXHAUSTED, "out of memory");
		return;
	}
	watcher->watch = watch;
	watcher->call = call;
	watcher->job = job;
	watcher->next = watch->watchers;
	watch->watchers = watcher;
	grpc_call_on_cancel(call, watch_cancelled, watcher);
	grpc_call_on_writable(call, watch_writable, watcher);
	watch_send(watcher);
}

/* From a later turn: the backend may be in the middle of the change. */
void job_watch_changed(struct job_watch *watch, uint64_t job)
{
	bool any = false;
	for (struct job_watcher *watcher = watch->watchers; watcher != NULL;
	     watcher = watcher->next) {
		if (watcher->job == job) {
			watcher->changed = watcher->unchecked = true;
			any = true;
		}
	}
	if (any)
		watch_arm(watch);
}
