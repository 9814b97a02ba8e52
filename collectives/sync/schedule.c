#include "collectives/sync/schedule.h"

static uint64_t take_of(const struct sync_schedule *s, uint64_t round)
{
	uint64_t period = (round - 1) / s->fragments, fragment = (round - 1) % s->fragments;

	return period * s->period + (fragment + 1) * s->period / s->fragments;
}

/* Rounds whose fragment is taken before the last step. */
static uint64_t regular_rounds(const struct sync_schedule *s)
{
	uint64_t rounds = (s->steps - 1) / s->period * s->fragments;

	while (take_of(s, rounds + 1) < s->steps)
		rounds++;
	return rounds;
}

uint64_t sync_schedule_rounds(const struct sync_schedule *s)
{
	if (s->steps == 0)
		return UINT64_MAX;
	return sync_schedule_is_over(s->steps) ? 0 : regular_rounds(s) + s->fragments;
}

bool sync_schedule_slot(const struct sync_schedule *s, uint64_t round, struct sync_slot *slot)
{
	if (round <= s->before || round - s->before > sync_schedule_rounds(s))
		return false;
	round -= s->before;
	slot->fragment = (unsigned)((round - 1) % s->fragments);
	slot->take = take_of(s, round);
	slot->merge = slot->take + s->overlap;
	if (s->steps > 0 && slot->take > s->steps)
		slot->take = s->steps;
	if (s->steps > 0 && slot->merge > s->steps)
		slot->merge = s->steps;
	return true;
}
