/* Output of workers: captured into rotated files and served to readers, on a thread of its own, so that no disk can stall
 * the control loop and its heartbeats. Functions are called on the control loop's thread and return at once; callbacks run
 * there too.
 *
 * A stream is one reader (a LogRequest): pieces come while it has credit, then `end`, once.
 */
#ifndef TR_DAEMON_NODE_LOGS_H
#define TR_DAEMON_NODE_LOGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

#include "common/error.h"

struct logs;

struct logs_callbacks {
	/* bytes > 0: a piece, at `position` of all that the worker wrote. end: the last call for this stream; error "" if all was
	 * read. Borrowed until return. */
	void (*data)(void *arg, uint64_t stream, uint64_t position, const void *data, size_t bytes,
	    bool end, const char *error);
	/* After logs_finish: everything the worker wrote is in its file. */
	void (*drained)(void *arg, uint64_t peer, const char *last_lines);
};

/* Files are folder/job-<id>/rank-<r>.peer-<p>.log[.1 .2]. Folders of the oldest jobs are removed over TR_LOG_JOBS_MAX. */
tr_status logs_create(uv_loop_t *control, const char *folder,
    const struct logs_callbacks *callbacks, void *arg, struct logs **logs, struct tr_error *error);
void logs_destroy(struct logs *logs); /* joins the thread */

/* Takes the read ends of the worker's pipes. */
void logs_capture(struct logs *logs, uint64_t job, uint32_t rank, uint64_t peer, int out_fd,
    int err_fd);
void logs_finish(struct logs *logs, uint64_t peer);

struct logs_request {
	uint64_t stream, job, peer;
	bool follow;         /* until the worker has ended */
	uint64_t tail_bytes; /* 0: from the start */
	uint64_t credit_bytes;
};
void logs_open(struct logs *logs, const struct logs_request *request);
void logs_credit(struct logs *logs, uint64_t stream, uint64_t bytes);
void logs_cancel(struct logs *logs,
    uint64_t stream); /* no callback follows but those on their way; 0: all streams */

#endif
