/* Sharded jobs in the simulator (tests/sim/sharded/play.h): faults at random,
 * mistakes on purpose, and that a seed replays. */
#include "tests/unit/sharded_sim.h"

#define PLANT_SEEDS \
	120 /* of damaged checkpoints few are read at once: one seed in some seventy shows that */
/* Coroutines are slow with a sanitizer. Each fault at each instruction: test_sim_sharded_all.c. */
#ifdef __SANITIZE_ADDRESS__
#define SEEDS         30
#define JOIN_SEEDS    30 /* fewer may well be without some fault */
#define DAMAGED_TURNS 6
#define TRY_TURNS     4
#define READ_TURNS    50
#define DIFFER_TURNS  2
#define LATE_TURNS    8
#define JOINER_TURNS  50
#else
#define SEEDS         40
#define JOIN_SEEDS    40
#define DAMAGED_TURNS 24
#define TRY_TURNS     24
#define READ_TURNS    100
#define DIFFER_TURNS  6
#define LATE_TURNS    60
#define JOINER_TURNS  200
#endif

static void fail_case(const struct play_case *what, uint64_t seed)
{
	char name[200];
	case_name(what, name, sizeof(name));
	fail_msg("seed %lu, %s: %s", (unsigned long)seed, name, sim.violation);
}

/* Any job of that seed, with any faults. */
static void play_seed(uint64_t seed)
{
	struct play_case what;
	case_of_seed(seed, &what);
	if (play_run(&sim, &play, seed, false, &what) > 0)
		fail_case(&what, seed);
}

static void several_faults(void **state)
{
	(void)state;
	uint64_t backs = 0, struck = 0;
	for (uint64_t seed = 1; seed <= SEEDS; seed++) {
		play_seed(seed);
		backs += play.backs;
		struck += play.struck;
	}
	assert_true(backs > SEEDS / 6 && struck > SEEDS / 2);
}

static void replicas_apart(void **state)
{
	(void)state;
	uint64_t merges = 0, struck = 0;
	for (uint64_t seed = CASE_APART_SEEDS; seed < CASE_APART_SEEDS + SEEDS; seed++) {
		play_seed(seed);
		merges += play.steps_done;
		struck += play.struck;
	}
	assert_true(merges >= 3 * SEEDS && struck > SEEDS / 2);
}

static void replicas_with_rates_of_their_own(void **state)
{
	(void)state;
	uint64_t merges = 0;
	unsigned moved = 0;
	for (uint64_t seed = CASE_RATES_SEEDS; seed < CASE_RATES_SEEDS + SEEDS; seed++) {
		play_seed(seed);
		merges += play.steps_done;
		moved += play.rates_moved;
	}
	assert_true(merges >= 3 * SEEDS && moved > SEEDS);
}

static void replicas_that_train_on_while_they_merge(void **state)
{
	(void)state;
	uint64_t steps = 0, struck = 0, went_on = 0;
	for (uint64_t seed = CASE_STREAM_SEEDS; seed < CASE_STREAM_SEEDS + SEEDS; seed++) {
		play_seed(seed);
		steps += play.steps_done;
		struck += play.struck;
		went_on += play.works_went_on;
	}
	assert_true(steps >= 3 * SEEDS && struck > SEEDS / 2 && went_on > 3 * SEEDS);
}

/* Replicas are lost until none is left: a smaller mesh from the newest checkpoint, and the job's out of what its workers hold, with the moments of one replica, in all modes, while some of them are lost. */
static void replicas_apart_over_smaller_meshes(void **state)
{
	(void)state;
	uint64_t backs = 0, remeshes = 0, carried = 0;
	for (uint64_t seed = 0; seed < JOIN_SEEDS; seed++) {
		play_seed(CASE_APART_REMESH_SEEDS + seed);
		backs += play.backs;
		remeshes += play.remeshes;
		carried += play.carried;
	}
	assert_true(backs > JOIN_SEEDS / 4 && remeshes > JOIN_SEEDS && carried > JOIN_SEEDS / 4);
}

/* (The check of what a merge took went by the parts of the last round, which is none.) */
static void a_last_round_that_a_replica_sits_out(void **state)
{
	(void)state;
	play_seed(2903444);
}

/* The roster of a try that is given up, as the spare that sent it dies, came to some workers only; then one more is lost. What they made of it, another part of their replica may not share: work that it
 * began from (the first two), a movement that was to be of use again (the others). */
static void a_try_that_some_heard_of(void **state)
{
	(void)state;
	static const struct {
		uint64_t seed, step, spare_at, victim, victim_at;
		unsigned pp;
	} cases[] = { { 1451, 9, 11, 2, 30, 1 }, { 1631, 9, 19, 2, 29, 2 },
		{ 500452, 9, 10, 2, 46, 2 }, { 500818, 9, 10, 1, 53, 2 },
		{ 501408, 6, 13, 1, 35, 2 }, { 501408, 6, 13, 1, 35, 1 } };
	for (unsigned i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct play_case what = { .mesh.size = { 2, cases[i].pp, 3 - cases[i].pp },
			.preset = MODEL_GPT2,
			.apart = true,
			.stream = PLAY_STREAM_EAGER,
			.steps = 12,
			.spares = 1,
			.fault_count = 2 };
		for (unsigned f = 0; f < 2; f++)
			what.faults[f] = (struct play_fault){ .kind = PLAY_KILL,
				.victim = f == 0 ? 4 : (unsigned)cases[i].victim,
				.step = cases[i].step,
				.instruction = f == 0 ? cases[i].spare_at : cases[i].victim_at,
				.returns_us = SECOND };
		if (play_run(&sim, &play, cases[i].seed, false, &what) > 0)
			fail_case(&what, cases[i].seed);
		for (uint64_t turn = 0; turn < TRY_TURNS; turn++) {
			what.stream = (enum play_stream)(1 + turn % (PLAY_STREAM_KINDS - 1));
			for (unsigned f = 0; f < 2; f++)
				what.faults[f].step = what.stream == PLAY_STREAM_EAGER
				    ? cases[i].step
				    : 7;
			what.faults[0].instruction = 8 + turn % 13;
			what.faults[1].instruction = 20 + turn * 7 % 37;
			what.faults[1].victim = (unsigned)(turn % 4);
			if (play_run(&sim, &play, CASE_SEED + turn, false, &what) > 0)
				fail_case(&what, CASE_SEED + turn);
		}
	}
}

static void joins(void **state)
{
	(void)state;
	uint64_t rounds = 0, met = 0, struck = 0;
	for (uint64_t seed = CASE_JOIN_SEEDS; seed < CASE_JOIN_SEEDS + JOIN_SEEDS; seed++) {
		play_seed(seed);
		rounds += play.joins;
		met += play.met;
		struck += play.struck;
	}
	assert_true(rounds > JOIN_SEEDS / 2 && met > JOIN_SEEDS / 5 && struck > JOIN_SEEDS);
}

static void unequal_shares(void **state)
{
	(void)state;
	uint64_t backs = 0, struck = 0, redealt = 0, restaged = 0;
	for (uint64_t seed = CASE_UNEVEN_SEEDS; seed < CASE_UNEVEN_SEEDS + SEEDS; seed++) {
		play_seed(seed);
		backs += play.backs;
		struck += play.struck;
		redealt += play.redealt;
		restaged += play.restaged;
	}
	assert_true(backs > SEEDS / 12 && struck > SEEDS / 2 && redealt > SEEDS / 16);
	assert_true(restaged > SEEDS / 32);
}

/* Any other plan that can be, several in a job, each made out of what workers hold, while some of them are lost. */
static void other_plans(void **state)
{
	(void)state;
	uint64_t wishes = 0, replanned = 0, struck = 0;
	for (uint64_t seed = CASE_REPLAN_SEEDS; seed < CASE_REPLAN_SEEDS + SEEDS; seed++) {
		play_seed(seed);
		wishes += play.wishes;
		replanned += play.replanned;
		struck += play.struck;
	}
	assert_true(struck > SEEDS / 2 && replanned > SEEDS / 2 && replanned < wishes);
}

/* GPipe's list and interleaved chunks, in steps, merges, joins and changes of mesh. */
static void other_schedules(void **state)
{
	(void)state;
	uint64_t backs = 0, struck = 0, chunks = 0;
	for (uint64_t seed = CASE_SCHEDULE_SEEDS; seed < CASE_SCHEDULE_SEEDS + SEEDS; seed++) {
		play_seed(seed);
		backs += play.backs;
		struck += play.struck;
		chunks += play.what.chunks > 1;
	}
	assert_true(struck > SEEDS / 2 && backs > SEEDS / 16 && chunks == SEEDS / 2);
}

/* New parameters go to those that do not own them, while gradients go to newcomers. */
static void strict_with_owners(void **state)
{
	(void)state;
	uint64_t struck = 0, wide = 0;
	for (uint64_t seed = CASE_STRICT_ZERO_SEEDS; seed < CASE_STRICT_ZERO_SEEDS + SEEDS; seed++) {
		play_seed(seed);
		assert_true(play.what.strict && play.what.owners >= 2);
		struck += play.struck;
		wide += play.what.mesh.size[MESH_DP] > PLAY_BATCH;
	}
	assert_true(struck > SEEDS / 2 && wide > SEEDS / 6);
}

/* Some are killed and replaced, in meshes that lose a replica and in such that become smaller: what would move state is not worth it, and all say so alike. Another kill follows. */
static void what_does_not_pay(void **state)
{
	(void)state;
	static const uint32_t meshes[][MESH_AXES] = { { 2, 1, 2 }, { 2, 2, 1 }, { 3, 1, 2 },
		{ 1, 1, 4 }, { 1, 3, 1 } };
	uint64_t declined = 0;
	for (unsigned i = 0; i < 5; i++)
		for (unsigned turn = 0; turn < 12; turn++) {
			struct play_case what = { .steps = 60,
				.preset = MODEL_GPT2,
				.declines = true,
				.settles = true,
				.fault_count = 2 };
			memcpy(what.mesh.size, meshes[i], sizeof(what.mesh.size));
			what.faults[0] = (struct play_fault){ .kind = PLAY_KILL,
				.victim = turn % 3,
				.step = 9,
				.instruction = 3 * turn,
				.returns_us = i < 3 ? SECOND : 4 * SECOND };
			what.faults[1] = (struct play_fault){ .kind = PLAY_KILL,
				.victim = 3 - turn % 3,
				.step = 50,
				.instruction = 5,
				.returns_us = turn % 2 * SECOND };
			if (play_run(&sim, &play, CASE_SEED + turn, false, &what) > 0)
				fail_case(&what, CASE_SEED + turn);
			declined += play.declined > 0;
		}
	assert_true(declined >= 40);
}

/* The only holder of a shard is lost, where the newest checkpoint is often damaged: at all workers, or at one. All take the same, the one before where somebody needs it. */
static void damaged_checkpoints(void **state)
{
	(void)state;
	static const uint32_t meshes[][MESH_AXES] = { { 1, 1, 2 }, { 1, 2, 1 }, { 1, 2, 2 },
		{ 1, 3, 1 }, { 2, 1, 1 } };
	uint64_t refused = 0, backs = 0;
	for (unsigned i = 0; i < 5; i++)
		for (unsigned turn = 0; turn < DAMAGED_TURNS; turn++) {
			struct play_case what = { .steps = 14,
				.preset = MODEL_GPT2,
				.damages = true,
				.owners = i == 4 ? 2 : 0,
				.fault_count = i == 4 ? 2 : 1 };
			memcpy(what.mesh.size, meshes[i], sizeof(what.mesh.size));
			for (unsigned k = 0; k < what.fault_count; k++)
				what.faults[k] = (struct play_fault){ .kind = PLAY_KILL,
					.victim = k,
					.step = 9,
					.instruction = 2 + turn,
					.returns_us = 300 * MS };
			if (play_run(&sim, &play, CASE_SEED + turn, false, &what) > 0)
				fail_case(&what, CASE_SEED + turn);
			refused += play.refused;
			backs += play.backs;
		}
	assert_true(backs >= 4 * DAMAGED_TURNS);
	assert_true(refused >= DAMAGED_TURNS);
}

/* It is written when training has gone back behind its step: to that nobody goes back, as it is not done yet. */
static void a_checkpoint_that_is_late(void **state)
{
	(void)state;
	for (uint64_t turn = 0; turn < LATE_TURNS; turn++) {
		struct play_case what = { .mesh.size = { 1, 1, 2 },
			.preset = MODEL_GPT2,
			.replans = true, /* checkpoints every four steps */
			.steps = 14,
			.slow_save = 8,
			.slow_us = 100 * MS + turn * (1500 * MS / LATE_TURNS),
			.faults = { { .kind = PLAY_KILL,
			                .victim = 1,
			                .step = 9,
			                .instruction = 3,
			                .returns_us = 300 * MS },
			    { .kind = PLAY_SHORT_PAUSE, .victim = 2, .step = 5, .instruction = 5 },
			    { .kind = PLAY_KILL,
			        .victim = 2,
			        .step = 5,
			        .instruction = 10,
			        .returns_us = 300 * MS } },
			.fault_count = 3 };
		if (play_run(&sim, &play, CASE_SEED + turn, false, &what) > 0)
			fail_case(&what, CASE_SEED + turn);
	}
}

/* What one of three holds is other numbers than the others', also when it got theirs again: it ends, and the others are not held up for ever. */
static void one_that_always_differs(void **state)
{
	(void)state;
	for (unsigned turn = 0; turn < DIFFER_TURNS; turn++) {
		struct play_case what = { .mesh.size = { 3, 1, 2 },
			.preset = MODEL_GPT2,
			.apart = turn % 2 > 0,
			.differs = 1 + turn,
			.steps = 9 };
		if (play_run(&sim, &play, CASE_SEED + turn, false, &what) > 0)
			fail_case(&what, CASE_SEED + turn);
		assert_true(turn % 2 > 0 || play.differed == 1);
	}
}

/* With ZeRO-1, two of four are lost and training goes back; one more is, while shards are read or thereafter, so who is left waits for another one: it begins with all that it has read. */
static void a_wait_after_shards_were_read(void **state)
{
	(void)state;
	uint64_t backs = 0, struck = 0;
	for (uint64_t turn = 0; turn < READ_TURNS; turn++) {
		uint64_t instruction = 60 + turn * (100 / READ_TURNS);
		struct play_case what = { .mesh.size = { 2, 1, 2 },
			.preset = MODEL_GPT2,
			.owners = 2,
			.steps = 8,
			.fault_count = 3 };
		for (unsigned i = 0; i < 3; i++)
			what.faults[i] = (struct play_fault){ .kind = PLAY_KILL,
				.victim = i < 2 ? 2 * i : 3,
				.step = i < 2 ? 5 : 4,
				.instruction = i < 2 ? 3 : instruction,
				.returns_us = i < 2 ? 0 : 600 * MS };
		if (play_run(&sim, &play, 1000 + instruction, false, &what) > 0)
			fail_case(&what, 1000 + instruction);
		backs += play.backs;
		struck += play.struck;
	}
	assert_true(backs > READ_TURNS / 3 && struck > 2 * READ_TURNS);
}

/* Who comes in the very round in which training goes back has no say in it: it gets the others' counters, whatever its own copy of the checkpoint is, and says what that is when it is to read it. */
static void a_joiner_whose_copy_is_damaged(void **state)
{
	(void)state;
	uint64_t backs = 0, renewed = 0;
	for (uint64_t turn = 0; turn < JOINER_TURNS; turn++) {
		struct play_case what = { .mesh.size = { 2, 1, 2 },
			.preset = MODEL_GPT2,
			.steps = 8,
			.damaged_manifests = 1u << 4,
			.fault_count = 2 + turn % 2 };
		for (unsigned i = 0; i < 2; i++)
			what.faults[i] = (struct play_fault){ .kind = PLAY_KILL,
				.victim = 2 * i,
				.step = 5,
				.instruction = 3,
				.returns_us = i * (1 + 199 * turn / JOINER_TURNS) * MS };
		what.faults[2] = (struct play_fault){ .kind = PLAY_KILL,
			.victim = 3,
			.step = 4,
			.instruction = 60 + 100 * turn / JOINER_TURNS };
		if (play_run(&sim, &play, 1000 + turn, false, &what) > 0)
			fail_case(&what, 1000 + turn);
		backs += play.backs;
		renewed += play.renewed;
	}
	assert_true(backs > JOINER_TURNS / 4 && renewed > JOINER_TURNS / 20);
}

/* Who has no memory for its shard of the checkpoint ends, and another comes: nothing is wrong with the checkpoint, so nobody goes back further. */
static void no_memory_for_a_checkpoint(void **state)
{
	(void)state;
	static const uint32_t meshes[][MESH_AXES] = { { 1, 1, 2 }, { 1, 3, 1 } };
	unsigned starved = 0;
	for (unsigned i = 0; i < 2; i++)
		for (unsigned turn = 0; turn < DAMAGED_TURNS; turn++) {
			struct play_case what = { .steps = 14,
				.preset = MODEL_GPT2,
				.starves = 1 + turn % 2,
				.faults = { { .kind = PLAY_KILL,
				    .step = 9,
				    .instruction = 2 + turn,
				    .returns_us = 300 * MS } },
				.fault_count = 1 };
			memcpy(what.mesh.size, meshes[i], sizeof(what.mesh.size));
			if (play_run(&sim, &play, CASE_SEED + turn, false, &what) > 0)
				fail_case(&what, CASE_SEED + turn);
			assert_int_equal(play.passed_by, 0);
			starved += play.starved;
		}
	assert_true(starved > 2 * DAMAGED_TURNS);
}

/* Before a checkpoint's shards are sent each worker compares three arrays of its own: it says of each that it gets on. */
static void a_comparison_is_told(void **state)
{
	(void)state;
	struct play_case what = { .mesh.size = { 2, 1, 2 }, .preset = MODEL_GPT2, .steps = 8 };
	assert_int_equal(play_run(&sim, &play, CASE_SEED, false, &what), 0);
	assert_true(play.written >= 3);
	assert_true(play.told >= play.written * 4 * 3);
}

/* Seeds that found a bug. */
static void named_seeds_hold(void **state)
{
	(void)state;
	static const struct {
		uint64_t seed;
		const char *name;
	} named[] = {
		{ 398,
		    "keep 1: who wrote a checkpoint died before anybody knew of it, and it had "
		    "removed the one that they knew" },
		{ 1555,
		    "the simulator: a state that came late and was not taken was written all the "
		    "same" },
		{ 287, "the same, of six stages" },
		{ 384, "the same, of tp 5" },
		{ CASE_REPLAN_SEEDS + 12,
		    "another plan with the same shards at other ranks: what had come was dropped" },
		{ CASE_REPLAN_SEEDS + 105, "the same, without ZeRO-1" },
		{ CASE_APART_SEEDS + 916,
		    "the simulator: a replica that begins a round anew takes fewer steps than the "
		    "reference has" },
		{ CASE_STREAM_SEEDS + 279,
		    "the simulator: a worker that was put out writes what the others took back" },
		{ CASE_STREAM_SEEDS + 7873,
		    "the simulator: back to a checkpoint of steps that were gone back behind, and "
		    "taken otherwise since" },
		{ CASE_APART_SEEDS + 146,
		    "a checkpoint had moments of several replicas, each of which had been trained "
		    "by other samples" },
		{ CASE_RATES_SEEDS + 27, "the same, with rates of their own" },
		{ CASE_STREAM_SEEDS + 52, "the same, of streams" },
		{ CASE_SCHEDULE_SEEDS + 851,
		    "shares became such that stages could have had two chunks, and a checkpoint "
		    "was written as if they had" },
		{ CASE_UNEVEN_SEEDS + 42,
		    "moments that had just come went to who writes while the op that they came "
		    "with had their memory: the worker ended" },
		{ CASE_UNEVEN_SEEDS + 167, "the same of a shard that went on to a newcomer" },
		{ CASE_REPLAN_SEEDS + 28, "the same after a change of mesh" },
	};
	for (size_t i = 0; i < sizeof(named) / sizeof(named[0]); i++) {
		struct play_case what;
		case_of_seed(named[i].seed, &what);
		if (play_run(&sim, &play, named[i].seed, false, &what) > 0)
			fail_msg("seed %lu (%s): %s", (unsigned long)named[i].seed, named[i].name,
			    sim.violation);
	}
}

static void mistakes_are_caught(void **state)
{
	(void)state;
	static const char *const caught_as[PLAY_PLANT_COPY] = {
		[PLAY_PLANT_TWICE] = "S2",
		[PLAY_PLANT_EARLY] = "borrowed memory",
		[PLAY_PLANT_SHARD] = "S2",
		[PLAY_PLANT_APPLY] = "S2",
		[PLAY_PLANT_TABLE] = "n", /* a member fails, of several who agree */
		[PLAY_PLANT_SILENT] = "n",
		[PLAY_PLANT_FORGET] = "S2",
		[PLAY_PLANT_MOMENT] = "S", /* of a checkpoint, S5 */
		[PLAY_PLANT_NEW] = "S2",
		[PLAY_PLANT_DAMAGE] = "S2",
		[PLAY_PLANT_PIECE] = "S2",
		[PLAY_PLANT_ADDS] = "S2",
		[PLAY_PLANT_MET] = "S2",
		[PLAY_PLANT_KEPT] = "S4",
	};
	for (unsigned plant = PLAY_PLANT_NONE + 1; plant < PLAY_PLANT_COPY; plant++) {
		bool caught = false;
		uint64_t first = plant >= PLAY_PLANT_PIECE ? CASE_JOIN_SEEDS : 1;
		for (uint64_t seed = first; !caught && seed < first + PLANT_SEEDS; seed++) {
			struct play_case what;
			case_of_seed(seed, &what);
			what.plant = (enum play_plant)plant;
			bool violated = play_run(&sim, &play, seed, false, &what) > 0;
			caught = violated && play.planted &&
			    strncmp(sim.violation, caught_as[plant], strlen(caught_as[plant])) == 0;
		}
		if (!caught)
			fail_msg("mistake %s was not caught as %s in %d seeds",
			    play_plant_names[plant], caught_as[plant], PLANT_SEEDS);
	}
}

static void a_seed_replays(void **state)
{
	(void)state;
	for (uint64_t seed = 1; seed <= 5; seed++) {
		struct play_case what;
		case_of_seed(seed, &what);
		(void)play_run(&sim, &play, seed, false, &what);
		uint64_t events = sim.events, draws = sim.draws, now = sim.now_us;
		(void)play_run(&sim, &play, seed, false, &what);
		assert_true(events == sim.events && draws == sim.draws && now == sim.now_us);
	}
}

int main(void)
{
	const struct CMUnitTest none[] = { cmocka_unit_test(not_where_threads_are_watched) };
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(several_faults),
		cmocka_unit_test(replicas_apart),
		cmocka_unit_test(replicas_with_rates_of_their_own),
		cmocka_unit_test(replicas_apart_over_smaller_meshes),
		cmocka_unit_test(replicas_that_train_on_while_they_merge),
		cmocka_unit_test(a_last_round_that_a_replica_sits_out),
		cmocka_unit_test(a_try_that_some_heard_of),
		cmocka_unit_test(joins),
		cmocka_unit_test(unequal_shares),
		cmocka_unit_test(other_plans),
		cmocka_unit_test(other_schedules),
		cmocka_unit_test(strict_with_owners),
		cmocka_unit_test(what_does_not_pay),
		cmocka_unit_test(damaged_checkpoints),
		cmocka_unit_test(a_checkpoint_that_is_late),
		cmocka_unit_test(one_that_always_differs),
		cmocka_unit_test(a_wait_after_shards_were_read),
		cmocka_unit_test(a_joiner_whose_copy_is_damaged),
		cmocka_unit_test(no_memory_for_a_checkpoint),
		cmocka_unit_test(a_comparison_is_told),
		cmocka_unit_test(named_seeds_hold),
		cmocka_unit_test(mistakes_are_caught),
		cmocka_unit_test(a_seed_replays),
	};
	return THREADS_ARE_WATCHED ? cmocka_run_group_tests(none, NULL, NULL)
	                           : cmocka_run_group_tests(tests, NULL, NULL);
}
