/* The fast loops give the bits of the plain ones: every type, op, size and alignment, in place and not, odd values included. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "collectives/kernels/reduce.h"
#include "common/rng.h"

#define COUNT 133
#define BYTES (8 * (COUNT + 8))

static void fill_real(enum tr_dtype dtype, void *data, uint64_t seed)
{
	static const double odd[] = { 0.0, -0.0, 1.0, -1.0, INFINITY, -INFINITY, 1e-310, 3e38,
		-3e38 };
	struct rng_key key = rng_key(seed, 1, 2);

	for (uint64_t i = 0; i < COUNT; i++) {
		double value = rng_normal(key, 0, i);
		if (rng_below(key, 1, i, 4) == 0)
			value = odd[rng_below(key, 2, i, sizeof(odd) / sizeof(odd[0]))];
		if (dtype == TR_F32)
			((float *)data)[i] = (float)value;
		else
			((double *)data)[i] = value;
	}
}

static void fill(enum tr_dtype dtype, void *data, uint64_t seed)
{
	struct rng_key key = rng_key(seed, 3, 4);

	if (dtype == TR_F32 || dtype == TR_F64) {
		fill_real(dtype, data, seed);
		return;
	}
	for (uint64_t i = 0; i < COUNT; i++) {
		uint64_t value = rng_u64(key, 0, i) >> rng_below(key, 1, i, 64);
		if (dtype == TR_I32)
			((int32_t *)data)[i] = (int32_t)value;
		else
			((int64_t *)data)[i] = (int64_t)value;
	}
}

/* Equal bits, but for the payload of a NaN, which no standard promises. */
static void assert_same(enum tr_dtype dtype, const void *a, const void *b, size_t count)
{
	size_t size = reduce_element_bytes(dtype);

	for (size_t i = 0; i < count; i++) {
		const char *x = (const char *)a + i * size, *y = (const char *)b + i * size;
		bool nan = (dtype == TR_F32 && isnan(((const float *)a)[i]) &&
		               isnan(((const float *)b)[i])) ||
		    (dtype == TR_F64 && isnan(((const double *)a)[i]) &&
		        isnan(((const double *)b)[i]));
		if (!nan)
			assert_memory_equal(x, y, size);
	}
}

static void fast_equals_plain(void **state)
{
	(void)state;
	_Alignas(64) char a[BYTES], b[BYTES], fast[BYTES], plain[BYTES];

	for (enum tr_dtype dtype = TR_F32; dtype <= TR_I64; dtype++)
		for (enum tr_reduce op = TR_SUM; op <= TR_PROD; op++)
			for (size_t offset = 0; offset < 3; offset++)
				for (size_t count = 0; count <= COUNT; count += 1 + count / 8) {
					size_t at = offset * reduce_element_bytes(dtype);
					fill(dtype, a + at, count + 1);
					fill(dtype, b + at, count + 1000);
					reduce_combine(dtype, op, fast + at, a + at, b + at, count);
					reduce_plain_combine(dtype, op, plain + at, a + at, b + at,
					    count);
					assert_same(dtype, fast + at, plain + at, count);
					memcpy(fast, a, sizeof(fast));
					reduce_combine(dtype, op, fast + at, fast + at, b + at,
					    count);
					assert_same(dtype, fast + at, plain + at, count);
					memcpy(fast, b, sizeof(fast));
					reduce_combine(dtype, op, fast + at, a + at, fast + at,
					    count);
					assert_same(dtype, fast + at, plain + at, count);
				}
}

static void nothing_outside_is_touched(void **state)
{
	(void)state;
	char a[BYTES] = { 0 }, b[BYTES] = { 0 }, out[BYTES];

	memset(out, 0x5a, sizeof(out));
	reduce_combine(TR_F32, TR_SUM, out + 16, a, b, 7);
	for (size_t i = 0; i < sizeof(out); i++)
		assert_int_equal(out[i], i >= 16 && i < 16 + 28 ? 0 : 0x5a);
}

static void divide_equals_plain(void **state)
{
	(void)state;
	_Alignas(64) char fast[BYTES], plain[BYTES];

	for (enum tr_dtype dtype = TR_F32; dtype <= TR_I64; dtype++)
		for (unsigned divisor = 1; divisor <= 256; divisor = divisor * 2 + 1) {
			fill(dtype, fast, divisor);
			memcpy(plain, fast, sizeof(plain));
			reduce_divide(dtype, fast, COUNT, divisor);
			reduce_plain_divide(dtype, plain, COUNT, divisor);
			assert_same(dtype, fast, plain, COUNT);
		}
}

static void known_values(void **state)
{
	(void)state;
	int32_t a[] = { INT32_MAX, -7, 3 }, b[] = { 1, 2, -3 }, out[3];
	reduce_combine(TR_I32, TR_SUM, out, a, b, 3);
	assert_true(out[0] == INT32_MIN && out[1] == -5 && out[2] == 0); /* wraps */
	reduce_combine(TR_I32, TR_MIN, out, a, b, 3);
	assert_true(out[0] == 1 && out[1] == -7 && out[2] == -3);
	reduce_combine(TR_I32, TR_PROD, out, a, b, 3);
	assert_true(out[1] == -14 && out[2] == -9);
	reduce_divide(TR_I32, a, 3, 2);
	assert_true(a[1] == -3 && a[2] == 1); /* toward zero */
	float x[] = { NAN, 1 }, y[] = { 1, NAN }, z[2];
	reduce_combine(TR_F32, TR_MAX, z, x, y, 2);
	assert_true(isnan(z[0]) && z[1] == 1);
	assert_int_equal(reduce_element_bytes((enum tr_dtype)0), 0);
	assert_int_equal(reduce_element_bytes((enum tr_dtype)5), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(fast_equals_plain),
		cmocka_unit_test(nothing_outside_is_touched),
		cmocka_unit_test(divide_equals_plain),
		cmocka_unit_test(known_values),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
