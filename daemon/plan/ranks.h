/* Which peer has which rank of a job's mesh while peers come and go. Pure: all contributors of a round know the same table and the same ids, and so make the
 * same next table.
 *
 * The mesh stays the job's. A replica is dp's unit: pp x tp ranks that together hold a model. One that lacks a member is not there, its other members are
 * spares like any peer without a rank; there are as many replicas as contributors suffice for. Who stands in a whole replica stays where it is.
 *
 * Where replicas train apart (mesh.copies: d) a replica is d such sets of workers, its *copies*: dp is divided in runs of d, replica dp / d, copy dp % d. It is there
 * if all its copies are whole. Elsewhere d is 1, and a replica its only copy.
 *
 * What a rank needs to work are the numbers of its shard (its place along pp and tp): a table says who holds which, and ranks_transfers who sends them to whom.
 *
 *	ranks_next(&now, contributors, count, &next);
 *	n = ranks_transfers(&next, transfers, &lost);    // lost: nobody holds it
 *	...                                              // a round: transfers, a step
 *	ranks_settle(&next, true);                       // committed: next is what all know now
 */
#ifndef TR_DAEMON_PLAN_RANKS_H
#define TR_DAEMON_PLAN_RANKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/limits.h"
#include "daemon/plan/mesh.h"

#define RANKS_NONE UINT32_MAX
/* Of a bit for each place along dp that a replica may have. */
#define RANKS_PLACES_WORDS ((TR_GROUP_PEERS_MAX + 63) / 64)

/* Of the moments of a shard, cut into `of` pieces: those that the worker of replica `place` owns (owners.h). of 0: none. */
struct ranks_part {
	uint32_t of, place;
};

struct ranks_peer {
	uint64_t peer;
	uint32_t rank;          /* RANKS_NONE: a spare */
	uint32_t shard;         /* whose numbers, as they are now, it holds; RANKS_NONE */
	struct ranks_part part; /* with ZeRO-1, of the shard's moments; else it holds them all */
};

/* Of the contributors of a round, by their index. Without padding: equal tables are equal bytes. */
struct ranks {
	struct mesh mesh;
	uint32_t count;
	uint64_t copies; /* of the mesh, that make up a replica: a divisor of dp; 1 by ranks_init */
	struct ranks_peer peers[TR_GROUP_PEERS_MAX]; /* ascending by id; behind them zeros */
};

/* By index. */
struct ranks_transfer {
	uint32_t from, to, shard;
};

/* Nobody is there and holds anything. */
void ranks_init(const struct mesh *mesh, struct ranks *ranks);

static inline uint32_t ranks_shards(const struct mesh *mesh)
{
	return mesh->size[MESH_PP] * mesh->size[MESH_TP];
}
/* Place of a rank along pp and tp, as one number. */
uint32_t ranks_shard(const struct mesh *mesh, uint32_t rank);

/* `contributors`: ids, ascending, at most TR_GROUP_PEERS_MAX. Who gets a new rank may not hold its shard yet. `next` may not be `now`. */
void ranks_next(const struct ranks *now, const uint64_t *contributors, size_t count,
    struct ranks *next);

/* The same, with no more replicas than the largest power of two of them (strict.h). */
void ranks_next_doubled(const struct ranks *now, const uint64_t *contributors, size_t count,
    struct ranks *next);

/* Either of them (`doubled`: the second), with no more than `most` replicas. */
void ranks_next_most(const struct ranks *now, const uint64_t *contributors, size_t count,
    bool doubled, uint32_t most, struct ranks *next);
/* With replicas at these places alone. */
void ranks_next_at(const struct ranks *now, const uint64_t *contributors, size_t count,
    const uint64_t places[RANKS_PLACES_WORDS], struct ranks *next);

/* Who has to get its shard, and from whom: another copy of its replica, or of several holders those that send least. Where several copies of a replica get a shard from elsewhere the first of them does, and hands it on
 * to the others, once it has it (its own transfer is before theirs). Room for ranks->count; returns how many. *lost: the first shard that
 * is needed and that nobody holds, RANKS_NONE: there is none; then who needs it is not in the list. */
size_t ranks_transfers(const struct ranks *ranks, struct ranks_transfer *transfers, uint32_t *lost);

/* Is one of these to peer `index`? */
bool ranks_gets(const struct ranks_transfer *transfers, size_t count, uint32_t index);

/* The round is committed: who has a rank holds its shard, and of the moments its part. `stepped`: which is another one now than the spares hold. */
void ranks_settle(struct ranks *ranks, bool stepped);
/* What is held is of no use any more: training goes on from elsewhere. */
void ranks_forget(struct ranks *ranks);

/* Workers that make up a replica. */
uint32_t ranks_members(const struct ranks *ranks);
/* Replicas that are there, and which of them, from 0, peer `index` stands in: RANKS_NONE for a spare. */
uint32_t ranks_replicas(const struct ranks *ranks);
/* Their places along dp, of so many copies each, ascending. Returns how many. */
uint32_t ranks_there(const struct ranks *ranks, uint32_t replicas[TR_GROUP_PEERS_MAX]);
/* The same as bits. */
void ranks_places(const struct ranks *ranks, uint64_t places[RANKS_PLACES_WORDS]);
uint32_t ranks_replica(const struct ranks *ranks, uint32_t index);
/* Which copy of its replica a peer is in; RANKS_NONE for a spare. */
uint32_t ranks_copy(const struct ranks *ranks, uint32_t index);
/* Its number among its replica's workers, copy by copy, shard by shard; RANKS_NONE for a spare. And the worker of replica `replica` (ranks_replica) with a number. */
uint32_t ranks_number(const struct ranks *ranks, uint32_t index);
uint32_t ranks_member(const struct ranks *ranks, uint32_t replica, uint32_t number);

/* What peer `index` owns of its shard's moments in a round with this table; nothing, if it has no rank. Where a replica is several copies they are what moments are cut over, and each replica has its own. */
struct ranks_part ranks_part(const struct ranks *ranks, uint32_t index);

/* Indexes, ascending, of those that differ from peer `index` (which has a rank) along `axis` alone, itself included. Returns how many. */
uint32_t ranks_along(const struct ranks *ranks, enum mesh_axis axis, uint32_t index,
    uint32_t *members);
/* Those of its shard in its own replica, the copies of it; and those that are the same copy of it, one in each replica: with whom it merges. Together they are those along dp. */
uint32_t ranks_copies(const struct ranks *ranks, uint32_t index, uint32_t *members);
uint32_t ranks_merges(const struct ranks *ranks, uint32_t index, uint32_t *members);
/* With whom peer `index` (which has a rank, in a whole replica) exchanges rows at another stage of its replica: the one that is as far along tp, counted by index, as it is. For
 * blocks of a scope's op, and so rows of sequence parallelism, are counted by index too. */
uint32_t ranks_across(const struct ranks *ranks, uint32_t index, uint32_t stage);
/* Of all of its replica, all copies of it. */
uint32_t ranks_beside(const struct ranks *ranks, uint32_t index, uint32_t *members);
/* The first that holds this shard; RANKS_NONE. */
uint32_t ranks_holder(const struct ranks *ranks, uint32_t shard);
/* The worker of replica `replica` (ranks_replica) with this shard's rank, in its first copy; RANKS_NONE. */
uint32_t ranks_worker_of(const struct ranks *ranks, uint32_t shard, uint32_t replica);
/* A bit for each of the first 64 places of replicas along dp whose workers are all there, and the same in both tables. */
uint64_t ranks_stood(const struct ranks *before, const struct ranks *ranks);
/* The first worker of replica `replica` with this shard that is the same in both; RANKS_NONE. And a bit for each of these places of replicas each of whose shards has one: whole or not, what its copies made
 * together is all there. */
uint32_t ranks_stood_with(const struct ranks *before, const struct ranks *ranks, uint32_t replica,
    uint32_t shard);
uint64_t ranks_stood_shards(const struct ranks *before, const struct ranks *ranks);
/* The replica (ranks_replica) that a checkpoint is taken from, of all its shards: the first that is at one of `places` along dp, or the first. For where replicas train apart each has moments of its own, and only its
 * workers' fit together; those of who has just come are zeros. RANKS_NONE: there is none. */
uint32_t ranks_source(const struct ranks *ranks, uint64_t places);
/* Index of the peer with this rank; RANKS_NONE. */
uint32_t ranks_at(const struct ranks *ranks, uint32_t rank);
/* The same peers, whatever their ranks; at the same ranks, whatever they hold. */
bool ranks_same_peers(const struct ranks *a, const struct ranks *b);
bool ranks_same(const struct ranks *a, const struct ranks *b);
/* Index of a peer; RANKS_NONE. */
uint32_t ranks_find(const struct ranks *ranks, uint64_t peer);

#endif
