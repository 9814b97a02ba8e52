/* Products of bf16: rounding bit for bit as the codec's reference rounds, in all variants of the ops; every form of product against sums in double of the rounded numbers, on oneDNN and without
 * it, with gaps between rows; a model that computes so against the one of f32. And those of f32 on oneDNN. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "collectives/kernels/half.h"
#include "common/rng.h"
#include "daemon/worker/gemm.h"
#include "daemon/worker/gemm_bf16.h"
#include "daemon/worker/model.h"
#include "daemon/worker/onednn.h"
#include "daemon/worker/slots.h"

#define SIDE 200

static float *noise(size_t count, uint64_t stream)
{
	float *x = aligned_alloc(64, (count * sizeof(float) + 63) / 64 * 64);
	assert_non_null(x);
	for (size_t i = 0; i < count; i++)
		x[i] = (float)rng_normal(rng_key(7, 0, 0), stream, i);
	return x;
}

/* ---- rounding ---- */

static void check_rounding(const struct ops *ops, const float *x, size_t count)
{
	uint16_t got[64];
	float back[64];
	assert_true(count <= 64);
	ops->to_bf16(x, 1, count, 0, got);
	ops->from_bf16(got, 1, count, 0, back);
	for (size_t i = 0; i < count; i++) {
		float expected = half_from_bf16(half_to_bf16(x[i]));
		assert_int_equal(got[i], half_to_bf16(x[i]));
		assert_memory_equal(&back[i], &expected, sizeof(expected));
	}
}

static void test_rounding(void **state)
{
	(void)state;
	static const uint32_t edges[] = { 0, 0x80000000, 0x3f800000, 0x3f808000, 0x3f818000,
		0x3f807fff, 0x3f808001, 0x7f7fffff, 0xff7fffff, 0x7f800000, 0xff800000, 0x7fc00000,
		0x7f800001, 0xffffffff, 0x7fbfffff, 1, 0x8000, 0x18000, 0x7fff, 0x007fffff };
	float x[64];
	for (size_t v = 0; ops_variant(v) != NULL; v++) {
		memcpy(x, edges, sizeof(edges));
		check_rounding(ops_variant(v), x, sizeof(edges) / sizeof(edges[0]));
		for (uint64_t i = 0; i < 20000; i++) {
			uint32_t bits = (uint32_t)rng_below(rng_key(3, 0, 0), 0, i, 1ull << 32);
			memcpy(&x[i % 61], &bits, sizeof(bits));
			if (i % 61 == 60)
				check_rounding(ops_variant(v), x, 61);
		}
	}
}

/* Rows with gaps come out without. */
static void test_rows(void **state)
{
	(void)state;
	float *x = noise(5 * 40, 1), back[5 * 33];
	uint16_t y[5 * 33];
	ops_choose()->to_bf16(x, 5, 33, 40, y);
	ops_choose()->from_bf16(y, 5, 33, 33, back);
	for (size_t row = 0; row < 5; row++)
		for (size_t i = 0; i < 33; i++)
			assert_true(
			    back[row * 33 + i] == half_from_bf16(half_to_bf16(x[row * 40 + i])));
	free(x);
}

/* ---- products ---- */

enum form { NN, NT, TN, FORMS };

struct case_of {
	enum form form;
	size_t m, n, k, a_stride, b_stride, c_stride;
	float beta;
	bool f32; /* nothing is rounded */
};

static float rounded(const struct case_of *c, float x)
{
	return c->f32 ? x : half_from_bf16(half_to_bf16(x));
}

static void expect_product(const struct case_of *c, const float *a, const float *b,
    const float *before, const float *got)
{
	for (size_t i = 0; i < c->m; i++)
		for (size_t j = 0; j < c->n; j++) {
			double sum = (double)c->beta * before[i * c->c_stride + j];
			double size = fabs(sum);
			for (size_t l = 0; l < c->k; l++) {
				float x = rounded(c,
				    c->form == TN ? a[l * c->a_stride + i] : a[i * c->a_stride + l]);
				float y = rounded(c,
				    c->form == NT ? b[j * c->b_stride + l] : b[l * c->b_stride + j]);
				sum += (double)x * y;
				size += fabs((double)x * y);
			}
			/* Sums in f32, of any order. */
			double bound = size * (double)(c->k + 2) * 0x1p-24;
			if (fabs(got[i * c->c_stride + j] - sum) > bound)
				fail_msg("form %u %zu x %zu x %zu at %zu, %zu: %g, expected %g",
				    c->form, c->m, c->n, c->k, i, j,
				    (double)got[i * c->c_stride + j], sum);
		}
	/* The gaps were left alone. */
	for (size_t i = 0; i + 1 < c->m; i++)
		assert_memory_equal(got + i * c->c_stride + c->n, before + i * c->c_stride + c->n,
		    (c->c_stride - c->n) * sizeof(float));
}

static void multiply(struct gemm_bf16 *g, const struct case_of *c, const float *a, const float *b,
    float *out)
{
	static uint16_t half[SIDE * SIDE];
	size_t b_rows = c->form == NT ? c->n : c->k;
	ops_choose()->to_bf16(b, 1, b_rows * c->b_stride, 0, half);
	if (c->form == NN)
		gemm_bf16_nn(g, c->m, c->n, c->k, a, c->a_stride, half, c->b_stride, c->beta, out,
		    c->c_stride);
	else if (c->form == NT)
		gemm_bf16_nt(g, c->m, c->n, c->k, a, c->a_stride, half, c->b_stride, c->beta, out,
		    c->c_stride);
	else
		gemm_bf16_tn(g, c->m, c->n, c->k, a, c->a_stride, b, c->b_stride, c->beta, out,
		    c->c_stride);
}

/* Of 270; then the first ones again, where more shapes come than are kept compiled. */
static struct case_of draw(uint64_t i)
{
	uint64_t at = i < 270 ? i : i - 270;
	struct case_of p = { .form = at % FORMS };
	size_t *size[] = { &p.m, &p.n, &p.k };
	for (size_t s = 0; s < 3; s++)
		*size[s] = 1 + rng_below(rng_key(5, 0, 0), s, at, at % 2 == 0 ? 9 : 130);
	p.a_stride = (p.form == TN ? p.m : p.k) + rng_below(rng_key(5, 0, 0), 3, at, 20);
	p.b_stride = (p.form == NT ? p.k : p.n) + rng_below(rng_key(5, 0, 0), 4, at, 20);
	p.c_stride = p.n + rng_below(rng_key(5, 0, 0), 5, at, 20);
	p.beta = (float)(at / 3 % 2);
	return p;
}

static void check_products(bool plain)
{
	struct gemm_bf16 *g;
	float *a = noise(SIDE * SIDE, 1), *b = noise(SIDE * SIDE, 2), *c = noise(SIDE * SIDE, 3);
	float *out = noise(SIDE * SIDE, 3);
	gemm_setup();
	assert_int_equal(gemm_bf16_create(ops_choose(), SIDE * SIDE, SIDE * SIDE, plain, &g, NULL),
	    TR_OK);
	if (!plain && gemm_bf16_slow(g) != NULL) {
		printf("skipped: %s\n", gemm_bf16_slow(g));
		gemm_bf16_destroy(g);
		skip();
	}
	for (uint64_t i = 0; i < 300; i++) {
		struct case_of p = draw(i);
		memcpy(out, c, SIDE * SIDE * sizeof(float));
		multiply(g, &p, a, b, out);
		expect_product(&p, a, b, c, out);
	}
	gemm_bf16_destroy(g);
	free(a);
	free(b);
	free(c);
	free(out);
}

static void test_plain(void **state)
{
	(void)state;
	check_products(true);
}

static void test_onednn(void **state)
{
	(void)state;
	check_products(false);
}

static void test_onednn_f32(void **state)
{
	(void)state;
	struct onednn *o;
	struct tr_error why;
	if (onednn_create(ONEDNN_F32, &o, &why) != TR_OK) {
		printf("skipped: %s\n", why.text);
		skip();
	}
	float *a = noise(SIDE * SIDE, 1), *b = noise(SIDE * SIDE, 2), *c = noise(SIDE * SIDE, 3);
	float *out = noise(SIDE * SIDE, 3);
	for (uint64_t i = 0; i < 300; i++) {
		struct case_of p = draw(i);
		const struct onednn_product product = { p.m, p.n, p.k,
			{ p.form == TN ? 1 : p.a_stride, p.form == TN ? p.a_stride : 1 },
			{ p.form == NT ? 1 : p.b_stride, p.form == NT ? p.b_stride : 1 },
			p.c_stride, p.beta != 0 };
		p.f32 = true;
		memcpy(out, c, SIDE * SIDE * sizeof(float));
		assert_true(onednn_multiply(o, &product, a, b, out));
		expect_product(&p, a, b, c, out);
	}
	onednn_destroy(o);
	free(a);
	free(b);
	free(c);
	free(out);
}

/* ---- a model ---- */

enum { SEQUENCES = 4, LENGTH = 24, ROWS = SEQUENCES * LENGTH, VOCAB = 61 };

struct fixture {
	struct layout layout;
	struct pool *pool;
	float *params;
	int32_t inputs[ROWS], targets[ROWS];
	double dropout;
};

static void start(struct fixture *f, enum model_preset preset)
{
	struct model_config config = { .preset = preset,
		.layers = 3,
		.width = 48,
		.heads = 4,
		.context = LENGTH,
		.vocab = VOCAB };
	gemm_setup();
	assert_int_equal(layout_init(&config, &f->layout, NULL), TR_OK);
	assert_int_equal(pool_create(3, &f->pool, NULL), TR_OK);
	f->dropout = 0;
	f->params = noise(f->layout.count, 4);
	model_init_params(&f->layout, 3, f->params);
	for (size_t i = 0; i < ROWS; i++) {
		f->inputs[i] = (int32_t)rng_below(rng_key(9, 0, 0), 0, i, VOCAB);
		f->targets[i] = (int32_t)rng_below(rng_key(9, 0, 0), 1, i, VOCAB);
	}
}

static void finish(struct fixture *f)
{
	pool_destroy(f->pool);
	layout_finish(&f->layout);
	free(f->params);
}

enum mode { F32, PLAIN, FAST, F32_ONEDNN };

static struct model *model_of(struct fixture *f, enum mode mode, float *grads)
{
	struct model *m;
	assert_int_equal(model_create(&f->layout, SEQUENCES, f->pool, &m, NULL), TR_OK);
	assert_int_equal(model_use_dropout(m, f->dropout, 1, NULL), TR_OK);
	if (mode == F32_ONEDNN && !model_use_onednn(m)) {
		model_destroy(m);
		return NULL;
	}
	if (mode == PLAIN || mode == FAST)
		assert_int_equal(model_use_bf16(m, mode == PLAIN, NULL), TR_OK);
	model_bind(m, f->params, grads);
	return m;
}

static double gradient(struct fixture *f, struct model *m, float *grads)
{
	static const uint64_t samples[SEQUENCES] = { 3, 1, 4, 15 };
	struct model_batch batch = { f->inputs, f->targets, SEQUENCES, LENGTH, samples };
	double loss;
	memset(grads, 0, f->layout.count * sizeof(float));
	assert_true(model_gradient_of(m, &batch, NULL, &loss));
	return loss;
}

/* ||x - y|| / ||y|| */
static double distance(const float *x, const float *y, size_t count)
{
	double off = 0, size = 0;
	for (size_t i = 0; i < count; i++) {
		off += ((double)x[i] - y[i]) * ((double)x[i] - y[i]);
		size += (double)y[i] * y[i];
	}
	return sqrt(off / size);
}

static void check_model(enum model_preset preset, double dropout)
{
	struct fixture f;
	start(&f, preset);
	f.dropout = dropout;
	size_t count = f.layout.count;
	float *grads[3] = { noise(count, 5), noise(count, 6), noise(count, 7) };
	double loss[3];
	for (enum mode mode = F32; mode <= FAST; mode++) {
		struct model *m = model_of(&f, mode, grads[mode]);
		loss[mode] = gradient(&f, m, grads[mode]);
		model_destroy(m);
	}
	/* Eight bits: another gradient, but nearly the same. */
	double off = distance(grads[PLAIN], grads[F32], count);
	assert_true(off > 1e-4 && off < 2e-2);
	assert_true(distance(grads[FAST], grads[PLAIN], count) < 2e-3);
	assert_true(fabs(loss[PLAIN] - loss[F32]) < 1e-3 * loss[F32] && loss[PLAIN] != loss[F32]);
	assert_true(fabs(loss[FAST] - loss[PLAIN]) < 1e-4 * loss[F32]);
	for (size_t i = 0; i < 3; i++)
		free(grads[i]);
	finish(&f);
}

static void test_model(void **state)
{
	(void)state;
	check_model(MODEL_GPT2, 0);
	check_model(MODEL_LLAMA, 0);
}

static void test_f32_model(void **state)
{
	(void)state;
	for (enum model_preset preset = MODEL_GPT2; preset <= MODEL_LLAMA; preset++) {
		struct fixture f;
		start(&f, preset);
		size_t count = f.layout.count;
		float *grads = noise(count, 5), *plain = noise(count, 6);
		struct model *m = model_of(&f, F32_ONEDNN, grads),
		             *openblas = model_of(&f, F32, plain);
		bool there = m != NULL;
		if (there) {
			double loss = gradient(&f, m, grads), other = gradient(&f, openblas, plain);
			assert_true(distance(grads, plain, count) < 1e-5);
			assert_true(fabs(loss - other) < 1e-6 * other);
		}
		model_destroy(m);
		model_destroy(openblas);
		free(grads);
		free(plain);
		finish(&f);
		if (!there)
			skip();
	}
}

/* What is left out is the same in bf16: else the two gradients had little in common. */
static void test_dropout(void **state)
{
	(void)state;
	check_model(MODEL_GPT2, 0.3);
	check_model(MODEL_LLAMA, 0.3);
}

/* After a step the parameters are rounded anew; generation is of f32. */
static void test_parameters_change(void **state)
{
	(void)state;
	struct fixture f;
	start(&f, MODEL_GPT2);
	size_t count = f.layout.count;
	float *grads = noise(count, 5), *again = noise(count, 6);
	float *logits = noise(ROWS * VOCAB, 1), *exact = noise(ROWS * VOCAB, 2);
	struct model *m = model_of(&f, FAST, grads);
	double before = gradient(&f, m, grads);
	for (size_t i = 0; i < count; i++)
		f.params[i] *= 1.25f;
	struct model *fresh = model_of(&f, FAST, again), *f32 = model_of(&f, F32, again);
	assert_true(gradient(&f, m, grads) == gradient(&f, fresh, again));
	assert_memory_equal(grads, again, count * sizeof(float));
	assert_true(gradient(&f, m, grads) != before);
	model_logits(m, f.inputs, SEQUENCES, LENGTH, logits);
	model_logits(f32, f.inputs, SEQUENCES, LENGTH, exact);
	assert_memory_equal(logits, exact, ROWS * VOCAB * sizeof(float));
	model_destroy(m);
	model_destroy(fresh);
	model_destroy(f32);
	free(grads);
	free(again);
	free(logits);
	free(exact);
	finish(&f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_rounding),
		cmocka_unit_test(test_rows),
		cmocka_unit_test(test_plain),
		cmocka_unit_test(test_onednn),
		cmocka_unit_test(test_onednn_f32),
		cmocka_unit_test(test_model),
		cmocka_unit_test(test_f32_model),
		cmocka_unit_test(test_dropout),
		cmocka_unit_test(test_parameters_change),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
