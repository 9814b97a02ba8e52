/* Sharded jobs in the simulator (tests/sim/sharded/play.h): a fault at each instruction, of all kinds of jobs. All of it: make sim-sharded ALL=1. */
#include "tests/unit/sharded_sim.h"

/* Coroutines are slow with a sanitizer. */
#ifdef __SANITIZE_ADDRESS__
#define EVERY 4339
#else
#define EVERY 2851 /* of all faults at all instructions */
#endif

struct totals {
	unsigned runs, struck;
	uint64_t remeshes, splits;
	unsigned replanned, all_ways, shared_heads, uneven;
};

static void on_case(void *arg, const struct play_case *what)
{
	struct totals *totals = arg;
	run(what, CASE_SEED);
	totals->runs++;
	totals->struck += play.struck;
	totals->remeshes += play.remeshes;
	totals->splits += play.split.count;
	totals->replanned += what->replans;
	totals->all_ways += what->sequence_parallel && what->chunks > 1 && what->owners > 0;
	totals->shared_heads += what->shared_heads && !what->sequence_parallel;
	totals->uneven += what->dealing.shares[0] + what->dealing.layers[0] > 0;
}

static void a_fault_at_any_instruction(void **state)
{
	(void)state;
	struct totals totals = { 0 };
	assert_true(cases_all(&sim, &play, NULL, 1, EVERY, on_case, &totals));
	assert_in_range(totals.runs, 170000 / EVERY, 230000 / EVERY);
	assert_in_range(totals.struck, totals.runs, 2 * totals.runs);
	assert_true(totals.remeshes > totals.runs / 8);
	assert_true(totals.replanned > 0 && totals.splits > 0 && totals.all_ways > 0);
	assert_true(totals.shared_heads > 0 && totals.uneven > 0);
}

static void never(void *arg, const struct play_case *what)
{
	(void)arg;
	(void)what;
	fail();
}

static void a_kind_that_there_is_not(void **state)
{
	(void)state;
	assert_false(cases_all(&sim, &play, "nothing", 1, 1, never, NULL));
}

int main(void)
{
	const struct CMUnitTest none[] = { cmocka_unit_test(not_where_threads_are_watched) };
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_fault_at_any_instruction),
		cmocka_unit_test(a_kind_that_there_is_not),
	};
	return THREADS_ARE_WATCHED ? cmocka_run_group_tests(none, NULL, NULL)
	                           : cmocka_run_group_tests(tests, NULL, NULL);
}
