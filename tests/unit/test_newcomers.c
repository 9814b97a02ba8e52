/* Shards that come while the others train on: pieces, who sends them, what is resumed and what begins anew. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/rng.h"
#include "daemon/plan/newcomers.h"

static const size_t numbers[] = { 1000, 3001 };

static struct newcomers_rules rules_of(uint64_t step_ns)
{
	return (struct newcomers_rules){ numbers, step_ns, NEWCOMERS_PARTS, 1 };
}

/* dp 2 x pp 2, whose replica 1 has lost a worker: peers 11 and 13 work, 12 and 15 are spares. */
static struct ranks one_replica(void)
{
	const struct mesh mesh = { .size = { [MESH_DP] = 2, [MESH_PP] = 2, [MESH_TP] = 1 } };
	const uint64_t peers[] = { 11, 12, 13, 14 }, now[] = { 11, 12, 13, 15 };
	struct ranks r, next;
	ranks_init(&mesh, &r);
	ranks_next(&r, peers, 4, &next);
	ranks_settle(&next, true);
	ranks_next_most(&next, now, 4, false, 1, &r);
	ranks_settle(&r, true);
	return r;
}

static struct ranks wanted_of(const struct ranks *r)
{
	uint64_t peers[TR_GROUP_PEERS_MAX];
	struct ranks wanted;
	for (uint32_t i = 0; i < r->count; i++)
		peers[i] = r->peers[i].peer;
	ranks_next(r, peers, r->count, &wanted);
	return wanted;
}

/* A step; the spares hold nothing but what is settled. */
static void step(struct ranks *r, const struct newcomers_rules *rules, struct newcomers *now)
{
	struct newcomers plan;
	struct ranks wanted = wanted_of(r), next = *r;
	newcomers_next(now, rules, &wanted, &next, &plan);
	ranks_settle(&next, true);
	newcomers_settle(&plan, &next);
	*now = plan;
	*r = next;
}

static void a_shard_comes_in_so_many_steps_at_most(void **state)
{
	(void)state;
	struct newcomers_rules rules = rules_of(0);
	struct newcomers now = { 0 };
	struct ranks r = one_replica();
	uint64_t before = 0;
	for (unsigned i = 0; i < NEWCOMERS_STEPS; i++) {
		uint64_t piece = now.of[1].got - before;
		assert_true(piece <= 94 || piece <= before / 3);
		before = now.of[1].got;
		assert_int_equal(r.peers[3].shard, RANKS_NONE);
		step(&r, &rules, &now);
		assert_int_equal(now.count, 2);
		assert_true(now.of[0].peer == 12 && now.of[0].shard == 0 && now.of[1].peer == 15 &&
		    now.of[1].shard == 1);
	}
	assert_true(
	    now.of[0].got == 1000 && now.of[1].got == 3001 && now.of[1].steps == NEWCOMERS_STEPS);
	struct ranks_transfer transfers[TR_GROUP_PEERS_MAX];
	uint32_t lost;
	struct ranks wanted = wanted_of(&r);
	assert_int_equal(ranks_replicas(&wanted), 2);
	assert_int_equal(ranks_transfers(&wanted, transfers, &lost),
	    0); /* nothing is left to come */
	assert_true(newcomers_works(&now, &wanted, 1) && newcomers_works(&now, &wanted, 3));
	assert_false(newcomers_works(&now, &wanted, 0) || newcomers_works(&now, &r, 1));
}

/* By what the last one took: a twentieth of a step, but no less than it takes to be there in time. */
static void pieces_follow_what_they_take(void **state)
{
	(void)state;
	struct newcomers_rules rules = rules_of(100000000);
	struct newcomers now = { 0 };
	struct ranks r = one_replica();
	step(&r, &rules, &now);
	assert_int_equal(now.of[1].got, 94);
	newcomers_took(&now, 0, 0,
	    NEWCOMERS_UNIT * UINT64_C(10000)); /* 10 us a number: 5 ms are 500 */
	step(&r, &rules, &now);
	assert_true(now.of[1].got == 594 && now.of[0].got == 532);
	/* Too slow: a part of the whole, or as much as is summed for what is there. */
	newcomers_took(&now, 0, 0, NEWCOMERS_UNIT * UINT64_C(1000000));
	step(&r, &rules, &now);
	assert_true(now.of[1].got == 594 + 198 && now.of[0].got == 532 + 177);
	rules.least = 1000; /* no less, however long it takes */
	step(&r, &rules, &now);
	assert_true(now.of[1].got == 1792 && now.of[0].got == 1000);
	newcomers_took(&now, 0, 0, 1);
	step(&r, &rules, &now);
	assert_true(now.of[1].got == 3001 && now.of[0].got == 1000);
	assert_int_equal(newcomers_steps(&rules, 1000000, 10), 2); /* of 5 ms each */
	assert_int_equal(newcomers_steps(&rules, 1000000000, 10), NEWCOMERS_STEPS);
}

static void what_steps_lose_is_counted(void **state)
{
	(void)state;
	struct newcomers_rules rules = rules_of(1000);
	struct newcomers now = { 0 };
	struct ranks r = one_replica();
	step(&r, &rules, &now);
	newcomers_took(&now, 1500, 1000, 0);
	newcomers_took(&now, 900, 1000, 0);
	newcomers_took(&now, 900, 0, 7); /* no other step is known */
	assert_true(now.lost_ns == 500 && now.of[1].ns == 3300 && now.unit_ns == 7);
}

/* Who is gone takes what had come with it; who stays keeps it, as long as its shard is the same and it is to work. */
static void what_came_is_kept(void **state)
{
	(void)state;
	struct newcomers_rules rules = rules_of(0);
	struct newcomers now = { 0 }, plan;
	struct ranks r = one_replica(), wanted, next;
	const uint64_t more[] = { 11, 12, 13, 15, 16 }, fewer[] = { 11, 13, 15 };
	step(&r, &rules, &now);
	ranks_next_most(&r, more, 5, false, 1, &next);
	wanted = wanted_of(&next);
	newcomers_next(&now, &rules, &wanted, &next, &plan);
	assert_true(plan.count == 2 && plan.of[0].got == 32 && plan.of[1].got == 94);
	/* 12 is gone: 15 gets its shard. */
	const uint64_t other[] = { 11, 13, 15, 16 };
	ranks_next_most(&r, other, 4, false, 1, &next);
	wanted = wanted_of(&next);
	newcomers_next(&now, &rules, &wanted, &next, &plan);
	assert_true(plan.count == 2 && plan.of[0].peer == 15 && plan.of[0].shard == 0 &&
	    plan.of[0].got == 0 && plan.of[1].peer == 16);
	ranks_next_most(&r, fewer, 3, false, 1, &next);
	wanted = wanted_of(&next);
	newcomers_next(&now, &rules, &wanted, &next, &plan);
	assert_int_equal(plan.count, 0);
}

/* What a spare holds is as the step begins: another shard's numbers it may need again, its own are there already. */
static void what_is_held(void **state)
{
	(void)state;
	struct newcomers_rules rules = rules_of(0);
	struct newcomers now = { 0 }, plan;
	struct ranks r = one_replica(), wanted = wanted_of(&r);
	r.peers[1].shard = 1;
	r.peers[3].shard = 1;
	newcomers_next(&now, &rules, &wanted, &r, &plan);
	assert_true(plan.count == 1 && plan.of[0].peer == 15 && plan.of[0].got == 3001 &&
	    plan.of[0].piece == 0);
}

/* All replicas share a piece, which they send whole and once. */
static void donors_share(void **state)
{
	(void)state;
	struct rng_key key = rng_key(1, 7, 0);
	for (uint64_t draw = 0; draw < 500; draw++) {
		const uint32_t dp = 1 + (uint32_t)rng_below(key, draw, 0, 6);
		const struct mesh mesh = {
			.size = { [MESH_DP] = dp + 1, [MESH_PP] = 1, [MESH_TP] = 2 }
		};
		const size_t sizes[] = { 1 + rng_below(key, draw, 1, 3000), 5000 };
		struct newcomers_rules rules = { sizes, 0, 1 + rng_below(key, draw, 2, 40),
			1 + rng_below(key, draw, 3, 900) };
		uint64_t peers[16];
		struct ranks none, r;
		for (uint32_t i = 0; i < 2 * (dp + 1); i++)
			peers[i] = i + 1;
		ranks_init(&mesh, &none);
		ranks_next_most(&none, peers, 2 * ((size_t)dp + 1), false, dp, &r);
		ranks_settle(&r, true);
		struct newcomers now = { 0 }, plan;
		struct ranks wanted = wanted_of(&r);
		newcomers_next(&now, &rules, &wanted, &r, &plan);
		assert_int_equal(plan.count, 2);
		for (size_t number = 0; number < 2; number++) {
			uint32_t donors[NEWCOMERS_DONORS];
			uint32_t count = newcomers_donors(&plan, number, &r, donors);
			size_t at = plan.of[number].got, first, end;
			assert_int_equal(count, dp < NEWCOMERS_DONORS ? dp : NEWCOMERS_DONORS);
			for (uint32_t k = 0; k < count; k++) {
				assert_int_equal(r.peers[donors[k]].shard, plan.of[number].shard);
				assert_true(k == 0 || donors[k] != donors[k - 1]);
				newcomers_part(&plan.of[number], count, k, &first, &end);
				assert_true(first == at && end >= first);
				at = end;
			}
			assert_int_equal(at, plan.of[number].got + plan.of[number].piece);
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_shard_comes_in_so_many_steps_at_most),
		cmocka_unit_test(pieces_follow_what_they_take),
		cmocka_unit_test(what_steps_lose_is_counted),
		cmocka_unit_test(what_came_is_kept),
		cmocka_unit_test(what_is_held),
		cmocka_unit_test(donors_share),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
