/* The one listening port of a daemon: accepts, reads the first bytes, and hands the socket on by what they are:
 * FRAME_GREETING -> framed connection; RELAY_GREETING -> an end for the relay (relay.h); PROBE_GREETING -> a probe (probe.h); "PRI " -> HTTP/2; "GET "/"HEAD" -> plain HTTP. Anything else, silence for
 * TR_CONN_GREETING_TIMEOUT_MS, or the oldest of more than TR_CONN_UNGREETED_MAX waiting ones: closed, reason
 * logged (rate-limited). A TLS handshake counts as silence: it must be over by then. Out of file descriptors: accepting pauses 100 ms.
 */
#ifndef TR_COLLECTIVES_TRANSPORT_LISTENER_H
#define TR_COLLECTIVES_TRANSPORT_LISTENER_H

#include <stdbool.h>
#include <stddef.h>
#include <uv.h>

#include "collectives/transport/stream.h"
#include "common/error.h"

struct listener;

enum listener_protocol {
	LISTENER_FRAMES,
	LISTENER_HTTP2,
	LISTENER_HTTP1,
	LISTENER_RELAY,
	LISTENER_PROBE
};

/* Takes the stream (non-blocking). `early`: bytes already read; for LISTENER_FRAMES, LISTENER_RELAY and LISTENER_PROBE those behind the greeting, for the
 * HTTPs all of them. Borrowed until return. */
typedef void listener_fn(void *arg, enum listener_protocol protocol, struct stream stream,
    const void *early, size_t early_bytes);

/* `address`: "127.0.0.1:7070", "[::1]:7070", "localhost:0", "unix:/path". With `tls` every connection but those to a UNIX
 * socket has to begin with a TLS handshake, after which the same first bytes follow. A non-loopback address without it is TR_EREFUSED
 * unless `insecure`, with a line that says what to write. TR_EEXIST: in use; the text says by which address. */
tr_status listener_start(uv_loop_t *loop, const char *address, bool insecure,
    struct tls_context *tls, listener_fn *accepted, void *arg, struct listener **listener,
    struct tr_error *error);
const char *listener_address(const struct listener *listener); /* with the real port */
/* A connected socket that came another way (through a relay): as if it had been accepted here. Takes it. */
void listener_take(struct listener *listener, int fd);
void listener_stop(struct listener *listener);

#endif
