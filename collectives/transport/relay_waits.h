/* The places at relays where this process can be reached: for each row one connection that waits there for a call (conn_wait_at). When
 * one came its socket goes to the listener, as if it had been accepted, and the next one waits. One loop, one thread.
 */
#ifndef TR_COLLECTIVES_TRANSPORT_RELAY_WAITS_H
#define TR_COLLECTIVES_TRANSPORT_RELAY_WAITS_H

#include <stddef.h>
#include <uv.h>

#include "collectives/transport/conn.h"
#include "collectives/transport/listener.h"

struct relay_waits;

/* The listener is borrowed until relay_waits_close; `tls` as in conn_dial, held. */
tr_status relay_waits_create(uv_loop_t *loop, struct tls_context *tls, struct listener *listener,
    struct relay_waits **waits, struct tr_error *error);
/* All there is to wait for from now on; copied. What is new is dialled, what is not among them is closed, the rest stays as it is.
 * TR_ENOMEM: what could be had is there. */
tr_status relay_waits_set(struct relay_waits *waits, const struct conn_relay *rows, size_t count,
    struct tr_error *error);
/* Ends all of it; freed from a later turn of the loop. NULL is accepted. */
void relay_waits_close(struct relay_waits *waits);

#endif
