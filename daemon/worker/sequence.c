/* Sequence parallelism: from our own rows of the stream, where norms, residuals and biases behind a sum are computed, to all rows, which products need. */
#include <string.h>

#include "daemon/worker/model_inside.h"

/* Our rows of the half that is written next. */
static real *own_partial(const struct model *m, size_t row)
{
	return model_partial(m, model_own_first(m) + row);
}

static bool gather_rows(struct model *m)
{
	return model_meet(m, 0, m->sequences * m->length * m->layout->config.width,
	    m->tensor->all_gather);
}

struct own_rows {
	struct model *model;
	const struct norm *norm;
	const real *x;
};

static void own_norm_part(void *arg, unsigned thread, unsigned threads)
{
	const struct own_rows *rows = arg;
	struct model *m = rows->model;
	struct chunk c;
	for (size_t next = 0; model_next_own(m, thread, threads, &next, &c);) {
		struct norm norm = *rows->norm;
		norm.mean += c.row;
		norm.rstd += c.row;
		model_norm(m, &norm, c.rows, rows->x + c.row * m->layout->config.width,
		    own_partial(m, c.row));
	}
}

bool model_norm_gather(struct model *m, const struct norm *norm, const real *x)
{
	struct own_rows rows = { m, norm, x };
	pool_run_flushing(m->pool, own_norm_part, &rows);
	return gather_rows(m);
}

static void own_copy_part(void *arg, unsigned thread, unsigned threads)
{
	const struct own_rows *rows = arg;
	struct model *m = rows->model;
	size_t C = m->layout->config.width;
	struct chunk c;
	for (size_t next = 0; model_next_own(m, thread, threads, &next, &c);)
		memcpy(own_partial(m, c.row), rows->x + c.row * C, c.rows * C * sizeof(real));
}

bool model_copy_gather(struct model *m, const real *x)
{
	struct own_rows rows = { m, NULL, x };
	pool_run_flushing(m->pool, own_copy_part, &rows);
	return gather_rows(m);
}
