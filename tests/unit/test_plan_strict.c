/* Plans of strict jobs: which there are, their microbatches part by part, a step by hand, memory of second tables. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "daemon/plan/plan_dealing.h"
#include "tests/unit/plan_cases.h"

static void strict_case(struct plan_case *c, unsigned which)
{
	case_make(c, which);
	c->in.runnable = true;
	c->in.width_parts = 2;
	c->in.batch_parts = 8;
	c->all.sequence_parallel = true;
	c->all.add_s = 0.2e-9;
	c->all.parameter_bytes = 36;
}

static struct plan planned(struct plan_case *c, struct plan *plan)
{
	struct plan_layout *layout = plan_layout_create(&c->in, NULL);
	struct tr_error error;

	assert_non_null(layout);
	plan_fill(layout, plan);
	if (plan_predict(layout, plan, &error) != TR_OK)
		fail_msg("%s", error.text);
	plan_layout_destroy(layout);
	return *plan;
}

/* Two replicas have four parts of the batch each, a sequence in each part; gradients are added up three times, and whole ones sent once, when all is computed. */
static void a_step_by_hand(void **state)
{
	struct plan_case c;
	struct plan plan = case_plan(2, 1, 1);

	(void)state;
	strict_case(&c, 0);
	planned(&c, &plan);
	assert_true(plan.microbatches_of[0] == 4 && plan.microbatches_of[1] == 4);
	double once = 1.1 * (6 * 195e-3 + 3e-3 + 129e-3),
	       parameters = (double)model_config_parameters(&c.model);
	assert_true(fabs(plan.times.compute_s - 4 * once) < 1e-9 && fabs(plan.times.idle_s) < 1e-9);
	assert_true(fabs(plan.times.reduce_s - (parameters * 4 / (10 * GBIT) + 2 * 50e-6)) < 1e-9);
	assert_true(fabs(plan.times.update_s -
	                (parameters * (0.6e-9 + 6 * 0.2e-9) + 1e-3 + 2 * 50e-6)) < 1e-9);
	/* Four replicas: two levels, two parts each. */
	plan.choice.mesh.size[MESH_DP] = 4;
	planned(&c, &plan);
	assert_int_equal(plan.microbatches_of[3], 2);
	assert_true(
	    fabs(plan.times.reduce_s - 2 * (parameters * 4 / (10 * GBIT) + 2 * 50e-6)) < 1e-9);
	plan_cluster_finish(&c.cluster);
}

/* A pipeline is empty at the end of each part: of two sequences each, four times the way of one part. */
static void pipelines_are_drained(void **state)
{
	struct plan_case c;
	struct plan plan = case_plan(1, 2, 1);

	(void)state;
	strict_case(&c, 0);
	c.in.batch_parts = 0;
	c.in.batch = 2;
	double part_s = planned(&c, &plan).times.idle_s + plan.times.compute_s;
	uint64_t bytes = plan.memory_bytes;
	c.in.batch = 8;
	double whole_s = planned(&c, &plan).times.idle_s + plan.times.compute_s;
	c.in.batch_parts = 4;
	double drained_s = planned(&c, &plan).times.idle_s + plan.times.compute_s;
	assert_int_equal(plan.microbatches_of[0], 8);
	assert_true(fabs(drained_s - 4 * part_s) < 1e-9 && drained_s > 1.1 * whole_s);
	/* In flight are those of a part, and at each end a second table's gradient; the parts' own two of a model with both ends are not here. */
	uint64_t table = (uint64_t)8192 * 1024 * sizeof(float);
	assert_true(plan.memory_bytes <= bytes + table && plan.memory_bytes > bytes - 2 * table);
	plan_cluster_finish(&c.cluster);
}

/* Powers of two, as parts divide, with ZeRO-1 where there are more replicas than two owners, with own rows at each tp; equal shares whatever the speeds, and no keys for them. */
static void meshes_that_parts_divide(void **state)
{
	static const unsigned cases[] = { 0, 5, 7, 9, 15 };
	struct plan_case c;
	struct plan_result *result;
	struct dealing dealing;

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		strict_case(&c, cases[i]);
		struct plan_layout *layout = plan_layout_create(&c.in, NULL);
		const struct plan_choice any = { .chunks = 0 };
		struct plan_choice choice = { 0 };
		unsigned count = 0, owned = 0;
		for (; plan_choice_next(layout, &any, &choice); count++) {
			const uint32_t *size = choice.mesh.size;
			assert_true(8 % size[MESH_DP] == 0 && size[MESH_TP] <= 2);
			assert_true(choice.own_rows == (size[MESH_TP] > 1));
			assert_true(choice.owners == 0 || (choice.owners == 2 && size[MESH_DP] > 2));
			owned += choice.owners > 0;
			assert_true(choice.sequences <= c.in.batch / 8);
		}
		assert_true(count > 4 && (owned > 0) == (c.cluster.worker_count > 3));
		plan_layout_destroy(layout);
		assert_int_equal(plan_search(&c.in, &(struct plan_search_settings){ .seed = 1 },
		                     &result, NULL),
		    TR_OK);
		plan_dealing(&c.in, &result->best, &dealing);
		assert_int_equal(dealing.shares[0], 0);
		for (uint32_t d = 1; d < result->best.choice.mesh.size[MESH_DP]; d++)
			assert_int_equal(result->best.microbatches_of[d],
			    result->best.microbatches_of[0]);
		plan_search_destroy(result);
		plan_cluster_finish(&c.cluster);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_step_by_hand),
		cmocka_unit_test(pipelines_are_drained),
		cmocka_unit_test(meshes_that_parts_divide),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
