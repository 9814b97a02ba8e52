/* Connects to an address: resolves names off the loop, tries each result in turn. */
#ifndef TR_DAEMON_API_GRPC_DIAL_H
#define TR_DAEMON_API_GRPC_DIAL_H

#include <uv.h>

#include "collectives/transport/address.h"
#include "collectives/transport/stream.h"

struct grpc_dial;

/* `stream` is connected and non-blocking, the callee's; its fd is -1: `cause` says why not. */
typedef void grpc_dial_fn(void *arg, struct stream stream, const char *cause);

/* With `tls`, and not to a UNIX socket: a TLS handshake comes first. `done` runs exactly once, from a later turn, unless the dial is cancelled. Gives up after TR_GRPC_DIAL_TIMEOUT_MS. */
tr_status grpc_dial_start(uv_loop_t *loop, const struct address *address, struct tls_context *tls,
    grpc_dial_fn *done, void *arg, struct grpc_dial **dial);
/* `done` does not run. Not after it has run. */
void grpc_dial_cancel(struct grpc_dial *dial);

#endif
