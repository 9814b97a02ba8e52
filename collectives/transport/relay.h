/* A relay: joins connections of two daemons that cannot dial each other, byte for byte. It knows pairs of peers by what memberd
 * granted; of what it carries it understands nothing, and with TLS the two ends speak that with each other through it.
 *
 * Both ends dial the relay's port (with TLS as everywhere: its certificate and theirs), greet with RELAY_GREETING and say one message
 * (proto/relay.h): the one that is to be heard waits (RELAY_WAIT), the other calls (RELAY_CALL). When there is one of each the
 * relay answers RELAY_JOINED to both; TLS with the relay ends with that answer, and what follows on the two sockets are
 * the ends' own bytes. Who waited dials again for the next call.
 *
 * Bounds: TR_RELAY_BUFFER_BYTES for each direction of a connection, held only while the other end does not take them; nothing is read
 * then. The end of one direction is passed on when all before it is, so that half a connection may go on; one that breaks
 * breaks the other. All else is in limits.h (TR_RELAY_*).
 *
 * It has a thread of its own, from its first grant on. All functions may be called from any thread, none blocks for long.
 *
 *	relay_create(TR_RELAY_JOINED_MAX, &relay, &error);
 *	relay_grant(relay, grants, 2);
 *	...the listener's LISTENER_RELAY: relay_accept(relay, stream);
 */
#ifndef TR_COLLECTIVES_TRANSPORT_RELAY_H
#define TR_COLLECTIVES_TRANSPORT_RELAY_H

#include <stddef.h>
#include <stdint.h>

#include "collectives/transport/stream.h"
#include "common/error.h"
#include "traind/peer/peer.pb-c.h"

struct relay;

/* One direction: peer `from` may dial peer `to` through this relay. The token is memberd's, 128 random bits that only the two ends'
 * daemons got beside us. */
struct relay_grant {
	uint64_t group, from, to;
	uint64_t token[2];
};

/* It joins no more than `joined_max` connections at once. */
tr_status relay_create(unsigned joined_max, struct relay **relay, struct tr_error *error);
/* Breaks all that it carries. NULL is accepted. */
void relay_destroy(struct relay *relay);

/* All that may be relayed from now on; what was granted before and is not among it breaks. Copied. TR_ELIMIT: more than
 * TR_NODES_MAX * TR_RELAYED_PAIRS_MAX; TR_ENOMEM, TR_EIO: no thread. On an error all stays as it was. */
tr_status relay_grant(struct relay *relay, const struct relay_grant *grants, size_t count,
    struct tr_error *error);

/* The same, of memberd's rows. */
tr_status relay_grant_rows(struct relay *relay, Traind__Peer__Relayed *const *rows, size_t count,
    struct tr_error *error);

/* Takes a stream whose RELAY_GREETING was read. */
void relay_accept(struct relay *relay, struct stream stream);

struct relay_counters {
	unsigned joined, waiting, calling; /* connections now */
	uint64_t bytes;                    /* carried, both directions */
	uint64_t refused;
};
void relay_get_counters(struct relay *relay, struct relay_counters *counters);

#endif
