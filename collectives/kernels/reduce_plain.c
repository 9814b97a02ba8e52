/* The references of reduce.h: one element at a time, nothing clever. */
#include <assert.h>
#include <string.h>

#include "collectives/kernels/half.h"
#include "collectives/kernels/plain.h"
#include "collectives/kernels/reduce.h"

/* Unsigned twins make integer sums and products wrap instead of being undefined. */
#define PLAIN(name, type, arithmetic)                                 \
	static type name##_one(enum tr_reduce op, type a, type b)     \
	{                                                             \
		switch (op) {                                         \
		case TR_SUM:                                          \
		case TR_AVG:                                          \
			return (type)((arithmetic)a + (arithmetic)b); \
		case TR_MIN:                                          \
			return b < a ? b : a;                         \
		case TR_MAX:                                          \
			return b > a ? b : a;                         \
		case TR_PROD:                                         \
			return (type)((arithmetic)a * (arithmetic)b); \
		}                                                     \
		return a;                                             \
	}

PLAIN(f32, float, float)
PLAIN(f64, double, double)
PLAIN(i32, int32_t, uint32_t)
PLAIN(i64, int64_t, uint64_t)
PLAIN(u8, uint8_t, unsigned)

static float widen_one(enum tr_dtype dtype, const void *in, size_t i)
{
	uint16_t half = ((const uint16_t *)in)[i];
	return dtype == TR_F16 ? half_from_f16(half) : half_from_bf16(half);
}

static void narrow_one(enum tr_dtype dtype, void *out, size_t i, float value)
{
	((uint16_t *)out)[i] = dtype == TR_F16 ? half_to_f16(value) : half_to_bf16(value);
}

void reduce_plain_combine(enum tr_dtype dtype, enum tr_reduce op, void *out, const void *a,
    const void *b, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		switch (dtype) {
		case TR_F32:
			((float *)out)[i] = f32_one(op, ((const float *)a)[i],
			    ((const float *)b)[i]);
			break;
		case TR_F64:
			((double *)out)[i] = f64_one(op, ((const double *)a)[i],
			    ((const double *)b)[i]);
			break;
		case TR_I32:
			((int32_t *)out)[i] = i32_one(op, ((const int32_t *)a)[i],
			    ((const int32_t *)b)[i]);
			break;
		case TR_I64:
			((int64_t *)out)[i] = i64_one(op, ((const int64_t *)a)[i],
			    ((const int64_t *)b)[i]);
			break;
		case TR_F16:
		case TR_BF16:
			narrow_one(dtype, out, i,
			    f32_one(op, widen_one(dtype, a, i), widen_one(dtype, b, i)));
			break;
		case TR_U8:
			((uint8_t *)out)[i] = u8_one(op, ((const uint8_t *)a)[i],
			    ((const uint8_t *)b)[i]);
			break;
		}
	}
}

void plain_combine_many(enum tr_dtype dtype, enum tr_reduce op, void *out,
    const void *const *inputs, unsigned n, size_t count)
{
	size_t size = reduce_element_bytes(dtype);

	for (size_t i = 0; i < count; i++) {
		if (reduce_is_wide(dtype)) {
			float sum = widen_one(dtype, inputs[0], i);
			for (unsigned k = 1; k < n; k++)
				sum = f32_one(op, sum, widen_one(dtype, inputs[k], i));
			narrow_one(dtype, out, i, sum);
			continue;
		}
		uint64_t sum; /* `out` may be an input that is still to come */
		memcpy(&sum, (const char *)inputs[0] + i * size, size);
		for (unsigned k = 1; k < n; k++)
			reduce_plain_combine(dtype, op, &sum, &sum,
			    (const char *)inputs[k] + i * size, 1);
		memcpy((char *)out + i * size, &sum, size);
	}
}

void plain_combine_wide(enum tr_dtype dtype, enum tr_reduce op, float *acc, const void *b,
    size_t count)
{
	for (size_t i = 0; i < count; i++)
		acc[i] = f32_one(op, acc[i], widen_one(dtype, b, i));
}

void plain_widen(enum tr_dtype dtype, float *out, const void *in, size_t count)
{
	for (size_t i = 0; i < count; i++)
		out[i] = widen_one(dtype, in, i);
}

void plain_narrow(enum tr_dtype dtype, void *out, const float *in, size_t count)
{
	for (size_t i = 0; i < count; i++)
		narrow_one(dtype, out, i, in[i]);
}

void reduce_plain_divide(enum tr_dtype dtype, void *data, size_t count, unsigned divisor)
{
	assert(divisor > 0);
	for (size_t i = 0; i < count; i++) {
		switch (dtype) {
		case TR_F32:
			((float *)data)[i] /= (float)divisor;
			break;
		case TR_F64:
			((double *)data)[i] /= divisor;
			break;
		case TR_I32:
			((int32_t *)data)[i] /= (int32_t)divisor;
			break;
		case TR_I64:
			((int64_t *)data)[i] /= (int64_t)divisor;
			break;
		case TR_F16:
		case TR_BF16:
			narrow_one(dtype, data, i, widen_one(dtype, data, i) / (float)divisor);
			break;
		case TR_U8:
			((uint8_t *)data)[i] = (uint8_t)(((uint8_t *)data)[i] / divisor);
			break;
		}
	}
}
