#include "daemon/api/http2_callbacks.h"

#include "common/limits.h"

static struct grpc_stream *callbacks_stream(nghttp2_session *http2, int32_t id)
{
	return id == 0 ? NULL : nghttp2_session_get_stream_user_data(http2, id);
}

/* Frames that cost us work and bring no call forward: a peer that sends masses of them is dropped (CVE-2019-9512, -9514, -9515,
 * -9518; CVE-2023-44487). */
static bool callbacks_is_idle_work(const nghttp2_frame_hd *hd)
{
	switch (hd->type) {
	case NGHTTP2_HEADERS:
	case NGHTTP2_CONTINUATION:
	case NGHTTP2_WINDOW_UPDATE:
		return false;
	case NGHTTP2_DATA:
		return hd->length == 0 && !(hd->flags & NGHTTP2_FLAG_END_STREAM);
	default:
		return true;
	}
}

/* Clients that measure the way (grpc-go's BDP estimator, and others') send a ping for what they get, when they have none under way: at most one for each frame of ours, which cost us
 * more. */
static bool callbacks_is_due_ping(struct grpc_session *session, const nghttp2_frame_hd *hd)
{
	if (hd->type != NGHTTP2_PING || (hd->flags & NGHTTP2_FLAG_ACK) || session->pings_due == 0)
		return false;
	session->pings_due--;
	return true;
}

static int callbacks_begin_frame(nghttp2_session *http2, const nghttp2_frame_hd *hd, void *arg)
{
	struct grpc_session *session = arg;
	if (!callbacks_is_idle_work(hd) || callbacks_is_due_ping(session, hd) ||
	    token_bucket_take(&session->control, session->now_ms))
		return 0;
	grpc_session_set_reason(session,
	    "flood: more than %d pings, settings, resets or empty frames, and %d a second",
	    TR_GRPC_CONTROL_BURST, TR_GRPC_CONTROL_RATE);
	(void)nghttp2_session_terminate_session(http2, NGHTTP2_ENHANCE_YOUR_CALM);
	return NGHTTP2_ERR_CALLBACK_FAILURE;
}

static int callbacks_begin_headers(nghttp2_session *http2, const nghttp2_frame *frame, void *arg)
{
	struct grpc_session *session = arg;
	if (!session->is_server || frame->headers.cat != NGHTTP2_HCAT_REQUEST)
		return 0;
	struct grpc_stream *stream = session->role->opened(session, frame->hd.stream_id);
	if (stream == NULL)
		return nghttp2_submit_rst_stream(http2, NGHTTP2_FLAG_NONE, frame->hd.stream_id,
		    NGHTTP2_REFUSED_STREAM);
	(void)nghttp2_session_set_stream_user_data(http2, frame->hd.stream_id, stream);
	return 0;
}

static int callbacks_header(nghttp2_session *http2, const nghttp2_frame *frame, const uint8_t *name,
    size_t name_length, const uint8_t *value, size_t value_length, uint8_t flags, void *arg)
{
	(void)flags;
	struct grpc_session *session = arg;
	struct grpc_stream *stream = callbacks_stream(http2, frame->hd.stream_id);
	if (stream == NULL)
		return 0;
	stream->header_bytes += name_length + value_length + 32; /* RFC 9113, 6.5.2 */
	if (stream->header_bytes <= TR_GRPC_HEADERS_BYTES_MAX)
		session->role->header(stream, name, name_length, value, value_length);
	return 0;
}

static int callbacks_frame(nghttp2_session *http2, const nghttp2_frame *frame, void *arg)
{
	struct grpc_session *session = arg;
	if (frame->hd.type == NGHTTP2_SETTINGS) {
		session->greeted = true; /* nghttp2 takes nothing else first */
		session->role->settings(session);
	}
	if (frame->hd.type == NGHTTP2_GOAWAY)
		session->role->goaway(session);
	if (frame->hd.type != NGHTTP2_HEADERS && frame->hd.type != NGHTTP2_DATA)
		return 0;
	struct grpc_stream *stream = callbacks_stream(http2, frame->hd.stream_id);
	if (stream == NULL)
		return 0;
	if (frame->hd.type == NGHTTP2_HEADERS)
		stream->headers_done = true;
	if (frame->hd.flags & NGHTTP2_FLAG_END_STREAM)
		stream->peer_done = true;
	grpc_session_touch(stream);
	return 0;
}

static int callbacks_data(nghttp2_session *http2, uint8_t flags, int32_t id, const uint8_t *data,
    size_t length, void *arg)
{
	(void)flags;
	(void)arg;
	/* Memory is bounded per stream, so the connection's window opens at once: a slow call holds up no other. */
	(void)nghttp2_session_consume_connection(http2, length);
	struct grpc_stream *stream = callbacks_stream(http2, id);
	if (stream == NULL || grpc_inbox_add(&stream->in, data, length) != TR_OK) {
		(void)nghttp2_session_consume_stream(http2, id, length);
		if (stream != NULL)
			(void)nghttp2_submit_rst_stream(http2, 0, id, NGHTTP2_ENHANCE_YOUR_CALM);
		return 0;
	}
	grpc_session_touch(stream);
	return 0;
}

static int callbacks_close(nghttp2_session *http2, int32_t id, uint32_t code, void *arg)
{
	(void)arg;
	struct grpc_stream *stream = callbacks_stream(http2, id);
	if (stream == NULL)
		return 0;
	stream->closed = true;
	stream->reset_code = code;
	grpc_session_touch(stream);
	return 0;
}

/* A server that answers before the request is whole tells the client to stop sending (RFC 9113, 8.1). */
static int callbacks_sent(nghttp2_session *http2, const nghttp2_frame *frame, void *arg)
{
	struct grpc_session *session = arg;
	if ((frame->hd.type == NGHTTP2_DATA || frame->hd.type == NGHTTP2_HEADERS) &&
	    session->pings_due < TR_GRPC_PINGS_DUE_MAX)
		session->pings_due++;
	if (frame->hd.type == NGHTTP2_GOAWAY && frame->goaway.error_code != NGHTTP2_NO_ERROR)
		grpc_session_set_reason(session, "%s%s%.*s",
		    nghttp2_http2_strerror(frame->goaway.error_code),
		    frame->goaway.opaque_data_len > 0 ? ": " : "",
		    (int)frame->goaway.opaque_data_len, (const char *)frame->goaway.opaque_data);
	if (session->is_server && frame->hd.type == NGHTTP2_HEADERS &&
	    (frame->hd.flags & NGHTTP2_FLAG_END_STREAM) &&
	    nghttp2_session_get_stream_remote_close(http2, frame->hd.stream_id) == 0)
		(void)nghttp2_submit_rst_stream(http2, 0, frame->hd.stream_id, NGHTTP2_NO_ERROR);
	return 0;
}

static int callbacks_error(nghttp2_session *http2, int code, const char *text, size_t length,
    void *arg)
{
	(void)http2;
	(void)length;
	(void)code;
	grpc_session_set_reason(arg, "%s", text);
	return 0;
}

static nghttp2_session_callbacks *callbacks_create(void)
{
	nghttp2_session_callbacks *callbacks;
	if (nghttp2_session_callbacks_new(&callbacks) != 0)
		return NULL;
	nghttp2_session_callbacks_set_on_begin_frame_callback(callbacks, callbacks_begin_frame);
	nghttp2_session_callbacks_set_on_begin_headers_callback(callbacks, callbacks_begin_headers);
	nghttp2_session_callbacks_set_on_header_callback(callbacks, callbacks_header);
	nghttp2_session_callbacks_set_on_frame_recv_callback(callbacks, callbacks_frame);
	nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, callbacks_data);
	nghttp2_session_callbacks_set_on_stream_close_callback(callbacks, callbacks_close);
	nghttp2_session_callbacks_set_on_frame_send_callback(callbacks, callbacks_sent);
	nghttp2_session_callbacks_set_error_callback2(callbacks, callbacks_error);
	return callbacks;
}

static int callbacks_settings(struct grpc_session *session)
{
	const nghttp2_settings_entry settings[] = {
		{ NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, TR_GRPC_WINDOW_BYTES },
		{ NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, TR_GRPC_HEADERS_BYTES_MAX },
		{ NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, TR_GRPC_STREAMS_MAX },
		{ NGHTTP2_SETTINGS_ENABLE_PUSH, 0 }, /* a client's only */
	};
	size_t count = sizeof(settings) / sizeof(settings[0]) - (session->is_server ? 1 : 0);
	int failed = nghttp2_submit_settings(session->http2, NGHTTP2_FLAG_NONE, settings, count);
	return failed != 0 ? failed
	                   : nghttp2_session_set_local_window_size(session->http2,
	                         NGHTTP2_FLAG_NONE, 0, 16 * TR_GRPC_WINDOW_BYTES);
}

tr_status http2_callbacks_attach(struct grpc_session *session)
{
	nghttp2_option *option = NULL;
	nghttp2_session_callbacks *callbacks = callbacks_create();
	int failed = NGHTTP2_ERR_NOMEM;
	if (callbacks != NULL && nghttp2_option_new(&option) == 0) {
		nghttp2_option_set_no_auto_window_update(option, 1);
		nghttp2_option_set_no_closed_streams(option, 1);
		nghttp2_option_set_max_settings(option, 32);
		/* callbacks_begin_frame counts resets, with the time that it is given. */
		nghttp2_option_set_stream_reset_rate_limit(option, UINT32_MAX, UINT32_MAX);
		failed = session->is_server
		    ? nghttp2_session_server_new2(&session->http2, callbacks, session, option)
		    : nghttp2_session_client_new2(&session->http2, callbacks, session, option);
		if (failed == 0)
			failed = callbacks_settings(session);
	}
	nghttp2_option_del(option);
	nghttp2_session_callbacks_del(callbacks);
	if (failed == 0)
		return TR_OK;
	nghttp2_session_del(session->http2);
	session->http2 = NULL;
	return TR_ENOMEM;
}
