/* When steps that take other times than planned are a reason to plan anew. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "daemon/plan/drift.h"

#define MS 1000000ull

/* Steps until there is a search; 0: none within 1000. */
static unsigned steps_until(struct drift *d, uint64_t ns)
{
	for (unsigned step = 1; step <= 1000; step++)
		if (drift_note(d, DRIFT_STEPS, ns))
			return step;
	return 0;
}

static void longer_steps_are_searched_for(void **state)
{
	struct drift d;

	(void)state;
	drift_begin(&d, 10 * MS);
	assert_int_equal(steps_until(&d, 12 * MS), 0);
	assert_int_equal(steps_until(&d, 121 * MS / 10), 2 * DRIFT_STEPS);
	assert_int_equal(d.measured_ns, 121 * MS / 10);
	/* of no use: not asked again until steps are longer still */
	drift_stays(&d, 0);
	assert_int_equal(steps_until(&d, 121 * MS / 10), 0);
	assert_int_equal(steps_until(&d, 145 * MS / 10), 0);
	assert_true(steps_until(&d, 146 * MS / 10) > 0);
}

/* Figures of the moment in which a link became slow: the plan was kept for them, and for good. */
static void what_figures_do_not_explain_is_searched_for_again(void **state)
{
	struct drift d;

	(void)state;
	drift_begin(&d, 1690 * MS);
	assert_int_equal(steps_until(&d, 3310 * MS), 3 * DRIFT_STEPS);
	drift_stays(&d, 774 * MS);
	assert_int_equal(d.expected_ns, 1690 * MS);
	assert_int_equal(steps_until(&d, 3310 * MS), 5 * DRIFT_STEPS);
	/* by now they do */
	drift_stays(&d, 1655 * MS);
	assert_int_equal(d.expected_ns, 3310 * MS);
	assert_int_equal(steps_until(&d, 3310 * MS), 0);
}

static void after_a_restart_one_look_is_left_out(void **state)
{
	struct drift d;

	(void)state;
	drift_begin(&d, 10 * MS);
	assert_int_equal(steps_until(&d, 100 * MS), 3 * DRIFT_STEPS);
	/* in the middle of the second look that finds so */
	drift_begin(&d, 10 * MS);
	for (unsigned step = 0; step < 5 * DRIFT_STEPS / 2; step++)
		assert_false(drift_note(&d, DRIFT_STEPS, 100 * MS));
	drift_restart(&d);
	assert_int_equal(steps_until(&d, 100 * MS), 3 * DRIFT_STEPS);
}

static void each_search_needs_more_looks(void **state)
{
	struct drift d;
	const unsigned looks[] = { 2, 4, 8, 16, 16 };

	(void)state;
	drift_begin(&d, 10 * MS);
	for (unsigned i = 0; i < 5; i++) {
		assert_int_equal(steps_until(&d, 20 * MS), (1 + looks[i]) * DRIFT_STEPS);
		drift_follows(&d, 10 * MS);
	}
	assert_true(d.searches == 5 && d.changes == 5);
}

static void shorter_steps_count_once_it_was_planned_anew(void **state)
{
	struct drift d;

	(void)state;
	drift_begin(&d, 10 * MS);
	assert_int_equal(steps_until(&d, 5 * MS), 0);
	drift_follows(&d, 30 * MS);
	assert_int_equal(d.planned_ns, 30 * MS);
	assert_int_equal(steps_until(&d, 25 * MS), 0);
	assert_true(steps_until(&d, 23 * MS) > 0);
}

static void noise_and_jobs_without_a_plan(void **state)
{
	struct drift d;

	(void)state;
	drift_begin(&d, 10 * MS);
	for (unsigned step = 0; step < 60 * DRIFT_STEPS; step++)
		assert_false(
		    drift_note(&d, DRIFT_STEPS, step / DRIFT_STEPS % 2 == 0 ? 30 * MS : 10 * MS));
	/* one that says nothing is none */
	drift_begin(&d, 10 * MS);
	assert_int_equal(steps_until(&d, 0), 0);
	assert_int_equal(d.steps, 0);
	drift_begin(&d, 0);
	assert_int_equal(steps_until(&d, 100 * MS), 0);
	drift_follows(&d, 0); /* never without one again */
	assert_int_equal(d.planned_ns, 1);
}

static void other_workers_are_searched_for_at_once(void **state)
{
	struct drift d;

	(void)state;
	drift_begin(&d, 10 * MS);
	assert_true(steps_until(&d, 20 * MS) > 0);
	drift_stays(&d, 0);
	const struct drift before = d;
	/* in the middle of a look; steps are as planned */
	for (unsigned step = 0; step < DRIFT_STEPS / 2; step++)
		assert_false(drift_note(&d, DRIFT_STEPS, 10 * MS));
	drift_shaken(&d);
	assert_int_equal(steps_until(&d, 10 * MS), DRIFT_STEPS / DRIFT_SHAKEN_PART);
	assert_int_equal(d.measured_ns, 10 * MS);
	assert_int_equal(d.searches, before.searches);
	/* interrupted by nothing that counts: again, until something came of it */
	drift_restart(&d);
	assert_int_equal(steps_until(&d, 10 * MS), DRIFT_STEPS / DRIFT_SHAKEN_PART);
	drift_stays(&d, 10 * MS);
	assert_int_equal(d.expected_ns, 10 * MS);
	assert_int_equal(steps_until(&d, 10 * MS), 0);
	drift_shaken(&d);
	drift_follows(&d, 30 * MS);
	assert_int_equal(steps_until(&d, 30 * MS), 0);
	/* a look of a step, and a job without a plan */
	drift_shaken(&d);
	assert_true(drift_note(&d, 1, 30 * MS));
	drift_begin(&d, 0);
	drift_shaken(&d);
	assert_int_equal(steps_until(&d, 10 * MS), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(longer_steps_are_searched_for),
		cmocka_unit_test(what_figures_do_not_explain_is_searched_for_again),
		cmocka_unit_test(after_a_restart_one_look_is_left_out),
		cmocka_unit_test(each_search_needs_more_looks),
		cmocka_unit_test(shorter_steps_count_once_it_was_planned_anew),
		cmocka_unit_test(noise_and_jobs_without_a_plan),
		cmocka_unit_test(other_workers_are_searched_for_at_once),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
