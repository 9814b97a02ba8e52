/* The loops of reduce.h as the compiler likes them: read by variant_*.c, each compiled for other processors. */
#ifndef TR_COLLECTIVES_KERNELS_REDUCE_LOOPS_H
#define TR_COLLECTIVES_KERNELS_REDUCE_LOOPS_H

#include "collectives/kernels/fold_loops.h"
#include "collectives/kernels/reduce.h"
#include "collectives/kernels/wide_loops.h"

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
