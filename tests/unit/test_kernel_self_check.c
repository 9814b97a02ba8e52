/* A form of the kernels that gives wrong bits is found out at its first use, whichever kernel it is, and another one is taken. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "collectives/kernels/codec.h"
#include "collectives/kernels/dispatch.h"
#include "collectives/kernels/reduce.h"
#include "collectives/kernels/self_check.h"

/* Each as plain has it, but for one bit of one case. */
static void flip(void *data, size_t bytes)
{
	((uint8_t *)data)[bytes - 1] ^= 1;
}

static void bad_combine(enum tr_dtype dtype, enum tr_reduce op, void *out, const void *a,
    const void *b, size_t count)
{
	variant_plain->combine(dtype, op, out, a, b, count);
	if (dtype == TR_I64 && op == TR_PROD)
		flip(out, count * 8);
}

static void bad_combine_many(enum tr_dtype dtype, enum tr_reduce op, void *out,
    const void *const *inputs, unsigned n, size_t count)
{
	variant_plain->combine_many(dtype, op, out, inputs, n, count);
	if (dtype == TR_F16 && op == TR_SUM)
		flip(out, count * 2);
}

static void bad_combine_wide(enum tr_dtype dtype, enum tr_reduce op, float *acc, const void *b,
    size_t count)
{
	variant_plain->combine_wide(dtype, op, acc, b, count);
	if (dtype == TR_BF16 && op == TR_MAX)
		flip(acc, count * 4);
}

static void bad_divide(enum tr_dtype dtype, void *data, size_t count, unsigned divisor)
{
	variant_plain->divide(dtype, data, count, divisor);
	if (dtype == TR_U8)
		flip(data, count);
}

static void bad_widen(enum tr_dtype dtype, float *out, const void *in, size_t count)
{
	variant_plain->widen(dtype, out, in, count);
	if (dtype == TR_F16)
		flip(out, count * 4);
}

static void bad_narrow(enum tr_dtype dtype, void *out, const float *in, size_t count)
{
	variant_plain->narrow(dtype, out, in, count + 1); /* one too many */
}

static void bad_encode(enum tr_codec codec, void *out, const float *in, size_t elements)
{
	variant_plain->encode(codec, out, in, elements);
	if (codec == TR_CODEC_INT2)
		flip(out, codec_bytes(codec, elements));
}

static void bad_decode(enum tr_codec codec, float *out, const void *in, size_t elements)
{
	variant_plain->decode(codec, out, in, elements);
	if (codec == TR_CODEC_E3M0)
		flip(out, elements * 4);
}

static void bad_decode_combine(enum tr_codec codec, enum tr_reduce op, float *acc, const void *in,
    size_t elements)
{
	variant_plain->decode_combine(codec, op, acc, in, elements);
	if (codec == TR_CODEC_INT4 && op == TR_MIN)
		flip(acc, elements * 4);
}

static void bad_encode_feedback(enum tr_codec codec, float beta, void *out, const float *in,
    const float *residual, float *residual_next, size_t elements)
{
	variant_plain->encode_feedback(codec, beta, out, in, residual, residual_next, elements);
	if (codec == TR_CODEC_INT8)
		flip(residual_next, elements * 4);
}

static void found_out(const struct variant *bad, const char *kernel)
{
	const struct variant *const list[] = { variant_plain, variant_base, bad };
	char what[64] = "";
	assert_false(self_check_variant(bad, what, sizeof(what)));
	if (strncmp(what, kernel, strlen(kernel)) != 0 || what[strlen(kernel)] != ' ')
		fail_msg("\"%s\" is not \"%s\"", what, kernel);
	assert_ptr_equal(variant_best(list, 3), variant_base);
	assert_ptr_equal(variant_best(list, 1), variant_plain);
}

#define FOUND_OUT(kernel)                           \
	do {                                        \
		struct variant bad = *variant_base; \
		bad.name = "bad";                   \
		bad.kernel = bad_##kernel;          \
		found_out(&bad, #kernel);           \
	} while (0)

static void test_wrong_bits_are_found_out(void **state)
{
	(void)state;
	FOUND_OUT(combine);
	FOUND_OUT(combine_many);
	FOUND_OUT(combine_wide);
	FOUND_OUT(divide);
	FOUND_OUT(widen);
	FOUND_OUT(narrow);
	FOUND_OUT(encode);
	FOUND_OUT(decode);
	FOUND_OUT(decode_combine);
	FOUND_OUT(encode_feedback);
}

static void test_the_best_of_this_machine_is_used(void **state)
{
	const char *const *names = kernels_variants();
	unsigned last = 0;
	(void)state;
	while (names[last + 1] != NULL)
		last++;
	assert_string_equal(kernels_used(), names[last]);
	assert_true(kernels_use("plain"));
	assert_true(kernels_use(NULL));
	assert_string_equal(kernels_used(), names[last]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_wrong_bits_are_found_out),
		cmocka_unit_test(test_the_best_of_this_machine_is_used),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
