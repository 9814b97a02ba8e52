/* The copy of an input that a result replaces (POLICY_UNIFORM, in place). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "collectives/core/op.h"

enum { ELEMENTS = 64, SEGMENTS = 4, PIECE = ELEMENTS / SEGMENTS };

static void fill(int32_t *data, size_t count, int32_t first)
{
	for (size_t i = 0; i < count; i++)
		data[i] = first + (int32_t)i;
}

/* (All of it was copied at the submission: GBs held up the engine for so long that the others gave the member up.) */
static void it_is_made_segment_by_segment(void **state)
{
	(void)state;
	static int32_t data[ELEMENTS];
	const struct group_submit submit = { .collective = TR_ALL_REDUCE,
		.data = data,
		.count = ELEMENTS,
		.own_elements = ELEMENTS,
		.dtype = TR_I32,
		.reduce = TR_SUM,
		.contribute = true };
	const struct roster roster = { 0 };
	const struct scope scope = { 0 };
	const struct op_submit how = { .submit = &submit,
		.roster = &roster,
		.scope = &scope,
		.save = true,
		.segment_bytes = PIECE * sizeof(data[0]),
		.segments = 1000,
		.contributors = 2 };
	struct buffer_pool pool = { 0 };
	struct tr_error error;
	struct op *op;

	assert_int_equal(op_create(&how, &pool, &op, &error), TR_OK);
	assert_int_equal(op->segments, SEGMENTS);
	fill(data, ELEMENTS, 100); /* nothing was copied yet, so it is this that counts */
	for (uint32_t s = 0; s < SEGMENTS; s++) {
		struct fold_part own;
		struct op_result result;
		if (s % 2 == 0) /* the others have their result before anybody asks for the input */
			assert_int_equal(op_own(op, &pool, s, &own), TR_OK);
		assert_int_equal(op_result_make(op, &pool, s, &result), TR_OK);
		assert_ptr_equal(result.data, data + s * PIECE);
		memset(result.data, 0, PIECE * sizeof(data[0]));
		assert_int_equal(op_own(op, &pool, s, &own), TR_OK);
		for (uint32_t i = 0; i < PIECE; i++)
			assert_int_equal(((const int32_t *)(const void *)own.data)[i],
			    100 + (int32_t)(s * PIECE + i));
	}
	op_destroy(op, &pool);
	op_finish_spare(&pool);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(it_is_made_segment_by_segment) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
