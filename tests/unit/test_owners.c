/* Who holds which moments (ZeRO-1): each number has as many owners as it should, and whatever happens to the table, what moves makes everybody hold its part again. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/rng.h"
#include "daemon/plan/owners.h"

enum { NUMBERS_MOST = 1000, PEERS_MOST = 16 };

static struct mesh mesh_of(uint32_t dp, uint32_t pp, uint32_t tp)
{
	return (struct mesh){ .size = { [MESH_DP] = dp, [MESH_PP] = pp, [MESH_TP] = tp } };
}

static void pieces_are_all_of_it(void **state)
{
	(void)state;
	const size_t sizes[] = { 0, 1, 16, 17, 100, 999, (size_t)1 << 40 };
	for (size_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++)
		for (uint32_t of = 1; of <= 255; of++) {
			size_t at = 0, least = SIZE_MAX, most = 0;
			for (uint32_t piece = 0; piece < of; piece++) {
				struct owners_range range = owners_piece(sizes[s], of, piece);
				size_t numbers = range.end - range.first;
				assert_int_equal(range.first, at);
				assert_true(range.end >= at && range.end <= sizes[s]);
				at = range.end;
				least = numbers < least ? numbers : least;
				most = numbers > most ? numbers : most;
			}
			assert_int_equal(at, sizes[s]);
			assert_true(most - least <= 32);
		}
}

static bool in_ranges(const struct owners_range *ranges, unsigned count, size_t at)
{
	for (unsigned i = 0; i < count; i++)
		if (ranges[i].first <= at && at < ranges[i].end)
			return true;
	return false;
}

static void each_piece_has_its_owners(void **state)
{
	(void)state;
	for (uint32_t of = 1; of <= 7; of++)
		for (uint32_t owners = 2; owners <= 5; owners++)
			for (size_t at = 0; at < 200; at++) {
				uint32_t have = 0;
				for (uint32_t place = 0; place < of; place++) {
					struct ranks_part part = { of, place };
					struct owners_range ranges[2];
					unsigned count = owners_ranges(200, &part, owners, ranges);
					bool has = in_ranges(ranges, count, at), owns = false;
					assert_true(count < 2 || ranges[0].end < ranges[1].first);
					for (uint32_t piece = 0; piece < of; piece++) {
						struct owners_range p = owners_piece(200, of, piece);
						owns = owns ||
						    (owners_owns(owners, of, place, piece) &&
						        in_ranges(&p, 1, at));
					}
					assert_true(has == owns);
					have += has;
				}
				assert_int_equal(have, owners < of ? owners : of);
			}
}

/* ---- tables that change ---- */

/* What each peer of a table has of its shard's moments, number by number, as moves and losses make it. */
struct holdings {
	struct ranks ranks;
	bool has[PEERS_MOST][NUMBERS_MOST];
};

static size_t numbers_of(uint32_t shard)
{
	return 300 + 97 * shard;
}

static void fill_by_part(struct holdings *h, uint32_t owners)
{
	memset(h->has, 0, sizeof(h->has));
	for (uint32_t i = 0; i < h->ranks.count; i++) {
		const struct ranks_peer *p = &h->ranks.peers[i];
		struct owners_range ranges[2];
		unsigned count = p->shard != RANKS_NONE
		    ? owners_ranges(numbers_of(p->shard), &p->part, owners, ranges)
		    : 0;
		for (size_t at = 0; at < NUMBERS_MOST; at++)
			h->has[i][at] = in_ranges(ranges, count, at);
	}
}

static bool anybody_has(const struct holdings *h, uint32_t shard, size_t at)
{
	for (uint32_t i = 0; i < h->ranks.count; i++)
		if (h->ranks.peers[i].shard == shard && h->has[i][at])
			return true;
	return false;
}

/* h->ranks is a next table. Moves from who has it to who has not; afterwards each worker has its part, unless it is lost. */
static bool check_moves(const struct holdings *h, uint32_t owners, const struct owners_plan *plan)
{
	static bool got[PEERS_MOST][NUMBERS_MOST];
	const struct ranks *r = &h->ranks;
	bool lost = false;
	memset(got, 0, sizeof(got));
	for (size_t m = 0; m < plan->count; m++) {
		const struct owners_move *move = &plan->moves[m];
		assert_true(move->from != move->to && move->range.first < move->range.end);
		assert_int_equal(move->shard, ranks_shard(&r->mesh, r->peers[move->to].rank));
		assert_int_equal(move->shard, r->peers[move->from].shard);
		for (size_t at = move->range.first; at < move->range.end; at++) {
			assert_true(h->has[move->from][at]);
			assert_false(got[move->to][at]);
			got[move->to][at] = true;
		}
	}
	for (uint32_t i = 0; i < r->count; i++) {
		struct ranks_part part = ranks_part(r, i);
		struct owners_range ranges[2];
		if (part.of == 0)
			continue;
		uint32_t shard = ranks_shard(&r->mesh, r->peers[i].rank);
		unsigned count = owners_ranges(numbers_of(shard), &part, owners, ranges);
		for (size_t at = 0; at < numbers_of(shard); at++) {
			bool had = r->peers[i].shard == shard && h->has[i][at];
			assert_false(had && got[i][at]);
			if (!in_ranges(ranges, count, at))
				continue;
			lost = lost || !anybody_has(h, shard, at);
			assert_true(had || got[i][at] || plan->lost != RANKS_NONE);
		}
	}
	assert_true(lost == (plan->lost != RANKS_NONE));
	if (lost)
		assert_false(anybody_has(h, plan->lost, plan->lost_at));
	return !lost;
}

static size_t change_peers(struct rng_key key, uint64_t *draws, uint64_t *peers, size_t count,
    uint64_t *next_id)
{
	size_t lost = (size_t)rng_below(key, 0, (*draws)++, 3);
	for (; lost > 0 && count > 1; lost--) {
		size_t who = (size_t)rng_below(key, 0, (*draws)++, count);
		memmove(peers + who, peers + who + 1, (--count - who) * sizeof(*peers));
	}
	for (uint64_t come = rng_below(key, 0, (*draws)++, 3); come > 0 && count < PEERS_MOST;
	     come--)
		peers[count++] = (*next_id)++;
	return count;
}

static void walk(uint64_t seed, uint64_t *kept, uint64_t *lost)
{
	static struct holdings h;
	struct rng_key key = rng_key(seed, 0x6f776e, 0);
	uint64_t draws = 0, next_id = 1, peers[PEERS_MOST];
	uint32_t dp = 2 + (uint32_t)rng_below(key, 0, draws++, 4);
	uint32_t pp = 1 + (uint32_t)rng_below(key, 0, draws++, 2);
	uint32_t tp = 1 + (uint32_t)rng_below(key, 0, draws++, 2);
	const struct mesh mesh = mesh_of(dp, pp, tp);
	uint32_t owners = 2 + (uint32_t)rng_below(key, 0, draws++, 2);
	struct owners_plan plan = { .lost = RANKS_NONE };
	size_t count = 0,
	       numbers[4] = { numbers_of(0), numbers_of(1), numbers_of(2), numbers_of(3) };
	struct ranks now;
	while (count < mesh_workers(&mesh) && count < PEERS_MOST)
		peers[count++] = next_id++;
	ranks_init(&mesh, &now);
	ranks_next(&now, peers, count, &h.ranks);
	ranks_settle(&h.ranks, true);
	for (int round = 0; round < 20; round++) {
		now = h.ranks;
		count = change_peers(key, &draws, peers, count, &next_id);
		ranks_next(&now, peers, count, &h.ranks);
		fill_by_part(&h, owners);
		owners_plan_clear(&plan);
		assert_int_equal(owners_plan_next(&plan, &h.ranks, owners, numbers, NULL), TR_OK);
		if (ranks_replicas(&h.ranks) == 0)
			continue; /* a round of waiting: all hold what they held */
		bool whole = check_moves(&h, owners, &plan);
		*kept += whole;
		*lost += !whole;
		/* What is lost comes from a checkpoint. */
		ranks_settle(&h.ranks, rng_below(key, 0, draws++, 4) > 0 || !whole);
	}
	owners_plan_finish(&plan);
}

static void whatever_the_table(void **state)
{
	(void)state;
	uint64_t kept = 0, lost = 0;
	for (uint64_t seed = 1; seed <= 400; seed++)
		walk(seed, &kept, &lost);
	assert_true(kept > 3000 && lost > 100); /* both were tried */
}

/* ---- the cases that people ask about ---- */

static void begin(uint32_t dp, struct ranks *r)
{
	const struct mesh mesh = mesh_of(dp, 1, 1);
	struct ranks none;
	uint64_t peers[PEERS_MOST];
	for (uint32_t i = 0; i < dp; i++)
		peers[i] = 10 + i;
	ranks_init(&mesh, &none);
	ranks_next(&none, peers, dp, r);
	ranks_settle(r, true);
}

/* All but those in the set `lost`, of one that has begun. */
static void lose(uint32_t dp, unsigned lost, struct owners_plan *plan)
{
	struct ranks now, next;
	uint64_t peers[PEERS_MOST];
	size_t numbers = 960, count = 0;
	begin(dp, &now);
	for (uint32_t i = 0; i < dp; i++)
		if ((lost >> i & 1) == 0)
			peers[count++] = 10 + i;
	ranks_next(&now, peers, count, &next);
	owners_plan_clear(plan);
	assert_int_equal(owners_plan_next(plan, &next, 2, &numbers, NULL), TR_OK);
}

/* Of six replicas with two owners each: any one may go at once, and any two that are not neighbours. */
static void losses_at_once(void **state)
{
	(void)state;
	struct owners_plan plan = { .lost = RANKS_NONE };
	for (unsigned a = 0; a < 6; a++) {
		lose(6, 1u << a, &plan);
		assert_int_equal(plan.lost, RANKS_NONE);
		for (unsigned b = 0; b < a; b++) {
			bool neighbours = a - b == 1 || a - b == 5;
			lose(6, 1u << a | 1u << b, &plan);
			assert_int_equal(plan.lost, neighbours ? 0 : RANKS_NONE);
			if (neighbours) /* the piece that only they had */
				assert_int_equal(plan.lost_at, a - b == 1 ? 160 * a : 0);
		}
	}
	owners_plan_finish(&plan);
}

/* Three replicas, two owners, pieces of 320: 0 has the first and second, 1 the second and third, 2 the third and first. Without 1, both hold all; 0 lacks the third, 2 the second. */
static void one_of_three(void **state)
{
	(void)state;
	struct owners_plan plan = { .lost = RANKS_NONE };
	lose(3, 2, &plan);
	assert_int_equal(plan.count, 3);
	assert_true(plan.moves[0].from == 1 && plan.moves[0].to == 0);
	assert_true(plan.moves[0].range.first == 640 && plan.moves[0].range.end == 960);
	for (size_t i = 1; i < 3; i++) /* of the halves that are the pieces now */
		assert_true(plan.moves[i].from == 0 && plan.moves[i].to == 1);
	assert_true(plan.moves[1].range.first == 480 && plan.moves[1].range.end == 640);
	assert_true(plan.moves[2].range.first == 320 && plan.moves[2].range.end == 480);
	owners_plan_finish(&plan);
}

/* A third one comes to two, who have all, whichever replica it takes: it gets its two pieces, one from each; nothing else moves. */
static void a_third_comes(void **state)
{
	(void)state;
	const uint64_t peers[] = { 10, 12, 20 };
	struct owners_plan plan = { .lost = RANKS_NONE };
	struct ranks now, next;
	size_t numbers = 960, got = 0;
	begin(3, &now);
	ranks_next(&now, peers, 2, &next);
	ranks_settle(&next, true);
	now = next;
	ranks_next(&now, peers, 3, &next);
	assert_int_equal(next.peers[2].rank, 1);
	assert_int_equal(owners_plan_next(&plan, &next, 2, &numbers, NULL), TR_OK);
	assert_int_equal(plan.lost, RANKS_NONE);
	for (size_t i = 0; i < plan.count; i++) {
		assert_int_equal(plan.moves[i].to, 2);
		got += plan.moves[i].range.end - plan.moves[i].range.first;
	}
	assert_int_equal(got, 640);
	assert_true(plan.sends[0] == 320 && plan.sends[1] == 320);
	owners_plan_finish(&plan);
}

/* Two newcomers, who are whole, are the fourth and the fifth: nobody has compared what they hold, so of pieces that are cut anew those who worked give theirs to each other; without 0 and 2 newcomers
 * alone have the first. */
static void newcomers_are_asked_last(void **state)
{
	(void)state;
	const uint64_t peers[] = { 10, 11, 12, 20, 21 }, left[] = { 11, 20, 21 };
	struct owners_plan plan = { .lost = RANKS_NONE };
	struct ranks now, next;
	size_t numbers = 960;
	begin(5, &now);
	ranks_next(&now, peers, 3, &next);
	ranks_settle(&next, true);
	now = next;
	ranks_next_most(&now, peers, 5, false, 3, &next);
	ranks_settle(&next, true);
	for (size_t i = 3; i < 5; i++) {
		next.peers[i].shard = 0;
		next.peers[i].part = (struct ranks_part){ .of = 1, .place = 0 };
	}
	now = next;
	ranks_next(&now, peers, 5, &next);
	assert_int_equal(owners_plan_next(&plan, &next, 2, &numbers, NULL), TR_OK);
	assert_int_equal(plan.lost, RANKS_NONE);
	assert_true(plan.count > 0);
	for (size_t i = 0; i < plan.count; i++)
		assert_true(plan.moves[i].from < 3 && plan.moves[i].to < 3);
	ranks_next(&now, left, 3, &next);
	owners_plan_clear(&plan);
	assert_int_equal(owners_plan_next(&plan, &next, 2, &numbers, NULL), TR_OK);
	assert_int_equal(plan.lost, RANKS_NONE);
	for (size_t i = 0; i < plan.count; i++) {
		assert_true(plan.moves[i].from > 0 && plan.moves[i].to == 0);
		assert_true(plan.moves[i].range.end <= 320);
	}
	owners_plan_finish(&plan);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(pieces_are_all_of_it),
		cmocka_unit_test(each_piece_has_its_owners),
		cmocka_unit_test(whatever_the_table),
		cmocka_unit_test(losses_at_once),
		cmocka_unit_test(one_of_three),
		cmocka_unit_test(a_third_comes),
		cmocka_unit_test(newcomers_are_asked_last),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
