/* The head: last norm [N, C], logits = norm table^T [N, V] (the token table, if tied), loss; and back to the gradient of
 * the last layer's output. The loss turns a chunk's logits into their gradient while they are in
 * cache.
 */
#include <assert.h>
#include <string.h>

#include "daemon/worker/model_inside.h"

static struct weights table(const struct model *m)
{
	return (struct weights){ m->params + m->layout->head, m->layout->config.vocab,
		m->layout->config.width };
}

static void norm_and_logits(struct model *m, struct thread_scratch *s, size_t row, size_t rows,
    real *logits)
{
	const struct weights w = table(m);
	size_t C = w.columns;
	struct norm norm = model_last_norm(m, row);
	if (model_splits_rows(m))
		memcpy(m->last_norm + row * C, model_summed(m, row), rows * C * sizeof(real));
	else
		model_norm(m, &norm, rows, model_stream_end(m) + row * C, m->last_norm + row * C);
	model_times_transposed(m, s, rows, m->last_norm + row * C, C, &w, 0, logits, w.rows);
}

static void head_part(void *arg, unsigned thread, unsigned threads)
{
	struct model *m = arg;
	struct thread_scratch *s = &m->scratch[thread];
	size_t C = m->layout->config.width, V = m->layout->config.vocab;
	const struct weights w = table(m);
	const real *x = model_stream_end(m);
	struct chunk c;
	s->loss = 0;
	memset(s->vectors, 0, 2 * C * sizeof(real));
	for (size_t next = 0; model_next_chunk(m, thread, threads, &next, &c);) {
		real *logits = m->logits + c.row * V;
		norm_and_logits(m, s, c.row, c.rows, logits);
		s->loss += m->ops->softmax_loss(logits, m->targets + c.row, c.rows, V);
		if (m->dx == NULL)
			continue;
		struct norm norm = model_last_norm(m, c.row);
		model_times(m, s, c.rows, logits, V, &w, 0, s->narrow, C);
		model_norm_backward(m, &norm, c.rows, s->narrow, x + c.row * C, NULL,
		    m->dx + c.row * C, s->vectors, s->vectors + C);
	}
}

/* Of a shard the columns of the vocabulary, and what others have to add, in four parts. */

static struct columns columns_of(const struct model *m)
{
	size_t stride = m->layout->config.vocab, first = m->tensor->rank * stride;
	size_t left = first < m->tensor->vocab ? m->tensor->vocab - first : 0;
	return (struct columns){ first, left < stride ? left : stride, stride };
}

/* In the exchange, behind the stream: for each row the largest logit; then for each the sum and the target's (ops->softmax_sums). */
static size_t largest(const struct model *m)
{
	return m->max_sequences * m->layout->config.context * m->layout->config.width;
}

static size_t sums(const struct model *m)
{
	return largest(m) + m->max_sequences * m->layout->config.context;
}

static void logits_part(void *arg, unsigned thread, unsigned threads)
{
	struct model *m = arg;
	struct columns columns = columns_of(m);
	struct thread_scratch *s = &m->scratch[thread];
	struct chunk c;
	for (size_t next = 0; model_next_chunk(m, thread, threads, &next, &c);) {
		real *logits = m->logits + c.row * columns.stride;
		norm_and_logits(m, s, c.row, c.rows, logits);
		m->ops->softmax_max(&columns, logits, c.rows,
		    model_exchange(m, true) + largest(m) + c.row);
	}
}

static void sums_part(void *arg, unsigned thread, unsigned threads)
{
	struct model *m = arg;
	struct columns columns = columns_of(m);
	struct chunk c;
	for (size_t next = 0; model_next_chunk(m, thread, threads, &next, &c);)
		m->ops->softmax_sums(&columns, m->logits + c.row * columns.stride,
		    m->targets + c.row, c.rows, model_exchange(m, false) + largest(m) + c.row,
		    model_exchange(m, true) + sums(m) + 2 * c.row);
}

static void loss_part(void *arg, unsigned thread, unsigned threads)
{
	struct model *m = arg;
	struct columns columns = columns_of(m);
	struct thread_scratch *s = &m->scratch[thread];
	const struct weights w = table(m);
	size_t C = m->layout->config.width, V = columns.stride;
	struct chunk c;
	s->loss = 0;
	for (size_t next = 0; model_next_chunk(m, thread, threads, &next, &c);) {
		real *logits = m->logits + c.row * V;
		s->loss += m->ops->softmax_finish(&columns, logits, m->targets + c.row, c.rows,
		    model_exchange(m, false) + sums(m) + 2 * c.row);
		if (m->dx != NULL)
			model_times(m, s, c.rows, logits, V, &w, 0, model_partial(m, c.row), C);
	}
}

static void norm_part(void *arg, unsigned thread, unsigned threads)
{
	struct model *m = arg;
	struct thread_scratch *s = &m->scratch[thread];
	size_t C = m->layout->config.width;
	const real *x = model_stream_end(m);
	struct chunk c;
	memset(s->vectors, 0, 2 * C * sizeof(real));
	for (size_t next = 0; model_next_own(m, thread, threads, &next, &c);) {
		struct norm norm = model_last_norm(m, c.row);
		model_norm_backward(m, &norm, c.rows, model_summed(m, model_own_first(m) + c.row),
		    x + c.row * C, NULL, m->dx + c.row * C, s->vectors, s->vectors + C);
	}
}

static bool tensor_head(struct model *m)
{
	size_t rows = m->sequences * m->length;
	struct norm norm = model_last_norm(m, 0);
	if (model_splits_rows(m) && !model_norm_gather(m, &norm, model_stream_end(m)))
		return false;
	pool_run_flushing(m->pool, logits_part, m);
	if (!model_meet(m, largest(m), rows, m->tensor->maximum))
		return false;
	pool_run_flushing(m->pool, sums_part, m);
	if (!model_meet(m, sums(m), 2 * rows, m->tensor->sum))
		return false;
	pool_run_flushing(m->pool, loss_part, m);
	if (m->dx == NULL)
		return true;
	if (!model_sum(m))
		return false;
	pool_run_flushing(m->pool, norm_part, m);
	return true;
}

static void weights_part(void *arg, unsigned thread, unsigned threads)
{
	struct model *m = arg;
	const struct layout *l = m->layout;
	size_t C = l->config.width, V = l->config.vocab, first, last;
	pool_share(V, 16, thread, threads, &first, &last);
	if (first < last)
		model_gather(m, &m->scratch[thread], m->logits + first, V, last - first,
		    m->last_norm, C, C, m->grads + l->head + first * C);
	if (thread != 0)
		return;
	for (unsigned t = 0; t < threads; t++) {
		const real *v = m->scratch[t].vectors;
		m->ops->column_sums(v, 1, C, m->grads + l->last_norm_w);
		if (l->last_norm_b != LAYOUT_NONE)
			m->ops->column_sums(v + C, 1, C, m->grads + l->last_norm_b);
	}
}

bool model_head(struct model *m, real *dout, double *loss)
{
	m->dx = dout;
	if (m->tensor == NULL)
		pool_run_flushing(m->pool, head_part, m);
	else if (!tensor_head(m))
		return false;
	*loss = 0;
	for (unsigned t = 0; t < pool_threads(m->pool); t++)
		*loss += m->scratch[t].loss;
	if (dout != NULL)
		pool_run_flushing(m->pool, weights_part, m);
	return true;
}

void model_logits(struct model *m, const int32_t *inputs, size_t sequences, size_t length,
    real *logits)
{
	assert(m->tensor == NULL && m->whole != NULL);
	m->slot = m->whole;
	m->inputs = inputs;
	m->sequences = sequences;
	m->length = length;
	m->first = 0;
	m->samples = NULL;
	m->exact = true;
	(void)model_forward(m, NULL);
	norm_and_logits(m, m->scratch, 0, sequences * length, logits);
	m->exact = false;
}

void model_extend(struct model *m, const int32_t *tokens, size_t first, size_t length, real *logits)
{
	assert(m->tensor == NULL && m->whole != NULL);
	m->slot = m->whole;
	m->inputs = tokens;
	m->sequences = 1;
	m->length = length;
	m->first = first;
	m->samples = NULL;
	m->exact = true;
	(void)model_forward(m, NULL);
	norm_and_logits(m, m->scratch, length - 1, 1, logits);
	m->exact = false;
}
