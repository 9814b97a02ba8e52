/* Which parts of the gradient are reduced together. Gradients become final from the end of the array towards its start, so bucket 0 is
 * the last part of the array. A bucket is at least BUCKETS_BYTES (small ones cost more in messages than they gain in overlap), and
 * there are few enough for one report of a view change.
 */
#ifndef TR_DAEMON_WORKER_BUCKETS_H
#define TR_DAEMON_WORKER_BUCKETS_H

#include <stddef.h>

#include "common/limits.h"
#include "daemon/checkpoint/layout.h"

#define BUCKETS_BYTES (1u << 20)
#define BUCKETS_MAX   240u

struct buckets {
	size_t count;
	size_t first[BUCKETS_MAX + 1]; /* bucket i is numbers [first[i], first[i - 1]); descending */
	size_t end;                    /* of the whole array */
};

/* Pure: all peers get the same buckets. `least_bytes` is BUCKETS_BYTES but in tests. */
void buckets_plan(const struct layout *layout, size_t least_bytes, struct buckets *buckets);

static inline size_t buckets_end(const struct buckets *buckets, size_t i)
{
	return i == 0 ? buckets->end : buckets->first[i - 1];
}

#endif
