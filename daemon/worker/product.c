#include <stdlib.h>

#include "daemon/worker/gemm.h"
#include "daemon/worker/model_inside.h"
#include "daemon/worker/onednn.h"

static const uint16_t *rounded(const struct model *m, const struct weights *w)
{
	return m->rounded + (w->at - m->params);
}

static bool in_bf16(const struct model *m)
{
	return m->rounded != NULL && !m->exact;
}

/* False: it is left to OpenBLAS. */
static bool in_onednn(const struct thread_scratch *s, const struct onednn_product *product,
    const real *a, const real *b, real *c)
{
#ifdef REAL_IS_DOUBLE
	(void)s, (void)product, (void)a, (void)b, (void)c;
	return false;
#else
	return s->f32 != NULL && onednn_multiply(s->f32, product, a, b, c);
#endif
}

void model_times(const struct model *m, struct thread_scratch *s, size_t n, const real *x,
    size_t x_stride, const struct weights *w, real beta, real *y, size_t y_stride)
{
	const struct onednn_product product = { n, w->columns, w->rows, { x_stride, 1 },
		{ w->columns, 1 }, y_stride, beta != 0 };
	if (in_bf16(m))
		gemm_bf16_nn(s->bf16, n, w->columns, w->rows, x, x_stride, rounded(m, w),
		    w->columns, beta, y, y_stride);
	else if (!in_onednn(s, &product, x, w->at, y))
		gemm_nn(n, w->columns, w->rows, 1, x, x_stride, w->at, w->columns, beta, y,
		    y_stride);
}

void model_times_transposed(const struct model *m, struct thread_scratch *s, size_t n,
    const real *x, size_t x_stride, const struct weights *w, real beta, real *y, size_t y_stride)
{
	const struct onednn_product product = { n, w->rows, w->columns, { x_stride, 1 },
		{ 1, w->columns }, y_stride, beta != 0 };
	if (in_bf16(m))
		gemm_bf16_nt(s->bf16, n, w->rows, w->columns, x, x_stride, rounded(m, w),
		    w->columns, beta, y, y_stride);
	else if (!in_onednn(s, &product, x, w->at, y))
		gemm_nt(n, w->rows, w->columns, 1, x, x_stride, w->at, w->columns, beta, y,
		    y_stride);
}

void model_gather(const struct model *m, struct thread_scratch *s, const real *x, size_t x_stride,
    size_t rows, const real *y, size_t y_stride, size_t columns, real *dw)
{
	size_t N = m->sequences * m->length;
	const struct onednn_product product = { rows, columns, N, { 1, x_stride }, { y_stride, 1 },
		columns, true };
	if (in_bf16(m))
		gemm_bf16_tn(s->bf16, rows, columns, N, x, x_stride, y, y_stride, 1, dw, columns);
	else if (!in_onednn(s, &product, x, y, dw))
		gemm_tn(rows, columns, N, 1, x, x_stride, y, y_stride, 1, dw, columns);
}

static void round_part(void *arg, unsigned thread, unsigned threads)
{
	struct model *m = arg;
	size_t first, last;
	pool_share(m->layout->count, 16, thread, threads, &first, &last);
	if (first < last)
		m->ops->to_bf16(m->params + first, 1, last - first, 0, m->rounded + first);
}

void model_round(struct model *m)
{
	if (m->rounded != NULL)
		pool_run_flushing(m->pool, round_part, m);
	m->stale = false;
}

static size_t largest_of(size_t a, size_t b)
{
	return a > b ? a : b;
}

/* Columns of the widest thing that is multiplied, but for the vocabulary. */
static size_t widest(const struct model_config *config)
{
	size_t wide = largest_of(config->width, model_queries(config));
	return largest_of(largest_of(wide, model_qkv(config)),
	    largest_of(config->hidden, model_up(config)));
}

/* Numbers of a product's first operand and of the second, where that is an activation or a weight. */
struct operands {
	size_t first, second, weight;
};

/* What of its arrays is used: with oneDNN a weight is read where it is, without each is there in f32 too. */
static void count_operands(struct model *m, const struct gemm_bf16 *g, const struct operands *o)
{
	bool fast = gemm_bf16_slow(g) == NULL;
	size_t second = fast ? o->second : largest_of(o->second, o->weight);
	size_t bytes = (o->first + second) * (sizeof(uint16_t) + (fast ? 0 : sizeof(real)));
	m->bytes.working += bytes;
	m->bytes.threads += bytes;
}

tr_status model_use_bf16(struct model *m, bool plain, struct tr_error *error)
{
	if (m->virtual_members != NULL)
		return virtual_use_bf16(m, plain, error);
	const struct model_config *config = &m->layout->config;
	unsigned threads = pool_threads(m->pool);
	size_t N = m->max_sequences * config->context, wide = widest(config);
	size_t chunk = largest_of(config->context, MODEL_CHUNK_ROWS);
	size_t all = largest_of(wide, m->layout->depth.head ? config->vocab : 0);
	/* First: a chunk's rows, or of a weight's gradient a thread's columns (in runs of 16) of all rows. Second: all rows. */
	struct operands o = { largest_of(chunk * all, N * (all / threads + 16)), N * wide,
		config->width * all };
	tr_status status = TR_OK;
	m->rounded = model_allocate(m->layout->count * sizeof(*m->rounded), &m->rounded_allocated);
	if (m->rounded == NULL)
		return tr_error_set(error, TR_ENOMEM, "no memory for the parameters in bf16");
	m->stale = true;
	for (unsigned t = 0; t < threads && status == TR_OK; t++) {
		status = gemm_bf16_create(m->ops, o.first, largest_of(o.second, o.weight), plain,
		    &m->scratch[t].bf16, error);
		if (status == TR_OK)
			count_operands(m, m->scratch[t].bf16, &o);
	}
	if (status != TR_OK)
		model_end_bf16(m);
	return status;
}

const char *model_bf16_slow(const struct model *m)
{
	if (m->virtual_members != NULL)
		return virtual_bf16_slow(m);
	return gemm_bf16_slow(m->scratch[0].bf16);
}

bool model_use_onednn(struct model *m)
{
	bool there = m->virtual_members == NULL;
	for (unsigned t = 0; there && t < pool_threads(m->pool); t++)
		there = onednn_create(ONEDNN_F32, &m->scratch[t].f32, NULL) == TR_OK;
	if (!there)
		model_end_onednn(m);
	return there;
}

void model_end_onednn(struct model *m)
{
	for (unsigned t = 0; m->scratch != NULL && t < pool_threads(m->pool); t++) {
		onednn_destroy(m->scratch[t].f32);
		m->scratch[t].f32 = NULL;
	}
}

void model_end_bf16(struct model *m)
{
	for (unsigned t = 0; m->scratch != NULL && t < pool_threads(m->pool); t++) {
		gemm_bf16_destroy(m->scratch[t].bf16);
		m->scratch[t].bf16 = NULL;
	}
	free(m->rounded_allocated);
	m->rounded = NULL;
}
