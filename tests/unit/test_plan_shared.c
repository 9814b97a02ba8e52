/* What the planner counts of sums inside a mesh, by hand: of a layer that is computed again, and of gradients that all of a stage hold. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/unit/plan_cases.h"

/* Positions, four vectors of norms and two biases behind a sum in each of six layers, the last norm. */
static const double SHARED = 4.0 * (512 * 1024 + 6 * 6 * 1024 + 2 * 1024);

/* Two all-reduces forward and two backward; again one, of which a layer needs the result. */
static void a_layer_again(void **state)
{
	/* Both send over what workers of a node share. */
	const double sum_s = 2 * 5e-6 + 2 * 512 * 1024 * 4 / (80 * GBIT);
	struct plan_case c;
	struct plan plan = case_plan(1, 1, 2);

	(void)state;
	case_make(&c, 9);
	struct plan_layout *layout = plan_layout_create(&c.in, NULL);
	assert_non_null(layout);
	case_predict(layout, &plan);
	double without_s = plan.times.exchange_s, without = layout->bytes[0];
	plan.choice.recompute = true;
	case_predict(layout, &plan);
	assert_true(fabs(plan.times.exchange_s - without_s - 8 * 6 * sum_s) < 1e-9);
	/* From each of two to the other. */
	assert_true(fabs(layout->bytes[0] - without - 2 * 8 * 6 * 512 * 1024 * 4.0) < 1);
	plan_layout_destroy(layout);
	plan_cluster_finish(&c.cluster);
}

/* A replica on each node: what all four hold is one sum of four, that goes from node to node. */
static void own_rows_of_two_replicas(void **state)
{
	struct plan_case c;
	struct plan plan = case_plan(2, 1, 2);

	(void)state;
	case_make(&c, 9);
	struct plan_layout *layout = plan_layout_create(&c.in, NULL);
	assert_non_null(layout);
	case_predict(layout, &plan);
	double between = layout->bytes[0 * 2 + 1], update_s = plan.times.update_s;
	plan.choice.own_rows = true;
	case_predict(layout, &plan);
	assert_true(fabs(layout->bytes[0 * 2 + 1] - between - 1.5 * SHARED) < 1);
	const struct flow_link *link = &c.cluster.links[1];
	assert_true(fabs(plan.times.update_s - update_s - 2 * link->latency_s -
	                1.5 * SHARED / link->bandwidth_bytes_per_s) < 1e-9);
	plan_layout_destroy(layout);
	plan_cluster_finish(&c.cluster);
}

/* Three numbers may be added up in two orders: from three replicas on what all hold is summed once for the stage (daemon/worker/sharded_shared.c). */
static void three_replicas_without(void **state)
{
	struct plan_case c;
	struct plan plan = case_plan(3, 1, 2);

	(void)state;
	case_make(&c, 10);
	plan.worker_of[4] = 4;
	plan.worker_of[5] = 5;
	struct plan_layout *layout = plan_layout_create(&c.in, NULL);
	assert_non_null(layout);
	case_predict(layout, &plan);
	double rings = 0, all = 2 * plan_layout_reduce_bytes(layout, &plan, 0) + 5.0 / 3 * SHARED;
	for (uint32_t node = 1; node < 3; node++)
		rings += layout->bytes[node];
	assert_true(fabs(rings - all) < 8); /* node 0 sends to one of the two */
	plan_layout_destroy(layout);
	plan_cluster_finish(&c.cluster);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_layer_again),
		cmocka_unit_test(own_rows_of_two_replicas),
		cmocka_unit_test(three_replicas_without),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
