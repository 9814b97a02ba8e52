#include "daemon/api/grpc_io.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define IO_BUFFER_BYTES (64u << 10)
#define IO_TURN_MAX     16 /* buffers moved each way before others get their turn */

struct grpc_io {
	uv_poll_t poll;
	uv_timer_t timer;
	struct stream stream;
	struct grpc_session *session;
	uint8_t *rest, *early; /* bytes that the socket did not take; bytes read before us */
	size_t rest_start, rest_length, early_length;
	uint64_t timer_at_ms;
	unsigned open_handles;
	bool closing, fault, heard;
	char reason[TR_ERROR_TEXT_MAX];
	grpc_io_closed_fn *closed;
	void *arg;
};

static void io_handle_closed(uv_handle_t *handle)
{
	struct grpc_io *io = handle->data;
	if (--io->open_handles > 0)
		return;
	stream_close(&io->stream);
	io->closed(io->arg, io->reason, io->fault);
	grpc_session_destroy(io->session);
	free(io->rest);
	free(io->early);
	free(io);
}

static void io_end(struct grpc_io *io, bool fault, const char *reason)
{
	if (io->closing)
		return;
	io->closing = true;
	io->fault = fault;
	(void)snprintf(io->reason, sizeof(io->reason), "%s", reason);
	uv_close((uv_handle_t *)&io->poll, io_handle_closed);
	uv_close((uv_handle_t *)&io->timer, io_handle_closed);
	grpc_session_lose(io->session, io->reason);
}

void grpc_io_close(struct grpc_io *io, const char *reason)
{
	io_end(io, false, reason);
}

/* True: all of it left. The rest is kept. */
static bool io_write(struct grpc_io *io, const uint8_t *data, size_t length)
{
	ssize_t sent;
	do
		sent = stream_write(&io->stream, data, length);
	while (sent < 0 && errno == EINTR);
	if (sent < 0 && errno != EAGAIN && errno != EWOULDBLOCK) {
		io_end(io, false, stream_error(&io->stream, errno));
		return false;
	}
	size_t done = sent < 0 ? 0 : (size_t)sent;
	if (done == length)
		return true;
	io->rest = malloc(length - done);
	if (io->rest == NULL) {
		io_end(io, false, "out of memory");
		return false;
	}
	memcpy(io->rest, data + done, length - done);
	io->rest_start = 0;
	io->rest_length = length - done;
	return false;
}

static bool io_write_rest(struct grpc_io *io)
{
	if (stream_flush(&io->stream) < 0) {
		if (errno != EAGAIN && errno != EWOULDBLOCK)
			io_end(io, false, stream_error(&io->stream, errno));
		return false;
	}
	if (io->rest == NULL)
		return true;
	uint8_t *rest = io->rest;
	io->rest = NULL;
	bool done = io_write(io, rest + io->rest_start, io->rest_length);
	free(rest);
	return done;
}

/* True: nothing is left to write now. */
static bool io_flush(struct grpc_io *io)
{
	uint8_t buffer[IO_BUFFER_BYTES];
	if (!io_write_rest(io))
		return false;
	for (unsigned i = 0; i < IO_TURN_MAX && !io->closing; i++) {
		ssize_t length = grpc_session_send(io->session, uv_now(io->timer.loop), buffer,
		    sizeof(buffer));
		if (length < 0)
			io_end(io, true, io->session->reason);
		if (length <= 0)
			return stream_unsent(&io->stream) == 0;
		if (!io_write(io, buffer, (size_t)length))
			return false;
	}
	return false;
}

static void io_receive(struct grpc_io *io, const uint8_t *data, size_t length)
{
	struct tr_error error;
	if (!io->heard && io->stream.tls == NULL && tls_is_refusal(data, length)) {
		io_end(io, true, TLS_REFUSED_TEXT);
		return;
	}
	io->heard = true;
	if (grpc_session_receive(io->session, uv_now(io->timer.loop), data, length, &error) == TR_OK)
		return;
	(void)io_flush(io); /* GOAWAY says why, if it fits */
	io_end(io, true, error.text);
}

static void io_read(struct grpc_io *io)
{
	uint8_t buffer[IO_BUFFER_BYTES];
	for (unsigned i = 0; i < IO_TURN_MAX && !io->closing; i++) {
		ssize_t length = stream_read(&io->stream, buffer, sizeof(buffer));
		if (length > 0) {
			io_receive(io, buffer, (size_t)length);
			if ((size_t)length < sizeof(buffer))
				return;
		} else if (length == 0) {
			(void)io_flush(
			    io); /* a client that only closed its sending side gets what is ready */
			io_end(io, false, "closed by the peer");
		} else if (errno != EINTR) {
			if (errno != EAGAIN && errno != EWOULDBLOCK)
				io_end(io, false, stream_error(&io->stream, errno));
			return;
		}
	}
}

static void io_on_timer(uv_timer_t *timer);
static void io_on_poll(uv_poll_t *poll, int status, int events);

static void io_set_timer(struct grpc_io *io)
{
	uint64_t at = grpc_session_deadline_ms(io->session), now = uv_now(io->timer.loop);
	if (at == io->timer_at_ms)
		return;
	io->timer_at_ms = at;
	if (at == GRPC_NO_DEADLINE)
		(void)uv_timer_stop(&io->timer);
	else
		(void)uv_timer_start(&io->timer, io_on_timer, at > now ? at - now : 0, 0);
}

/* Writes what there is and sets what to wait for. Who answers no ping may read nothing either: what is left for it is not waited for. */
static void io_settle(struct grpc_io *io)
{
	if (io->session->lost)
		io_end(io, true, io->session->reason);
	if (io->closing)
		return;
	bool done = io_flush(io);
	if (io->closing)
		return;
	if (done && grpc_session_finished(io->session)) {
		bool fault = io->session->reason[0] != '\0';
		io_end(io, fault, fault ? io->session->reason : "finished");
		return;
	}
	bool again = !done || stream_pending(&io->stream);
	(void)uv_poll_start(&io->poll, UV_READABLE | (again ? UV_WRITABLE : 0), io_on_poll);
	io_set_timer(io);
}

static void io_on_poll(uv_poll_t *poll, int status, int events)
{
	struct grpc_io *io = poll->data;
	if (!io->closing && io->early != NULL) {
		uint8_t *early = io->early;
		io->early = NULL;
		io_receive(io, early, io->early_length);
		free(early);
	}
	if (!io->closing && (status < 0 || (events & UV_READABLE) || stream_pending(&io->stream)))
		io_read(io);
	if (!io->closing &&
	    status < 0) /* libuv says EBADF for any error; recv would have said which */
		io_end(io, false, uv_strerror(status));
	io_settle(io);
}

static void io_on_timer(uv_timer_t *timer)
{
	struct grpc_io *io = timer->data;
	io->timer_at_ms = GRPC_NO_DEADLINE;
	grpc_session_tick(io->session, uv_now(timer->loop));
	io_settle(io);
}

static void io_wake(void *arg)
{
	struct grpc_io *io = arg;
	if (!io->closing)
		(void)uv_poll_start(&io->poll, UV_READABLE | UV_WRITABLE, io_on_poll);
}

tr_status grpc_io_create(uv_loop_t *loop, struct stream stream, struct grpc_session *session,
    const void *early, size_t early_bytes, grpc_io_closed_fn *closed, void *arg,
    struct grpc_io **out)
{
	struct grpc_io *io = calloc(1, sizeof(*io));
	if (io == NULL)
		return TR_ENOMEM;
	io->early = early_bytes == 0 ? NULL : malloc(early_bytes);
	if (early_bytes > 0 && io->early == NULL)
		goto free_io;
	if (uv_poll_init(loop, &io->poll, stream.fd) != 0)
		goto free_early;
	if (early_bytes > 0)
		memcpy(io->early, early, early_bytes);
	io->early_length = early_bytes;
	io->stream = stream;
	io->session = session;
	io->closed = closed;
	io->arg = arg;
	io->timer_at_ms = GRPC_NO_DEADLINE;
	io->open_handles = 2;
	(void)uv_timer_init(loop, &io->timer);
	io->poll.data = io->timer.data = io;
	session->wake = io_wake;
	session->wake_arg = io;
	io_wake(io); /* the SETTINGS, and the early bytes */
	*out = io;
	return TR_OK;

free_early:
	free(io->early);
free_io:
	free(io);
	return TR_EIO;
}
