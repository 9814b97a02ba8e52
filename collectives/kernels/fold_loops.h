/* Up to four vectors at a time, element by element: read by the other loops. */
#ifndef TR_COLLECTIVES_KERNELS_FOLD_LOOPS_H
#define TR_COLLECTIVES_KERNELS_FOLD_LOOPS_H

#include <stddef.h>
#include <stdint.h>

#include "collectives/coll.h"

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

/* What is worked on at a time stays in L1; long enough a run of each input for the prefetcher. */
#define BLOCK_BYTES 4096
#define BLOCK_WIDE  1024 /* elements, in f32 */

static size_t least(size_t a, size_t b)
{
	return a < b ? a : b;
}

#endif
