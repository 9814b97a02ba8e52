/* Checkpoints in shards (checkpoint.sharded; daemon/checkpoint/checkpoint_shards.h): of one replica each worker writes its own shard, in the background, and nothing goes to another one for it.
 *
 * That all of them are written is a matter of the group. The round that begins a checkpoint says who writes (struct saving, part of the common state), and while one is on its way all rounds have
 * a small op more, in which each writer says how far it is. When all have said that their file is on the disk, the commit says so to all, and the first writer makes a checkpoint of them; that one is
 * known by `saved`, as any other.
 *
 *	begun       all shards are being written            commit of the round that begins it
 *	whole       the first writer publishes              commit of a round in which all have said `written`
 *	nothing     it is known to be whole (saved);        commit of a round that tells it
 *	            or it is given up, and what was written of it removed: somebody failed, or is lost, or had begun with other writers
 *
 * One that would begin while another is on its way is left out. After the last step rounds do nothing else until the last one is whole: one that was given up since workers have changed begins anew.
 *
 * One kill: pp 2, the second writer dies while it writes. The next round's table does not have it: the commit gives the checkpoint up, the first writer's file is removed, the one before it stays. One
 * kill of the first writer while it publishes: the hidden folder has got its name, and the next who looks finds a whole checkpoint; or it has not, and the next writer clears it away. */
#ifndef TR_DAEMON_WORKER_SHARDED_SAVING_H
#define TR_DAEMON_WORKER_SHARDED_SAVING_H

#include <stdbool.h>
#include <stdint.h>

#include "collectives/coll.h"
#include "common/digest.h"
#include "common/limits.h"
#include "daemon/checkpoint/manifest.h"

struct saver_result;
struct sharded;
struct trainer;

/* Part of the group's state. */
struct saving {
	uint64_t key; /* 0: there is none */
	uint64_t step;
	uint64_t whole;
	uint64_t count, writers[TR_GROUP_PEERS_MAX]; /* by shard, their ids */
};

enum saving_stage {
	SAVING_UNDER_WAY,
	SAVING_WRITTEN,
	SAVING_FAILED,
	SAVING_MISSED /* it was not begun: there was something else to write, or it had begun with other writers */
};

/* What this worker has of one. */
struct saving_own {
	uint64_t key, step; /* key 0: nothing */
	enum saving_stage stage;
	bool dropped; /* it was given up: its file goes when it is written */
	struct tr_digest digest;
	struct manifest manifest; /* of the first writer */
};

/* What the saver's thread does, from when it begins until it has ended, whatever becomes of the above. */
struct saving_job {
	uint64_t key, step;
	bool publishes;
	struct tr_digest digest;
	struct manifest manifest;
};

/* What its writer says of a shard, i64 in the group's memory. */
struct saving_word {
	int64_t stage, low, high;
};

/* A round has begun: whether it begins a checkpoint in shards, or leaves one out. After s->gathers. */
void sharded_derive_saving(struct trainer *t, const struct tr_round *round);
/* What this worker is to write of it. TR_OK too where it is not begun: an event says why. */
tr_status sharded_start_shard(struct trainer *t, struct tr_error *error);
/* After the last step: what this worker writes is waited for, before it says how far it is. */
void sharded_await_saving(struct trainer *t);
tr_status sharded_submit_saving(struct trainer *t, const struct tr_round *round,
    struct tr_error *error);
/* The round is committed. Before s->next is the state's. */
void sharded_end_saving(struct trainer *t, const struct tr_round *round);
/* What the saver has ended with: true if that is no checkpoint. */
bool sharded_shard_ended(struct trainer *t, const struct saver_result *result);
/* After the last step: the last one has still to be written. */
bool sharded_saves_last(const struct trainer *t);

#endif
