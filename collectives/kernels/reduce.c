#include "collectives/kernels/reduce.h"

#include <assert.h>
#include <string.h>

#include "collectives/kernels/variant.h"

size_t reduce_element_bytes(enum tr_dtype dtype)
{
	switch (dtype) {
	case TR_F32:
	case TR_I32:
		return 4;
	case TR_F64:
	case TR_I64:
		return 8;
	case TR_F16:
	case TR_BF16:
		return 2;
	case TR_U8:
		return 1;
	}
	return 0;
}

bool reduce_is_wide(enum tr_dtype dtype)
{
	return dtype == TR_F16 || dtype == TR_BF16;
}

static bool known(enum tr_dtype dtype, enum tr_reduce op)
{
	return reduce_element_bytes(dtype) != 0 && op >= TR_SUM && op <= TR_PROD;
}

void reduce_combine(enum tr_dtype dtype, enum tr_reduce op, void *out, const void *a, const void *b,
    size_t count)
{
	assert(known(dtype, op));
	variant_now()->combine(dtype, op, out, a, b, count);
}

void reduce_combine_many(enum tr_dtype dtype, enum tr_reduce op, void *out,
    const void *const *inputs, unsigned n, size_t count)
{
	assert(known(dtype, op) && n >= 1 && n <= REDUCE_INPUTS_MAX);
	if (n > 1)
		variant_now()->combine_many(dtype, op, out, inputs, n, count);
	else if (out != inputs[0])
		memcpy(out, inputs[0], count * reduce_element_bytes(dtype));
}

void reduce_divide(enum tr_dtype dtype, void *data, size_t count, unsigned divisor)
{
	assert(reduce_element_bytes(dtype) != 0 && divisor > 0 && divisor <= INT32_MAX);
	variant_now()->divide(dtype, data, count, divisor);
}

void reduce_settle_nans(enum tr_dtype dtype, void *data, size_t count)
{
	variant_now()->settle_nans(dtype, data, count);
}

void reduce_widen(enum tr_dtype dtype, float *out, const void *in, size_t count)
{
	assert(reduce_is_wide(dtype));
	variant_now()->widen(dtype, out, in, count);
}

void reduce_narrow(enum tr_dtype dtype, void *out, const float *in, size_t count)
{
	assert(reduce_is_wide(dtype));
	variant_now()->narrow(dtype, out, in, count);
}

void reduce_combine_wide(enum tr_dtype dtype, enum tr_reduce op, float *acc, const void *b,
    size_t count)
{
	assert(reduce_is_wide(dtype) && known(dtype, op));
	variant_now()->combine_wide(dtype, op, acc, b, count);
}
