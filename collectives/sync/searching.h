/* What a member does for the search for the learning rate (search.h): it trains apart in a race, and tells its loss. Not for others; called by
 * sync.c, closing.c and create.c. */
#ifndef TR_COLLECTIVES_SYNC_SEARCHING_H
#define TR_COLLECTIVES_SYNC_SEARCHING_H

#include "collectives/sync/sync_internal.h"

tr_status searching_create(struct tr_sync *sync, struct tr_error *error);

/* When a round is begun, or training: whether it is of a race, and the scale of the rate in it. False: not of a race. */
bool searching_choose(struct tr_sync *sync);
/* At the take: what this peer tells with it; true: its movement goes into the merge. */
bool searching_take(struct tr_sync *sync);
/* Hands over what is told. */
tr_status searching_submit(struct tr_sync *sync, unsigned flags, struct tr_error *error);
/* At the commit: what all told is weighed, and said if it ended a race. `given`: somebody's movement is in the merge. */
void searching_commit(struct tr_sync *sync, uint64_t step, bool given);
/* In the merge of a round of a race. True: it ends here, and everybody's parameters are the outer ones. */
bool searching_race_ends(const struct tr_sync *sync);

#endif
