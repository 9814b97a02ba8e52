/* A joiner's outer state, where it takes longer than a round: it comes while rounds are merged, and nobody waits for it.
 *
 * Outer parameters and momentum change element by element with each merge (outer.h), so who has a part of them merges that part as all do
 * (tr_state_add_gradual), and the rest comes later as it is by then. Until all is here the peer takes part in rounds to which it gives nothing.
 *
 * In a round it gets the round's result as well, over the same link, so it lets the round be decided without the rest only if at least as many bytes of state
 * have come in it as the result has on the wire: then all of it is here after at most twice the bytes of the state. Where links are so slow that a
 * result takes most of a round, waiting once is cheaper for all than many rounds of it, and that is what happens.
 *
 * Not for others; called by sync.c and closing.c. */
#ifndef TR_COLLECTIVES_SYNC_ARRIVING_H
#define TR_COLLECTIVES_SYNC_ARRIVING_H

#include "collectives/sync/sync_internal.h"

/* Waits for what is read before anything else: counters, digests, the account of samples. */
tr_status arriving_head(struct tr_sync *sync, struct tr_error *error);
/* Behind the round's ops: waits until all of it is here, or enough of it that the round need not wait: then the commit is to say so (tr_sync.defers). */
tr_status arriving_rest(struct tr_sync *sync, struct tr_error *error);
/* The round was committed; the rest may have come while it was. */
void arriving_closed(struct tr_sync *sync, const struct tr_round *committed);
/* Some of it is still to come when the last merge is made: there is nothing to train any more. */
tr_status arriving_too_late(const struct tr_sync *sync, struct tr_error *error);

#endif
