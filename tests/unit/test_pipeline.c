/* The executor of schedules against one process, in double: loss and every gradient to 1e-12, the same bits without tensor parallelism, with dropout and without; all schedules, layers dealt evenly
 * and by chance, both presets, recomputed or not. And a channel that stops ends all ranks. */
#include "tests/unit/model_in_double.h"

#include "daemon/worker/pipeline.c"
#include "daemon/worker/pipeline_buffers.c"

#include "tests/unit/pipeline_ranks.h"

static const struct model_config configs[] = {
	{ .preset = MODEL_GPT2, .width = 16, .heads = 4 },
	{ .preset = MODEL_GPT2, .width = 10, .heads = 4, .head_width = 3, .hidden = 6 },
	{ .preset = MODEL_LLAMA, .width = 12, .heads = 6, .kv_heads = 2, .hidden = 10 },
	{ .preset = MODEL_LLAMA, .width = 16, .heads = 4, .hidden = 12, .untied = true },
};

static const struct schedule_shape shapes[] = {
	{ SCHEDULE_GPIPE, 1, 3, 1 },
	{ SCHEDULE_1F1B, 1, 3, 1 },
	{ SCHEDULE_GPIPE, 2, 1, 1 },
	{ SCHEDULE_GPIPE, 3, 5, 1 },
	{ SCHEDULE_1F1B, 2, 1, 1 },
	{ SCHEDULE_1F1B, 2, 4, 1 },
	{ SCHEDULE_1F1B, 3, 8, 1 },
	{ SCHEDULE_1F1B, 4, 3, 1 },
	{ SCHEDULE_INTERLEAVED, 2, 2, 2 },
	{ SCHEDULE_INTERLEAVED, 2, 5, 2 },
	{ SCHEDULE_INTERLEAVED, 2, 4, 3 },
	{ SCHEDULE_INTERLEAVED, 3, 7, 2 },
	{ SCHEDULE_INTERLEAVED, 4, 8, 2 },
};
#define SHAPES (sizeof(shapes) / sizeof(shapes[0]))

static struct mesh_case a_case(const void *config, size_t shape, uint64_t seed)
{
	struct mesh_case what = { .config = config,
		.shape = shapes[shape],
		.tp = 1,
		.threads = 1,
		.stops_after = -1 };
	deal_layers(&what, seed);
	return what;
}

static void test_pipelines(void **state)
{
	for (size_t s = 0; s < SHAPES; s++)
		for (uint64_t seed = 0; seed < 2; seed++)
			for (unsigned variant = 0; variant < 4; variant++) {
				struct mesh_case what = a_case(*state, s, seed);
				what.recompute = (variant & 1) != 0;
				what.loss_only = variant == 2;
				what.threads = variant == 3 ? 2 : 1;
				what.dropout = what.loss_only ? 0 : 0.3 * (double)seed;
				(void)run_mesh(&what, 0, 1e-12);
			}
}

static void with_tensor_parallelism(const void *config, bool splits)
{
	for (size_t s = 0; s < SHAPES; s++)
		for (unsigned variant = 0; variant < 4; variant++) {
			struct mesh_case what = a_case(config, s, s);
			what.tp = 2;
			what.splits = splits;
			what.recompute = (variant & 1) != 0;
			what.loss_only = variant == 2;
			what.threads = variant == 3 ? 2 : 1;
			what.dropout = what.loss_only ? 0 : 0.3 * (double)(s % 2);
			(void)run_mesh(&what, 1e-12, 1e-12);
		}
}

static void test_with_tensor_parallelism(void **state)
{
	with_tensor_parallelism(*state, false);
}

static void test_with_sequence_parallelism(void **state)
{
	with_tensor_parallelism(*state, true);
}

/* No more memory than a few messages, however many there are and though nothing comes back. */
static void test_many_forward_passes(void **state)
{
	static const struct schedule_shape many[] = {
		{ SCHEDULE_1F1B, 2, MICRO_MOST, 1 },
		{ SCHEDULE_1F1B, 4, MICRO_MOST, 1 },
		{ SCHEDULE_GPIPE, 3, MICRO_MOST - 1, 1 },
		{ SCHEDULE_INTERLEAVED, 4, MICRO_MOST, 2 },
	};
	for (size_t s = 0; s < sizeof(many) / sizeof(many[0]); s++) {
		struct mesh_case what = a_case(*state, 0, s);
		what.shape = many[s];
		what.loss_only = true;
		deal_layers(&what, s);
		(void)run_mesh(&what, 0, 1e-12);
	}
}

/* Wherever it stops, all ranks end, and can begin again. */
static void test_a_stop_ends_all(void **state)
{
	static const size_t some[] = { 3, 6, 9 };
	for (size_t s = 0; s < sizeof(some) / sizeof(some[0]); s++)
		for (uint32_t variant = 0; variant < 3; variant++) {
			struct mesh_case what = a_case(*state, some[s], 1);
			what.tp = variant > 0 ? 2 : 1;
			what.splits = variant == 2;
			int calls = run_mesh(&what, 1e-12, 1e-12), stride = calls / 16 + 1;
			for (what.stops_after = 0; what.stops_after < calls / 2;
			     what.stops_after += stride)
				(void)run_mesh(&what, 1e-12, 1e-12);
		}
}

#define WITH(test, i)                                                         \
	{                                                                     \
#test " of config " #i, test, NULL, NULL, (void *)&configs[i] \
	}
#define EACH(test) WITH(test, 0), WITH(test, 1), WITH(test, 2), WITH(test, 3)
_Static_assert(sizeof(configs) / sizeof(configs[0]) == 4, "each has its tests");

int main(void)
{
	const struct CMUnitTest tests[] = {
		EACH(test_pipelines),
		EACH(test_with_tensor_parallelism),
		EACH(test_with_sequence_parallelism),
		EACH(test_many_forward_passes),
		EACH(test_a_stop_ends_all),
	};
	gemm_setup();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
