/* Sums of 16-bit floats, through f32: read by reduce_loops.h. Without AVX2, blocks in L1 go through the f32 loops; with it,
 * registers do.
 */
#ifndef TR_COLLECTIVES_KERNELS_WIDE_LOOPS_H
#define TR_COLLECTIVES_KERNELS_WIDE_LOOPS_H

#include "collectives/kernels/fold_loops.h"
#include "collectives/kernels/half_loops.h"

static void loops_widen(enum tr_dtype dtype, float *out, const void *in, size_t count)
{
	(dtype == TR_F16 ? f16_widen : bf16_widen)(out, in, count);
}

static void loops_narrow(enum tr_dtype dtype, void *out, const float *in, size_t count)
{
	(dtype == TR_F16 ? f16_narrow : bf16_narrow)(out, in, count);
}

#ifdef HALF_IN_REGISTERS

#define WIDE_LOOPS(half, op)                                                                \
	static void half##_##op##_pair(uint16_t *out, const uint16_t *a, const uint16_t *b, \
	    size_t count)                                                                   \
	{                                                                                   \
		size_t i = 0;                                                               \
		for (; i + 16 <= count; i += 16)                                            \
			half##_store16(out + i,                                             \
			    floats16_##op(half##_load16(a + i), half##_load16(b + i)));     \
		for (; i < count; i++) {                                                    \
			float x = lane_from_##half(a[i]), y = lane_from_##half(b[i]);       \
			out[i] = lane_to_##half(DO_##op(float, float, x, y));               \
		}                                                                           \
	}                                                                                   \
	static void half##_##op##_wide(float *acc, const uint16_t *b, size_t count)         \
	{                                                                                   \
		size_t i = 0;                                                               \
		for (; i + 16 <= count; i += 16)                                            \
			floats16_store(acc + i,                                             \
			    floats16_##op(floats16_load(acc + i), half##_load16(b + i)));   \
		for (; i < count; i++) {                                                    \
			float x = acc[i], y = lane_from_##half(b[i]);                       \
			acc[i] = DO_##op(float, float, x, y);                               \
		}                                                                           \
	}
#define WIDE_ALL(half)         \
	WIDE_LOOPS(half, sum)  \
	WIDE_LOOPS(half, prod) \
	WIDE_LOOPS(half, min)  \
	WIDE_LOOPS(half, max)
WIDE_ALL(f16)
WIDE_ALL(bf16)

typedef void wide_pair_fn(uint16_t *out, const uint16_t *a, const uint16_t *b, size_t count);
typedef void wide_fn(float *acc, const uint16_t *b, size_t count);
#define WIDE_ROW(half, form)                                                \
	{                                                                   \
		[TR_SUM] = half##_sum_##form, [TR_AVG] = half##_sum_##form, \
		[TR_MIN] = half##_min_##form, [TR_MAX] = half##_max_##form, \
		[TR_PROD] = half##_prod_##form                              \
	}
static wide_pair_fn *const wide_pairs[2][TR_PROD + 1] = { WIDE_ROW(f16, pair),
	WIDE_ROW(bf16, pair) };
static wide_fn *const wides[2][TR_PROD + 1] = { WIDE_ROW(f16, wide), WIDE_ROW(bf16, wide) };

static void loops_combine_wide(enum tr_dtype dtype, enum tr_reduce op, float *acc, const void *b,
    size_t count)
{
	wides[dtype == TR_BF16][op](acc, b, count);
}

#else

static void loops_combine_wide(enum tr_dtype dtype, enum tr_reduce op, float *acc, const void *b,
    size_t count)
{
	_Alignas(64) float wide[BLOCK_WIDE];

	for (size_t at = 0; at < count; at += BLOCK_WIDE) {
		size_t length = least(BLOCK_WIDE, count - at);
		loops_widen(dtype, wide, (const uint16_t *)b + at, length);
		folds[TR_F32][op][0](acc + at, (const void *[]){ acc + at, wide }, length);
	}
}

#endif

static void many_wide(enum tr_dtype dtype, enum tr_reduce op, void *out, const void *const *inputs,
    unsigned n, size_t count)
{
	_Alignas(64) float acc[BLOCK_WIDE];

#ifdef HALF_IN_REGISTERS
	if (n == 2) {
		wide_pairs[dtype == TR_BF16][op](out, inputs[0], inputs[1], count);
		return;
	}
#endif
	for (size_t at = 0; at < count; at += BLOCK_WIDE) {
		size_t length = least(BLOCK_WIDE, count - at);
		loops_widen(dtype, acc, (const uint16_t *)inputs[0] + at, length);
		for (unsigned k = 1; k < n; k++)
			loops_combine_wide(dtype, op, acc, (const uint16_t *)inputs[k] + at, length);
		loops_narrow(dtype, (uint16_t *)out + at, acc, length);
	}
}

#endif
