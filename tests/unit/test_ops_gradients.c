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
	OP(layernorm)(c->x, c->weight, c->bias, ROWS, WIDTH, y, mean, rstd);
	return weighted(y, c->out_weights, ROWS * WIDTH);
}

static void test_layernorm(void **state)
{
	(void)state;
	struct norm_case c = { filled(1, ROWS * WIDTH), filled(2, WIDTH), filled(3, WIDTH),
		filled(4, ROWS * WIDTH) };
	double y[ROWS * WIDTH], mean[ROWS], rstd[ROWS], dx[ROWS * WIDTH];
	double dweight[WIDTH] = { 0 }, dbias[WIDTH] = { 0 };
	OP(layernorm)(c.x, c.weight, c.bias, ROWS, WIDTH, y, mean, rstd);
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

struct attention_case {
	struct attention shape;
	double *qkv, *out_weights;
};

static void attend(const struct attention_case *c, double *out, double *max, double *scale)
{
	double *scratch = zeroed(attention_scratch(c->shape.length));
	OP(attention)(&c->shape, c->qkv, out, max, scale, scratch);
	free(scratch);
}

static double attention_loss(const void *arg)
{
	const struct attention_case *c = arg;
	size_t count = c->shape.length * c->shape.width, rows = c->shape.length * c->shape.heads;
	double *out = malloc((count + 2 * rows) * sizeof(*out));
	assert_non_null(out);
	attend(c, out, out + count, out + count + rows);
	double loss = weighted(out, c->out_weights, count);
	free(out);
	return loss;
}

/* Attention written down as its definition. */
static void assert_attention(const struct attention_case *c, const double *out)
{
	size_t T = c->shape.length, C = c->shape.width, head = C / c->shape.heads;
	for (size_t h = 0; h < c->shape.heads; h++) {
		for (size_t i = 0; i < T; i++) {
			double sum = 0, y[64] = { 0 };
			for (size_t j = 0; j <= i; j++) {
				const double *q = c->qkv + i * 3 * C + h * head;
				const double *k = c->qkv + j * 3 * C + C + h * head;
				double p = exp(weighted(q, k, head) / sqrt((double)head));
				sum += p;
				for (size_t d = 0; d < head; d++)
					y[d] += p * k[C + d];
			}
			for (size_t d = 0; d < head; d++)
				assert_true(fabs(out[i * C + h * head + d] - y[d] / sum) < 1e-12);
		}
	}
}

static void attention_at(size_t length, size_t width, size_t heads, size_t checked)
{
	struct attention_case c = { { length, 0, width, heads }, filled(1, length * 3 * width),
		filled(2, length * width) };
	size_t count = length * width, rows = length * heads;
	double *out = zeroed(count + 2 * rows);
	double *dqkv = zeroed(3 * count);
	double *scratch = zeroed(2 * attention_scratch(length));
	attend(&c, out, out + count, out + count + rows);
	assert_attention(&c, out);
	OP(attention_backward)
	(&c.shape, c.qkv, out, out + count, out + count + rows, c.out_weights, dqkv, scratch);
	for (size_t i = 0; i < checked; i++) {
		size_t at = i * (3 * count / checked);
		assert_derivative(c.qkv + at, 1, dqkv + at, attention_loss, &c);
	}
	free(scratch);
	free(dqkv);
	free(out);
	free(c.qkv);
	free(c.out_weights);
}

static void test_attention(void **state)
{
	(void)state;
	attention_at(1, 8, 2, 24);
	attention_at(19, 12, 3, 19 * 36);
	/* Whole tiles, a last tile that is not whole, several tiles. */
	attention_at(ATTENTION_TILE, 8, 1, 100);
	attention_at(ATTENTION_TILE + 1, 8, 2, 100);
	attention_at(2 * ATTENTION_TILE + 13, 20, 4, 150);
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
		cmocka_unit_test(test_gelu),
		cmocka_unit_test(test_attention),
		cmocka_unit_test(test_softmax_loss),
		cmocka_unit_test(test_embed),
		cmocka_unit_test(test_linear),
	};
	gemm_setup();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
