/* The simulator itself: seeds that found a bug stay fixed, planted bugs are caught, a seed replays to the same run. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "tests/sim/sim.h"

#define PLANT_SEEDS 200

static struct sim sim;

static void named_seeds_hold(void **state)
{
	(void)state;
	for (size_t i = 0; i < sim_seed_count; i++)
		if (sim_run(&sim, sim_seeds[i].seed, false, PLANT_NONE) > 0)
			fail_msg("seed %lu (%s): %s", (unsigned long)sim_seeds[i].seed,
			    sim_seeds[i].name, sim.violation);
}

/* A planted bug breaks the invariant that it was planted against (a corrupt result also is not what its contributors gave). */
static void planted_bugs_are_caught(void **state)
{
	(void)state;
	static const char *const invariant[PLANT_COUNT] = {
		[PLANT_CORRUPT] = "I1",
		[PLANT_TWICE] = "I2",
		[PLANT_FORGET] = "I3",
		[PLANT_HIDE] = "I4",
		[PLANT_ARRIVAL] = "I5",
		[PLANT_APPLY] = "I6",
		[PLANT_STALE_VIEW] = "I6",
		[PLANT_LATE_STATE] = "I7",
		[PLANT_LANDING] = "I2",
		[PLANT_FLAP] = "I8",
		[PLANT_UNREAD] = "I9",
		[PLANT_DEAF] = "I3",
		[PLANT_RUSH] = "I10",
		[PLANT_UNCOUNTED] = "n", /* a member fails, of several who agree */
		[PLANT_REUSED] = "n",
		[PLANT_SPOILT] = "I7",
	};
	for (unsigned plant = PLANT_NONE + 1; plant < PLANT_COUNT; plant++) {
		uint64_t seed = plant == PLANT_SPOILT ? SIM_PIECES_FROM : 1,
		         end = seed + PLANT_SEEDS;
		bool caught = false;
		while (!caught && seed < end)
			caught = sim_run(&sim, seed++, false, (enum sim_plant)plant) > 0 &&
			    strncmp(sim.violation, invariant[plant], strlen(invariant[plant])) == 0;
		if (!caught)
			fail_msg("plant %s was not caught as %s in %d seeds",
			    plant_name((enum sim_plant)plant), invariant[plant], PLANT_SEEDS);
	}
}

static void a_seed_replays(void **state)
{
	(void)state;
	for (uint64_t seed = 1; seed <= 20; seed++) {
		assert_int_equal(sim_run(&sim, seed, false, PLANT_NONE), 0);
		uint64_t events = sim.events, draws = sim.draws, now = sim.now_us;
		uint64_t chain = sim.truth[sim.newest_round].chain;
		assert_int_equal(sim_run(&sim, seed, false, PLANT_NONE), 0);
		assert_true(events == sim.events && draws == sim.draws && now == sim.now_us);
		assert_true(chain == sim.truth[sim.newest_round].chain);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(named_seeds_hold),
		cmocka_unit_test(planted_bugs_are_caught),
		cmocka_unit_test(a_seed_replays),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
