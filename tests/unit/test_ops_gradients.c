/* Every op's derivative against central differences, in double. */
#define REAL_IS_DOUBLE
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/rng.h"
#include "daemon/worker/gemm.c"
#include "daemon/worker/ops_all.h"
#include "daemon/worker/rope.c"

#define STEP 1e-6

static double noise(uint64_t stream, size_t i)
{
	return rng_normal(rng_key(7, 0, 0), stream, i);
}

static double *filled(uint64_t stream, size_t count)
{
	double *x = malloc(count * sizeof(*x));
	assert_non_null(x);
	for (size_t i = 0; i < count; i++)
		x[i] = noise(stream, i);
	return x;
}

static double *zeroed(size_t count)
{
	double *x = calloc(count, sizeof(*x));
	if (x == NULL)
		abort();
	return x;
}

/* The scalar whose derivative is taken: sum of weights * forward(inputs). */
typedef double loss_fn(const void *arg);

static void assert_derivative(double *x, size_t count, const double *dx, loss_fn *loss,
    const void *arg)
{
	for (size_t i = 0; i < count; i++) {
		double kept = x[i];
		x[i] = kept + STEP;
		double up = loss(arg);
		x[i] = kept - STEP;
		double down = loss(arg);
		x[i] = kept;
		double expected = (up - down) / (2 * STEP);
		double error = fabs(expected - dx[i]) / fmax(1, fabs(expected));
		if (!(error < 1e-7))
			fail_msg("element %zu of %zu: derivative %.12g, differences give %.12g", i,
			    count, dx[i], expected);
	}
}

static double weighted(const double *y, const double *weights, size_t count)
{
	double sum = 0;
	for (size_t i = 0; i < count; i++)
		sum += y[i] * weights[i];
	return sum;
}

enum { ROWS = 5, WIDTH = 37 };

struct norm_case {
	double *x, *weight, *bias, *out_weights;
};

static double norm_loss(const void *arg)
{
	const struct norm_case *c = arg;
	double y[ROWS * WIDTH], mean[ROWS], rstd[ROWS];
	OP(layernorm)(c->x, c->weight, c->bias, 1e-5, ROWS, WIDTH, y, mean, rstd);
	return weighted(y, c->out_weights, ROWS * WIDTH);
}

static void test_layernorm(void **state)
{
	(void)state;
	struct norm_case c = { filled(1, ROWS * WIDTH), filled(2, WIDTH), filled(3, WIDTH),
		filled(4, ROWS * WIDTH) };
	double y[ROWS * WIDTH], mean[ROWS], rstd[ROWS], dx[ROWS * WIDTH];
	double dweight[WIDTH] = { 0 }, dbias[WIDTH] = { 0 };
	OP(layernorm)(c.x, c.weight, c.bias, 1e-5, ROWS, WIDTH, y, mean, rstd);
	OP(layernorm_backward)
	(c.out_weights, c.x, c.weight, mean, rstd, NULL, ROWS, WIDTH, dx, dweight, dbias);
	assert_derivative(c.x, ROWS * WIDTH, dx, norm_loss, &c);
	assert_derivative(c.weight, WIDTH, dweight, norm_loss, &c);
	assert_derivative(c.bias, WIDTH, dbias, norm_loss, &c);

	/* With a carry, and in place of it. */
	double carried[ROWS * WIDTH];
	double *carry = filled(5, ROWS * WIDTH);
	memcpy(carried, carry, sizeof(carried));
	OP(layernorm_backward)
	(c.out_weights, c.x, c.weight, mean, rstd, carried, ROWS, WIDTH, carried, dweight, dbias);
	for (size_t i = 0; i < ROWS * WIDTH; i++)
		assert_true(fabs(carried[i] - carry[i] - dx[i]) < 1e-14);
	free(carry);
	free(c.x);
	free(c.weight);
	free(c.bias);
	free(c.out_weights);
}

static double rmsnorm_loss(const void *arg)
{
	const struct norm_case *c = arg;
	double y[ROWS * WIDTH], rstd[ROWS];
	OP(rmsnorm)(c->x, c->weight, 0.01, ROWS, WIDTH, y, rstd);
	return weighted(y, c->out_weights, ROWS * WIDTH);
}

static void test_rmsnorm(void **state)
{
	(void)state;
	struct norm_case c = { filled(1, ROWS * WIDTH), filled(2, WIDTH), NULL,
		filled(4, ROWS * WIDTH) };
	double y[ROWS * WIDTH], rstd[ROWS], dx[ROWS * WIDTH], dweight[WIDTH] = { 0 };
	OP(rmsnorm)(c.x, c.weight, 0.01, ROWS, WIDTH, y, rstd);
	for (size_t i = 0; i < ROWS * WIDTH; i++) {
		const double *row = c.x + i / WIDTH * WIDTH;
		double root = sqrt(weighted(row, row, WIDTH) / WIDTH + 0.01);
		assert_true(fabs(y[i] - c.x[i] / root * c.weight[i % WIDTH]) < 1e-13);
	}
	OP(rmsnorm_backward)
	(c.out_weights, c.x, c.weight, rstd, NULL, ROWS, WIDTH, dx, dweight);
	assert_derivative(c.x, ROWS * WIDTH, dx, rmsnorm_loss, &c);
	assert_derivative(c.weight, WIDTH, dweight, rmsnorm_loss, &c);

	double carried[ROWS * WIDTH], *carry = filled(5, ROWS * WIDTH);
	memcpy(carried, carry, sizeof(carried));
	OP(rmsnorm_backward)
	(c.out_weights, c.x, c.weight, rstd, carried, ROWS, WIDTH, carried, dweight);
	for (size_t i = 0; i < ROWS * WIDTH; i++)
		assert_true(fabs(carried[i] - carry[i] - dx[i]) < 1e-14);
	free(carry);
	free(c.x);
	free(c.weight);
	free(c.out_weights);
}

struct gelu_case {
	double *x, *out_weights;
};

static double gelu_loss(const void *arg)
{
	const struct gelu_case *c = arg;
	double y[WIDTH];
	OP(gelu)(c->x, WIDTH, y);
	return weighted(y, c->out_weights, WIDTH);
}

static void test_gelu(void **state)
{
	(void)state;
	struct gelu_case c = { filled(1, WIDTH), filled(2, WIDTH) };
	double x[WIDTH], y[WIDTH], dy[WIDTH];
	c.x[0] = -9;
	c.x[1] = 9;
	memcpy(x, c.x, sizeof(x));
	memcpy(dy, c.out_weights, sizeof(dy));
	OP(gelu)(c.x, WIDTH, y);
	OP(gelu_backward)(x, dy, WIDTH);
	for (size_t i = 0; i < WIDTH; i++) {
		double u = 0.7978845608028654 * (c.x[i] + 0.044715 * pow(c.x[i], 3));
		assert_true(fabs(y[i] - 0.5 * c.x[i] * (1 + tanh(u))) < 1e-14);
		assert_true(fabs(x[i] - y[i]) < 1e-14);
	}
	assert_derivative(c.x, WIDTH, dy, gelu_loss, &c);
	free(c.x);
	free(c.out_weights);
}

static double swiglu_loss(const void *arg)
{
	const struct gelu_case *c = arg;
	double y[ROWS * WIDTH];
	OP(swiglu)(c->x, ROWS, WIDTH, y);
	return weighted(y, c->out_weights, ROWS * WIDTH);
}

static void test_swiglu(void **state)
{
	(void)state;
	struct gelu_case c = { filled(1, 2 * ROWS * WIDTH), filled(2, ROWS * WIDTH) };
	double x[2 * ROWS * WIDTH], y[ROWS * WIDTH], dy[2 * ROWS * WIDTH];
	c.x[0] = -40;
	c.x[1] = 40;
	memcpy(x, c.x, sizeof(x));
	OP(swiglu)(c.x, ROWS, WIDTH, y);
	for (size_t row = 0; row < ROWS; row++)
		memcpy(dy + 2 * row * WIDTH, c.out_weights + row * WIDTH, WIDTH * sizeof(double));
	OP(swiglu_backward)(x, dy, ROWS, WIDTH);
	for (size_t i = 0; i < ROWS * WIDTH; i++) {
		size_t at = i / WIDTH * 2 * WIDTH + i % WIDTH;
		double silu = c.x[at] / (1 + exp(-c.x[at]));
		assert_true(fabs(y[i] - silu * c.x[at + WIDTH]) < 1e-13);
		assert_true(fabs(x[at] - y[i]) < 1e-13);
	}
	assert_derivative(c.x, 2 * ROWS * WIDTH, dy, swiglu_loss, &c);
	free(c.x);
	free(c.out_weights);
}

enum { HEADS = 3, HEAD = 6, STRIDE = HEADS * HEAD + 5 };

struct rotation_case {
	struct rotation shape;
	double *x, *out_weights;
};

static double rotation_loss(const void *arg)
{
	const struct rotation_case *c = arg;
	double y[ROWS * STRIDE];
	memcpy(y, c->x, sizeof(y));
	OP(rotate)(&c->shape, 1, y);
	return weighted(y, c->out_weights, ROWS * STRIDE);
}

/* Rows of positions 2 to 6; what lies beside the heads stays. */
static void test_rotate(void **state)
{
	(void)state;
	enum { FIRST = 2, CONTEXT = FIRST + ROWS };
	double cosines[CONTEXT * HEAD / 2], sines[CONTEXT * HEAD / 2];
	rope_tables(CONTEXT, HEAD, 100, cosines, sines);
	struct rotation_case c = { { FIRST, ROWS, HEADS, HEAD, STRIDE, cosines, sines },
		filled(1, ROWS * STRIDE), filled(2, ROWS * STRIDE) };
	double y[ROWS * STRIDE], dx[ROWS * STRIDE];
	memcpy(y, c.x, sizeof(y));
	OP(rotate)(&c.shape, 1, y);
	for (size_t i = 0; i < ROWS * STRIDE; i++) {
		size_t column = i % STRIDE, k = column % HEAD, half = HEAD / 2;
		size_t position = FIRST + i / STRIDE;
		double pair = (double)(k % half), t = (double)position;
		double angle = t * pow(100, -2 * pair / HEAD), expected = c.x[i];
		if (column < HEADS * HEAD)
			expected = k < half ? c.x[i] * cos(angle) - c.x[i + half] * sin(angle)
			                    : c.x[i] * cos(angle) + c.x[i - half] * sin(angle);
		assert_true(fabs(y[i] - expected) < 1e-5);
	}
	memcpy(dx, c.out_weights, sizeof(dx));
	OP(rotate)(&c.shape, -1, dx);
	assert_derivative(c.x, ROWS * STRIDE, dx, rotation_loss, &c);
	free(c.x);
	free(c.out_weights);
}

/* Far positions too: the angles are f32, their sine and cosine exact. */
static void test_rope_tables(void **state)
{
	(void)state;
	enum { FAR = 70000 };
	double *cosines = zeroed(2 * FAR), *sines = zeroed(2 * FAR);
	rope_tables(FAR, 4, 10000, cosines, sines);
	for (size_t t = 0; t < FAR; t++) {
		for (size_t i = 0; i < 2; i++) {
			double angle = (double)((float)t * (i == 0 ? 1 : 0.01f));
			assert_true(fabs(cosines[2 * t + i] - cos(angle)) < 6e-8);
			assert_true(fabs(sines[2 * t + i] - sin(angle)) < 6e-8);
		}
	}
	free(cosines);
	free(sines);
}

struct attention_case {
	struct attention shape;
	double *qkv, *out_weights;
};

static void attend(const struct attention_case *c, double *out, double *max, double *scale)
{
	double *scratch = zeroed(attention_scratch(c->shape.length, c->shape.head));
	OP(attention)(&c->shape, c->qkv, out, max, scale, scratch);
	free(scratch);
}

static double attention_loss(const void *arg)
{
	const struct attention_case *c = arg;
	size_t count = c->shape.length * c->shape.heads * c->shape.head,
	       rows = c->shape.length * c->shape.heads;
	double *out = malloc((count + 2 * rows) * sizeof(*out));
	assert_non_null(out);
	attend(c, out, out + count, out + count + rows);
	double loss = weighted(out, c->out_weights, count);
	free(out);
	return loss;
}

/* What a probability is multiplied by. */
static double kept(const struct dropout *d, size_t head, size_t query, size_t key)
{
	if (d == NULL)
		return 1;
	uint64_t row = dropout_key(dropout_key(d->key, head), query);
	return dropout_draw(row, (uint32_t)key) < d->below ? 0 : d->scale;
}

/* Attention written down as its definition. */
static void assert_attention(const struct attention_case *c, const double *out)
{
	size_t T = c->shape.length, head = c->shape.head, heads = c->shape.heads;
	size_t C = heads * head, kv = c->shape.kv_heads * head, stride = C + 2 * kv;
	for (size_t h = 0; h < c->shape.heads; h++) {
		for (size_t i = 0; i < T; i++) {
			double sum = 0, y[64] = { 0 };
			for (size_t j = 0; j <= i; j++) {
				size_t kv_head = h / (heads / c->shape.kv_heads);
				const double *q = c->qkv + i * stride + h * head;
				const double *k = c->qkv + j * stride + C + kv_head * head;
				double p = exp(weighted(q, k, head) / sqrt((double)head));
				sum += p;
				for (size_t d = 0; d < head; d++)
					y[d] += p *
					    kept(c->shape.dropout, c->shape.first_head + h, i, j) *
					    k[kv + d];
			}
			for (size_t d = 0; d < head; d++)
				assert_true(fabs(out[i * C + h * head + d] - y[d] / sum) < 1e-12);
		}
	}
}

static void attention_with(size_t length, size_t head, size_t heads, size_t kv_heads,
    size_t checked, const struct dropout *dropout)
{
	size_t count = length * heads * head, rows = length * heads;
	size_t all = length * (heads + 2 * kv_heads) * head;
	struct attention_case c = { { length, 0, heads, kv_heads, head, 5, dropout },
		filled(1, all), filled(2, count) };
	double *out = zeroed(count + 2 * rows);
	double *dqkv = zeroed(all);
	double *scratch = zeroed(2 * attention_scratch(length, head));
	attend(&c, out, out + count, out + count + rows);
	assert_attention(&c, out);
	OP(attention_backward)
	(&c.shape, c.qkv, out, out + count, out + count + rows, c.out_weights, dqkv, scratch);
	for (size_t i = 0; i < checked; i++) {
		size_t at = i * (all / checked);
		assert_derivative(c.qkv + at, 1, dqkv + at, attention_loss, &c);
	}
	free(scratch);
	free(dqkv);
	free(out);
	free(c.qkv);
	free(c.out_weights);
}

static void attention_at(size_t length, size_t head, size_t heads, size_t kv_heads, size_t checked)
{
	const struct dropout dropout = { 7, 1 << 22, 4.0 / 3 };
	attention_with(length, head, heads, kv_heads, checked, NULL);
	attention_with(length, head, heads, kv_heads, checked, &dropout);
}

static void test_attention(void **state)
{
	(void)state;
	attention_at(1, 4, 2, 2, 24);
	attention_at(19, 4, 3, 3, 19 * 36);
	/* Whole tiles, a last tile that is not whole, several tiles. */
	attention_at(ATTENTION_TILE, 8, 1, 1, 100);
	attention_at(ATTENTION_TILE + 1, 4, 2, 2, 100);
	attention_at(2 * ATTENTION_TILE + 13, 5, 4, 4, 150);
	/* Heads that share keys and values. */
	attention_at(19, 3, 6, 2, 19 * 30);
	attention_at(ATTENTION_TILE + 7, 4, 4, 1, 150);
}

struct loss_case {
	double *logits;
	int32_t targets[ROWS];
};

static double softmax_loss(const void *arg)
{
	const struct loss_case *c = arg;
	double copy[ROWS * WIDTH];
	memcpy(copy, c->logits, sizeof(copy));
	return OP(softmax_loss)(copy, c->targets, ROWS, WIDTH);
}

static void test_softmax_loss(void **state)
{
	(void)state;
	struct loss_case c = { filled(1, ROWS * WIDTH), { 0, 36, 5, 17, 3 } };
	double gradient[ROWS * WIDTH], expected = 0;
	memcpy(gradient, c.logits, sizeof(gradient));
	double loss = OP(softmax_loss)(gradient, c.targets, ROWS, WIDTH);
	for (size_t i = 0; i < ROWS; i++) {
		double sum = 0;
		for (size_t j = 0; j < WIDTH; j++)
			sum += exp(c.logits[i * WIDTH + j]);
		expected += log(sum) - c.logits[i * WIDTH + (size_t)c.targets[i]];
	}
	assert_true(fabs(loss - expected) < 1e-12);
	assert_derivative(c.logits, ROWS * WIDTH, gradient, softmax_loss, &c);
	free(c.logits);
}

struct embed_case {
	double *tokens, *positions, *out_weights;
	int32_t input[ROWS];
};

static double embed_loss(const void *arg)
{
	const struct embed_case *c = arg;
	double x[ROWS * WIDTH];
	OP(embed)(c->input, c->tokens, c->positions, ROWS, WIDTH, x);
	return weighted(x, c->out_weights, ROWS * WIDTH);
}

static void test_embed(void **state)
{
	(void)state;
	/* A token that occurs twice gets both gradients. */
	struct embed_case c = { filled(1, 4 * WIDTH), filled(2, ROWS * WIDTH),
		filled(3, ROWS * WIDTH), { 3, 0, 3, 1, 1 } };
	double dtokens[4 * WIDTH] = { 0 }, dpositions[ROWS * WIDTH] = { 0 };
	OP(embed_backward)(c.input, c.out_weights, ROWS, WIDTH, 0, 16, dtokens, dpositions);
	OP(embed_backward)
	(c.input, c.out_weights, ROWS, WIDTH, 16, WIDTH - 16, dtokens, dpositions);
	assert_derivative(c.tokens, 4 * WIDTH, dtokens, embed_loss, &c);
	assert_derivative(c.positions, ROWS * WIDTH, dpositions, embed_loss, &c);
	free(c.tokens);
	free(c.positions);
	free(c.out_weights);
}

/* y = x w + b; the three products of a linear layer as forward.c and backward.c use them. */
struct linear_case {
	double *x, *w, *b, *out_weights;
};
enum { OUT = 11 };

static void linear(const struct linear_case *c, double *y)
{
	OP(bias)(c->b, ROWS, OUT, y);
	gemm_nn(ROWS, OUT, WIDTH, 1, c->x, WIDTH, c->w, OUT, 1, y, OUT);
}

static double linear_loss(const void *arg)
{
	const struct linear_case *c = arg;
	double y[ROWS * OUT];
	linear(c, y);
	return weighted(y, c->out_weights, ROWS * OUT);
}

static void test_linear(void **state)
{
	(void)state;
	struct linear_case c = { filled(1, ROWS * WIDTH), filled(2, WIDTH * OUT), filled(3, OUT),
		filled(4, ROWS * OUT) };
	double dx[ROWS * WIDTH], dw[WIDTH * OUT] = { 0 }, db[OUT] = { 0 };
	gemm_nt(ROWS, WIDTH, OUT, 1, c.out_weights, OUT, c.w, OUT, 0, dx, WIDTH);
	gemm_tn(WIDTH, OUT, ROWS, 1, c.x, WIDTH, c.out_weights, OUT, 1, dw, OUT);
	OP(column_sums)(c.out_weights, ROWS, OUT, db);
	assert_derivative(c.x, ROWS * WIDTH, dx, linear_loss, &c);
	assert_derivative(c.w, WIDTH * OUT, dw, linear_loss, &c);
	assert_derivative(c.b, OUT, db, linear_loss, &c);
	free(c.x);
	free(c.w);
	free(c.b);
	free(c.out_weights);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_layernorm),
		cmocka_unit_test(test_rmsnorm),
		cmocka_unit_test(test_gelu),
		cmocka_unit_test(test_swiglu),
		cmocka_unit_test(test_rotate),
		cmocka_unit_test(test_rope_tables),
		cmocka_unit_test(test_attention),
		cmocka_unit_test(test_softmax_loss),
		cmocka_unit_test(test_embed),
		cmocka_unit_test(test_linear),
	};
	gemm_setup();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
