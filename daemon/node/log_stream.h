/* One reader of one worker's log, on the log thread. */
#ifndef TR_DAEMON_NODE_LOG_STREAM_H
#define TR_DAEMON_NODE_LOG_STREAM_H

#include "daemon/node/capture.h"
#include "daemon/node/logs.h"

#define LOG_STREAM_PIECE_BYTES (32u << 10)

struct log_stream {
	struct logs_request request; /* .credit_bytes is what is left of it */
	uint64_t position, stop;     /* stop: where it ends if it does not follow */
	struct capture *capture;     /* live: its log is read; NULL: `old` is */
	struct logfile old;
	struct log_stream *next;
};

/* Finds the log: of the live capture, or the file that was left in `folder`. */
tr_status log_stream_start(struct log_stream *stream, const struct logs_request *request,
    struct capture *capture, const char *folder, struct tr_error *error);

/* The next piece as far as credit and data go, which ends at ->position; *bytes 0 and *ended: all was read. */
tr_status log_stream_next(struct log_stream *stream, char piece[LOG_STREAM_PIECE_BYTES],
    size_t *bytes, bool *ended, struct tr_error *error);

/* The capture is about to go: the rest is read from its file. */
void log_stream_detach(struct log_stream *stream);
void log_stream_finish(struct log_stream *stream);

#endif
