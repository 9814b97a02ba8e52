/* Merges that come when the parameters have moved on since their movement was taken: what was done meanwhile is kept. The outer step is taken, and the parameters move by what it changed under them:
 *
 *	to = to + (1 - alpha) (theta_new - base)
 *
 * where base is where training went on from when the movement was taken. What was done since goes with the next movement, so nothing of it is dropped, nor counted twice.
 *
 * For members that were cut off (alone.h) base is where the parameters were, theta - d_m: with no step in between this is the ordinary merge.
 *
 * With `carry`, of all merges with an overlap, it is where the outer step would bring them if all had moved as this peer has: training goes on from there at once,
 *
 *	base = OUTER(theta, v, d_m)          to = base, at the take
 *
 * so the steps until the merge are taken near where the group will be, and not as far behind as momentum throws the outer parameters forward (eta / (1 - mu) movements in the long run). In the mean over peers of equal weight base is
 * theta_new, but for what coding loses, since OUTER is linear in d: no direction is favoured, and what each is beside it is the noise of its own movement, which the merge takes away. In 2,432 steps of two workers (a PyTorch model of it, seeds 1 and 2, eta 0.7, an overlap of 10 of 32) the loss was 1.31 and 1.28 % above
 * DiLoCo's, where carrying from theta - d_m had 2.04 and 1.86 %; with a base that knew the others' movements it was what it is without an overlap (0.38 %). At full length: docs/results.
 *
 * Momentum that changed in memory since this peer wrote it would be in the base, and put right by the merge: then training goes on from where it is, and the base is theta - d_m.
 *
 * Formulas: local updates that go on while an average is on its way, carried over to it, are delayed averaging (DaSGD, arXiv 2006.00441); as
 * asynchronous local SGD merges a late movement into newer outer parameters (arXiv 2401.09135, section 3); that one's own share of an outer step needs no waiting for is eager's (arXiv 2502.12996). Not for others; called by alone.c, closing.c
 * and sync.c. */
#ifndef TR_COLLECTIVES_SYNC_LATE_H
#define TR_COLLECTIVES_SYNC_LATE_H

#include "collectives/sync/sync_internal.h"

/* When a movement was taken, and is in delta: with `carry` training goes on from where this peer foresees its merge. */
void late_foresee(struct tr_sync *sync);
/* Before the outer step, when the movement is this peer's again: if this merge is a late one, turns the movement into its base. */
void late_recall(struct tr_sync *sync);
/* After the outer step, at the merge; false: it is an ordinary one. */
bool late_merge(struct tr_sync *sync);

/* Whether what this peer has done since the take of the fragment that is on its way is apart from its movement. */
bool late_apart(const struct tr_sync *sync);
/* That, as base - to, into `movement`, which has room for all parameters. */
void late_since(const struct tr_sync *sync, float *movement);

#endif
