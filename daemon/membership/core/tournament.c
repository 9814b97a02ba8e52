#include "daemon/membership/core/tournament.h"

/* The method of the circle: the last one stands still, the others go round it; of an odd number who would meet that one rests. */
static uint32_t players(uint32_t n)
{
	return n + n % 2;
}

uint32_t tournament_turns(uint32_t n)
{
	return n < 2 ? 0 : players(n) - 1;
}

static uint32_t add(uint32_t n, uint32_t a, uint32_t b, struct tournament_pair *pair)
{
	if (a >= n || b >= n)
		return 0;
	*pair = a < b ? (struct tournament_pair){ a, b } : (struct tournament_pair){ b, a };
	return 1;
}

uint32_t tournament_pairs(uint32_t n, uint32_t turn, struct tournament_pair *pairs)
{
	uint32_t circle = players(n) - 1, count = 0;
	if (turn >= tournament_turns(n))
		return 0;
	count += add(n, circle, turn, &pairs[count]);
	for (uint32_t k = 1; k <= circle / 2; k++)
		count += add(n, (turn + k) % circle, (turn + circle - k) % circle, &pairs[count]);
	return count;
}
