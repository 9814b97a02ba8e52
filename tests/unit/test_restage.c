/* When layers of stages follow measured speeds, and which they become. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "common/rng.h"
#include "daemon/plan/restage.h"

#define MS     1000000ull
#define STAGES 4

static const uint32_t plenty[] = { 99, 99, 99, 99 };

/* Steps until there is a wish; 0: not within 400. each[stages]: nanoseconds that a layer takes there. */
static unsigned steps_until(struct restage *r, const struct restage_rules *rules,
    const uint64_t *each, struct restage_wish *wish)
{
	uint64_t takes[STAGES];

	for (uint32_t i = 0; i < rules->stages; i++)
		takes[i] = each[i] *
		    (rules->layers[i] * RESTAGE_LAYER + (i + 1 == rules->stages ? rules->head : 0)) /
		    RESTAGE_LAYER;
	for (unsigned step = 1; step <= 400; step++) {
		assert_int_equal(restage_looks(r), r->steps == RESTAGE_STEPS - 1);
		if (restage_note(r, rules, takes, wish))
			return step;
	}
	return 0;
}

static void a_slow_stage_gets_fewer(void **state)
{
	struct restage r = { 0 };
	struct restage_wish wish;
	const uint32_t layers[] = { 3, 3 }, dealt[] = { 5, 1 };
	struct restage_rules rules = { 2, layers, plenty, 1, 0, 8 };

	(void)state;
	assert_int_equal(steps_until(&r, &rules, (uint64_t[]){ MS, 8 * MS }, &wish),
	    3 * RESTAGE_STEPS);
	assert_true(wish.layers[0] == 5 && wish.layers[1] == 1);
	assert_true(wish.stage_ns[0] == 3 * MS && wish.stage_ns[1] == 24 * MS);
	/* seven microbatches at the slowest, one at both */
	assert_int_equal(wish.now_ns, 7 * 3 * MS + 27 * MS / 8);
	assert_int_equal(wish.next_ns, 7 * MS + 13 * MS / 8);
	restage_tried(&r);
	rules.layers = dealt; /* these are right: they stay */
	assert_int_equal(steps_until(&r, &rules, (uint64_t[]){ MS, 8 * MS }, &wish), 0);
	/* it is as fast as the other again, which is seen for longer */
	restage_restart(&r);
	assert_int_equal(steps_until(&r, &rules, (uint64_t[]){ MS, MS }, &wish), 5 * RESTAGE_STEPS);
	assert_true(wish.layers[0] == 3 && wish.layers[1] == 3);
	for (unsigned i = 0; i < 5; i++)
		restage_tried(&r);
	restage_restart(&r);
	assert_int_equal(steps_until(&r, &rules, (uint64_t[]){ MS, MS }, &wish), 17 * RESTAGE_STEPS);
}

static void what_is_not_worth_it(void **state)
{
	struct restage r = { 0 };
	struct restage_wish wish;
	const uint32_t layers[] = { 3, 3 }, few[] = { 3, 9 }, none[] = { 0, 6 };
	struct restage_rules rules = { 2, layers, plenty, 1, 0, 8 };

	(void)state;
	assert_int_equal(steps_until(&r, &rules, (uint64_t[]){ 100 * MS, 119 * MS }, &wish), 0);
	/* the other has no memory for more */
	rules.most = few;
	assert_int_equal(steps_until(&r, &rules, (uint64_t[]){ MS, 8 * MS }, &wish), 0);
	assert_true(steps_until(&r, &rules, (uint64_t[]){ 8 * MS, MS }, &wish) > 0);
	rules.most = plenty;
	rules.least = 3; /* chunks */
	assert_int_equal(steps_until(&r, &rules, (uint64_t[]){ MS, 8 * MS }, &wish), 0);
	rules.layers = none;
	assert_int_equal(steps_until(&r, &rules, (uint64_t[]){ MS, 8 * MS }, &wish), 0);
	assert_int_equal(r.settled, 0);
}

/* Workers of one host have its memory together. */
static void room_of_a_host(void **state)
{
	(void)state;
	assert_int_equal(restage_room(80e9, 1, 1e9), 40);
	assert_int_equal(restage_room(80e9, 4, 1e9), 10);
	assert_int_equal(restage_room(80e9, 0, 1e9), 40);
	assert_int_equal(restage_room(1e9, 2, 1e9), 0);
	assert_int_equal(restage_room(INFINITY, 8, 1e9), RESTAGE_ROOM_MOST);
}

/* A stage that has the head has fewer layers. */
static void with_a_head(void **state)
{
	struct restage r = { 0 };
	struct restage_wish wish;
	const uint32_t layers[] = { 4, 4 };
	struct restage_rules rules = { 2, layers, plenty, 1, 4 * RESTAGE_LAYER, 8 };

	(void)state;
	assert_true(steps_until(&r, &rules, (uint64_t[]){ MS, MS }, &wish) > 0);
	assert_true(wish.layers[0] == 6 && wish.layers[1] == 2);
	assert_int_equal(wish.now_ns, 7 * MS + 12 * MS / 8);
}

/* One look that finds better layers, then one that does not, and so on. */
static void noise_changes_nothing(void **state)
{
	struct restage r = { 0 };
	struct restage_wish wish;
	const uint32_t layers[] = { 3, 3 };
	const struct restage_rules rules = { 2, layers, plenty, 1, 0, 8 };

	(void)state;
	for (unsigned step = 0; step < 60 * RESTAGE_STEPS; step++) {
		uint64_t slow = step / RESTAGE_STEPS % 2 == 0 ? 30 * MS : 3 * MS;
		assert_false(restage_note(&r, &rules, (uint64_t[]){ 3 * MS, slow }, &wish));
	}
	/* nor does a step that says nothing */
	restage_restart(&r);
	for (unsigned step = 0; step < 60 * RESTAGE_STEPS; step++)
		assert_false(restage_note(&r, &rules,
		    (uint64_t[]){ 3 * MS, step % 10 == 9 ? 0 : 30 * MS }, &wish));
}

static uint64_t longest_of(const struct restage_rules *rules, const uint64_t *each,
    const uint32_t *layers)
{
	uint64_t longest = 0;

	for (uint32_t i = 0; i < rules->stages; i++) {
		uint64_t takes = each[i] *
		    (layers[i] * RESTAGE_LAYER + (i + 1 == rules->stages ? rules->head : 0)) /
		    RESTAGE_LAYER;
		longest = takes > longest ? takes : longest;
	}
	return longest;
}

/* All ways to deal `left` layers over the stages from `stage` on. */
static uint64_t best_of(const struct restage_rules *rules, const uint64_t *each, uint32_t stage,
    uint32_t left, uint32_t *layers)
{
	uint64_t best = UINT64_MAX;

	if (stage + 1 == rules->stages) {
		layers[stage] = left;
		return left >= rules->least && left <= rules->most[stage]
		    ? longest_of(rules, each, layers)
		    : best;
	}
	for (uint32_t n = rules->least; n <= left && n <= rules->most[stage]; n++) {
		layers[stage] = n;
		uint64_t longest = best_of(rules, each, stage + 1, left - n, layers);
		best = longest < best ? longest : best;
	}
	return best;
}

/* No way to deal them has a faster slowest stage. */
static void the_best_of_all(void **state)
{
	struct rng_key key = rng_key(7, 0x726573, 0);
	uint64_t draws = 0;
	unsigned changed = 0;

	(void)state;
	for (unsigned turn = 0; turn < 300; turn++) {
		struct restage r = { 0 };
		struct restage_wish wish;
		uint32_t layers[STAGES], most[STAGES], tries[STAGES], all = 0, dealt = 0;
		uint64_t each[STAGES];
		for (unsigned i = 0; i < STAGES; i++) {
			layers[i] = 1 + (uint32_t)rng_below(key, 0, draws++, 5);
			most[i] = layers[i] + (uint32_t)rng_below(key, 0, draws++, 4);
			each[i] = MS * (1 + rng_below(key, 0, draws++, 9));
			all += layers[i];
		}
		struct restage_rules rules = { STAGES, layers, most, 1,
			rng_below(key, 0, draws++, 3 * RESTAGE_LAYER), 1000 };
		uint64_t best = best_of(&rules, each, 0, all, tries);
		if (steps_until(&r, &rules, each, &wish) == 0) {
			assert_true(100 * best > 89 * longest_of(&rules, each, layers));
			continue;
		}
		changed++;
		for (unsigned i = 0; i < STAGES; i++) {
			assert_in_range(wish.layers[i], 1, most[i]);
			dealt += wish.layers[i];
		}
		assert_int_equal(dealt, all);
		/* but for what a layer's time was rounded by */
		assert_true(longest_of(&rules, each, wish.layers) <= best + best / 1000);
	}
	assert_true(changed > 100);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_slow_stage_gets_fewer),
		cmocka_unit_test(what_is_not_worth_it),
		cmocka_unit_test(room_of_a_host),
		cmocka_unit_test(with_a_head),
		cmocka_unit_test(noise_changes_nothing),
		cmocka_unit_test(the_best_of_all),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
