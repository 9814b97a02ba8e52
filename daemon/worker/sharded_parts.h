/* A checkpoint's shards, while it is written (sharded_parts.c). */
#ifndef TR_DAEMON_WORKER_SHARDED_PARTS_H
#define TR_DAEMON_WORKER_SHARDED_PARTS_H

#include "daemon/checkpoint/mesh_shards.h"
#include "daemon/plan/dealing.h"
#include "daemon/worker/saver.h"

struct trainer;

/* By shard, what a checkpoint is written from. */
struct sharded_parts {
	struct mesh_shards shards;
	struct dealing dealing;
	struct optim_arrays *arrays; /* NULL: there is none */
	struct optim_arrays
	    from; /* of these this worker's own shard (a bit each) is still to be copied: */
	unsigned to_copy;
	uint32_t own;
};

/* What was gathered, once it has come, is the saver's. TR_OK too where no checkpoint is begun: an event says why. */
tr_status sharded_start_checkpoint(struct trainer *t, struct tr_error *error);
/* s->staged and this worker's own shard as *parts, to be written from, which is s->lent until it is taken back. */
tr_status sharded_lend_parts(struct trainer *t, struct saver_parts *parts, struct tr_error *error);
void sharded_take_back_parts(struct trainer *t);
/* What of this worker's own shard changes with the next step. */
void sharded_copy_own(struct sharded_parts *parts);
void sharded_drop_parts(struct trainer *t); /* where its memory ends */

#endif
