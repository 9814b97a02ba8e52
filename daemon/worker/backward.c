/* The backward pass: forward.c from bottom to top. For each layer first the gradients of
 * activations, by sequences (rows_part), then those of weights, by rows of the weights
 * (weights_part). dX = dY W^T, dW += X^T dY, db += column sums of dY (parts.c).
 */
#include <string.h>

#include "daemon/worker/model_inside.h"

static void attend_backward(struct model *m, const struct layer_activations *a,
    const struct chunk *c, const real *dattended, struct thread_scratch *scratch)
{
	const struct model_config *config = &m->layout->config;
	size_t heads = config->heads, queries = model_queries(config), qkv = model_qkv(config);
	struct attention shape = { m->length, 0, heads, config->kv_heads, config->head_width };
	for (size_t i = c->sequence; i < c->sequence + c->sequences; i++) {
		size_t row = i * m->length;
		m->ops->attention_backward(&shape, a->qkv + row * qkv, a->attended + row * queries,
		    a->row_max + row * heads, a->row_scale + row * heads,
		    dattended + (row - c->row) * queries, m->dqkv + row * qkv, scratch->attention);
	}
}

static void layer_chunk_backward(struct model *m, size_t layer, const struct chunk *c,
    struct thread_scratch *s)
{
	const struct model_config *config = &m->layout->config;
	const struct layout_place *parts = m->layout->parts;
	struct layer_activations *a = &m->layers[layer];
	size_t C = config->width, up = model_up(config), rows = c->rows, row = c->row;
	const real *x = model_layer_input(m, layer) + row * C, *dout = m->dout + row * C;
	real *dup = m->dup + row * up, *dmiddle = m->dmiddle + row * C;
	real *dqkv = m->dqkv + row * model_qkv(config), *v = s->vectors;
	struct norm first = model_layer_norm(m, layer, LAYOUT_NORM1_W, row);
	struct norm second = model_layer_norm(m, layer, LAYOUT_NORM2_W, row);

	model_linear_backward(m, layer, LAYOUT_DOWN_W, rows, dout, dup, up, v);
	model_activate_backward(m, rows, a->up + row * up, dup);
	model_linear_backward(m, layer, LAYOUT_UP_W, rows, dup, s->narrow, C, v);
	model_norm_backward(m, &second, rows, s->narrow, a->middle + row * C, dout, dmiddle,
	    v + parts[LAYOUT_NORM2_W].vector, v + parts[LAYOUT_NORM2_B].vector);

	model_linear_backward(m, layer, LAYOUT_PROJ_W, rows, dmiddle, s->narrow,
	    model_queries(config), v);
	attend_backward(m, a, c, s->narrow, s);
	model_rotate(m, c, -1, dqkv);
	model_linear_backward(m, layer, LAYOUT_QKV_W, rows, dqkv, s->narrow, C, v);
	model_norm_backward(m, &first, rows, s->narrow, x, dmiddle, m->dx + row * C,
	    v + parts[LAYOUT_NORM1_W].vector, v + parts[LAYOUT_NORM1_B].vector);
}

static void rows_part(void *arg, unsigned thread, unsigned threads)
{
	struct layer_part *part = arg;
	struct model *m = part->model;
	struct thread_scratch *scratch = &m->scratch[thread];
	struct chunk chunk;
	memset(scratch->vectors, 0, m->layout->vectors * sizeof(real));
	for (size_t next = 0; model_next_chunk(m, thread, threads, &next, &chunk);)
		layer_chunk_backward(m, part->layer, &chunk, scratch);
}

static void fold_vectors(struct model *m, size_t layer, unsigned threads)
{
	for (size_t part = 0; part < LAYOUT_PARTS; part++) {
		const struct layout_place *place = &m->layout->parts[part];
		if (place->offset == LAYOUT_NONE || place->in > 0)
			continue;
		real *to = m->grads + layout_layer(m->layout, layer, (enum layout_part)part);
		for (unsigned t = 0; t < threads; t++)
			m->ops->column_sums(m->scratch[t].vectors + place->vector, 1, place->out,
			    to);
	}
}

static void weights_part(void *arg, unsigned thread, unsigned threads)
{
	struct layer_part *part = arg;
	struct model *m = part->model;
	const struct model_config *config = &m->layout->config;
	const struct layer_activations *a = &m->layers[part->layer];
	size_t C = config->width, layer = part->layer;
	model_linear_weights(m, layer, LAYOUT_DOWN_W, a->up, model_up(config), m->dout, thread,
	    threads);
	model_linear_weights(m, layer, LAYOUT_UP_W, a->norm2, C, m->dup, thread, threads);
	model_linear_weights(m, layer, LAYOUT_PROJ_W, a->attended, model_queries(config),
	    m->dmiddle, thread, threads);
	model_linear_weights(m, layer, LAYOUT_QKV_W, a->norm1, C, m->dqkv, thread, threads);
	if (thread == 0)
		fold_vectors(m, layer, threads);
}

static void embed_part(void *arg, unsigned thread, unsigned threads)
{
	struct model *m = arg;
	size_t width = m->layout->config.width, first, last;
	real *positions = m->layout->positions == LAYOUT_NONE ? NULL
	                                                      : m->grads + m->layout->positions;
	pool_share(width, 16, thread, threads, &first, &last);
	for (size_t i = 0; i < m->sequences && first < last; i++)
		m->ops->embed_backward(m->inputs + i * m->length, m->dout + i * m->length * width,
		    m->length, width, first, last - first, m->grads + m->layout->tokens, positions);
}

static void report_final(const struct model_hooks *hooks, size_t offset)
{
	if (hooks != NULL && hooks->gradients_final != NULL)
		hooks->gradients_final(hooks->arg, offset);
}

bool model_backward(struct model *m, const struct model_hooks *hooks)
{
	report_final(hooks, m->layout->last_norm_w);
	for (size_t layer = m->layout->config.layers; layer-- > 0;) {
		struct layer_part part = { m, layer };
		if (!model_progress(hooks))
			return false;
		pool_run(m->pool, rows_part, &part);
		if (!model_progress(hooks))
			return false;
		pool_run(m->pool, weights_part, &part);
		real *free_again = m->dout;
		m->dout = m->dx;
		m->dx = free_again;
		report_final(hooks, layout_layer(m->layout, layer, LAYOUT_NORM1_W));
	}
	pool_run(m->pool, embed_part, m);
	report_final(hooks, 0);
	return true;
}
