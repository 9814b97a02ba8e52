/* Ranks of a mesh while peers come and go: what must hold after every random loss and join, and the cases that people ask about. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/rng.h"
#include "daemon/plan/ranks.h"

static struct mesh mesh_of(uint32_t dp, uint32_t pp, uint32_t tp)
{
	return (struct mesh){ .size = { [MESH_DP] = dp, [MESH_PP] = pp, [MESH_TP] = tp } };
}

static uint32_t rank_of(const struct ranks *r, uint64_t peer)
{
	uint32_t at = ranks_find(r, peer);
	return at == RANKS_NONE ? RANKS_NONE : r->peers[at].rank;
}

/* A round of a step: transfers are done. */
static void step(struct ranks *r, const uint64_t *peers, size_t count)
{
	struct ranks next;
	ranks_next(r, peers, count, &next);
	ranks_settle(&next, true);
	*r = next;
}

static void places_of_a_mesh(void **state)
{
	(void)state;
	const struct mesh mesh = mesh_of(2, 2, 2);
	const uint64_t peers[] = { 11, 12, 13, 14, 25, 26, 27, 28, 40 };
	struct ranks r;
	uint32_t members[9];
	ranks_init(&mesh, &r);
	step(&r, peers, 9);
	for (uint32_t i = 0; i < 8; i++)
		assert_int_equal(r.peers[i].rank, i); /* neighbours by id are neighbours along tp */
	assert_int_equal(r.peers[8].rank, RANKS_NONE);
	assert_int_equal(ranks_replicas(&r), 2);
	assert_int_equal(ranks_replica(&r, 8), RANKS_NONE);
	/* Rank 6: dp 1, pp 1, tp 0. */
	assert_int_equal(ranks_replica(&r, 6), 1);
	assert_int_equal(ranks_shard(&mesh, 6), 2);
	assert_int_equal(ranks_along(&r, MESH_TP, 6, members), 2);
	assert_true(members[0] == 6 && members[1] == 7);
	assert_int_equal(ranks_along(&r, MESH_DP, 6, members), 2);
	assert_true(members[0] == 4 && members[1] == 6);
	assert_int_equal(ranks_along(&r, MESH_PP, 6, members), 2);
	assert_true(members[0] == 2 && members[1] == 6);
	assert_int_equal(ranks_beside(&r, 6, members), 4);
	assert_true(members[0] == 2 && members[1] == 3 && members[2] == 6 && members[3] == 7);
}

/* Rows are counted by index along tp, and go to who has the same ones at another stage, whatever the ranks have become. */
static void rows_go_across(void **state)
{
	(void)state;
	const struct mesh mesh = mesh_of(1, 2, 2);
	const uint64_t before[] = { 1, 2, 3, 4 }, after[] = { 2, 3, 4, 9 };
	struct ranks r;
	ranks_init(&mesh, &r);
	step(&r, before, 4);
	for (uint32_t i = 0; i < 4; i++)
		assert_int_equal(ranks_across(&r, i, 1 - i / 2), (i + 2) % 4);
	/* 9 takes the rank of 1: tp 0 of the first stage, behind 2, which is tp 1. */
	step(&r, after, 4);
	assert_int_equal(r.peers[3].rank, 0);
	assert_int_equal(ranks_across(&r, 0, 1), 1);
	assert_int_equal(ranks_across(&r, 1, 0), 0);
	assert_int_equal(ranks_across(&r, 3, 1), 2);
	assert_int_equal(ranks_across(&r, 2, 0), 3);
	assert_int_equal(ranks_across(&r, 3, 0), 3);
}

static void a_loss_and_who_comes_for_it(void **state)
{
	(void)state;
	const struct mesh mesh = mesh_of(2, 1, 2);
	const uint64_t four[] = { 1, 2, 3, 4 }, three[] = { 1, 3, 4 }, joined[] = { 1, 3, 4, 9 };
	struct ranks r, next;
	struct ranks_transfer moves[4];
	uint32_t lost;
	ranks_init(&mesh, &r);
	step(&r, four, 4);
	step(&r, three, 3);
	/* The replica that is whole stays, and is the only one; who is left of the other is a spare, whose numbers are those before the step. */
	assert_int_equal(rank_of(&r, 1), RANKS_NONE);
	assert_int_equal(rank_of(&r, 3), 2);
	assert_int_equal(rank_of(&r, 4), 3);
	assert_int_equal(ranks_replicas(&r), 1);
	assert_int_equal(ranks_replica(&r, 1), 0);
	assert_int_equal(r.peers[0].shard, RANKS_NONE);
	ranks_next(&r, joined, 4, &next);
	assert_int_equal(rank_of(&next, 1), 0);
	assert_int_equal(rank_of(&next, 9), 1);
	assert_int_equal(ranks_transfers(&next, moves, &lost), 2);
	assert_int_equal(lost, RANKS_NONE);
	assert_true(moves[0].from == 1 && moves[0].to == 0 && moves[0].shard == 0);
	assert_true(moves[1].from == 2 && moves[1].to == 3 && moves[1].shard == 1);
	/* With no more replicas than there are both are spares, and nothing moves. */
	ranks_next_most(&r, joined, 4, false, 1, &next);
	assert_int_equal(ranks_replicas(&next), 1);
	assert_int_equal(rank_of(&next, 1), RANKS_NONE);
	assert_int_equal(rank_of(&next, 9), RANKS_NONE);
	assert_int_equal(rank_of(&next, 4), 3);
	assert_int_equal(ranks_transfers(&next, moves, &lost), 0);
	assert_true(ranks_same(&next, &next) && !ranks_same(&r, &next));
	assert_false(ranks_same_peers(&r, &next));
}

static void a_spare_takes_over_at_once(void **state)
{
	(void)state;
	const struct mesh mesh = mesh_of(2, 1, 2);
	const uint64_t five[] = { 1, 2, 3, 4, 5 }, four[] = { 1, 3, 4, 5 };
	struct ranks r, next;
	struct ranks_transfer moves[4];
	uint32_t lost;
	ranks_init(&mesh, &r);
	step(&r, five, 5);
	ranks_next(&r, four, 4, &next);
	assert_int_equal(rank_of(&next, 5), 1);
	assert_int_equal(rank_of(&next, 1), 0);
	assert_int_equal(ranks_transfers(&next, moves, &lost), 1);
	assert_true(moves[0].from == 2 && moves[0].to == 3);
}

/* Two replicas lack one member each: what is left of both is one. */
static void two_halves_are_a_whole(void **state)
{
	(void)state;
	const struct mesh mesh = mesh_of(2, 1, 2);
	const uint64_t four[] = { 1, 2, 3, 4 }, halves[] = { 1, 4 }, same[] = { 1, 3 };
	struct ranks r, next;
	struct ranks_transfer moves[4];
	uint32_t lost;
	ranks_init(&mesh, &r);
	step(&r, four, 4);
	ranks_next(&r, halves, 2, &next);
	assert_int_equal(rank_of(&next, 1), 0);
	assert_int_equal(rank_of(&next, 4), 1);
	assert_int_equal(ranks_transfers(&next, moves, &lost), 0);
	assert_int_equal(lost, RANKS_NONE);
	/* Of the second shard nobody is left. */
	ranks_next(&r, same, 2, &next);
	assert_int_equal(ranks_replicas(&next), 1);
	assert_int_equal(ranks_transfers(&next, moves, &lost), 0);
	assert_int_equal(lost, 1);
}

/* Too few: nobody works, and nobody forgets. */
static void too_few(void **state)
{
	(void)state;
	const struct mesh mesh = mesh_of(1, 1, 3);
	const uint64_t three[] = { 1, 2, 3 }, two[] = { 1, 3 }, again[] = { 1, 3, 8 };
	struct ranks r, next;
	struct ranks_transfer moves[4];
	uint32_t lost;
	ranks_init(&mesh, &r);
	step(&r, three, 3);
	ranks_next(&r, two, 2, &next);
	assert_int_equal(ranks_replicas(&next), 0);
	assert_int_equal(ranks_transfers(&next, moves, &lost), 0);
	assert_int_equal(lost, RANKS_NONE);
	ranks_settle(&next, false);
	r = next;
	ranks_next(&r, again, 3, &next);
	assert_int_equal(rank_of(&next, 1), 0);
	assert_int_equal(rank_of(&next, 3), 2);
	assert_int_equal(rank_of(&next, 8), 1);
	assert_int_equal(ranks_transfers(&next, moves, &lost), 0);
	assert_int_equal(lost, 1);
}

static void donors_share(void **state)
{
	(void)state;
	const struct mesh mesh = mesh_of(5, 1, 1);
	const uint64_t two[] = { 1, 2 }, five[] = { 1, 2, 5, 6, 7 };
	struct ranks r, next;
	struct ranks_transfer moves[5];
	uint32_t lost, sends[5] = { 0 };
	ranks_init(&mesh, &r);
	step(&r, two, 2);
	ranks_next(&r, five, 5, &next);
	assert_int_equal(ranks_transfers(&next, moves, &lost), 3);
	for (size_t i = 0; i < 3; i++)
		sends[moves[i].from]++;
	assert_true(sends[0] == 2 && sends[1] == 1);
}

/* Of three replicas two work, and the two that do stay when there is a fourth. */
static void replicas_are_doubled(void **state)
{
	(void)state;
	static const uint32_t expected[] = { 0, 0, 1, 1, 2, 2, 2, 2, 4, 4 };
	const struct mesh mesh = mesh_of(4, 1, 2);
	const uint64_t peers[] = { 1, 2, 3, 4, 5, 6, 7, 8, 9 };
	struct ranks r, next;
	ranks_init(&mesh, &r);
	for (uint32_t count = 0; count <= 9; count++) {
		ranks_next_doubled(&r, peers, count, &next);
		assert_int_equal(ranks_replicas(&next), expected[count]);
		for (uint32_t i = 0; i < count; i++)
			if (next.peers[i].rank != RANKS_NONE)
				assert_int_equal(ranks_at(&next, next.peers[i].rank), i);
		assert_int_equal(ranks_at(&next, 8), RANKS_NONE);
		for (uint32_t i = 0; i < r.count; i++)
			if (r.peers[i].rank != RANKS_NONE)
				assert_int_equal(rank_of(&next, r.peers[i].peer), r.peers[i].rank);
		ranks_settle(&next, true);
		r = next;
	}
}

/* ---- random histories ---- */

static uint32_t place_of(const struct ranks *r, uint32_t rank)
{
	return mesh_at(&r->mesh, rank).at[MESH_DP] / (uint32_t)r->copies;
}

static bool whole_before(const struct ranks *now, const struct ranks *next, uint32_t place)
{
	uint32_t members = 0;
	for (uint32_t i = 0; i < now->count; i++)
		members += now->peers[i].rank != RANKS_NONE &&
		    place_of(now, now->peers[i].rank) == place &&
		    ranks_find(next, now->peers[i].peer) != RANKS_NONE;
	return members == ranks_members(now);
}

/* Copies of a shard in its replica, and who merges with it: each is in one of both alone but itself, and their numbers are as they stand. */
static void check_copies(const struct ranks *r, uint32_t i)
{
	uint32_t copies[256], merges[256], all[256], copy = ranks_copy(r, i);
	uint32_t count = ranks_copies(r, i, copies), others = ranks_merges(r, i, merges);
	assert_int_equal(count, r->copies);
	assert_int_equal(others, ranks_replicas(r));
	assert_int_equal(ranks_along(r, MESH_DP, i, all), count * others);
	for (uint32_t k = 0; k < count; k++) {
		assert_int_equal(ranks_replica(r, copies[k]), ranks_replica(r, i));
		assert_true(copies[k] == i || ranks_copy(r, copies[k]) != copy);
	}
	for (uint32_t k = 0; k < others; k++) {
		assert_int_equal(ranks_copy(r, merges[k]), copy);
		assert_true(merges[k] == i || ranks_replica(r, merges[k]) != ranks_replica(r, i));
	}
	uint32_t number = ranks_number(r, i), shard = ranks_shard(&r->mesh, r->peers[i].rank);
	assert_int_equal(number, copy * ranks_shards(&r->mesh) + shard);
	assert_int_equal(ranks_member(r, ranks_replica(r, i), number), i);
	if (copy == 0)
		assert_int_equal(ranks_worker_of(r, shard, ranks_replica(r, i)), i);
}

static void check_table(const struct ranks *now, const struct ranks *next)
{
	const struct mesh *mesh = &next->mesh;
	uint32_t size = ranks_members(next), enough = next->count / size, taken[256] = { 0 };
	uint32_t most = mesh->size[MESH_DP] / (uint32_t)next->copies, ranked = 0;
	uint32_t replicas = enough < most ? enough : most;
	for (uint32_t i = 0; i < next->count; i++) {
		uint32_t rank = next->peers[i].rank;
		if (rank == RANKS_NONE)
			continue;
		assert_true(rank < mesh_workers(mesh));
		assert_int_equal(taken[rank]++, 0);
		ranked++;
	}
	/* No vacancy while there are peers for it, and no replica in part. */
	assert_int_equal(ranked, replicas * size);
	assert_int_equal(ranks_replicas(next), replicas);
	for (uint32_t i = 0; i < next->count; i++) {
		uint32_t members[256];
		if (next->peers[i].rank == RANKS_NONE)
			continue;
		assert_int_equal(ranks_beside(next, i, members), size);
		check_copies(next, i);
		assert_true(ranks_replica(next, i) < replicas);
		uint32_t stage = mesh_at(mesh, next->peers[i].rank).at[MESH_PP];
		for (uint32_t other = 0; other < mesh->size[MESH_PP]; other++) {
			uint32_t across = ranks_across(next, i, other);
			assert_int_equal(ranks_replica(next, across), ranks_replica(next, i));
			assert_int_equal(mesh_at(mesh, next->peers[across].rank).at[MESH_PP], other);
			assert_int_equal(ranks_across(next, across, stage), i);
		}
	}
	/* Who stands in a whole replica stays. */
	for (uint32_t i = 0; i < now->count; i++) {
		uint32_t rank = now->peers[i].rank, at = ranks_find(next, now->peers[i].peer);
		if (rank == RANKS_NONE || at == RANKS_NONE)
			continue;
		if (whole_before(now, next, place_of(now, rank)))
			assert_int_equal(next->peers[at].rank, rank);
	}
}

static bool is_near(const struct ranks *r, uint32_t holder, uint32_t to)
{
	return r->peers[holder].rank != RANKS_NONE &&
	    ranks_replica(r, holder) == ranks_replica(r, to);
}

/* Who gets its shard, and has a holder of it in its own replica, gets it there. */
static void check_near(const struct ranks *r, const struct ranks_transfer *move)
{
	for (uint32_t i = 0; i < r->count; i++)
		if (r->peers[i].shard == move->shard && is_near(r, i, move->to))
			assert_true(is_near(r, move->from, move->to));
}

/* No shard comes to a replica twice. */
static void check_once(const struct ranks *r, const struct ranks_transfer *moves, size_t count)
{
	for (size_t i = 0; i < count; i++)
		for (size_t k = 0; k < i; k++)
			if (moves[i].shard == moves[k].shard && is_near(r, moves[i].to, moves[k].to))
				assert_true(is_near(r, moves[i].from, moves[i].to) ||
				    is_near(r, moves[k].from, moves[k].to));
}

static uint32_t check_transfers(const struct ranks *next)
{
	struct ranks_transfer moves[TR_GROUP_PEERS_MAX];
	uint32_t lost, gets[256] = { 0 }, sends[256] = { 0 };
	size_t count = ranks_transfers(next, moves, &lost);
	for (size_t i = 0; i < count; i++) {
		if (next->peers[moves[i].from].shard != moves[i].shard) /* which gets it before */
			assert_true(next->copies > 1 && ranks_gets(moves, i, moves[i].from) &&
			    is_near(next, moves[i].from, moves[i].to));
		assert_int_equal(ranks_shard(&next->mesh, next->peers[moves[i].to].rank),
		    moves[i].shard);
		check_near(next, &moves[i]);
		gets[moves[i].to]++;
		sends[moves[i].from]++;
	}
	check_once(next, moves, count);
	for (uint32_t i = 0; i < next->count; i++) {
		const struct ranks_peer *p = &next->peers[i];
		uint32_t shard = p->rank != RANKS_NONE ? ranks_shard(&next->mesh, p->rank)
		                                       : RANKS_NONE;
		bool needs = p->rank != RANKS_NONE && p->shard != shard;
		bool held = ranks_holder(next, shard) != RANKS_NONE;
		assert_int_equal(gets[i], needs && held);
		assert_true(!needs || held || lost <= shard);
		/* Holders of the same shard send evenly. */
		for (uint32_t k = 0; k < next->count && next->copies == 1; k++)
			assert_true(p->shard == RANKS_NONE || next->peers[k].shard != p->shard ||
			    sends[i] <= sends[k] + 1);
	}
	assert_true(lost == RANKS_NONE || ranks_holder(next, lost) == RANKS_NONE);
	return lost;
}

/* Kills and joins; in one round of four the round is begun again with fewer. Replicas of so many copies each. */
static void random_history(uint64_t seed, uint32_t copies)
{
	struct rng_key key = rng_key(seed, 0, 0);
	uint64_t draws = 0, peers[192], next_id = 1;
	size_t count = 0;
	uint32_t sizes[MESH_AXES];
	for (int axis = 0; axis < MESH_AXES; axis++)
		sizes[axis] = 1 + (uint32_t)rng_below(key, 0, draws++, 4);
	const struct mesh mesh = mesh_of((copies > 1 ? 1 + sizes[MESH_DP] / 2 : sizes[MESH_DP]) *
	        copies,
	    sizes[MESH_PP], sizes[MESH_TP]);
	struct ranks now, next, again;
	ranks_init(&mesh, &now);
	now.copies = copies;
	for (uint32_t i = 0; i < mesh_workers(&mesh); i++)
		peers[count++] = next_id++;
	for (unsigned round = 0; round < 40; round++) {
		for (uint64_t deaths = rng_below(key, 0, draws++, 3); deaths > 0 && count > 1;
		     deaths--) {
			size_t dead = (size_t)rng_below(key, 0, draws++, count);
			memmove(peers + dead, peers + dead + 1, (--count - dead) * sizeof(*peers));
		}
		for (uint64_t joins = rng_below(key, 0, draws++, 3); joins > 0 && count < 150;
		     joins--)
			peers[count++] = next_id += 1 + rng_below(key, 0, draws++, 3);
		ranks_next(&now, peers, count, &next);
		ranks_next(&now, peers, count, &again);
		assert_memory_equal(&next, &again, sizeof(next));
		check_table(&now, &next);
		uint32_t lost = check_transfers(&next);
		if (rng_below(key, 0, draws++, 4) == 0 && round > 0)
			continue; /* abandoned */
		if (lost != RANKS_NONE && round > 0)
			ranks_forget(&next);
		else
			ranks_settle(&next, ranks_replicas(&next) > 0);
		now = next;
	}
}

/* Two replicas of two copies x tp 2, dp 4: a replica that lost a worker is whole again at once with a spare, which gets its shard from the other copy beside it; without one the
 * whole replica is not there, and what of it comes back comes from the other one. */
static void replicas_of_several_copies(void **state)
{
	(void)state;
	const struct mesh mesh = mesh_of(4, 1, 2);
	const uint64_t first[] = { 1, 2, 3, 4, 5, 6, 7, 8, 9 },
	               spare[] = { 1, 2, 3, 4, 5, 6, 8, 9 }, fewer[] = { 1, 2, 3, 5, 6, 8, 9 },
	               again[] = { 1, 2, 3, 5, 6, 8, 9, 11 };
	struct ranks r, next;
	struct ranks_transfer moves[8];
	uint32_t lost, members[8];
	ranks_init(&mesh, &r);
	r.copies = 2;
	step(&r, first, 9);
	assert_int_equal(ranks_replicas(&r), 2);
	assert_int_equal(ranks_members(&r), 4);
	/* Rank 6: dp 3, tp 0: copy 1 of replica 1. */
	assert_true(ranks_replica(&r, 6) == 1 && ranks_copy(&r, 6) == 1);
	assert_int_equal(ranks_copies(&r, 6, members), 2);
	assert_true(members[0] == 4 && members[1] == 6);
	assert_int_equal(ranks_merges(&r, 6, members), 2);
	assert_true(members[0] == 2 && members[1] == 6);
	assert_int_equal(ranks_beside(&r, 6, members), 4);
	assert_true(members[0] == 4 && members[3] == 7);
	assert_int_equal(ranks_stood(&r, &r), 3);
	/* 7 is lost, and 9 was a spare: from 5, though 1 and 3 have sent as little. */
	ranks_next(&r, spare, 8, &next);
	assert_int_equal(ranks_replicas(&next), 2);
	assert_int_equal(rank_of(&next, 9), 6);
	assert_int_equal(ranks_transfers(&next, moves, &lost), 1);
	assert_true(next.peers[moves[0].from].peer == 5 && next.peers[moves[0].to].peer == 9);
	assert_int_equal(ranks_stood(&r, &next), 1);
	ranks_settle(&next, true);
	r = next;
	/* 4 is lost: of the first replica three are spares. */
	step(&r, fewer, 7);
	assert_int_equal(ranks_replicas(&r), 1);
	assert_true(rank_of(&r, 1) == RANKS_NONE && rank_of(&r, 5) == 4);
	assert_int_equal(ranks_replica(&r, ranks_find(&r, 5)), 0);
	assert_int_equal(ranks_member(&r, 0, 3), ranks_find(&r, 8));
	assert_int_equal(ranks_member(&r, 1, 0), RANKS_NONE);
	ranks_next(&r, again, 8, &next);
	assert_int_equal(ranks_replicas(&next), 2);
	assert_int_equal(ranks_transfers(&next, moves, &lost), 4);
	assert_int_equal(lost, RANKS_NONE);
	/* Each of its two shards comes once, and is handed on: 1 and 2 get theirs, 3 and 11 get 1's and 2's. */
	for (unsigned i = 0; i < 4; i++) {
		uint64_t from = next.peers[moves[i].from].peer, to = next.peers[moves[i].to].peer;
		assert_true(to == 3 || to == 11 ? from < 3 : from > 3 && to < 3);
	}
}

/* dp 3 x tp 2: who came for a lost worker has nothing of its replica's own, and a checkpoint is of one that all stood in. */
static void checkpoints_are_taken_from_one_replica(void **state)
{
	const struct mesh mesh = mesh_of(3, 1, 2);
	const uint64_t first[] = { 1, 2, 3, 4, 5, 6 }, second[] = { 2, 3, 4, 5, 6, 7 },
	               third[] = { 2, 3, 4, 5, 7 }, fourth[] = { 8, 9, 10, 11 };
	struct ranks now, next, after;

	(void)state;
	ranks_init(&mesh, &now);
	assert_int_equal(ranks_source(&now, UINT64_MAX), RANKS_NONE);
	ranks_next(&now, first, 6, &next);
	assert_int_equal(ranks_stood(&now, &next), 0);
	assert_int_equal(ranks_source(&next, 0), 0); /* all read the same */
	ranks_settle(&next, true);
	assert_int_equal(ranks_stood(&next, &next), 7);
	/* 7 for 1, which was of the first replica */
	ranks_next(&next, second, 6, &after);
	assert_int_equal(after.peers[ranks_find(&after, 7)].rank, next.peers[0].rank);
	assert_int_equal(ranks_stood(&next, &after), 6);
	assert_int_equal(ranks_source(&after, 6), 1);
	assert_int_equal(ranks_source(&after, 4), 2);
	ranks_settle(&after, true);
	/* 6 is lost: of its replica nothing is there */
	ranks_next(&after, third, 5, &next);
	assert_int_equal(ranks_stood(&after, &next), 3);
	/* others than the table before knew */
	ranks_next(&after, fourth, 4, &next);
	assert_int_equal(ranks_stood(&after, &next), 0);
	assert_int_equal(ranks_source(&next, 0), 0);
}

/* A replica that is taken back: those at places that are named stay as they are, whoever stands first; its workers are spares, and nothing moves. */
static void replicas_at_places(void **state)
{
	(void)state;
	const struct mesh mesh = mesh_of(3, 1, 2);
	const uint64_t all[] = { 1, 2, 3, 4, 5, 6 }, four[] = { 3, 4, 5, 6 },
	               again[] = { 3, 4, 5, 6, 8, 9 };
	uint64_t places[RANKS_PLACES_WORDS];
	struct ranks r, before, next;
	struct ranks_transfer moves[6];
	uint32_t lost;
	ranks_init(&mesh, &r);
	step(&r, all, 6);
	step(&r, four, 4);
	before = r;
	ranks_places(&r, places);
	assert_int_equal(places[0], 6); /* the second and the third */
	step(&r, again, 6);
	assert_int_equal(ranks_replicas(&r), 3);
	assert_int_equal(rank_of(&r, 8), 0);
	ranks_next_at(&r, again, 6, places, &next);
	assert_int_equal(ranks_replicas(&next), 2);
	for (uint32_t i = 0; i < 4; i++)
		assert_int_equal(rank_of(&next, four[i]), rank_of(&before, four[i]));
	assert_int_equal(rank_of(&next, 8), RANKS_NONE);
	assert_int_equal(rank_of(&next, 9), RANKS_NONE);
	assert_int_equal(ranks_transfers(&next, moves, &lost), 0);
	assert_int_equal(lost, RANKS_NONE);
}

static void random_histories(void **state)
{
	uint64_t step = getenv("NIGHTLY") != NULL ? 1 : 5;
	(void)state;
	for (uint64_t seed = 1; seed <= 1500; seed += step)
		random_history(seed, seed > 1000 ? 2 + (uint32_t)(seed % 3) : 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(places_of_a_mesh),
		cmocka_unit_test(rows_go_across),
		cmocka_unit_test(a_loss_and_who_comes_for_it),
		cmocka_unit_test(a_spare_takes_over_at_once),
		cmocka_unit_test(two_halves_are_a_whole),
		cmocka_unit_test(too_few),
		cmocka_unit_test(donors_share),
		cmocka_unit_test(replicas_are_doubled),
		cmocka_unit_test(replicas_of_several_copies),
		cmocka_unit_test(checkpoints_are_taken_from_one_replica),
		cmocka_unit_test(replicas_at_places),
		cmocka_unit_test(random_histories),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
