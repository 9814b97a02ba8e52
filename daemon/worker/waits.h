/* What the steps of a worker of a split model took and how much of it this worker waited: its log says so every WAITS_EVERY_S, so that a pipeline's bubble can be seen beside what `trainctl plan` says of it
 * (scripts/bench_bubble.py). Pure.
 *
 *	struct waits waits = { 0 };
 *	... after each step:
 *	if (waits_step(&waits, now_s, inside_s) && waits_end(&waits, now_s, calls_s, text)) log(text);
 *
 * "steps: 25, 410.2 ms each; waited 48.1 ms for others of the replica, 51.0 ms in all calls". The first is within gradients, for messages between stages and sums of tensor parallelism; besides these are
 * the sums at a step's end, where who has done waits for the last, and its commit.
 */
#ifndef TR_DAEMON_WORKER_WAITS_H
#define TR_DAEMON_WORKER_WAITS_H

#include <stdbool.h>
#include <stdint.h>

#define WAITS_EVERY_S 10
#define WAITS_TEXT    160

/* Zeroed: no step yet. */
struct waits {
	uint64_t steps;  /* since `since_s`, of the caller's clock */
	double since_s;  /* 0: the next step begins it */
	double inside_s; /* waited for others of the replica */
	double calls_s;  /* all that was waited until since_s */
};

/* A step is committed, in which `inside_s` were waited for others of the replica. Whether it is time to say something: then the caller asks for what it has waited in all, and ends the part. */
bool waits_step(struct waits *waits, double now_s, double inside_s);
/* The next part begins. False where none was: at the first step. */
bool waits_end(struct waits *waits, double now_s, double calls_s, char text[WAITS_TEXT]);

#endif
