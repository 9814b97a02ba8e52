/* Lanes made of TCP connections (conn.h). Tuned for bulk: no copies besides the kernel's, congestion control by the path,
 * little that is unsent in the kernel, so that votes do not wait behind data and a slow stripe holds few segments.
 */
#ifndef TR_COLLECTIVES_TRANSPORT_LANE_TCP_H
#define TR_COLLECTIVES_TRANSPORT_LANE_TCP_H

#include <uv.h>

#include "collectives/transport/conn.h"
#include "collectives/transport/lane.h"
#include "collectives/transport/stream.h"

/* As conn_dial_through: `opened` or `closed` follows. `congestion`: a name, or NULL: by the path; copied. */
tr_status lane_tcp_dial(uv_loop_t *loop, const char *address, const struct conn_relay *relay,
    struct tls_context *tls, const char *congestion, const struct lane_callbacks *callbacks,
    void *arg, struct lane **lane, struct tr_error *error);
/* Bytes of bulk that a lane takes ahead of its socket, by its path: what it carries in a moment in which nobody looks at it, since over
 * a long way megabytes on a slow one of several would wait for seconds while the others have nothing to do. Pure. */
size_t lane_tcp_backlog(uint32_t rtt_us, uint64_t bytes_per_s);
/* As conn_adopt. */
tr_status lane_tcp_adopt(uv_loop_t *loop, struct stream stream, const void *early,
    size_t early_bytes, const char *congestion, const struct lane_callbacks *callbacks, void *arg,
    struct lane **lane, struct tr_error *error);

#endif
