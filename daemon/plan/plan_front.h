/* Plans that no other one beats in both, time and memory: the Pareto front of all that are offered. Pure.
 *
 *	struct plan_front front = { 0 };
 *	layout->front = &front; // plan_predict offers what it times
 *	...
 *	front.at[0].times.step_s, front.at[front.count - 1].memory_bytes // the fastest; the smallest
 *	plan_front_finish(&front);
 */
#ifndef TR_DAEMON_PLAN_PLAN_FRONT_H
#define TR_DAEMON_PLAN_PLAN_FRONT_H

#include "common/error.h"
#include "daemon/plan/plan.h"

struct plan_front {
	struct plan *at; /* [count]: the fastest first, each with less memory than those before */
	uint32_t count, room;
};

/* A plan that was timed. One that does not fit has no place; of two that are alike in both the first stays. TR_ENOMEM. */
tr_status plan_front_offer(struct plan_front *front, const struct plan *plan);

/* By how much less of both a plan would have to take to be on the front; 1 or less: nothing there beats it. */
double plan_front_distance(const struct plan_front *front, double step_s, uint64_t memory_bytes);

/* `copy` is zeroed. TR_ENOMEM. */
tr_status plan_front_copy(const struct plan_front *front, struct plan_front *copy);
void plan_front_finish(struct plan_front *front); /* accepts a zeroed one */

#endif
