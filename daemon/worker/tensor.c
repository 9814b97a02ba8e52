/* Where the model is a shard: sums over the members of its tensor-parallel group, and what is done with them. */
#include <string.h>

#include "daemon/worker/model_inside.h"

bool model_meet(struct model *m, size_t offset, size_t count,
    bool (*call)(void *arg, real *data, size_t count))
{
	real *data = model_exchange(m, true) + offset;
	m->turn ^= 1;
	return call(m->tensor->arg, data, count);
}

static size_t stream_numbers(const struct model *m)
{
	return m->sequences * m->length * m->layout->config.width;
}

bool model_sum(struct model *m)
{
	const struct model_tensor *group = m->tensor;
	return model_meet(m, 0, stream_numbers(m),
	    model_splits_rows(m) ? group->reduce_scatter : group->sum);
}

bool model_sum_begin(struct model *m)
{
	const struct model_tensor *group = m->tensor;
	return group->begin == NULL ||
	    group->begin(group->arg, model_exchange(m, true), stream_numbers(m),
	        model_splits_rows(m));
}

bool model_sum_end(struct model *m)
{
	if (m->tensor->begin == NULL)
		return model_sum(m);
	m->turn ^= 1;
	return m->tensor->end(m->tensor->arg);
}

/* y = sum + residual (NULL: 0) + bias (NULL: 0), of our own rows; of the embedding, or of what the layer adds to the stream. */
struct onto {
	struct model *model;
	const real *residual, *bias;
	real *y;
	enum model_site site;
	size_t layer;
};

static void onto_part(void *arg, unsigned thread, unsigned threads)
{
	const struct onto *onto = arg;
	const struct model *m = onto->model;
	size_t C = m->layout->config.width, first, last;
	pool_share(model_own_rows(m), 1, thread, threads, &first, &last);
	size_t rows = last - first;
	const real *sum = model_summed(m, model_own_first(m) + first),
	           *residual = onto->residual == NULL ? NULL : onto->residual + first * C;
	real *y = onto->y + first * C;
	if (!model_drops(m)) {
		m->ops->onto(sum, residual, onto->bias, rows, C, y);
		return;
	}
	m->ops->onto(sum, NULL, onto->bias, rows, C, y);
	if (residual != NULL)
		model_drop_onto(m, onto->site, onto->layer, first, rows, residual, y);
	else
		model_drop(m, onto->site, onto->layer, first, rows, y, y);
}

bool model_sum_onto(struct model *m, size_t layer, enum layout_part weight, const real *residual,
    real *y)
{
	struct onto onto = { m, residual, model_param(m, layer, weight + 1), y,
		model_site_of(weight), layer };
	if (!model_sum(m))
		return false;
	pool_run_flushing(m->pool, onto_part, &onto);
	return true;
}

/* ---- the vocabulary's rows ---- */

/* The token's row of our table, and of its gradient; SIZE_MAX: it is another member's. */
static size_t row_of(const struct model *m, int32_t token)
{
	size_t rows = m->layout->config.vocab;
	size_t row = (size_t)token - m->tensor->rank * rows;
	return row < rows ? row : SIZE_MAX;
}

static void shard_embed_part(void *arg, unsigned thread, unsigned threads)
{
	struct model *m = arg;
	size_t C = m->layout->config.width, first, last;
	const real *table = m->params + m->layout->tokens;
	pool_share(m->sequences * m->length, 1, thread, threads, &first, &last);
	for (size_t row = first; row < last; row++) {
		size_t at = row_of(m, m->inputs[row]);
		if (at == SIZE_MAX)
			memset(model_partial(m, row), 0, C * sizeof(real));
		else
			memcpy(model_partial(m, row), table + at * C, C * sizeof(real));
	}
}

static void positions_part(void *arg, unsigned thread, unsigned threads)
{
	struct model *m = arg;
	size_t C = m->layout->config.width, first, last;
	pool_share(model_own_rows(m), 1, thread, threads, &first, &last);
	for (size_t row = first; row < last; row++) {
		size_t at = model_own_first(m) + row;
		const real *sum = model_summed(m, at);
		real *x = m->slot->embedded + row * C;
		m->ops->onto(sum, m->params + m->layout->positions + at % m->length * C, NULL, 1, C,
		    x);
		if (model_drops(m))
			model_drop(m, MODEL_SITE_EMBEDDING, 0, row, 1, x, x);
	}
}

bool model_embed_sum(struct model *m)
{
	struct onto onto = { m, NULL, NULL, m->slot->embedded, MODEL_SITE_EMBEDDING, 0 };
	pool_run_flushing(m->pool, shard_embed_part, m);
	if (!model_sum(m))
		return false;
	if (m->layout->positions == LAYOUT_NONE)
		pool_run_flushing(m->pool, onto_part, &onto);
	else
		pool_run_flushing(m->pool, positions_part, m);
	return true;
}

void model_embed_backward_part(const struct model *m, const real *dout, size_t first,
    size_t columns, real *positions)
{
	size_t C = m->layout->config.width, own = model_own_first(m);
	for (size_t row = 0; row < m->sequences * m->length; row++) {
		size_t at = row_of(m, m->inputs[row]);
		const real *d = dout + row * C + first;
		real *token = at == SIZE_MAX ? NULL : m->grads + m->layout->tokens + at * C + first;
		bool ours = row >= own && row < own + model_own_rows(m);
		real *position = positions == NULL || !ours
		    ? NULL
		    : positions + row % m->length * C + first;
		for (size_t i = 0; token != NULL && i < columns; i++)
			token[i] += d[i];
		for (size_t i = 0; position != NULL && i < columns; i++)
			position[i] += d[i];
	}
}
