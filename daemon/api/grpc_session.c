#include "daemon/api/grpc_session.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/limits.h"
#include "daemon/api/http2_callbacks.h"

void grpc_session_set_reason(struct grpc_session *session, const char *format, ...)
{
	if (session->reason[0] != '\0')
		return;
	va_list args;
	va_start(args, format);
	(void)vsnprintf(session->reason, sizeof(session->reason), format, args);
	va_end(args);
	/* nghttp2 quotes the peer in its messages. */
	for (char *c = session->reason; *c != '\0'; c++)
		if (*c < 0x20 || *c > 0x7e)
			*c = '?';
}

tr_status grpc_session_init(struct grpc_session *session, const struct grpc_role *role,
    bool is_server, uint64_t now_ms)
{
	session->role = role;
	session->is_server = is_server;
	session->now_ms = session->heard_ms = now_ms;
	token_bucket_init(&session->control, TR_GRPC_CONTROL_BURST, TR_GRPC_CONTROL_RATE, now_ms);
	return http2_callbacks_attach(session);
}

void grpc_session_destroy(struct grpc_session *session)
{
	if (session == NULL)
		return;
	assert(session->streams == NULL);
	nghttp2_session_del(session->http2);
	session->role->destroy(session);
}

void grpc_session_wake(struct grpc_session *session)
{
	if (!session->busy && session->wake != NULL)
		session->wake(session->wake_arg);
}

void grpc_session_touch(struct grpc_stream *stream)
{
	struct grpc_session *session = stream->session;
	if (stream->touched)
		return;
	stream->touched = true;
	stream->touched_next = NULL;
	if (session->touched_last == NULL)
		session->touched_first = stream;
	else
		session->touched_last->touched_next = stream;
	session->touched_last = stream;
	grpc_session_wake(session);
}

static struct grpc_stream *session_next_touched(struct grpc_session *session)
{
	struct grpc_stream *stream = session->touched_first;
	if (stream == NULL)
		return NULL;
	session->touched_first = stream->touched_next;
	if (session->touched_first == NULL)
		session->touched_last = NULL;
	stream->touched = false;
	return stream;
}

static void session_untouch(struct grpc_stream *stream)
{
	struct grpc_session *session = stream->session;
	struct grpc_stream *previous = NULL;
	struct grpc_stream **at = &session->touched_first;
	if (!stream->touched)
		return;
	while (*at != stream) {
		previous = *at;
		at = &previous->touched_next;
	}
	*at = stream->touched_next;
	if (session->touched_last == stream)
		session->touched_last = previous;
	stream->touched = false;
}

static void session_dispatch(struct grpc_session *session)
{
	struct grpc_stream *stream;
	while ((stream = session_next_touched(session)) != NULL)
		session->role->step(stream);
}

void grpc_session_add(struct grpc_session *session, struct grpc_stream *stream, int32_t id)
{
	stream->session = session;
	stream->id = id;
	stream->in_list = true;
	stream->previous = NULL;
	stream->next = session->streams;
	if (stream->next != NULL)
		stream->next->previous = stream;
	session->streams = stream;
	session->stream_count++;
}

void grpc_session_remove(struct grpc_stream *stream)
{
	struct grpc_session *session = stream->session;
	if (!stream->in_list)
		return;
	/* Of a connection that is lost nghttp2 has it still. */
	(void)nghttp2_session_set_stream_user_data(session->http2, stream->id, NULL);
	session_untouch(stream);
	if (stream->previous == NULL)
		session->streams = stream->next;
	else
		stream->previous->next = stream->next;
	if (stream->next != NULL)
		stream->next->previous = stream->previous;
	session->stream_count--;
	stream->in_list = false;
	grpc_stream_release(stream, grpc_inbox_clear(&stream->in));
	grpc_stream_drop_unsent(stream);
}

tr_status grpc_session_receive(struct grpc_session *session, uint64_t now_ms, const uint8_t *data,
    size_t length, struct tr_error *error)
{
	if (session->lost)
		return tr_error_set(error, TR_EPROTO, "%s", session->reason);
	session->now_ms = session->heard_ms = now_ms;
	session->pinged = false;
	session->busy = true;
	ssize_t used = nghttp2_session_mem_recv(session->http2, data, length);
	if (used < 0)
		grpc_session_set_reason(session, "%s", nghttp2_strerror((int)used));
	session_dispatch(session);
	session->busy = false;
	if (used < 0)
		return tr_error_set(error, TR_EPROTO, "%s", session->reason);
	if (nghttp2_session_get_outbound_queue_size(session->http2) > TR_GRPC_FRAMES_UNSENT_MAX)
		return tr_error_set(error, TR_ELIMIT, "more than %d frames wait and are not read",
		    TR_GRPC_FRAMES_UNSENT_MAX);
	return TR_OK;
}

ssize_t grpc_session_send(struct grpc_session *session, uint64_t now_ms, uint8_t *out,
    size_t capacity)
{
	size_t used = 0;
	ssize_t piece = 0;
	if (session->lost)
		return -1;
	session->now_ms = now_ms;
	session->busy = true;
	session_dispatch(session);
	while (capacity - used >= HTTP2_PIECE_MAX) {
		const uint8_t *data;
		piece = nghttp2_session_mem_send(session->http2, &data);
		if (piece <= 0)
			break;
		assert((size_t)piece <= capacity - used);
		memcpy(out + used, data, (size_t)piece);
		used += (size_t)piece;
	}
	if (used > 0)
		session->role->sent(session);
	session_dispatch(session);
	session->busy = false;
	if (piece < 0) {
		grpc_session_set_reason(session, "%s", nghttp2_strerror((int)piece));
		return used > 0 ? (ssize_t)used : -1;
	}
	return (ssize_t)used;
}

static bool session_pings(const struct grpc_session *session)
{
	return session->stream_count > 0 && !session->lost;
}

void grpc_session_tick(struct grpc_session *session, uint64_t now_ms)
{
	session->now_ms = now_ms;
	session->busy = true;
	session->role->tick(session);
	session_dispatch(session);
	session->busy = false;
	if (!session_pings(session))
		return;
	if (!session->pinged && now_ms - session->heard_ms >= TR_GRPC_KEEPALIVE_MS) {
		session->pinged = true;
		session->pinged_ms = now_ms;
		(void)nghttp2_submit_ping(session->http2, NGHTTP2_FLAG_NONE, NULL);
		grpc_session_wake(session);
	}
	if (session->pinged && now_ms - session->pinged_ms >= TR_GRPC_KEEPALIVE_GRACE_MS)
		grpc_session_lose(session, "no answer to a ping");
}

uint64_t grpc_session_deadline_ms(const struct grpc_session *session)
{
	uint64_t at = session->role->deadline_ms(session);
	if (session_pings(session)) {
		uint64_t ping = session->pinged ? session->pinged_ms + TR_GRPC_KEEPALIVE_GRACE_MS
		                                : session->heard_ms + TR_GRPC_KEEPALIVE_MS;
		at = ping < at ? ping : at;
	}
	return at;
}

bool grpc_session_finished(const struct grpc_session *session)
{
	return session->lost ||
	    (!nghttp2_session_want_read(session->http2) &&
	        !nghttp2_session_want_write(session->http2));
}

void grpc_session_lose(struct grpc_session *session, const char *reason)
{
	if (session->lost)
		return;
	grpc_session_set_reason(session, "%s", reason);
	session->lost = true;
	session->role->lost(session);
	grpc_session_wake(session);
}
