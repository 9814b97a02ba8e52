/* Connects to an address: resolves names off the loop, tries each result in turn. */
#ifndef TR_DAEMON_API_GRPC_DIAL_H
#define TR_DAEMON_API_GRPC_DIAL_H

#include <uv.h>

#include "collectives/transport/address.h"

struct grpc_dial;

/* `fd` is a connected, non-blocking socket, the callee's; -1: `cause` says why not. */
typedef void grpc_dial_fn(void *arg, int fd, const char *cause);

/* `done` runs exactly once, from a later turn, unless the dial is cancelled. Gives up after TR_GRPC_DIAL_TIMEOUT_MS. */
tr_status grpc_dial_start(uv_loop_t *loop, const struct address *address, grpc_dial_fn *done,
    void *arg, struct grpc_dial **dial);
/* `done` does not run. Not after it has run. */
void grpc_dial_cancel(struct grpc_dial *dial);

#endif
