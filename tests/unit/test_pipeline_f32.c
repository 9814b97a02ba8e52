/* The executor of schedules as it ships, in f32: the bits of one process that takes the same microbatches one after another, but for a tied table, whose two parts are summed
 * in another order. */
#include "tests/unit/pipeline_ranks.h"

static const struct model_config configs[] = {
	{ .preset = MODEL_GPT2, .width = 48, .heads = 4 },
	{ .preset = MODEL_LLAMA,
	    .width = 40,
	    .heads = 4,
	    .kv_heads = 2,
	    .hidden = 36,
	    .untied = true },
};

static void test_the_same_bits(void **state)
{
	static const struct schedule_shape shapes[] = {
		{ SCHEDULE_GPIPE, 3, 5, 1 },
		{ SCHEDULE_1F1B, 4, 8, 1 },
		{ SCHEDULE_INTERLEAVED, 2, 5, 3 },
	};
	for (size_t s = 0; s < sizeof(shapes) / sizeof(shapes[0]); s++)
		for (unsigned variant = 0; variant < 4; variant++) {
			struct mesh_case what = { .config = *state,
				.shape = shapes[s],
				.tp = 1,
				.threads = variant & 1 ? 2 : 1,
				.recompute = (variant & 2) != 0,
				.stops_after = -1 };
			deal_layers(&what, variant);
			(void)run_mesh(&what, 0, 1e-5);
		}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		{ "the same bits, GPT-2", test_the_same_bits, NULL, NULL, (void *)&configs[0] },
		{ "the same bits, Llama", test_the_same_bits, NULL, NULL, (void *)&configs[1] },
	};
	gemm_setup();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
