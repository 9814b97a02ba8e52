/* Every vector width that this machine can run gives the bits of plain C; floats are as exact
 * as promised; which kernels of OpenBLAS are advised. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/rng.h"
#include "daemon/worker/gemm.h"
#include "daemon/worker/gemm_kernels.h"
#include "daemon/worker/lanes.h"
#include "daemon/worker/ops.h"

enum { ROWS = 7, MOST = 300 };

static const size_t widths[] = { 1, 15, 16, 17, 64, 131, 256, MOST };

static void fill(float *x, size_t count, uint64_t stream)
{
	for (size_t i = 0; i < count; i++)
		x[i] = (float)(3 * rng_normal(rng_key(1, 0, 0), stream, i));
}

/* All outputs of all ops at one width, one after the other; returns how many numbers. */
static size_t run_all(const struct ops *ops, size_t width, float *out)
{
	static float x[ROWS * MOST], y[ROWS * MOST], w[MOST], b[MOST];
	size_t count = ROWS * width;
	float *at = out, *mean, *rstd;
	fill(x, count, 1);
	fill(y, count, 2);
	fill(w, MOST, 3);
	fill(b, MOST, 4);
	mean = at + count;
	rstd = mean + ROWS;
	ops->layernorm(x, w, b, 1e-5f, ROWS, width, at, mean, rstd);
	at = rstd + ROWS;
	memset(at + count, 0, 2 * width * sizeof(float));
	ops->layernorm_backward(y, x, w, mean, rstd, x, ROWS, width, at, at + count,
	    at + count + width);
	at += count + 2 * width;
	ops->rmsnorm(x, w, 1e-5f, ROWS, width, at, at + count);
	memset(at + 2 * count + ROWS, 0, width * sizeof(float));
	ops->rmsnorm_backward(y, x, w, at + count, x, ROWS, width, at + count + ROWS,
	    at + 2 * count + ROWS);
	at += 2 * count + ROWS + width;
	ops->gelu(x, count, at);
	at += count;
	/* Rows of half the width, so that x is gate and up. */
	size_t half = width / 2;
	ops->swiglu(x, ROWS, half, at);
	at += ROWS * half;
	memcpy(at, x, 2 * ROWS * half * sizeof(float));
	memcpy(at + 2 * ROWS * half, y, 2 * ROWS * half * sizeof(float));
	ops->swiglu_backward(at, at + 2 * ROWS * half, ROWS, half);
	at += 4 * ROWS * half;
	struct rotation turn = { 0, ROWS, 1, 2 * half, width, w, b };
	memcpy(at, x, count * sizeof(float));
	turn.rows = half > 0 ? MOST / half : 0; /* of the tables */
	turn.rows = turn.rows < ROWS ? turn.rows : ROWS;
	ops->rotate(&turn, -1, at);
	at += count;
	memcpy(at, x, count * sizeof(float));
	memcpy(at + count, y, count * sizeof(float));
	ops->gelu_backward(at, at + count, count);
	at += 2 * count;
	ops->bias(b, ROWS, width, at);
	at += count;
	ops->bias_residual(x, b, ROWS, width, at);
	at += count;
	for (unsigned with = 0; with < 4; with++, at += count)
		ops->onto(y, (with & 1) != 0 ? x : NULL, (with & 2) != 0 ? b : NULL, ROWS, width,
		    at);
	struct dropout dropout = { 12345, 1 << 22, 4.0f / 3 };
	ops->drop(&dropout, 3, ROWS, width, x, at);
	at += count;
	memcpy(at, x, count * sizeof(float));
	ops->drop(&dropout, 3, ROWS, width, at, at);
	assert_memory_equal(at, at - count, count * sizeof(float));
	at += count;
	memcpy(at, y, count * sizeof(float));
	ops->drop_onto(&dropout, 3, ROWS, width, x, at);
	at += count;
	memset(at, 0, width * sizeof(float));
	ops->column_sums(x, ROWS, width, at);
	at += width;
	memcpy(at, x, count * sizeof(float));
	int32_t targets[ROWS] = { 0 };
	double sums[2] = { ops->softmax_loss(at, targets, ROWS, width), ops->sum_squares(x, count) };
	at += count;
	memcpy(at, sums, sizeof(sums));
	at += 2 * sizeof(double) / sizeof(float);
	struct adamw by = { 0.5f, 0.95f, 1e-8f, 0.1f, 0.05f, 1e-3f, 3.0f, 0.999f };
	memcpy(at, x, count * sizeof(float));
	memcpy(at + count, y, count * sizeof(float));
	for (size_t i = 0; i < count; i++)
		at[2 * count + i] = y[i] * y[i];
	ops->adamw(at, y, at + count, at + 2 * count, count, &by);
	return (size_t)(at + 3 * count - out);
}

static void test_same_bits(void **state)
{
	(void)state;
	static float plain[39 * ROWS * MOST], other[39 * ROWS * MOST];
	for (size_t w = 0; w < sizeof(widths) / sizeof(widths[0]); w++) {
		size_t count = run_all(ops_variant(0), widths[w], plain);
		for (size_t v = 1; ops_variant(v) != NULL; v++) {
			assert_int_equal(run_all(ops_variant(v), widths[w], other), count);
			for (size_t i = 0; i < count; i++)
				if (memcmp(&plain[i], &other[i], sizeof(float)) != 0)
					fail_msg("%s, width %zu: number %zu is %a, plain C gives "
					         "%a",
					    ops_variant(v)->name, widths[w], i, (double)other[i],
					    (double)plain[i]);
		}
	}
}

/* Also with whatever in the scratch. */
static void test_attention_same_bits(void **state)
{
	struct attention shape = { 150, 0, 6, 3, 8, 12, *state };
	size_t count = shape.length * shape.heads * shape.head, rows = shape.length * shape.heads;
	size_t all = count + 2 * rows + 3 * count;
	float *qkv = calloc(3 * count, sizeof(float)), *dout = calloc(count, sizeof(float));
	size_t bytes = 2 * attention_scratch(shape.length, shape.head) * sizeof(float);
	float *scratch = malloc(bytes);
	float *out[2] = { calloc(all, sizeof(float)), calloc(all, sizeof(float)) };
	fill(qkv, 3 * count, 1);
	fill(dout, count, 2);
	for (size_t v = 0; ops_variant(v) != NULL; v++) {
		const struct ops *ops = ops_variant(v);
		float *o = out[v > 0], *max = o + count, *scale = max + rows;
		memset(scratch, v > 0 ? 0xff : 0, bytes); /* NaNs: what was there is not read */
		ops->attention(&shape, qkv, o, max, scale, scratch);
		ops->attention_backward(&shape, qkv, o, max, scale, dout, scale + rows, scratch);
		assert_memory_equal(out[0], o, all * sizeof(float));
	}
	free(qkv);
	free(dout);
	free(scratch);
	free(out[0]);
	free(out[1]);
}

static void test_exp(void **state)
{
	(void)state;
	double worst = 0;
	for (float x = -87; x <= 88; x += 0.000731f)
		worst = fmax(worst, fabs((double)lanes_exp(x) / exp((double)x) - 1));
	assert_true(worst < 3e-7);
	assert_true(lanes_exp(-1000.0f) > 0 && lanes_exp(-1000.0f) < 2e-38f);
	assert_true(lanes_exp(0.0f) == 1.0f);
}

static void test_better_kernels_are_named_when_it_helps(void **state)
{
	(void)state;
	struct gemm_kernels k = { .core = "Haswell",
		.config = "OpenBLAS 0.3.21 NO_LAPACKE DYNAMIC_ARCH NO_AFFINITY Haswell",
		.avx2 = true,
		.avx512 = true };
	assert_string_equal(gemm_kernels_better(&k), "SkylakeX");
	k.asked = "";
	assert_string_equal(gemm_kernels_better(&k), "SkylakeX");
	k.asked = "Haswell"; /* somebody chose it */
	assert_null(gemm_kernels_better(&k));
	k.asked = NULL;
	k.config = "OpenBLAS 0.3.21 NO_AFFINITY HASWELL"; /* has no others */
	assert_null(gemm_kernels_better(&k));
	k.config = "DYNAMIC_ARCH";
	k.core = "Cooperlake";
	assert_null(gemm_kernels_better(&k));
	k.core = "Zen";
	k.avx512 = false;
	assert_null(gemm_kernels_better(&k));
	k.core = "Prescott";
	assert_string_equal(gemm_kernels_better(&k), "Haswell");
	k.avx2 = false;
	assert_null(gemm_kernels_better(&k));
}

int main(void)
{
	struct dropout dropout = { 99, 1 << 22, 4.0f / 3 };
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_same_bits),
		cmocka_unit_test(test_attention_same_bits),
		{ "test_attention_same_bits with dropout", test_attention_same_bits, NULL, NULL,
		    &dropout },
		cmocka_unit_test(test_exp),
		cmocka_unit_test(test_better_kernels_are_named_when_it_helps),
	};
	gemm_setup();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
