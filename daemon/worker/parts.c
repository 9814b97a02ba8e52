#include <string.h>

#include "daemon/worker/model_inside.h"

struct norm model_layer_norm(const struct model *m, size_t layer, enum layout_part weight,
    size_t row)
{
	const struct layer_activations *a = model_layer(m, layer);
	bool second = weight == LAYOUT_NORM2_W;
	return (struct norm){ .weight = model_param(m, layer, weight),
		.bias = model_param(m, layer, weight + 1),
		.mean = (second ? a->mean2 : a->mean1) + row,
		.rstd = (second ? a->rstd2 : a->rstd1) + row };
}

struct norm model_last_norm(const struct model *m, size_t row)
{
	const struct layout *l = m->layout;
	return (struct norm){ .weight = m->params + l->last_norm_w,
		.bias = l->last_norm_b == LAYOUT_NONE ? NULL : m->params + l->last_norm_b,
		.mean = m->last_mean + row,
		.rstd = m->last_rstd + row };
}

void model_norm(const struct model *m, const struct norm *norm, size_t rows, const real *x, real *y)
{
	const struct model_config *c = &m->layout->config;
	real eps = (real)c->norm_eps;
	if (norm->bias != NULL)
		m->ops->layernorm(x, norm->weight, norm->bias, eps, rows, c->width, y, norm->mean,
		    norm->rstd);
	else
		m->ops->rmsnorm(x, norm->weight, eps, rows, c->width, y, norm->rstd);
}

void model_norm_backward(const struct model *m, const struct norm *norm, size_t rows,
    const real *dy, const real *x, const real *carry, real *dx, real *dweight, real *dbias)
{
	size_t width = m->layout->config.width;
	if (norm->bias != NULL)
		m->ops->layernorm_backward(dy, x, norm->weight, norm->mean, norm->rstd, carry, rows,
		    width, dx, dweight, dbias);
	else
		m->ops->rmsnorm_backward(dy, x, norm->weight, norm->rstd, carry, rows, width, dx,
		    dweight);
}

/* As it lies: [in, out] or [out, in]. */
static struct weights weights_of(const struct model *m, size_t layer, enum layout_part weight)
{
	const struct layout_place *place = &m->layout->parts[weight];
	bool out_in = m->layout->architecture->out_in;
	return (struct weights){ model_param(m, layer, weight), out_in ? place->out : place->in,
		out_in ? place->in : place->out };
}

static void forward_product(const struct model *m, struct thread_scratch *s, size_t layer,
    enum layout_part weight, size_t rows, const real *x, real beta, real *y)
{
	const struct layout_place *place = &m->layout->parts[weight];
	struct weights w = weights_of(m, layer, weight);
	if (m->layout->architecture->out_in)
		model_times_transposed(m, s, rows, x, place->in, &w, beta, y, place->out);
	else
		model_times(m, s, rows, x, place->in, &w, beta, y, place->out);
}

void model_linear(const struct model *m, struct thread_scratch *s, size_t layer,
    enum layout_part weight, size_t rows, const real *x, const real *residual, real *y)
{
	const real *bias = model_param(m, layer, weight + 1);
	size_t out = m->layout->parts[weight].out;
	real beta = residual != NULL || bias != NULL ? 1 : 0;
	if (residual != NULL && bias != NULL)
		m->ops->bias_residual(residual, bias, rows, out, y);
	else if (residual != NULL)
		memcpy(y, residual, rows * out * sizeof(*y));
	else if (bias != NULL)
		m->ops->bias(bias, rows, out, y);
	forward_product(m, s, layer, weight, rows, x, beta, y);
}

void model_linear_partial(const struct model *m, struct thread_scratch *s, size_t layer,
    enum layout_part weight, size_t rows, const real *x, real *partial)
{
	forward_product(m, s, layer, weight, rows, x, 0, partial);
}

void model_linear_backward(const struct model *m, struct thread_scratch *s, size_t layer,
    enum layout_part weight, size_t rows, const real *dy, real *dx, size_t dx_stride)
{
	struct weights w = weights_of(m, layer, weight);
	size_t out = m->layout->parts[weight].out;
	if (m->layout->architecture->out_in)
		model_times(m, s, rows, dy, out, &w, 0, dx, dx_stride);
	else
		model_times_transposed(m, s, rows, dy, out, &w, 0, dx, dx_stride);
}

void model_bias_backward(const struct model *m, struct thread_scratch *s, enum layout_part weight,
    size_t rows, const real *dy)
{
	const struct layout_place *bias = &m->layout->parts[weight + 1];
	if (bias->offset != LAYOUT_NONE)
		m->ops->column_sums(dy, rows, m->layout->parts[weight].out,
		    s->vectors + bias->vector);
}

/* dw[rows, columns] += x[N, rows]^T y[N, columns], this thread's rows of dw. */
static void weight_share(const struct model *m, const real *x, size_t x_stride, size_t rows,
    const real *y, size_t y_stride, size_t columns, real *dw, unsigned thread, unsigned threads)
{
	size_t first, last;
	pool_share(rows, 16, thread, threads, &first, &last);
	if (first < last)
		model_gather(m, &m->scratch[thread], x + first, x_stride, last - first, y, y_stride,
		    columns, dw + first * columns);
}

void model_linear_weights(const struct model *m, size_t layer, enum layout_part weight,
    const real *x, size_t x_stride, const real *dy, unsigned thread, unsigned threads)
{
	const struct layout_place *place = &m->layout->parts[weight];
	real *dw = m->grads + layout_layer(m->layout, layer, weight);
	size_t in = place->in, out = place->out;
	if (m->layout->architecture->out_in)
		weight_share(m, dy, out, out, x, x_stride, in, dw, thread, threads);
	else
		weight_share(m, x, x_stride, in, dy, out, out, dw, thread, threads);
}

void model_activate(const struct model *m, size_t rows, const real *up, real *out)
{
	size_t hidden = m->layout->config.hidden;
	if (m->layout->architecture->gated)
		m->ops->swiglu(up, rows, hidden, out);
	else
		m->ops->gelu(up, rows * hidden, out);
}

void model_activate_backward(const struct model *m, size_t rows, real *up, real *dup)
{
	size_t hidden = m->layout->config.hidden;
	if (m->layout->architecture->gated)
		m->ops->swiglu_backward(up, dup, rows, hidden);
	else
		m->ops->gelu_backward(up, dup, rows * hidden);
}

void model_rotate(const struct model *m, const struct chunk *chunk, real direction, real *qkv)
{
	const struct model_config *c = &m->layout->config;
	if (!m->layout->architecture->rotary)
		return;
	struct rotation shape = { .first = m->first,
		.rows = m->length - m->first,
		.heads = (size_t)c->heads + c->kv_heads,
		.head = c->head_width,
		.stride = model_qkv(c),
		.cos = m->cos,
		.sin = m->sin };
	for (size_t i = 0; i < chunk->sequences; i++)
		m->ops->rotate(&shape, direction, qkv + i * m->length * shape.stride);
}
