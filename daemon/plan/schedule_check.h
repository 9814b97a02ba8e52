/* Runs the lists of all ranks of a schedule against each other, without time: proves that none waits for ever and that all is done as it
 * should be, or says what is wrong. Pure.
 *
 * Between neighbours there are two channels, forward (to the next rank, the last one's to the first) and backward. What a channel is like
 * decides whether a schedule gets through: 1F1B over rendezvous does not (of two neighbours one sends an activation and the other a
 * gradient, and neither receives), which is why Megatron-LM sends and receives in one call.
 *
 *	st = schedule_check(&schedule, (struct schedule_channel){ .capacity = 1, .in_order = true }, &error);
 *	// "deadlock: rank 0 in SEND_F of microbatch 1, chunk 0, which waits for rank 1 in SEND_B of microbatch 0, chunk 0, which waits
 *	//  for rank 0"
 */
#ifndef TR_DAEMON_PLAN_SCHEDULE_CHECK_H
#define TR_DAEMON_PLAN_SCHEDULE_CHECK_H

#include "daemon/plan/schedule.h"

#define SCHEDULE_UNBOUNDED UINT32_MAX

struct schedule_channel {
	/* Messages that may be under way; a send waits while there are so many. 0: rendezvous, a send waits for its receive.
	 * SCHEDULE_UNBOUNDED: a send never waits. */
	uint32_t capacity;
	/* A receive takes what was sent first, as from a byte stream, and must want that. Else it takes its own, wherever it is. */
	bool in_order;
};

/* TR_EINVAL: ranks wait for each other (who for whom is said, round the whole circle), or a rule is broken:
 *	- each (microbatch, chunk) passes forward once and backward once, after that, on each rank;
 *	- what a stage works on it has received, what it sends it has made, and nothing sent is left over;
 *	- GRAD_READY of a chunk comes once, after its last backward.
 * TR_ENOMEM. */
tr_status schedule_check(const struct schedule *schedule, struct schedule_channel channel,
    struct tr_error *error);

#endif
