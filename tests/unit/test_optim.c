/* The update: its bits depend on the gradients only; schedule and elementary functions against libm. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/float_mode.h"
#include "common/rng.h"
#include "daemon/worker/buckets.h"
#include "daemon/worker/exact_math.h"
#include "daemon/worker/model.h"
#include "daemon/worker/optim.h"

static void test_exact_math(void **state)
{
	(void)state;
	for (uint64_t i = 0; i < 20000; i++) {
		double u = rng_unit(rng_key(1, 0, 0), 0, i),
		       x = ldexp(u + 1e-9, (int)(i % 80) - 40);
		assert_true(fabs(exact_log(x) - log(x)) <= 1e-15 * fabs(log(x)) + 2e-16);
		assert_true(fabs(exact_cos_turns(u) - cos(6.283185307179586 * u)) < 2e-15);
	}
	for (double x = -30; x < 30; x += 0.0137)
		assert_true(fabs(exact_exp(x) / exp(x) - 1) < 1e-15);
	assert_true(exact_exp(0) == 1);
	assert_true(exact_log(1) == 0 && exact_cos_turns(0) == 1 && exact_cos_turns(1) == 1);
	assert_true(exact_cos_turns(0.5) == -1);
	for (uint64_t n = 0; n < 3000; n++)
		assert_true(fabs(exact_power(0.999, n) / pow(0.999, (double)n) - 1) < 1e-12);
}

static void test_schedule(void **state)
{
	(void)state;
	struct optim_settings s = { .lr = 1, .min_lr = 0.1, .steps = 110, .warmup = 10 };
	assert_true(fabs(optim_lr(&s, 1) - 0.1) < 1e-15);
	assert_true(optim_lr(&s, 10) == 1);
	assert_true(fabs(optim_lr(&s, 60) - 0.55) < 1e-12);
	assert_true(optim_lr(&s, 110) == 0.1);
	for (uint64_t step = 11; step <= 110; step++) {
		double expected = 0.1 + 0.45 * (1 + cos(M_PI * (double)(step - 10) / 100));
		assert_true(fabs(optim_lr(&s, step) - expected) < 1e-12);
		assert_true(optim_lr(&s, step) < optim_lr(&s, step - 1));
	}
	s.warmup = 0;
	assert_true(optim_lr(&s, 1) < 1 && optim_lr(&s, 1) > 0.99);
	s.steps = 1;
	assert_true(optim_lr(&s, 1) == 0.1);
}

struct fixture {
	struct layout layout;
	struct optim_arrays arrays;
};

static void setup(struct fixture *f)
{
	struct model_config config = { .layers = 3,
		.width = 72,
		.heads = 2,
		.context = 30,
		.vocab = 256 };
	assert_int_equal(layout_init(&config, &f->layout, NULL), TR_OK);
	size_t bytes = (f->layout.count * sizeof(float) + 63) / 64 * 64;
	float **arrays[] = { &f->arrays.params, &f->arrays.grads, &f->arrays.first,
		&f->arrays.second };
	for (size_t i = 0; i < 4; i++) {
		*arrays[i] = aligned_alloc(64, bytes);
		assert_non_null(*arrays[i]);
		memset(*arrays[i], 0, bytes);
	}
	model_init_params(&f->layout, 4, f->arrays.params);
}

static void teardown(struct fixture *f)
{
	layout_finish(&f->layout);
	free(f->arrays.params);
	free(f->arrays.grads);
	free(f->arrays.first);
	free(f->arrays.second);
}

static double run_steps(struct fixture *f, const struct ops *ops, unsigned threads)
{
	struct optim_settings s = { .lr = 1e-2,
		.min_lr = 1e-3,
		.clip = 0.5,
		.weight_decay = 0.1,
		.beta1 = 0.9,
		.beta2 = 0.95,
		.eps = 1e-8,
		.steps = 10,
		.warmup = 3 };
	struct pool *pool;
	double norms = 0;
	assert_int_equal(pool_create(threads, &pool, NULL), TR_OK);
	for (uint64_t step = 1; step <= 5; step++) {
		for (size_t i = 0; i < f->layout.count; i++)
			f->arrays.grads[i] = (float)rng_unit(rng_key(step, 0, 0), 0, i) - 0.4f;
		norms += optim_step(ops, pool, &f->layout, &s, &f->arrays, 0.01, step, step);
	}
	pool_destroy(pool);
	return norms;
}

enum { FADING = 150 };

/* Moments of gradients of all sizes, and of none from the fourth step on: `arrays` has parameters, moments and variances. */
static void fade(const struct ops *ops, unsigned mode, float (*arrays)[FADING])
{
	struct adamw by = { 1, 0.95f, 1e-8f, 0.1f, 0.05f, 1e-3f, 3, 0.999f };
	float grads[FADING];
	unsigned before = float_mode_set(mode);
	for (size_t i = 0; i < FADING; i++) {
		arrays[0][i] = 0.1f;
		arrays[1][i] = arrays[2][i] = 0;
		grads[i] = ldexpf(1.25f, -(int)i);
	}
	for (unsigned step = 0; step < 2500; step++) {
		if (step == 3)
			memset(grads, 0, sizeof(grads));
		ops->adamw(arrays[0], grads, arrays[1], arrays[2], FADING, &by);
	}
	(void)float_mode_set(before);
}

/* They would stay, and cost 20 times as much: neither in the end nor in between, or what flushes them would show. */
static void test_moments_come_to_nothing_without_subnormal_numbers(void **state)
{
	(void)state;
	static float plain[3][FADING], other[3][FADING];
	fade(ops_variant(0), FLOAT_EXACT, plain);
	for (size_t i = 0; i < FADING; i++)
		assert_true(plain[1][i] == 0 && plain[2][i] == 0);
	for (size_t v = 0; ops_variant(v) != NULL; v++)
		for (unsigned flush = 0; flush < 2; flush++) {
			fade(ops_variant(v), flush ? FLOAT_FLUSH : FLOAT_EXACT, other);
			assert_memory_equal(plain, other, sizeof(plain));
		}
}

static void test_bits_depend_on_nothing_else(void **state)
{
	(void)state;
	struct fixture plain, other;
	setup(&plain);
	double norms = run_steps(&plain, ops_variant(0), 1);
	size_t bytes = plain.layout.count * sizeof(float);
	for (size_t v = 0; ops_variant(v) != NULL; v++) {
		for (unsigned threads = 1; threads <= 5; threads++) {
			setup(&other);
			assert_true(run_steps(&other, ops_variant(v), threads) == norms);
			assert_memory_equal(plain.arrays.params, other.arrays.params, bytes);
			assert_memory_equal(plain.arrays.first, other.arrays.first, bytes);
			assert_memory_equal(plain.arrays.second, other.arrays.second, bytes);
			teardown(&other);
		}
	}
	teardown(&plain);
}

static const struct optim_settings clipped = { .lr = 1e-2,
	.clip = 0.5,
	.weight_decay = 0.1,
	.beta1 = 0.9,
	.beta2 = 0.95,
	.eps = 1e-8,
	.steps = 10,
	.warmup = 3 };

/* Cut anywhere, with any threads: what is made beside the arrays is what the whole becomes there, and leaves them as they are; so do the ranges, one after the other. */
static void test_ranges_have_the_bits_of_the_whole(void **state)
{
	(void)state;
	struct fixture whole, cut;
	struct pool *pool;
	setup(&whole);
	setup(&cut);
	size_t count = whole.layout.count, bytes = count * sizeof(float);
	float *made = malloc(bytes), *before = malloc(bytes);
	assert_true(made != NULL && before != NULL);
	for (uint64_t step = 1; step <= 4; step++) {
		const struct optim_by by = { &clipped, 0.01, 3 * (double)step, step, step };
		assert_int_equal(pool_create((unsigned)step, &pool, NULL), TR_OK);
		for (size_t i = 0; i < count; i++)
			whole.arrays.grads[i] = cut.arrays.grads[i] = (float)rng_unit(rng_key(step,
			                                                                  0, 0),
			                                                  0, i) -
			    0.4f;
		optim_update_range(ops_choose(), pool, &whole.layout, &whole.arrays, &by, 0, count);
		memcpy(before, cut.arrays.params, bytes);
		size_t pieces = 3 +
		    4 * (size_t)step; /* of which some are in the middle of a tensor */
		for (size_t k = 0; k < pieces; k++) {
			size_t first = count * k / pieces, end = count * (k + 1) / pieces;
			optim_update_beside(ops_choose(), pool, &cut.layout, &cut.arrays, &by,
			    first, end, made + first);
		}
		assert_memory_equal(made, whole.arrays.params, bytes);
		assert_memory_equal(cut.arrays.params, before, bytes);
		for (size_t k = pieces; k-- > 0;)
			optim_update_range(ops_choose(), pool, &cut.layout, &cut.arrays, &by,
			    count * k / pieces, count * (k + 1) / pieces);
		assert_memory_equal(cut.arrays.params, whole.arrays.params, bytes);
		assert_memory_equal(cut.arrays.first, whole.arrays.first, bytes);
		assert_memory_equal(cut.arrays.second, whole.arrays.second, bytes);
		pool_destroy(pool);
	}
	free(made);
	free(before);
	teardown(&whole);
	teardown(&cut);
}

static void test_norm(void **state)
{
	(void)state;
	struct pool *pool;
	assert_int_equal(pool_create(2, &pool, NULL), TR_OK);
	size_t count = 3000001; /* several runs of blocks, and a last block that is not whole */
	float *x = malloc(count * sizeof(float));
	double expected = 0;
	assert_non_null(x);
	for (size_t i = 0; i < count; i++) {
		x[i] = (float)rng_unit(rng_key(1, 0, 0), 0, i);
		expected += (double)x[i] * (double)x[i];
	}
	assert_true(fabs(optim_norm(ops_choose(), pool, x, count) / sqrt(expected) - 1) < 1e-12);
	x[7] = INFINITY;
	double norm = optim_norm(ops_choose(), pool, x, count);
	assert_false((bool)isfinite(norm));
	free(x);
	pool_destroy(pool);
}

static void test_not_finite_changes_nothing(void **state)
{
	(void)state;
	struct fixture f, before;
	struct pool *pool;
	struct optim_settings s = { .lr = 1, .beta1 = 0.9, .beta2 = 0.9, .steps = 3 };
	setup(&f);
	setup(&before);
	assert_int_equal(pool_create(1, &pool, NULL), TR_OK);
	f.arrays.grads[f.layout.count / 2] = NAN;
	assert_true(isnan(optim_step(ops_choose(), pool, &f.layout, &s, &f.arrays, 1, 1, 1)));
	assert_memory_equal(f.arrays.params, before.arrays.params, f.layout.count * sizeof(float));
	pool_destroy(pool);
	teardown(&f);
	teardown(&before);
}

/* Vectors are not decayed; without gradients only decay moves a matrix; gaps stay zero. */
static void test_decay(void **state)
{
	(void)state;
	struct fixture f, before;
	struct pool *pool;
	struct optim_settings s = { .lr = 0.1,
		.min_lr = 0.1,
		.weight_decay = 0.5,
		.beta1 = 0.9,
		.beta2 = 0.9,
		.eps = 1e-8,
		.steps = 3 };
	setup(&f);
	setup(&before);
	assert_int_equal(pool_create(1, &pool, NULL), TR_OK);
	(void)optim_step(ops_choose(), pool, &f.layout, &s, &f.arrays, 1, 1, 1);
	for (size_t t = 0; t < f.layout.tensor_count; t++) {
		const struct layout_tensor *tensor = &f.layout.tensors[t];
		for (size_t i = 0; i < layout_numbers(tensor); i++) {
			float was = before.arrays.params[tensor->offset + i];
			float is = f.arrays.params[tensor->offset + i];
			assert_true(is == (tensor->rows > 0 ? was * (float)(1 - 0.1 * 0.5) : was));
		}
	}
	pool_destroy(pool);
	teardown(&f);
	teardown(&before);
}

/* As torch.optim.AdamW: 1 - beta is rounded once. Of a first step the corrections undo it, so it is as long as the learning rate. */
static void test_shares_of_a_gradient(void **state)
{
	(void)state;
	static const double betas[][2] = { { 0.9, 0.95 }, { 0.9, 0.999 }, { 0.9999, 0.999999 } };
	for (size_t b = 0; b < sizeof(betas) / sizeof(betas[0]); b++) {
		struct fixture f, before;
		struct pool *pool;
		struct optim_settings s = { .lr = 0.1,
			.min_lr = 0.1,
			.beta1 = betas[b][0],
			.beta2 = betas[b][1],
			.eps = 1e-16,
			.steps = 3 };
		setup(&f);
		setup(&before);
		assert_int_equal(pool_create(1, &pool, NULL), TR_OK);
		f.arrays.grads[0] = 0.5f;
		f.arrays.grads[1] = -3;
		(void)optim_step(ops_choose(), pool, &f.layout, &s, &f.arrays, 1, 1, 1);
		for (size_t i = 0; i < 2; i++) {
			float g = f.arrays.grads[i];
			double moved = (double)(before.arrays.params[i] - f.arrays.params[i]);
			assert_true(f.arrays.first[i] == (float)(1 - s.beta1) * g);
			assert_true(f.arrays.second[i] == (float)(1 - s.beta2) * g * g);
			assert_true(fabs(fabs(moved) - 0.1) < 1e-7);
		}
		pool_destroy(pool);
		teardown(&f);
		teardown(&before);
	}
}

static void test_initial_weights(void **state)
{
	(void)state;
	struct fixture f;
	setup(&f);
	double sum = 0, squares = 0;
	size_t count = 256 * 72;
	for (size_t i = 0; i < count; i++) {
		double x = (double)f.arrays.params[i] / 0.02;
		assert_true(fabs(x) < 7);
		sum += x;
		squares += x * x;
	}
	assert_true(fabs(sum / (double)count) < 0.05);
	assert_true(fabs(squares / (double)count - 1) < 0.05);
	teardown(&f);
}

/* Buckets are the whole array, from the end, cut where gradients become final, and never too many. */
static void test_buckets(void **state)
{
	(void)state;
	for (uint32_t layers = 1; layers < 300; layers += 13) {
		struct model_config config = { .layers = layers,
			.width = 8,
			.heads = 2,
			.context = 8,
			.vocab = 256 };
		struct layout layout;
		assert_int_equal(layout_init(&config, &layout, NULL), TR_OK);
		for (size_t least = 1; least < 1u << 22; least *= 8) {
			struct buckets b;
			buckets_plan(&layout, least, &b);
			assert_true(b.count >= 1 && b.count <= BUCKETS_MAX);
			assert_int_equal(b.end, layout.count);
			assert_int_equal(b.first[b.count - 1], 0);
			for (size_t i = 0; i + 1 < b.count; i++) {
				assert_true(b.first[i] < buckets_end(&b, i));
				assert_true(
				    (buckets_end(&b, i) - b.first[i]) * sizeof(float) >= least);
			}
		}
		layout_finish(&layout);
	}
}

/* A stage without the embedding begins with a layer: behind that layer's bucket there is none, of nothing. */
static void test_buckets_of_stages(void **state)
{
	(void)state;
	const struct model_config config = { .layers = 6,
		.width = 8,
		.heads = 2,
		.context = 8,
		.vocab = 256 };
	static const uint32_t stage_layers[] = { 2, 2, 2 };
	for (uint32_t rank = 0; rank < 3; rank++)
		for (size_t least = 1; least < 1u << 22; least *= 8) {
			struct layout layout;
			struct layout_depth depth;
			struct buckets b;
			layout_depth_of(stage_layers, 3, 1, rank, &depth);
			assert_int_equal(layout_init_depth(&config, &depth, &layout, NULL), TR_OK);
			buckets_plan(&layout, least, &b);
			assert_int_equal(b.first[b.count - 1], 0);
			for (size_t i = 0; i < b.count; i++)
				assert_true(b.first[i] < buckets_end(&b, i));
			layout_finish(&layout);
		}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_exact_math),
		cmocka_unit_test(test_schedule),
		cmocka_unit_test(test_bits_depend_on_nothing_else),
		cmocka_unit_test(test_moments_come_to_nothing_without_subnormal_numbers),
		cmocka_unit_test(test_ranges_have_the_bits_of_the_whole),
		cmocka_unit_test(test_norm),
		cmocka_unit_test(test_not_finite_changes_nothing),
		cmocka_unit_test(test_decay),
		cmocka_unit_test(test_shares_of_a_gradient),
		cmocka_unit_test(test_initial_weights),
		cmocka_unit_test(test_buckets),
		cmocka_unit_test(test_buckets_of_stages),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
