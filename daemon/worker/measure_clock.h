/* What a measurement took, and for how much of that its thread was on a core: where it was not, other work had the core, and what was measured says nothing of the machine.
 *
 *	struct spent begun = spent_now();
 *	compute();
 *	struct spent took = spent_between(begun, spent_now());
 *	bool disturbed = took.core_s < 0.9 * took.s;
 *
 * Of the calling thread; seconds. */
#ifndef TR_DAEMON_WORKER_MEASURE_CLOCK_H
#define TR_DAEMON_WORKER_MEASURE_CLOCK_H

#include <time.h>

struct spent {
	double s, core_s;
};

static inline double clock_s(clockid_t clock)
{
	struct timespec now;
	(void)clock_gettime(clock, &now);
	return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static inline double now_s(void)
{
	return clock_s(CLOCK_MONOTONIC);
}

static inline struct spent spent_now(void)
{
	return (struct spent){ now_s(), clock_s(CLOCK_THREAD_CPUTIME_ID) };
}

static inline struct spent spent_between(struct spent from, struct spent to)
{
	return (struct spent){ to.s - from.s, to.core_s - from.core_s };
}

#endif
