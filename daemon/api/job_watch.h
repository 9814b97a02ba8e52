/* WatchJob: to each watcher the newest state of its job, at most every TR_JOB_WATCH_INTERVAL_MS and no faster than it reads; the
 * stream ends after the state in which the job ended.
 */
#ifndef TR_DAEMON_API_JOB_WATCH_H
#define TR_DAEMON_API_JOB_WATCH_H

#include "daemon/api/ticker.h"
#include "daemon/api/trainer_service.h"

struct job_watcher;

/* Embedded in the service. */
struct job_watch {
	uv_loop_t *loop;
	const struct trainer_backend *backend;
	void *arg; /* the backend's */
	struct job_watcher *watchers;
	struct ticker ticker;
};

void job_watch_init(struct job_watch *watch, uv_loop_t *loop, const struct trainer_backend *backend,
    void *arg);
void job_watch_add(struct job_watch *watch, struct grpc_call *call, uint64_t job);
void job_watch_changed(struct job_watch *watch, uint64_t job);
/* All calls must be over. */
void job_watch_finish(struct job_watch *watch);

#endif
