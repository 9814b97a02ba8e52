/* In the largest group who waits asks so seldom that its hub has something else to do. */
#define PUMP_MEMBERS 256
#define PUMP_TRACE   2000000
#include "tests/unit/group_pump.h"

static void pass(struct pump *pump, unsigned ms)
{
	for (unsigned at = 0; at < ms; at += 50) {
		pump->now_us += 50000;
		for (unsigned i = 0; i < pump->n; i++)
			pump_event(pump, i, GROUP_TICK);
		pump_run(pump);
	}
}

static void the_hub_of_many_is_asked_seldom(void **state)
{
	struct group_core_progress progress;
	(void)state;
	struct pump *pump = pump_create(PUMP_MEMBERS);
	struct pump_view view = pump_first_view(pump);
	pump->now_us = 1000000;
	pump_ready_all(pump);
	pump_install(pump, &view);
	for (unsigned i = 0; i < pump->n; i++)
		assert_int_equal(pump_event(pump, i, GROUP_BEGIN), TR_OK);
	for (unsigned i = 0; i < pump->n - 1; i++)
		assert_int_equal(pump_close(pump, i, 0, 0), TR_OK);
	pump_run(pump);
	size_t before = pump->last;
	pass(pump, 3000);
	assert_in_range(pump->last - before, 2 * pump->n, 2 * 4 * pump->n); /* and the answers */
	for (unsigned i = 0; i < pump->n - 1; i++) {
		group_core_progress(pump->members[i].core, true, &progress);
		assert_int_equal(progress.lack_count, 1);
		assert_int_equal(progress.waits_for[0], PUMP_MEMBERS);
	}
	pump_destroy(pump);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(the_hub_of_many_is_asked_seldom) };
	return cmocka_run_group_tests(tests, NULL, NULL);
}
