/* Both float models against PyTorch 2.13 through the golden files that scripts/make_parity_golden.py writes: logits (relative
 * 1e-5), every gradient (1e-4), ten AdamW losses. tests/parity/test_parity.py does the same live where PyTorch is. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "daemon/worker/gemm.h"
#include "daemon/worker/model.h"
#include "daemon/worker/optim.h"
#include "daemon/checkpoint/weights.h"

enum { SEQUENCES = 3, LENGTH = 24, ROWS = SEQUENCES * LENGTH, VOCAB = 256, STEPS = 10 };

struct fixture {
	struct safetensors golden;
	struct layout layout;
	struct pool *pool;
	struct model *model;
	struct optim_arrays arrays;
	int32_t inputs[ROWS], targets[ROWS];
};

static float *zeroed(size_t count)
{
	float *x = aligned_alloc(64, (count * sizeof(float) + 63) / 64 * 64);
	assert_non_null(x);
	memset(x, 0, count * sizeof(float));
	return x;
}

static void read_batch(struct fixture *f)
{
	const struct safetensors_tensor *batch = safetensors_find(&f->golden, "batch");
	assert_non_null(batch);
	assert_int_equal(batch->bytes, SEQUENCES * (LENGTH + 1) * sizeof(int32_t));
	for (size_t i = 0; i < ROWS; i++) {
		uint64_t at = batch->at +
		    (i / LENGTH * (LENGTH + 1) + i % LENGTH) * sizeof(int32_t);
		int32_t two[2];
		assert_int_equal(safetensors_read(&f->golden, at, sizeof(two), two, NULL), TR_OK);
		memcpy(&f->inputs[i], &two[0], sizeof(int32_t));
		memcpy(&f->targets[i], &two[1], sizeof(int32_t));
	}
}

/* The models of scripts/make_parity_golden.py. */
static int setup(void **state, const char *golden, struct model_config config)
{
	static struct fixture f;
	struct tr_error error;
	config.layers = 2;
	config.width = 32;
	config.heads = 4;
	config.context = LENGTH;
	config.vocab = VOCAB;
	if (safetensors_open(golden, &f.golden, &error) != TR_OK)
		fail_msg("%s (run from the repository's root)", error.text);
	assert_int_equal(layout_init(&config, &f.layout, NULL), TR_OK);
	assert_int_equal(pool_create(2, &f.pool, NULL), TR_OK);
	assert_int_equal(model_create(&f.layout, SEQUENCES, f.pool, &f.model, NULL), TR_OK);
	size_t count = f.layout.count;
	f.arrays = (struct optim_arrays){ .params = zeroed(count),
		.grads = zeroed(count),
		.first = zeroed(count),
		.second = zeroed(count) };
	if (weights_load(&f.layout, "", &f.golden, f.arrays.params, &error) != TR_OK)
		fail_msg("%s", error.text);
	model_bind(f.model, f.arrays.params, f.arrays.grads);
	read_batch(&f);
	*state = &f;
	return 0;
}

static int setup_gpt2(void **state)
{
	return setup(state, "tests/parity/golden_gpt2.safetensors",
	    (struct model_config){ .preset = MODEL_GPT2 });
}

static int setup_llama(void **state)
{
	return setup(state, "tests/parity/golden_llama.safetensors",
	    (struct model_config){ .preset = MODEL_LLAMA,
	        .kv_heads = 2,
	        .hidden = 48,
	        .untied = true });
}

static int teardown(void **state)
{
	struct fixture *f = *state;
	model_destroy(f->model);
	pool_destroy(f->pool);
	layout_finish(&f->layout);
	safetensors_close(&f->golden);
	free(f->arrays.params);
	free(f->arrays.grads);
	free(f->arrays.first);
	free(f->arrays.second);
	return 0;
}

/* Largest difference, relative to the largest number expected. */
static void assert_close(const char *name, const float *got, float scale, const void *golden,
    size_t count, double tolerance)
{
	double worst = 0, largest = 0;
	for (size_t i = 0; i < count; i++) {
		float expected;
		memcpy(&expected, (const char *)golden + i * sizeof(float), sizeof(float));
		worst = fmax(worst, fabs((double)(got[i] * scale) - (double)expected));
		largest = fmax(largest, fabs((double)expected));
	}
	if (!(worst <= tolerance * largest))
		fail_msg("%s differs from PyTorch by %.3g of %.3g", name, worst, largest);
}

/* To be freed. */
static float *numbers_at(const struct fixture *f, uint64_t at, size_t count)
{
	float *numbers = zeroed(count);
	assert_int_equal(safetensors_read(&f->golden, at, count * sizeof(float), numbers, NULL),
	    TR_OK);
	return numbers;
}

static void test_logits(void **state)
{
	struct fixture *f = *state;
	const struct safetensors_tensor *golden = safetensors_find(&f->golden, "logits");
	float *logits = zeroed((size_t)ROWS * VOCAB);
	assert_non_null(golden);
	assert_int_equal(golden->bytes, ROWS * VOCAB * sizeof(float));
	model_logits(f->model, f->inputs, SEQUENCES, LENGTH, logits);
	float *wanted = numbers_at(f, golden->at, (size_t)ROWS * VOCAB);
	assert_close("logits", logits, 1, wanted, (size_t)ROWS * VOCAB, 1e-5);
	free(wanted);
	free(logits);
}

static double gradient(struct fixture *f)
{
	double loss;
	memset(f->arrays.grads, 0, f->layout.count * sizeof(float));
	assert_true(model_gradient(f->model, f->inputs, f->targets, SEQUENCES, LENGTH, NULL, &loss));
	return loss / ROWS;
}

static void test_gradients(void **state)
{
	struct fixture *f = *state;
	(void)gradient(f);
	for (size_t t = 0; t < f->layout.tensor_count; t++) {
		const struct layout_tensor *tensor = &f->layout.tensors[t];
		char name[LAYOUT_NAME_MAX + 8];
		struct tr_error error;
		uint64_t at;
		(void)snprintf(name, sizeof(name), "%s.grad", tensor->name);
		if (safetensors_find_f32(&f->golden, name, tensor->rows, tensor->columns, &at,
		        &error) != TR_OK)
			fail_msg("%s", error.text);
		float *golden = numbers_at(f, at, layout_numbers(tensor));
		assert_close(name, f->arrays.grads + tensor->offset, 1.0f / ROWS, golden,
		    layout_numbers(tensor), 1e-4);
		free(golden);
	}
}

/* Changes the parameters: last. */
static void test_losses(void **state)
{
	struct fixture *f = *state;
	struct optim_settings settings = { .lr = 1e-3,
		.min_lr = 1e-3,
		.clip = 1,
		.weight_decay = 0.1,
		.beta1 = 0.9,
		.beta2 = 0.95,
		.eps = 1e-8,
		.steps = 1000 };
	struct tr_error error;
	uint64_t at;
	float losses[STEPS];
	if (safetensors_find_f32(&f->golden, "losses", 0, STEPS, &at, &error) != TR_OK)
		fail_msg("%s", error.text);
	for (uint64_t step = 1; step <= STEPS; step++) {
		losses[step - 1] = (float)gradient(f);
		(void)optim_step(ops_choose(), f->pool, &f->layout, &settings, &f->arrays,
		    1.0 / ROWS, step, step);
	}
	float *golden = numbers_at(f, at, STEPS);
	assert_close("losses", losses, 1, golden, STEPS, 1e-5);
	free(golden);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_logits),
		cmocka_unit_test(test_gradients),
		cmocka_unit_test(test_losses),
	};
	gemm_setup();
	int failed = cmocka_run_group_tests_name("gpt2", tests, setup_gpt2, teardown);
	return failed + cmocka_run_group_tests_name("llama", tests, setup_llama, teardown);
}
