/* The references of reduce.c: one element at a time, nothing clever. */
#include <assert.h>

#include "collectives/kernels/reduce.h"

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
		}
	}
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
		}
	}
}
