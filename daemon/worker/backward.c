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

/* Down to the second norm's output, whose gradient (of a shard: its part of it) goes to `dnorm`. */
static void mlp_backward(struct model *m, size_t layer, const struct chunk *c,
    struct thread_scratch *s, real *dnorm)
{
	size_t C = m->layout->config.width, up = model_up(&m->layout->config);
	real *dup = m->dup + c->row * up;

	model_linear_backward(m, s, layer, LAYOUT_DOWN_W, c->rows, m->dout + c->row * C, dup, up);
	model_activate_backward(m, c->rows, model_layer(m, layer)->up + c->row * up, dup);
	model_linear_backward(m, s, layer, LAYOUT_UP_W, c->rows, dup, dnorm, C);
}

/* From there down to the first norm's output, whose gradient goes to `dnorm1` (which may be `dnorm2`). */
static void attention_backward(struct model *m, size_t layer, const struct chunk *c,
    struct thread_scratch *s, const real *dnorm2, real *dnorm1)
{
	const struct model_config *config = &m->layout->config;
	const struct layout_place *parts = m->layout->parts;
	const struct layer_activations *a = model_layer(m, layer);
	size_t C = config->width, rows = c->rows, row = c->row;
	real *dmiddle = m->dmiddle + row * C, *dqkv = m->dqkv + row * model_qkv(config);
	real *v = s->vectors;
	struct norm norm = model_layer_norm(m, layer, LAYOUT_NORM2_W, row);

	model_norm_backward(m, &norm, rows, dnorm2, a->middle + row * C, m->dout + row * C, dmiddle,
	    v + parts[LAYOUT_NORM2_W].vector, v + parts[LAYOUT_NORM2_B].vector);
	model_linear_backward(m, s, layer, LAYOUT_PROJ_W, rows, dmiddle, s->narrow,
	    model_queries(config));
	attend_backward(m, a, c, s->narrow, s);
	model_rotate(m, c, -1, dqkv);
	model_linear_backward(m, s, layer, LAYOUT_QKV_W, rows, dqkv, dnorm1, C);
}

static void input_backward(struct model *m, size_t layer, const struct chunk *c,
    struct thread_scratch *s, const real *dnorm)
{
	const struct layout_place *parts = m->layout->parts;
	size_t C = m->layout->config.width, row = c->row;
	struct norm norm = model_layer_norm(m, layer, LAYOUT_NORM1_W, row);

	model_norm_backward(m, &norm, c->rows, dnorm, model_layer(m, layer)->x + row * C,
	    m->dmiddle + row * C, m->dx + row * C, s->vectors + parts[LAYOUT_NORM1_W].vector,
	    s->vectors + parts[LAYOUT_NORM1_B].vector);
}

static void rows_part(void *arg, unsigned thread, unsigned threads)
{
	struct layer_part *part = arg;
	struct model *m = part->model;
	struct thread_scratch *s = &m->scratch[thread];
	struct chunk c;
	memset(s->vectors, 0, m->layout->vectors * sizeof(real));
	for (size_t next = 0; model_next_chunk(m, thread, threads, &next, &c);) {
		mlp_backward(m, part->layer, &c, s, s->narrow);
		attention_backward(m, part->layer, &c, s, s->narrow, s->narrow);
		input_backward(m, part->layer, &c, s, s->narrow);
	}
}

/* The same of a shard, in three parts: what they leave is summed over all members in between. */
static void mlp_rows_part(void *arg, unsigned thread, unsigned threads)
{
	struct layer_part *part = arg;
	struct model *m = part->model;
	struct thread_scratch *s = &m->scratch[thread];
	struct chunk c;
	memset(s->vectors, 0, m->layout->vectors * sizeof(real));
	for (size_t next = 0; model_next_chunk(m, thread, threads, &next, &c);)
		mlp_backward(m, part->layer, &c, s, model_partial(m, c.row));
}

static void attention_rows_part(void *arg, unsigned thread, unsigned threads)
{
	struct layer_part *part = arg;
	struct model *m = part->model;
	struct chunk c;
	for (size_t next = 0; model_next_chunk(m, thread, threads, &next, &c);)
		attention_backward(m, part->layer, &c, &m->scratch[thread], model_summed(m, c.row),
		    model_partial(m, c.row));
}

static void input_rows_part(void *arg, unsigned thread, unsigned threads)
{
	struct layer_part *part = arg;
	struct model *m = part->model;
	struct chunk c;
	for (size_t next = 0; model_next_chunk(m, thread, threads, &next, &c);)
		input_backward(m, part->layer, &c, &m->scratch[thread], model_summed(m, c.row));
}

static bool layer_backward(struct model *m, struct layer_part *part)
{
	if (m->tensor == NULL) {
		pool_run(m->pool, rows_part, part);
		return true;
	}
	pool_run(m->pool, mlp_rows_part, part);
	if (!model_sum(m))
		return false;
	pool_run(m->pool, attention_rows_part, part);
	if (!model_sum(m))
		return false;
	pool_run(m->pool, input_rows_part, part);
	return true;
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
	const struct layer_activations *a = model_layer(m, part->layer);
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
	for (size_t i = 0; m->tensor != NULL && i < m->sequences && first < last; i++)
		model_embed_backward_part(m, i, first, last - first, positions);
	for (size_t i = 0; m->tensor == NULL && i < m->sequences && first < last; i++)
		m->ops->embed_backward(m->inputs + i * m->length, m->dout + i * m->length * width,
		    m->length, width, first, last - first, m->grads + m->layout->tokens, positions);
}

static void report_final(const struct model_hooks *hooks, size_t offset)
{
	if (hooks != NULL && hooks->gradients_final != NULL)
		hooks->gradients_final(hooks->arg, offset);
}

/* Its gradients of activations, then of weights. m->dx: where the input's goes. */
static bool one_layer(struct model *m, size_t layer, const struct model_hooks *hooks)
{
	struct layer_part part = { m, layer };
	if (!model_progress(hooks) || (m->room.recompute && !model_forward_again(m, layer)))
		return false;
	if (!layer_backward(m, &part) || !model_progress(hooks))
		return false;
	pool_run(m->pool, weights_part, &part);
	return true;
}

bool model_backward(struct model *m, real *dinput, const struct model_hooks *hooks)
{
	const struct model_slot *slot = m->slot;
	if (slot->head)
		report_final(hooks, m->layout->last_norm_w);
	for (size_t layer = slot->first + slot->count; layer-- > slot->first;) {
		bool ends = layer == slot->first && dinput != NULL;
		m->dx = ends ? dinput : m->dout == m->flow[0] ? m->flow[1] : m->flow[0];
		if (!one_layer(m, layer, hooks))
			return false;
		m->dout = m->dx;
		report_final(hooks, layout_layer(m->layout, layer, LAYOUT_NORM1_W));
	}
	if (slot->embedded != NULL) {
		pool_run(m->pool, embed_part, m);
		report_final(hooks, 0);
	}
	return true;
}
