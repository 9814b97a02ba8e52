/* A joiner's outer state, where it takes longer than a round: it comes while rounds are merged, and nobody waits for it.
 *
 * Outer parameters and momentum change element by element with each merge (outer.h), so who has a part of them merges that part as all do
 * (tr_state_add_gradual), and the rest comes later as it is by then. Until all is here the peer takes part in rounds to which it gives nothing.
 *
 * A round that is decided without the rest costs as well: its result comes over the link that the state comes over, all wait for that, and the peer does no work of its own for another round.
 * So the rest is waited for unless that takes the group more work than the rounds that it would take otherwise (arriving_defers).
 *
 * Not for others; called by sync.c and closing.c. */
#ifndef TR_COLLECTIVES_SYNC_ARRIVING_H
#define TR_COLLECTIVES_SYNC_ARRIVING_H

#include "collectives/sync/sync_internal.h"

struct arriving {
	uint64_t missing, came; /* bytes of the state; came: in this round */
	uint64_t kept;          /* of what came: what would stay */
	uint64_t result;        /* of a round, bytes on the wire */
	double elapsed_s;       /* in this round */
	unsigned contributors;
};
/* Whether going on without the rest costs the group less work. With rate = came / elapsed, n contributors wait for missing / rate seconds, or else in
 * each of k = missing / kept more rounds (rounded up) for result / rate, and one peer is idle in these. Pure.
 *
 *	defers if  k (n result / rate + elapsed + result / rate)  <  n missing / rate */
bool arriving_defers(const struct arriving *now);

/* Waits for what is read before anything else: counters, digests, the account of samples. */
tr_status arriving_head(struct tr_sync *sync, struct tr_error *error);
/* All was merged when it came: nothing changes any more what it has, so it waits for all of it. */
tr_status arriving_all(struct tr_sync *sync, struct tr_error *error);
/* Behind the round's ops: waits until all of it is here, or enough of it that the round need not wait: then the commit is to say so (tr_sync.defers). */
tr_status arriving_rest(struct tr_sync *sync, struct tr_error *error);
/* The round was committed; the rest may have come while it was. */
void arriving_closed(struct tr_sync *sync, const struct tr_round *committed);
/* Some of it is still to come when the last merge is made: there is nothing to train any more. */
tr_status arriving_too_late(const struct tr_sync *sync, struct tr_error *error);

#endif
