#include "daemon/worker/add_arrays.h"

#define GRAIN 1024 /* numbers: whole cache lines for each thread */

struct addition {
	float *to;
	const float *from;
	size_t count;
};

static void add_part(void *arg, unsigned thread, unsigned threads)
{
	const struct addition *a = arg;
	size_t first, last;
	pool_share(a->count, GRAIN, thread, threads, &first, &last);
	for (size_t i = first; i < last; i++)
		a->to[i] += a->from[i];
}

void add_arrays(struct pool *pool, float *to, const float *from, size_t count)
{
	struct addition a = { to, from, count };
	pool_run(pool, add_part, &a);
}
