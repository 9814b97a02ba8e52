/* How fast a job trains: tokens of its newest rounds over the time of these. Pure.
 *
 * A mean of rates would follow a job that becomes slower by a hundred only after dozens of its rounds, and one that forgets little by little would have a single long round in it as
 * long: here each round counts by its time, for as many rounds as memberd has between two looks (plan_watch.h), so that a long one is in one of these alone.
 */
#ifndef TR_DAEMON_WORKER_SPEED_H
#define TR_DAEMON_WORKER_SPEED_H

#include <stdint.h>

#include "daemon/plan/plan_watch.h"

#define SPEED_ROUNDS PLAN_WATCH_STEPS

/* Zeroed: none yet. */
struct speed {
	double tokens[SPEED_ROUNDS], seconds[SPEED_ROUNDS];
	uint64_t count; /* of rounds that there were */
};

void speed_add(struct speed *speed, double tokens, double seconds);
double speed_tokens_per_s(const struct speed *speed); /* 0: there was no round */

#endif
