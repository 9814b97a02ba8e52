/* Which numbers can be given to a merge, and what it makes of them (collectives/sync/outer.h). */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "collectives/sync/outer.h"
#include "common/float_mode.h"

enum { COUNT = 67 }; /* no multiple of any vector */

static bool sound_with(float number, size_t at)
{
	float numbers[COUNT];
	for (size_t i = 0; i < COUNT; i++)
		numbers[i] = i % 2 == 0 ? 0.02F : -0.02F;
	numbers[at] = number;
	return outer_sound(numbers, COUNT);
}

static float flipped(float number, unsigned bit)
{
	uint32_t bits;
	memcpy(&bits, &number, sizeof(bits));
	bits ^= UINT32_C(1) << bit;
	memcpy(&number, &bits, sizeof(bits));
	return number;
}

static void what_is_no_number_is_found_anywhere(void **state)
{
	(void)state;
	const float wrong[] = { NAN, -NAN, INFINITY, -INFINITY, 0x1p64F, -0x1p64F, 3e38F };
	const float right[] = { 0, -0.0F, 1e-45F, 1, -1e18F, 0x1.fffffep63F, -0x1.fffffep63F };
	for (size_t at = 0; at < COUNT; at++)
		for (unsigned i = 0; i < 7; i++) {
			assert_false(sound_with(wrong[i], at));
			assert_true(sound_with(right[i], at));
		}
	assert_true(outer_sound(NULL, 0));
}

/* Of all parameters that models have: their exponent's top bit is 0. */
static void a_flipped_top_bit_is_found(void **state)
{
	(void)state;
	for (float number = 0x1p-63F; number < 2; number *= 1.37F) {
		assert_false(sound_with(flipped(number, 30), 5));
		assert_false(sound_with(flipped(-number, 30), 5));
	}
}

/* A program that flushes subnormal numbers has the outer state that the others have. */
static void an_outer_step_is_the_same_whatever_its_program_flushes(void **state)
{
	(void)state;
	float theta[2][COUNT], v[2][COUNT], d[COUNT];
	for (unsigned flushes = 0; flushes < 2; flushes++) {
		unsigned mode = flushes == 0 ? FLOAT_EXACT : FLOAT_FLUSH;
		for (unsigned i = 0; i < COUNT; i++) {
			theta[flushes][i] = 0x1p-126F * (float)i;
			v[flushes][i] = 0x1p-128F * (float)i;
			d[i] = 0x1p-130F * (float)(i % 5);
		}
		(void)float_mode_set(mode);
		outer_step(theta[flushes], v[flushes], d, 0.5F, 0.7F, 0.9F, COUNT);
		assert_int_equal(float_mode_set(FLOAT_EXACT), mode);
	}
	assert_memory_equal(theta[0], theta[1], sizeof(theta[0]));
	assert_memory_equal(v[0], v[1], sizeof(v[0]));
	assert_true(v[0][1] != 0);
}

/* To the bit, and nothing is changed; into the movement's own place too. */
static void what_is_foreseen_is_what_the_outer_step_makes_of_it(void **state)
{
	(void)state;
	for (unsigned with = 0; with < 2; with++) {
		float theta[COUNT], v[COUNT], d[COUNT], out[COUNT], stepped[COUNT], moved[COUNT];
		for (size_t i = 0; i < COUNT; i++) {
			theta[i] = stepped[i] = 0.3F * (float)i - 7;
			v[i] = moved[i] = 0.01F * (float)(i % 13) - 0.05F;
			d[i] = 0.002F * (float)(i % 7) - 0.006F;
		}
		outer_step(stepped, with ? moved : NULL, d, 1.0F / 3, 0.7F, 0.9F, COUNT);
		outer_foresee(out, theta, with ? v : NULL, d, 1.0F / 3, 0.7F, 0.9F, COUNT);
		assert_memory_equal(out, stepped, sizeof(out));
		assert_true(theta[1] == 0.3F - 7 && v[1] == 0.01F - 0.05F);
		outer_foresee(d, theta, with ? v : NULL, d, 1.0F / 3, 0.7F, 0.9F, COUNT);
		assert_memory_equal(d, stepped, sizeof(d));
	}
}

/* OUTER is linear in d: peers of equal weight are, in the mean, where the group will be. */
static void in_the_mean_peers_foresee_where_the_group_will_be(void **state)
{
	(void)state;
	const float theta[1] = { 2 }, v[1] = { 0.5F }, moves[3] = { 0.25F, -0.125F, 0.5F };
	float mean[1] = { (0.25F - 0.125F + 0.5F) / 3 }, there[1] = { 2 }, momentum[1] = { 0.5F };
	double foreseen = 0;
	for (unsigned m = 0; m < 3; m++) {
		float out[1];
		outer_foresee(out, theta, v, &moves[m], 1, 0.7F, 0.9F, 1);
		foreseen += (double)out[0] / 3;
	}
	outer_step(there, momentum, mean, 1, 0.7F, 0.9F, 1);
	assert_true(fabs(foreseen - (double)there[0]) < 1e-6);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_is_no_number_is_found_anywhere),
		cmocka_unit_test(a_flipped_top_bit_is_found),
		cmocka_unit_test(an_outer_step_is_the_same_whatever_its_program_flushes),
		cmocka_unit_test(what_is_foreseen_is_what_the_outer_step_makes_of_it),
		cmocka_unit_test(in_the_mean_peers_foresee_where_the_group_will_be),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
