/* The one compute pool of a worker: a fixed set of threads that run a function together.
 *
 *	pool_run(pool, part, &job);      // part(&job, t, n) on n threads, t = 0 in the caller;
 *returns when all have
 *
 * Work may be cut into as many parts however many threads there are (pool_create_parts): then bits that depend on how it was cut do not depend on threads.
 *
 * One caller at a time. A pool of one thread is a plain call.
 */
#ifndef TR_DAEMON_WORKER_POOL_H
#define TR_DAEMON_WORKER_POOL_H

#include <stddef.h>

#include "common/error.h"

struct pool;

typedef void pool_fn(void *arg, unsigned thread, unsigned threads);

tr_status pool_create(unsigned threads, struct pool **pool, struct tr_error *error);
/* `parts` calls of each function, as if there were so many threads, on at most `threads`. */
tr_status pool_create_parts(unsigned threads, unsigned parts, struct pool **pool,
    struct tr_error *error);
void pool_destroy(struct pool *pool); /* accepts NULL */
void pool_run(struct pool *pool, pool_fn *fn, void *arg);
/* The same, with subnormal numbers taken and given as zero (float_mode.h): for a model's own work. */
void pool_run_flushing(struct pool *pool, pool_fn *fn, void *arg);
/* Into how many parts work is cut. */
unsigned pool_threads(const struct pool *pool);

/* Part `thread` of `threads` of `count` things, in runs of `grain`: [*first, *last). */
static inline void pool_share(size_t count, size_t grain, unsigned thread, unsigned threads,
    size_t *first, size_t *last)
{
	size_t grains = (count + grain - 1) / grain;
	*first = grains * thread / threads * grain;
	*last = grains * (thread + 1) / threads * grain;
	if (*first > count)
		*first = count;
	if (*last > count)
		*last = count;
}

#endif
