/* The front of time and memory: of plans by chance, and what a search finds beside all plans there are. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "tests/unit/plan_exhaustive.h"

static bool beats(const struct plan *a, const struct plan *b)
{
	return a->times.step_s <= b->times.step_s && a->memory_bytes <= b->memory_bytes;
}

static void check_order(const struct plan *at, uint32_t count)
{
	for (uint32_t i = 1; i < count; i++) {
		assert_true(at[i].times.step_s > at[i - 1].times.step_s);
		assert_true(at[i].memory_bytes < at[i - 1].memory_bytes);
	}
}

/* Whether one of them is as fast and as small. */
static bool is_beaten(const struct plan *at, uint32_t count, const struct plan *plan)
{
	for (uint32_t i = 0; i < count; i++)
		if (beats(&at[i], plan))
			return true;
	return false;
}

/* Few times and few sizes, so that many are alike. */
static void plans_by_chance(void **state)
{
	(void)state;
	for (uint64_t seed = 0; seed < 300; seed++) {
		struct rng_key key = rng_key(seed, 3, 0);
		struct plan_front front = { 0 }, copy = { 0 };
		struct plan plans[60] = { 0 };
		uint32_t count = 1 + (uint32_t)rng_below(key, 0, 0, 60), on = 0;
		uint64_t values = 1 + rng_below(key, 0, 1, 80);
		for (uint32_t i = 0; i < count; i++) {
			plans[i].times.step_s = 1 + (double)rng_below(key, 1, i, values);
			plans[i].memory_bytes = 1 + rng_below(key, 2, i, values);
			plans[i].memory_part = rng_below(key, 3, i, 8) == 0 ? 1.1 : 0.9;
			assert_int_equal(plan_front_offer(&front, &plans[i]), TR_OK);
		}
		check_order(front.at, front.count);
		for (uint32_t i = 0; i < count; i++) {
			uint32_t better = 0;
			for (uint32_t j = 0; j < count; j++)
				better += plans[j].memory_part <= 1 &&
				    beats(&plans[j], &plans[i]) &&
				    (!beats(&plans[i], &plans[j]) || j < i);
			bool stays = plans[i].memory_part <= 1 && better == 0;
			double distance = plan_front_distance(&front, plans[i].times.step_s,
			    plans[i].memory_bytes);
			on += stays;
			assert_true(plans[i].memory_part > 1 ||
			    is_beaten(front.at, front.count, &plans[i]));
			assert_true(distance >= 1 || plans[i].memory_part > 1);
			/* So much less of both, and a little, and nothing beats it. */
			struct plan less = plans[i];
			less.times.step_s /= distance * (1 + 1e-9);
			assert_true(distance == 0 ||
			    !is_beaten(front.at, front.count,
			        &(struct plan){ .times = less.times,
			            .memory_bytes = (uint64_t)floor(
			                ((double)less.memory_bytes - 1e-9) / distance) }));
		}
		assert_int_equal(on, front.count);
		assert_int_equal(plan_front_copy(&front, &copy), TR_OK);
		assert_int_equal(copy.count, front.count);
		plan_front_finish(&front);
		plan_front_finish(&copy);
	}
}

/* By how much more of both, at most, the front takes than the nearest of all plans' front. */
static double farthest(const struct plan_result *r, const struct plan_front *all)
{
	double most = 0;

	for (uint32_t i = 0; i < all->count; i++) {
		double least = INFINITY;
		for (uint32_t j = 0; j < r->pareto_count; j++)
			least = fmin(least,
			    fmax(r->pareto[j].times.step_s / all->at[i].times.step_s,
			        (double)r->pareto[j].memory_bytes /
			            (double)all->at[i].memory_bytes));
		most = fmax(most, least);
	}
	return most;
}

/* None that the search says anything of is missing, nor any choice's first placement. */
static void check_nothing_is_missing(const struct plan_case *c, const struct plan_result *r)
{
	struct plan_choice choice = { 0 };
	struct plan_layout *layout = plan_layout_create(&c->in, NULL);

	assert_non_null(layout);
	check_order(r->pareto, r->pareto_count);
	assert_memory_equal(&r->pareto[0], &r->best, sizeof(r->best));
	for (uint32_t i = 0; i < r->loser_count; i++)
		assert_true(r->losers[i].plan.memory_part > 1 ||
		    is_beaten(r->pareto, r->pareto_count, &r->losers[i].plan));
	while (plan_choice_next(layout, &any_choice, &choice)) {
		struct plan plan = { .choice = choice };
		char text[PLAN_CHOICE_TEXT_MAX];
		(void)plan_place_start(layout, &plan);
		assert_int_equal(plan_predict(layout, &plan, NULL), TR_OK);
		if (plan.memory_part <= 1 && !is_beaten(r->pareto, r->pareto_count, &plan))
			fail_msg("%s: %s, %.3f s and %llu bytes, is missing", c->name,
			    plan_choice_text(&choice, text), plan.times.step_s,
			    (unsigned long long)plan.memory_bytes);
	}
	plan_layout_destroy(layout);
}

/* What a search finds is of the plans there are; it has timed few of them. */
static void fronts_beside_all_plans(void **state)
{
	struct exhaustive *e = malloc(sizeof(*e));
	unsigned searched = 0, exact = 0, step = getenv("NIGHTLY") != NULL ? 1 : 3;
	(void)state;
	assert_non_null(e);
	for (unsigned i = 0; i < 2 * 16; i += step) { /* the last two have too many plans */
		struct plan_front all = { 0 };
		struct plan_case c;
		struct plan_result *r;
		case_make(&c, i / 2);
		c.in.runnable = i % 2 == 1;
		const struct plan_search_settings settings = { .seed = 1, .pareto = true };
		assert_int_equal(plan_search(&c.in, &settings, &r, NULL), TR_OK);
		check_nothing_is_missing(&c, r);
		exhaustive_front(&c.in, &all, e);
		double most = farthest(r, &all);
		if (most > 1.15)
			fail_msg("%s: %.3f times what would do", c.name, most);
		searched++;
		exact += most < 1 + 1e-9;
		plan_search_destroy(r);
		plan_front_finish(&all);
		plan_cluster_finish(&c.cluster);
	}
	print_message("%u fronts of %u are all plans'\n", exact, searched);
	assert_true(4 * exact >= 2 * searched);
	free(e);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(plans_by_chance),
		cmocka_unit_test(fronts_beside_all_plans),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
