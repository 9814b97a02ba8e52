/* The head: last norm [N, C], logits = norm table^T [N, V] (the token table, if tied), loss; and back to the gradient of
 * the last layer's output. The loss turns a chunk's logits into their gradient while they are in
 * cache.
 */
#include <string.h>

#include "daemon/worker/gemm.h"
#include "daemon/worker/model_inside.h"

static const real *table(const struct model *m)
{
	return m->params + m->layout->head;
}

static void norm_and_logits(struct model *m, size_t row, size_t rows, real *logits)
{
	size_t C = m->layout->config.width, V = m->layout->config.vocab;
	const real *x = model_layer_input(m, m->layout->config.layers) + row * C;
	struct norm norm = model_last_norm(m, row);
	model_norm(m, &norm, rows, x, m->last_norm + row * C);
	gemm_nt(rows, V, C, 1, m->last_norm + row * C, C, table(m), C, 0, logits, V);
}

static void head_part(void *arg, unsigned thread, unsigned threads)
{
	struct model *m = arg;
	struct thread_scratch *s = &m->scratch[thread];
	size_t C = m->layout->config.width, V = m->layout->config.vocab;
	const real *x = model_layer_input(m, m->layout->config.layers);
	struct chunk c;
	s->loss = 0;
	memset(s->vectors, 0, 2 * C * sizeof(real));
	for (size_t next = 0; model_next_chunk(m, thread, threads, &next, &c);) {
		real *logits = m->logits + c.row * V;
		norm_and_logits(m, c.row, c.rows, logits);
		s->loss += m->ops->softmax_loss(logits, m->targets + c.row, c.rows, V);
		if (!m->train)
			continue;
		struct norm norm = model_last_norm(m, c.row);
		gemm_nn(c.rows, C, V, 1, logits, V, table(m), C, 0, s->narrow, C);
		model_norm_backward(m, &norm, c.rows, s->narrow, x + c.row * C, NULL,
		    m->dout + c.row * C, s->vectors, s->vectors + C);
	}
}

static void weights_part(void *arg, unsigned thread, unsigned threads)
{
	struct model *m = arg;
	const struct layout *l = m->layout;
	size_t C = l->config.width, V = l->config.vocab, first, last;
	pool_share(V, 16, thread, threads, &first, &last);
	if (first < last)
		gemm_tn(last - first, C, m->sequences * m->length, 1, m->logits + first, V,
		    m->last_norm, C, 1, m->grads + l->head + first * C, C);
	if (thread != 0)
		return;
	for (unsigned t = 0; t < threads; t++) {
		const real *v = m->scratch[t].vectors;
		m->ops->column_sums(v, 1, C, m->grads + l->last_norm_w);
		if (l->last_norm_b != LAYOUT_NONE)
			m->ops->column_sums(v + C, 1, C, m->grads + l->last_norm_b);
	}
}

double model_head(struct model *m)
{
	double loss = 0;
	pool_run(m->pool, head_part, m);
	for (unsigned t = 0; t < pool_threads(m->pool); t++)
		loss += m->scratch[t].loss;
	if (m->train)
		pool_run(m->pool, weights_part, m);
	return loss;
}

void model_logits(struct model *m, const int32_t *inputs, size_t sequences, size_t length,
    real *logits)
{
	m->inputs = inputs;
	m->sequences = sequences;
	m->length = length;
	m->first = 0;
	(void)model_forward(m, NULL);
	norm_and_logits(m, 0, sequences * length, logits);
}

void model_extend(struct model *m, const int32_t *tokens, size_t first, size_t length, real *logits)
{
	m->inputs = tokens;
	m->sequences = 1;
	m->length = length;
	m->first = first;
	(void)model_forward(m, NULL);
	norm_and_logits(m, length - 1, 1, logits);
}
