/* Predicted beside actual steps: when a difference is news. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "daemon/plan/plan_watch.h"

/* Looks at every step of [from, to), which all take `actual`; the step at which it was news, 0: at none. Twice is a failure. */
static uint64_t news_between(struct plan_watch *w, uint64_t from, uint64_t to, double actual)
{
	uint64_t at = 0;
	for (uint64_t step = from; step < to; step++) {
		if (!plan_watch_look(w, step, actual, 1))
			continue;
		assert_int_equal(at, 0);
		at = step;
	}
	return at;
}

static void what_was_planned_is_no_news(void **state)
{
	(void)state;
	struct plan_watch w = { 0 };
	assert_int_equal(news_between(&w, 1, 1000, 1.19), 0);
	assert_int_equal(news_between(&w, 1000, 2000, 0.81), 0);
}

static void longer_steps_are_said_once(void **state)
{
	(void)state;
	struct plan_watch w = { 0 };
	/* the first 20 are left out, two looks of 20 steps agree */
	assert_int_equal(news_between(&w, 1, 1000, 1.5), 1 + 2 * PLAN_WATCH_STEPS);
	/* a fifth more than what was said is news again */
	assert_int_equal(news_between(&w, 1000, 2000, 1.6), 0);
	assert_true(news_between(&w, 2000, 3000, 2.0) > 0);
	/* as planned again: nothing to say, but then a fifth more is news */
	assert_int_equal(news_between(&w, 3000, 4000, 1.0), 0);
	assert_true(news_between(&w, 4000, 5000, 1.3) > 0);
	assert_true(news_between(&w, 5000, 6000, 0.5) > 0);
}

static void one_odd_look_is_none(void **state)
{
	(void)state;
	struct plan_watch w = { 0 };
	for (uint64_t i = 1; i < 100; i++)
		assert_false(plan_watch_look(&w, i * PLAN_WATCH_STEPS, i % 2 == 0 ? 3 : 1, 1));
}

static void after_a_change_it_waits(void **state)
{
	(void)state;
	struct plan_watch w = { 0 };
	for (uint64_t step = 1; step < 1000; step++) {
		if (step % 30 == 0)
			plan_watch_restart(&w, step);
		assert_false(plan_watch_look(&w, step, 9, 1));
	}
	assert_true(news_between(&w, 1000, 1100, 9) > 0);
}

static void without_figures(void **state)
{
	(void)state;
	struct plan_watch w = { 0 };
	for (uint64_t step = 1; step < 500; step++) {
		assert_false(plan_watch_look(&w, step, 0, 1));
		assert_false(plan_watch_look(&w, step, 5, 0));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_was_planned_is_no_news),
		cmocka_unit_test(longer_steps_are_said_once),
		cmocka_unit_test(one_odd_look_is_none),
		cmocka_unit_test(after_a_change_it_waits),
		cmocka_unit_test(without_figures),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
