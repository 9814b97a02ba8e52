/* What the planner counts of sums inside a mesh, by hand: of a layer that is computed again, and of gradients that all of a stage hold. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "daemon/plan/plan_shared.h"
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

/* Of all workers. Nobody sends the sum of losses in the plan, which is in the round's commit. */
static double derived_step_bytes(const struct plan_layout *l, const struct plan *plan)
{
	struct strategy strategy;
	struct collective_log log;
	double bytes = 0;

	strategy_megatron(l->in->model, &plan->choice.mesh, &strategy);
	strategy.sequences = l->dp;
	strategy.zero_owners = plan->choice.owners;
	assert_int_equal(propagate(l->in->model, &strategy, &log, NULL, NULL), TR_OK);
	for (uint32_t rank = 0; rank < l->pp; rank++)
		for (uint32_t i = 0; i < log.count; i++) {
			const struct collective_entry *e = &log.entries[i];
			bool first = rank == 0, last = rank + 1 == l->pp;
			bool copied = strcmp(e->tensor, "embedding.table") == 0 && last;
			bool there = e->section == SECTION_LAYER || copied ||
			    (e->section == SECTION_EMBEDDING ? first : last);
			if (e->phase == PHASE_STEP && there &&
			    strcmp(e->tensor, "head.loss_total") != 0)
				bytes += l->dp * collective_entry_bytes_sent(e, &strategy) *
				    (e->section == SECTION_LAYER ? plan->layers_of[rank] : 1);
		}
	return bytes;
}

/* Sums over dp, a tied table's, and ZeRO-1's new parameters: what the planner puts on links is what is derived, which trainers do (test_step_calls.c). */
static void a_step_sends_what_is_derived(void **state)
{
	static const uint32_t meshes[][3] = { { 2, 1, 0 }, { 3, 1, 0 }, { 3, 1, 2 }, { 4, 1, 2 },
		{ 4, 1, 3 }, { 4, 1, 4 }, { 1, 2, 0 }, { 2, 2, 0 }, { 3, 2, 0 }, { 3, 2, 2 } };

	(void)state;
	for (size_t i = 0; i < sizeof(meshes) / sizeof(meshes[0]); i++) {
		struct plan_case c;
		struct plan plan = case_plan(meshes[i][0], meshes[i][1], 1);
		case_make(&c, 10);
		for (uint16_t w = 0; w < 6; w++)
			plan.worker_of[w] = w;
		plan.choice.owners = meshes[i][2];
		struct plan_layout *l = plan_layout_create(&c.in, NULL);
		assert_non_null(l);
		case_predict(l, &plan);
		double sent = 0, wanted = derived_step_bytes(l, &plan);
		for (uint32_t k = 0; k < c.cluster.node_count * c.cluster.node_count; k++)
			sent += l->bytes[k];
		for (uint32_t d = 0; d < l->dp; d++) /* between stages, there and back */
			wanted += 2.0 * (l->pp - 1) * l->of_tp->boundary_bytes *
			    plan.microbatches_of[d];
		assert_true(fabs(sent - wanted) < 1e-9 * wanted);
		plan_layout_destroy(l);
		plan_cluster_finish(&c.cluster);
	}
}

/* Of three replicas and a tied table: its ring goes through both stages of all, over the slowest of the links between them. */
static void a_table_of_three_replicas(void **state)
{
	struct plan_case c;
	struct plan plan = case_plan(3, 2, 1);

	(void)state;
	case_make(&c, 10);
	for (uint16_t w = 0; w < 6; w++)
		plan.worker_of[w] = w;
	struct plan_layout *l = plan_layout_create(&c.in, NULL);
	assert_non_null(l);
	case_predict(l, &plan);
	double table = 8192.0 * 1024 * 4;
	assert_true(fabs(plan_table_bytes(l) - 2 * 5.0 / 6 * table) < 1);
	assert_int_equal(plan_table_summed_apart(l, 0), 8192 * 1024);
	assert_int_equal(plan_table_summed_apart(l, 1), 8192 * 1024);
	double slow_s = fmax(l->rings[0].latency_s, l->rings[1].latency_s);
	assert_true(plan_table_s(l, &plan) >= 2 * slow_s);
	/* Of a strict job each replica has a sum of its own, and sums of sums go over dp as any gradient. */
	struct plan_input strict = c.in;
	strict.batch_parts = 4;
	l->in = &strict;
	assert_true(fabs(plan_table_bytes(l) - table) < 1);
	assert_int_equal(plan_table_summed_apart(l, 0), 0);
	plan_layout_destroy(l);
	plan_cluster_finish(&c.cluster);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_layer_again),
		cmocka_unit_test(own_rows_of_two_replicas),
		cmocka_unit_test(three_replicas_without),
		cmocka_unit_test(a_step_sends_what_is_derived),
		cmocka_unit_test(a_table_of_three_replicas),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
