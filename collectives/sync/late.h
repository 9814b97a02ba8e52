/* A merge that comes when the parameters have moved on since their movement was taken: what was done meanwhile is kept. The outer step is taken, and
 * the parameters move by what it changed under them:
 *
 *	to = to + (1 - alpha) (theta_new - to_taken)           (to_taken: as they were when the movement was taken)
 *
 * which with no step in between is the ordinary merge. What was done since goes with the next movement, so nothing of it is dropped, nor counted twice.
 * For members that were cut off (alone.h), and with `carry` for all merges with an overlap; there alpha is 0.
 *
 * Formulas: local updates that go on while an average is on its way, carried over to it, are delayed averaging (DaSGD, arXiv 2006.00441); as
 * asynchronous local SGD merges a late movement into newer outer parameters (arXiv 2401.09135, section 3). Not for others; called by closing.c
 * and sync.c. */
#ifndef TR_COLLECTIVES_SYNC_LATE_H
#define TR_COLLECTIVES_SYNC_LATE_H

#include "collectives/sync/sync_internal.h"

/* Before the outer step, when the movement is this peer's again: if this merge is one, turns the movement into where the parameters were when it was taken. */
void late_recall(struct tr_sync *sync);
/* After the outer step, at the merge; false: it is an ordinary one. */
bool late_merge(struct tr_sync *sync);

#endif
