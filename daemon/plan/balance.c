#include "daemon/plan/balance.h"

#include <string.h>

void balance_restart(struct balance *b)
{
	memset(b, 0, sizeof(*b));
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

static void begin_look(struct balance *b)
{
	b->steps = 0;
	memset(b->nanoseconds, 0, sizeof(b->nanoseconds));
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

bool balance_note(struct balance *b, const struct balance_rules *rules, const uint64_t *nanoseconds,
    const uint64_t *sequences, uint32_t *next, uint64_t *each)
{
	for (uint32_t i = 0; i < rules->replicas; i++) {
		if (sequences[i] == 0 || nanoseconds[i] == 0) { /* it says nothing of its speed */
			balance_restart(b);
			return false;
		}
		b->nanoseconds[i] += nanoseconds[i];
	}
	if (++b->steps < BALANCE_STEPS)
		return false;
	for (uint32_t i = 0; i < rules->replicas; i++) {
		each[i] = b->nanoseconds[i] / BALANCE_STEPS / sequences[i];
		each[i] = each[i] > 0 ? each[i] : 1;
	}
	begin_look(b);
	if (b->settled++ == 0 || rules->batch < rules->least * rules->replicas)
		return false;
	b->looks = is_worth(rules, each, sequences, next) ? b->looks + 1 : 0;
	if (b->looks < BALANCE_LOOKS || rules->steps_left < BALANCE_STEPS)
		return false;
	balance_restart(b);
	return true;
}
