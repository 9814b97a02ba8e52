/* Encoded elements in fewer bytes (packing.h): each codec's come back to the bit and by how much fewer; what has nothing to give is left alone; what is not ours is refused. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "collectives/kernels/codec.h"
#include "collectives/transport/packing.h"
#include "common/rng.h"

#define ELEMENTS (128u << 10)

static double gaussian(struct rng_key key, uint64_t i)
{
	return rng_normal(key, 0, i);
}

static double laplacian(struct rng_key key, uint64_t i)
{
	double u = rng_unit(key, 0, i) - 0.5;
	return u < 0 ? log1p(2 * u) : -log1p(-2 * u);
}

/* Of the encoded bytes, so much is left. */
static double packed_of(enum tr_codec codec, double (*number)(struct rng_key key, uint64_t i))
{
	size_t bytes = codec_bytes(codec, ELEMENTS);
	float *numbers = malloc(ELEMENTS * sizeof(*numbers));
	uint8_t *encoded = malloc(bytes), *back = malloc(bytes);
	struct tr_error error;
	for (size_t i = 0; i < ELEMENTS; i++)
		numbers[i] = 1e-3f * (float)number(rng_key(1, 0, 0), i);
	codec_encode(codec, encoded, numbers, ELEMENTS);
	struct packing_packed *packed = packing_pack(encoded, bytes);
	assert_non_null(packed);
	double part = (double)packed->count / (double)bytes;
	assert_int_equal(packing_unpack(packed->bytes, packed->count, back, bytes, &error), TR_OK);
	assert_memory_equal(back, encoded, bytes);
	free(packed);
	free(numbers);
	free(encoded);
	free(back);
	return part;
}

static void each_codec_comes_back_smaller(void **state)
{
	static const struct {
		enum tr_codec codec;
		const char *name;
		double gaussian, laplacian; /* the header's table */
	} cases[] = {
		{ TR_CODEC_BF16, "bf16", 0.78, 0.79 },
		{ TR_CODEC_INT8, "int8", 0.95, 0.89 },
		{ TR_CODEC_INT4, "int4", 0.91, 0.79 },
		{ TR_CODEC_E3M0, "e3m0", 0.89, 0.93 },
		{ TR_CODEC_INT2, "int2", 0.96, 0.91 },
	};
	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		double one = packed_of(cases[i].codec, gaussian);
		double other = packed_of(cases[i].codec, laplacian);
		print_message("%s: Gaussian %.3f, Laplacian %.3f\n", cases[i].name, one, other);
		assert_true(fabs(one - cases[i].gaussian) < 0.01);
		assert_true(fabs(other - cases[i].laplacian) < 0.01);
	}
}

static void what_has_nothing_to_give_is_left_alone(void **state)
{
	static uint8_t bytes[64 << 10];
	(void)state;
	for (size_t i = 0; i < sizeof(bytes); i++)
		bytes[i] = (uint8_t)rng_u64(rng_key(2, 0, 0), 0, i);
	assert_null(packing_pack(bytes, sizeof(bytes)));
	memset(bytes, 7, PACKING_BYTES_MIN);
	assert_null(packing_pack(bytes, PACKING_BYTES_MIN - 1));
	struct packing_packed *packed = packing_pack(bytes, PACKING_BYTES_MIN);
	assert_non_null(packed);
	free(packed);
}

static tr_status refused(const uint8_t *packed, size_t count, uint8_t *out, size_t bytes)
{
	struct tr_error error = { 0 };
	tr_status status = packing_unpack(packed, count, out, bytes, &error);
	assert_true(status == TR_OK || strncmp(error.text, "bad packed segment: ", 20) == 0);
	return status;
}

static void what_is_not_ours_is_refused(void **state)
{
	static uint8_t bytes[4096], back[2 * sizeof(bytes)];
	(void)state;
	for (size_t i = 0; i < sizeof(bytes); i++)
		bytes[i] = (uint8_t)rng_below(rng_key(3, 0, 0), 0, i, 3);
	struct packing_packed *packed = packing_pack(bytes, sizeof(bytes));
	assert_non_null(packed);
	uint8_t *longer = malloc(packed->count + 1);
	memcpy(longer, packed->bytes, packed->count);
	longer[packed->count] = 0;
	assert_int_equal(refused(longer, packed->count + 1, back, sizeof(bytes)), TR_EPROTO);
	assert_int_equal(refused(longer, packed->count - 1, back, sizeof(bytes)), TR_EPROTO);
	assert_int_equal(refused(longer, packed->count, back, sizeof(bytes) - 1), TR_EPROTO);
	assert_int_equal(refused(longer, packed->count, back, sizeof(bytes) + 1), TR_EPROTO);
	assert_int_equal(refused(longer, 0, back, sizeof(bytes)), TR_EPROTO);
	/* Any byte of it changed: other bytes, or a refusal, and nothing behind them. */
	for (size_t at = 0; at < packed->count; at++) {
		longer[at] ^= 0x55;
		back[sizeof(bytes)] = 0xa5;
		(void)refused(longer, packed->count, back, sizeof(bytes));
		assert_int_equal(back[sizeof(bytes)], 0xa5);
		longer[at] ^= 0x55;
	}
	free(longer);
	free(packed);
}

static void it_is_done_where_it_pays(void **state)
{
	const struct packing_pace none = { 0 }, fast = { 110000000, 1000000000 },
	                          slow = { 20000000, 1000000000 };
	(void)state;
	assert_true(packing_pays(true, true, 0, &none)); /* of a new way nothing is known */
	assert_true(packing_pays(true, true, 31e6, &none));
	assert_false(packing_pays(true, true, 32e6, &none));
	assert_false(packing_pays(false, true, 1e6, &none));
	assert_false(packing_pays(true, false, 1e6, &none));
	assert_true(packing_pays(true, true, 31e6, &fast));
	assert_false(packing_pays(true, true, 33e6, &fast));
	/* What a slow processor packs is not taken for what the way carries. */
	assert_true(packing_pays(true, true, 5e6, &slow));
	assert_false(packing_pays(true, true, 20e6, &slow));
}

static void what_it_took_lately_counts(void **state)
{
	struct packing_pace pace = { 0 };
	(void)state;
	for (unsigned i = 0; i < 1000; i++)
		packing_took(&pace, 1 << 20, 1000000); /* 1 GB/s */
	assert_true(packing_pays(true, true, 31e6, &pace));
	for (unsigned i = 0; i < 100; i++)
		packing_took(&pace, 1 << 20, 100000000); /* 10 MB/s */
	assert_true(packing_pays(true, true, 3e6, &pace));
	assert_false(packing_pays(true, true, 4e6, &pace));
}

/* A question about an op has no elements: after one of them, before anything was packed, nothing ever was. */
static void what_is_too_small_says_nothing(void **state)
{
	struct packing_pace pace = { 0 };
	(void)state;
	packing_took(&pace, 0, 77);
	assert_true(packing_pays(true, true, 1e6, &pace));
	packing_took(&pace, PACKING_BYTES_MIN - 1, 1000000000);
	assert_true(packing_pays(true, true, 1e6, &pace));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_codec_comes_back_smaller),
		cmocka_unit_test(what_has_nothing_to_give_is_left_alone),
		cmocka_unit_test(what_is_not_ours_is_refused),
		cmocka_unit_test(it_is_done_where_it_pays),
		cmocka_unit_test(what_it_took_lately_counts),
		cmocka_unit_test(what_is_too_small_says_nothing),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
