/* Dropout: how often an element is left out, and together with which others; a GPT-2 with it, written down plainly in double, against the model; the model's gradient against differences with the same
 * elements left out; and that it is a sample's own: whatever else is computed with it, by as many threads, once more or not. */
#include "tests/unit/model_in_double.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { SEQUENCES = 3, LENGTH = 9, CONTEXT = 10, VOCAB = 23, LAYERS = 2, WIDTH = 12, HEADS = 3 };
enum { HEAD = WIDTH / HEADS, HIDDEN = 4 * WIDTH, SEED = 77 };
#define SHARE 0.3

/* ---- what is drawn ---- */

enum { ROWS = 300, COLUMNS = 700 };

static unsigned char left_out[3][ROWS][COLUMNS];

static void draw(unsigned which, uint64_t key, double share)
{
	for (size_t r = 0; r < ROWS; r++)
		for (uint32_t c = 0; c < COLUMNS; c++)
			left_out[which][r][c] = dropout_draw(dropout_key(key, r), c) <
			    (int32_t)ldexp(share, DROPOUT_BITS);
}

/* Of pairs that are independent a share of share^2 is left out both; bounds are five standard deviations and more. */
static void assert_rate(double found, double expected, double of)
{
	double deviation = sqrt(expected * (1 - expected) / of);
	if (!(fabs(found / of - expected) < 5 * deviation))
		fail_msg("%g of %g, expected %g +- %g", found / of, of, expected, deviation);
}

static void pairs(unsigned a, unsigned b, size_t down, size_t right, double share)
{
	double both = 0, all = (double)((ROWS - down) * (COLUMNS - right));
	for (size_t r = 0; r + down < ROWS; r++)
		for (size_t c = 0; c + right < COLUMNS; c++)
			both += left_out[a][r][c] && left_out[b][r + down][c + right];
	assert_rate(both, share * share, all);
}

static void test_rate(void **state)
{
	static const double shares[] = { 0.01, 0.1, 0.5, 0.9 };
	(void)state;
	for (size_t s = 0; s < 4; s++) {
		double share = shares[s], all = 0;
		for (unsigned k = 0; k < 3; k++)
			draw(k, rng_u64(rng_key(SEED, k, 0), RANDOM_DROPOUT, 0) + (k == 2), share);
		for (size_t r = 0; r < ROWS; r++) {
			double row = 0;
			for (size_t c = 0; c < COLUMNS; c++)
				row += left_out[0][r][c];
			assert_rate(row, share, COLUMNS);
			all += row;
		}
		for (size_t c = 0; c < COLUMNS; c++) {
			double column = 0;
			for (size_t r = 0; r < ROWS; r++)
				column += left_out[0][r][c];
			assert_rate(column, share, ROWS);
		}
		assert_rate(all, share, ROWS * COLUMNS);
		for (size_t far = 1; far < 64; far++) {
			pairs(0, 0, 0, far, share);
			pairs(0, 0, far, 0, share);
			pairs(0, 0, far, far, share);
		}
		pairs(0, 1, 0, 0, share);
		pairs(1, 2, 0, 0, share);
	}
}

/* What is kept makes up for what is not. */
static void test_expectation(void **state)
{
	static real ones[COLUMNS], y[COLUMNS];
	double sum = 0;
	(void)state;
	for (size_t i = 0; i < COLUMNS; i++)
		ones[i] = 1;
	for (uint64_t key = 0; key < 1000; key++) {
		struct dropout d = { key * 1000003, (int32_t)ldexp(SHARE, DROPOUT_BITS),
			1 / (1 - SHARE) };
		ops_choose()->drop(&d, key, 1, COLUMNS, ones, y);
		for (size_t i = 0; i < COLUMNS; i++) {
			assert_true(y[i] == 0 || y[i] == d.scale);
			sum += y[i];
		}
	}
	assert_true(fabs(sum / (1000 * COLUMNS) - 1) < 5 * sqrt(SHARE / (1 - SHARE) / 700000));
}

/* ---- a GPT-2, as it is written ---- */

struct fixture {
	struct layout layout;
	struct pool *pool;
	struct model *model;
	double *params, *grads;
	int32_t inputs[SEQUENCES * LENGTH], targets[SEQUENCES * LENGTH];
	uint64_t samples[SEQUENCES];
};

/* What an element is multiplied by. */
static double kept(uint64_t key, size_t row, size_t column)
{
	return dropout_draw(dropout_key(key, row), (uint32_t)column) <
	        (int32_t)lround(SHARE * (1 << 24))
	    ? 0
	    : 1 / (1 - SHARE);
}

/* Four sites a layer, in the order in which a token meets them; the embedding's is of layer 0. */
static uint64_t key_of(uint64_t sample, size_t layer, unsigned site)
{
	return rng_u64(rng_key(SEED, sample, 0), RANDOM_DROPOUT, 4 * layer + site);
}

static const double *tensor(const struct fixture *f, size_t layer, enum layout_part part)
{
	return f->params + layout_layer(&f->layout, layer, part);
}

static void norm(const double *x, const double *weight, const double *bias, double *y)
{
	double mean = 0, square = 0;
	for (size_t i = 0; i < WIDTH; i++)
		mean += x[i] / WIDTH;
	for (size_t i = 0; i < WIDTH; i++)
		square += (x[i] - mean) * (x[i] - mean) / WIDTH;
	for (size_t i = 0; i < WIDTH; i++)
		y[i] = (x[i] - mean) / sqrt(square + (double)1e-5) * weight[i] + bias[i];
}

static void linear(const double *x, size_t in, size_t out, const double *weight, const double *bias,
    double *y)
{
	for (size_t o = 0; o < out; o++) {
		y[o] = bias[o];
		for (size_t i = 0; i < in; i++)
			y[o] += x[i] * weight[i * out + o];
	}
}

static void attend_plainly(double qkv[LENGTH][3 * WIDTH], size_t t, uint64_t key, double *y)
{
	for (size_t h = 0; h < HEADS; h++) {
		double scores[LENGTH], sum = 0;
		for (size_t j = 0; j <= t; j++) {
			scores[j] = 0;
			for (size_t c = h * HEAD; c < (h + 1) * HEAD; c++)
				scores[j] += qkv[t][c] * qkv[j][WIDTH + c];
			scores[j] = exp(scores[j] / sqrt((double)HEAD));
			sum += scores[j];
		}
		for (size_t c = h * HEAD; c < (h + 1) * HEAD; c++)
			y[c] = 0;
		for (size_t j = 0; j <= t; j++)
			for (size_t c = h * HEAD; c < (h + 1) * HEAD; c++)
				y[c] += scores[j] / sum * kept(dropout_key(key, h), t, j) *
				    qkv[j][2 * WIDTH + c];
	}
}

static void plain_layer(const struct fixture *f, uint64_t sample, size_t layer,
    double x[LENGTH][WIDTH])
{
	double qkv[LENGTH][3 * WIDTH], y[WIDTH], z[WIDTH], up[HIDDEN];
	for (size_t t = 0; t < LENGTH; t++) {
		norm(x[t], tensor(f, layer, LAYOUT_NORM1_W), tensor(f, layer, LAYOUT_NORM1_B), y);
		linear(y, WIDTH, 3 * WIDTH, tensor(f, layer, LAYOUT_QKV_W),
		    tensor(f, layer, LAYOUT_QKV_B), qkv[t]);
	}
	for (size_t t = 0; t < LENGTH; t++) {
		attend_plainly(qkv, t, key_of(sample, layer, 1), y);
		linear(y, WIDTH, WIDTH, tensor(f, layer, LAYOUT_PROJ_W),
		    tensor(f, layer, LAYOUT_PROJ_B), z);
		for (size_t i = 0; i < WIDTH; i++)
			x[t][i] += z[i] * kept(key_of(sample, layer, 2), t, i);
		norm(x[t], tensor(f, layer, LAYOUT_NORM2_W), tensor(f, layer, LAYOUT_NORM2_B), y);
		linear(y, WIDTH, HIDDEN, tensor(f, layer, LAYOUT_UP_W),
		    tensor(f, layer, LAYOUT_UP_B), up);
		for (size_t i = 0; i < HIDDEN; i++)
			up[i] *= 0.5 +
			    0.5 * tanh(sqrt(2 / acos(-1)) * (up[i] + 0.044715 * pow(up[i], 3)));
		linear(up, HIDDEN, WIDTH, tensor(f, layer, LAYOUT_DOWN_W),
		    tensor(f, layer, LAYOUT_DOWN_B), z);
		for (size_t i = 0; i < WIDTH; i++)
			x[t][i] += z[i] * kept(key_of(sample, layer, 3), t, i);
	}
}

static double plain_loss(const struct fixture *f, size_t sequence)
{
	double x[LENGTH][WIDTH], loss = 0;
	const int32_t *inputs = f->inputs + sequence * LENGTH;
	uint64_t sample = f->samples[sequence];
	const double *table = f->params + f->layout.tokens;
	for (size_t t = 0; t < LENGTH; t++)
		for (size_t i = 0; i < WIDTH; i++)
			x[t][i] = kept(key_of(sample, 0, 0), t, i) *
			    (table[(size_t)inputs[t] * WIDTH + i] +
			        f->params[f->layout.positions + t * WIDTH + i]);
	for (size_t layer = 0; layer < LAYERS; layer++)
		plain_layer(f, sample, layer, x);
	for (size_t t = 0; t < LENGTH; t++) {
		double y[WIDTH], sum = 0, its = 0;
		norm(x[t], f->params + f->layout.last_norm_w, f->params + f->layout.last_norm_b, y);
		for (size_t v = 0; v < VOCAB; v++) {
			double logit = 0;
			for (size_t i = 0; i < WIDTH; i++)
				logit += y[i] * table[v * WIDTH + i];
			sum += exp(logit);
			if (v == (size_t)f->targets[sequence * LENGTH + t])
				its = logit;
		}
		loss += log(sum) - its;
	}
	return loss;
}

/* ---- the model ---- */

static void setup(struct fixture *f, enum model_preset preset, unsigned threads, bool recompute,
    double share)
{
	struct model_config config = { .preset = preset,
		.layers = LAYERS,
		.width = WIDTH,
		.heads = HEADS,
		.context = CONTEXT,
		.vocab = VOCAB };
	struct model_room how = { .recompute = recompute };
	assert_int_equal(layout_init(&config, &f->layout, NULL), TR_OK);
	assert_int_equal(pool_create(threads, &f->pool, NULL), TR_OK);
	assert_int_equal(model_create_whole(&f->layout, &how, SEQUENCES, f->pool, &f->model, NULL),
	    TR_OK);
	assert_int_equal(model_use_dropout(f->model, share, SEED, NULL), TR_OK);
	f->params = aligned_alloc(64, (f->layout.count + 7) / 8 * 64);
	f->grads = calloc(f->layout.count, sizeof(*f->grads));
	assert_true(f->params != NULL && f->grads != NULL);
	model_init_params(&f->layout, 5, f->params);
	for (size_t i = 0; i < f->layout.count; i++)
		f->params[i] = f->params[i] * 5 + 0.1 * rng_normal(rng_key(1, 2, 3), 4, i);
	for (size_t i = 0; i < SEQUENCES * LENGTH; i++) {
		f->inputs[i] = (int32_t)rng_below(rng_key(2, 0, 0), 0, i, VOCAB);
		f->targets[i] = (int32_t)rng_below(rng_key(3, 0, 0), 0, i, VOCAB);
	}
	for (size_t i = 0; i < SEQUENCES; i++)
		f->samples[i] = 40 + 1000 * i;
	model_bind(f->model, f->params, f->grads);
}

static void teardown(struct fixture *f)
{
	model_destroy(f->model);
	pool_destroy(f->pool);
	layout_finish(&f->layout);
	free(f->params);
	free(f->grads);
}

/* Of sequences [first, first + count); gradients are added. */
static double train(struct fixture *f, size_t first, size_t count)
{
	struct model_batch batch = { f->inputs + first * LENGTH, f->targets + first * LENGTH, count,
		LENGTH, f->samples + first };
	double loss;
	assert_true(model_gradient_of(f->model, &batch, NULL, &loss));
	return loss;
}

static void test_as_written_plainly(void **state)
{
	struct fixture f;
	double expected = 0;
	(void)state;
	setup(&f, MODEL_GPT2, 1, false, SHARE);
	for (size_t i = 0; i < SEQUENCES; i++)
		expected += plain_loss(&f, i);
	double loss = train(&f, 0, SEQUENCES);
	assert_true(fabs(loss - expected) < 1e-11);
	teardown(&f);
}

static void test_gradient(void **state)
{
	struct fixture f;
	setup(&f, *(const enum model_preset *)*state, 1, false, SHARE);
	(void)train(&f, 0, SEQUENCES);
	double *grads = f.grads, *others = calloc(f.layout.count, sizeof(*others));
	model_bind(f.model, f.params, others);
	for (size_t i = 0; i < f.layout.count; i += 1 + f.layout.count / 1500) {
		double kept_value = f.params[i], step = 2e-6;
		f.params[i] = kept_value + step;
		double up = train(&f, 0, SEQUENCES);
		f.params[i] = kept_value - step;
		double down = train(&f, 0, SEQUENCES), expected = (up - down) / (2 * step);
		f.params[i] = kept_value;
		if (!(fabs(expected - grads[i]) < 1e-6 * fmax(1, fabs(expected))))
			fail_msg("[%zu]: %.12g, differences give %.12g", i, grads[i], expected);
	}
	free(others);
	teardown(&f);
}

/* Computed with others or alone, by threads, and once more: sums are in another order at most. */
static void test_it_is_the_samples_own(void **state)
{
	enum model_preset preset = *(const enum model_preset *)*state;
	struct fixture whole, again, parts;
	setup(&whole, preset, 1, false, SHARE);
	setup(&again, preset, 1, true, SHARE);
	setup(&parts, preset, 3, false, SHARE);
	double loss = train(&whole, 0, SEQUENCES), sum = 0;
	assert_true(loss == train(&again, 0, SEQUENCES));
	assert_memory_equal(whole.grads, again.grads, whole.layout.count * sizeof(double));
	sum += train(&parts, 1, 2);
	sum += train(&parts, 0, 1);
	assert_true(fabs(loss - sum) < 1e-11);
	for (size_t i = 0; i < whole.layout.count; i++)
		assert_true(fabs(whole.grads[i] - parts.grads[i]) < 1e-11);
	/* Another sample leaves out others, and so does it at another seed. */
	double its = train(&whole, 0, 1);
	assert_true(its == train(&whole, 0, 1));
	whole.samples[0]++;
	assert_true(fabs(its - train(&whole, 0, 1)) > 1e-3);
	whole.samples[0]--;
	whole.model->dropout.seed++;
	assert_true(fabs(its - train(&whole, 0, 1)) > 1e-3);
	teardown(&whole);
	teardown(&again);
	teardown(&parts);
}

/* Losses alone, logits and batches of no samples leave nothing out; without dropout nothing changes. */
static void test_training_alone_leaves_out(void **state)
{
	enum model_preset preset = *(const enum model_preset *)*state;
	struct fixture with, without;
	double loss, same;
	static real logits[2][LENGTH * VOCAB];
	setup(&with, preset, 1, false, SHARE);
	setup(&without, preset, 1, false, 0);
	(void)train(&with, 0, SEQUENCES);
	loss = train(&without, 0, SEQUENCES);
	assert_true(
	    model_loss(with.model, with.inputs, with.targets, SEQUENCES, LENGTH, NULL, &same));
	assert_true(loss == same);
	(void)train(&with, 0, SEQUENCES);
	model_logits(with.model, with.inputs, 1, LENGTH, logits[0]);
	model_logits(without.model, with.inputs, 1, LENGTH, logits[1]);
	assert_memory_equal(logits[0], logits[1], sizeof(logits[0]));
	(void)train(&with, 0, SEQUENCES);
	model_extend(with.model, with.inputs, 0, LENGTH, logits[0]);
	assert_memory_equal(logits[0], logits[1] + (LENGTH - 1) * VOCAB, VOCAB * sizeof(real));
	memset(with.grads, 0, with.layout.count * sizeof(*with.grads));
	assert_true(
	    model_gradient(with.model, with.inputs, with.targets, SEQUENCES, LENGTH, NULL, &same));
	assert_true(loss == same);
	assert_memory_equal(with.grads, without.grads, with.layout.count * sizeof(double));
	teardown(&with);
	teardown(&without);
}

int main(void)
{
	static enum model_preset presets[] = { MODEL_GPT2, MODEL_LLAMA };
#define OF(test, i)                                                   \
	{                                                             \
#test " of preset " #i, test, NULL, NULL, &presets[i] \
	}
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_rate),
		cmocka_unit_test(test_expectation),
		cmocka_unit_test(test_as_written_plainly),
		OF(test_gradient, 0),
		OF(test_gradient, 1),
		OF(test_it_is_the_samples_own, 0),
		OF(test_it_is_the_samples_own, 1),
		OF(test_training_alone_leaves_out, 0),
		OF(test_training_alone_leaves_out, 1),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
