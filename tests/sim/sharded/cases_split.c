#include "tests/sim/sharded/cases_split.h"

#include "common/rng.h"

static const uint64_t kinds_of[] = { 0, CASE_UNEVEN_SEEDS, CASE_APART_SEEDS, CASE_RATES_SEEDS,
	CASE_TIMED_SEEDS, CASE_STREAM_SEEDS, CASE_REPLAN_SEEDS, CASE_JOIN_SEEDS,
	CASE_SCHEDULE_SEEDS, CASE_STRICT_ZERO_SEEDS, CASE_ALL_WAYS_SEEDS, CASE_COPIES_SEEDS,
	CASE_COPIES_RATES_SEEDS, CASE_COPIES_STREAM_SEEDS, CASE_APART_REMESH_SEEDS,
	CASE_COPIES_REMESH_SEEDS, CASE_SHARDS_SEEDS };
#define KINDS (sizeof(kinds_of) / sizeof(kinds_of[0]))

uint64_t case_split_of(uint64_t number)
{
	return kinds_of[number % KINDS] + number / KINDS;
}

/* Shorter than a heartbeat's timeout, about as long, longer than whoever comes instead needs. */
static uint64_t lasts_of(uint64_t draw)
{
	static const uint64_t lasts_us[] = { 300 * MS, 900 * MS, 1200 * MS, 2 * SECOND, 3 * SECOND,
		6 * SECOND };
	return lasts_us[draw % (sizeof(lasts_us) / sizeof(lasts_us[0]))];
}

static void become_split(struct rng_key key, uint64_t stream, struct play_fault *fault)
{
	fault->kind = (enum play_fault_kind)(PLAY_SPLIT + rng_below(key, stream, 0, 3));
	fault->group = (uint32_t)rng_below(key, stream, 1, 1u << SIM_NODES_MAX);
	fault->lasts_us = lasts_of(rng_below(key, stream, 2, 6));
}

/* Whoever is put out is replaced where nobody could go on without. */
static void add_split(struct rng_key key, unsigned workers, struct play_case *what)
{
	if (what->fault_count == PLAY_FAULTS_MAX)
		what->fault_count--;
	struct play_fault *fault = &what->faults[what->fault_count++];
	*fault = what->faults[0];
	fault->victim = (unsigned)rng_below(key, 1, 10, workers);
	fault->step = what->faults[0].step + rng_below(key, 1, 11, 3);
	fault->instruction = rng_below(key, 1, 12, 60);
	fault->in_remesh = rng_below(key, 1, 13, 4) == 0;
	fault->in_joins = !fault->in_remesh && rng_below(key, 1, 14, 4) == 0;
	if (workers < SIM_NODES_MAX)
		fault->returns_us = (1 + rng_below(key, 1, 15, 8)) * 400 * MS;
	become_split(key, 2, fault);
}

void case_make_splits(uint64_t number, struct play_case *what)
{
	struct rng_key key = rng_key(number, 0x73706c69, 0);
	unsigned workers = mesh_workers(&what->mesh) + what->spares;
	for (unsigned i = 0; i < what->fault_count && number / KINDS % 2 == 1; i++)
		if (what->faults[i].kind != PLAY_KILL && what->faults[i].kind != PLAY_POWER_LOSS)
			become_split(key, 3 + i, &what->faults[i]);
	add_split(key, workers, what);
}
