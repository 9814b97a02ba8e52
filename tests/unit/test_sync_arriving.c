/* When a joiner goes on without the rest of its state (collectives/sync/arriving.h): whatever it decides, the group loses no more work than by the other way. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "collectives/sync/arriving.h"

#define MB 1000000u

static bool defers(double elapsed_s, double came_mb, double missing_mb, double result_mb,
    unsigned contributors)
{
	const struct arriving now = { .missing = (uint64_t)(missing_mb * MB),
		.came = (uint64_t)(came_mb * MB),
		.kept = (uint64_t)(came_mb * MB),
		.result = (uint64_t)(result_mb * MB),
		.elapsed_s = elapsed_s,
		.contributors = contributors };
	return arriving_defers(&now);
}

static void the_last_piece_is_waited_for(void **state)
{
	(void)state;
	for (unsigned n = 1; n <= 64; n *= 2)
		assert_false(defers(1.4, 7, 0.2, 0.5, n));
}

static void many_do_not_wait_for_one(void **state)
{
	(void)state;
	/* Thirty more seconds of state, rounds of five, a tenth of a round for the result. */
	assert_true(defers(5, 25, 150, 2.5, 8));
	assert_true(defers(5, 25, 150, 2.5, 64));
	/* A result that takes most of a round is as dear as the wait. */
	assert_false(defers(5, 25, 150, 20, 8));
}

static void one_alone_waits(void **state)
{
	(void)state;
	/* While it waits one peer does nothing; while the other has no state, one does nothing for longer. */
	for (double missing = 1; missing < 1000; missing *= 3)
		assert_false(defers(5, 25, missing, 2.5, 1));
}

static void nothing_is_known_before_something_came(void **state)
{
	(void)state;
	assert_false(defers(5, 0, 150, 2.5, 64));
	assert_false(defers(0, 1, 150, 2.5, 64));
	assert_false(defers(5, 25, 0, 2.5, 64));
}

/* Pieces of many units, none of which is whole: they come anew in the next round, and so on for ever. */
static void what_does_not_stay_is_no_progress(void **state)
{
	(void)state;
	struct arriving now = { .missing = 80 * MB,
		.came = 2 * MB,
		.kept = 2 * MB,
		.result = MB,
		.elapsed_s = 1,
		.contributors = 16 };
	assert_true(arriving_defers(&now));
	now.kept = 0;
	assert_false(arriving_defers(&now));
	now.kept = MB / 4;
	assert_false(arriving_defers(&now));
}

/* Both ways played to the end, at the same rate: rounds of `work_s` of computation, in which the state comes, and then the result, which it waits for. */
static double work_lost(bool waits, double missing_mb, double work_s, double result_s,
    double rate_mb, unsigned n)
{
	if (waits)
		return n * missing_mb / rate_mb;
	double rounds = 0;
	for (double left = missing_mb; left > 0; left -= work_s * rate_mb)
		rounds++;
	return rounds * (n * result_s + work_s + result_s);
}

static void the_way_that_costs_more_is_not_taken(void **state)
{
	(void)state;
	unsigned checked = 0;
	for (unsigned n = 1; n <= 32; n *= 2)
		for (double work_s = 0.5; work_s < 200; work_s *= 3)
			for (double result_mb = 0.1; result_mb < 50; result_mb *= 2.5)
				for (double missing_mb = 1; missing_mb < 2000; missing_mb *= 2.3) {
					double rate = 5, came = work_s * rate;
					bool goes_on = defers(work_s, came, missing_mb, result_mb,
					    n);
					double taken = work_lost(!goes_on, missing_mb, work_s,
					    result_mb / rate, rate, n);
					double other = work_lost(goes_on, missing_mb, work_s,
					    result_mb / rate, rate, n);
					assert_true(taken <= other * 1.000001);
					checked++;
				}
	assert_true(checked > 1000);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_last_piece_is_waited_for),
		cmocka_unit_test(many_do_not_wait_for_one),
		cmocka_unit_test(one_alone_waits),
		cmocka_unit_test(nothing_is_known_before_something_came),
		cmocka_unit_test(what_does_not_stay_is_no_progress),
		cmocka_unit_test(the_way_that_costs_more_is_not_taken),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
