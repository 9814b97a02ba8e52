#include "tests/sim/sharded/cases_apart.h"

#include <string.h>

#include "common/rng.h"

#define STEPS_MOST 120 /* of those whose mesh changes: enough for who comes late */

/* Of replicas that train apart; one alone would wait for who is not replaced. */
static const uint32_t apart_meshes[][MESH_AXES] = {
	{ 2, 1, 2 },
	{ 3, 1, 2 },
	{ 2, 2, 1 },
	{ 2, 3, 1 },
};
#define APART_MESHES (sizeof(apart_meshes) / sizeof(apart_meshes[0]))
/* The same, of which one replica is lost, and the mesh becomes smaller. */
static const uint32_t apart_remeshes[][MESH_AXES] = {
	{ 1, 1, 2 },
	{ 1, 2, 1 },
	{ 1, 3, 1 },
	{ 1, 2, 2 },
};
#define APART_REMESHES (sizeof(apart_remeshes) / sizeof(apart_remeshes[0]))
struct copied {
	uint32_t mesh[MESH_AXES], copies;
};
/* One replica alone of several copies, which become fewer, or one replica of two. */
static const struct copied copied_remeshes[] = {
	{ { 2, 1, 1 }, 2 },
	{ { 3, 1, 1 }, 3 },
	{ { 2, 1, 2 }, 2 },
	{ { 2, 2, 1 }, 2 },
	{ { 3, 1, 2 }, 3 }, /* in every single fault not these */
	{ { 4, 1, 1 }, 2 },
	{ { 2, 1, 3 }, 2 },
	{ { 2, 3, 1 }, 2 },
	{ { 6, 1, 1 }, 3 },
	{ { 4, 1, 2 }, 2 },
	{ { 6, 1, 1 }, 2 },
};
#define COPIED_REMESHES_ALL 4
#define COPIED_REMESHES     (sizeof(copied_remeshes) / sizeof(copied_remeshes[0]))
/* The same, each of several copies. */
static const struct copied copied_meshes[] = {
	{ { 4, 1, 1 }, 2 },
	{ { 4, 1, 2 }, 2 },
	{ { 4, 2, 1 }, 2 },
	{ { 6, 1, 1 }, 3 }, /* of two samples: one copy has none */
	{ { 6, 1, 1 }, 2 },
	{ { 3, 1, 2 }, 3 }, /* one replica alone, these two */
	{ { 2, 2, 1 }, 2 },
};
#define COPIED_ALONE  2
#define COPIED_MESHES (sizeof(copied_meshes) / sizeof(copied_meshes[0]))

/* That merges are at (trainer.c). */
#define CASE_STREAM_STEPS 5
static const uint64_t case_stream_steps[PLAY_STREAM_KINDS][CASE_STREAM_STEPS] = {
	[PLAY_STREAM_FRAGMENTS] = { 0, 3, 5, 7, 12 },
	[PLAY_STREAM_CARRY] = { 0, 4, 6, 8, 12 },
	[PLAY_STREAM_EAGER] = { 0, 6, 6, 9, 12 },
};

/* Steps that are done are whole merges. Who waits for another worker gets one: the mesh is not made smaller. */
static void make_apart(struct play_case *what)
{
	what->apart = true;
	what->owners = 0;
	what->steps = 4 * PLAY_INNER_STEPS;
	if (ranks_shards(&what->mesh) == 1)
		case_set_mesh(what, apart_meshes[0], 0);
	for (unsigned i = 0; i < what->fault_count; i++) {
		struct play_fault *fault = &what->faults[i];
		fault->step = fault->step % 3 * PLAY_INNER_STEPS;
		fault->instruction *= 2; /* a round is longer */
		fault->in_remesh = false;
		if (fault->returns_us == 0)
			fault->returns_us = 1 * SECOND;
	}
}

/* Faults strike between merges, the last ones too, which no step lies between. A memberd that starts again while founders come may miss some who ended over it, of which one is replaced here: not then. */
static void make_streams(struct play_case *what, uint64_t seed)
{
	what->stream = (enum play_stream)(1 + seed % (PLAY_STREAM_KINDS - 1));
	for (unsigned i = 0; i < what->fault_count; i++) {
		struct play_fault *fault = &what->faults[i];
		size_t merge = fault->step % CASE_STREAM_STEPS;
		merge += merge == 0 && fault->kind == PLAY_MEMBERD_RESTART;
		fault->step = case_stream_steps[what->stream][merge];
	}
}

static void set_copied(struct play_case *what, const struct copied *copied)
{
	case_set_mesh(what, copied->mesh, 0);
	what->copies = copied->copies;
}

/* Any worker may be a victim. */
static void make_copies(struct play_case *what, uint64_t seed)
{
	make_apart(what);
	set_copied(what, &copied_meshes[seed / 3 % COPIED_MESHES]);
	/* Who comes is a process more. */
	unsigned room = SIM_NODES_MAX - mesh_workers(&what->mesh) - what->spares;
	if (what->fault_count > room)
		what->fault_count = room;
	bool streams = seed >= CASE_COPIES_STREAM_SEEDS;
	what->timed = !streams && seed % 3 == 2;
	what->by_speed = !streams && seed % 3 == 1;
	what->rates = !streams && seed >= CASE_COPIES_RATES_SEEDS;
	if (streams)
		make_streams(what, seed);
	if (seed / 21 % 2 == 1) /* ZeRO-1 over the copies, in every second turn of meshes */
		what->owners = what->copies > 2 ? 2 : 1;
	for (unsigned i = 0; i < what->fault_count; i++) {
		struct play_fault *fault = &what->faults[i];
		fault->victim = (fault->victim + (unsigned)(seed / 7)) %
		    (mesh_workers(&what->mesh) + what->spares + i);
		if (fault->kind == PLAY_MEMBERD_RESTART && fault->step == 0) /* as of streams */
			fault->step = PLAY_INNER_STEPS;
	}
}

static uint32_t members_of(const struct play_case *what)
{
	return ranks_shards(&what->mesh) * (what->copies > 1 ? what->copies : 1);
}

/* First so many are killed that no replica is left, in the rounds behind a checkpoint; they come back when the mesh has become smaller, most of them. The other faults strike in changes, and later. Of copies some more may be killed, so that what is left
 * has no model, and with ZeRO-1 moments are by pieces. */
static void make_smaller(struct play_case *what, uint64_t number, bool copies)
{
	static const uint32_t split[][MESH_AXES] = { { 1, 1, 2 }, { 1, 2, 1 }, { 2, 1, 2 },
		{ 1, 1, 4 }, { 1, 2, 2 }, { 1, 3, 1 }, { 2, 2, 1 }, { 1, 3, 2 } };
	unsigned others = what->fault_count % 3;
	make_apart(what);
	if (copies)
		set_copied(what, &copied_remeshes[number / 3 % COPIED_REMESHES]);
	else
		case_set_mesh(what, split[number / 3 % 8], 0);
	if (copies && number / 66 % 3 == 2)
		what->owners = 1 + number / 198 % 2;
	what->smaller = true;
	what->steps = STEPS_MOST;
	unsigned workers = mesh_workers(&what->mesh), killed = workers - members_of(what) + 1;
	what->spares = copies && killed < 3 && number / 33 % 4 == 3;
	workers += what->spares;
	killed += what->spares;
	if (copies && killed + others + 2 < workers && number / 33 % 2 == 1)
		killed += 1 + (unsigned)(number / 66 % (workers - killed - 1));
	if (killed > PLAY_FAULTS_MAX)
		killed = PLAY_FAULTS_MAX;
	/* Who comes is a process more. */
	if (killed + others > SIM_NODES_MAX - workers || killed + others > PLAY_FAULTS_MAX)
		others = 0;
	/* One after another: who is left of a replica is a spare for a while, with what it holds. */
	uint64_t later = copies && number / 33 % 3 == 1 && number % 3 != 2 ? PLAY_INNER_STEPS : 0;
	uint64_t step = what->faults[0].step + 2 * PLAY_INNER_STEPS;
	if (number % 3 == 2) {
		make_streams(what, number / 3);
		step = case_stream_steps[what->stream][3];
	}
	what->timed = number % 6 == 1;
	what->by_speed = number % 6 == 4;
	what->rates = number % 3 == 1 && number / 6 % 2 == 1;
	what->fault_count = killed + others;
	for (unsigned i = 0; i < what->fault_count; i++) {
		struct play_fault *fault = &what->faults[i];
		uint64_t draw = rng_u64(rng_key(number, 0x6166, i), 0, 0);
		if (i >= killed) {
			fault->kind = (enum play_fault_kind)(draw % PLAY_FAULT_DRAWN);
			fault->in_remesh = i == killed;
			fault->instruction = draw / 4 % 40;
			fault->step = step + draw / 4 % 8 * PLAY_INNER_STEPS;
			fault->victim = (unsigned)(draw / 256 % (workers + killed));
			fault->returns_us = draw / 4096 % 3 * SECOND;
			continue;
		}
		*fault = (struct play_fault){ .kind = PLAY_KILL,
			.victim = (unsigned)((number + i) % workers),
			.step = step + i * later,
			.instruction = draw % 40,
			.returns_us = draw / 64 % 5 == 0 ? 0
			                                 : 2 * SECOND + draw / 64 % 5 * 200 * MS };
	}
}

void case_apart_of(uint64_t seed, struct play_case *what)
{
	if (seed >= CASE_COPIES_REMESH_SEEDS) {
		make_smaller(what, seed - CASE_COPIES_REMESH_SEEDS, true);
		return;
	}
	if (seed >= CASE_APART_REMESH_SEEDS) {
		make_smaller(what, seed - CASE_APART_REMESH_SEEDS, false);
		return;
	}
	if (seed >= CASE_COPIES_SEEDS) {
		make_copies(what, seed);
		return;
	}
	make_apart(what);
	if (seed >= CASE_STREAM_SEEDS) {
		make_streams(what, seed);
		return;
	}
	what->timed = seed >= CASE_TIMED_SEEDS;
	what->by_speed = !what->timed && seed % 2 == 0;
	what->rates = seed >= CASE_RATES_SEEDS && (!what->timed || seed % 2 == 0);
}

/* ---- of all of one fault ---- */

/* Two of each mesh: without merges that they train on through, and with; the fault is behind the merge with this number, of `steps`. */
static void calm_of(struct play_case *calm, size_t mesh, bool streams, uint64_t step, size_t merge)
{
	calm->faults[0].step = step;
	if (!streams)
		return;
	calm->stream = (enum play_stream)(1 + mesh % (PLAY_STREAM_KINDS - 1));
	calm->faults[0].step = case_stream_steps[calm->stream][merge];
	calm->steps = calm->smaller ? STEPS_MOST : 4 * PLAY_INNER_STEPS;
}

bool case_apart_calm(size_t number, struct play_case *calm)
{
	size_t mesh = number / 2;
	bool streams = number % 2 == 1;

	*calm = (struct play_case){ .steps = 3 * PLAY_INNER_STEPS,
		.preset = MODEL_GPT2,
		.apart = true };
	if (mesh < APART_MESHES) {
		case_set_mesh(calm, apart_meshes[mesh], 0);
		calm_of(calm, mesh, streams, PLAY_INNER_STEPS, 1);
		return true;
	}
	mesh -= APART_MESHES;
	if (mesh < APART_REMESHES) {
		case_set_mesh(calm, apart_remeshes[mesh], 0);
		calm->smaller = true;
		calm->steps = STEPS_MOST;
		calm_of(calm, mesh, streams, 2 * PLAY_INNER_STEPS, 3);
		return true;
	}
	mesh -= APART_REMESHES;
	if (mesh < COPIED_REMESHES_ALL) {
		set_copied(calm, &copied_remeshes[mesh]);
		calm->smaller = true;
		calm->steps = STEPS_MOST;
		calm_of(calm, mesh, streams, 2 * PLAY_INNER_STEPS, 3);
		return true;
	}
	mesh -= COPIED_REMESHES_ALL;
	if (mesh >= COPIED_MESHES - COPIED_ALONE)
		return false;
	set_copied(calm, &copied_meshes[mesh]);
	calm->owners = mesh % 2;
	calm_of(calm, mesh, streams, PLAY_INNER_STEPS, 1);
	return true;
}
