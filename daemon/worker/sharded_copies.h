/* Copies of the mesh that make up a replica which trains apart (mesh.copies; sharded_copies.c says how they train and merge together). */
#ifndef TR_DAEMON_WORKER_SHARDED_COPIES_H
#define TR_DAEMON_WORKER_SHARDED_COPIES_H

#include "common/error.h"
#include "daemon/plan/owners.h"

struct sharded;
struct sharded_scope;
struct trainer;

/* Of the mesh, in a replica. */
uint32_t sharded_copies(const struct sharded *s);
/* Sequences [*first, *last) of its replica's `share` that this worker's copy computes. */
void sharded_copy_samples(const struct sharded *s, uint64_t share, uint64_t *first, uint64_t *last);
/* Whether this worker says what all copies of its replica have. */
bool sharded_speaks_for_replica(const struct trainer *t);
/* Of this worker's replica: all of its stage; those with the first stage, or the last, and the same part of the width. */
void sharded_copies_stage(const struct sharded *s, struct sharded_scope *scope);
void sharded_copies_ends(const struct sharded *s, struct sharded_scope *scope);
/* Of numbers [first, end) those that a copy merges, and those that this worker's does; with one copy all. */
struct owners_range sharded_copy_part(const struct sharded *s, uint32_t copy, size_t first,
    size_t end);
struct owners_range sharded_own_part(const struct sharded *s, size_t first, size_t end);
/* Its part of `range` was merged (TAG_MERGE + which), in place: gets the others'. With one copy there is nothing to do. */
tr_status sharded_gather_parts(struct trainer *t, unsigned which, float *numbers,
    struct owners_range range, struct tr_error *error);
/* All copies have them: their memory. */
tr_status sharded_release_parts(struct trainer *t, unsigned which, struct owners_range range,
    struct tr_error *error);
tr_status sharded_barrier(struct trainer *t, uint32_t tag, const struct sharded_scope *scope,
    struct tr_error *error);
/* Submitted: member `root` of the scope gives these numbers to its others. */
tr_status sharded_broadcast(struct trainer *t, uint32_t tag, float *numbers, size_t count,
    const struct sharded_scope *scope, unsigned root, struct tr_error *error);

/* ---- sharded_move.c ---- */

/* All else is submitted: where other copies of its replica wait for what comes to this worker, which has not waited for it, they get it now. */
tr_status sharded_hand_on(struct trainer *t, struct tr_error *error);

#endif
