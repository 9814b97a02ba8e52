/* Which numbers can be given to a merge (collectives/sync/outer.h). */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "collectives/sync/outer.h"

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

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_is_no_number_is_found_anywhere),
		cmocka_unit_test(a_flipped_top_bit_is_found),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
