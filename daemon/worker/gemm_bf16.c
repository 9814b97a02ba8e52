#include "daemon/worker/gemm_bf16.h"

#include <assert.h>
#include <stdlib.h>

#include "daemon/worker/gemm.h"
#include "daemon/worker/onednn.h"

struct gemm_bf16 {
	const struct ops *ops;
	struct onednn *onednn; /* NULL: plain */
	struct tr_error slow;
	size_t a_numbers, b_numbers;
	uint16_t *a, *b;
	real *a_wide, *b_wide; /* plain: the same numbers. Pages that nobody uses cost nothing */
};

static void *numbers(size_t count, size_t bytes)
{
	return aligned_alloc(64, (count * bytes + 63) / 64 * 64);
}

tr_status gemm_bf16_create(const struct ops *ops, size_t a_numbers, size_t b_numbers, bool plain,
    struct gemm_bf16 **out, struct tr_error *error)
{
	struct gemm_bf16 *g = calloc(1, sizeof(*g));
	if (g == NULL)
		return tr_error_set(error, TR_ENOMEM, "no memory for products of bf16");
	g->ops = ops;
	g->a_numbers = a_numbers;
	g->b_numbers = b_numbers;
	g->a = numbers(a_numbers, sizeof(*g->a));
	g->b = numbers(b_numbers, sizeof(*g->b));
	g->a_wide = numbers(a_numbers, sizeof(*g->a_wide));
	g->b_wide = numbers(b_numbers, sizeof(*g->b_wide));
	if (g->a == NULL || g->b == NULL || g->a_wide == NULL || g->b_wide == NULL) {
		gemm_bf16_destroy(g);
		return tr_error_set(error, TR_ENOMEM,
		    "no memory for products of bf16 (%zu and %zu numbers)", a_numbers, b_numbers);
	}
	if (plain)
		(void)tr_error_set(&g->slow, TR_OK, "plain products were asked for");
	else if (onednn_create(ONEDNN_BF16, &g->onednn, &g->slow) != TR_OK)
		g->onednn = NULL;
	*out = g;
	return TR_OK;
}

void gemm_bf16_destroy(struct gemm_bf16 *g)
{
	if (g == NULL)
		return;
	onednn_destroy(g->onednn);
	free(g->a);
	free(g->b);
	free(g->a_wide);
	free(g->b_wide);
	free(g);
}

const char *gemm_bf16_slow(const struct gemm_bf16 *g)
{
	return g->onednn != NULL ? NULL : g->slow.text;
}

/* A as it was rounded, into g->a: rows of `columns`, without gaps. */
static void round_a(struct gemm_bf16 *g, const real *a, size_t rows, size_t columns, size_t stride)
{
	assert(rows * columns <= g->a_numbers);
	g->ops->to_bf16(a, rows, columns, stride, g->a);
}

static void widen_a(struct gemm_bf16 *g, size_t rows, size_t columns)
{
	g->ops->from_bf16(g->a, rows, columns, columns, g->a_wide);
}

static void widen_b(struct gemm_bf16 *g, const uint16_t *b, size_t rows, size_t columns,
    size_t stride)
{
	assert(rows * columns <= g->b_numbers);
	g->ops->from_bf16(b, rows, columns, stride, g->b_wide);
}

/* False: the plain way is left. */
static bool multiply(struct gemm_bf16 *g, const struct onednn_product *product, const uint16_t *b,
    real *c)
{
#ifdef REAL_IS_DOUBLE
	(void)g, (void)product, (void)b, (void)c;
	return false;
#else
	return g->onednn != NULL && onednn_multiply(g->onednn, product, g->a, b, c);
#endif
}

void gemm_bf16_nn(struct gemm_bf16 *g, size_t m, size_t n, size_t k, const real *a, size_t a_stride,
    const uint16_t *b, size_t b_stride, real beta, real *c, size_t c_stride)
{
	const struct onednn_product product = { m, n, k, { k, 1 }, { b_stride, 1 }, c_stride,
		beta != 0 };
	round_a(g, a, m, k, a_stride);
	if (multiply(g, &product, b, c))
		return;
	widen_a(g, m, k);
	widen_b(g, b, k, n, b_stride);
	gemm_nn(m, n, k, 1, g->a_wide, k, g->b_wide, n, beta, c, c_stride);
}

void gemm_bf16_nt(struct gemm_bf16 *g, size_t m, size_t n, size_t k, const real *a, size_t a_stride,
    const uint16_t *b, size_t b_stride, real beta, real *c, size_t c_stride)
{
	const struct onednn_product product = { m, n, k, { k, 1 }, { 1, b_stride }, c_stride,
		beta != 0 };
	round_a(g, a, m, k, a_stride);
	if (multiply(g, &product, b, c))
		return;
	widen_a(g, m, k);
	widen_b(g, b, n, k, b_stride);
	gemm_nt(m, n, k, 1, g->a_wide, k, g->b_wide, k, beta, c, c_stride);
}

void gemm_bf16_tn(struct gemm_bf16 *g, size_t m, size_t n, size_t k, const real *a, size_t a_stride,
    const real *b, size_t b_stride, real beta, real *c, size_t c_stride)
{
	const struct onednn_product product = { m, n, k, { 1, m }, { n, 1 }, c_stride, beta != 0 };
	round_a(g, a, k, m, a_stride);
	assert(k * n <= g->b_numbers);
	g->ops->to_bf16(b, k, n, b_stride, g->b);
	if (multiply(g, &product, g->b, c))
		return;
	widen_a(g, k, m);
	widen_b(g, g->b, k, n, n);
	gemm_tn(m, n, k, 1, g->a_wide, m, g->b_wide, n, beta, c, c_stride);
}
