/* Joins a grpc_session to a connected socket on a uv loop: the only place in daemon/api, with grpc_dial, that reads, writes or knows
 * the time.
 */
#ifndef TR_DAEMON_API_GRPC_IO_H
#define TR_DAEMON_API_GRPC_IO_H

#include <uv.h>

#include "collectives/transport/stream.h"
#include "daemon/api/grpc_session.h"

struct grpc_io;

/* The connection is over; `fault`: the peer broke the protocol. The session is destroyed after it returns. */
typedef void grpc_io_closed_fn(void *arg, const char *reason, bool fault);

/* Takes the stream (non-blocking) and the session. `early`: bytes of it that were read already; copied. On error both stay the caller's.
 * `closed` runs exactly once, from a later turn. */
tr_status grpc_io_create(uv_loop_t *loop, struct stream stream, struct grpc_session *session,
    const void *early, size_t early_bytes, grpc_io_closed_fn *closed, void *arg,
    struct grpc_io **io);
/* All calls end now. Not from within a handler of one of them. No-op when it closes already. */
void grpc_io_close(struct grpc_io *io, const char *reason);

#endif
