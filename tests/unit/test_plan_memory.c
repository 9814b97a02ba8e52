/* What a worker of whole models has resident of them: arrays in areas of shared memory that are filled up to the ends of huge pages (collectives/engine/channel_worker.c). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "daemon/plan/plan_memory.h"
#include "tests/unit/plan_cases.h"

#define MIB (UINT64_C(1) << 20)

/* With as many owners of moments as replicas each has all of them too, but as a shard: in memory that is not filled. */
static uint64_t filled(uint32_t layers, uint32_t width)
{
	struct plan_case c;
	struct plan plan = case_plan(2, 1, 1);

	case_make(&c, 0);
	c.model = (struct model_config){ .preset = MODEL_GPT2,
		.layers = layers,
		.width = width,
		.heads = 4,
		.context = 128,
		.vocab = 256 };
	model_config_fill(&c.model);
	c.in.sequence_length = 128;
	struct plan_layout *layout = plan_layout_create(&c.in, NULL);
	assert_non_null(layout);
	plan_fill(layout, &plan);
	assert_int_equal(plan_predict(layout, &plan, NULL), TR_OK);
	uint64_t whole = plan.memory_bytes;
	plan.choice.owners = 2;
	assert_int_equal(plan_predict(layout, &plan, NULL), TR_OK);
	assert_true(whole >= plan.memory_bytes);
	plan_layout_destroy(layout);
	plan_cluster_finish(&c.cluster);
	return whole - plan.memory_bytes;
}

static uint64_t parameters(uint64_t layers, uint64_t width)
{
	return layers * (12 * width * width + 13 * width) + (256 + 128 + 2) * width;
}

static void areas(void **state)
{
	(void)state;
	/* 3.2 MiB each. One lies in the area of the counters, of 4 MiB, two in the next one of 8, the last in a third: all of 4, 8 and 4 are there (as seen in a worker's smaps). */
	assert_int_equal(filled(4, 128), 16 * MIB - 16 * parameters(4, 128));
	/* 36.5 MiB each: three areas of their own, of 36.5 MiB in pages (there is no huge page at its end), 44.5 and 89, of which the last has two. */
	uint64_t array = 4 * parameters(12, 256), pages = (array + 4095) / 4096 * 4096;
	assert_true(array > 36 * MIB && array < 38 * MIB);
	assert_int_equal(filled(12, 256), 65536 + pages + 38 * MIB + 74 * MIB - 4 * array);
	/* None is as large as a huge page. */
	assert_int_equal(filled(2, 64), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(areas) };
	return cmocka_run_group_tests(tests, NULL, NULL);
}
