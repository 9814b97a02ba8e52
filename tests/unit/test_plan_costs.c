/* What follows from placements for the planner: bytes and latencies of what tensor-parallel workers exchange, with sequence parallelism and without. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "daemon/plan/plan_costs.h"

static struct model_config model_of(uint32_t context)
{
	struct model_config model = { .preset = MODEL_GPT2,
		.layers = 2,
		.width = 64,
		.heads = 4,
		.context = context,
		.vocab = 256 };
	model_config_fill(&model);
	return model;
}

static void derive(uint32_t context, bool sequence_parallel, struct plan_derived derived[2])
{
	struct plan_cost at[] = { { .tp = 1, .sequences = 1 }, { .tp = 2, .sequences = 1 } };
	const struct plan_costs costs = { .at = at,
		.count = 2,
		.sequence_parallel = sequence_parallel };
	struct model_config model = model_of(context);
	for (size_t i = 0; i < 2; i++)
		at[i].time[SECTION_LAYER].forward_s = 1e-3;
	assert_int_equal(plan_costs_derive(&model, context, &costs, derived, NULL), TR_OK);
}

static void sequence_parallel_sends_as_many_bytes(void **state)
{
	struct plan_derived all[2], own[2];
	double stream = 32.0 * 64 * 4;

	(void)state;
	derive(32, false, all);
	derive(32, true, own);
	for (int phase = PHASE_FORWARD; phase <= PHASE_BACKWARD; phase++) {
		const struct plan_exchange *sums = &all[1].exchange[SECTION_LAYER][phase],
		                           *halves = &own[1].exchange[SECTION_LAYER][phase];
		assert_int_equal(sums->latencies, 4);
		assert_int_equal(halves->latencies, 4);
		assert_true(sums->bytes == 2 * stream && halves->bytes == 2 * stream);
		/* Where workers of one node make them: two sums, or four halves, of which each is of the whole stream. */
		assert_true(sums->ops == 2 && halves->ops == 4);
		assert_true(sums->touched == 4 * stream && halves->touched == 4 * stream);
		assert_true(sums->largest == stream && halves->largest == stream);
	}
	assert_true(all[1].boundary_bytes == stream && own[1].boundary_bytes == stream / 2);
	/* One worker has all rows. */
	assert_true(own[0].possible && own[0].boundary_bytes == stream);
	assert_int_equal(own[0].exchange[SECTION_LAYER][PHASE_FORWARD].latencies, 0);
}

/* A layer that is computed again ends before its second product (daemon/worker/forward.c), whose sum nobody needs: with its result the next layer began. */
static void a_layer_again_has_one_sum_less(void **state)
{
	struct plan_derived all[2], own[2];
	double stream = 32.0 * 64 * 4;

	(void)state;
	derive(32, false, all);
	derive(32, true, own);
	assert_int_equal(all[1].again.latencies, 2);
	assert_true(all[1].again.bytes == stream);
	/* Two all-gathers and the reduce-scatter between them, each of half as many. */
	assert_int_equal(own[1].again.latencies, 3);
	assert_true(own[1].again.bytes == 1.5 * stream);
	assert_int_equal(all[0].again.latencies, 0);
	assert_true(all[0].again.bytes == 0);
	/* Of 12 x 64 x 64 products a token, and 64 x 32 with keys and values, it leaves out 4 x 64 x 64. */
	for (size_t i = 0; i < 2; i++) {
		assert_true(all[i].again_share == 1 - 16384.0 / 51200);
		assert_true(own[i].again_share == all[i].again_share);
	}
}

/* Gradients of weights are computed while the backward pass's two sums are made (daemon/worker/backward.c); of sequence parallelism its reduce-scatters, not the gathers before products. */
static void sums_behind_gradients_of_weights(void **state)
{
	struct plan_derived all[2], own[2];
	double stream = 32.0 * 64 * 4, backward = 2 * 12 * 4096.0 + 2.5 * 64 * 32;

	(void)state;
	derive(32, false, all);
	derive(32, true, own);
	for (size_t i = 0; i < PLAN_BEHIND; i++) {
		assert_int_equal(all[1].behind[i].sum.latencies, 2);
		assert_true(all[1].behind[i].sum.bytes == stream);
		assert_int_equal(own[1].behind[i].sum.latencies, 1);
		assert_true(own[1].behind[i].sum.bytes == stream / 2);
		assert_int_equal(all[0].behind[i].sum.latencies, 0);
		assert_true(all[1].behind[i].share == (i == 0 ? 8 : 4) * 4096 / backward);
	}
}

/* Measured without, planned with: what was measured so differs by the same (tests/system/test_plan_measure.py). */
static void own_rows_of_what_was_measured_without(void **state)
{
	const double stream = 32.0 * 64 * 4;
	struct plan_cost at[] = { { .tp = 1, .sequences = 3 },
		{ .tp = 2,
		    .sequences = 3,
		    .kept_bytes = { 0, 1000000, 500000 },
		    .working_bytes = 900000 } };
	struct plan_costs costs = { .at = at, .count = 2 };
	struct plan_derived all[2], own[2];
	struct plan_cost split[2];
	struct model_config model = model_of(32);

	(void)state;
	at[0].time[SECTION_LAYER].forward_s = at[1].time[SECTION_LAYER].forward_s = 1e-3;
	assert_int_equal(plan_costs_derive(&model, 32, &costs, all, NULL), TR_OK);
	plan_costs_split_rows(&model, 32, &costs, all, split, own);
	assert_true(!own[0].possible && own[1].possible);
	assert_true(split[1].time[SECTION_LAYER].forward_s == 1e-3);
	assert_int_equal(split[1].kept_bytes[SECTION_LAYER], 1000000 - 3 * (uint64_t)stream);
	assert_int_equal(split[1].kept_bytes[SECTION_HEAD], 500000 - 3 * (uint64_t)stream / 2);
	assert_int_equal(split[1].working_bytes, 900000 - 9 * (uint64_t)stream / 2);
	/* Two more arrays of the stream. */
	costs.dropout = true;
	plan_costs_split_rows(&model, 32, &costs, all, split, own);
	assert_int_equal(split[1].working_bytes, 900000 - 15 * (uint64_t)stream / 2);
	model = model_of(31);
	assert_int_equal(plan_costs_derive(&model, 31, &costs, all, NULL), TR_OK);
	plan_costs_split_rows(&model, 31, &costs, all, split, own);
	assert_true(all[1].possible && !own[1].possible);
}

static void rows_that_do_not_divide_are_not_possible(void **state)
{
	struct plan_derived derived[2];

	(void)state;
	derive(31, false, derived);
	assert_true(derived[0].possible && derived[1].possible);
	derive(31, true, derived);
	assert_true(derived[0].possible && !derived[1].possible);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(sequence_parallel_sends_as_many_bytes),
		cmocka_unit_test(a_layer_again_has_one_sum_less),
		cmocka_unit_test(sums_behind_gradients_of_weights),
		cmocka_unit_test(own_rows_of_what_was_measured_without),
		cmocka_unit_test(rows_that_do_not_divide_are_not_possible),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
