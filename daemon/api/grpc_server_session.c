#include "daemon/api/grpc_server_session.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "common/limits.h"
#include "daemon/api/grpc_call.h"

static struct grpc_server_session *server_of(struct grpc_session *session)
{
	return (struct grpc_server_session *)session;
}

static struct grpc_call *call_of(struct grpc_stream *stream)
{
	return (struct grpc_call *)stream;
}

static struct grpc_stream *server_opened(struct grpc_session *session, int32_t id)
{
	struct grpc_server_session *server = server_of(session);
	struct grpc_call *call = server->closing ? NULL : calloc(1, sizeof(*call));
	if (call == NULL)
		return NULL;
	call->deadline_ms = GRPC_NO_DEADLINE;
	grpc_session_add(session, &call->stream, id);
	return &call->stream;
}

static void server_header(struct grpc_stream *stream, const uint8_t *name, size_t name_length,
    const uint8_t *value, size_t value_length)
{
	struct grpc_call *call = call_of(stream);
	if (!call->judged)
		grpc_request_head_add(&call->head, (const char *)name, name_length,
		    (const char *)value, value_length);
}

static bool server_trailers(struct grpc_stream *stream)
{
	grpc_call_submit_trailers(call_of(stream));
	return true;
}

static void server_goaway(struct grpc_session *session)
{
	(void)session; /* the client opens no more; what is open goes on */
}

static void server_settings(struct grpc_session *session)
{
	(void)session;
}

/* Calls that wait for memory look again. */
static void server_wake_waiting(struct grpc_session *session)
{
	struct grpc_server_session *server = server_of(session);
	if (server->waiting == 0)
		return;
	for (struct grpc_stream *stream = session->streams; stream != NULL; stream = stream->next)
		if (call_of(stream)->waits)
			grpc_session_touch(stream);
}

static void server_sent(struct grpc_session *session)
{
	if (session->unsent <= TR_GRPC_UNSENT_BYTES_MAX)
		server_wake_waiting(session);
}

static void server_set_waits(struct grpc_call *call, bool waits)
{
	struct grpc_server_session *server = server_of(call->stream.session);
	if (call->waits != waits)
		server->waiting += waits ? 1 : -1u;
	call->waits = waits;
}

/* Room for the whole of a message is set aside before its window opens, so that messages which began can always end. */
static bool server_reserve(struct grpc_call *call, size_t bytes)
{
	struct grpc_server_session *server = server_of(call->stream.session);
	if (call->reserved > 0)
		return true;
	if (server->reserved + bytes > TR_GRPC_REQUESTS_BYTES_MAX)
		return false;
	server->reserved += bytes;
	call->reserved = bytes;
	return true;
}

static void server_unreserve(struct grpc_call *call)
{
	struct grpc_session *session = call->stream.session;
	if (call->reserved == 0)
		return;
	server_of(session)->reserved -= call->reserved;
	call->reserved = 0;
	server_wake_waiting(session);
}

static void server_dispatch(struct grpc_call *call, const struct grpc_frame *frame)
{
	struct grpc_session *session = call->stream.session;
	struct grpc_server_session *server = server_of(session);
	server_set_waits(call, session->unsent > TR_GRPC_UNSENT_BYTES_MAX);
	if (call->waits)
		return;
	call->dispatched = true;
	server->request(server->arg, call, frame->message, frame->bytes);
	grpc_stream_release(&call->stream, grpc_inbox_clear(&call->stream.in));
	server_unreserve(call);
}

static void server_partial(struct grpc_call *call, const struct grpc_frame *frame)
{
	struct grpc_stream *stream = &call->stream;
	if (stream->peer_done) {
		grpc_call_abort(call, stream->in.length == 0 ? GRPC_UNIMPLEMENTED : GRPC_INTERNAL,
		    stream->in.length == 0 ? "a request message is missing"
		                           : "the request ends within a message");
		return;
	}
	if (stream->in.length < GRPC_FRAME_PREFIX_BYTES)
		return;
	server_set_waits(call, !server_reserve(call, GRPC_FRAME_PREFIX_BYTES + frame->bytes));
	if (!call->waits)
		grpc_stream_release(stream, grpc_inbox_release_head(&stream->in, frame));
}

static void server_receive(struct grpc_call *call)
{
	struct grpc_stream *stream = &call->stream;
	struct grpc_frame frame;
	switch (grpc_inbox_look(&stream->in, TR_GRPC_MESSAGE_MAX, &frame)) {
	case GRPC_FRAME_PARTIAL:
		server_partial(call, &frame);
		return;
	case GRPC_FRAME_WHOLE:
		if (stream->in.length > GRPC_FRAME_PREFIX_BYTES + frame.bytes)
			grpc_call_abort(call, GRPC_UNIMPLEMENTED,
			    "a call takes one request message; this has more");
		else if (stream->peer_done)
			server_dispatch(call, &frame);
		return;
	case GRPC_FRAME_COMPRESSED:
		grpc_call_abort(call, GRPC_INTERNAL,
		    "a compressed message, but grpc-encoding is identity");
		return;
	case GRPC_FRAME_MALFORMED:
		grpc_call_abort(call, GRPC_INTERNAL, "the message has a malformed prefix");
		return;
	case GRPC_FRAME_TOO_LONG:
		grpc_call_abort(call, GRPC_RESOURCE_EXHAUSTED,
		    "the request message is longer than 4 MiB, the limit");
		return;
	}
}

static void server_judge(struct grpc_call *call)
{
	struct grpc_refusal refusal;
	uint64_t now_ms = call->stream.session->now_ms;
	call->judged = true;
	if (!grpc_request_head_judge(&call->head, call->stream.header_bytes, &refusal)) {
		call->http_status = refusal.http_status;
		grpc_call_abort(call, refusal.status, refusal.text);
	} else if (call->head.has_timeout && call->head.timeout_ms < GRPC_NO_DEADLINE - now_ms) {
		call->deadline_ms = now_ms + call->head.timeout_ms;
		if (call->head.timeout_ms == 0)
			grpc_call_abort(call, GRPC_DEADLINE_EXCEEDED, "the deadline has passed");
	}
}

static void server_forget(struct grpc_call *call)
{
	struct grpc_session *session = call->stream.session;
	server_set_waits(call, false);
	server_unreserve(call);
	grpc_session_remove(&call->stream);
	server_sent(session); /* nor is what it had unsent there any more */
	free(call->text);
	free(call);
}

static void server_step(struct grpc_stream *stream)
{
	struct grpc_call *call = call_of(stream);
	if (stream->headers_done && !call->judged && !stream->closed)
		server_judge(call);
	if (call->judged && !call->dispatched && !call->ended && !stream->closed)
		server_receive(call);
	if (call->ended)
		grpc_stream_release(stream, grpc_inbox_clear(&stream->in));
	if (stream->closed && !call->ended) {
		call->ended = true;
		call->abandoned = call->dispatched;
	}
	if (call->abandoned)
		grpc_call_run_cancelled(call);
	if (stream->drained && !call->ended) {
		stream->drained = false;
		if (call->writable != NULL)
			call->writable(call->writable_arg);
	}
	if (stream->closed)
		server_forget(call);
}

static void server_lost(struct grpc_session *session)
{
	for (struct grpc_stream *stream = session->streams, *next; stream != NULL; stream = next) {
		struct grpc_call *call = call_of(stream);
		next = stream->next;
		call->abandoned = call->abandoned || (call->dispatched && !call->ended);
		call->ended = true;
		call->stream.closed = true;
		grpc_call_run_cancelled(call);
		server_forget(call);
	}
}

static void server_tick(struct grpc_session *session)
{
	if (!session->greeted && server_of(session)->greeting_deadline_ms <= session->now_ms) {
		grpc_session_lose(session, "it did not say its HTTP/2 preface and settings in time");
		return;
	}
	for (struct grpc_stream *stream = session->streams; stream != NULL; stream = stream->next) {
		struct grpc_call *call = call_of(stream);
		if (!call->ended && call->deadline_ms <= session->now_ms)
			grpc_call_abort(call, GRPC_DEADLINE_EXCEEDED, "the deadline has passed");
	}
}

static uint64_t server_deadline_ms(const struct grpc_session *session)
{
	uint64_t at = GRPC_NO_DEADLINE;
	if (!session->greeted && !session->lost)
		at = ((const struct grpc_server_session *)session)->greeting_deadline_ms;
	for (struct grpc_stream *stream = session->streams; stream != NULL; stream = stream->next) {
		struct grpc_call *call = call_of(stream);
		if (!call->ended && call->deadline_ms < at)
			at = call->deadline_ms;
	}
	return at;
}

static void server_destroy(struct grpc_session *session)
{
	free(server_of(session));
}

static const struct grpc_role server_role = {
	.opened = server_opened,
	.header = server_header,
	.trailers = server_trailers,
	.goaway = server_goaway,
	.settings = server_settings,
	.sent = server_sent,
	.step = server_step,
	.lost = server_lost,
	.tick = server_tick,
	.deadline_ms = server_deadline_ms,
	.destroy = server_destroy,
};

struct grpc_session *grpc_server_session_create(grpc_method_fn *request, void *arg, uint64_t now_ms)
{
	struct grpc_server_session *server = calloc(1, sizeof(*server));
	if (server == NULL)
		return NULL;
	server->request = request;
	server->arg = arg;
	server->greeting_deadline_ms = now_ms + TR_CONN_GREETING_TIMEOUT_MS;
	if (grpc_session_init(&server->base, &server_role, true, now_ms) != TR_OK) {
		free(server);
		return NULL;
	}
	return &server->base;
}

void grpc_server_session_close(struct grpc_session *session)
{
	struct grpc_server_session *server = server_of(session);
	if (server->closing || session->lost)
		return;
	server->closing = true;
	(void)nghttp2_submit_goaway(session->http2, NGHTTP2_FLAG_NONE,
	    nghttp2_session_get_last_proc_stream_id(session->http2), NGHTTP2_NO_ERROR, NULL, 0);
	for (struct grpc_stream *stream = session->streams; stream != NULL; stream = stream->next)
		grpc_call_abort(call_of(stream), GRPC_UNAVAILABLE,
		    "the server is shutting down; try again");
	grpc_session_wake(session);
}
