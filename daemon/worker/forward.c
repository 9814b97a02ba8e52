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
 * then head.c. A bias is written where its product is added, so adding it costs no pass of its own. What differs between
 * architectures is in parts.c. Where the model is a shard, what comes out of Wproj and Wdown is a part of a sum over all members (tensor.c).
 */
#include "daemon/worker/model_inside.h"

static void embed_part(void *arg, unsigned thread, unsigned threads)
{
	struct model *m = arg;
	size_t width = m->layout->config.width, first, last;
	const real *tokens = m->params + m->layout->tokens;
	const real *positions = m->layout->positions == LAYOUT_NONE
	    ? NULL
	    : m->params + m->layout->positions + m->first * width;
	pool_share(m->sequences, 1, thread, threads, &first, &last);
	for (size_t i = first; i < last; i++) {
		size_t row = i * m->length + m->first;
		m->ops->embed(m->inputs + row, tokens, positions, m->length - m->first, width,
		    m->embedded + row * width);
	}
}

static void attend(struct model *m, struct layer_activations *a, const struct chunk *c,
    struct thread_scratch *scratch)
{
	const struct model_config *config = &m->layout->config;
	size_t length = m->length, heads = config->heads, qkv = model_qkv(config);
	struct attention shape = { length, m->first, heads, config->kv_heads, config->head_width };
	for (size_t i = c->sequence; i < c->sequence + c->sequences; i++)
		m->ops->attention(&shape, a->qkv + i * length * qkv,
		    a->attended + i * length * model_queries(config),
		    a->row_max + i * length * heads, a->row_scale + i * length * heads,
		    scratch->attention);
}

static void attention_chunk(struct model *m, size_t layer, const struct chunk *c,
    struct thread_scratch *scratch)
{
	const struct model_config *config = &m->layout->config;
	struct layer_activations *a = &m->layers[layer];
	size_t C = config->width, rows = c->rows, row = c->row;
	const real *x = model_layer_input(m, layer) + row * C;
	real *norm1 = a->norm1 + row * C, *qkv = a->qkv + row * model_qkv(config);
	real *attended = a->attended + row * model_queries(config);
	struct norm norm = model_layer_norm(m, layer, LAYOUT_NORM1_W, row);

	model_norm(m, &norm, rows, x, norm1);
	model_linear(m, layer, LAYOUT_QKV_W, rows, norm1, NULL, qkv);
	model_rotate(m, c, 1, qkv);
	attend(m, a, c, scratch);
	if (m->tensor != NULL)
		model_linear_partial(m, layer, LAYOUT_PROJ_W, rows, attended, model_partial(m, row));
	else
		model_linear(m, layer, LAYOUT_PROJ_W, rows, attended, x, a->middle + row * C);
}

static void mlp_chunk(struct model *m, size_t layer, const struct chunk *c,
    struct thread_scratch *scratch)
{
	const struct model_config *config = &m->layout->config;
	struct layer_activations *a = &m->layers[layer];
	size_t C = config->width, rows = c->rows, row = c->row;
	real *middle = a->middle + row * C, *norm2 = a->norm2 + row * C;
	real *up = a->up + row * model_up(config);
	struct norm norm = model_layer_norm(m, layer, LAYOUT_NORM2_W, row);

	model_norm(m, &norm, rows, middle, norm2);
	model_linear(m, layer, LAYOUT_UP_W, rows, norm2, NULL, up);
	model_activate(m, rows, up, scratch->wide);
	if (m->tensor != NULL)
		model_linear_partial(m, layer, LAYOUT_DOWN_W, rows, scratch->wide,
		    model_partial(m, row));
	else
		model_linear(m, layer, LAYOUT_DOWN_W, rows, scratch->wide, middle, a->out + row * C);
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

static bool layer_forward(struct model *m, size_t layer)
{
	struct layer_part part = { m, layer };
	const struct layer_activations *a = &m->layers[layer];
	if (m->tensor == NULL) {
		pool_run(m->pool, layer_part, &part);
		return true;
	}
	pool_run(m->pool, attention_part, &part);
	if (!model_sum_onto(m, layer, LAYOUT_PROJ_W, model_layer_input(m, layer), a->middle))
		return false;
	pool_run(m->pool, mlp_part, &part);
	return model_sum_onto(m, layer, LAYOUT_DOWN_W, a->middle, a->out);
}

bool model_forward(struct model *model, const struct model_hooks *hooks)
{
	if (model->tensor == NULL)
		pool_run(model->pool, embed_part, model);
	else if (!model_embed_sum(model))
		return false;
	for (size_t layer = 0; layer < model->layout->config.layers; layer++)
		if (!model_progress(hooks) || !layer_forward(model, layer))
			return false;
	return true;
}
