#include "daemon/api/grpc_client_session.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/limits.h"
#include "daemon/api/grpc_timeout.h"

struct grpc_client_session {
	struct grpc_session base;
	struct grpc_client_session_callbacks callbacks;
	void *arg;
	char authority[TR_ADDRESS_MAX];
	bool draining;
};

static struct grpc_client_session *client_of(const struct grpc_session *session)
{
	return (struct grpc_client_session *)(uintptr_t)session;
}

static struct grpc_client_call *call_of(struct grpc_stream *stream)
{
	return (struct grpc_client_call *)stream;
}

static struct grpc_stream *client_opened(struct grpc_session *session, int32_t id)
{
	(void)session;
	(void)id;
	return NULL;
}

static void client_header(struct grpc_stream *stream, const uint8_t *name, size_t name_length,
    const uint8_t *value, size_t value_length)
{
	grpc_response_head_add(&call_of(stream)->head, (const char *)name, name_length,
	    (const char *)value, value_length);
}

static bool client_trailers(struct grpc_stream *stream)
{
	(void)stream;
	return false;
}

static void client_goaway(struct grpc_session *session)
{
	client_of(session)->draining = true;
}

static void client_settings(struct grpc_session *session)
{
	struct grpc_client_session *client = client_of(session);
	if (client->callbacks.settings != NULL)
		client->callbacks.settings(client->arg);
}

static void client_sent(struct grpc_session *session)
{
	(void)session;
}

static void client_decide(struct grpc_client_call *call, enum grpc_status status, const char *text)
{
	if (call->decided)
		return;
	call->decided = true;
	call->status = status;
	(void)snprintf(call->text, sizeof(call->text), "%s", text);
}

/* Ends it from our side: nothing more is wanted from the server. */
static void client_stop(struct grpc_client_call *call, enum grpc_status status, const char *text)
{
	client_decide(call, status,
	    text); /* a message may be borrowed now: the inbox stays until `over` */
	grpc_stream_reset(&call->stream, NGHTTP2_CANCEL);
}

void grpc_client_session_end(struct grpc_client_call *call, enum grpc_status status,
    const char *text)
{
	if (call->decided)
		return;
	client_stop(call, status, text);
	grpc_session_touch(&call->stream);
}

/* Hands out one message; false: none is whole, or it may not be handed out. */
static bool client_receive(struct grpc_client_call *call)
{
	struct grpc_stream *stream = &call->stream;
	struct grpc_frame frame;
	switch (grpc_inbox_look(&stream->in, TR_GRPC_MESSAGE_MAX, &frame)) {
	case GRPC_FRAME_PARTIAL:
		if (stream->in.length >= GRPC_FRAME_PREFIX_BYTES)
			grpc_stream_release(stream, grpc_inbox_release_head(&stream->in, &frame));
		return false;
	case GRPC_FRAME_WHOLE:
		if (call->callbacks.message != NULL)
			call->callbacks.message(call->arg, frame.message, frame.bytes);
		if (!call->decided)
			grpc_stream_release(stream, grpc_inbox_take(&stream->in, &frame));
		return !call->decided;
	case GRPC_FRAME_COMPRESSED:
		client_stop(call, GRPC_INTERNAL, "the server sent a compressed message unasked");
		return false;
	case GRPC_FRAME_MALFORMED:
		client_stop(call, GRPC_INTERNAL, "the server sent a malformed message");
		return false;
	case GRPC_FRAME_TOO_LONG:
		client_stop(call, GRPC_RESOURCE_EXHAUSTED,
		    "the server's message is longer than 4 MiB, the limit");
		return false;
	}
	return false;
}

static void client_over(struct grpc_client_call *call)
{
	struct grpc_client_session *client = client_of(call->stream.session);
	grpc_session_remove(&call->stream);
	call->started = false;
	client->callbacks.over(client->arg, call);
}

static void client_step(struct grpc_stream *stream)
{
	struct grpc_client_call *call = call_of(stream);
	while (!call->decided && !call->paused && client_receive(call))
		;
	if (!call->decided && stream->headers_done &&
	    stream->header_bytes > TR_GRPC_HEADERS_BYTES_MAX)
		client_stop(call, GRPC_INTERNAL, "the server's headers are too large");
	if (call->decided) {
		client_over(call);
		return;
	}
	if (!(stream->closed || stream->peer_done) || (call->paused && stream->in.length > 0))
		return;
	/* What is left is no whole message. */
	char text[TR_GRPC_STATUS_TEXT_MAX];
	enum grpc_status status = grpc_response_head_end(&call->head, stream->reset_code, text);
	if (status == GRPC_OK && stream->in.length > 0)
		client_decide(call, GRPC_INTERNAL, "the server's answer ends within a message");
	else
		client_decide(call, status, text);
	if (!stream->closed)
		grpc_stream_reset(stream, NGHTTP2_CANCEL);
	client_over(call);
}

static void client_lost(struct grpc_session *session)
{
	char text[TR_GRPC_STATUS_TEXT_MAX];
	struct grpc_client_session *client = client_of(session);
	(void)snprintf(text, sizeof(text), "the connection to %s broke: %s; try again",
	    client->authority, session->reason);
	while (session->streams != NULL) {
		struct grpc_client_call *call = call_of(session->streams);
		call->lost = !call->decided;
		client_decide(call, GRPC_UNAVAILABLE, text);
		call->stream.closed = true;
		client_over(call);
	}
}

/* The client keeps the calls' deadlines, as calls have them before they are on a session. */
static void client_tick(struct grpc_session *session)
{
	(void)session;
}

static uint64_t client_deadline_ms(const struct grpc_session *session)
{
	(void)session;
	return GRPC_NO_DEADLINE;
}

static void client_destroy(struct grpc_session *session)
{
	free(client_of(session));
}

static const struct grpc_role client_role = {
	.opened = client_opened,
	.header = client_header,
	.trailers = client_trailers,
	.goaway = client_goaway,
	.settings = client_settings,
	.sent = client_sent,
	.step = client_step,
	.lost = client_lost,
	.tick = client_tick,
	.deadline_ms = client_deadline_ms,
	.destroy = client_destroy,
};

struct grpc_session *grpc_client_session_create(const char *authority,
    const struct grpc_client_session_callbacks *callbacks, void *arg, uint64_t now_ms)
{
	struct grpc_client_session *client = calloc(1, sizeof(*client));
	if (client == NULL)
		return NULL;
	client->callbacks = *callbacks;
	client->arg = arg;
	(void)snprintf(client->authority, sizeof(client->authority), "%s", authority);
	if (grpc_session_init(&client->base, &client_role, false, now_ms) != TR_OK) {
		free(client);
		return NULL;
	}
	return &client->base;
}

#define HEADER(n, v)                                                      \
	{                                                                 \
		.name = (uint8_t *)(uintptr_t)(n), .namelen = strlen(n),  \
		.value = (uint8_t *)(uintptr_t)(v), .valuelen = strlen(v) \
	}

tr_status grpc_client_session_start(struct grpc_session *session, struct grpc_client_call *call)
{
	char timeout[GRPC_TIMEOUT_TEXT_MAX] = "";
	bool timed = call->deadline_ms != GRPC_NO_DEADLINE;
	if (timed)
		grpc_timeout_format(call->deadline_ms > session->now_ms
		        ? call->deadline_ms - session->now_ms
		        : 0,
		    timeout);
	nghttp2_nv headers[] = {
		HEADER(":method", "POST"),
		HEADER(":scheme", "http"),
		HEADER(":path", call->path),
		HEADER(":authority", client_of(session)->authority),
		HEADER("te", "trailers"),
		HEADER("content-type", "application/grpc"),
		HEADER("user-agent", "traind/" TR_VERSION),
		HEADER("grpc-accept-encoding", "identity"),
		HEADER("grpc-timeout", timeout),
	};
	size_t count = sizeof(headers) / sizeof(headers[0]) - (timed ? 0 : 1);
	nghttp2_data_provider provider = grpc_stream_provider(&call->stream);
	int32_t id = nghttp2_submit_request(session->http2, NULL, headers, count, &provider,
	    &call->stream);
	if (id < 0)
		return id == NGHTTP2_ERR_NOMEM ? TR_ENOMEM : TR_EUNAVAILABLE;
	call->started = true;
	call->stream.out = call->request;
	call->request = (struct grpc_outbox){ 0 };
	call->stream.finishing = true;
	grpc_session_add(session, &call->stream, id);
	session->unsent += call->stream.out.unsent;
	grpc_session_wake(session);
	return TR_OK;
}

bool grpc_client_session_has_room(const struct grpc_session *session)
{
	/* Unlimited, until the server's SETTINGS have come. */
	uint32_t allowed = nghttp2_session_get_remote_settings(session->http2,
	    NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS);
	allowed = allowed < TR_GRPC_STREAMS_MAX ? allowed : TR_GRPC_STREAMS_MAX;
	return !client_of(session)->draining && !session->lost && session->stream_count < allowed &&
	    nghttp2_session_check_request_allowed(session->http2) != 0;
}

void grpc_client_session_retire(struct grpc_session *session)
{
	client_of(session)->draining = true;
	(void)nghttp2_session_terminate_session(session->http2, NGHTTP2_NO_ERROR);
	grpc_session_wake(session);
}
