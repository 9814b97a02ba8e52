/* What merges cost: each merge's own cost beside the steps that it is of, whoever counts; and what a file holds of it. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "collectives/sync/costs.h"

enum { PARAMETERS = 1000, EACH = 2 * PARAMETERS * 4 };

static void steps_and_bytes_are_of_the_same_merges(void **state)
{
	(void)state;
	struct sync_costs costs = { 0 };
	struct sync_costs_said said = { 3, 70, 0, 0 }; /* what was sent before the first one */
	costs_count(&costs, &said, 10, PARAMETERS);
	assert_true(costs.merges == 1 && costs.sent_bytes == 70 && costs.dense_bytes == 0);
	said = (struct sync_costs_said){ 2, 500, 1, 4 }; /* of the first one; one has died since */
	costs_count(&costs, &said, 25, PARAMETERS);
	assert_true(costs.merges == 2 && costs.sent_bytes == 570 && costs.waited_s == 1 &&
	    costs.flight_s == 4);
	assert_true(costs.dense_bytes == 10.0 * 2 * EACH);
	said.members = 0; /* all died: nobody's work is in it */
	costs_count(&costs, &said, 26, PARAMETERS);
	assert_true(costs.dense_bytes == (10.0 * 2 + 15.0 * 1) * EACH);
	costs_count(&costs, &said, 26, PARAMETERS);
	assert_true(costs.dense_bytes == (10.0 * 2 + 15.0 * 1) * EACH && costs.merges == 4);
	/* From a checkpoint steps are counted from 0 again, and what the newest merge cost is not told. */
	said.members = 2;
	costs_count(&costs, &said, 40, PARAMETERS);
	struct sync_costs saved = costs_to_save(&costs);
	assert_true(saved.merges == 5 && saved.sent_bytes == costs.sent_bytes);
	costs_count(&saved, &said, 8, PARAMETERS);
	assert_true(saved.dense_bytes == costs.dense_bytes);
	costs_count(&saved, &said, 9, PARAMETERS);
	assert_true(saved.dense_bytes == costs.dense_bytes + 8.0 * EACH);
}

/* A peer's numbers are only numbers: they stay such as can be shown. */
static void wild_numbers_do_no_harm(void **state)
{
	static const double wild[] = { -1, 1e300, -1e300, (double)NAN, (double)INFINITY, 1e15 };
	(void)state;
	for (size_t i = 0; i < sizeof(wild) / sizeof(wild[0]); i++) {
		struct sync_costs costs = { 0 };
		struct sync_costs_said said = { wild[i], wild[i], wild[i], wild[i] };
		for (uint64_t step = 0; step < 3; step++)
			costs_count(&costs, &said, UINT64_MAX - 3 + step, UINT64_MAX);
		assert_true(costs.sent_bytes == 0 && costs.waited_s == 0 && costs.flight_s == 0);
		assert_true(costs.dense_bytes >= 0 && costs.dense_bytes < 1e18);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(steps_and_bytes_are_of_the_same_merges),
		cmocka_unit_test(wild_numbers_do_no_harm),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
