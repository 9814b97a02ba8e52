/* What sums of tensor parallelism cost where workers of one node make them by themselves (TR_IN_TURN; collectives/engine/coll_turn.h), for the planner: two threads do what two such workers do. Each copies
 * its input to its seat, looks at the other's until that is there too, and adds both into its own memory; no engine takes part. Wanted is what an op costs of itself, and each byte that one worker copies or reads in it,
 * without waiting for who comes late: that is in what layers take (measure.h).
 *
 *	struct sum_cost cost;
 *	st = measure_sums(&cost, &error);
 *	seconds of an all-reduce of n members = cost.op_s + n * bytes * cost.byte_s
 */
#ifndef TR_DAEMON_WORKER_MEASURE_SUMS_H
#define TR_DAEMON_WORKER_MEASURE_SUMS_H

#include "common/error.h"

struct sum_cost {
	double op_s, byte_s;
};

/* Takes a tenth of a second. TR_ENOMEM. */
tr_status measure_sums(struct sum_cost *cost, struct tr_error *error);

#endif
