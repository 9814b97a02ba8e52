#include "daemon/plan/ranks.h"

#include <assert.h>
#include <string.h>

#include "daemon/plan/strict.h"

void ranks_init(const struct mesh *mesh, struct ranks *ranks)
{
	memset(ranks, 0, sizeof(*ranks));
	ranks->mesh = *mesh;
}

uint32_t ranks_shard(const struct mesh *mesh, uint32_t rank)
{
	struct mesh_at at = mesh_at(mesh, rank);

	return at.at[MESH_PP] * mesh->size[MESH_TP] + at.at[MESH_TP];
}

uint32_t ranks_find(const struct ranks *r, uint64_t peer)
{
	for (uint32_t i = 0; i < r->count; i++)
		if (r->peers[i].peer == peer)
			return i;
	return RANKS_NONE;
}

uint32_t ranks_at(const struct ranks *r, uint32_t rank)
{
	for (uint32_t i = 0; i < r->count; i++)
		if (r->peers[i].rank == rank)
			return i;
	return RANKS_NONE;
}

/* ---- the next table ---- */

static void keep_contributors(const struct ranks *now, const uint64_t *contributors, size_t count,
    struct ranks *next)
{
	ranks_init(&now->mesh, next);
	for (size_t i = 0; i < count; i++) {
		uint32_t before = ranks_find(now, contributors[i]);
		next->peers[next->count++] = before != RANKS_NONE
		    ? now->peers[before]
		    : (struct ranks_peer){ contributors[i], RANKS_NONE, RANKS_NONE, { 0, 0 } };
	}
}

static uint32_t dp_of(const struct mesh *mesh, uint32_t rank)
{
	return mesh_at(mesh, rank).at[MESH_DP];
}

static void count_members(const struct ranks *r, uint32_t members[TR_GROUP_PEERS_MAX])
{
	memset(members, 0, TR_GROUP_PEERS_MAX * sizeof(*members));
	for (uint32_t i = 0; i < r->count; i++)
		if (r->peers[i].rank != RANKS_NONE)
			members[dp_of(&r->mesh, r->peers[i].rank)]++;
}

/* As many as there are contributors for. */
static uint32_t replicas_of(const struct ranks *r)
{
	uint32_t enough = r->count / ranks_shards(&r->mesh), most = r->mesh.size[MESH_DP];

	return enough < most ? enough : most;
}

/* Those first that lack least. */
static void choose_replicas(const struct ranks *r, uint32_t replicas,
    bool chosen[TR_GROUP_PEERS_MAX])
{
	uint32_t members[TR_GROUP_PEERS_MAX], most = r->mesh.size[MESH_DP];

	count_members(r, members);
	memset(chosen, 0, TR_GROUP_PEERS_MAX * sizeof(*chosen));
	for (uint32_t n = replicas; n > 0; n--) {
		uint32_t best = RANKS_NONE;
		for (uint32_t dp = 0; dp < most; dp++)
			if (!chosen[dp] && (best == RANKS_NONE || members[dp] > members[best]))
				best = dp;
		chosen[best] = true;
	}
}

/* The first spare that holds `shard`; RANKS_NONE. */
static uint32_t spare_with(const struct ranks *r, uint32_t shard)
{
	for (uint32_t i = 0; i < r->count; i++)
		if (r->peers[i].rank == RANKS_NONE && r->peers[i].shard == shard)
			return i;
	return RANKS_NONE;
}

/* Preferably one that holds nothing: it has room for what it gets. */
static uint32_t spare(const struct ranks *r)
{
	uint32_t idle = spare_with(r, RANKS_NONE);

	for (uint32_t i = 0; i < r->count && idle == RANKS_NONE; i++)
		if (r->peers[i].rank == RANKS_NONE)
			idle = i;
	return idle;
}

static bool is_taken(const struct ranks *r, uint32_t rank)
{
	return ranks_at(r, rank) != RANKS_NONE;
}

static void fill(struct ranks *r, const bool *chosen, bool holders_only)
{
	for (uint32_t rank = 0; rank < mesh_workers(&r->mesh); rank++) {
		if (!chosen[dp_of(&r->mesh, rank)] || is_taken(r, rank))
			continue;
		uint32_t who = holders_only ? spare_with(r, ranks_shard(&r->mesh, rank)) : spare(r);
		if (who != RANKS_NONE)
			r->peers[who].rank = rank;
	}
}

void ranks_next_most(const struct ranks *now, const uint64_t *contributors, size_t count,
    bool doubled, uint32_t most, struct ranks *next)
{
	bool chosen[TR_GROUP_PEERS_MAX];

	assert(now != next && count <= TR_GROUP_PEERS_MAX);
	keep_contributors(now, contributors, count, next);
	uint32_t replicas = replicas_of(next);
	replicas = replicas < most ? replicas : most;
	choose_replicas(next, doubled && replicas > 0 ? strict_power_of_two(replicas) : replicas,
	    chosen);
	for (uint32_t i = 0; i < next->count; i++) {
		uint32_t *rank = &next->peers[i].rank;
		if (*rank != RANKS_NONE && !chosen[dp_of(&next->mesh, *rank)])
			*rank = RANKS_NONE;
	}
	fill(next, chosen, true);
	fill(next, chosen, false);
}

void ranks_next(const struct ranks *now, const uint64_t *contributors, size_t count,
    struct ranks *next)
{
	ranks_next_most(now, contributors, count, false, UINT32_MAX, next);
}

void ranks_next_doubled(const struct ranks *now, const uint64_t *contributors, size_t count,
    struct ranks *next)
{
	ranks_next_most(now, contributors, count, true, UINT32_MAX, next);
}

/* ---- shards ---- */

uint32_t ranks_holder(const struct ranks *r, uint32_t shard)
{
	for (uint32_t i = 0; i < r->count; i++)
		if (r->peers[i].shard == shard)
			return i;
	return RANKS_NONE;
}

static uint32_t donor_of(const struct ranks *r, uint32_t shard, const uint32_t *sends)
{
	uint32_t best = RANKS_NONE;

	for (uint32_t i = 0; i < r->count; i++)
		if (r->peers[i].shard == shard && (best == RANKS_NONE || sends[i] < sends[best]))
			best = i;
	return best;
}

size_t ranks_transfers(const struct ranks *r, struct ranks_transfer *transfers, uint32_t *lost)
{
	uint32_t sends[TR_GROUP_PEERS_MAX] = { 0 };
	size_t count = 0;

	*lost = RANKS_NONE;
	for (uint32_t i = 0; i < r->count; i++) {
		if (r->peers[i].rank == RANKS_NONE)
			continue;
		uint32_t shard = ranks_shard(&r->mesh, r->peers[i].rank);
		if (r->peers[i].shard == shard)
			continue;
		uint32_t from = donor_of(r, shard, sends);
		if (from == RANKS_NONE) {
			*lost = shard < *lost ? shard : *lost;
			continue;
		}
		sends[from]++;
		transfers[count++] = (struct ranks_transfer){ from, i, shard };
	}
	return count;
}

static void hold_nothing(struct ranks_peer *peer)
{
	peer->shard = RANKS_NONE;
	peer->part = (struct ranks_part){ 0, 0 };
}

void ranks_settle(struct ranks *r, bool stepped)
{
	for (uint32_t i = 0; i < r->count; i++) {
		struct ranks_peer *p = &r->peers[i];
		if (p->rank != RANKS_NONE) {
			p->shard = ranks_shard(&r->mesh, p->rank);
			p->part = ranks_part(r, i);
		} else if (stepped) {
			hold_nothing(p);
		}
	}
}

void ranks_forget(struct ranks *r)
{
	for (uint32_t i = 0; i < r->count; i++)
		hold_nothing(&r->peers[i]);
}

/* ---- groups ---- */

uint32_t ranks_replicas(const struct ranks *r)
{
	uint32_t ranked = 0;

	for (uint32_t i = 0; i < r->count; i++)
		ranked += r->peers[i].rank != RANKS_NONE;
	return ranked / ranks_shards(&r->mesh);
}

uint32_t ranks_replica(const struct ranks *r, uint32_t index)
{
	uint32_t members[TR_GROUP_PEERS_MAX], before = 0;

	if (r->peers[index].rank == RANKS_NONE)
		return RANKS_NONE;
	count_members(r, members);
	for (uint32_t dp = 0; dp < dp_of(&r->mesh, r->peers[index].rank); dp++)
		before += members[dp] > 0;
	return before;
}

struct ranks_part ranks_part(const struct ranks *r, uint32_t index)
{
	if (r->peers[index].rank == RANKS_NONE)
		return (struct ranks_part){ 0, 0 };
	return (struct ranks_part){ ranks_replicas(r), ranks_replica(r, index) };
}

uint32_t ranks_worker_of(const struct ranks *r, uint32_t shard, uint32_t replica)
{
	for (uint32_t i = 0; i < r->count; i++)
		if (r->peers[i].rank != RANKS_NONE &&
		    ranks_shard(&r->mesh, r->peers[i].rank) == shard &&
		    ranks_replica(r, i) == replica)
			return i;
	return RANKS_NONE;
}

uint32_t ranks_there(const struct ranks *r, uint32_t replicas[TR_GROUP_PEERS_MAX])
{
	uint32_t members[TR_GROUP_PEERS_MAX], count = 0;

	count_members(r, members);
	for (uint32_t dp = 0; dp < r->mesh.size[MESH_DP]; dp++)
		if (members[dp] > 0)
			replicas[count++] = dp;
	return count;
}

uint64_t ranks_stood(const struct ranks *before, const struct ranks *r)
{
	uint32_t shards = ranks_shards(&r->mesh), stood[TR_GROUP_PEERS_MAX] = { 0 };
	uint64_t places = 0;

	for (uint32_t i = 0; i < r->count; i++) {
		const struct ranks_peer *peer = &r->peers[i];
		uint32_t was = ranks_find(before, peer->peer);
		if (peer->rank != RANKS_NONE && was != RANKS_NONE &&
		    before->peers[was].rank == peer->rank)
			stood[dp_of(&r->mesh, peer->rank)]++;
	}
	for (uint32_t dp = 0; dp < 64 && dp < r->mesh.size[MESH_DP]; dp++)
		places |= (uint64_t)(stood[dp] == shards) << dp;
	return places;
}

uint32_t ranks_source(const struct ranks *r, uint64_t places)
{
	uint32_t there[TR_GROUP_PEERS_MAX], count = ranks_there(r, there);

	for (uint32_t i = 0; i < count; i++)
		if (there[i] < 64 && (places >> there[i] & 1) != 0)
			return i;
	return count > 0 ? 0 : RANKS_NONE;
}

static uint32_t gather(const struct ranks *r, uint32_t index, const bool same[MESH_AXES],
    uint32_t *members)
{
	struct mesh_at mine = mesh_at(&r->mesh, r->peers[index].rank);
	uint32_t count = 0;

	for (uint32_t i = 0; i < r->count; i++) {
		if (r->peers[i].rank == RANKS_NONE)
			continue;
		struct mesh_at at = mesh_at(&r->mesh, r->peers[i].rank);
		bool in = true;
		for (int axis = 0; axis < MESH_AXES; axis++)
			in = in && (!same[axis] || at.at[axis] == mine.at[axis]);
		if (in)
			members[count++] = i;
	}
	return count;
}

uint32_t ranks_along(const struct ranks *r, enum mesh_axis axis, uint32_t index, uint32_t *members)
{
	bool same[MESH_AXES];

	for (int i = 0; i < MESH_AXES; i++)
		same[i] = i != (int)axis;
	return gather(r, index, same, members);
}

uint32_t ranks_across(const struct ranks *r, uint32_t index, uint32_t stage)
{
	uint32_t members[TR_GROUP_PEERS_MAX], place = 0;
	struct mesh_at at = mesh_at(&r->mesh, r->peers[index].rank);

	(void)ranks_along(r, MESH_TP, index, members);
	while (members[place] != index)
		place++;
	at.at[MESH_PP] = stage;
	for (uint32_t i = 0; i < r->count; i++)
		if (r->peers[i].rank == mesh_rank(&r->mesh, at)) {
			(void)ranks_along(r, MESH_TP, i, members);
			return members[place];
		}
	return RANKS_NONE;
}

uint32_t ranks_beside(const struct ranks *r, uint32_t index, uint32_t *members)
{
	const bool same[MESH_AXES] = { [MESH_DP] = true };

	return gather(r, index, same, members);
}

bool ranks_same_peers(const struct ranks *a, const struct ranks *b)
{
	bool same = a->count == b->count;
	for (uint32_t i = 0; i < a->count && same; i++)
		same = a->peers[i].peer == b->peers[i].peer;
	return same;
}

bool ranks_same(const struct ranks *a, const struct ranks *b)
{
	bool same = ranks_same_peers(a, b);
	for (uint32_t i = 0; i < a->count && same; i++)
		same = a->peers[i].rank == b->peers[i].rank;
	return same;
}
