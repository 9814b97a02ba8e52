/* Measures the way to another daemon, over its port and with TLS as everything else: the smallest of some round trips, and how fast bytes go in each
 * direction, one after the other. docs/protocol.md, "Probes", says what is said; the bounds are TR_PROBE_* in limits.h.
 *
 * The functions block, each for TR_PROBE_MS at most besides resolving a name, and look at *stop every 100 ms: for a thread of their own.
 *
 *	st = probe_dial(&(struct probe_target){ "10.0.0.2:7070", tls, { low, high } }, &stop, &figures, &error);
 */
#ifndef TR_COLLECTIVES_TRANSPORT_PROBE_H
#define TR_COLLECTIVES_TRANSPORT_PROBE_H

#include <stdatomic.h>

#include "collectives/transport/stream.h"
#include "common/error.h"

struct probe_figures {
	double round_trip_s;
	double there_bytes_per_s, back_bytes_per_s;
};

struct probe_target {
	const char *address;
	struct tls_context *tls; /* NULL: plain */
	uint64_t token[2];       /* the other end's */
	bool beside;             /* others measure at the same time (PROBE_TAKE_BESIDE) */
};

/* TR_EUNAVAILABLE: it cannot be reached; TR_EIO, TR_EPROTO: it could, and then that. The words name the address. */
tr_status probe_dial(const struct probe_target *target, const atomic_bool *stop,
    struct probe_figures *figures, struct tr_error *error);
/* The other end, when the listener has read PROBE_GREETING: until who dialled goes. Takes the stream. TR_EREFUSED: another token. */
tr_status probe_serve(struct stream stream, const uint64_t token[2], const atomic_bool *stop,
    struct tr_error *error);

/* What processes of this host share: a round trip is that of two threads that wake each other up, the rates are those at which one reads what
 * another has just written. TR_ENOMEM. */
tr_status probe_memory(struct probe_figures *figures, struct tr_error *error);

#endif
