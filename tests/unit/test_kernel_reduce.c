/* Every form of the kernels that this machine runs gives the bits of the plain one: every type, op, size and alignment, in
 * place and not, odd values included. And the plain one is right. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "collectives/kernels/dispatch.h"
#include "collectives/kernels/half.h"
#include "collectives/kernels/reduce.h"
#include "common/rng.h"

#define COUNT    133
#define BYTES    (8 * (COUNT + 8))
#define MANY_MAX 9
#define LONG     2600 /* more than two of the blocks that combine_many works on, for every type */

static const enum tr_dtype wide_types[] = { TR_F16, TR_BF16 };
static _Alignas(64) char room[MANY_MAX][8 * (LONG + 8)], fast[8 * (LONG + 8)], plain[8 * (LONG + 8)];

static double odd_real(struct rng_key key, uint64_t i)
{
	static const double odd[] = { 0.0, -0.0, 1.0, -1.0, INFINITY, -INFINITY, NAN, 1e-310, 1e-40,
		3e38, -3e38, 65504.0, -65520.0, 6e-8, -3e-8, 6.1e-5 };
	if (rng_below(key, 2, i, 4) == 0)
		return odd[rng_below(key, 3, i, sizeof(odd) / sizeof(odd[0]))];
	return rng_normal(key, 0, i);
}

static void fill(enum tr_dtype dtype, void *data, uint64_t seed, size_t count)
{
	struct rng_key key = rng_key(seed, 3, 4);

	for (uint64_t i = 0; i < count; i++) {
		uint64_t value = rng_u64(key, 0, i) >> rng_below(key, 1, i, 64);
		switch (dtype) {
		case TR_F32:
			((float *)data)[i] = (float)odd_real(key, i);
			break;
		case TR_F64:
			((double *)data)[i] = odd_real(key, i);
			break;
		case TR_I32:
			((int32_t *)data)[i] = (int32_t)value;
			break;
		case TR_I64:
			((int64_t *)data)[i] = (int64_t)value;
			break;
		case TR_F16: /* any bits, or what is near one */
			((uint16_t *)data)[i] = (value & 1) != 0
			    ? (uint16_t)rng_u64(key, 4, i)
			    : half_to_f16((float)odd_real(key, i));
			break;
		case TR_BF16:
			((uint16_t *)data)[i] = (value & 1) != 0
			    ? (uint16_t)rng_u64(key, 4, i)
			    : half_to_bf16((float)odd_real(key, i));
			break;
		case TR_U8:
			((uint8_t *)data)[i] = (uint8_t)value;
			break;
		}
	}
}

static bool is_nan(enum tr_dtype dtype, const void *data, size_t i)
{
	switch (dtype) {
	case TR_F32:
		return isnan(((const float *)data)[i]);
	case TR_F64:
		return isnan(((const double *)data)[i]);
	case TR_F16:
		return (((const uint16_t *)data)[i] & 0x7fff) > 0x7c00;
	case TR_BF16:
		return (((const uint16_t *)data)[i] & 0x7fff) > 0x7f80;
	default:
		return false;
	}
}

/* Equal bits, but for the payload of a NaN, which no standard promises. */
static void assert_same(enum tr_dtype dtype, const void *a, const void *b, size_t count)
{
	size_t size = reduce_element_bytes(dtype);

	for (size_t i = 0; i < count; i++)
		if (!is_nan(dtype, a, i) || !is_nan(dtype, b, i))
			assert_memory_equal((const char *)a + i * size, (const char *)b + i * size,
			    size);
}

static void combine_case(enum tr_dtype dtype, enum tr_reduce op, size_t at, size_t count)
{
	char *a = room[0], *b = room[1];
	size_t bytes = count * reduce_element_bytes(dtype);

	fill(dtype, a + at, count + 1, count);
	fill(dtype, b + at, count + 1000, count);
	memset(fast, 0x5a, at + bytes + 8);
	reduce_combine(dtype, op, fast + at, a + at, b + at, count);
	reduce_plain_combine(dtype, op, plain + at, a + at, b + at, count);
	assert_same(dtype, fast + at, plain + at, count);
	for (size_t i = 0; i < 8; i++) /* nothing outside is touched */
		assert_true(fast[at + bytes + i] == 0x5a && (i >= at || fast[at - 1 - i] == 0x5a));
	memcpy(fast, a, at + bytes);
	reduce_combine(dtype, op, fast + at, fast + at, b + at, count);
	assert_same(dtype, fast + at, plain + at, count);
	memcpy(fast, b, at + bytes);
	reduce_combine(dtype, op, fast + at, a + at, fast + at, count);
	assert_same(dtype, fast + at, plain + at, count);
}

static void combine(void)
{
	for (enum tr_dtype dtype = TR_F32; dtype <= TR_U8; dtype++)
		for (enum tr_reduce op = TR_SUM; op <= TR_PROD; op++)
			for (size_t offset = 0; offset < 3; offset++)
				for (size_t count = 0; count <= COUNT; count += 1 + count / 8)
					combine_case(dtype, op,
					    offset * reduce_element_bytes(dtype), count);
}

/* The definition, two at a time with reduce_plain_combine; in f32 for the wide types. */
static void many_reference(enum tr_dtype dtype, enum tr_reduce op, void *out,
    const void *const *inputs, unsigned n, size_t count)
{
	static float acc[LONG], wide[LONG];

	if (!reduce_is_wide(dtype)) {
		memcpy(out, inputs[0], count * reduce_element_bytes(dtype));
		for (unsigned k = 1; k < n; k++)
			reduce_plain_combine(dtype, op, out, out, inputs[k], count);
		return;
	}
	for (unsigned k = 0; k < n; k++) {
		for (size_t i = 0; i < count; i++) {
			uint16_t half = ((const uint16_t *)inputs[k])[i];
			wide[i] = dtype == TR_F16 ? half_from_f16(half) : half_from_bf16(half);
		}
		if (k == 0)
			memcpy(acc, wide, count * sizeof(float));
		else
			reduce_plain_combine(TR_F32, op, acc, acc, wide, count);
	}
	for (size_t i = 0; i < count; i++)
		((uint16_t *)out)[i] = dtype == TR_F16 ? half_to_f16(acc[i]) : half_to_bf16(acc[i]);
}

static void many_case(enum tr_dtype dtype, enum tr_reduce op, unsigned n, size_t at, size_t count)
{
	const void *inputs[MANY_MAX];

	for (unsigned k = 0; k < n; k++) {
		fill(dtype, room[k] + at, n * 100 + k, count);
		inputs[k] = room[k] + at;
	}
	many_reference(dtype, op, plain + at, inputs, n, count);
	reduce_combine_many(dtype, op, fast + at, inputs, n, count);
	assert_same(dtype, fast + at, plain + at, count);
	for (unsigned k = 0; k < n; k++) { /* into an input */
		size_t bytes = count * reduce_element_bytes(dtype);
		memcpy(fast, room[k] + at, bytes);
		reduce_combine_many(dtype, op, room[k] + at, inputs, n, count);
		assert_same(dtype, room[k] + at, plain + at, count);
		memcpy(room[k] + at, fast, bytes);
	}
}

static void combine_many(void)
{
	static const size_t counts[] = { 0, 1, 31, 200, LONG };

	for (enum tr_dtype dtype = TR_F32; dtype <= TR_U8; dtype++)
		for (unsigned n = 1; n <= MANY_MAX; n++)
			for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++)
				many_case(dtype, (enum tr_reduce)(TR_SUM + (n + i) % TR_PROD), n,
				    (n % 2) * reduce_element_bytes(dtype), counts[i]);
}

static void divide(void)
{
	for (enum tr_dtype dtype = TR_F32; dtype <= TR_U8; dtype++)
		for (unsigned divisor = 1; divisor <= 100000; divisor = divisor * 2 + 1) {
			fill(dtype, fast, divisor, LONG);
			memcpy(plain, fast, sizeof(plain));
			reduce_divide(dtype, fast, LONG, divisor);
			reduce_plain_divide(dtype, plain, LONG, divisor);
			assert_same(dtype, fast, plain, LONG);
		}
}

/* Every half, and the floats at and beside every boundary between two of them. */
static void widen_and_narrow(void)
{
	static uint16_t halves[65536], back[65536], expected[65536];
	static float values[65536], same[65536];

	for (unsigned t = 0; t < 2; t++) {
		enum tr_dtype dtype = wide_types[t];
		for (unsigned i = 0; i < 65536; i++) {
			halves[i] = (uint16_t)i;
			same[i] = t == 0 ? half_from_f16(halves[i]) : half_from_bf16(halves[i]);
		}
		reduce_widen(dtype, values, halves, 65536);
		assert_memory_equal(values, same, sizeof(same)); /* payloads too */
		for (int beside = -1; beside <= 1; beside++) {
			for (unsigned i = 0; i < 65536; i++) {
				uint32_t middle = half_bits(same[i]) +
				    (t == 0 && (i & 0x7c00) != 0x7c00 ? 0x1000 : 0x8000);
				values[i] = half_float(middle + (uint32_t)beside);
				expected[i] = t == 0 ? half_to_f16(values[i])
				                     : half_to_bf16(values[i]);
			}
			for (size_t at = 0; at < 5; at++) {
				reduce_narrow(dtype, back, values + at, 65536 - at);
				assert_memory_equal(back, expected + at, 2 * (65536 - at));
			}
		}
		for (size_t count = 0; count < 70; count++) {
			static float acc[2][128];
			fill(TR_F32, acc[0], count, 70);
			memcpy(acc[1], acc[0], sizeof(acc[0]));
			fill(dtype, room[0], count, count);
			reduce_widen(dtype, values, room[0], count);
			reduce_plain_combine(TR_F32, TR_MAX, acc[0], acc[0], values, count);
			reduce_combine_wide(dtype, TR_MAX, acc[1], room[0], count);
			assert_same(TR_F32, acc[0], acc[1], 70);
		}
	}
}

static void every_variant(void (*check)(void))
{
	for (const char *const *name = kernels_variants(); *name != NULL; name++) {
		assert_true(kernels_use(*name));
		assert_string_equal(kernels_used(), *name);
		check();
	}
	assert_true(kernels_use(NULL));
}

static void combine_equals_plain(void **state)
{
	(void)state;
	every_variant(combine);
}

static void combine_many_equals_pairwise(void **state)
{
	(void)state;
	every_variant(combine_many);
}

static void divide_equals_plain(void **state)
{
	(void)state;
	every_variant(divide);
}

static void widen_and_narrow_equal_plain(void **state)
{
	(void)state;
	every_variant(widen_and_narrow);
}

/* By ldexp, which knows nothing of bits; then that narrowing is to nearest even between all neighbours. */
static void plain_halves_are_right(void **state)
{
	(void)state;
	for (unsigned i = 0; i < 0x7c00; i++) {
		int exponent = (int)(i >> 10), fraction = i & 0x3ff;
		double value = exponent == 0 ? ldexp(fraction, -24)
		                             : ldexp(1024 + fraction, exponent - 25);
		assert_true((double)half_from_f16((uint16_t)i) == value);
		assert_true((double)half_from_f16((uint16_t)(i | 0x8000)) == -value);
		assert_int_equal(half_to_f16((float)value), i);
		double next = i == 0x7bff ? 65536.0 : (double)half_from_f16((uint16_t)(i + 1));
		float middle = (float)((value + next) / 2); /* exact */
		assert_int_equal(half_to_f16(middle), (i & 1) != 0 ? i + 1 : i);
		assert_int_equal(half_to_f16(nextafterf(middle, 0)), i);
		assert_int_equal(half_to_f16(-nextafterf(middle, INFINITY)), 0x8000 | (i + 1));
	}
	for (unsigned i = 0; i < 0x7f80; i++) {
		float value = half_from_bf16((uint16_t)i);
		assert_int_equal(half_to_bf16(value), i);
		double next = i == 0x7f7f ? ldexp(1, 128)
		                          : (double)half_from_bf16((uint16_t)(i + 1));
		float middle = (float)(((double)value + next) / 2);
		assert_int_equal(half_to_bf16(middle), (i & 1) != 0 ? i + 1 : i);
		assert_int_equal(half_to_bf16(nextafterf(middle, 0)), i);
		assert_int_equal(half_to_bf16(-nextafterf(middle, INFINITY)), 0x8000 | (i + 1));
	}
	assert_true(half_from_bf16(0x3fc0) == 1.5f && half_from_f16(0x3e00) == 1.5f);
	assert_int_equal(half_to_f16(NAN) & 0x7e00, 0x7e00);
	assert_int_equal(half_to_bf16(half_float(0xff800001)), 0xffc0); /* quiet, not infinity */
	assert_int_equal(half_to_f16(-INFINITY), 0xfc00);
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
	uint8_t u[] = { 200, 3, 20 }, v[] = { 100, 5, 13 }, w[3];
	reduce_combine(TR_U8, TR_SUM, w, u, v, 3);
	assert_true(w[0] == 44 && w[1] == 8 && w[2] == 33); /* wraps */
	reduce_combine(TR_U8, TR_PROD, w, u, v, 3);
	assert_true(w[0] == (uint8_t)20000 && w[2] == 4);
	reduce_combine(TR_U8, TR_MAX, w, u, v, 3);
	assert_true(w[0] == 200 && w[1] == 5); /* no sign */
	assert_int_equal(reduce_element_bytes((enum tr_dtype)0), 0);
	assert_int_equal(reduce_element_bytes((enum tr_dtype)8), 0);
}

/* 256 + 1 + 1 in bf16 (8 bits): one at a time both ones are lost, in f32 they count. */
static void wide_types_are_rounded_once(void **state)
{
	(void)state;
	uint16_t large = half_to_bf16(256), one = half_to_bf16(1), sum;

	reduce_combine(TR_BF16, TR_SUM, &sum, &large, &one, 1);
	reduce_combine(TR_BF16, TR_SUM, &sum, &sum, &one, 1);
	assert_true(half_from_bf16(sum) == 256);
	reduce_combine_many(TR_BF16, TR_SUM, &sum, (const void *[]){ &large, &one, &one }, 3, 1);
	assert_true(half_from_bf16(sum) == 258);
}

static void settle_nans(void)
{
	uint16_t f16[] = { 0x7c01, 0xffff, 0x7c00, 0xfc00, 0x8000, 0x3c00 };
	uint16_t bf16[] = { 0x7f81, 0xffff, 0x7f80, 0xff80, 0x8000, 0x3f80 };
	uint32_t f32[] = { 0x7f800001, 0xffffffff, 0x7f800000, 0xff800000, 0x80000000, 0x3f800000 };
	uint64_t f64[] = { 0x7ff0000000000001, 0xffffffffffffffff, 0x7ff0000000000000,
		0xfff0000000000000, 0x8000000000000000, 0x3ff0000000000000 };
	const uint16_t f16_left[] = { 0x7e00, 0x7e00, 0x7c00, 0xfc00, 0x8000, 0x3c00 };
	const uint16_t bf16_left[] = { 0x7fc0, 0x7fc0, 0x7f80, 0xff80, 0x8000, 0x3f80 };
	const uint32_t f32_left[] = { 0x7fc00000, 0x7fc00000, 0x7f800000, 0xff800000, 0x80000000,
		0x3f800000 };
	const uint64_t f64_left[] = { 0x7ff8000000000000, 0x7ff8000000000000, 0x7ff0000000000000,
		0xfff0000000000000, 0x8000000000000000, 0x3ff0000000000000 };
	int32_t i32[] = { -1, INT32_MAX };

	reduce_settle_nans(TR_F16, f16, 6);
	reduce_settle_nans(TR_BF16, bf16, 6);
	reduce_settle_nans(TR_F32, f32, 6);
	reduce_settle_nans(TR_F64, f64, 6);
	reduce_settle_nans(TR_I32, i32, 2);
	assert_memory_equal(f16, f16_left, sizeof(f16));
	assert_memory_equal(bf16, bf16_left, sizeof(bf16));
	assert_memory_equal(f32, f32_left, sizeof(f32));
	assert_memory_equal(f64, f64_left, sizeof(f64));
	assert_true(i32[0] == -1 && i32[1] == INT32_MAX);
}

static void nans_lose_sign_and_payload(void **state)
{
	(void)state;
	every_variant(settle_nans);
}

/* Enough of them for vectors, and an odd rest. */
static void settle_many(void)
{
	static uint32_t bits[LONG];
	for (size_t i = 0; i < LONG; i++)
		bits[i] = (uint32_t)(i * 2654435761u) | (i % 5 == 0 ? 0x7f800001u : 0);
	static uint32_t before[LONG];
	memcpy(before, bits, sizeof(bits));
	reduce_settle_nans(TR_F32, bits, LONG);
	for (size_t i = 0; i < LONG; i++) {
		bool nan = (before[i] & 0x7fffffffu) > 0x7f800000u;
		assert_int_equal(bits[i], nan ? 0x7fc00000u : before[i]);
	}
}

static void many_nans(void **state)
{
	(void)state;
	every_variant(settle_many);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(nans_lose_sign_and_payload),
		cmocka_unit_test(many_nans),
		cmocka_unit_test(combine_equals_plain),
		cmocka_unit_test(combine_many_equals_pairwise),
		cmocka_unit_test(divide_equals_plain),
		cmocka_unit_test(widen_and_narrow_equal_plain),
		cmocka_unit_test(plain_halves_are_right),
		cmocka_unit_test(known_values),
		cmocka_unit_test(wide_types_are_rounded_once),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
