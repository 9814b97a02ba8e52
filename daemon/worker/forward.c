/* The forward pass. N = sequences x length rows, C = width. Top to bottom:
 *
 *	x       = token_table[inputs] + position_table            [N, C]
 *	each layer:
 *	norm1   = LayerNorm(x)                                    [N, C]
 *	qkv     = norm1 Wqkv + b                                  [N, 3C]
 *	a       = attention(qkv)                                  [N, C]
 *	middle  = x + a Wproj + b                                 [N, C]
 *	norm2   = LayerNorm(middle)                               [N, C]
 *	up      = norm2 Wup + b                                   [N, 4C]
 *	x       = middle + gelu(up) Wdown + b                     [N, C]
 *
 * then head.c. A bias is written where its product is added, so adding it costs no pass of its own.
 */
#include "daemon/worker/gemm.h"
#include "daemon/worker/model_inside.h"

static void embed_part(void *arg, unsigned thread, unsigned threads)
{
	struct model *m = arg;
	size_t width = m->layout->config.width, first, last;
	const real *tokens = m->params + m->layout->tensors[LAYOUT_TOKENS].offset;
	const real *positions = m->params + m->layout->tensors[LAYOUT_POSITIONS].offset;
	pool_share(m->sequences, 1, thread, threads, &first, &last);
	for (size_t i = first; i < last; i++) {
		size_t row = i * m->length + m->first;
		m->ops->embed(m->inputs + row, tokens, positions + m->first * width,
		    m->length - m->first, width, m->embedded + row * width);
	}
}

static void attend(struct model *m, struct layer_activations *a, const struct chunk *c,
    struct thread_scratch *scratch)
{
	const struct model_config *config = &m->layout->config;
	size_t width = config->width, heads = config->heads;
	struct attention shape = { m->length, m->first, width, heads };
	for (size_t i = c->sequence; i < c->sequence + c->sequences; i++)
		m->ops->attention(&shape, a->qkv + i * m->length * 3 * width,
		    a->attended + i * m->length * width, a->row_max + i * m->length * heads,
		    a->row_scale + i * m->length * heads, scratch->attention);
}

static void layer_chunk(struct model *m, size_t layer, const struct chunk *c,
    struct thread_scratch *scratch)
{
	const struct ops *ops = m->ops;
	struct layer_activations *a = &m->layers[layer];
	size_t C = m->layout->config.width, rows = c->rows, row = c->row;
	const real *x = model_layer_input(m, layer) + row * C;
	real *norm1 = a->norm1 + row * C, *qkv = a->qkv + row * 3 * C;
	real *attended = a->attended + row * C, *middle = a->middle + row * C;
	real *norm2 = a->norm2 + row * C, *up = a->up + row * 4 * C, *out = a->out + row * C;

	ops->layernorm(x, model_param(m, layer, LAYOUT_NORM1_W),
	    model_param(m, layer, LAYOUT_NORM1_B), rows, C, norm1, a->mean1 + row, a->rstd1 + row);
	ops->bias(model_param(m, layer, LAYOUT_QKV_B), rows, 3 * C, qkv);
	gemm_nn(rows, 3 * C, C, 1, norm1, C, model_param(m, layer, LAYOUT_QKV_W), 3 * C, 1, qkv,
	    3 * C);
	attend(m, a, c, scratch);
	ops->bias_residual(x, model_param(m, layer, LAYOUT_PROJ_B), rows, C, middle);
	gemm_nn(rows, C, C, 1, attended, C, model_param(m, layer, LAYOUT_PROJ_W), C, 1, middle, C);

	ops->layernorm(middle, model_param(m, layer, LAYOUT_NORM2_W),
	    model_param(m, layer, LAYOUT_NORM2_B), rows, C, norm2, a->mean2 + row, a->rstd2 + row);
	ops->bias(model_param(m, layer, LAYOUT_UP_B), rows, 4 * C, up);
	gemm_nn(rows, 4 * C, C, 1, norm2, C, model_param(m, layer, LAYOUT_UP_W), 4 * C, 1, up,
	    4 * C);
	ops->gelu(up, rows * 4 * C, scratch->wide);
	ops->bias_residual(middle, model_param(m, layer, LAYOUT_DOWN_B), rows, C, out);
	gemm_nn(rows, C, 4 * C, 1, scratch->wide, 4 * C, model_param(m, layer, LAYOUT_DOWN_W), C, 1,
	    out, C);
}

static void layer_part(void *arg, unsigned thread, unsigned threads)
{
	struct layer_part *part = arg;
	struct chunk chunk;
	for (size_t next = 0; model_next_chunk(part->model, thread, threads, &next, &chunk);)
		layer_chunk(part->model, part->layer, &chunk, &part->model->scratch[thread]);
}

bool model_forward(struct model *model, const struct model_hooks *hooks)
{
	pool_run(model->pool, embed_part, model);
	for (size_t layer = 0; layer < model->layout->config.layers; layer++) {
		if (!model_progress(hooks))
			return false;
		struct layer_part part = { model, layer };
		pool_run(model->pool, layer_part, &part);
	}
	return true;
}
