/* Sharded jobs in the simulator (tests/sim/sharded/play.h) whose workers are divided into two groups for a while: no step is committed twice, or lost, and all go on once they hear each other. */
#include "tests/unit/sharded_sim.h"

#ifdef __SANITIZE_ADDRESS__
#define SEEDS 40
#define EVERY 7 /* instruction */
#else
#define SEEDS 85
#define EVERY 2
#endif
#define STEP 6 /* by then a checkpoint is known to be whole */

/* All kinds of jobs in turn. */
static void seeds_hold(void **state)
{
	(void)state;
	uint64_t splits = 0, backs = 0, remeshes = 0;
	for (uint64_t seed = CASE_SPLIT_SEEDS; seed < CASE_SPLIT_SEEDS + SEEDS; seed++) {
		struct play_case what;
		case_of_seed(seed, &what);
		run(&what, seed);
		splits += play.split.count;
		backs += play.backs;
		remeshes += play.remeshes;
	}
	assert_true(splits > SEEDS / 2 && backs > SEEDS / 10 && remeshes > SEEDS / 10);
}

static struct play_case split_case(const uint32_t mesh[MESH_AXES], uint32_t group)
{
	struct play_case what = { .preset = MODEL_GPT2, .steps = 10, .fault_count = 1 };
	memcpy(what.mesh.size, mesh, sizeof(what.mesh.size));
	what.faults[0] = (struct play_fault){ .step = STEP,
		.returns_us = 500000,
		.group = group,
		.lasts_us = 2000000 };
	return what;
}

/* Four workers in halves at each instruction of a step, a whole replica in each half or half of each, memberd with either or both. Whole replicas lose nothing; a half of each has all shards or half of them, by the axis. */
static void halves_at_any_instruction(void **state)
{
	(void)state;
	static const struct {
		uint32_t mesh[MESH_AXES], group;
		bool whole; /* each half has all shards */
	} halves[] = {
		{ { 2, 1, 2 }, 0x3, true },
		{ { 2, 1, 2 }, 0x5, false },
		{ { 2, 2, 1 }, 0x3, false },
		{ { 1, 2, 2 }, 0x3, false },
	};
	for (size_t i = 0; i < sizeof(halves) / sizeof(halves[0]); i++) {
		struct play_case what = split_case(halves[i].mesh, halves[i].group);
		uint64_t turns = 0, backs = 0, put_out = 0;
		what.fault_count = 0;
		run(&what, CASE_SEED);
		uint64_t instructions = play.instructions[0];
		what.fault_count = 1;
		for (uint64_t at = 0; at < instructions; at += EVERY)
			for (unsigned kind = PLAY_SPLIT; kind < PLAY_FAULT_KINDS; kind++) {
				what.faults[0].kind = (enum play_fault_kind)kind;
				what.faults[0].instruction = at;
				run(&what, CASE_SEED);
				assert_int_equal(play.split.count, 1);
				assert_in_range(play.newest_step, what.steps, PLAY_STEPS_MAX);
				backs += play.backs;
				put_out += sim.seen_count > 1;
				turns++;
			}
		assert_true(turns > 10);
		assert_int_equal(put_out, turns);
		assert_in_range(backs, halves[i].whole ? 0 : turns / 2, halves[i].whole ? 0 : turns);
	}
}

/* Shorter than a heartbeat's timeout: nobody is put out, and training goes on where it was. */
static void a_short_split_puts_nobody_out(void **state)
{
	(void)state;
	static const uint32_t mesh[MESH_AXES] = { 2, 1, 2 };
	struct play_case what = split_case(mesh, 0x3);
	what.faults[0].lasts_us = 300000;
	what.faults[0].returns_us = 0;
	for (unsigned kind = PLAY_SPLIT; kind < PLAY_FAULT_KINDS; kind++) {
		what.faults[0].kind = (enum play_fault_kind)kind;
		what.faults[0].instruction = 5;
		run(&what, CASE_SEED);
		assert_int_equal(play.split.count, 1);
		assert_int_equal(play.backs + play.remeshes, 0);
		assert_int_equal(sim.seen_count, 1);
		assert_int_equal(play.ranks.count, 4);
	}
}

int main(void)
{
	const struct CMUnitTest none[] = { cmocka_unit_test(not_where_threads_are_watched) };
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(seeds_hold),
		cmocka_unit_test(halves_at_any_instruction),
		cmocka_unit_test(a_short_split_puts_nobody_out),
	};
	return THREADS_ARE_WATCHED ? cmocka_run_group_tests(none, NULL, NULL)
	                           : cmocka_run_group_tests(tests, NULL, NULL);
}
