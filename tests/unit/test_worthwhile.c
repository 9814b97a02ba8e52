/* Whether a change of mesh pays, and what it is reckoned from. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "daemon/plan/pace.h"
#include "daemon/plan/worthwhile.h"

#define MS 1000000ull

static void saving_beside_cost(void **state)
{
	(void)state;
	struct worth w = { .step_ns = 40 * MS,
		.next_ns = 30 * MS,
		.steps_left = 101,
		.cost_ns = 1000 * MS };
	assert_true(worthwhile(&w));
	w.steps_left = 100; /* as much as it takes is not more */
	assert_false(worthwhile(&w));
	w.steps_left = 0;
	w.cost_ns = 0;
	assert_false(worthwhile(&w));
	w.steps_left = UINT64_MAX;
	w.cost_ns = UINT64_MAX / 2;
	assert_true(worthwhile(&w));
	w.next_ns = 36 * MS;
	assert_true(worthwhile(&w));
	w.next_ns = 36 * MS + 1; /* less than a tenth is noise */
	assert_false(worthwhile(&w));
	w.next_ns = 50 * MS;
	assert_false(worthwhile(&w));
	w.step_ns = 0; /* nothing says that it does not pay */
	assert_true(worthwhile(&w));
	w = (struct worth){ .step_ns = UINT64_MAX,
		.next_ns = UINT64_MAX / 2,
		.steps_left = 2,
		.cost_ns = 1 };
	assert_true(worthwhile(&w));
}

static void words(void **state)
{
	(void)state;
	char text[WORTH_TEXT];
	struct worth w = { .step_ns = 40 * MS,
		.next_ns = 28 * MS,
		.steps_left = 120,
		.cost_ns = 100 * MS };
	assert_string_equal(worth_words(&w, text),
	    "120 steps are left, each 12 ms shorter: 1.44 s, for a change of 0.1 s");
	w.next_ns = 38 * MS;
	assert_string_equal(worth_words(&w, text),
	    "120 steps are left, each 2 ms shorter, less than a tenth of 40 ms: 0.24 s, for a "
	    "change of 0.1 s");
	w.step_ns = 0;
	assert_string_equal(worth_words(&w, text), "no step was measured yet");
}

static void at_best(void **state)
{
	(void)state;
	assert_int_equal(worth_at_best_ns(40 * MS, 2, 4), 20 * MS);
	assert_int_equal(worth_at_best_ns(40 * MS, 1, 3), 40 * MS / 3);
	assert_int_equal(worth_at_best_ns(40 * MS, 4, 4), 36 * MS);
	assert_int_equal(worth_at_best_ns(40 * MS, 4, 3), 36 * MS);
	assert_int_equal(worth_at_best_ns(40 * MS, 19, 20), 36 * MS);
}

static void mean_of_steps(void **state)
{
	(void)state;
	struct pace p = { 0 };
	assert_int_equal(pace_step_ns(&p), 0);
	for (unsigned i = 0; i < PACE_LEFT_OUT; i++)
		pace_step(&p, 900 * MS);
	assert_int_equal(pace_step_ns(&p), 0);
	pace_step(&p, 0);
	assert_int_equal(pace_step_ns(&p), 0);
	pace_step(&p, 10 * MS);
	pace_step(&p, 20 * MS);
	assert_int_equal(pace_step_ns(&p), 15 * MS);
	for (unsigned i = 0; i < 10 * PACE_STEPS; i++) /* what was is forgotten */
		pace_step(&p, 60 * MS);
	assert_in_range(pace_step_ns(&p), 59 * MS, 60 * MS);
	pace_change(&p, 700 * MS);
	pace_restart(&p, 2);
	pace_restart(&p, 2);
	assert_in_range(pace_step_ns(&p), 59 * MS, 60 * MS); /* the best that is known */
	assert_int_equal(pace_cost_ns(&p, 0), 700 * MS);
	for (unsigned i = 0; i <= PACE_LEFT_OUT; i++)
		pace_step(&p, 20 * MS);
	assert_int_equal(pace_step_ns(&p), 20 * MS);
}

static void cost_of_a_change(void **state)
{
	(void)state;
	struct pace p = { 0 };
	for (unsigned i = 0; i <= PACE_LEFT_OUT; i++)
		pace_step(&p, 30 * MS);
	assert_int_equal(pace_cost_ns(&p, 100 * 1000 * 1000), 1060 * MS);
	pace_change(&p, 0); /* nobody knew */
	assert_int_equal(pace_cost_ns(&p, 0), 60 * MS);
	pace_change(&p, 5000 * MS);
	assert_int_equal(pace_cost_ns(&p, 0), 5000 * MS);
	assert_int_equal(pace_fill_cost_ns(&p, 1000 * 1000), 70 * MS);
	/* over links that are known a change takes no less than its bytes do there, whatever another one took */
	assert_int_equal(pace_link_cost_ns(&p, 1000, 1000, 200), 5000 * MS);
	assert_int_equal(pace_link_cost_ns(&p, 60 * 1000 * 1000, 30 * 1000 * 1000, 200), 6000 * MS);
	assert_int_equal(pace_link_cost_ns(&p, 60 * 1000 * 1000, 30 * 1000 * 1000, 0), 5000 * MS);
	pace_fill(&p, 0);
	pace_fill(&p, 90 * MS);
	assert_int_equal(pace_fill_cost_ns(&p, 1000 * 1000), 90 * MS);
	assert_int_equal(pace_cost_ns(&p, 0), 5000 * MS);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(saving_beside_cost),
		cmocka_unit_test(words),
		cmocka_unit_test(at_best),
		cmocka_unit_test(mean_of_steps),
		cmocka_unit_test(cost_of_a_change),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
