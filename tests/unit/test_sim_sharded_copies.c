/* Sharded jobs in the simulator (tests/sim/sharded/play.h) whose replicas train apart and are several copies of the mesh each. */
#include "tests/unit/sharded_sim.h"

#define PLANT_SEEDS 60
#ifdef __SANITIZE_ADDRESS__
#define SEEDS 30
#define TURNS 8
#else
#define SEEDS 84 /* twice all meshes, with ZeRO-1 and without it */
#define TURNS 60
#endif

static void fail_case(const struct play_case *what, uint64_t seed)
{
	char name[200];
	case_name(what, name, sizeof(name));
	fail_msg("seed %lu, %s: %s", (unsigned long)seed, name, sim.violation);
}

static void play_seed(uint64_t seed)
{
	struct play_case what;
	case_of_seed(seed, &what);
	if (play_run(&sim, &play, seed, false, &what) > 0)
		fail_case(&what, seed);
}

/* By steps, by speed, by time; with rates of their own; with merges that they train on through. */
static void replicas_of_several_copies(void **state)
{
	(void)state;
	static const uint64_t first[] = { CASE_COPIES_SEEDS, CASE_COPIES_RATES_SEEDS,
		CASE_COPIES_STREAM_SEEDS };
	uint64_t steps = 0, struck = 0;
	for (unsigned i = 0; i < 3; i++)
		for (uint64_t seed = first[i]; seed < first[i] + SEEDS; seed++) {
			play_seed(seed);
			steps += play.steps_done;
			struck += play.struck;
		}
	assert_true(steps >= 9 * SEEDS && struck > 2 * SEEDS);
}

/* They become fewer where one replica's worth of workers is not left, a smaller mesh where there is no copy's, and the job's again: without a checkpoint as long as each shard is held. */
static void fewer_copies_and_back(void **state)
{
	(void)state;
	uint64_t backs = 0, remeshes = 0, struck = 0, carried = 0;
	for (uint64_t seed = 0; seed < SEEDS; seed++) {
		play_seed(CASE_COPIES_REMESH_SEEDS + seed);
		backs += play.backs;
		remeshes += play.remeshes;
		carried += play.carried;
		struck += play.struck;
	}
	assert_true(struck > SEEDS && remeshes > SEEDS && carried > SEEDS / 2 && backs < SEEDS / 4);
}

/* (A spare that had been in another replica kept its moments, and when it took a rank beside one whose moments were newer all copies began with fresh ones; a change of mesh took the first moments that were whole, of a replica that was lost long ago;
 * with as many owners as copies who took another number began afresh. The simulator's reference looks what there was.) */
static void the_newest_moments_are_kept(void **state)
{
	(void)state;
	static const struct {
		struct mesh mesh;
		uint32_t copies, owners;
		bool smaller;
		unsigned victims[4];
		uint64_t steps[4];
		unsigned count;
	} runs[] = {
		{ { { 4, 1, 1 } }, 2, 0, false, { 0, 2 }, { 6, 15 }, 2 },
		{ { { 6, 1, 1 } }, 3, 0, true, { 0, 4, 2, 1 }, { 6, 15, 15, 15 }, 4 },
		{ { { 6, 1, 1 } }, 3, 0, true, { 3, 0, 1, 4 }, { 6, 15, 15, 15 }, 4 },
		{ { { 4, 1, 1 } }, 2, 2, false, { 0 }, { 6 }, 1 },
		{ { { 4, 1, 1 } }, 2, 2, false, { 2 }, { 6 }, 1 },
		/* By pieces, of which two copies of three have each: to who comes, and to fewer copies. */
		{ { { 6, 1, 1 } }, 3, 2, false, { 0 }, { 6 }, 1 },
		{ { { 6, 1, 1 } }, 3, 2, false, { 4, 1 }, { 6, 15 }, 2 },
		{ { { 3, 1, 1 } }, 3, 2, true, { 0 }, { 6 }, 1 },
		{ { { 3, 1, 2 } }, 3, 2, true, { 3 }, { 6 }, 1 },
	};
	for (unsigned i = 0; i < sizeof(runs) / sizeof(runs[0]); i++)
		for (uint64_t turn = 0; turn < 4; turn++) {
			struct play_case what = { .mesh = runs[i].mesh,
				.preset = MODEL_GPT2,
				.apart = true,
				.copies = runs[i].copies,
				.owners = runs[i].owners,
				.smaller = runs[i].smaller,
				.steps = 30,
				.fault_count = runs[i].count };
			for (unsigned k = 0; k < what.fault_count; k++)
				what.faults[k] = (struct play_fault){ .kind = PLAY_KILL,
					.victim = runs[i].victims[k],
					.step = runs[i].steps[k],
					.instruction = 9 + 7 * turn,
					.returns_us = runs[i].smaller ? 0 : SECOND };
			if (play_run(&sim, &play, CASE_SEED, false, &what) > 0)
				fail_case(&what, CASE_SEED);
			assert_true(play.steps_done > 0 && play.struck == what.fault_count);
		}
}

/* A replica loses a worker of one copy in a checkpoint's round, or a worker of each: what is written is one replica's all the same, or without moments. */
static void a_checkpoint_of_several_copies(void **state)
{
	(void)state;
	uint64_t written = 0;
	for (uint64_t turn = 0; turn < TURNS; turn++) {
		struct play_case what = { .mesh.size = { 4, 1, 2 },
			.preset = MODEL_GPT2,
			.apart = true,
			.copies = 2,
			.spares = 2,
			.steps = 6,
			.fault_count = 1 + turn % 2 };
		for (unsigned i = 0; i < what.fault_count; i++)
			what.faults[i] = (struct play_fault){ .kind = PLAY_KILL,
				.victim = i > 0 ? 3 : turn / 2 % 4,
				.step = PLAY_INNER_STEPS,
				.instruction = 1 + turn / 2 };
		if (play_run(&sim, &play, CASE_SEED + turn, false, &what) > 0)
			fail_case(&what, CASE_SEED + turn);
		written += play.written;
	}
	assert_true(written > TURNS / 2);
}

/* (A copy that had heard that all had a step's pieces took a fragment, which changes its work; the round began again before another had heard so, and they gave each other pieces of work from before the take, and from
 * after it.) */
static void work_that_a_take_changed_is_not_given_again(void **state)
{
	(void)state;
	static const struct {
		enum play_stream stream;
		uint64_t pause, kill;
	} at[] = { { PLAY_STREAM_CARRY, 37, 39 }, { PLAY_STREAM_CARRY, 38, 43 },
		{ PLAY_STREAM_CARRY, 41, 43 }, { PLAY_STREAM_CARRY, 41, 46 },
		{ PLAY_STREAM_EAGER, 56, 60 }, { PLAY_STREAM_EAGER, 56, 61 } };
	for (unsigned i = 0; i < sizeof(at) / sizeof(at[0]); i++) {
		struct play_case what = { .mesh.size = { 4, 1, 1 },
			.preset = MODEL_GPT2,
			.apart = true,
			.copies = 2,
			.owners = 1,
			.stream = at[i].stream,
			.steps = 4 * PLAY_INNER_STEPS,
			.faults = { { .kind = PLAY_SHORT_PAUSE,
			                .victim = 1,
			                .instruction = at[i].pause },
			    { .kind = PLAY_KILL,
			        .victim = 2,
			        .instruction = at[i].kill,
			        .returns_us = 1 * SECOND } },
			.fault_count = 2 };
		uint64_t seed = CASE_SEED + 15 * at[i].pause + at[i].kill;
		if (play_run(&sim, &play, seed, false, &what) > 0)
			fail_case(&what, seed);
	}
}

/* Seeds that found a bug. */
static void named_seeds_hold(void **state)
{
	(void)state;
	/* A replica that had lost a worker of one copy was written with moments that did not fit, though another copy had all of them. */
	play_seed(CASE_COPIES_SEEDS + 459);
	/* A barrier was taken back before all had heard of it. */
	play_seed(CASE_COPIES_SEEDS + 32);
	play_seed(CASE_COPIES_STREAM_SEEDS + 96);
}

static void mistakes_are_caught(void **state)
{
	(void)state;
	static const enum play_plant plants[] = { PLAY_PLANT_TWICE, PLAY_PLANT_SHARD,
		PLAY_PLANT_COPY, PLAY_PLANT_PART, PLAY_PLANT_CARRIED, PLAY_PLANT_GIVEN };
	for (unsigned i = 0; i < sizeof(plants) / sizeof(plants[0]); i++) {
		bool caught = false;
		uint64_t first = plants[i] == PLAY_PLANT_CARRIED ? CASE_COPIES_REMESH_SEEDS
		                                                 : CASE_COPIES_SEEDS;
		for (uint64_t seed = first; !caught && seed < first + PLANT_SEEDS; seed++) {
			struct play_case what;
			case_of_seed(seed, &what);
			what.plant = plants[i];
			bool violated = play_run(&sim, &play, seed, false, &what) > 0;
			caught = violated && play.planted && strncmp(sim.violation, "S2", 2) == 0;
		}
		if (!caught)
			fail_msg("mistake %s was not caught in %d seeds",
			    play_plant_names[plants[i]], PLANT_SEEDS);
	}
}

int main(void)
{
	const struct CMUnitTest none[] = { cmocka_unit_test(not_where_threads_are_watched) };
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(replicas_of_several_copies),
		cmocka_unit_test(fewer_copies_and_back),
		cmocka_unit_test(the_newest_moments_are_kept),
		cmocka_unit_test(a_checkpoint_of_several_copies),
		cmocka_unit_test(work_that_a_take_changed_is_not_given_again),
		cmocka_unit_test(named_seeds_hold),
		cmocka_unit_test(mistakes_are_caught),
	};
	return THREADS_ARE_WATCHED ? cmocka_run_group_tests(none, NULL, NULL)
	                           : cmocka_run_group_tests(tests, NULL, NULL);
}
