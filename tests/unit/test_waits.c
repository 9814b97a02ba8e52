/* What a worker says of its waiting, a part of the time after the other. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "daemon/worker/waits.h"

static void parts(void **state)
{
	(void)state;
	struct waits waits = { 0 };
	char text[WAITS_TEXT] = "";
	assert_true(
	    waits_step(&waits, 100, 7)); /* the first step begins the first part, and is in none */
	assert_false(waits_end(&waits, 100, 3, text));
	assert_string_equal(text, "");
	assert_false(waits_step(&waits, 104, 0.5));
	assert_false(waits_step(&waits, 109.9, 0.25));
	assert_true(waits_step(&waits, 112, 0.75));
	assert_true(waits_end(&waits, 112, 6, text));
	assert_string_equal(text,
	    "steps: 3, 4000.0 ms each; waited 500.00 ms for others of the replica, 1000.00 ms in "
	    "all calls");
	assert_true(waits_step(&waits, 123, 0.001)); /* nothing of the part before is in it */
	assert_true(waits_end(&waits, 123, 6.5, text));
	assert_string_equal(text,
	    "steps: 1, 11000.0 ms each; waited 1.00 ms for others of the replica, 500.00 ms in all "
	    "calls");
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(parts) };
	return cmocka_run_group_tests(tests, NULL, NULL);
}
