/* Which moments of replicas that train apart there were when a replica began, or the mesh was made anew: none are lost that could be kept (daemon/worker/sharded_apart_moments.c). */
#include "tests/sim/sharded/apart.h"

/* Of moments of a mesh of several copies: which are cut over them. */
struct cut {
	uint32_t shards, copies, owners; /* owners 0: none are */
};

static struct cut cut_of(const struct play *play, const struct mesh *mesh, uint32_t copies)
{
	uint32_t owners = play->what.owners;
	return (struct cut){ ranks_shards(mesh), copies, owners < copies ? owners : 0 };
}

/* What a worker of copy `copy` has of a shard; RANKS_NONE: all of it. */
static void mark(const struct cut *cut, uint32_t shard, uint32_t copy, bool *there)
{
	for (uint32_t piece = 0; piece < cut->copies; piece++)
		if (cut->owners == 0 || copy == RANKS_NONE ||
		    (piece + cut->copies - copy) % cut->copies < cut->owners)
			there[shard * cut->copies + piece] = true;
}

/* Does the roster have moments of this lineage of each shard, all pieces? `replica` RANKS_NONE: in any replica, of the mesh that is left. */
static bool is_whole(const struct sharded *s, uint32_t replica, int64_t lineage,
    const struct cut *cut)
{
	bool there[TR_GROUP_PEERS_MAX] = { false };
	uint32_t count = 0;
	for (uint32_t i = 0; i < s->next.count && lineage != 0; i++) {
		const struct apart_word *word = &s->apart->roster[i];
		uint32_t rank = s->next.peers[i].rank;
		bool counts = word->lineage == lineage;
		uint32_t shard = replica == RANKS_NONE ? (uint32_t)word->first - 1
		    : rank != RANKS_NONE               ? ranks_shard(&s->next.mesh, rank)
		                                       : 0;
		if (replica != RANKS_NONE)
			counts = counts && ranks_replica(&s->next, i) == replica;
		uint32_t copy = replica != RANKS_NONE ? ranks_copy(&s->next, i)
		    : word->piece > 0                 ? (uint32_t)word->piece - 1
		                                      : RANKS_NONE;
		if (counts)
			mark(cut, shard, copy, there);
	}
	for (uint32_t i = 0; i < cut->shards * cut->copies; i++)
		count += there[i];
	return count == cut->shards * cut->copies;
}

/* A replica begins with fresh moments only where some shard's are lacking, or a piece of them. */
void apart_check_fresh(const struct tr_group *g)
{
	const struct sharded *s = g->trainer->sharded;
	uint32_t replica = ranks_replica(&s->next, s->self);
	struct cut cut = cut_of(g->play, &s->next.mesh, (uint32_t)s->next.copies);
	for (uint32_t i = 0; i < s->next.count; i++)
		if (s->apart->roster[i].age > 0 &&
		    is_whole(s, replica, s->apart->roster[i].lineage, &cut))
			sim_violation(g->sim,
			    "S2: n%u begins with fresh moments, where its replica has some of each "
			    "shard",
			    g->number);
}

void apart_check_carried(const struct tr_group *g)
{
	const struct sharded *s = g->trainer->sharded;
	const struct apart_carried *carried = &s->apart->carried;
	struct cut cut = cut_of(g->play, &s->shards.mesh, (uint32_t)g->play->copies);
	for (uint32_t i = 0; i < s->next.count; i++) {
		const struct apart_word *word = &s->apart->roster[i];
		bool newer = carried->lineage == 0 || (uint64_t)word->used > carried->used;
		if (newer && is_whole(s, RANKS_NONE, word->lineage, &cut))
			sim_violation(g->sim,
			    "S2: moments that were used at step %lu are carried into another mesh, "
			    "not those of step %lu",
			    (unsigned long)carried->used, (unsigned long)word->used);
	}
}
