#include "daemon/node/capture.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "common/log.h"

#define READS_PER_TURN 8

/* Once, until it works again. */
static void tell_stuck(struct capture *capture)
{
	int cause = capture->log.stuck;
	if (cause != 0 && !capture->stuck)
		log_warn("logs",
		    "job %llu: the log of peer %llu cannot be rotated: cannot rename %s: %s; it "
		    "goes on in that file, beyond %llu bytes",
		    (unsigned long long)capture->job, (unsigned long long)capture->peer,
		    capture->log.path, strerror(cause), (unsigned long long)capture->log.bytes_max);
	capture->stuck = cause != 0;
}

static void write_log(struct capture *capture, const void *data, size_t bytes)
{
	struct tr_error error;
	if (bytes == 0)
		return;
	if (logfile_write(&capture->log, data, bytes, &error) == TR_OK) {
		if (capture->write_failed)
			log_warn("logs",
			    "job %llu: the log of peer %llu goes on, %llu bytes are missing",
			    (unsigned long long)capture->job, (unsigned long long)capture->peer,
			    (unsigned long long)capture->lost_bytes);
		capture->write_failed = false;
		capture->lost_bytes = 0;
		tell_stuck(capture);
		return;
	}
	if (!capture->write_failed)
		log_warn("logs", "job %llu: output of peer %llu is lost: %s",
		    (unsigned long long)capture->job, (unsigned long long)capture->peer,
		    error.text);
	capture->write_failed = true;
	capture->lost_bytes += bytes;
}

static bool line_end(char c)
{
	return c == '\n' || c == '\r'; /* \r: a progress bar begins anew */
}

static void put_tail(struct capture_pipe *pipe, const char *data, size_t bytes)
{
	for (size_t i = 0; i < bytes; i++) {
		if (line_end(data[i]))
			pipe->tail_line = 0;
		else if (++pipe->tail_line > CAPTURE_TAIL_LINE)
			continue;
		pipe->tail[pipe->tail_bytes++ % CAPTURE_TAIL_MAX] = data[i];
	}
}

static void flush_line(struct capture_pipe *pipe)
{
	write_log(pipe->capture, pipe->line, pipe->line_bytes);
	pipe->line_bytes = 0;
}

/* Whole lines go to the log at once; the rest waits for its end, so that the other stream does not cut it in two. */
static void take(struct capture_pipe *pipe, const char *data, size_t bytes)
{
	put_tail(pipe, data, bytes);
	const char *last = memrchr(data, '\n', bytes);
	size_t whole = last == NULL ? 0 : (size_t)(last + 1 - data);
	if (whole > 0) {
		flush_line(pipe);
		write_log(pipe->capture, data, whole);
	}
	size_t rest = bytes - whole;
	if (pipe->line_bytes + rest > sizeof(pipe->line))
		flush_line(pipe);
	if (rest > sizeof(pipe->line)) {
		write_log(pipe->capture, data + whole, rest);
		return;
	}
	memcpy(pipe->line + pipe->line_bytes, data + whole, rest);
	pipe->line_bytes += rest;
}

/* False: the pipe has ended. */
static bool read_some(struct capture_pipe *pipe, int reads)
{
	static _Thread_local char data[65536];
	while (reads-- > 0) {
		ssize_t got = read(pipe->fd, data, sizeof(data));
		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			return errno == EAGAIN;
		if (got == 0)
			return false;
		take(pipe, data, (size_t)got);
	}
	return true;
}

static void closed(uv_handle_t *handle)
{
	struct capture *capture = handle->data;
	if (--capture->handles_open > 0)
		return;
	logfile_close(&capture->log);
	capture->drained(capture);
}

/* The watch ends before the descriptor: its number may be another pipe's at once. */
static void end_pipe(struct capture_pipe *pipe)
{
	flush_line(pipe);
	uv_close((uv_handle_t *)&pipe->poll, closed);
	(void)close(pipe->fd);
	pipe->fd = -1;
}

static void partial_due(uv_timer_t *timer)
{
	struct capture *capture = timer->data;
	flush_line(&capture->pipes[0]);
	flush_line(&capture->pipes[1]);
	capture->grown(capture);
}

static void readable(uv_poll_t *poll, int status, int events)
{
	(void)status;
	(void)events;
	struct capture *capture = poll->data;
	struct capture_pipe *pipe = poll == &capture->pipes[0].poll ? &capture->pipes[0]
	                                                            : &capture->pipes[1];
	if (pipe->fd < 0)
		return;
	if (!read_some(pipe, READS_PER_TURN))
		end_pipe(pipe);
	bool partial = capture->pipes[0].line_bytes + capture->pipes[1].line_bytes > 0;
	if (partial && !uv_is_active((uv_handle_t *)&capture->partial))
		(void)uv_timer_start(&capture->partial, partial_due, CAPTURE_PARTIAL_MS, 0);
	capture->grown(capture);
}

static int open_pipe(uv_loop_t *loop, struct capture *capture, struct capture_pipe *pipe, int fd)
{
	pipe->fd = -1;
	pipe->capture = capture;
	(void)fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
	int rc = uv_poll_init(loop, &pipe->poll, fd);
	if (rc != 0) {
		(void)close(fd);
		return rc;
	}
	pipe->fd = fd;
	pipe->poll.data = capture;
	capture->handles_open++;
	rc = uv_poll_start(&pipe->poll, UV_READABLE, readable);
	if (rc != 0)
		end_pipe(pipe);
	return rc;
}

tr_status capture_start(uv_loop_t *loop, struct capture *capture, struct logfile *log, int out_fd,
    int err_fd, struct tr_error *error)
{
	capture->log = *log;
	(void)uv_timer_init(loop, &capture->partial);
	capture->partial.data = capture;
	capture->handles_open = 1;
	int rc = open_pipe(loop, capture, &capture->pipes[0], out_fd);
	int rc_err = open_pipe(loop, capture, &capture->pipes[1], err_fd);
	if (rc == 0)
		rc = rc_err;
	return rc == 0 ? TR_OK
	               : tr_error_set(error, TR_EIO, "cannot watch a pipe: %s", uv_strerror(rc));
}

void capture_finish(struct capture *capture)
{
	if (capture->finishing)
		return;
	capture->finishing = true;
	for (int i = 0; i < 2; i++) {
		struct capture_pipe *pipe = &capture->pipes[i];
		/* A pipe holds 64 KiB, or at most 1 MiB if somebody enlarged it; nobody fills it any more. */
		if (pipe->fd >= 0) {
			(void)read_some(pipe, 64);
			end_pipe(pipe);
		}
	}
	uv_close((uv_handle_t *)&capture->partial, closed);
	capture->grown(capture);
}

static bool blank(const struct capture_pipe *pipe)
{
	return pipe->tail_bytes == 0;
}

void capture_last_lines(const struct capture *capture, char text[CAPTURE_TAIL_MAX + 1])
{
	const struct capture_pipe *pipe = blank(&capture->pipes[1]) ? &capture->pipes[0]
	                                                            : &capture->pipes[1];
	size_t kept = pipe->tail_bytes < CAPTURE_TAIL_MAX ? (size_t)pipe->tail_bytes
	                                                  : CAPTURE_TAIL_MAX;
	for (size_t i = 0; i < kept; i++) {
		char c = pipe->tail[(pipe->tail_bytes - kept + i) % CAPTURE_TAIL_MAX];
		text[i] = c == '\0' ? ' ' : c;
	}
	text[kept] = '\0';
	const char *line = pipe->tail_bytes > CAPTURE_TAIL_MAX ? strpbrk(text, "\r\n") : NULL;
	if (line != NULL && line[1] != '\0')
		memmove(text, line + 1, strlen(line + 1) + 1);
	for (size_t length = strlen(text); length > 0 && line_end(text[length - 1]); length--)
		text[length - 1] = '\0';
}
