/* What a process has to do with relays, as memberd says (RelayDuties): to be one, and to wait at others. For the thread that has the
 * listener and the link to memberd; traind and processes that link the library have one each.
 */
#ifndef TR_COLLECTIVES_ENGINE_RELAYING_H
#define TR_COLLECTIVES_ENGINE_RELAYING_H

#include <stdbool.h>
#include <uv.h>

#include "collectives/transport/listener.h"
#include "common/error.h"
#include "common/limits.h"
#include "traind/peer/peer.pb-c.h"

struct relay;
struct relay_waits;

struct relaying {
	struct relay *relay;
	struct relay_waits *waits;
	char memberd[TR_ADDRESS_MAX]; /* where it is dialled: it may be a relay, too */
	bool anywhere;                /* with TLS, or insecure: beyond loopback too */
	bool busy;                    /* it has duties */
};

/* The listener is borrowed until relaying_close; `tls`, which may be NULL, is held. Without it, nor `insecure`, relays beyond loopback are not dialled. */
tr_status relaying_start(struct relaying *relaying, uv_loop_t *loop, struct tls_context *tls,
    bool insecure, struct listener *listener, const char *memberd, struct tr_error *error);
/* All of them; what was to be done before and is not among them ends. */
void relaying_duties(struct relaying *relaying, const Traind__Peer__RelayDuties *duties);
void relaying_accept(struct relaying *relaying, struct stream stream); /* LISTENER_RELAY; takes it */
void relaying_close(struct relaying *relaying);                        /* accepts a zeroed one */

#endif
