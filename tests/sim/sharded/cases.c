#include "tests/sim/sharded/cases.h"

#include <stdio.h>

#include "common/rng.h"

#define WORKERS_MOST 6
#define STEP         4 /* that are done when the fault strikes */
#define STEPS        8

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
/* Those of cases_all. */
static const enum play_fault_kind kinds[] = { PLAY_KILL, PLAY_PAUSE, PLAY_CUT };
#define KINDS  (sizeof(kinds) / sizeof(kinds[0]))
#define MESHES (sizeof(meshes) / sizeof(meshes[0]))

static void set_mesh(struct play_case *what, size_t number)
{
	what->mesh.size[MESH_DP] = meshes[number][0];
	what->mesh.size[MESH_PP] = meshes[number][1];
	what->mesh.size[MESH_TP] = meshes[number][2];
}

void case_of_seed(uint64_t seed, struct play_case *what)
{
	struct rng_key key = rng_key(seed, 0x73686172, 0);
	uint64_t draws = 0;
	*what = (struct play_case){ .steps = 10 };
	set_mesh(what, (size_t)rng_below(key, 0, draws++, MESHES));
	what->preset = rng_below(key, 0, draws++, 3) == 0 ? MODEL_LLAMA : MODEL_GPT2;
	what->untied = what->preset == MODEL_LLAMA && rng_below(key, 0, draws++, 2) == 0;
	what->spares = (unsigned)rng_below(key, 0, draws++, 4) / 2;
	what->fault_count = 1 + (unsigned)rng_below(key, 0, draws++, 4);
	for (unsigned i = 0; i < what->fault_count; i++)
		what->faults[i] = (struct play_fault){ .kind = (enum play_fault_kind)rng_below(key,
			                                   0, draws++, PLAY_FAULT_KINDS),
			.victim = (unsigned)rng_below(key, 0, draws++,
			    mesh_workers(&what->mesh) + what->spares + i),
			.step = 3 + rng_below(key, 0, draws++, 5),
			.instruction = rng_below(key, 0, draws++, 80),
			.replaced = true };
}

void case_name(const struct play_case *what, char *text, size_t bytes)
{
	size_t used = (size_t)snprintf(text, bytes,
	    "dp %u x pp %u x tp %u%s:", what->mesh.size[MESH_DP], what->mesh.size[MESH_PP],
	    what->mesh.size[MESH_TP], what->untied ? ", untied" : "");
	for (unsigned i = 0; i < what->fault_count && used < bytes; i++)
		used += (size_t)snprintf(text + used, bytes - used,
		    "%s %s of n%u at step %lu, instruction %lu", i > 0 ? "," : "",
		    play_fault_names[what->faults[i].kind], what->faults[i].victim,
		    (unsigned long)what->faults[i].step + 1,
		    (unsigned long)what->faults[i].instruction);
}

void cases_all(struct sim *sim, struct play *play, uint64_t every,
    void (*call)(void *arg, const struct play_case *what), void *arg)
{
	uint64_t number = 0;
	for (size_t mesh = 0; mesh < MESHES; mesh++) {
		struct play_case calm = { .steps = STEPS, .preset = MODEL_GPT2 };
		calm.faults[0].step = STEP;
		set_mesh(&calm, mesh);
		uint64_t instructions[SIM_NODES_MAX];
		(void)play_run(sim, play, CASE_SEED, false, &calm);
		for (unsigned i = 0; i < SIM_NODES_MAX; i++)
			instructions[i] = play->instructions[i];
		for (size_t kind = 0; kind < KINDS; kind++)
			for (unsigned victim = 0; victim < mesh_workers(&calm.mesh); victim++)
				for (uint64_t i = 0; i < instructions[victim]; i++) {
					struct play_case what = calm;
					what.fault_count = 1;
					/* Where a replica is left, half go on without another worker. */
					what.faults[0] = (struct play_fault){ .kind = kinds[kind],
						.victim = victim,
						.step = STEP,
						.instruction = i,
						.replaced = calm.mesh.size[MESH_DP] == 1 ||
						    i % 2 == 0 };
					if (number++ % every == 0)
						call(arg, &what);
				}
	}
}
