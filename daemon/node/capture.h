/* The output of one worker: two pipes into one log file, line by line. Lines of one stream are in order; between stdout
 * and stderr the order is that of arrival. On the log thread (logs.h).
 */
#ifndef TR_DAEMON_NODE_CAPTURE_H
#define TR_DAEMON_NODE_CAPTURE_H

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "daemon/node/logfile.h"

#define CAPTURE_LINE_MAX   4096 /* a longer line is written in pieces */
#define CAPTURE_TAIL_MAX   2048 /* of the last lines that are reported with an exit */
#define CAPTURE_TAIL_LINE  512  /* of each of them: its start */
#define CAPTURE_PARTIAL_MS 100  /* after which a line without an end is written all the same */

struct capture;

struct capture_pipe {
	uv_poll_t poll;
	int fd; /* -1: closed */
	char line[CAPTURE_LINE_MAX];
	size_t line_bytes;
	char tail[CAPTURE_TAIL_MAX]; /* a ring */
	uint64_t tail_bytes;         /* ever put */
	size_t tail_line;            /* of the line that the tail ends in */
	struct capture *capture;
};

struct capture {
	uint64_t job, peer;
	struct logfile log;
	struct capture_pipe pipes[2]; /* stdout, stderr */
	uv_timer_t partial;           /* writes unfinished lines */
	unsigned handles_open;
	bool finishing, write_failed;
	bool stuck;                             /* the log cannot be rotated; that was said */
	uint64_t lost_bytes;                    /* since it failed */
	void (*grown)(struct capture *capture); /* there is more to read in the log */
	void (*drained)(struct capture
	        *capture); /* once, after capture_finish: the pipes are empty and closed; free it */
	void *owner;
	struct capture *next;
};

/* Takes both descriptors (also on an error). `log` is moved into the capture. */
tr_status capture_start(uv_loop_t *loop, struct capture *capture, struct logfile *log, int out_fd,
    int err_fd, struct tr_error *error);
/* The worker is gone: reads what is left without waiting for more, then `drained` from a later turn. */
void capture_finish(struct capture *capture);
/* The last lines of stderr (of stdout if it said nothing there), each from its start, at most CAPTURE_TAIL_LINE bytes of it and
 * CAPTURE_TAIL_MAX of all. */
void capture_last_lines(const struct capture *capture, char text[CAPTURE_TAIL_MAX + 1]);

#endif
