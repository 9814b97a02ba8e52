/* Moments by pieces (ZeRO-1; daemon/plan/owners.h says who holds which, sharded_owners.c what is on its way when). Without it there is nothing to do. */
#ifndef TR_DAEMON_WORKER_SHARDED_OWNERS_H
#define TR_DAEMON_WORKER_SHARDED_OWNERS_H

#include "common/error.h"
#include "daemon/plan/owners.h"

struct sharded;
struct trainer;

/* Numbers of an array of this shard. */
size_t sharded_numbers(const struct sharded *s, uint32_t shard);
/* Owners of each piece, where the table of ranks says which pieces are held: of replicas that train apart it does not (sharded_apart_owners.c), and without ZeRO-1; then 0. */
uint32_t sharded_table_owners(const struct sharded *s);

/* What has to come before the round's work; s->lost, if nobody holds some of it. */
tr_status sharded_plan_moments(struct trainer *t, struct tr_error *error);
/* Instead: who gives parts of its shard to another mesh (s->moves) gets all of the shard's. Those in the table of the mesh in force, s->next. */
tr_status sharded_plan_whole_moments(struct trainer *t, struct tr_error *error);
/* What peer `to` does not hold of a shard's moments, by this table, comes to it too. */
tr_status sharded_plan_whole(const struct sharded *s, struct owners_plan *plan,
    const struct ranks *ranks, uint32_t to, uint32_t shard, struct tr_error *error);
tr_status sharded_submit_moments(struct trainer *t, struct tr_error *error);
tr_status sharded_wait_moments(struct trainer *t, struct tr_error *error);
/* Of the pieces that newcomers get. */
tr_status sharded_submit_pieces_moments(struct trainer *t, struct tr_error *error);
tr_status sharded_wait_pieces_moments(struct trainer *t, struct tr_error *error);
/* To s->staged of who writes. */
tr_status sharded_submit_gathered_moments(struct trainer *t, struct tr_error *error);
tr_status sharded_wait_gathered_moments(struct trainer *t, struct tr_error *error);
/* Those that this worker works with are zeros, or some of them. */
void sharded_clear_moments(struct trainer *t);
void sharded_clear_range(struct trainer *t, size_t first, size_t end);
/* A round is committed, and s->next says what is held: pages of the rest are the system's, but of a shard that was read and that training has not begun with yet. */
void sharded_tidy_moments(struct trainer *t);

#endif
