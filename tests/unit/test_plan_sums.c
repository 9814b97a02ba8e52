/* Sums over tp that workers of one node make by themselves cost what they copy and read; others go a ring's way, as do those that are too large. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/unit/plan_cases.h"

#define STREAM (512 * 1024 * 4.0) /* bytes of a sequence */
#define SUM_S  3e-6
#define BYTE_S 2e-10

static const struct placing {
	uint16_t second; /* the first is worker 0, of node 0, which has worker 1 too */
	uint32_t sequences;
	bool recompute, busy;
} apart = { 2, 1, false, true }, together = { 1, 1, false, true };

/* Of a step of tp 2; `known`: what such sums cost. */
static double sums_s(struct placing at, bool known)
{
	struct plan_case c;
	struct plan plan = case_plan(1, 1, 2);

	case_make(&c, 9);
	c.all.sum_s = known ? SUM_S : 0;
	c.all.sum_byte_s = known ? BYTE_S : 0;
	c.cluster.busy = at.busy;
	plan.worker_of[1] = at.second;
	plan.choice.sequences = at.sequences;
	plan.choice.recompute = at.recompute;
	struct plan_layout *layout = plan_layout_create(&c.in, NULL);
	assert_non_null(layout);
	case_predict(layout, &plan);
	plan_layout_destroy(layout);
	plan_cluster_finish(&c.cluster);
	return plan.times.exchange_s;
}

/* Computed again, each of six layers has one sum more in each of eight microbatches: who takes part copies one stream to its seat and reads another's. */
static void workers_of_a_node_copy_and_read(void **state)
{
	struct placing again = together;

	(void)state;
	again.recompute = true;
	double more = sums_s(again, true) - sums_s(together, true);
	assert_true(fabs(more - 8 * 6 * (SUM_S + 2 * STREAM * BYTE_S)) < 1e-9);
	assert_true(sums_s(together, false) != sums_s(together, true));
}

static void other_nodes_are_asked_as_ever(void **state)
{
	(void)state;
	assert_true(sums_s(apart, true) == sums_s(apart, false));
}

/* Of two sequences it is 4 MiB, of four 8 (TR_IN_TURN_BYTES_MAX). */
static void large_ones_go_through_engines(void **state)
{
	struct placing large = together;

	(void)state;
	large.sequences = 2;
	assert_true(sums_s(large, true) != sums_s(large, false));
	large.sequences = 4;
	double known = sums_s(large, true), unknown = sums_s(large, false);
	/* But for the head's small ones. */
	assert_true(fabs(known - unknown) < 0.02 * unknown);
}

/* It is the workers' own time, whatever cores are free. */
static void nothing_of_them_is_hidden(void **state)
{
	struct placing quiet = together;

	(void)state;
	quiet.busy = false;
	assert_true(sums_s(quiet, true) == sums_s(together, true));
	assert_true(sums_s(quiet, false) < sums_s(together, false));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(workers_of_a_node_copy_and_read),
		cmocka_unit_test(other_nodes_are_asked_as_ever),
		cmocka_unit_test(large_ones_go_through_engines),
		cmocka_unit_test(nothing_of_them_is_hidden),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
