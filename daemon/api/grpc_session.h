/* One HTTP/2 connection of gRPC without its socket: bytes and the time go in, bytes come out, over nghttp2's callbacks. The roles
 * (grpc_server_session.h, grpc_client_session.h) say what the streams mean; grpc_io.h joins a session to a socket.
 *
 * nghttp2's callbacks only write down what came. A stream that something happened to is "touched", and the role's `step` acts on
 * it when nghttp2 is out of the way, so that handlers may do anything to any call.
 */
#ifndef TR_DAEMON_API_GRPC_SESSION_H
#define TR_DAEMON_API_GRPC_SESSION_H

#include <nghttp2/nghttp2.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/error.h"
#include "common/token_bucket.h"
#include "daemon/api/grpc_inbox.h"
#include "daemon/api/grpc_outbox.h"

#define GRPC_NO_DEADLINE UINT64_MAX

struct grpc_session;

/* Embedded first in the role's call. */
struct grpc_stream {
	struct grpc_session *session;
	struct grpc_stream *previous, *next, *touched_next;
	int32_t id;
	struct grpc_inbox in;
	struct grpc_outbox out;
	uint32_t reset_code; /* once closed */
	size_t header_bytes;
	bool touched, in_list;
	bool has_provider; /* nghttp2 asks us for data */
	bool finishing;    /* nothing comes after what is in `out` */
	bool slow;         /* the sender was told to wait */
	bool drained;      /* and may go on */
	bool headers_done, peer_done, closed;
};

/* What a kind of session does; the first five run inside nghttp2. */
struct grpc_role {
	/* The peer opened a stream. NULL: refused. (Servers only.) */
	struct grpc_stream *(*opened)(struct grpc_session *session, int32_t id);
	void (*header)(struct grpc_stream *stream, const uint8_t *name, size_t name_length,
	    const uint8_t *value, size_t value_length);
	/* `out` is empty and nothing comes after it. True: trailers were submitted, the stream ends with them. */
	bool (*trailers)(struct grpc_stream *stream);
	void (*goaway)(struct grpc_session *session);
	/* The peer's settings came, the first or others. */
	void (*settings)(struct grpc_session *session);
	/* Bytes left. */
	void (*sent)(struct grpc_session *session);
	/* The stream may be freed in it (after grpc_session_remove). */
	void (*step)(struct grpc_stream *stream);
	/* The connection is gone: end all calls. */
	void (*lost)(struct grpc_session *session);
	void (*tick)(struct grpc_session *session);
	/* When `tick` has something to do. */
	uint64_t (*deadline_ms)(const struct grpc_session *session);
	void (*destroy)(struct grpc_session *session);
};

/* Embedded first in the role's session. */
struct grpc_session {
	nghttp2_session *http2;
	const struct grpc_role *role;
	struct grpc_stream *streams, *touched_first, *touched_last;
	unsigned stream_count;
	uint64_t now_ms, heard_ms, pinged_ms;
	struct token_bucket control;
	unsigned pings_due; /* which may still come for what we sent */
	size_t unsent;      /* bytes in all outboxes */
	bool is_server, busy, pinged, lost;
	bool greeted;                   /* the peer's first SETTINGS came */
	char reason[TR_ERROR_TEXT_MAX]; /* what went wrong first */
	/* The session has something to send or to do, and is not in any of the calls below. May be NULL. */
	void (*wake)(void *arg);
	void *wake_arg;
};

tr_status grpc_session_init(struct grpc_session *session, const struct grpc_role *role,
    bool is_server, uint64_t now_ms);
void grpc_session_destroy(struct grpc_session *session); /* by its role; all streams must be gone */

/* An error: drop the connection, after what it may still have to say was sent. A session that is lost takes nothing. */
tr_status grpc_session_receive(struct grpc_session *session, uint64_t now_ms, const uint8_t *data,
    size_t length, struct tr_error *error);
/* Fills `out`; 0: nothing to send now. -1: drop the connection; so says a session that is lost. */
ssize_t grpc_session_send(struct grpc_session *session, uint64_t now_ms, uint8_t *out,
    size_t capacity);
void grpc_session_tick(struct grpc_session *session, uint64_t now_ms);
uint64_t grpc_session_deadline_ms(const struct grpc_session *session);
/* Nothing is left to send or to hear. */
bool grpc_session_finished(const struct grpc_session *session);
/* Ends all calls with UNAVAILABLE (server) or as lost (client). */
void grpc_session_lose(struct grpc_session *session, const char *reason);

/* For roles. */
void grpc_session_add(struct grpc_session *session, struct grpc_stream *stream, int32_t id);
void grpc_session_remove(
    struct grpc_stream *stream); /* frees what the stream holds, not the stream */
void grpc_session_touch(struct grpc_stream *stream);
void grpc_session_wake(struct grpc_session *session);
void grpc_session_set_reason(struct grpc_session *session, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
tr_status grpc_stream_queue(struct grpc_stream *stream, const void *message, size_t bytes);
void grpc_stream_finish(struct grpc_stream *stream); /* ends after what is queued */
void grpc_stream_reset(struct grpc_stream *stream, uint32_t code);
void grpc_stream_drop_unsent(struct grpc_stream *stream);
void grpc_stream_release(struct grpc_stream *stream, size_t bytes);
nghttp2_data_provider grpc_stream_provider(struct grpc_stream *stream);

#endif
