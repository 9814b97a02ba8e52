/* What no plan of a choice can take less than, beside that choice where the search would begin to place it, on small clusters. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "tests/unit/plan_exhaustive.h"

/* What a plan takes does not depend on which one the layout was laid out for last: here one of the same choice, on the same workers the other way round. */
static void check_after_another(const struct plan_case *c, struct plan_layout *layout,
    const struct plan *plan)
{
	struct plan again = *plan, other = *plan;
	for (uint32_t i = 0; i < c->cluster.worker_count; i++)
		other.worker_of[i] = plan->worker_of[c->cluster.worker_count - 1 - i];
	plan_fill(layout, &other);
	assert_int_equal(plan_predict(layout, &again, NULL), TR_OK);
	assert_memory_equal(&again.times, &plan->times, sizeof(again.times));
}

/* Nothing is faster than its bound, times add up, all layers and microbatches are given out. */
static void check_start(const struct plan_case *c, struct plan_layout *layout,
    const struct plan_choice *choice)
{
	struct plan plan = { .choice = *choice };
	const struct plan_times *t = &plan.times;
	uint32_t layers = 0, microbatches = 0;
	(void)plan_place_start(layout, &plan);
	assert_int_equal(plan_predict(layout, &plan, NULL), TR_OK);
	check_after_another(c, layout, &plan);
	assert_true(plan_bound_s(layout, choice) <= plan.times.step_s);
	assert_true(fabs(t->compute_s + t->exchange_s + t->idle_s + t->reduce_s + t->update_s -
	                t->step_s) <= 1e-9 * t->step_s);
	for (uint32_t i = 0; i < choice->mesh.size[MESH_PP] * choice->chunks; i++)
		layers += plan.layers_of[i];
	for (uint32_t i = 0; i < choice->mesh.size[MESH_DP]; i++)
		microbatches += plan.microbatches_of[i];
	assert_int_equal(layers, c->model.layers);
	assert_int_equal(microbatches, (c->in.batch + choice->sequences - 1) / choice->sequences);
}

static void bounds_are_bounds(void **state)
{
	(void)state;
	for (unsigned i = 0; i < PLAN_CASES; i++) {
		struct plan_choice choice = { 0 };
		struct plan_case c;
		unsigned count = 0;
		case_make(&c, i);
		struct plan_layout *layout = plan_layout_create(&c.in, NULL);
		assert_non_null(layout);
		for (; plan_choice_next(layout, &any_choice, &choice); count++)
			check_start(&c, layout, &choice);
		assert_true(count > 100);
		plan_layout_destroy(layout);
		plan_cluster_finish(&c.cluster);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(bounds_are_bounds),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
