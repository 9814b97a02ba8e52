/* Sums of large arrays, element by element: the same bits with any number of threads. */
#ifndef TR_DAEMON_WORKER_ADD_ARRAYS_H
#define TR_DAEMON_WORKER_ADD_ARRAYS_H

#include <stddef.h>

#include "daemon/worker/pool.h"

/* to[i] += from[i], on the threads of the pool. */
void add_arrays(struct pool *pool, float *to, const float *from, size_t count);

#endif
