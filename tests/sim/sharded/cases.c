#include "tests/sim/sharded/cases.h"

#include <stdio.h>
#include <string.h>

#include "common/rng.h"
#include "tests/sim/sharded/cases_apart.h"
#include "tests/sim/sharded/cases_single.h"
#include "tests/sim/sharded/cases_split.h"

static const uint32_t meshes[][MESH_AXES] = {
	/* dp, pp, tp as below */
	{ 1, 1, 2 },
	{ 2, 1, 2 },
	{ 3, 1, 2 },
	{ 1, 1, 3 },
	{ 2, 1, 3 },
	{ 1, 1, 4 },
	{ 1, 1, 5 },
	{ 1, 1, 6 },
	{ 1, 2, 1 },
	{ 2, 2, 1 },
	{ 3, 2, 1 },
	{ 1, 3, 1 },
	{ 2, 3, 1 },
	{ 1, 4, 1 },
	{ 1, 5, 1 },
	{ 1, 6, 1 },
	{ 1, 2, 2 },
	{ 1, 3, 2 },
	{ 1, 2, 3 },
};
static const uint32_t strict_meshes[][MESH_AXES] = {
	{ 1, 1, 1 }, { 2, 1, 1 }, { 4, 1, 1 }, { 1, 2, 1 }, { 2, 2, 1 }, { 2, 3, 1 }, { 1, 1, 2 },
	{ 2, 1, 2 }, { 1, 1, 4 }, { 8, 1, 1 }, /* for ZeRO-1 alone */
};
#define STRICT_MESHES (sizeof(strict_meshes) / sizeof(strict_meshes[0]) - 1)
/* Of these, those with replicas. */
static const size_t strict_joins[] = { 1, 2, 4, 5, 7 };
#define STRICT_JOINS (sizeof(strict_joins) / sizeof(strict_joins[0]))
/* With ZeRO-1: so many owners of each piece of a shard's moments. */
static const struct {
	uint32_t mesh[MESH_AXES], owners;
} zero_meshes[] = {
	{ { 3, 1, 1 }, 2 },
	{ { 4, 1, 1 }, 2 },
	{ { 4, 1, 1 }, 3 },
	{ { 2, 1, 2 }, 2 },
	{ { 3, 1, 2 }, 2 },
	{ { 2, 2, 1 }, 2 },
	{ { 3, 2, 1 }, 2 },
};
#define MESHES      (sizeof(meshes) / sizeof(meshes[0]))
#define ZERO_MESHES (sizeof(zero_meshes) / sizeof(zero_meshes[0]))

void case_set_mesh(struct play_case *what, const uint32_t mesh[MESH_AXES], uint32_t owners)
{
	memcpy(what->mesh.size, mesh, sizeof(what->mesh.size));
	what->owners = owners;
}

/* Of `meshes`, then those with ZeRO-1. */
static void set_mesh_number(struct play_case *what, size_t number)
{
	if (number < MESHES)
		case_set_mesh(what, meshes[number], 0);
	else
		case_set_mesh(what, zero_meshes[number - MESHES].mesh,
		    zero_meshes[number - MESHES].owners);
}

static void make_strict(struct play_case *what, size_t number)
{
	what->strict = true;
	case_set_mesh(what, strict_meshes[number], 0);
}

/* With ZeRO-1: of four replicas new parameters go to those that do not own them, of two to nobody; of eight the four that are left do it while shards come to others. */
static void make_strict_zero(struct play_case *what, uint64_t number)
{
	static const struct {
		size_t mesh;
		uint32_t owners;
	} zero[] = { { 2, 2 }, { 4, 2 }, { 2, 3 }, { 7, 2 }, { 9, 2 }, { 9, 3 } };
	make_strict(what, zero[number % 6].mesh);
	what->owners = zero[number % 6].owners;
	if (what->mesh.size[MESH_DP] > PLAY_BATCH) { /* as many processes as there may ever be */
		what->spares = 0;
		what->fault_count = what->fault_count < 3 ? what->fault_count : 3;
	}
}

bool case_take_mesh(size_t number, struct play_case *what)
{
	if (number >= MESHES + ZERO_MESHES)
		return false;
	set_mesh_number(what, number);
	return true;
}

bool case_take_strict(size_t number, struct play_case *what)
{
	if (number >= STRICT_MESHES)
		return false;
	make_strict(what, number);
	return true;
}

bool case_take_strict_zero(size_t number, struct play_case *what)
{
	if (number >= 2)
		return false;
	make_strict_zero(what, number);
	return true;
}

/* Soon, late (the mesh is made smaller meanwhile), or never. */
static uint64_t returns_of(uint64_t draw)
{
	if (draw == 0)
		return 0;
	return draw < 5 ? 1 * MS + draw * 400 * MS : (draw - 1) * SECOND;
}

/* Of a batch of four, one at least for each replica; of the layers, of which there is one more than stages, one at least for each. */
static void draw_dealing(uint64_t draw, struct play_case *what)
{
	uint32_t *size = what->mesh.size;
	if (size[MESH_DP] * size[MESH_PP] == 1) {
		size[MESH_DP] = 2 + draw % 2;
		size[MESH_TP] = 1 + draw / 2 % 2;
	}
	for (uint32_t i = 0; i < size[MESH_DP] && size[MESH_DP] > 1; i++)
		what->dealing.shares[i] = i == draw % size[MESH_DP] ? 5 - size[MESH_DP] : 1;
	for (uint32_t i = 0; i < size[MESH_PP] && size[MESH_PP] > 1; i++)
		what->dealing.layers[i] = i == draw / 4 % size[MESH_PP] ? 2 : 1;
}

/* Faults in the middle of changes, which there are several of, and in steps beside searches. */
static void make_replanned(struct play_case *what)
{
	what->replans = true;
	what->steps = 32;
	for (unsigned i = 0; i < what->fault_count; i++) {
		struct play_fault *fault = &what->faults[i];
		fault->in_remesh = fault->instruction % 2 == 0;
		fault->step = 3 * fault->step;
	}
}

/* Meshes of two replicas, or three, of which the first fault's victim is one's worker. Of seven seeds three have ZeRO-1, two are strict. */
static void make_joins(struct play_case *what, uint64_t seed)
{
	static const uint32_t several[][MESH_AXES] = { { 2, 1, 2 }, { 3, 1, 2 }, { 2, 1, 3 },
		{ 2, 2, 1 }, { 3, 2, 1 }, { 2, 3, 1 } };
	case_set_mesh(what, several[seed % 6], 0);
	if (seed % 7 < 3)
		set_mesh_number(what, MESHES + seed / 7 % ZERO_MESHES);
	else if (seed % 7 < 5)
		make_strict(what, strict_joins[seed / 7 % STRICT_JOINS]);
	what->newcomer_parts = 1 + seed / 6 % 4;
	what->steps = 16;
	what->settles = true;
	for (unsigned i = 0; i < what->fault_count; i++) {
		struct play_fault *fault = &what->faults[i];
		fault->in_remesh = false;
		fault->in_joins = i > 0;
		fault->returns_us = fault->returns_us == 0 && i > 0 ? 0 : (1 + seed % 5) * 400 * MS;
	}
	what->faults[0].kind = PLAY_KILL;
	what->faults[0].victim %= mesh_workers(&what->mesh);
	what->faults[0].instruction %= 20;
}

/* Unequal stages have one layer more than there are chunks. */
static void make_schedule(struct play_case *what, uint64_t seed)
{
	static const uint32_t staged[][MESH_AXES] = { { 1, 2, 1 }, { 2, 2, 1 }, { 1, 2, 2 },
		{ 1, 3, 1 }, { 2, 3, 1 }, { 3, 2, 1 } };
	if (what->strict)
		make_strict(what, seed / 5 % 2 == 0 ? 4 : 3); /* two stages */
	else if (what->mesh.size[MESH_PP] < 2 || what->mesh.size[MESH_PP] > 3)
		case_set_mesh(what, staged[seed / 5 % 6], 0);
	if (what->apart && what->mesh.size[MESH_DP] < 2)
		case_set_mesh(what, staged[1], 0);
	what->gpipe = seed % 2 == 0;
	what->chunks = what->gpipe ? 1 : 2;
	memset(what->dealing.layers, 0, sizeof(what->dealing.layers));
	if (what->mesh.size[MESH_DP] < 2)
		memset(what->dealing.shares, 0, sizeof(what->dealing.shares));
	for (unsigned i = 0; i < what->fault_count; i++)
		what->faults[i].victim %= mesh_workers(&what->mesh) + what->spares + i;
	what->faults[0].victim %= mesh_workers(&what->mesh);
}

static void case_of(uint64_t seed, struct play_case *what)
{
	struct rng_key key = rng_key(seed, 0x73686172, 0);
	uint64_t draws = 0;
	*what = (struct play_case){ .steps = 10 };
	set_mesh_number(what, (size_t)rng_below(key, 0, draws++, MESHES));
	if (seed % 8 == 2 || seed % 8 == 4)
		set_mesh_number(what, MESHES + (size_t)rng_below(key, 1, 0, ZERO_MESHES));
	what->preset = rng_below(key, 0, draws++, 3) == 0 ? MODEL_LLAMA : MODEL_GPT2;
	what->untied = what->preset == MODEL_LLAMA && rng_below(key, 0, draws++, 2) == 0;
	what->spares = (unsigned)rng_below(key, 0, draws++, 4) / 2;
	what->fault_count = 1 + (unsigned)rng_below(key, 0, draws++, 4);
	for (unsigned i = 0; i < what->fault_count; i++)
		what->faults[i] = (struct play_fault){ .kind = (enum play_fault_kind)rng_below(key,
			                                   0, draws++, PLAY_FAULT_DRAWN),
			.victim = (unsigned)rng_below(key, 0, draws++,
			    mesh_workers(&what->mesh) + what->spares + i),
			.step = 3 + rng_below(key, 0, draws++, 5),
			.instruction = rng_below(key, 0, draws++, 60),
			.in_remesh = i > 0 && rng_below(key, 0, draws++, 3) == 0,
			.returns_us = returns_of(rng_below(key, 0, draws++, 8)) };
	what->damages = rng_below(key, 2, 0, 3) == 0;
	what->own_disks = what->damages ? rng_below(key, 6, 0, 4) == 0
	                                : rng_below(key, 3, 0, 3) == 0;
	if (what->own_disks && rng_below(key, 4, 0, 8) == 0)
		what->bad_disks = 1u << rng_below(key, 5, 0, 6);
	what->newcomer_parts = 1 + seed % 4;
	if (seed >= CASE_COPIES_SEEDS || (seed >= CASE_APART_SEEDS && seed < CASE_REPLAN_SEEDS)) {
		what->own_disks = false; /* what is in a checkpoint of some step may be different each time */
		case_apart_of(seed, what);
		return;
	}
	if (seed >= CASE_JOIN_SEEDS) {
		make_joins(what, seed);
		return;
	}
	if (seed >= CASE_REPLAN_SEEDS) {
		make_replanned(what);
		return;
	}
	if (seed >= CASE_UNEVEN_SEEDS)
		draw_dealing(rng_below(key, 0, draws++, 64), what);
	else if (seed % 4 == 1)
		make_strict(what, (size_t)rng_below(key, 0, draws++, STRICT_MESHES));
	if (seed >= CASE_UNEVEN_SEEDS && what->mesh.size[MESH_DP] * what->mesh.size[MESH_PP] > 1 &&
	    rng_below(key, 0, draws++, 2) == 0) {
		what->balances = true;
		what->steps = 60;
	}
}

/* As many processes as there may ever be. */
static void make_all_ways(uint64_t number, struct play_case *what)
{
	static const uint32_t all[MESH_AXES] = { 3, 2, 2 };
	what->strict = false;
	case_set_mesh(what, all, 2);
	what->gpipe = number % 3 == 0;
	what->chunks = what->gpipe ? 1 : 2;
	what->batch = 6; /* each has microbatches enough for chunks */
	what->sequence_parallel = number / 3 % 2 == 0;
	what->recompute = number / 6 % 2 == 0;
	what->spares = 0;
	for (unsigned i = 0; i < what->fault_count; i++) {
		what->faults[i].victim = (what->faults[i].victim + (unsigned)number) %
		    mesh_workers(&what->mesh);
		what->faults[i].returns_us = 0;
	}
}

/* All nodes share the disk. */
static void make_in_shards(uint64_t number, struct play_case *what)
{
	static const uint64_t kinds_of[] = { 0, CASE_UNEVEN_SEEDS, CASE_APART_SEEDS,
		CASE_STREAM_SEEDS, CASE_REPLAN_SEEDS, CASE_JOIN_SEEDS, CASE_COPIES_SEEDS,
		CASE_COPIES_STREAM_SEEDS, CASE_APART_REMESH_SEEDS, CASE_COPIES_REMESH_SEEDS };
	const uint64_t turn = sizeof(kinds_of) / sizeof(kinds_of[0]);
	case_of(kinds_of[number % turn] + number / turn, what);
	what->in_shards = true;
	what->own_disks = false;
	what->bad_disks = 0;
	/* In half of those that run to the job's end the last fault strikes in the rounds behind the last step. */
	if (number / turn % 2 == 1 && !what->settles && what->stream == PLAY_STREAM_NONE) {
		struct play_fault *last = &what->faults[what->fault_count - 1];
		last->step = what->steps;
		last->instruction %= 40;
		last->in_remesh = false;
	}
}

static void make_trial(uint64_t number, struct play_case *what)
{
	case_of(CASE_JOIN_SEEDS + number, what);
	what->late_ms = number % 4 < 3 ? 200 : 20;
	what->trial_steps = 1 + number % 3;
	what->faults[0].returns_us *= 4; /* steps of those left are seen before */
	what->steps = 96;
	for (unsigned i = 2; i < what->fault_count; i++) {
		struct play_fault *fault = &what->faults[i];
		fault->in_joins = false;
		fault->step += 1 + number % 20;
	}
}

static void case_unsplit(uint64_t seed, struct play_case *what)
{
	static const uint64_t kinds_of[] = { 0, CASE_UNEVEN_SEEDS, CASE_APART_SEEDS,
		CASE_STREAM_SEEDS, CASE_JOIN_SEEDS };
	if (seed >= CASE_TRIAL_SEEDS) {
		make_trial(seed - CASE_TRIAL_SEEDS, what);
		return;
	}
	if (seed >= CASE_SHARDS_SEEDS) {
		make_in_shards(seed - CASE_SHARDS_SEEDS, what);
		return;
	}
	if (seed < CASE_SCHEDULE_SEEDS || seed >= CASE_COPIES_SEEDS) {
		case_of(seed, what);
		return;
	}
	if (seed >= CASE_ALL_WAYS_SEEDS) {
		case_of(seed - CASE_ALL_WAYS_SEEDS, what);
		make_all_ways(seed - CASE_ALL_WAYS_SEEDS, what);
		return;
	}
	if (seed >= CASE_STRICT_ZERO_SEEDS) {
		uint64_t number = seed - CASE_STRICT_ZERO_SEEDS;
		case_of((number % 2 == 0 ? 0 : CASE_JOIN_SEEDS) + number / 2, what);
		make_strict_zero(what, number / 2);
		what->faults[0].victim %= mesh_workers(&what->mesh);
		return;
	}
	uint64_t number = seed - CASE_SCHEDULE_SEEDS;
	case_of(kinds_of[number % 5] + number / 5, what);
	make_schedule(what, number);
}

void case_of_seed(uint64_t seed, struct play_case *what)
{
	if (seed < CASE_SPLIT_SEEDS || seed >= CASE_TRIAL_SEEDS) {
		case_unsplit(seed, what);
		return;
	}
	uint64_t number = seed - CASE_SPLIT_SEEDS;
	case_unsplit(case_split_of(number), what);
	case_make_splits(number, what);
}

void case_name(const struct play_case *what, char *text, size_t bytes)
{
	char owners[32] = "";
	if (what->owners > 0)
		(void)snprintf(owners, sizeof(owners), ", %u owners", what->owners);
	if (what->copies > 1)
		(void)snprintf(owners, sizeof(owners), ", %u copies%s", what->copies,
		    what->owners > 0 ? ", owners" : "");
	size_t used = (size_t)snprintf(text, bytes,
	    "dp %u x pp %u x tp %u%s%s%s%s%s%s%s%s%s%s%s:", what->mesh.size[MESH_DP],
	    what->mesh.size[MESH_PP], what->mesh.size[MESH_TP],
	    what->chunks > 1  ? ", in chunks"
	        : what->gpipe ? ", GPipe"
	                      : "",
	    what->sequence_parallel ? ", rows" : "", what->recompute ? ", recomputed" : "",
	    what->untied ? ", untied" : "", what->shared_heads ? ", shared heads" : "",
	    what->dealing.shares[0] + what->dealing.layers[0] > 0 ? ", uneven" : "",
	    what->strict                                ? ", strict"
	        : what->by_speed                        ? ", apart, by speed"
	        : what->timed                           ? ", apart, by time"
	        : what->stream == PLAY_STREAM_FRAGMENTS ? ", two fragments"
	        : what->stream == PLAY_STREAM_CARRY     ? ", three fragments carried"
	        : what->stream == PLAY_STREAM_EAGER     ? ", eager"
	        : what->apart                           ? ", apart"
	        : what->replans                         ? ", planned anew"
	                                                : "",
	    what->rates         ? ", own rates"
	        : what->smaller ? ", or smaller"
	                        : "",
	    owners, what->late_ms > 20 ? ", who comes is slow" : "",
	    what->in_shards ? ", checkpoints in shards" : "");
	for (unsigned i = 0; i < what->fault_count && used < bytes; i++)
		used += (size_t)snprintf(text + used, bytes - used,
		    "%s %s of n%u at %s %lu, instruction %lu, %s", i > 0 ? "," : "",
		    play_fault_names[what->faults[i].kind], what->faults[i].victim,
		    what->faults[i].in_remesh      ? "a change of mesh after"
		        : what->faults[i].in_joins ? "a join after"
		                                   : "step",
		    (unsigned long)what->faults[i].step + 1,
		    (unsigned long)what->faults[i].instruction,
		    what->faults[i].returns_us > 0 ? "replaced" : "not replaced");
}
