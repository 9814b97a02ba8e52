/* The backward pass: forward.c from bottom to top. For each layer first the gradients of
 * activations, by sequences (rows_part), then those of weights, by rows of the weights
 * (weights_part). dX = dY W^T, dW += X^T dY, db += column sums of dY.
 */
#include <string.h>

#include "daemon/worker/gemm.h"
#include "daemon/worker/model_inside.h"

static void attend_backward(struct model *m, const struct layer_activations *a,
    const struct chunk *c, const real *dattended, struct thread_scratch *scratch)
{
	const struct model_config *config = &m->layout->config;
	size_t width = config->width, heads = config->heads;
	struct attention shape = { m->length, 0, width, heads };
	for (size_t i = c->sequence; i < c->sequence + c->sequences; i++) {
		size_t row = i * m->length;
		m->ops->attention_backward(&shape, a->qkv + row * 3 * width,
		    a->attended + row * width, a->row_max + row * heads, a->row_scale + row * heads,
		    dattended + (row - c->row) * width, m->dqkv + row * 3 * width,
		    scratch->attention);
	}
}

static void layer_chunk_backward(struct model *m, size_t layer, const struct chunk *c,
    struct thread_scratch *s)
{
	const struct ops *ops = m->ops;
	struct layer_activations *a = &m->layers[layer];
	size_t C = m->layout->config.width, rows = c->rows, row = c->row;
	const real *x = model_layer_input(m, layer) + row * C, *dout = m->dout + row * C;
	real *dup = m->dup + row * 4 * C, *dmiddle = m->dmiddle + row * C;
	real *dqkv = m->dqkv + row * 3 * C, *dx = m->dx + row * C, *v = s->vectors;

	gemm_nt(rows, 4 * C, C, 1, dout, C, model_param(m, layer, LAYOUT_DOWN_W), C, 0, dup, 4 * C);
	ops->column_sums(dout, rows, C, v + VECTOR_DOWN_B * C);
	ops->gelu_backward(a->up + row * 4 * C, dup, rows * 4 * C);
	ops->column_sums(dup, rows, 4 * C, v + VECTOR_UP_B * C);
	gemm_nt(rows, C, 4 * C, 1, dup, 4 * C, model_param(m, layer, LAYOUT_UP_W), 4 * C, 0,
	    s->narrow, C);
	ops->layernorm_backward(s->narrow, a->middle + row * C,
	    model_param(m, layer, LAYOUT_NORM2_W), a->mean2 + row, a->rstd2 + row, dout, rows, C,
	    dmiddle, v + VECTOR_NORM2_W * C, v + VECTOR_NORM2_B * C);

	gemm_nt(rows, C, C, 1, dmiddle, C, model_param(m, layer, LAYOUT_PROJ_W), C, 0, s->narrow, C);
	ops->column_sums(dmiddle, rows, C, v + VECTOR_PROJ_B * C);
	attend_backward(m, a, c, s->narrow, s);
	ops->column_sums(dqkv, rows, 3 * C, v + VECTOR_QKV_B * C);
	gemm_nt(rows, C, 3 * C, 1, dqkv, 3 * C, model_param(m, layer, LAYOUT_QKV_W), 3 * C, 0,
	    s->narrow, C);
	ops->layernorm_backward(s->narrow, x, model_param(m, layer, LAYOUT_NORM1_W), a->mean1 + row,
	    a->rstd1 + row, dmiddle, rows, C, dx, v + VECTOR_NORM1_W * C, v + VECTOR_NORM1_B * C);
}

static void rows_part(void *arg, unsigned thread, unsigned threads)
{
	struct layer_part *part = arg;
	struct model *m = part->model;
	struct thread_scratch *scratch = &m->scratch[thread];
	struct chunk chunk;
	memset(scratch->vectors, 0, VECTORS * m->layout->config.width * sizeof(real));
	for (size_t next = 0; model_next_chunk(m, thread, threads, &next, &chunk);)
		layer_chunk_backward(m, part->layer, &chunk, scratch);
}

/* dw[in, out] += x[N, in]^T dy[N, out], this thread's rows of dw. */
static void weight_share(struct model *m, const real *x, size_t in, const real *dy, size_t out,
    size_t offset, unsigned thread, unsigned threads)
{
	size_t first, last;
	pool_share(in, 16, thread, threads, &first, &last);
	if (first < last)
		gemm_tn(last - first, out, m->sequences * m->length, 1, x + first, in, dy, out, 1,
		    m->grads + offset + first * out, out);
}

static void fold_vectors(struct model *m, size_t layer, unsigned threads)
{
	static const struct {
		enum layout_in_layer tensor;
		unsigned from, widths;
	} vectors[] = {
		{ LAYOUT_NORM1_W, VECTOR_NORM1_W, 1 },
		{ LAYOUT_NORM1_B, VECTOR_NORM1_B, 1 },
		{ LAYOUT_QKV_B, VECTOR_QKV_B, 3 },
		{ LAYOUT_PROJ_B, VECTOR_PROJ_B, 1 },
		{ LAYOUT_NORM2_W, VECTOR_NORM2_W, 1 },
		{ LAYOUT_NORM2_B, VECTOR_NORM2_B, 1 },
		{ LAYOUT_UP_B, VECTOR_UP_B, 4 },
		{ LAYOUT_DOWN_B, VECTOR_DOWN_B, 1 },
	};
	size_t width = m->layout->config.width;
	for (size_t i = 0; i < sizeof(vectors) / sizeof(vectors[0]); i++) {
		real *to = m->grads + layout_layer(m->layout, layer, vectors[i].tensor);
		for (unsigned t = 0; t < threads; t++)
			m->ops->column_sums(m->scratch[t].vectors + vectors[i].from * width, 1,
			    vectors[i].widths * width, to);
	}
}

static void weights_part(void *arg, unsigned thread, unsigned threads)
{
	struct layer_part *part = arg;
	struct model *m = part->model;
	const struct layout *l = m->layout;
	const struct layer_activations *a = &m->layers[part->layer];
	size_t C = l->config.width, layer = part->layer;
	weight_share(m, a->up, 4 * C, m->dout, C, layout_layer(l, layer, LAYOUT_DOWN_W), thread,
	    threads);
	weight_share(m, a->norm2, C, m->dup, 4 * C, layout_layer(l, layer, LAYOUT_UP_W), thread,
	    threads);
	weight_share(m, a->attended, C, m->dmiddle, C, layout_layer(l, layer, LAYOUT_PROJ_W),
	    thread, threads);
	weight_share(m, a->norm1, C, m->dqkv, 3 * C, layout_layer(l, layer, LAYOUT_QKV_W), thread,
	    threads);
	if (thread == 0)
		fold_vectors(m, layer, threads);
}

static void embed_part(void *arg, unsigned thread, unsigned threads)
{
	struct model *m = arg;
	size_t width = m->layout->config.width, first, last;
	pool_share(width, 16, thread, threads, &first, &last);
	for (size_t i = 0; i < m->sequences && first < last; i++)
		m->ops->embed_backward(m->inputs + i * m->length, m->dout + i * m->length * width,
		    m->length, width, first, last - first,
		    m->grads + m->layout->tensors[LAYOUT_TOKENS].offset,
		    m->grads + m->layout->tensors[LAYOUT_POSITIONS].offset);
}

static void report_final(const struct model_hooks *hooks, size_t offset)
{
	if (hooks != NULL && hooks->gradients_final != NULL)
		hooks->gradients_final(hooks->arg, offset);
}

bool model_backward(struct model *m, const struct model_hooks *hooks)
{
	report_final(hooks, layout_last_norm(m->layout, 0));
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
