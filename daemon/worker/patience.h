/* Who waits for the disk gets on as long as the disk does. A write or fsync of gigabytes may take minutes, in which the thread that made it can tell nobody anything: another tells
 * it meanwhile. Up to a bound, counted from what was done last: a disk that hangs for good is no progress.
 */
#ifndef TR_DAEMON_WORKER_PATIENCE_H
#define TR_DAEMON_WORKER_PATIENCE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/progress.h"

/* For one call to the disk. */
#define PATIENCE_MS (5u * 60 * 1000)
/* So often is progress told. */
#define PATIENCE_TELL_MS 200

/* What works at the disk takes a step after each piece. */
struct steps {
	_Atomic uint64_t last_ms;
};
void steps_take(struct steps *steps);
bool steps_within(struct steps *steps, unsigned bound_ms);
struct progress steps_progress(struct steps *steps); /* takes a step when it is told */

struct patience {
	struct steps steps;
	struct progress to;
	unsigned bound_ms;
	pthread_mutex_t lock;
	pthread_cond_t ended;
	pthread_t thread;
	bool started, over; /* over: under lock */
};
/* From now on `to` is told, on another thread, while the last step is not older than bound_ms. Without memory for a thread nobody tells it but
 * through patience_progress. */
void patience_begin(struct patience *p, struct progress to, unsigned bound_ms);
/* For the work: a step. */
struct progress patience_progress(struct patience *p);
void patience_end(struct patience *p);

/* Waits on `changed`, which patience_condition has made, for PATIENCE_TELL_MS at most. */
void patience_condition(pthread_cond_t *changed);
void patience_wait(pthread_cond_t *changed, pthread_mutex_t *lock);

#endif
