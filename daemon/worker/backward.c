/* The backward pass: forward.c from bottom to top. For each layer first the gradients of
 * activations, by sequences (rows_part), then those of weights, by rows of the weights
 * (weights_part). dX = dY W^T, dW += X^T dY, db += column sums of dY (parts.c). With sequence
 * parallelism dout, dmiddle and dx are of our own rows, and gathered for the products with them.
 * A shard has the gradients of its weights computed in two parts, each behind a sum over the group (sum_behind).
 * With dropout, dY of what a layer adds to the stream is the stream's gradient without what was left out.
 */
#include <string.h>

#include "daemon/worker/model_inside.h"

/* Of our own rows: of what the MLP adds to the stream, and attention. */
static const real *down_gradient(const struct model *m)
{
	return model_drops(m) ? m->dropout.ddown : m->dout;
}

static const real *proj_gradient(const struct model *m)
{
	return model_drops(m) ? m->dropout.dproj : m->dmiddle;
}

static void attend_backward(struct model *m, size_t layer, const struct chunk *c,
    const real *dattended, struct thread_scratch *scratch)
{
	const struct layer_activations *a = model_layer(m, layer);
	const struct model_config *config = &m->layout->config;
	size_t heads = config->heads, queries = model_queries(config), qkv = model_qkv(config);
	for (size_t i = c->sequence; i < c->sequence + c->sequences; i++) {
		size_t row = i * m->length;
		struct dropout dropout;
		struct attention shape = model_attention(m, layer, i, &dropout);
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
	if (model_drops(m) && !model_splits_rows(m))
		model_drop(m, MODEL_SITE_DOWN, layer, c->row, c->rows, m->dout + c->row * C,
		    m->dropout.ddown + c->row * C);
	const real *dout = model_all_rows(m, down_gradient(m)) + c->row * C;

	model_linear_backward(m, s, layer, LAYOUT_DOWN_W, c->rows, dout, dup, up);
	model_activate_backward(m, c->rows, model_layer(m, layer)->up + c->row * up, dup);
	model_bias_backward(m, s, LAYOUT_UP_W, c->rows, dup);
	model_linear_backward(m, s, layer, LAYOUT_UP_W, c->rows, dup, dnorm, C);
}

/* From there to the stream between the layer's parts; of our own rows, and so are the gradients of biases behind a sum. */
static void middle_backward(struct model *m, size_t layer, const struct chunk *c,
    struct thread_scratch *s, const real *dnorm)
{
	const struct layout_place *parts = m->layout->parts;
	size_t C = m->layout->config.width, row = c->row;
	const real *dout = m->dout + row * C;
	real *dmiddle = m->dmiddle + row * C, *v = s->vectors;
	struct norm norm = model_layer_norm(m, layer, LAYOUT_NORM2_W, row);

	model_bias_backward(m, s, LAYOUT_DOWN_W, c->rows, down_gradient(m) + row * C);
	model_norm_backward(m, &norm, c->rows, dnorm, model_layer(m, layer)->middle + row * C, dout,
	    dmiddle, v + parts[LAYOUT_NORM2_W].vector, v + parts[LAYOUT_NORM2_B].vector);
	if (model_drops(m))
		model_drop(m, MODEL_SITE_PROJ, layer, row, c->rows, dmiddle,
		    m->dropout.dproj + row * C);
	model_bias_backward(m, s, LAYOUT_PROJ_W, c->rows, proj_gradient(m) + row * C);
}

/* From there down to the first norm's output, whose gradient goes to `dnorm`. */
static void attention_backward(struct model *m, size_t layer, const struct chunk *c,
    struct thread_scratch *s, real *dnorm)
{
	const struct model_config *config = &m->layout->config;
	size_t C = config->width, rows = c->rows, row = c->row;
	const real *dproj = model_all_rows(m, proj_gradient(m)) + row * C;
	real *dqkv = m->dqkv + row * model_qkv(config);

	model_linear_backward(m, s, layer, LAYOUT_PROJ_W, rows, dproj, s->narrow,
	    model_queries(config));
	attend_backward(m, layer, c, s->narrow, s);
	model_rotate(m, c, -1, dqkv);
	model_bias_backward(m, s, LAYOUT_QKV_W, rows, dqkv);
	model_linear_backward(m, s, layer, LAYOUT_QKV_W, rows, dqkv, dnorm, C);
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
		middle_backward(m, part->layer, &c, s, s->narrow);
		attention_backward(m, part->layer, &c, s, s->narrow);
		input_backward(m, part->layer, &c, s, s->narrow);
	}
}

/* The same of a shard, in parts: what they leave is summed over all members in between. */
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

static void middle_rows_part(void *arg, unsigned thread, unsigned threads)
{
	struct layer_part *part = arg;
	struct model *m = part->model;
	struct chunk c;
	for (size_t next = 0; model_next_own(m, thread, threads, &next, &c);)
		middle_backward(m, part->layer, &c, &m->scratch[thread],
		    model_summed(m, model_own_first(m) + c.row));
}

static void attention_rows_part(void *arg, unsigned thread, unsigned threads)
{
	struct layer_part *part = arg;
	struct model *m = part->model;
	struct chunk c;
	for (size_t next = 0; model_next_chunk(m, thread, threads, &next, &c);)
		attention_backward(m, part->layer, &c, &m->scratch[thread], model_partial(m, c.row));
}

/* Both, where all rows are our own: a chunk stays in its thread's cache. */
static void middle_and_attention_part(void *arg, unsigned thread, unsigned threads)
{
	struct layer_part *part = arg;
	struct model *m = part->model;
	struct chunk c;
	for (size_t next = 0; model_next_chunk(m, thread, threads, &next, &c);) {
		middle_backward(m, part->layer, &c, &m->scratch[thread], model_summed(m, c.row));
		attention_backward(m, part->layer, &c, &m->scratch[thread], model_partial(m, c.row));
	}
}

static void input_rows_part(void *arg, unsigned thread, unsigned threads)
{
	struct layer_part *part = arg;
	struct model *m = part->model;
	struct chunk c;
	for (size_t next = 0; model_next_own(m, thread, threads, &next, &c);)
		input_backward(m, part->layer, &c, &m->scratch[thread],
		    model_summed(m, model_own_first(m) + c.row));
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

static void mlp_weights_part(void *arg, unsigned thread, unsigned threads)
{
	struct layer_part *part = arg;
	struct model *m = part->model;
	const struct model_config *config = &m->layout->config;
	const struct layer_activations *a = model_layer(m, part->layer);
	model_linear_weights(m, part->layer, LAYOUT_DOWN_W, a->up, model_up(config),
	    model_all_rows(m, down_gradient(m)), thread, threads);
	model_linear_weights(m, part->layer, LAYOUT_UP_W, a->norm2, config->width, m->dup, thread,
	    threads);
}

static void attention_weights_part(void *arg, unsigned thread, unsigned threads)
{
	struct layer_part *part = arg;
	struct model *m = part->model;
	const struct model_config *config = &m->layout->config;
	const struct layer_activations *a = model_layer(m, part->layer);
	model_linear_weights(m, part->layer, LAYOUT_PROJ_W, a->attended, model_queries(config),
	    model_all_rows(m, proj_gradient(m)), thread, threads);
	model_linear_weights(m, part->layer, LAYOUT_QKV_W, a->norm1, config->width, m->dqkv, thread,
	    threads);
}

static void weights_part(void *arg, unsigned thread, unsigned threads)
{
	struct layer_part *part = arg;
	mlp_weights_part(arg, thread, threads);
	attention_weights_part(arg, thread, threads);
	if (thread == 0)
		fold_vectors(part->model, part->layer, threads);
}

/* Sums over the group what `part` left, while weights whose gradients need nothing of it have theirs computed. */
static bool sum_behind(struct model *m, pool_fn *weights, struct layer_part *part)
{
	if (!model_sum_begin(m))
		return false;
	pool_run_flushing(m->pool, weights, part);
	return model_sum_end(m);
}

/* Of a shard that has all rows. */
static bool tensor_backward(struct model *m, struct layer_part *part)
{
	pool_run_flushing(m->pool, mlp_rows_part, part);
	if (!sum_behind(m, mlp_weights_part, part))
		return false;
	pool_run_flushing(m->pool, middle_and_attention_part, part);
	if (!sum_behind(m, attention_weights_part, part))
		return false;
	pool_run_flushing(m->pool, input_rows_part, part);
	fold_vectors(m, part->layer, pool_threads(m->pool));
	return true;
}

/* With sequence parallelism. What was gathered is there until the call after the next one: weights that need it come before that. */
static bool sequence_backward(struct model *m, struct layer_part *part)
{
	if (model_drops(m))
		model_drop_all(m, MODEL_SITE_DOWN, part->layer, m->dout, m->dropout.ddown);
	if (!model_copy_gather(m, down_gradient(m)))
		return false;
	pool_run_flushing(m->pool, mlp_rows_part, part);
	if (!sum_behind(m, mlp_weights_part, part))
		return false;
	pool_run_flushing(m->pool, middle_rows_part, part);
	if (!model_copy_gather(m, proj_gradient(m)))
		return false;
	pool_run_flushing(m->pool, attention_rows_part, part);
	if (!sum_behind(m, attention_weights_part, part))
		return false;
	pool_run_flushing(m->pool, input_rows_part, part);
	fold_vectors(m, part->layer, pool_threads(m->pool));
	return true;
}

static void embed_part(void *arg, unsigned thread, unsigned threads)
{
	struct model *m = arg;
	size_t width = m->layout->config.width, first, last;
	real *positions = m->layout->positions == LAYOUT_NONE ? NULL
	                                                      : m->grads + m->layout->positions;
	pool_share(width, 16, thread, threads, &first, &last);
	if (m->tensor != NULL && first < last)
		model_embed_backward_part(m, model_all_rows(m, m->dout), first, last - first,
		    positions);
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
	if (model_splits_rows(m))
		return sequence_backward(m, &part) && model_progress(hooks);
	if (m->tensor != NULL)
		return tensor_backward(m, &part) && model_progress(hooks);
	pool_run_flushing(m->pool, rows_part, &part);
	if (!model_progress(hooks))
		return false;
	pool_run_flushing(m->pool, weights_part, &part);
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
	if (slot->embedded == NULL)
		return true;
	if (model_drops(m)) {
		real *to = m->dout == m->flow[0] ? m->flow[1] : m->flow[0];
		model_drop_all(m, MODEL_SITE_EMBEDDING, 0, m->dout, to);
		m->dout = to;
	}
	if (model_splits_rows(m) && !model_copy_gather(m, m->dout))
		return false;
	pool_run_flushing(m->pool, embed_part, m);
	report_final(hooks, 0);
	return true;
}
