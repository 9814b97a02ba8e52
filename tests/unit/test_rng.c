#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "common/rng.h"

/* Known answers of Random123's kat_vectors, philox4x32 with 10 rounds. */
static void blocks_are_philox(void **state)
{
	(void)state;
	static const struct {
		uint32_t counter[4], key[2], out[4];
	} known[] = {
		{ { 0, 0, 0, 0 }, { 0, 0 }, { 0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8 } },
		{ { 0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff }, { 0xffffffff, 0xffffffff },
		    { 0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd } },
		{ { 0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344 }, { 0xa4093822, 0x299f31d0 },
		    { 0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1 } },
	};
	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
		const uint32_t *c = known[i].counter;
		uint32_t out[4];
		rng_block((struct rng_key){ { known[i].key[0], known[i].key[1] } },
		    (uint64_t)c[3] << 32 | c[2], (uint64_t)c[1] << 32 | c[0], out);
		assert_memory_equal(out, known[i].out, sizeof(out));
	}
}

static void keys_differ_in_every_part(void **state)
{
	(void)state;
	struct rng_key keys[] = { rng_key(1, 2, 3), rng_key(2, 2, 3), rng_key(1, 3, 3),
		rng_key(1, 2, 4), rng_key(1, 3, 2), rng_key(0, 0, 0) };
	for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++)
		for (size_t k = 0; k < i; k++)
			assert_memory_not_equal(&keys[i], &keys[k], sizeof(keys[i]));
	struct rng_key again = rng_key(1, 2, 3);
	assert_memory_equal(&keys[0], &again, sizeof(again));
}

/* Bounds are ten standard deviations of the estimate wide: the draws are fixed, so this cannot flicker. */
static void draws_have_their_moments(void **state)
{
	(void)state;
	const unsigned draws = 100000;
	struct rng_key key = rng_key(7, 0, 0);
	double unit = 0, normal = 0, squares = 0;
	for (unsigned i = 0; i < draws; i++) {
		double u = rng_unit(key, 0, i), z = rng_normal(key, 1, i);
		assert_true(u >= 0 && u < 1);
		assert_true(isfinite(z));
		unit += u;
		normal += z;
		squares += z * z;
	}
	assert_true(fabs(unit / draws - 0.5) < 10 * 0.2887 / sqrt(draws));
	assert_true(fabs(normal / draws) < 10 / sqrt(draws));
	assert_true(fabs(squares / draws - 1) < 10 * sqrt(2.0 / draws));
}

static void below_stays_below_and_reaches_all(void **state)
{
	(void)state;
	struct rng_key key = rng_key(9, 0, 0);
	unsigned seen[7] = { 0 };
	for (unsigned i = 0; i < 7000; i++) {
		uint64_t value = rng_below(key, 0, i, 7);
		assert_true(value < 7);
		seen[value]++;
	}
	for (unsigned i = 0; i < 7; i++)
		assert_in_range(seen[i], 800, 1200);
	assert_int_equal(rng_below(key, 0, 5, 1), 0);
	assert_true(rng_below(key, 0, 5, UINT64_MAX) < UINT64_MAX);
}

static void permutations_are_one_to_one(void **state)
{
	(void)state;
	const uint64_t sizes[] = { 1, 2, 3, 5, 16, 17, 1000, 4096, 65537 };
	for (size_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++) {
		uint8_t *seen = calloc(sizes[s], 1);
		assert_non_null(seen);
		uint64_t at_home = 0;
		for (uint64_t i = 0; i < sizes[s]; i++) {
			uint64_t image = rng_permute(rng_key(3, s, 0), sizes[s], i);
			assert_true(image < sizes[s]);
			assert_int_equal(seen[image], 0);
			seen[image] = 1;
			at_home += image == i;
		}
		free(seen);
		if (sizes[s] >= 1000)
			assert_true(at_home < 20);
	}
	/* No table: the size may be anything. */
	assert_true(rng_permute(rng_key(3, 0, 0), UINT64_MAX, 12345) < UINT64_MAX);
}

int main(void)
{
	const struct CMUnitTest rng_tests[] = {
		cmocka_unit_test(blocks_are_philox),
		cmocka_unit_test(keys_differ_in_every_part),
		cmocka_unit_test(draws_have_their_moments),
		cmocka_unit_test(below_stays_below_and_reaches_all),
		cmocka_unit_test(permutations_are_one_to_one),
	};
	return cmocka_run_group_tests(rng_tests, NULL, NULL);
}
