/* Who meets whom in which turn, so that all pairs of n meet once and nobody is in two pairs of a turn: n - 1 turns, n of an odd number. Pure. */
#ifndef TR_MEMBERSHIP_CORE_TOURNAMENT_H
#define TR_MEMBERSHIP_CORE_TOURNAMENT_H

#include <stdint.h>

struct tournament_pair {
	uint32_t low, high; /* low < high < n */
};

uint32_t tournament_turns(uint32_t n);
/* The pairs of a turn: n / 2 at most. Returns how many. */
uint32_t tournament_pairs(uint32_t n, uint32_t turn, struct tournament_pair *pairs);

#endif
