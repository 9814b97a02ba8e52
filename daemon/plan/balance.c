#include "daemon/plan/balance.h"

#include <string.h>

void balance_restart(struct balance *r)
{
	memset(r, 0, sizeof(*r));
}

uint64_t balance_longest(const uint64_t *each, const uint32_t *sequences, uint32_t replicas)
{
	uint64_t longest = 0;

	for (uint32_t i = 0; i < replicas; i++)
		if (each[i] * sequences[i] > longest)
			longest = each[i] * sequences[i];
	return longest;
}

/* One sequence after another to the replica that has it done first. */
static void deal(const struct balance_rules *rules, const uint64_t *each, uint32_t *next)
{
	uint64_t given = rules->least * rules->replicas;

	for (uint32_t i = 0; i < rules->replicas; i++)
		next[i] = (uint32_t)rules->least;
	for (; given < rules->batch; given++) {
		uint32_t best = 0;
		for (uint32_t i = 1; i < rules->replicas; i++)
			if (each[i] * (next[i] + 1) < each[best] * (next[best] + 1))
				best = i;
		next[best]++;
	}
}

static void begin_look(struct balance *r)
{
	r->steps = 0;
	memset(r->nanoseconds, 0, sizeof(r->nanoseconds));
}

/* Whether `next` takes BALANCE_PERCENT less than what was measured. */
static bool is_worth(const struct balance_rules *rules, const uint64_t *each,
    const uint64_t *sequences, uint32_t *next)
{
	uint32_t now[TR_GROUP_PEERS_MAX];

	for (uint32_t i = 0; i < rules->replicas; i++)
		now[i] = (uint32_t)sequences[i];
	deal(rules, each, next);
	return 100 * balance_longest(each, next, rules->replicas) <=
	    (100 - BALANCE_PERCENT) * balance_longest(each, now, rules->replicas);
}

bool balance_note(struct balance *r, const struct balance_rules *rules, const uint64_t *nanoseconds,
    const uint64_t *sequences, uint32_t *next, uint64_t *each)
{
	for (uint32_t i = 0; i < rules->replicas; i++) {
		if (sequences[i] == 0 || nanoseconds[i] == 0) { /* it says nothing of its speed */
			balance_restart(r);
			return false;
		}
		r->nanoseconds[i] += nanoseconds[i];
	}
	if (++r->steps < BALANCE_STEPS)
		return false;
	for (uint32_t i = 0; i < rules->replicas; i++) {
		each[i] = r->nanoseconds[i] / BALANCE_STEPS / sequences[i];
		each[i] = each[i] > 0 ? each[i] : 1;
	}
	begin_look(r);
	if (r->settled++ == 0 || rules->batch < rules->least * rules->replicas)
		return false;
	r->looks = is_worth(rules, each, sequences, next) ? r->looks + 1 : 0;
	if (r->looks < BALANCE_LOOKS || rules->steps_left < BALANCE_STEPS)
		return false;
	balance_restart(r);
	return true;
}
