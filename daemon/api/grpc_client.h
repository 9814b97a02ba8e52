/* gRPC client over one HTTP/2 connection (nghttp2): unary and server-streaming calls. One loop, one thread. Used by trainctl
 * and by traind, which forwards calls to memberd. Reconnects by itself on the next call after a loss. A connection with open
 * calls on which nothing came for TR_GRPC_KEEPALIVE_MS is pinged, so that a stopped server is noticed.
 *
 *	grpc_client_create(loop, "127.0.0.1:7070", &client, &error);
 *	grpc_client_call(client, "/traind.v1.Trainer/ListNodes", NULL, 0, 5000, &callbacks, arg, &call, &error);
 */
#ifndef TR_DAEMON_API_GRPC_CLIENT_H
#define TR_DAEMON_API_GRPC_CLIENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

#include "common/error.h"
#include "daemon/api/grpc_status.h"

struct grpc_client;
struct tls_context;
struct grpc_client_call;

struct grpc_client_callbacks {
	/* Zero or more; bytes are borrowed. NULL: ignored. */
	void (*message)(void *arg, const uint8_t *message, size_t bytes);
	/* Exactly once, last. `text` is the status message, borrowed. */
	void (*ended)(void *arg, enum grpc_status status, const char *text);
};

/* "host:port" or "unix:/path". `tls`: spoken to it unless it is a UNIX socket, and held; NULL: plain. Does not connect yet. NULL may be destroyed. */
tr_status grpc_client_create(uv_loop_t *loop, const char *address, struct tls_context *tls,
    struct grpc_client **client, struct tr_error *error);
/* If this returns an error, `ended` never runs. Else the call is valid until `ended` has run, from a later turn. The request is
 * copied; more than TR_GRPC_MESSAGE_MAX is TR_ELIMIT, as are more calls than TR_GRPC_CLIENT_CALLS_MAX and more unsent than TR_GRPC_UNSENT_BYTES_MAX. deadline_ms is a duration; 0: none. An address that cannot be reached ends the call with
 * UNAVAILABLE and a text that names the address. */
tr_status grpc_client_call(struct grpc_client *client, const char *path, const void *request,
    size_t bytes, uint64_t deadline_ms, const struct grpc_client_callbacks *callbacks, void *arg,
    struct grpc_client_call **call, struct tr_error *error);
/* Within `ended`: whether the status is ours because the server was not reached, or no more. */
bool grpc_client_call_is_lost(const struct grpc_client_call *call);
void grpc_client_cancel(
    struct grpc_client_call *call); /* `ended` runs with CANCELLED from a later turn */
/* Stops and restarts reading of a stream (flow control). */
void grpc_client_pause(struct grpc_client_call *call, bool paused);
/* Open calls end with CANCELLED first. Not from within `message` or `ended`. The loop must run on for the handles to close. */
void grpc_client_destroy(struct grpc_client *client);

#endif
