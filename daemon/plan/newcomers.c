#include "daemon/plan/newcomers.h"

#include <string.h>

const struct newcomer *newcomers_find(const struct newcomers *n, uint64_t peer)
{
	for (uint64_t i = 0; i < n->count; i++)
		if (n->of[i].peer == peer)
			return &n->of[i];
	return NULL;
}

/* ---- pieces ---- */

static uint64_t larger(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

static uint64_t part_of(uint64_t numbers, uint64_t parts)
{
	return (numbers + parts - 1) / parts;
}

static uint64_t budget_ns(const struct newcomers_rules *rules)
{
	return rules->step_ns / 100 * NEWCOMERS_PERCENT;
}

static uint64_t piece_of(const struct newcomers *plan, const struct newcomers_rules *rules,
    const struct newcomer *newcomer)
{
	uint64_t piece = larger(part_of(newcomer->numbers, rules->parts), rules->least);
	uint64_t left = newcomer->numbers - newcomer->got;

	if (plan->unit_ns > 0)
		piece = larger(piece, budget_ns(rules) * NEWCOMERS_UNIT / plan->unit_ns);
	piece = larger(piece, newcomer->got / NEWCOMERS_ARRAYS);
	return piece < left ? piece : left;
}

uint64_t newcomers_steps(const struct newcomers_rules *rules, uint64_t bytes, uint64_t byte_ns)
{
	uint64_t budget = budget_ns(rules);
	uint64_t steps = budget > 0 ? part_of(bytes * byte_ns, budget) : 1;

	return steps < NEWCOMERS_STEPS ? steps : NEWCOMERS_STEPS;
}

/* ---- plans ---- */

/* As far as it has come; from the beginning, if it is another shard, or nothing of it is known. */
static struct newcomer resume(const struct newcomers *now, const struct ranks_peer *peer,
    uint32_t shard, uint64_t numbers)
{
	const struct newcomer *known = newcomers_find(now, peer->peer);
	struct newcomer fresh = { .peer = peer->peer, .shard = shard, .numbers = numbers };
	bool whole = peer->shard == shard;

	if (known != NULL && known->shard == shard && known->numbers == numbers &&
	    (known->got < numbers || whole))
		fresh = *known;
	if (whole)
		fresh.got = numbers;
	return fresh;
}

void newcomers_next(const struct newcomers *now, const struct newcomers_rules *rules,
    const struct ranks *wanted, const struct ranks *next, struct newcomers *plan)
{
	memset(plan, 0, sizeof(*plan));
	plan->unit_ns = now->unit_ns;
	plan->lost_ns = now->lost_ns;
	for (uint32_t i = 0; i < next->count; i++) {
		const struct ranks_peer *peer = &next->peers[i];
		if (wanted->peers[i].rank == RANKS_NONE || peer->rank != RANKS_NONE)
			continue;
		uint32_t shard = ranks_shard(&next->mesh, wanted->peers[i].rank);
		if (peer->shard != RANKS_NONE && peer->shard != shard)
			continue;
		struct newcomer *newcomer = &plan->of[plan->count++];
		*newcomer = resume(now, peer, shard, rules->numbers[shard]);
		newcomer->piece = piece_of(plan, rules, newcomer);
	}
}

void newcomers_settle(struct newcomers *plan, struct ranks *next)
{
	for (uint64_t i = 0; i < plan->count; i++) {
		struct newcomer *newcomer = &plan->of[i];
		newcomer->got += newcomer->piece;
		newcomer->piece = 0;
		newcomer->steps++;
		if (newcomer->got < newcomer->numbers)
			continue;
		struct ranks_peer *peer = &next->peers[ranks_find(next, newcomer->peer)];
		peer->shard = (uint32_t)newcomer->shard;
		peer->part = (struct ranks_part){ .of = 1, .place = 0 };
	}
}

void newcomers_took(struct newcomers *plan, uint64_t round_ns, uint64_t step_ns, uint64_t unit_ns)
{
	for (uint64_t i = 0; i < plan->count; i++)
		plan->of[i].ns += plan->of[i].steps > 0 ? round_ns : 0;
	plan->lost_ns += round_ns > step_ns && step_ns > 0 ? round_ns - step_ns : 0;
	if (unit_ns > 0)
		plan->unit_ns = unit_ns;
}

bool newcomers_works(const struct newcomers *now, const struct ranks *next, uint32_t index)
{
	const struct ranks_peer *peer = &next->peers[index];
	const struct newcomer *newcomer = newcomers_find(now, peer->peer);

	return newcomer != NULL && newcomer->got == newcomer->numbers && peer->rank != RANKS_NONE &&
	    ranks_shard(&next->mesh, peer->rank) == newcomer->shard;
}

/* ---- donors ---- */

uint32_t newcomers_donors(const struct newcomers *plan, size_t number, const struct ranks *next,
    uint32_t donors[NEWCOMERS_DONORS])
{
	uint32_t replicas = ranks_replicas(next);
	uint32_t count = replicas < NEWCOMERS_DONORS ? replicas : NEWCOMERS_DONORS;

	for (uint32_t k = 0; k < count; k++)
		donors[k] = ranks_worker_of(next, (uint32_t)plan->of[number].shard,
		    (uint32_t)((number + k) % replicas));
	return count;
}

void newcomers_part(const struct newcomer *newcomer, uint32_t donors, uint32_t k, size_t *first,
    size_t *end)
{
	*first = (size_t)(newcomer->got + newcomer->piece * k / donors);
	*end = (size_t)(newcomer->got + newcomer->piece * (k + 1) / donors);
}
