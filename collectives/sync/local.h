/* The caller's tensors, in which this peer trains: filled from the outer parameters, and what is taken of them for a merge. Not for others than sync.c. */
#ifndef TR_COLLECTIVES_SYNC_LOCAL_H
#define TR_COLLECTIVES_SYNC_LOCAL_H

#include "collectives/sync/sync_internal.h"

/* All of them, from `from`. */
void local_fetch(struct tr_sync *s, const float *from);
/* From where this peer trains on if it has nothing of its own: the outer parameters, eager with its lead. */
void local_begin(struct tr_sync *s);
/* Those of the fragment under way: alpha of them, the rest of the outer ones. */
void local_merge(struct tr_sync *s);
/* How far they got in it, from where this peer started, into s->delta. */
void local_delta(struct tr_sync *s, const float *from, float weight);
/* What would ruin everybody's outer parameters is not given: this peer goes on as one that has just joined, and s->event says so. True: so it is. */
bool local_drop_unsound(struct tr_sync *s);

/* Eager: this peer's newest movement in place of the one before it, which the others' result will bring; `start` moves with it. */
void local_run_ahead(struct tr_sync *s, float before);
/* Training goes on from the outer parameters and what this peer is ahead of them. */
void local_start_ahead(struct tr_sync *s);

#endif
