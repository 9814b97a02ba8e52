/* GB/s of the kernels, in every form that this machine runs, beside memcpy in the same run: once in L2 (256 KiB) and once in
 * DRAM (64 MiB). A line a case for people, or one JSON object a case.
 *
 *	kernelbench [--json] [--best] [--seconds-each 0.03] [--only sum]
 *
 * --best: only the form that programs here use. --only: kernels with this in their names.
 *
 * gb_s: bytes of the vector (f32 for codecs; of all inputs together for `many`) by the time, the best of many rounds in which
 * all forms and memcpy took turns. ratio: to memcpy of a vector of that size.
 */
#include <getopt.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "collectives/kernels/codec.h"
#include "collectives/kernels/dispatch.h"
#include "collectives/kernels/reduce.h"
#include "common/digest.h"

#define FORMS_MAX  4
#define MANY       8
#define L2_BYTES   ((size_t)256 << 10)
#define DRAM_BYTES ((size_t)64 << 20)

static struct {
	char *a, *b, *out;
	const void *many[MANY];
	double seconds_each;
	const char *only;
	bool json, best;
} bench;

static volatile uint64_t sink;

struct kernel {
	const char *name;
	void (*run)(int what, size_t bytes);
	int what;
	bool many; /* MANY vectors of an eighth */
	bool one_form;
};

static void run_copy(int what, size_t bytes)
{
	(void)what;
	memcpy(bench.out, bench.a, bytes);
}

static void run_digest(int what, size_t bytes)
{
	(void)what;
	sink += tr_digest_of(bench.a, bytes).low;
}

static void run_sum(int dtype, size_t bytes)
{
	reduce_combine((enum tr_dtype)dtype, TR_SUM, bench.out, bench.a, bench.b,
	    bytes / reduce_element_bytes((enum tr_dtype)dtype));
}

static void run_max(int dtype, size_t bytes)
{
	reduce_combine((enum tr_dtype)dtype, TR_MAX, bench.out, bench.a, bench.b,
	    bytes / reduce_element_bytes((enum tr_dtype)dtype));
}

static void run_many(int dtype, size_t bytes)
{
	reduce_combine_many((enum tr_dtype)dtype, TR_SUM, bench.out, bench.many, MANY,
	    bytes / MANY / reduce_element_bytes((enum tr_dtype)dtype));
}

static void run_divide(int dtype, size_t bytes)
{
	reduce_divide((enum tr_dtype)dtype, bench.out,
	    bytes / reduce_element_bytes((enum tr_dtype)dtype), 1);
}

static void run_settle_nans(int dtype, size_t bytes)
{
	reduce_settle_nans((enum tr_dtype)dtype, bench.out,
	    bytes / reduce_element_bytes((enum tr_dtype)dtype));
}

static void run_widen(int dtype, size_t bytes)
{
	reduce_widen((enum tr_dtype)dtype, (float *)(void *)bench.out, bench.a, bytes / 4);
}

static void run_narrow(int dtype, size_t bytes)
{
	reduce_narrow((enum tr_dtype)dtype, bench.out, (float *)(void *)bench.a, bytes / 4);
}

static void run_wide(int dtype, size_t bytes)
{
	reduce_combine_wide((enum tr_dtype)dtype, TR_SUM, (float *)(void *)bench.out, bench.a,
	    bytes / 4);
}

static void run_encode(int codec, size_t bytes)
{
	codec_encode((enum tr_codec)codec, bench.out, (float *)(void *)bench.a, bytes / 4);
}

static void run_decode(int codec, size_t bytes)
{
	codec_decode((enum tr_codec)codec, (float *)(void *)bench.out, bench.a, bytes / 4);
}

static void run_decode_combine(int codec, size_t bytes)
{
	codec_decode_combine((enum tr_codec)codec, TR_SUM, (float *)(void *)bench.out, bench.a,
	    bytes / 4);
}

static void run_feedback(int codec, size_t bytes)
{
	float *residual = (float *)(void *)bench.b;
	codec_encode_feedback((enum tr_codec)codec, 0.5f, bench.out, (float *)(void *)bench.a,
	    residual, residual, bytes / 4);
}

static const struct kernel kernels[] = {
	{ "memcpy", run_copy, 0, false, true },
	{ "digest", run_digest, 0, false, true },
	{ "sum f32", run_sum, TR_F32, false, false },
	{ "sum f64", run_sum, TR_F64, false, false },
	{ "sum f16", run_sum, TR_F16, false, false },
	{ "sum bf16", run_sum, TR_BF16, false, false },
	{ "sum i32", run_sum, TR_I32, false, false },
	{ "sum i64", run_sum, TR_I64, false, false },
	{ "sum u8", run_sum, TR_U8, false, false },
	{ "max f32", run_max, TR_F32, false, false },
	{ "max bf16", run_max, TR_BF16, false, false },
	{ "many f32 (8)", run_many, TR_F32, true, false },
	{ "many f16 (8)", run_many, TR_F16, true, false },
	{ "many bf16 (8)", run_many, TR_BF16, true, false },
	{ "many u8 (8)", run_many, TR_U8, true, false },
	{ "divide f32", run_divide, TR_F32, false, false },
	{ "divide bf16", run_divide, TR_BF16, false, false },
	{ "settle NaNs f32", run_settle_nans, TR_F32, false, false },
	{ "widen f16", run_widen, TR_F16, false, false },
	{ "widen bf16", run_widen, TR_BF16, false, false },
	{ "narrow f16", run_narrow, TR_F16, false, false },
	{ "narrow bf16", run_narrow, TR_BF16, false, false },
	{ "wide f16", run_wide, TR_F16, false, false },
	{ "wide bf16", run_wide, TR_BF16, false, false },
	{ "encode bf16", run_encode, TR_CODEC_BF16, false, false },
	{ "encode int8", run_encode, TR_CODEC_INT8, false, false },
	{ "encode int4", run_encode, TR_CODEC_INT4, false, false },
	{ "encode e3m0", run_encode, TR_CODEC_E3M0, false, false },
	{ "encode int2", run_encode, TR_CODEC_INT2, false, false },
	{ "decode bf16", run_decode, TR_CODEC_BF16, false, false },
	{ "decode int8", run_decode, TR_CODEC_INT8, false, false },
	{ "decode int4", run_decode, TR_CODEC_INT4, false, false },
	{ "decode e3m0", run_decode, TR_CODEC_E3M0, false, false },
	{ "decode int2", run_decode, TR_CODEC_INT2, false, false },
	{ "decode+sum int8", run_decode_combine, TR_CODEC_INT8, false, false },
	{ "decode+sum int4", run_decode_combine, TR_CODEC_INT4, false, false },
	{ "feedback int8", run_feedback, TR_CODEC_INT8, false, false },
	{ "feedback int4", run_feedback, TR_CODEC_INT4, false, false },
	{ "feedback e3m0", run_feedback, TR_CODEC_E3M0, false, false },
	{ "feedback int2", run_feedback, TR_CODEC_INT2, false, false },
};

static double now_s(void)
{
	struct timespec now;
	(void)clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* Small whole numbers: no sum grows into infinities or shrinks into numbers that are slow. */
static void fill(size_t bytes, const struct kernel *kernel)
{
	bool halves = strstr(kernel->name, "f16") != NULL && kernel->run != run_narrow &&
	    kernel->run != run_encode;
	for (size_t i = 0; i < bytes / 4; i++) {
		float value = (float)((int)(i * 2654435761u >> 16 & 255) - 128) / 64.0f;
		uint32_t word;
		memcpy(&word, &value, sizeof(word));
		if (halves)
			word = word >> 16 | (word & 0xffff0000);
		memcpy(bench.a + 4 * i, &word, 4);
		memcpy(bench.b + 4 * i, &word, 4);
	}
	for (unsigned k = 0; k < MANY; k++)
		bench.many[k] = bench.a + k * (bytes / MANY);
}

/* The best of rounds in which everything took its turn; [0] is memcpy. */
static unsigned measure(const struct kernel *kernel, size_t bytes, const char *const *names,
    double best[FORMS_MAX + 1])
{
	unsigned forms = 0;

	while (!kernel->one_form && names[forms] != NULL)
		forms++;
	if (kernel->one_form)
		forms = 1;
	for (unsigned f = 0; f <= forms; f++)
		best[f] = 1e9;
	unsigned repeats = bytes <= L2_BYTES ? 16 : 1;
	double end = now_s() + bench.seconds_each * (forms + 1);
	for (unsigned round = 0; round < 3 || now_s() < end; round++)
		for (unsigned f = 0; f <= forms; f++) {
			const struct kernel *now = f == 0 ? &kernels[0] : kernel;
			if (f > 0 && !kernel->one_form)
				kernels_use(names[f - 1]);
			now->run(now->what, bytes); /* warm */
			double start = now_s();
			for (unsigned i = 0; i < repeats; i++)
				now->run(now->what, bytes);
			double took = (now_s() - start) / repeats;
			best[f] = took < best[f] ? took : best[f];
		}
	kernels_use(NULL);
	return forms;
}

static void print(const struct kernel *kernel, size_t bytes, const char *form, double s,
    double copy_s)
{
	double gb_s = (double)bytes / s * 1e-9;

	if (bench.json)
		printf("{\"kernel\": \"%s\", \"form\": \"%s\", \"bytes\": %zu, \"gb_s\": %.3f, "
		       "\"memcpy_gb_s\": %.3f, \"ratio\": %.3f}\n",
		    kernel->name, form, bytes, gb_s, (double)bytes / copy_s * 1e-9, copy_s / s);
	else
		printf("  %-16s %-8s %8.2f GB/s  %5.2f of memcpy\n", kernel->name, form, gb_s,
		    copy_s / s);
	(void)fflush(stdout);
}

static void one_size(size_t bytes)
{
	const char *const *names = kernels_variants();
	double best[FORMS_MAX + 1];

	if (!bench.json)
		printf("%s (%zu KiB)\n", bytes <= L2_BYTES ? "L2" : "DRAM", bytes >> 10);
	for (size_t k = 0; k < sizeof(kernels) / sizeof(kernels[0]); k++) {
		if (bench.only != NULL && strstr(kernels[k].name, bench.only) == NULL)
			continue;
		fill(bytes, &kernels[k]);
		unsigned forms = measure(&kernels[k], bytes, names, best);
		for (unsigned f = bench.best ? forms : 1; f <= forms; f++)
			print(&kernels[k], bytes, kernels[k].one_form ? "-" : names[f - 1], best[f],
			    best[0]);
	}
}

int main(int argc, char **argv)
{
	static const struct option options[] = { { "json", no_argument, NULL, 'j' },
		{ "best", no_argument, NULL, 'b' },
		{ "seconds-each", required_argument, NULL, 's' },
		{ "only", required_argument, NULL, 'o' }, { NULL, 0, NULL, 0 } };
	bench.seconds_each = 0.03;
	for (int option; (option = getopt_long(argc, argv, "", options, NULL)) != -1;)
		switch (option) {
		case 'j':
			bench.json = true;
			break;
		case 'b':
			bench.best = true;
			break;
		case 's':
			bench.seconds_each = strtod(optarg, NULL);
			break;
		case 'o':
			bench.only = optarg;
			break;
		default:
			return 2;
		}
	char **buffers[] = { &bench.a, &bench.b, &bench.out };
	for (size_t i = 0; i < 3; i++) {
		*buffers[i] = aligned_alloc(4096, DRAM_BYTES);
		if (*buffers[i] == NULL)
			return 1;
		memset(*buffers[i], 0, DRAM_BYTES);
	}
	one_size(L2_BYTES);
	one_size(DRAM_BYTES);
	for (size_t i = 0; i < 3; i++)
		free(*buffers[i]);
	return 0;
}
