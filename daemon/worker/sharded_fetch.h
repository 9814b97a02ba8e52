/* Of the checkpoint of a step that shards are read from, or that training goes back to: on whose disks its files are, and how who lacks them gets them. One thread, the trainer's. */
#ifndef TR_DAEMON_WORKER_SHARDED_FETCH_H
#define TR_DAEMON_WORKER_SHARDED_FETCH_H

#include <stdbool.h>
#include <stdint.h>

#include "collectives/coll.h"
#include "common/error.h"

struct manifest;
struct trainer;

/* What came of the last sharded_fetch. */
struct sharded_files {
	int64_t which; /* of those of that step is meant (sharded_which); 0: nobody has one */
	bool has;      /* it is on this worker's disk */
	bool not_given; /* this worker was to get a copy, or to give it, and it could not be given: */
	struct tr_error cannot_give; /* why this worker cannot */
	int64_t spoilt;  /* of this one another copy is needed, as what is here cannot be used */
	int64_t renewed; /* of this one it came */
};

/* Before any of them reads the checkpoint of this step, which is at `path` for this worker ("": there is none, and nothing happens): who lacks it gets a copy from who has it. Where nobody has it, or it
 * cannot be copied, nothing happens: reading it says so. */
tr_status sharded_fetch(struct trainer *t, const struct tr_round *round, uint64_t step,
    const char *path, struct tr_error *error);
/* Which checkpoint of its step it is: more, the later its round. */
int64_t sharded_which(const struct manifest *manifest);
/* Of who cannot use the checkpoint that sharded_fetch was asked for, and says why: whether it could use a copy from another disk. Once, unless nothing came for want of a giver. */
bool sharded_could_use_another(struct trainer *t, tr_status why);

#endif
