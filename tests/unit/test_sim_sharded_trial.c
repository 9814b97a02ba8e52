/* Sharded jobs in the simulator (tests/sim/sharded/play.h) with which a slow replica begins to work: it is taken back, whatever else happens. */
#include "tests/unit/sharded_sim.h"

#ifdef __SANITIZE_ADDRESS__
#define SEEDS 40
#else
#define SEEDS 240
#endif

static void seeds_hold(void **state)
{
	(void)state;
	uint64_t back = 0, struck = 0;
	for (uint64_t seed = CASE_TRIAL_SEEDS; seed < CASE_TRIAL_SEEDS + SEEDS; seed++) {
		struct play_case what;
		case_of_seed(seed, &what);
		run(&what, seed);
		back += play.taken_back;
		struck += play.struck;
	}
	assert_true(back > SEEDS / 8 && struck > SEEDS);
}

/* One worker of the second replica is killed and comes again, as fast as the others or slow; once it is taken back nobody else's doing puts it to work again. */
static void who_is_slow_is_taken_back_once(void **state)
{
	(void)state;
	for (unsigned slow = 0; slow < 2; slow++)
		for (uint32_t owners = 0; owners <= 2; owners += 2) {
			struct play_case what = { .mesh.size = { 2, 1, 2 },
				.preset = MODEL_GPT2,
				.owners = owners,
				.late_ms = slow != 0 ? 200 : 20,
				.trial_steps = 3,
				.settles = true,
				.steps = 120,
				.faults = { { .kind = PLAY_KILL,
				    .victim = 3,
				    .step = 24,
				    .instruction = 7,
				    .returns_us = 4000000 } },
				.fault_count = 1 };
			run(&what, CASE_SEED);
			assert_int_equal(play.taken_back, slow);
			assert_true((play.declined > 0) == (slow != 0));
			assert_true(play.met > 0);
		}
}

int main(void)
{
	const struct CMUnitTest none[] = { cmocka_unit_test(not_where_threads_are_watched) };
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(seeds_hold),
		cmocka_unit_test(who_is_slow_is_taken_back_once),
	};
	return THREADS_ARE_WATCHED ? cmocka_run_group_tests(none, NULL, NULL)
	                           : cmocka_run_group_tests(tests, NULL, NULL);
}
