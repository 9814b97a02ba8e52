/* Every way to cut small ops: segments are in order, cover every element once, and none straddles two blocks. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "collectives/core/cut.h"
#include "common/limits.h"

static void check(uint64_t count, uint32_t segment_elements, unsigned blocks)
{
	struct cut cut;
	uint64_t next = 0;
	assert_int_equal(cut_init(&cut, count, segment_elements, blocks, NULL), TR_OK);
	for (uint32_t s = 0; s < cut.segments; s++) {
		uint32_t elements = cut_elements(&cut, s);
		assert_int_equal(cut_first(&cut, s), next);
		assert_true(elements <= segment_elements);
		assert_true(elements > 0 || count == 0);
		size_t first = 0, size = count;
		if (blocks > 0 && count > 0) {
			uint32_t block = cut_block(&cut, s);
			assert_true(block < blocks);
			tr_block_range(count, blocks, block, &first, &size);
		} else {
			assert_int_equal(cut_block(&cut, s), UINT32_MAX);
		}
		assert_true(next >= first && next + elements <= first + size);
		for (uint64_t e = next; e < next + elements; e++)
			assert_int_equal(cut_segment(&cut, e), s);
		next += elements;
	}
	assert_int_equal(next, count);
}

static void segments_cover_everything_once(void **state)
{
	(void)state;
	for (uint64_t count = 0; count <= 40; count++)
		for (uint32_t segment_elements = 1; segment_elements <= 9; segment_elements++)
			for (unsigned blocks = 0; blocks <= 9; blocks++)
				check(count, segment_elements, blocks);
	check(1000003, 65536, 7);
	check(262144, 65536, 256);
}

static void blocks_are_even_and_in_order(void **state)
{
	(void)state;
	for (size_t count = 0; count <= 40; count++)
		for (unsigned n = 1; n <= 9; n++) {
			size_t next = 0;
			for (unsigned i = 0; i < n; i++) {
				size_t first, elements;
				tr_block_range(count, n, i, &first, &elements);
				assert_int_equal(first, next);
				assert_true(elements == count / n || elements == count / n + 1);
				next += elements;
			}
			assert_int_equal(next, count);
		}
	size_t first = 9, elements = 9;
	tr_block_range(10, 3, 3, &first, &elements); /* a joiner's index */
	assert_int_equal(elements, 0);
	tr_block_range(10, 0, 0, &first, &elements);
	assert_int_equal(elements, 0);
}

static void too_many_segments_are_refused(void **state)
{
	(void)state;
	struct cut cut;
	assert_int_equal(cut_init(&cut, TR_OP_SEGMENTS_MAX, 1, 0, NULL), TR_OK);
	assert_int_equal(cut_init(&cut, TR_OP_SEGMENTS_MAX + 1ul, 1, 0, NULL), TR_ELIMIT);
	assert_int_equal(cut_init(&cut, UINT64_MAX, 1, 0, NULL), TR_ELIMIT);
	assert_int_equal(cut_init(&cut, UINT64_MAX, 1, 256, NULL), TR_ELIMIT);
	assert_int_equal(cut_init(&cut, UINT64_MAX, UINT32_MAX, 255, NULL), TR_ELIMIT);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(segments_cover_everything_once),
		cmocka_unit_test(blocks_are_even_and_in_order),
		cmocka_unit_test(too_many_segments_are_refused),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
