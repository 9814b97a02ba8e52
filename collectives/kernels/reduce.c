#include "collectives/kernels/reduce.h"

#include <assert.h>

/* Unsigned twins make integer sums and products wrap instead of being undefined. */
#define DTYPES(X)                 \
	X(f32, float, float)      \
	X(f64, double, double)    \
	X(i32, int32_t, uint32_t) \
	X(i64, int64_t, uint64_t)

/* out == a (or b) exactly carries nothing from one iteration to the next: ivdep spares the overlap check, which would
 * send the in-place case down the scalar path. */
#define LOOP(name, op, type, arithmetic, expression)                                      \
	static void name##_##op(void *out_, const void *a_, const void *b_, size_t count) \
	{                                                                                 \
		type *out = out_;                                                         \
		const type *a = a_, *b = b_;                                              \
		_Pragma("GCC ivdep") for (size_t i = 0; i < count; i++)                   \
		{                                                                         \
			arithmetic x = (arithmetic)a[i], y = (arithmetic)b[i];            \
			out[i] = (type)(expression);                                      \
		}                                                                         \
	}

#define LOOPS(name, type, arithmetic)              \
	LOOP(name, sum, type, arithmetic, x + y)   \
	LOOP(name, prod, type, arithmetic, x *y)   \
	LOOP(name, min, type, type, y < x ? y : x) \
	LOOP(name, max, type, type, y > x ? y : x)

DTYPES(LOOPS)

typedef void combine_fn(void *out, const void *a, const void *b, size_t count);

#define ROW(name)                                                                    \
	{                                                                            \
		[TR_SUM] = name##_sum, [TR_AVG] = name##_sum, [TR_MIN] = name##_min, \
		[TR_MAX] = name##_max, [TR_PROD] = name##_prod                       \
	}

static combine_fn *const combiners[TR_I64 + 1][TR_PROD + 1] = {
	[TR_F32] = ROW(f32),
	[TR_F64] = ROW(f64),
	[TR_I32] = ROW(i32),
	[TR_I64] = ROW(i64),
};

size_t reduce_element_bytes(enum tr_dtype dtype)
{
	switch (dtype) {
	case TR_F32:
	case TR_I32:
		return 4;
	case TR_F64:
	case TR_I64:
		return 8;
	}
	return 0;
}

void reduce_combine(enum tr_dtype dtype, enum tr_reduce op, void *out, const void *a, const void *b,
    size_t count)
{
	assert(dtype <= TR_I64 && op <= TR_PROD && combiners[dtype][op]);
	combiners[dtype][op](out, a, b, count);
}

#define DIVIDE(name, type, arithmetic)                                     \
	static void name##_divide(void *data_, size_t count, type divisor) \
	{                                                                  \
		type *data = data_;                                        \
		for (size_t i = 0; i < count; i++)                         \
			data[i] /= divisor;                                \
	}

DTYPES(DIVIDE)

void reduce_divide(enum tr_dtype dtype, void *data, size_t count, unsigned divisor)
{
	assert(divisor > 0 && divisor <= INT32_MAX);
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
	}
}
