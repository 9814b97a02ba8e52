/* gRPC over HTTP/2 (nghttp2), server side: any gRPC client works unchanged. One loop, one thread.
 *
 * A method handler gets a whole request message and answers through the call, now or later: any number of
 * grpc_call_send (one for a unary method), then exactly one grpc_call_end. When the client cancels, its deadline passes or
 * its connection breaks, `cancelled` runs once and the call must not be used any more. It does not run after grpc_call_end.
 */
#ifndef TR_DAEMON_API_GRPC_SERVER_H
#define TR_DAEMON_API_GRPC_SERVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

#include "collectives/transport/stream.h"
#include "common/error.h"
#include "daemon/api/grpc_status.h"

struct grpc_server;
struct grpc_call;

/* Request bytes are borrowed until return. */
typedef void grpc_method_fn(void *arg, struct grpc_call *call, const uint8_t *request, size_t bytes);

struct grpc_method {
	const char *path; /* "/traind.v1.Trainer/GetJob" */
	grpc_method_fn *handle;
};

/* Methods: a table ended by path NULL, borrowed for the server's life. `fallback` (may be NULL: UNIMPLEMENTED) gets calls of
 * other paths: traind forwards them. */
struct grpc_server_options {
	const struct grpc_method *methods;
	grpc_method_fn *fallback;
	void *arg;
};

tr_status grpc_server_create(uv_loop_t *loop, const struct grpc_server_options *options,
    struct grpc_server **server);
/* Takes a stream whose first bytes (`early`, copied) look like HTTP/2. */
void grpc_server_accept(struct grpc_server *server, struct stream stream, const void *early,
    size_t early_bytes);
/* Refuses new calls, ends open ones with UNAVAILABLE, closes; `closed` (may be NULL) runs once from a later
 * turn; calls end within TR_GRPC_CLOSE_GRACE_MS. */
void grpc_server_close(struct grpc_server *server, void (*closed)(void *arg), void *arg);

const char *grpc_call_path(const struct grpc_call *call);
/* Milliseconds left when the connection last did something, so exact in a handler; UINT64_MAX without a deadline. */
uint64_t grpc_call_time_left_ms(const struct grpc_call *call);
void grpc_call_on_cancel(struct grpc_call *call, void (*cancelled)(void *arg), void *arg);
/* Copies the message. TR_EAGAIN: sent all the same, but the client reads slowly (more than 1 MiB waits): stop until `writable`
 * runs. TR_ECANCELLED: the call is gone. */
tr_status grpc_call_send(struct grpc_call *call, const void *message, size_t bytes);
/* More is unsent on its connection than TR_GRPC_UNSENT_BYTES_MAX: new calls wait there, and who sends for others can know of it. */
bool grpc_call_is_crowded(const struct grpc_call *call);
void grpc_call_on_writable(struct grpc_call *call, void (*writable)(void *arg), void *arg);
void grpc_call_end(struct grpc_call *call, enum grpc_status status, const char *message);

#endif
