/* When low-communication training talks. A group's rounds are numbered; in each, one fragment of the parameters is taken (its
 * pseudo-gradient handed to the network) after inner step `take` and merged (the outer step applied) after inner step `merge`. Rounds do not
 * overlap: merge of round r <= take of round r + 1.
 *
 *	H inner steps a period, P fragments, tau steps of overlap: fragment p is taken at k H + (p + 1) H / P for k = 0, 1, ... and merged tau
 *	steps later (Streaming DiLoCo, arXiv 2501.18512; P = 1, tau = 0: DiLoCo, arXiv 2311.08105; P = 1, tau = H: one round behind).
 *
 * What is left of the work at the last step is taken and merged there, fragment by fragment. Pure; no threads, no memory.
 */
#ifndef TR_COLLECTIVES_SYNC_SCHEDULE_H
#define TR_COLLECTIVES_SYNC_SCHEDULE_H

#include <stdbool.h>
#include <stdint.h>

enum { SYNC_FRAGMENTS_MAX = 64 };

struct sync_schedule {
	uint64_t steps;     /* inner steps in all; 0: without end; see sync_schedule_is_over */
	uint64_t period;    /* H >= fragments */
	uint64_t overlap;   /* tau <= H / fragments */
	unsigned fragments; /* P >= 1 */
	uint64_t before; /* the group's rounds are numbered from here on: its first is before + 1 */
};

struct sync_slot {
	unsigned fragment;
	uint64_t take, merge; /* inner steps */
};

/* TR_SYNC_ALL_DONE, or somewhat less: none is left. */
static inline bool sync_schedule_is_over(uint64_t steps)
{
	return steps >= UINT64_MAX - (UINT64_C(1) << 53);
}

/* Of round `round` (from before + 1). False: there is none, training ended with the round before. */
bool sync_schedule_slot(const struct sync_schedule *schedule, uint64_t round,
    struct sync_slot *slot);

/* Rounds in all; UINT64_MAX without end. */
uint64_t sync_schedule_rounds(const struct sync_schedule *schedule);

#endif
