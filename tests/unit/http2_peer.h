/* The other end of a grpc_session in memory: plain nghttp2, so that it may do what our own sessions would not. */
#ifndef TR_TESTS_UNIT_HTTP2_PEER_H
#define TR_TESTS_UNIT_HTTP2_PEER_H

#include <nghttp2/nghttp2.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/api/grpc_session.h"

#define PEER_STREAMS_MAX 4096

#define PEER_HEADER(n, v)                                                                   \
	(nghttp2_nv)                                                                        \
	{                                                                                   \
		(uint8_t *)(uintptr_t)(n), (uint8_t *)(uintptr_t)(v), strlen(n), strlen(v), \
		    NGHTTP2_NV_FLAG_NONE                                                    \
	}

struct peer_stream {
	char http_status[8], grpc_status[8], message[256], accept_encoding[32];
	size_t bytes, header_frames;
	bool ended, closed;
	uint32_t code;
	/* What it sends: `left` bytes, the first of them from `prefix`. */
	size_t prefix_length, sent, left;
	uint8_t prefix[16];
	bool keep_open;
};

struct peer {
	nghttp2_session *http2;
	struct grpc_session *other; /* who is tested */
	uint64_t now_ms;
	tr_status status; /* of the last bytes that it got */
	struct tr_error error;
	unsigned pings, goaways;
	uint32_t goaway_code;
	bool mute;                                    /* what it says does not arrive */
	size_t step;                                  /* bytes at a time; 0: all */
	struct peer_stream streams[PEER_STREAMS_MAX]; /* by id / 2 */
};

static inline struct peer_stream *peer_stream(struct peer *peer, int32_t id)
{
	return &peer->streams[(id / 2) % PEER_STREAMS_MAX];
}

static int peer_on_header(nghttp2_session *http2, const nghttp2_frame *frame, const uint8_t *name,
    size_t name_length, const uint8_t *value, size_t value_length, uint8_t flags, void *arg)
{
	(void)http2;
	(void)flags;
	(void)name_length;
	struct peer_stream *stream = peer_stream(arg, frame->hd.stream_id);
	struct {
		const char *name;
		char *to;
		size_t capacity;
	} fields[] = {
		{ ":status", stream->http_status, sizeof(stream->http_status) },
		{ "grpc-status", stream->grpc_status, sizeof(stream->grpc_status) },
		{ "grpc-message", stream->message, sizeof(stream->message) },
		{ "grpc-accept-encoding", stream->accept_encoding, sizeof(stream->accept_encoding) },
	};
	for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++)
		if (strcmp((const char *)name, fields[i].name) == 0)
			(void)snprintf(fields[i].to, fields[i].capacity, "%.*s", (int)value_length,
			    (const char *)value);
	return 0;
}

static int peer_on_frame(nghttp2_session *http2, const nghttp2_frame *frame, void *arg)
{
	(void)http2;
	struct peer *peer = arg;
	struct peer_stream *stream = peer_stream(peer, frame->hd.stream_id);
	peer->pings += frame->hd.type == NGHTTP2_PING && !(frame->hd.flags & NGHTTP2_FLAG_ACK);
	if (frame->hd.type == NGHTTP2_GOAWAY) {
		peer->goaways++;
		peer->goaway_code = frame->goaway.error_code;
	}
	if (frame->hd.type == NGHTTP2_HEADERS)
		stream->header_frames++;
	if ((frame->hd.type == NGHTTP2_HEADERS || frame->hd.type == NGHTTP2_DATA) &&
	    (frame->hd.flags & NGHTTP2_FLAG_END_STREAM))
		stream->ended = true;
	return 0;
}

static int peer_on_data(nghttp2_session *http2, uint8_t flags, int32_t id, const uint8_t *data,
    size_t length, void *arg)
{
	(void)http2;
	(void)flags;
	(void)data;
	peer_stream(arg, id)->bytes += length;
	return 0;
}

static int peer_on_close(nghttp2_session *http2, int32_t id, uint32_t code, void *arg)
{
	(void)http2;
	peer_stream(arg, id)->closed = true;
	peer_stream(arg, id)->code = code;
	return 0;
}

static ssize_t peer_read(nghttp2_session *http2, int32_t id, uint8_t *out, size_t capacity,
    uint32_t *flags, nghttp2_data_source *source, void *arg)
{
	(void)http2;
	(void)source;
	struct peer_stream *stream = peer_stream(arg, id);
	size_t length = stream->left < capacity ? stream->left : capacity;
	memset(out, 'x', length);
	for (size_t i = 0; i < length && stream->sent + i < stream->prefix_length; i++)
		out[i] = stream->prefix[stream->sent + i];
	stream->sent += length;
	stream->left -= length;
	if (stream->left == 0 && !stream->keep_open)
		*flags |= NGHTTP2_DATA_FLAG_EOF;
	return length == 0 && stream->keep_open ? NGHTTP2_ERR_DEFERRED : (ssize_t)length;
}

static inline nghttp2_data_provider peer_body(void)
{
	return (nghttp2_data_provider){ .read_callback = peer_read };
}

static inline struct peer *peer_create(bool is_server, bool reads)
{
	struct peer *peer = calloc(1, sizeof(*peer));
	nghttp2_session_callbacks *callbacks;
	nghttp2_option *option;
	if (peer == NULL || nghttp2_session_callbacks_new(&callbacks) != 0 ||
	    nghttp2_option_new(&option) != 0)
		abort();
	nghttp2_option_set_no_auto_window_update(option, reads ? 0 : 1);
	nghttp2_option_set_no_http_messaging(option, 1);
	nghttp2_session_callbacks_set_on_header_callback(callbacks, peer_on_header);
	nghttp2_session_callbacks_set_on_frame_recv_callback(callbacks, peer_on_frame);
	nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, peer_on_data);
	nghttp2_session_callbacks_set_on_stream_close_callback(callbacks, peer_on_close);
	if ((is_server ? nghttp2_session_server_new2(&peer->http2, callbacks, peer, option)
	               : nghttp2_session_client_new2(&peer->http2, callbacks, peer, option)) != 0)
		abort();
	nghttp2_option_del(option);
	nghttp2_session_callbacks_del(callbacks);
	(void)nghttp2_submit_settings(peer->http2, NGHTTP2_FLAG_NONE, NULL, 0);
	return peer;
}

static inline void peer_destroy(struct peer *peer)
{
	grpc_session_lose(peer->other, "the test is over");
	grpc_session_destroy(peer->other);
	nghttp2_session_del(peer->http2);
	free(peer);
}

/* What the peer has to say goes over; returns bytes. */
static inline size_t peer_tell(struct peer *peer)
{
	const uint8_t *data;
	size_t total = 0;
	ssize_t length;
	while ((length = nghttp2_session_mem_send(peer->http2, &data)) > 0) {
		total += (size_t)length;
		size_t step = peer->step == 0 ? (size_t)length : peer->step;
		for (ssize_t at = 0; at < length && !peer->mute; at += (ssize_t)step) {
			size_t piece = (size_t)(length - at) < step ? (size_t)(length - at) : step;
			if (peer->status == TR_OK)
				peer->status = grpc_session_receive(peer->other, peer->now_ms,
				    data + at, piece, &peer->error);
		}
	}
	return total;
}

static inline size_t peer_hear(struct peer *peer)
{
	uint8_t buffer[1u << 16];
	size_t total = 0;
	ssize_t length;
	while ((length = grpc_session_send(peer->other, peer->now_ms, buffer, sizeof(buffer))) > 0) {
		total += (size_t)length;
		if (nghttp2_session_mem_recv(peer->http2, buffer, (size_t)length) < 0)
			abort();
	}
	return total;
}

/* Both ways until nothing moves. */
static inline void peer_pump(struct peer *peer)
{
	while (peer_tell(peer) + peer_hear(peer) > 0)
		;
}

#endif
