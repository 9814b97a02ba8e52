#include "daemon/plan/ranks.h"

#include <assert.h>
#include <string.h>

#include "daemon/plan/strict.h"

void ranks_init(const struct mesh *mesh, struct ranks *ranks)
{
	memset(ranks, 0, sizeof(*ranks));
	ranks->mesh = *mesh;
	ranks->copies = 1;
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
	next->copies = now->copies;
	for (size_t i = 0; i < count; i++) {
		uint32_t before = ranks_find(now, contributors[i]);
		next->peers[next->count++] = before != RANKS_NONE
		    ? now->peers[before]
		    : (struct ranks_peer){ contributors[i], RANKS_NONE, RANKS_NONE, { 0, 0 } };
	}
}

static uint32_t copies_of(const struct ranks *r)
{
	return r->copies > 0 ? (uint32_t)r->copies : 1;
}

/* Places of replicas along dp, of so many copies each. */
static uint32_t places_along(const struct ranks *r)
{
	return r->mesh.size[MESH_DP] / copies_of(r);
}

static uint32_t place_of(const struct ranks *r, uint32_t rank)
{
	return mesh_at(&r->mesh, rank).at[MESH_DP] / copies_of(r);
}

uint32_t ranks_members(const struct ranks *r)
{
	return ranks_shards(&r->mesh) * copies_of(r);
}

static void count_members(const struct ranks *r, uint32_t members[TR_GROUP_PEERS_MAX])
{
	memset(members, 0, TR_GROUP_PEERS_MAX * sizeof(*members));
	for (uint32_t i = 0; i < r->count; i++)
		if (r->peers[i].rank != RANKS_NONE)
			members[place_of(r, r->peers[i].rank)]++;
}

/* As many as there are contributors for. */
static uint32_t replicas_of(const struct ranks *r)
{
	uint32_t enough = r->count / ranks_members(r), most = places_along(r);

	return enough < most ? enough : most;
}

/* Those first that lack least. */
static void choose_replicas(const struct ranks *r, uint32_t replicas,
    bool chosen[TR_GROUP_PEERS_MAX])
{
	uint32_t members[TR_GROUP_PEERS_MAX], most = places_along(r);

	count_members(r, members);
	memset(chosen, 0, TR_GROUP_PEERS_MAX * sizeof(*chosen));
	for (uint32_t n = replicas; n > 0; n--) {
		uint32_t best = RANKS_NONE;
		for (uint32_t place = 0; place < most; place++)
			if (!chosen[place] && (best == RANKS_NONE || members[place] > members[best]))
				best = place;
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
		if (!chosen[place_of(r, rank)] || is_taken(r, rank))
			continue;
		uint32_t who = holders_only ? spare_with(r, ranks_shard(&r->mesh, rank)) : spare(r);
		if (who != RANKS_NONE)
			r->peers[who].rank = rank;
	}
}

/* Who stood elsewhere is a spare, before others are looked for. */
static void stand_at(struct ranks *next, const bool chosen[TR_GROUP_PEERS_MAX])
{
	for (uint32_t i = 0; i < next->count; i++) {
		uint32_t *rank = &next->peers[i].rank;
		if (*rank != RANKS_NONE && !chosen[place_of(next, *rank)])
			*rank = RANKS_NONE;
	}
	fill(next, chosen, true);
	fill(next, chosen, false);
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
	stand_at(next, chosen);
}

void ranks_next_at(const struct ranks *now, const uint64_t *contributors, size_t count,
    const uint64_t places[RANKS_PLACES_WORDS], struct ranks *next)
{
	bool chosen[TR_GROUP_PEERS_MAX];

	assert(now != next && count <= TR_GROUP_PEERS_MAX);
	keep_contributors(now, contributors, count, next);
	for (uint32_t place = 0; place < TR_GROUP_PEERS_MAX; place++)
		chosen[place] = (places[place / 64] >> place % 64 & 1) != 0;
	stand_at(next, chosen);
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

static bool same_replica(const struct ranks *r, uint32_t a, uint32_t b)
{
	return r->peers[a].rank != RANKS_NONE && r->peers[b].rank != RANKS_NONE &&
	    place_of(r, r->peers[a].rank) == place_of(r, r->peers[b].rank);
}

/* Another copy of its replica is near it; else who has to send least so far. */
static bool gives_before(const struct ranks *r, uint32_t to, const uint32_t *sends, uint32_t a,
    uint32_t b)
{
	bool near = same_replica(r, a, to);

	return near != same_replica(r, b, to) ? near : sends[a] < sends[b];
}

static uint32_t donor_of(const struct ranks *r, uint32_t to, uint32_t shard, const uint32_t *sends)
{
	uint32_t best = RANKS_NONE;

	for (uint32_t i = 0; i < r->count; i++)
		if (r->peers[i].shard == shard &&
		    (best == RANKS_NONE || gives_before(r, to, sends, i, best)))
			best = i;
	return best;
}

bool ranks_gets(const struct ranks_transfer *transfers, size_t count, uint32_t index)
{
	for (size_t i = 0; i < count; i++)
		if (transfers[i].to == index)
			return true;
	return false;
}

/* Another copy of its replica that gets the same shard itself, from afar: it hands it on. RANKS_NONE: there is none. */
static uint32_t relay_of(const struct ranks *r, uint32_t to, uint32_t shard,
    const struct ranks_transfer *transfers, size_t count)
{
	for (size_t i = 0; i < count; i++)
		if (transfers[i].shard == shard && same_replica(r, transfers[i].to, to) &&
		    !same_replica(r, transfers[i].to, transfers[i].from))
			return transfers[i].to;
	return RANKS_NONE;
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
		uint32_t from = donor_of(r, i, shard, sends);
		if (from == RANKS_NONE) {
			*lost = shard < *lost ? shard : *lost;
			continue;
		}
		uint32_t relay = relay_of(r, i, shard, transfers, count);
		if (relay != RANKS_NONE)
			from = relay;
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
	return ranked / ranks_members(r);
}

uint32_t ranks_replica(const struct ranks *r, uint32_t index)
{
	uint32_t members[TR_GROUP_PEERS_MAX], before = 0;

	if (r->peers[index].rank == RANKS_NONE)
		return RANKS_NONE;
	count_members(r, members);
	for (uint32_t place = 0; place < place_of(r, r->peers[index].rank); place++)
		before += members[place] > 0;
	return before;
}

uint32_t ranks_copy(const struct ranks *r, uint32_t index)
{
	uint32_t rank = r->peers[index].rank;

	return rank != RANKS_NONE ? mesh_at(&r->mesh, rank).at[MESH_DP] % copies_of(r) : RANKS_NONE;
}

uint32_t ranks_number(const struct ranks *r, uint32_t index)
{
	uint32_t rank = r->peers[index].rank;

	return rank != RANKS_NONE
	    ? ranks_copy(r, index) * ranks_shards(&r->mesh) + ranks_shard(&r->mesh, rank)
	    : RANKS_NONE;
}

struct ranks_part ranks_part(const struct ranks *r, uint32_t index)
{
	if (r->peers[index].rank == RANKS_NONE)
		return (struct ranks_part){ 0, 0 };
	if (copies_of(r) > 1)
		return (struct ranks_part){ copies_of(r), ranks_copy(r, index) };
	return (struct ranks_part){ ranks_replicas(r), ranks_replica(r, index) };
}

uint32_t ranks_member(const struct ranks *r, uint32_t replica, uint32_t number)
{
	uint32_t there[TR_GROUP_PEERS_MAX], tp = r->mesh.size[MESH_TP];
	uint32_t shard = number % ranks_shards(&r->mesh), copy = number / ranks_shards(&r->mesh);

	if (replica >= ranks_there(r, there))
		return RANKS_NONE;
	return ranks_at(r,
	    mesh_rank(&r->mesh,
	        (struct mesh_at){ .at = { [MESH_DP] = there[replica] * copies_of(r) + copy,
	                              [MESH_PP] = shard / tp,
	                              [MESH_TP] = shard % tp } }));
}

uint32_t ranks_worker_of(const struct ranks *r, uint32_t shard, uint32_t replica)
{
	return ranks_member(r, replica, shard);
}

uint32_t ranks_there(const struct ranks *r, uint32_t replicas[TR_GROUP_PEERS_MAX])
{
	uint32_t members[TR_GROUP_PEERS_MAX], count = 0;

	count_members(r, members);
	for (uint32_t place = 0; place < places_along(r); place++)
		if (members[place] > 0)
			replicas[count++] = place;
	return count;
}

void ranks_places(const struct ranks *r, uint64_t places[RANKS_PLACES_WORDS])
{
	uint32_t there[TR_GROUP_PEERS_MAX], count = ranks_there(r, there);

	memset(places, 0, RANKS_PLACES_WORDS * sizeof(*places));
	for (uint32_t i = 0; i < count; i++)
		places[there[i] / 64] |= 1ull << there[i] % 64;
}

static bool has_stood(const struct ranks *before, const struct ranks *r, uint32_t index)
{
	const struct ranks_peer *peer = &r->peers[index];
	uint32_t was = ranks_find(before, peer->peer);

	return peer->rank != RANKS_NONE && was != RANKS_NONE &&
	    before->peers[was].rank == peer->rank;
}

uint64_t ranks_stood(const struct ranks *before, const struct ranks *r)
{
	uint32_t all = ranks_members(r), stood[TR_GROUP_PEERS_MAX] = { 0 };
	uint64_t places = 0;

	for (uint32_t i = 0; i < r->count; i++)
		if (has_stood(before, r, i))
			stood[place_of(r, r->peers[i].rank)]++;
	for (uint32_t place = 0; place < 64 && place < places_along(r); place++)
		places |= (uint64_t)(stood[place] == all) << place;
	return places;
}

uint32_t ranks_stood_with(const struct ranks *before, const struct ranks *r, uint32_t replica,
    uint32_t shard)
{
	for (uint32_t copy = 0; copy < copies_of(r); copy++) {
		uint32_t index = ranks_member(r, replica, copy * ranks_shards(&r->mesh) + shard);
		if (index != RANKS_NONE && has_stood(before, r, index))
			return index;
	}
	return RANKS_NONE;
}

uint64_t ranks_stood_shards(const struct ranks *before, const struct ranks *r)
{
	uint32_t there[TR_GROUP_PEERS_MAX], count = ranks_there(r, there);
	uint64_t places = 0;

	for (uint32_t i = 0; i < count && there[i] < 64; i++) {
		bool all = true;
		for (uint32_t k = 0; k < ranks_shards(&r->mesh); k++)
			all = all && ranks_stood_with(before, r, i, k) != RANKS_NONE;
		places |= (uint64_t)all << there[i];
	}
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

/* Where a rank is: along the axes, then its replica and its copy there, which dp is divided into. */
enum { OF_REPLICA = MESH_AXES, OF_COPY, PLACES };

static void places_of(const struct ranks *r, uint32_t rank, uint32_t places[PLACES])
{
	struct mesh_at at = mesh_at(&r->mesh, rank);

	memcpy(places, at.at, sizeof(at.at));
	places[OF_REPLICA] = at.at[MESH_DP] / copies_of(r);
	places[OF_COPY] = at.at[MESH_DP] % copies_of(r);
}

static uint32_t gather(const struct ranks *r, uint32_t index, const bool same[PLACES],
    uint32_t *members)
{
	uint32_t mine[PLACES], at[PLACES], count = 0;

	places_of(r, r->peers[index].rank, mine);
	for (uint32_t i = 0; i < r->count; i++) {
		if (r->peers[i].rank == RANKS_NONE)
			continue;
		places_of(r, r->peers[i].rank, at);
		bool in = true;
		for (int place = 0; place < PLACES; place++)
			in = in && (!same[place] || at[place] == mine[place]);
		if (in)
			members[count++] = i;
	}
	return count;
}

uint32_t ranks_along(const struct ranks *r, enum mesh_axis axis, uint32_t index, uint32_t *members)
{
	bool same[PLACES] = { false };

	for (int i = 0; i < MESH_AXES; i++)
		same[i] = i != (int)axis;
	return gather(r, index, same, members);
}

uint32_t ranks_copies(const struct ranks *r, uint32_t index, uint32_t *members)
{
	const bool same[PLACES] = { [MESH_PP] = true, [MESH_TP] = true, [OF_REPLICA] = true };

	return gather(r, index, same, members);
}

uint32_t ranks_merges(const struct ranks *r, uint32_t index, uint32_t *members)
{
	const bool same[PLACES] = { [MESH_PP] = true, [MESH_TP] = true, [OF_COPY] = true };

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
	const bool same[PLACES] = { [OF_REPLICA] = true };

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
