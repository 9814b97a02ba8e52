/* What merges cost their links, beside what data parallel training would have cost: state of the group, equal on all members, so that one which came
 * later says the same numbers as those that were there.
 *
 * A member says with each merge what it sent and waited since it said so last, so a merge's own cost is known at the next one: `dense_bytes` is of the
 * same merges as the others, and that of the newest merge stands apart. What a member sent that died before its next merge is not in it.
 *
 * Pure; no threads, no memory.
 */
#ifndef TR_COLLECTIVES_SYNC_COSTS_H
#define TR_COLLECTIVES_SYNC_COSTS_H

#include <stdint.h>

#include "collectives/sync.h"

struct sync_costs {
	uint64_t merges;
	double sent_bytes;  /* by all, headers included */
	double dense_bytes; /* f32 gradients at each step: 2 (n - 1) of them */
	double waited_s,
	    flight_s;        /* of the time from departure to merge, what was waited for; of all */
	double dense_newest; /* of the newest merge */
	uint64_t step;       /* of the newest merge */
};

/* Of one merge, summed over its contributors. */
struct sync_costs_said {
	double members, sent_bytes, waited_s, flight_s;
};
enum { COSTS_SAID_NUMBERS = sizeof(struct sync_costs_said) / sizeof(double) };

/* A merge at step `step` of a model of so many parameters. */
void costs_count(struct sync_costs *costs, const struct sync_costs_said *said, uint64_t step,
    uint64_t parameters);
/* What is to be gone on from: the newest merge's cost will not be told any more, and steps begin at 0. */
struct sync_costs costs_to_save(const struct sync_costs *costs);

/* To be read after a merge; to go on from what was saved, filled before tr_state_ready. */
struct sync_costs *tr_sync_costs(tr_sync *sync);

#endif
