/* Sums over a tensor-parallel group as a binary tree, by the place along tp whatever the peers' ids are: at each level with the worker whose place differs in one bit. Of two numbers there is one
 * sum. So the levels are ops of scopes of two, each in a buffer of its own: who was met at one level may still read it while the next one is under way, and is done with it when it comes to that level
 * again (model_tensor.exchange_too). */
#include <string.h>

#include "daemon/worker/trainer_inside.h"

void sharded_pairs_begin(struct sharded_strict *strict)
{
	strict->meetings = 0;
}

static unsigned levels_of(const struct sharded *s)
{
	unsigned levels = 0;
	while (1u << levels < s->shards.mesh.size[MESH_TP])
		levels++;
	return levels;
}

/* Index of the worker at another place along tp of this replica. */
static uint32_t beside(const struct sharded *s, uint32_t tp)
{
	struct mesh_at at = mesh_at(&s->shards.mesh, s->rank);
	at.at[MESH_TP] = tp;
	return ranks_at(&s->next, mesh_rank(&s->shards.mesh, at));
}

static float *buffer_of(const struct sharded *s, unsigned level)
{
	return s->strict->pairs[level][s->strict->meetings % 2];
}

static bool meet_pair(struct sharded_exchange *x, unsigned level, size_t count,
    enum tr_collective collective, enum tr_reduce how)
{
	const struct sharded *s = x->sharded;
	struct sharded_strict *strict = s->strict;
	uint32_t other = beside(s, s->shard.rank ^ 1u << level);
	struct sharded_scope pair = { .count = 2 };
	pair.members[0] = other < s->self ? other : s->self;
	pair.members[1] = other < s->self ? s->self : other;
	uint32_t tag = 0;
	bool good = sharded_exchange_op(x, &pair, buffer_of(s, level), count, collective, how, &tag);
	if (good && strict->meetings > 0)
		x->status = tr_release(x->group, strict->pair_tags[level], &x->error);
	strict->pair_tags[level] = tag;
	return good && x->status == TR_OK;
}

static bool meet_all(struct sharded_exchange *x, float *data, size_t count, enum tr_reduce how)
{
	const struct sharded *s = x->sharded;
	for (unsigned level = 0; level < levels_of(s); level++) {
		float *buffer = buffer_of(s, level);
		memcpy(buffer, data, count * sizeof(*data));
		if (!meet_pair(x, level, count, TR_ALL_REDUCE, how))
			return false;
		memcpy(data, buffer, count * sizeof(*data));
	}
	s->strict->meetings++;
	return true;
}

bool sharded_pairs_sum(void *arg, float *data, size_t count)
{
	return meet_all(arg, data, count, TR_SUM);
}

bool sharded_pairs_maximum(void *arg, float *data, size_t count)
{
	return meet_all(arg, data, count, TR_MAX);
}

/* Each level halves what a worker goes on with: of the blocks that are left, those whose numbers agree with its place in one more bit, from the lowest on. They lie one behind the other at `from`; in the
 * op's memory those that the other goes on with are its half. */
bool sharded_pairs_scatter(void *arg, float *data, size_t count)
{
	struct sharded_exchange *x = arg;
	const struct sharded *s = x->sharded;
	uint32_t place = s->shard.rank, left = s->shards.mesh.size[MESH_TP];
	size_t block = count / left;
	const float *from = data;
	for (unsigned level = 0; level < levels_of(s); level++, left /= 2) {
		bool above = beside(s, place ^ 1u << level) < s->self;
		float *buffer = buffer_of(s, level),
		      *half[2] = { buffer, buffer + left / 2 * block };
		for (uint32_t i = 0; i < left; i++) {
			bool ours = (i & 1) == (place >> level & 1);
			memcpy(half[ours == above] + i / 2 * block, from + i * block,
			    block * sizeof(*data));
		}
		if (!meet_pair(x, level, left * block, TR_REDUCE_SCATTER, TR_SUM))
			return false;
		from = half[above];
	}
	memcpy(data + place * block, from, block * sizeof(*data));
	s->strict->meetings++;
	return true;
}

/* Of runs of blocks, twice as long at each level, those beside ours. Who has which half of the op's memory goes by index. */
bool sharded_pairs_gather(void *arg, float *data, size_t count)
{
	struct sharded_exchange *x = arg;
	const struct sharded *s = x->sharded;
	size_t run = count / s->shards.mesh.size[MESH_TP];
	for (unsigned level = 0; level < levels_of(s); level++, run *= 2) {
		uint32_t ours = s->shard.rank >> level,
		         other = beside(s, s->shard.rank ^ 1u << level);
		float *buffer = buffer_of(s, level);
		size_t mine = other < s->self ? run : 0;
		memcpy(buffer + mine, data + ours * run, run * sizeof(*data));
		if (!meet_pair(x, level, 2 * run, TR_ALL_GATHER, TR_SUM))
			return false;
		memcpy(data + (ours ^ 1u) * run, buffer + (run - mine), run * sizeof(*data));
	}
	s->strict->meetings++;
	return true;
}
