/* Sharded jobs in the simulator (tests/sim/sharded/play.h) whose checkpoints are in shards, to their last one. */
#include "tests/unit/sharded_sim.h"

#ifdef __SANITIZE_ADDRESS__
#define SEEDS 40
#else
#define SEEDS 200
#endif
#define TURNS 40

/* All kinds of jobs in turn. */
static void seeds_hold(void **state)
{
	(void)state;
	uint64_t ended = 0, checkpoints = 0, struck = 0;
	for (uint64_t seed = CASE_SHARDS_SEEDS; seed < CASE_SHARDS_SEEDS + SEEDS; seed++) {
		struct play_case what;
		case_of_seed(seed, &what);
		run(&what, seed);
		ended += play.ended > 0;
		checkpoints += play.publications;
		struck += play.struck;
	}
	assert_true(ended > SEEDS / 2 && checkpoints > 2 * SEEDS && struck > SEEDS);
}

/* A writer is lost while the last one is written: it begins anew with another. */
static void the_last_one_is_written(void **state)
{
	(void)state;
	unsigned
	    ended = 0; /* but where a stage is lost before the first checkpoint is known to be whole */
	for (unsigned turn = 0; turn < TURNS; turn++) {
		struct play_case what = { .mesh.size = { 1, 2, 1 },
			.preset = MODEL_GPT2,
			.in_shards = true,
			.steps = 6,
			.faults = { { .kind = PLAY_KILL,
			    .victim = turn % 2,
			    .step = 6,
			    .instruction = turn / 2,
			    .returns_us = 1000000 } },
			.fault_count = 1 };
		run(&what, CASE_SEED);
		ended += play.ended > 0;
	}
	assert_true(ended > TURNS * 3 / 4);
}

int main(void)
{
	const struct CMUnitTest none[] = { cmocka_unit_test(not_where_threads_are_watched) };
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(seeds_hold),
		cmocka_unit_test(the_last_one_is_written),
	};
	return THREADS_ARE_WATCHED ? cmocka_run_group_tests(none, NULL, NULL)
	                           : cmocka_run_group_tests(tests, NULL, NULL);
}
