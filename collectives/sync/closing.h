/* How a round of tr_sync ends, once its fragment is on its way:
 *
 *	data there --compare--> compared --settle--> settled --commit--> committed: the outer step is taken, the next round begins
 *
 * Compare and commit are a round trip each. With an overlap both hide behind inner steps, as the fragment does: after each step this peer looks how far the round is and does what can
 * be done without waiting. What the caller trains on changes at the merge alone, so when a round was committed makes no difference to it. The outer step is taken with the commit, not at the
 * merge: until then nothing would say of a bit that flips which bits are right.
 *
 * Where states differ (drift.h) the rest waits for the merge: who was wrong begins anew there.
 * Not for others; called by sync.c. */
#ifndef TR_COLLECTIVES_SYNC_CLOSING_H
#define TR_COLLECTIVES_SYNC_CLOSING_H

#include "collectives/sync/sync_internal.h"

/* Does what can be done by now; nothing, if nothing can. Behind an inner step, of a fragment that is on its way. */
tr_status closing_go_on(struct tr_sync *sync, struct tr_error *error);
/* Does the rest, whatever happens on the way: the outer step is taken. TR_ETIMEDOUT: this peer trains on alone (alone.h), and calls it again. */
tr_status closing_wait(struct tr_sync *sync, struct tr_error *error);

#endif
