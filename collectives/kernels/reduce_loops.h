/* The loops of reduce.h as the compiler likes them: read by variant_*.c, each compiled for other processors. */
#ifndef TR_COLLECTIVES_KERNELS_REDUCE_LOOPS_H
#define TR_COLLECTIVES_KERNELS_REDUCE_LOOPS_H

#include <stdint.h>
#include <string.h>

#include "collectives/kernels/half_loops.h"
#include "collectives/kernels/reduce.h"

/* Unsigned twins make integer sums and products wrap instead of being undefined. */
#define LOOPS_DTYPES(X)           \
	X(f32, float, float)      \
	X(f64, double, double)    \
	X(i32, int32_t, uint32_t) \
	X(i64, int64_t, uint64_t) \
	X(u8, uint8_t, unsigned)

#define DO_sum(type, arithmetic, a, b)  ((type)((arithmetic)(a) + (arithmetic)(b)))
#define DO_prod(type, arithmetic, a, b) ((type)((arithmetic)(a) * (arithmetic)(b)))
#define DO_min(type, arithmetic, a, b)  ((b) < (a) ? (b) : (a))
#define DO_max(type, arithmetic, a, b)  ((b) > (a) ? (b) : (a))

/* So many inputs meet in registers in one pass; the rest goes through an accumulator (loops_many). */
#define FOLD_MAX 4
typedef void fold_fn(void *out, const void *const *in, size_t count);

/* An output that is one of the inputs carries nothing from one iteration to the next: ivdep spares the overlap check,
 * which would send the in-place case down the scalar path. */
#define LOOPS_FOLD(name, op, type, arithmetic)                                       \
	static void name##_##op##_2(void *out_, const void *const *in, size_t count) \
	{                                                                            \
		type *out = out_;                                                    \
		const type *a = in[0], *b = in[1];                                   \
		_Pragma("GCC ivdep") for (size_t i = 0; i < count; i++)              \
		    out[i] = DO_##op(type, arithmetic, a[i], b[i]);                  \
	}                                                                            \
	static void name##_##op##_3(void *out_, const void *const *in, size_t count) \
	{                                                                            \
		type *out = out_;                                                    \
		const type *a = in[0], *b = in[1], *c = in[2];                       \
		_Pragma("GCC ivdep") for (size_t i = 0; i < count; i++)              \
		{                                                                    \
			type x = DO_##op(type, arithmetic, a[i], b[i]);              \
			out[i] = DO_##op(type, arithmetic, x, c[i]);                 \
		}                                                                    \
	}                                                                            \
	static void name##_##op##_4(void *out_, const void *const *in, size_t count) \
	{                                                                            \
		type *out = out_;                                                    \
		const type *a = in[0], *b = in[1], *c = in[2], *d = in[3];           \
		_Pragma("GCC ivdep") for (size_t i = 0; i < count; i++)              \
		{                                                                    \
			type x = DO_##op(type, arithmetic, a[i], b[i]);              \
			type y = DO_##op(type, arithmetic, x, c[i]);                 \
			out[i] = DO_##op(type, arithmetic, y, d[i]);                 \
		}                                                                    \
	}
#define LOOPS_FOLDS(name, type, arithmetic)      \
	LOOPS_FOLD(name, sum, type, arithmetic)  \
	LOOPS_FOLD(name, prod, type, arithmetic) \
	LOOPS_FOLD(name, min, type, arithmetic)  \
	LOOPS_FOLD(name, max, type, arithmetic)

LOOPS_DTYPES(LOOPS_FOLDS)

#define LOOPS_ARITIES(name, op)                                   \
	{                                                         \
		name##_##op##_2, name##_##op##_3, name##_##op##_4 \
	}
#define LOOPS_ROW(name)                                                                   \
	{                                                                                 \
		[TR_SUM] = LOOPS_ARITIES(name, sum), [TR_AVG] = LOOPS_ARITIES(name, sum), \
		[TR_MIN] = LOOPS_ARITIES(name, min), [TR_MAX] = LOOPS_ARITIES(name, max), \
		[TR_PROD] = LOOPS_ARITIES(name, prod)                                     \
	}
static fold_fn *const folds[TR_U8 + 1][TR_PROD + 1][FOLD_MAX - 1] = {
	[TR_F32] = LOOPS_ROW(f32),
	[TR_F64] = LOOPS_ROW(f64),
	[TR_I32] = LOOPS_ROW(i32),
	[TR_I64] = LOOPS_ROW(i64),
	[TR_U8] = LOOPS_ROW(u8),
};

static void loops_widen(enum tr_dtype dtype, float *out, const void *in, size_t count)
{
	(dtype == TR_F16 ? f16_widen : bf16_widen)(out, in, count);
}

static void loops_narrow(enum tr_dtype dtype, void *out, const float *in, size_t count)
{
	(dtype == TR_F16 ? f16_narrow : bf16_narrow)(out, in, count);
}

/* What is worked on at a time stays in L1; long enough a run of each input for the prefetcher. */
#define BLOCK_BYTES 4096
#define BLOCK_WIDE  1024 /* elements, in f32 */

static size_t least(size_t a, size_t b)
{
	return a < b ? a : b;
}

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

static void many_wide(enum tr_dtype dtype, enum tr_reduce op, void *out, const void *const *inputs,
    unsigned n, size_t count)
{
	_Alignas(64) float acc[BLOCK_WIDE];

	for (size_t at = 0; at < count; at += BLOCK_WIDE) {
		size_t length = least(BLOCK_WIDE, count - at);
		loops_widen(dtype, acc, (const uint16_t *)inputs[0] + at, length);
		for (unsigned k = 1; k < n; k++)
			loops_combine_wide(dtype, op, acc, (const uint16_t *)inputs[k] + at, length);
		loops_narrow(dtype, (uint16_t *)out + at, acc, length);
	}
}

/* `out` may be any input: each block of it is written when all of that block is read. */
static void loops_combine_many(enum tr_dtype dtype, enum tr_reduce op, void *out,
    const void *const *inputs, unsigned n, size_t count)
{
	if (reduce_is_wide(dtype)) {
		many_wide(dtype, op, out, inputs, n, count);
		return;
	}
	fold_fn *const *fold = folds[dtype][op];
	if (n <= FOLD_MAX) {
		fold[n - 2](out, inputs, count);
		return;
	}
	_Alignas(64) char acc[BLOCK_BYTES];
	size_t size = reduce_element_bytes(dtype), bytes = count * size;
	for (size_t at = 0; at < bytes; at += BLOCK_BYTES) {
		size_t length = least(BLOCK_BYTES, bytes - at) / size;
		for (unsigned k = 0; k < n;) {
			const void *group[FOLD_MAX];
			unsigned m = 0;
			if (k > 0)
				group[m++] = acc;
			while (m < FOLD_MAX && k < n)
				group[m++] = (const char *)inputs[k++] + at;
			fold[m - 2](k == n ? (void *)((char *)out + at) : acc, group, length);
		}
	}
}

static void loops_combine(enum tr_dtype dtype, enum tr_reduce op, void *out, const void *a,
    const void *b, size_t count)
{
	loops_combine_many(dtype, op, out, (const void *[]){ a, b }, 2, count);
}

#define LOOPS_DIVIDE(name, type, arithmetic)                                     \
	static void name##_divide(void *data_, size_t count, arithmetic divisor) \
	{                                                                        \
		type *data = data_;                                              \
		for (size_t i = 0; i < count; i++)                               \
			data[i] = (type)(data[i] / divisor);                     \
	}
LOOPS_DIVIDE(f32, float, float)
LOOPS_DIVIDE(f64, double, double)
LOOPS_DIVIDE(i32, int32_t, int32_t)
LOOPS_DIVIDE(i64, int64_t, int64_t)
LOOPS_DIVIDE(u8, uint8_t, unsigned)

static void wide_divide(enum tr_dtype dtype, uint16_t *data, size_t count, float divisor)
{
	_Alignas(64) float wide[BLOCK_WIDE];

	for (size_t at = 0; at < count; at += BLOCK_WIDE) {
		size_t length = least(BLOCK_WIDE, count - at);
		loops_widen(dtype, wide, data + at, length);
		f32_divide(wide, length, divisor);
		loops_narrow(dtype, data + at, wide, length);
	}
}

static void loops_divide(enum tr_dtype dtype, void *data, size_t count, unsigned divisor)
{
	switch (dtype) {
	case TR_F32:
		f32_divide(data, count, (float)divisor);
		return;
	case TR_F64:
		f64_divide(data, count, divisor);
		return;
	case TR_I32:
		i32_divide(data, count, (int32_t)divisor);
		return;
	case TR_I64:
		i64_divide(data, count, divisor);
		return;
	case TR_F16:
	case TR_BF16:
		wide_divide(dtype, data, count, (float)divisor);
		return;
	case TR_U8:
		u8_divide(data, count, divisor);
		return;
	}
}

#endif
