#include "daemon/worker/measure_update.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/worker/add_arrays.h"
#include "daemon/worker/available.h"
#include "daemon/worker/measure_clock.h"
#include "daemon/worker/optim.h"

enum { RUNS = 5, ARRAYS = 4, ALIGNED = 16 /* numbers of a cache line */ };

/* Of one number. */
static double addition_s(struct pool *pool, const struct optim_arrays *arrays, size_t count)
{
	double took = INFINITY;
	for (unsigned i = 0; i < RUNS; i++) {
		double begun = now_s();
		add_arrays(pool, arrays->first, arrays->grads, count);
		took = fmin(took, now_s() - begun);
	}
	return took / (double)count;
}

/* Of the first so many numbers. */
static double update_s(struct pool *pool, const struct layout *layout,
    const struct optim_arrays *arrays, size_t count)
{
	const struct ops *ops = ops_choose();
	const struct optim_settings settings = { .lr = 1e-3,
		.clip = 1,
		.beta1 = 0.9,
		.beta2 = 0.999,
		.eps = 1e-8,
		.steps = 1000 };
	double took = INFINITY;
	for (uint64_t step = 1; step <= RUNS; step++) {
		double begun = now_s();
		double norm = optim_norm(ops, pool, arrays->grads, count);
		const struct optim_by by = { &settings, 1, norm, step, step };
		optim_update_range(ops, pool, layout, arrays, &by, 0, count);
		/* A step begins with clearing them. */
		memset(arrays->grads, 0, count * sizeof(float));
		took = fmin(took, now_s() - begun);
	}
	return took;
}

/* Half of what there is, of all who measure. */
static size_t numbers_for(size_t all, unsigned beside)
{
	double most = available_bytes() / 2 / (1 + beside) / (ARRAYS * sizeof(float));
	return most < (double)all ? (size_t)most / ALIGNED * ALIGNED : all;
}

tr_status measure_update(struct pool *pool, const struct model_config *config, unsigned beside,
    FILE *to, struct tr_error *error)
{
	struct model_config few = *config;
	struct layout layout = { 0 };
	few.layers = 1;
	tr_status st = layout_init(&few, &layout, error);
	if (st != TR_OK)
		return st;
	size_t count = numbers_for(layout.count, beside);
	size_t each = (count + ALIGNED - 1) / ALIGNED * ALIGNED,
	       bytes = ARRAYS * each * sizeof(float);
	float *all = count > 0 ? aligned_alloc(ALIGNED * sizeof(float), bytes) : NULL;
	if (all != NULL) {
		memset(all, 0, bytes);
		const struct optim_arrays arrays = { .params = all,
			.grads = all + each,
			.first = all + 2 * each,
			.second = all + 3 * each };
		double parameters = (double)layout.parameters * (double)count /
		    (double)layout.count;
		(void)fprintf(to, "update %.9g\n",
		    update_s(pool, &layout, &arrays, count) / parameters);
		(void)fprintf(to, "add %.9g\n", addition_s(pool, &arrays, count));
	} else {
		st = tr_error_set(error, TR_ENOMEM, "no memory to measure an update");
	}
	free(all);
	layout_finish(&layout);
	return st;
}
