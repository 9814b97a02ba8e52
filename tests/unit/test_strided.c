/* Strided blocks against the plainest reference: every element's address by its indices. All blocks of small tensors, all
 * orders of their axes, all segments; and blocks that no memory can hold.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "collectives/core/strided.h"
#include "common/rng.h"

#define MEMORY 4096

/* Where element `n` of the op's order is. */
static size_t place_of(const struct tr_block *block, size_t n)
{
	size_t at = 0;
	for (unsigned i = block->rank; i-- > 0;) {
		at += n % block->extents[i] * block->strides[i];
		n /= block->extents[i];
	}
	return at;
}

static size_t elements_of(const struct tr_block *block)
{
	size_t n = 1;
	for (unsigned i = 0; i < block->rank; i++)
		n *= block->extents[i];
	return n;
}

static void check_moves(const struct tr_block *block, size_t element_bytes)
{
	static uint8_t memory[MEMORY * 8], before[MEMORY * 8], row[MEMORY * 8];
	struct strided layout;
	size_t n = elements_of(block);
	assert_int_equal(strided_init(&layout, block, n, element_bytes, "t", NULL), TR_OK);
	for (size_t i = 0; i < sizeof(memory); i++)
		memory[i] = (uint8_t)(i * 7 + i / 256);
	memcpy(before, memory, sizeof(memory));
	for (size_t first = 0; first < n; first++) {
		for (size_t count = 0; first + count <= n; count++) {
			strided_gather(&layout, element_bytes, memory, first, count, row);
			for (size_t k = 0; k < count; k++)
				assert_memory_equal(row + k * element_bytes,
				    memory + place_of(block, first + k) * element_bytes,
				    element_bytes);
			for (size_t k = 0; k < count * element_bytes; k++)
				row[k] = (uint8_t)~row[k];
			strided_scatter(&layout, element_bytes, memory, first, count, row);
			for (size_t k = 0; k < count; k++)
				for (size_t b = 0; b < element_bytes; b++) {
					size_t at = place_of(block, first + k) * element_bytes + b;
					before[at] = (uint8_t)~before[at];
				}
			assert_memory_equal(memory, before, sizeof(memory)); /* and nothing else */
		}
	}
}

/* Every sub-block of a 3 x 4 x 5 tensor, its axes in every order. */
static void every_block_of_a_small_tensor(void **state)
{
	(void)state;
	static const unsigned orders[6][3] = { { 0, 1, 2 }, { 0, 2, 1 }, { 1, 0, 2 }, { 1, 2, 0 },
		{ 2, 0, 1 }, { 2, 1, 0 } };
	const size_t strides[3] = { 20, 5, 1 };
	static const size_t bytes[4] = { 1, 2, 4, 8 };
	unsigned variant = 0;
	for (size_t a = 1; a <= 3; a++)
		for (size_t b = 1; b <= 4; b++)
			for (size_t c = 1; c <= 5; c++)
				for (unsigned o = 0; o < 6; o++) {
					const size_t extents[3] = { a, b, c };
					struct tr_block block = { .rank = 3 };
					for (unsigned i = 0; i < 3; i++) {
						block.extents[i] = extents[orders[o][i]];
						block.strides[i] = strides[orders[o][i]];
					}
					if (a * b * c <= 30)
						check_moves(&block, bytes[variant++ % 4]);
				}
}

static void what_lies_in_a_row_is_contiguous(void **state)
{
	(void)state;
	struct strided layout;
	const struct tr_block rows = { 3, { 2, 1, 12 }, { 12, 999, 1 } };
	assert_int_equal(strided_init(&layout, &rows, 24, 4, "t", NULL), TR_OK);
	assert_true(strided_contiguous(&layout));
	assert_int_equal(layout.rank, 1);
	assert_int_equal(strided_init(&layout, NULL, 7, 4, "t", NULL), TR_OK);
	assert_true(strided_contiguous(&layout));
	const struct tr_block transposed = { 2, { 3, 4 }, { 1, 3 } };
	assert_int_equal(strided_init(&layout, &transposed, 12, 4, "t", NULL), TR_OK);
	assert_int_equal(layout.span, 12); /* without gaps, but in another order */
	assert_false(strided_contiguous(&layout));
	const struct tr_block columns = { 2, { 2, 3 }, { 4, 1 } }, none = { 2, { 0, 3 }, { 4, 1 } },
	                      scalar = { 0 };
	assert_int_equal(strided_init(&layout, &columns, 6, 4, "t", NULL), TR_OK);
	assert_false(strided_contiguous(&layout));
	assert_int_equal(layout.span, 7);
	assert_int_equal(strided_init(&layout, &none, 0, 4, "t", NULL), TR_OK);
	assert_true(strided_contiguous(&layout));
	assert_int_equal(layout.span, 0);
	assert_int_equal(strided_init(&layout, &scalar, 1, 4, "t", NULL), TR_OK);
	assert_int_equal(layout.span, 1);
	check_moves(&scalar, 8);
}

static void blocks_that_are_none_are_refused(void **state)
{
	(void)state;
	const struct tr_block wrong[] = {
		{ TR_BLOCK_RANK_MAX + 1, { 0 }, { 0 } }, { UINT32_MAX, { 0 }, { 0 } },
		{ 1, { 7 }, { 1 } },                           /* 6 elements are wanted */
		{ 2, { 2, 3 }, { 0, 1 } },                     /* the same row twice */
		{ 2, { 3, 2 }, { 1, 1 } },                     /* diagonals */
		{ 2, { 2, 3 }, { 2, 1 } },                     /* overlapping rows */
		{ 2, { 2, 3 }, { SIZE_MAX, 1 } },              /* the reach does not fit */
		{ 2, { 2, 3 }, { SIZE_MAX / 4, 1 } },          /* its bytes do not fit */
		{ 3, { SIZE_MAX, SIZE_MAX, 6 }, { 1, 1, 1 } }, /* the product wraps */
		{ 2, { (size_t)1 << 63, 2 }, { 1, 1 } },       /* the product wraps to 0 */
	};
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		struct strided layout;
		assert_int_equal(strided_init(&layout, &wrong[i], 6, 4, "t", NULL), TR_EINVAL);
		assert_int_equal(strided_init(&layout, &wrong[i], 0, 4, "t", NULL), TR_EINVAL);
	}
	struct strided layout;
	assert_int_equal(strided_init(&layout, NULL, SIZE_MAX / 4, 4, "t", NULL), TR_EINVAL);
	assert_int_equal(strided_init(&layout, NULL, UINT64_MAX, 1, "t", NULL), TR_EINVAL);
}

/* Random pairs of blocks against a map of bytes. */
static void overlap_is_exact(void **state)
{
	(void)state;
	struct rng_key key = rng_key(7, 0, 0);
	uint64_t drawn = 0;
	unsigned yes = 0, no = 0;
	for (int round = 0; round < 20000; round++) {
		uint8_t touched[600] = { 0 };
		struct strided layouts[2];
		struct strided_place places[2];
		bool hit = false, usable = true;
		for (unsigned i = 0; i < 2; i++) {
			struct tr_block block = { .rank = (unsigned)(rng_u64(key, 0, drawn++) % 4) };
			size_t bytes = (size_t)1 << rng_u64(key, 0, drawn++) % 3;
			uintptr_t base = rng_u64(key, 0, drawn++) % 40 * bytes;
			for (unsigned k = 0; k < block.rank; k++) {
				block.extents[k] = 1 + rng_u64(key, 0, drawn++) % 4;
				block.strides[k] = 1 + rng_u64(key, 0, drawn++) % 12;
			}
			size_t n = elements_of(&block);
			usable = usable &&
			    strided_init(&layouts[i], &block, n, bytes, "t", NULL) == TR_OK;
			places[i] = (struct strided_place){ &layouts[i], base, bytes };
			for (size_t e = 0; usable && e < n; e++)
				for (size_t b = 0; b < bytes; b++) {
					uint8_t *
					    byte = &touched[base + place_of(&block, e) * bytes + b];
					hit = hit || (i == 1 && (*byte & 1) != 0);
					*byte = (uint8_t)(*byte | 1u << i);
				}
		}
		if (!usable)
			continue;
		yes += hit;
		no += !hit;
		assert_int_equal(strided_overlap(&places[0], &places[1]), hit);
		assert_int_equal(strided_overlap(&places[1], &places[0]), hit);
	}
	assert_true(yes > 500 && no > 500);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_block_of_a_small_tensor),
		cmocka_unit_test(what_lies_in_a_row_is_contiguous),
		cmocka_unit_test(blocks_that_are_none_are_refused),
		cmocka_unit_test(overlap_is_exact),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
