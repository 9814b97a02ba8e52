/* Each fault at each instruction (cases.h). */
#include <assert.h>
#include <string.h>

#include "tests/sim/sharded/cases_apart.h"
#include "tests/sim/sharded/cases_single.h"

#define STEP \
	4 /* that are done when the fault strikes: this one compares and gathers a checkpoint's shards, and validates */
#define STEPS        8
#define REPLAN_STEPS 14 /* of which some are done with another plan */

static const enum play_fault_kind kinds[] = { PLAY_KILL, PLAY_PAUSE, PLAY_CUT };
#define KINDS (sizeof(kinds) / sizeof(kinds[0]))

struct walk {
	struct sim *sim;
	struct play *play;
	uint64_t part, parts, number;
	size_t kinds;   /* the first ones of them */
	bool one_place; /* each with another replica: of workers at the same place of several replicas one alone is a victim */
	void (*call)(void *arg, const struct play_case *what);
	void *arg;
};

static void take_case(struct walk *walk, const struct play_case *what)
{
	if (walk->number++ % walk->parts == walk->part - 1)
		walk->call(walk->arg, what);
}

/* By a run without the fault. What is wrong with that is told as of any other, since there may be nothing to count then. */
static void count_instructions(struct walk *walk, const struct play_case *what)
{
	if (play_run(walk->sim, walk->play, CASE_SEED, false, what) > 0)
		walk->call(walk->arg, what);
}

/* Ranks count along tp first, then pp. */
static bool is_victim(const struct walk *walk, const struct play_case *what, unsigned number)
{
	unsigned shards = ranks_shards(&what->mesh), replicas = what->mesh.size[MESH_DP];
	return !walk->one_place || number / shards == number % shards % replicas ||
	    number >= mesh_workers(&what->mesh);
}

/* `what` with its last fault at each of the instructions, by node, that it has.
 */
static void walk_instructions(struct walk *walk, const struct play_case *what, unsigned victim,
    uint64_t instructions)
{
	struct play_case one = *what;
	struct play_fault *last = &one.faults[one.fault_count - 1];
	if (!is_victim(walk, what, victim))
		return;
	last->victim = victim;
	for (size_t kind = 0; kind < walk->kinds; kind++)
		for (uint64_t i = 0; i < instructions; i++) {
			last->kind = kinds[kind];
			last->instruction = i;
			/* Half go on without another worker. */
			last->returns_us = i % 2 == 0 ? 0 : 1 * SECOND;
			take_case(walk, &one);
		}
}

static void walk_step(struct walk *walk, const struct play_case *calm)
{
	uint64_t instructions[SIM_NODES_MAX];
	struct play_case what = *calm;
	count_instructions(walk, calm);
	memcpy(instructions, walk->play->instructions, sizeof(instructions));
	what.fault_count = 1;
	for (unsigned i = 0; i < mesh_workers(&calm->mesh); i++)
		walk_instructions(walk, &what, i, instructions[i]);
}

/* So many that no whole replica is left. With ZeRO-1 moments are by pieces only where there are several replicas; without it one
 * replica is enough to see all. */
static unsigned killed_for_remesh(const struct play_case *calm)
{
	unsigned workers = mesh_workers(&calm->mesh), shards = ranks_shards(&calm->mesh);
	return calm->owners > 0 && calm->copies < 2 ? workers - shards + 1 : 1;
}

/* Some are killed and come late: the mesh becomes smaller, and is the job's
 * again. Where replicas train apart no run can wait: it has steps enough. */
static void walk_remesh(struct walk *walk, const struct play_case *calm)
{
	uint64_t instructions[SIM_NODES_MAX];
	struct play_case what = *calm;
	unsigned killed = killed_for_remesh(calm), workers = mesh_workers(&calm->mesh);
	if (ranks_shards(&calm->mesh) == 1 && calm->copies < 2)
		return; /* there is no smaller one */
	what.settles = !what.apart;
	what.fault_count = killed;
	for (unsigned i = 0; i < killed; i++)
		what.faults[i] = (struct play_fault){ .kind = PLAY_KILL,
			.victim = i,
			.step = calm->faults[0].step,
			.returns_us = what.apart ? CASE_LATE_US : 4 * SECOND };
	count_instructions(walk, &what);
	memcpy(instructions, walk->play->remesh_instructions, sizeof(instructions));
	what.fault_count = killed + 1;
	what.faults[killed].in_remesh = true;
	for (unsigned i = killed; i < workers + killed && i < SIM_NODES_MAX; i++)
		walk_instructions(walk, &what, i, instructions[i]);
}

/* The mesh becomes another one by itself. */
static void walk_changes(struct walk *walk, const struct play_case *calm)
{
	uint64_t instructions[SIM_NODES_MAX];
	struct play_case what = *calm;
	count_instructions(walk, calm);
	assert(walk->play->replanned > 0); /* else another mesh is to be walked */
	memcpy(instructions, walk->play->remesh_instructions, sizeof(instructions));
	what.fault_count = 1;
	what.faults[0].in_remesh = true;
	for (unsigned i = 0; i < mesh_workers(&calm->mesh); i++)
		walk_instructions(walk, &what, i, instructions[i]);
}

/* Each pair of the four and the others, where one of the pair comes to each of its instructions. */
static void walk_splits(struct walk *walk, const struct play_case *calm)
{
	static const enum play_fault_kind splits[] = { PLAY_SPLIT, PLAY_SPLIT_WITH_MEMBERD,
		PLAY_SPLIT_OF_PEERS };
	uint64_t instructions[SIM_NODES_MAX];
	struct play_case what = *calm;
	count_instructions(walk, calm);
	memcpy(instructions, walk->play->instructions, sizeof(instructions));
	what.fault_count = 1;
	struct play_fault *fault = &what.faults[0];
	fault->lasts_us = 2 * SECOND;
	for (fault->victim = 0; fault->victim < 4; fault->victim++)
		for (unsigned other = 0; other < 4; other++) {
			if (other == fault->victim)
				continue;
			fault->group = 1u << fault->victim | 1u << other;
			for (uint64_t i = 0; i < instructions[fault->victim]; i++)
				for (size_t kind = 0; kind < 3; kind++) {
					fault->kind = splits[kind];
					fault->instruction = i;
					fault->returns_us = i % 2 == 0 ? 0 : 500 * MS;
					take_case(walk, &what);
				}
		}
}

/* One is killed, and replaced at once. */
static void walk_joins(struct walk *walk, const struct play_case *calm)
{
	uint64_t instructions[SIM_NODES_MAX];
	struct play_case what = *calm;
	unsigned workers = mesh_workers(&calm->mesh);
	if (calm->mesh.size[MESH_DP] < 2)
		return;
	what.settles = true;
	what.newcomer_parts = 2;
	what.fault_count = 1;
	what.faults[0] = (struct play_fault){ .kind = PLAY_KILL,
		.victim = 0,
		.step = STEP,
		.returns_us = 100 * MS };
	count_instructions(walk, &what);
	memcpy(instructions, walk->play->join_instructions, sizeof(instructions));
	what.fault_count = 2;
	what.faults[1].in_joins = true;
	for (unsigned i = 1; i <= workers; i++)
		walk_instructions(walk, &what, i, instructions[i]);
}

static struct play_case calm_case(void)
{
	struct play_case calm = { .steps = STEPS, .preset = MODEL_GPT2 };
	calm.faults[0].step = STEP;
	return calm;
}

typedef bool take_fn(size_t number, struct play_case *what);

/* False: there are no more. Nothing of the one before is left in it. */
static bool take_calm(take_fn *take, size_t number, struct play_case *calm)
{
	*calm = calm_case();
	return take(number, calm);
}

/* The step after it too, in which the checkpoint is written: nothing is gathered there, and what the step before has used is used again. */
static void walk_steps(struct walk *walk, const struct play_case *calm)
{
	struct play_case what = *calm;
	for (what.faults[0].step = STEP; what.faults[0].step < STEP + 2; what.faults[0].step++)
		walk_step(walk, &what);
}

static void walk_changing(struct walk *walk, const struct play_case *calm)
{
	walk_remesh(walk, calm);
	walk_joins(walk, calm);
}

/* ---- kinds of jobs ---- */

static void walk_meshes(struct walk *walk)
{
	struct play_case calm;
	for (size_t i = 0; take_calm(case_take_mesh, i, &calm); i++) {
		walk_step(walk, &calm);
		walk_changing(walk, &calm);
	}
}

static bool take_schedule(size_t number, struct play_case *what)
{
	static const uint32_t meshes[][MESH_AXES] = { { 1, 2, 1 }, { 2, 2, 1 }, { 1, 3, 1 },
		{ 1, 2, 2 } };
	if (number >= 2 * sizeof(meshes) / sizeof(meshes[0]))
		return false;
	case_set_mesh(what, meshes[number / 2], 0);
	what->gpipe = number % 2 == 0;
	what->chunks = what->gpipe ? 1 : 2;
	return true;
}

static void walk_schedules(struct walk *walk)
{
	struct play_case calm;
	for (size_t i = 0; take_calm(take_schedule, i, &calm); i++) {
		walk_step(walk, &calm);
		walk_changing(walk, &calm);
	}
}

static void walk_apart(struct walk *walk)
{
	struct play_case apart;
	for (size_t i = 0; case_apart_calm(i, &apart); i++)
		(apart.smaller ? walk_remesh : walk_step)(walk, &apart);
}

static void walk_strict(struct walk *walk)
{
	struct play_case calm;
	for (size_t i = 0; take_calm(case_take_strict, i, &calm); i++) {
		walk_step(walk, &calm);
		if (mesh_workers(&calm.mesh) > 1)
			walk_remesh(walk, &calm);
	}
	for (size_t i = 0; take_calm(case_take_strict_zero, i, &calm); i++) {
		walk_step(walk, &calm);
		walk_joins(walk, &calm);
	}
}

/* Kills in the step behind that one, of all these meshes: it gathers nothing, while the checkpoint is written, and uses again what the step before it has used. */
static void walk_next(struct walk *walk)
{
	static take_fn *const kinds_of[] = { case_take_mesh, take_schedule, case_take_strict,
		case_take_strict_zero };
	struct play_case calm;
	walk->kinds = 1;
	for (size_t k = 0; k < sizeof(kinds_of) / sizeof(kinds_of[0]); k++)
		for (size_t i = 0; take_calm(kinds_of[k], i, &calm); i++) {
			calm.faults[0].step = STEP + 1;
			walk_step(walk, &calm);
		}
}

/* While shards are written, in the step that begins it and the one after: of every third mesh. */
static void walk_shards(struct walk *walk)
{
	struct play_case calm;
	for (size_t i = 0; take_calm(case_take_mesh, i, &calm); i += 3) {
		calm.in_shards = true;
		walk_steps(walk, &calm);
	}
}

/* All ways to split at once, with two microbatches in each of two chunks. Of two replicas others come; of one the mesh becomes smaller; of three each piece of the moments has an owner who is not all of them, and nobody can be replaced, as all processes that there may be are there. */
static void walk_all_ways(struct walk *walk)
{
	static const uint32_t one[MESH_AXES] = { 1, 2, 2 }, two[MESH_AXES] = { 2, 2, 2 },
	                      three[MESH_AXES] = { 3, 2, 2 };
	struct play_case calm = calm_case();
	walk->one_place = true;
	calm.chunks = 2;
	calm.sequence_parallel = calm.recompute = true;
	case_set_mesh(&calm, two, 2);
	walk_steps(walk, &calm);
	walk_joins(walk, &calm);
	case_set_mesh(&calm, one, 0);
	calm.newcomer_parts = 2;
	calm.steps = 40; /* the job's again by then */
	walk_remesh(walk, &calm);
	calm.newcomer_parts = 0;
	calm.steps = STEPS;
	case_set_mesh(&calm, three, 2);
	calm.batch = 6;
	calm.preset = MODEL_LLAMA;
	calm.untied = calm.shared_heads = true;
	walk_steps(walk, &calm);
}

/* Two query heads or three share keys and values, and the head is a matrix of its own. */
static void walk_llama(struct walk *walk)
{
	static const uint32_t meshes[][MESH_AXES] = { { 2, 1, 2 }, { 2, 2, 1 }, { 1, 2, 2 } };
	struct play_case calm = calm_case();
	calm.preset = MODEL_LLAMA;
	calm.untied = calm.shared_heads = true;
	for (size_t i = 0; i < sizeof(meshes) / sizeof(meshes[0]); i++) {
		case_set_mesh(&calm, meshes[i], 0);
		walk_steps(walk, &calm);
		walk_changing(walk, &calm);
	}
}

/* Of the batch's four sequences, and of the stages' layers, of which there is one more than stages. */
static void walk_uneven(struct walk *walk)
{
	static const struct {
		uint32_t mesh[MESH_AXES], shares[3], layers[3], owners;
	} meshes[] = {
		{ { 2, 1, 2 }, { 3, 1 }, { 0 }, 0 },
		{ { 3, 1, 1 }, { 1, 2, 1 }, { 0 }, 2 },
		{ { 1, 3, 1 }, { 0 }, { 1, 2, 1 }, 0 },
		{ { 2, 2, 1 }, { 1, 3 }, { 2, 1 }, 0 },
	};
	for (size_t i = 0; i < sizeof(meshes) / sizeof(meshes[0]); i++) {
		struct play_case calm = calm_case();
		case_set_mesh(&calm, meshes[i].mesh, meshes[i].owners);
		memcpy(calm.dealing.shares, meshes[i].shares, sizeof(meshes[i].shares));
		memcpy(calm.dealing.layers, meshes[i].layers, sizeof(meshes[i].layers));
		walk_steps(walk, &calm);
		walk_changing(walk, &calm);
	}
}

/* Which plans there are is drawn: so that one of them is another mesh, and worth it. */
static void choose_draws(struct walk *walk, struct play_case *calm)
{
	for (calm->draws_before = 0; calm->draws_before < 100; calm->draws_before++) {
		count_instructions(walk, calm);
		if (walk->play->replanned > 0)
			return;
	}
}

/* In the changes to other plans, and in steps in which somebody searches for one and others hear of it. */
static void walk_replanned(struct walk *walk)
{
	static const struct {
		uint32_t mesh[MESH_AXES], owners;
	} meshes[] = {
		{ { 4, 1, 1 }, 2 },
		{ { 2, 1, 2 }, 0 },
		{ { 1, 3, 1 }, 0 },
		{ { 2, 2, 1 }, 2 },
		{ { 1, 2, 2 }, 0 },
	};
	for (size_t i = 0; i < sizeof(meshes) / sizeof(meshes[0]); i++) {
		struct play_case calm = calm_case();
		calm.replans = true;
		calm.steps = REPLAN_STEPS;
		case_set_mesh(&calm, meshes[i].mesh, meshes[i].owners);
		choose_draws(walk, &calm);
		walk_steps(walk, &calm);
		walk_changes(walk, &calm);
	}
}

/* Four workers in halves, any two and the others, memberd with either or both. */
static void walk_halves(struct walk *walk)
{
	static const struct {
		uint32_t mesh[MESH_AXES], owners;
	} meshes[] = {
		{ { 4, 1, 1 }, 2 },
		{ { 2, 1, 2 }, 0 },
		{ { 1, 1, 4 }, 0 },
		{ { 2, 2, 1 }, 2 },
		{ { 1, 4, 1 }, 0 },
		{ { 1, 2, 2 }, 0 },
	};
	for (size_t i = 0; i < sizeof(meshes) / sizeof(meshes[0]); i++) {
		struct play_case calm = calm_case();
		case_set_mesh(&calm, meshes[i].mesh, meshes[i].owners);
		walk_splits(walk, &calm);
	}
}

static const struct {
	const char *name;
	void (*walk)(struct walk *walk);
} groups[] = {
	{ "meshes", walk_meshes },
	{ "schedules", walk_schedules },
	{ "apart", walk_apart },
	{ "strict", walk_strict },
	{ "shards", walk_shards },
	{ "next-step", walk_next },
	{ "all-ways", walk_all_ways },
	{ "llama", walk_llama },
	{ "uneven", walk_uneven },
	{ "replanned", walk_replanned },
	{ "halves", walk_halves },
};

bool cases_all(struct sim *sim, struct play *play, const char *name, uint64_t part, uint64_t parts,
    void (*call)(void *arg, const struct play_case *what), void *arg)
{
	struct walk walk = { sim, play, part, parts, 0, KINDS, false, call, arg };
	bool found = false;
	for (size_t i = 0; i < sizeof(groups) / sizeof(groups[0]); i++)
		if (name == NULL || strcmp(name, groups[i].name) == 0) {
			walk.kinds = KINDS;
			walk.one_place = false;
			groups[i].walk(&walk);
			found = true;
		}
	return found;
}
