/* The forward pass. N = sequences x length rows, C = width; Q, QKV, U and F as in model_inside.h. Top to bottom:
 *
 *	x       = token_table[inputs] (+ position_table)          [N, C]
 *	each layer:
 *	norm1   = Norm(x)                                         [N, C]
 *	qkv     = norm1 Wqkv (+ b), turned where rotary           [N, QKV]
 *	a       = attention(qkv)                                  [N, Q]
 *	middle  = x + a Wproj (+ b)                               [N, C]
 *	norm2   = Norm(middle)                                    [N, C]
 *	up      = norm2 Wup (+ b)                                 [N, U]
 *	x       = middle + activate(up) Wdown (+ b)               [N, C]
 *
 * then head.c. With dropout (dropout.h) a training step leaves some of x behind the embedding out, of the probabilities inside attention, and of a Wproj (+ b) and activate(up) Wdown (+ b). A bias is written where its product is added, so adding it costs no pass of its own. What differs between
 * architectures is in parts.c. Where the model is a shard, what comes out of Wproj and Wdown is a part of a sum over all members (tensor.c); with sequence parallelism each
 * then goes on with its own rows of x and middle, and the norms of all members are gathered (sequence.c).
 */
#include <string.h>

#include "daemon/worker/model_inside.h"

static void embed_part(void *arg, unsigned thread, unsigned threads)
{
	struct model *m = arg;
	size_t width = m->layout->config.width, first, last;
	const real *tokens = m->params + m->layout->tokens;
	const real *positions = m->layout->positions == LAYOUT_NONE
	    ? NULL
	    : m->params + m->layout->positions + m->first * width;
	model_share(m, thread, threads, &first, &last);
	for (size_t i = first; i < last; i++) {
		size_t row = i * m->length + m->first;
		real *x = m->slot->embedded + row * width;
		m->ops->embed(m->inputs + row, tokens, positions, m->length - m->first, width, x);
		if (model_drops(m))
			model_drop(m, MODEL_SITE_EMBEDDING, 0, row, m->length, x, x);
	}
}

/* norm1 or norm2 of a chunk's rows: x's, or those that were gathered. */
static void norm_chunk(const struct model *m, size_t layer, enum layout_part weight,
    const struct chunk *c, const real *x, real *y)
{
	size_t C = m->layout->config.width;
	struct norm norm = model_layer_norm(m, layer, weight, c->row);
	if (model_splits_rows(m))
		memcpy(y, model_summed(m, c->row), c->rows * C * sizeof(*y));
	else
		model_norm(m, &norm, c->rows, x + c->row * C, y);
}

static void attend(struct model *m, size_t layer, const struct chunk *c,
    struct thread_scratch *scratch)
{
	struct layer_activations *a = model_layer(m, layer);
	const struct model_config *config = &m->layout->config;
	size_t length = m->length, heads = config->heads, qkv = model_qkv(config);
	for (size_t i = c->sequence; i < c->sequence + c->sequences; i++) {
		struct dropout dropout;
		struct attention shape = model_attention(m, layer, i, &dropout);
		m->ops->attention(&shape, a->qkv + i * length * qkv,
		    a->attended + i * length * model_queries(config),
		    a->row_max + i * length * heads, a->row_scale + i * length * heads,
		    scratch->attention);
	}
}

/* y [rows, C] = residual + x W (+ b), without what is left out of the latter; `weight` is LAYOUT_PROJ_W or LAYOUT_DOWN_W. */
static void onto_stream(struct model *m, struct thread_scratch *scratch, size_t layer,
    enum layout_part weight, const struct chunk *c, const real *x, const real *residual, real *y)
{
	if (!model_drops(m)) {
		model_linear(m, scratch, layer, weight, c->rows, x, residual, y);
		return;
	}
	model_linear(m, scratch, layer, weight, c->rows, x, NULL, y);
	model_drop_onto(m, model_site_of(weight), layer, c->row, c->rows, residual, y);
}

static void attention_chunk(struct model *m, size_t layer, const struct chunk *c,
    struct thread_scratch *scratch)
{
	const struct model_config *config = &m->layout->config;
	struct layer_activations *a = model_layer(m, layer);
	size_t C = config->width, rows = c->rows, row = c->row;
	real *norm1 = a->norm1 + row * C, *qkv = a->qkv + row * model_qkv(config);
	real *attended = a->attended + row * model_queries(config);

	norm_chunk(m, layer, LAYOUT_NORM1_W, c, a->x, norm1);
	model_linear(m, scratch, layer, LAYOUT_QKV_W, rows, norm1, NULL, qkv);
	model_rotate(m, c, 1, qkv);
	attend(m, layer, c, scratch);
	if (m->tensor != NULL)
		model_linear_partial(m, scratch, layer, LAYOUT_PROJ_W, rows, attended,
		    model_partial(m, row));
	else
		onto_stream(m, scratch, layer, LAYOUT_PROJ_W, c, attended, a->x + row * C,
		    a->middle + row * C);
}

/* Up to the activation function. */
static void up_chunk(struct model *m, size_t layer, const struct chunk *c,
    struct thread_scratch *scratch)
{
	const struct model_config *config = &m->layout->config;
	struct layer_activations *a = model_layer(m, layer);
	size_t C = config->width, rows = c->rows, row = c->row;

	norm_chunk(m, layer, LAYOUT_NORM2_W, c, a->middle, a->norm2 + row * C);
	model_linear(m, scratch, layer, LAYOUT_UP_W, rows, a->norm2 + row * C, NULL,
	    a->up + row * model_up(config));
}

static void mlp_chunk(struct model *m, size_t layer, const struct chunk *c,
    struct thread_scratch *scratch)
{
	const struct model_config *config = &m->layout->config;
	struct layer_activations *a = model_layer(m, layer);
	size_t C = config->width, rows = c->rows, row = c->row;
	real *up = a->up + row * model_up(config);

	up_chunk(m, layer, c, scratch);
	model_activate(m, rows, up, scratch->wide);
	if (m->tensor != NULL)
		model_linear_partial(m, scratch, layer, LAYOUT_DOWN_W, rows, scratch->wide,
		    model_partial(m, row));
	else
		onto_stream(m, scratch, layer, LAYOUT_DOWN_W, c, scratch->wide, a->middle + row * C,
		    a->out + row * C);
}

static void attention_part(void *arg, unsigned thread, unsigned threads)
{
	struct layer_part *part = arg;
	struct chunk chunk;
	for (size_t next = 0; model_next_chunk(part->model, thread, threads, &next, &chunk);)
		attention_chunk(part->model, part->layer, &chunk, &part->model->scratch[thread]);
}

static void mlp_part(void *arg, unsigned thread, unsigned threads)
{
	struct layer_part *part = arg;
	struct chunk chunk;
	for (size_t next = 0; model_next_chunk(part->model, thread, threads, &next, &chunk);)
		mlp_chunk(part->model, part->layer, &chunk, &part->model->scratch[thread]);
}

/* A chunk stays in its thread's cache through the whole layer. */
static void layer_part(void *arg, unsigned thread, unsigned threads)
{
	struct layer_part *part = arg;
	struct chunk chunk;
	for (size_t next = 0; model_next_chunk(part->model, thread, threads, &next, &chunk);) {
		attention_chunk(part->model, part->layer, &chunk, &part->model->scratch[thread]);
		mlp_chunk(part->model, part->layer, &chunk, &part->model->scratch[thread]);
	}
}

/* Before a product that reads norm1 or norm2 of all rows. */
static bool gather_norm(struct model *m, size_t layer, enum layout_part weight, const real *x)
{
	struct norm norm = model_layer_norm(m, layer, weight, 0);
	return !model_splits_rows(m) || model_norm_gather(m, &norm, x);
}

/* Of a shard: up to where norm2 of all rows can be had. */
static bool attention_forward(struct layer_part *part)
{
	struct model *m = part->model;
	const struct layer_activations *a = model_layer(m, part->layer);
	if (!gather_norm(m, part->layer, LAYOUT_NORM1_W, a->x))
		return false;
	pool_run_flushing(m->pool, attention_part, part);
	return model_sum_onto(m, part->layer, LAYOUT_PROJ_W, a->x, a->middle) &&
	    gather_norm(m, part->layer, LAYOUT_NORM2_W, a->middle);
}

static bool layer_forward(struct model *m, size_t layer)
{
	struct layer_part part = { m, layer };
	const struct layer_activations *a = model_layer(m, layer);
	if (m->tensor == NULL) {
		pool_run_flushing(m->pool, layer_part, &part);
		return true;
	}
	if (!attention_forward(&part))
		return false;
	pool_run_flushing(m->pool, mlp_part, &part);
	return model_sum_onto(m, layer, LAYOUT_DOWN_W, a->middle, a->out);
}

static void up_part(void *arg, unsigned thread, unsigned threads)
{
	struct layer_part *part = arg;
	struct chunk chunk;
	for (size_t next = 0; model_next_chunk(part->model, thread, threads, &next, &chunk);)
		up_chunk(part->model, part->layer, &chunk, &part->model->scratch[thread]);
}

static void again_part(void *arg, unsigned thread, unsigned threads)
{
	struct layer_part *part = arg;
	struct chunk chunk;
	for (size_t next = 0; model_next_chunk(part->model, thread, threads, &next, &chunk);) {
		attention_chunk(part->model, part->layer, &chunk, &part->model->scratch[thread]);
		up_chunk(part->model, part->layer, &chunk, &part->model->scratch[thread]);
	}
}

bool model_forward_again(struct model *m, size_t layer)
{
	struct layer_part part = { m, layer };
	if (m->tensor == NULL) {
		pool_run_flushing(m->pool, again_part, &part);
		return true;
	}
	if (!attention_forward(&part))
		return false;
	pool_run_flushing(m->pool, up_part, &part);
	return true;
}

bool model_forward(struct model *m, const struct model_hooks *hooks)
{
	const struct model_slot *slot = m->slot;
	if (slot->embedded != NULL && m->tensor == NULL)
		pool_run_flushing(m->pool, embed_part, m);
	else if (slot->embedded != NULL && !model_embed_sum(m))
		return false;
	for (size_t layer = slot->first; layer < slot->first + slot->count; layer++)
		if (!model_progress(hooks) || !layer_forward(m, layer))
			return false;
	return true;
}
