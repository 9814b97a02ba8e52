/* The whole model's gradient against central differences, in double: forward.c, backward.c,
 * head.c and parts.c as they ship, for each architecture. */
#include "tests/unit/model_in_double.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { SEQUENCES = 3, LENGTH = 9 };

struct fixture {
	struct layout layout;
	struct pool *pool;
	struct model *model;
	double *params, *grads;
	int32_t inputs[SEQUENCES * LENGTH], targets[SEQUENCES * LENGTH];
};

/* Neither heads that do not fill the width (a shard's) nor odd sizes are missing. */
static const struct model_config configs[] = {
	{ .preset = MODEL_GPT2, .layers = 2, .width = 12, .heads = 3 },
	{ .preset = MODEL_GPT2, .layers = 1, .width = 10, .heads = 1, .head_width = 3, .hidden = 7 },
	{ .preset = MODEL_LLAMA, .layers = 2, .width = 12, .heads = 3, .hidden = 10, .untied = true },
	{ .preset = MODEL_LLAMA, .layers = 2, .width = 16, .heads = 4, .kv_heads = 2, .hidden = 5 },
	{ .preset = MODEL_LLAMA,
	    .layers = 1,
	    .width = 10,
	    .heads = 6,
	    .kv_heads = 2,
	    .head_width = 2,
	    .hidden = 9,
	    .rope_theta = 50,
	    .norm_eps = 0.01 },
};

static void setup(struct fixture *f, const struct model_config *shape, unsigned threads)
{
	struct model_config config = *shape;
	config.context = 10;
	config.vocab = 23;
	assert_int_equal(layout_init(&config, &f->layout, NULL), TR_OK);
	assert_int_equal(pool_create(threads, &f->pool, NULL), TR_OK);
	assert_int_equal(model_create(&f->layout, SEQUENCES, f->pool, &f->model, NULL), TR_OK);
	f->params = aligned_alloc(64, (f->layout.count + 7) / 8 * 64);
	f->grads = calloc(f->layout.count, sizeof(*f->grads));
	assert_true(f->params != NULL && f->grads != NULL);
	model_init_params(&f->layout, 5, f->params);
	/* Away from the start's symmetries: norms at 1, biases at 0. */
	for (size_t i = 0; i < f->layout.count; i++)
		f->params[i] = f->params[i] * 5 + 0.1 * rng_normal(rng_key(1, 2, 3), 4, i);
	for (size_t i = 0; i < SEQUENCES * LENGTH; i++) {
		f->inputs[i] = (int32_t)rng_below(rng_key(2, 0, 0), 0, i, 23);
		f->targets[i] = (int32_t)rng_below(rng_key(3, 0, 0), 0, i, 23);
	}
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

static double loss_of(struct fixture *f)
{
	double loss;
	assert_true(model_loss(f->model, f->inputs, f->targets, SEQUENCES, LENGTH, NULL, &loss));
	return loss;
}

static void test_every_parameter(void **state)
{
	struct fixture f;
	setup(&f, *state, 1);
	double loss;
	assert_true(model_gradient(f.model, f.inputs, f.targets, SEQUENCES, LENGTH, NULL, &loss));
	assert_true(fabs(loss - loss_of(&f)) < 1e-12);
	for (size_t t = 0; t < f.layout.tensor_count; t++) {
		const struct layout_tensor *tensor = &f.layout.tensors[t];
		for (size_t i = 0; i < layout_numbers(tensor); i++) {
			double *p = f.params + tensor->offset + i, kept = *p, step = 2e-6;
			*p = kept + step;
			double up = loss_of(&f);
			*p = kept - step;
			double down = loss_of(&f);
			*p = kept;
			double expected = (up - down) / (2 * step),
			       got = f.grads[tensor->offset + i];
			if (!(fabs(expected - got) < 1e-6 * fmax(1, fabs(expected))))
				fail_msg("%s[%zu]: %.12g, differences give %.12g", tensor->name, i,
				    got, expected);
		}
	}
	teardown(&f);
}

/* Threads and micro-batches change the order of sums only. */
static void test_threads_and_accumulation(void **state)
{
	struct fixture one, three;
	setup(&one, *state, 1);
	setup(&three, *state, 3);
	double whole, part, sum = 0;
	assert_true(
	    model_gradient(one.model, one.inputs, one.targets, SEQUENCES, LENGTH, NULL, &whole));
	for (size_t i = 0; i < SEQUENCES; i += 2) {
		size_t sequences = SEQUENCES - i < 2 ? SEQUENCES - i : 2;
		assert_true(model_gradient(three.model, three.inputs + i * LENGTH,
		    three.targets + i * LENGTH, sequences, LENGTH, NULL, &part));
		sum += part;
	}
	assert_true(fabs(whole - sum) < 1e-11);
	for (size_t i = 0; i < one.layout.count; i++)
		assert_true(fabs(one.grads[i] - three.grads[i]) < 1e-11);
	teardown(&one);
	teardown(&three);
}

struct seen {
	size_t finals, last_offset, progress, stop_after;
	struct fixture *fixture;
	double *snapshot;
};

static bool on_progress(void *arg)
{
	struct seen *seen = arg;
	return ++seen->progress <= seen->stop_after;
}

/* What was said to be final must not change any more. */
static void on_final(void *arg, size_t offset)
{
	struct seen *seen = arg;
	assert_true(offset < seen->last_offset);
	for (size_t i = offset; i < seen->last_offset; i++)
		seen->snapshot[i] = seen->fixture->grads[i];
	seen->last_offset = offset;
	seen->finals++;
}

static void test_hooks(void **state)
{
	struct fixture f;
	setup(&f, *state, 2);
	struct seen seen = { .last_offset = f.layout.count, .stop_after = 1000, .fixture = &f };
	seen.snapshot = calloc(f.layout.count, sizeof(double));
	struct model_hooks hooks = { on_progress, on_final, &seen };
	double loss;
	assert_true(model_gradient(f.model, f.inputs, f.targets, SEQUENCES, LENGTH, &hooks, &loss));
	assert_int_equal(seen.finals, 2 + f.layout.config.layers);
	assert_int_equal(seen.last_offset, 0);
	assert_memory_equal(seen.snapshot, f.grads, f.layout.count * sizeof(double));
	size_t calls = seen.progress;
	for (seen.stop_after = 0; seen.stop_after < calls; seen.stop_after++) {
		seen.progress = 0;
		seen.last_offset = f.layout.count;
		assert_false(
		    model_gradient(f.model, f.inputs, f.targets, SEQUENCES, LENGTH, &hooks, &loss));
		assert_int_equal(seen.progress, seen.stop_after + 1);
	}
	free(seen.snapshot);
	teardown(&f);
}

/* A token's logits do not depend on what follows it. */
static void test_logits_are_causal(void **state)
{
	struct fixture f;
	setup(&f, *state, 1);
	double whole[LENGTH * 23], last[23];
	for (size_t length = 1; length <= LENGTH; length++) {
		model_logits(f.model, f.inputs, 1, LENGTH, whole);
		for (size_t first = 0; first < length; first++) {
			if (first > 0)
				model_extend(f.model, f.inputs, 0, first, last);
			model_extend(f.model, f.inputs, first, length, last);
			for (size_t v = 0; v < 23; v++)
				assert_true(fabs(last[v] - whole[(length - 1) * 23 + v]) < 1e-12);
		}
	}
	teardown(&f);
}

#define WITH(test, i)                                                         \
	{                                                                     \
#test " of config " #i, test, NULL, NULL, (void *)&configs[i] \
	}
#define EACH(test) WITH(test, 0), WITH(test, 1), WITH(test, 2), WITH(test, 3), WITH(test, 4)
_Static_assert(sizeof(configs) / sizeof(configs[0]) == 5, "each has its tests");

int main(void)
{
	const struct CMUnitTest tests[] = {
		EACH(test_every_parameter),
		EACH(test_threads_and_accumulation),
		EACH(test_hooks),
		EACH(test_logits_are_causal),
	};
	gemm_setup();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
