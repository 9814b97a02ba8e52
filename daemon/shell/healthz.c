#include "daemon/shell/healthz.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/limits.h"

#define LINE_MAX_BYTES 1024

struct healthz {
	uv_poll_t poll;
	uv_timer_t timer;
	struct stream stream;
	char line[LINE_MAX_BYTES + 1];
	size_t bytes;
	unsigned open;
	bool serving, answered;
	const char *reason;
	struct healthz *next;
};

/* Of this loop; a daemon has one. */
static struct healthz *requests;
static unsigned open_now;

static void closed(uv_handle_t *handle)
{
	struct healthz *request = handle->data;
	if (--request->open > 0)
		return;
	struct healthz **at = &requests;
	while (*at != request)
		at = &(*at)->next;
	*at = request->next;
	open_now--;
	stream_close(&request->stream);
	free(request);
}

static void finish(struct healthz *request)
{
	if (uv_is_closing((uv_handle_t *)&request->poll))
		return;
	uv_close((uv_handle_t *)&request->poll, closed);
	uv_close((uv_handle_t *)&request->timer, closed);
}

static void send_answer(struct healthz *request, const char *status, const char *body)
{
	char answer[512];
	int length = snprintf(answer, sizeof(answer),
	    "HTTP/1.1 %s\r\nContent-Type: text/plain\r\nContent-Length: %zu\r\nConnection: "
	    "close\r\n\r\n%s%s",
	    status, strlen(body) + 1, strncmp(request->line, "HEAD ", 5) == 0 ? "" : body,
	    strncmp(request->line, "HEAD ", 5) == 0 ? "" : "\n");
	/* A fresh connection takes so few bytes whole; if not, the client sees a closed connection. */
	if (length > 0 && (size_t)length < sizeof(answer))
		(void)stream_write(&request->stream, answer, (size_t)length);
	stream_end(&request->stream);
}

/* The line is "GET /healthz HTTP/1.1". */
static void answer(struct healthz *request)
{
	char target[LINE_MAX_BYTES + 1], version[LINE_MAX_BYTES + 1];
	if (sscanf(request->line, "%*s %1024s %1024s", target, version) != 2 ||
	    strncmp(version, "HTTP/", 5) != 0)
		send_answer(request, "400 Bad Request", "not an HTTP request");
	else if (strcmp(target, "/healthz") != 0)
		send_answer(request, "404 Not Found",
		    "this port speaks gRPC; plain HTTP has /healthz only");
	else if (request->serving)
		send_answer(request, "200 OK", "ok");
	else
		send_answer(request, "503 Service Unavailable", request->reason);
}

/* After the answer the rest of the request is read until the client closes: unread bytes at our close would make the
 * kernel reset the connection under the answer. */
static void discard(uv_poll_t *poll, int status, int events)
{
	(void)events;
	struct healthz *request = poll->data;
	char bytes[4096];
	ssize_t got = stream_read(&request->stream, bytes, sizeof(bytes));
	if (status < 0 || got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR))
		finish(request);
}

static bool have_line(struct healthz *request)
{
	char *end = memchr(request->line, '\n', request->bytes);
	if (end == NULL && request->bytes < LINE_MAX_BYTES)
		return false;
	if (end != NULL)
		*end = '\0';
	return true;
}

static void go_on(struct healthz *request)
{
	if (!have_line(request))
		return;
	answer(request);
	request->answered = true;
	(void)uv_poll_start(&request->poll, UV_READABLE, discard);
}

static void readable(uv_poll_t *poll, int status, int events)
{
	(void)events;
	struct healthz *request = poll->data;
	ssize_t got = stream_read(&request->stream, request->line + request->bytes,
	    LINE_MAX_BYTES - request->bytes);
	if (got > 0) {
		request->bytes += (size_t)got;
		go_on(request);
	} else if (status < 0 || got == 0 || (errno != EAGAIN && errno != EINTR)) {
		finish(request);
	}
}

static void overdue(uv_timer_t *timer)
{
	finish(timer->data);
}

void healthz_answer(uv_loop_t *loop, struct stream stream, const void *early, size_t early_bytes,
    bool serving, const char *reason)
{
	struct healthz *request = open_now < TR_HEALTHZ_MAX ? calloc(1, sizeof(*request)) : NULL;
	if (request == NULL || uv_poll_init(loop, &request->poll, stream.fd) != 0) {
		free(request);
		stream_close(&stream);
		return;
	}
	open_now++;
	(void)uv_timer_init(loop, &request->timer);
	request->poll.data = request->timer.data = request;
	request->open = 2;
	request->stream = stream;
	request->serving = serving;
	request->reason = reason;
	request->bytes = early_bytes < LINE_MAX_BYTES ? early_bytes : LINE_MAX_BYTES;
	memcpy(request->line, early, request->bytes);
	request->next = requests;
	requests = request;
	(void)uv_timer_start(&request->timer, overdue, TR_CONN_GREETING_TIMEOUT_MS, 0);
	(void)uv_poll_start(&request->poll, UV_READABLE, readable);
	go_on(request);
	if (!request->answered && stream_pending(&request->stream))
		readable(&request->poll, 0, UV_READABLE);
}

void healthz_finish(void)
{
	for (struct healthz *request = requests; request != NULL; request = request->next)
		finish(request);
}
