/* Codecs: every form that this machine runs gives the bytes and floats of the plain one; errors stay within codec.h's bounds;
 * what lies on the grid is exact; feedback loses nothing; any bytes can be decoded. */
#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "collectives/kernels/codec.h"
#include "collectives/kernels/dispatch.h"
#include "collectives/kernels/half.h"
#include "collectives/kernels/reduce.h"
#include "common/rng.h"

#define COUNT  1300 /* more than one stage of the fused forms, and a rest */
#define KINDS  7
#define GUARD  16
#define GAUSS  (1u << 17)
#define CODECS (TR_CODEC_INT2 + 1)

static float input[COUNT + 4], residual[COUNT + 4];

static float one_of_kind(struct rng_key key, unsigned kind, uint64_t i)
{
	static const float odd[] = { 0.0f, -0.0f, FLT_MAX, -FLT_MAX, FLT_MIN, 1e-40f, -1e-45f, 1.0f,
		-1.0f, 0x1p-100f, 0x1p-101f, 3.39e38f };
	static const float poison[] = { NAN, -NAN, INFINITY, -INFINITY };
	float normal = (float)rng_normal(key, 0, i);

	switch (kind) {
	case 0:
		return normal;
	case 1: /* halves of whole numbers: ties */
		return (float)(int)(normal * 20) * 0.5f;
	case 2:
		return odd[rng_below(key, 1, i, sizeof(odd) / sizeof(odd[0]))];
	case 3: /* some blocks with what is not finite */
		return rng_below(key, 1, i, 200) == 0 ? poison[rng_below(key, 2, i, 4)] : normal;
	case 4: /* of all sizes */
		return ldexpf(normal, (int)rng_below(key, 1, i, 250) - 125);
	case 5: /* sparse */
		return rng_below(key, 1, i, 90) == 0 ? normal : 0.0f;
	default: /* any bits; few blocks are finite, so only the exponent 255 is left out mostly */
		return half_float((uint32_t)rng_u64(key, 1, i) & (i % 512 == 0 ? ~0u : 0xbfffffffu));
	}
}

static void fill(float *data, unsigned kind, uint64_t seed, size_t count)
{
	struct rng_key key = rng_key(seed, kind, 7);

	for (uint64_t i = 0; i < count; i++)
		data[i] = one_of_kind(key, kind, i);
}

static void assert_same_floats(const float *a, const float *b, size_t count)
{
	for (size_t i = 0; i < count; i++)
		if (!isnan(a[i]) || !isnan(b[i]))
			assert_int_equal(half_bits(a[i]), half_bits(b[i]));
}

static void sizes(void **state)
{
	(void)state;
	static const size_t block[] = { 512, 256, 130, 66, 66, 34 };

	for (enum tr_codec codec = TR_CODEC_NONE; codec < CODECS; codec++) {
		assert_int_equal(codec_bytes(codec, 0), 0);
		assert_int_equal(codec_bytes(codec, CODEC_BLOCK), block[codec]);
		for (size_t n = 0; n < 5 * CODEC_BLOCK; n++) {
			assert_true(codec_bytes(codec, n) <= 4 * n);
			assert_int_equal(codec_bytes(codec, n + 3 * CODEC_BLOCK),
			    codec_bytes(codec, n) + 3 * codec_bytes(codec, CODEC_BLOCK));
		}
	}
	assert_true(codec_known(TR_CODEC_INT2) && !codec_known(TR_CODEC_INT2 + 1));
}

/* ---- all forms alike ---- */

struct outcome {
	_Alignas(64) uint8_t bytes[4 * COUNT + GUARD], fed[4 * COUNT + GUARD];
	float decoded[COUNT + 4], next[COUNT + 4], combined[COUNT + 4];
};

static void take(enum tr_codec codec, enum tr_reduce op, size_t count, size_t at,
    struct outcome *out)
{
	size_t bytes = codec_bytes(codec, count);

	memset(out, 0x5a, sizeof(*out));
	codec_encode(codec, out->bytes, input + at, count);
	codec_decode(codec, out->decoded + at, out->bytes, count);
	memcpy(out->combined + at, residual + at, count * sizeof(float));
	codec_decode_combine(codec, op, out->combined + at, out->bytes, count);
	memcpy(out->next + at, residual + at, count * sizeof(float));
	codec_encode_feedback(codec, 0.95f, out->fed, input + at, out->next + at, out->next + at,
	    count);
	for (size_t i = 0; i < GUARD; i++)
		assert_true(out->bytes[bytes + i] == 0x5a && out->fed[bytes + i] == 0x5a);
	assert_int_equal(half_bits(out->decoded[at + count]), 0x5a5a5a5a);
	assert_int_equal(half_bits(out->next[at + count]), 0x5a5a5a5a);
}

static void all_alike(enum tr_codec codec, enum tr_reduce op, size_t count, size_t at)
{
	static struct outcome plain, fast;
	static float separately[COUNT];

	for (const char *const *name = kernels_variants(); *name != NULL; name++) {
		assert_true(kernels_use(*name));
		if (name == kernels_variants()) {
			take(codec, op, count, at, &plain);
			assert_string_equal(*name, "plain");
		}
		take(codec, op, count, at, &fast);
		assert_memory_equal(fast.bytes, plain.bytes, sizeof(plain.bytes));
		assert_memory_equal(fast.fed, plain.fed, sizeof(plain.fed));
		if (codec <= TR_CODEC_BF16)
			assert_same_floats(fast.decoded + at, plain.decoded + at, count);
		else /* one NaN only */
			assert_memory_equal(fast.decoded + at, plain.decoded + at, 4 * count);
		assert_same_floats(fast.next + at, plain.next + at, count);
		assert_same_floats(fast.combined + at, plain.combined + at, count);
		reduce_combine(TR_F32, op, separately, residual + at, fast.decoded + at, count);
		assert_same_floats(fast.combined + at, separately, count);
	}
	assert_true(kernels_use(NULL));
}

static void forms_are_alike(void **state)
{
	(void)state;
	static const size_t counts[] = { 0, 1, 2, 3, 5, 31, 32, 33, 63, 64, 65, 100, 127, 128, 129,
		255, 256, 300, 1024, 1025, COUNT };

	for (unsigned kind = 0; kind < KINDS; kind++)
		for (size_t c = 0; c < sizeof(counts) / sizeof(counts[0]); c++)
			for (enum tr_codec codec = TR_CODEC_NONE; codec < CODECS; codec++) {
				fill(input, kind, c, COUNT);
				fill(residual, kind == 3 ? 0 : kind, c + 100, COUNT);
				all_alike(codec, (enum tr_reduce)(TR_SUM + (c + kind) % TR_PROD),
				    counts[c], c % 3);
			}
}

/* Of numbers that no library function made: the same on x86 and ARM. */
static void bytes_are_the_same_on_all_machines(void **state)
{
	(void)state;
	static const uint64_t golden[] = { 0x712df4bd10d82b85, 0x1542060950ac0806,
		0x176bb12b73afdd9e, 0xda75ae6cbcd018a4, 0xdcf2f294ff42c33c, 0x6ee0d4c355c82c23 };
	static uint8_t bytes[4 * COUNT];

	for (uint64_t i = 0; i < COUNT; i++) {
		uint32_t random = (uint32_t)rng_u64(rng_key(1, 2, 3), 0, i);
		input[i] = half_float((random & 0x807fffff) | (120 + (random >> 23) % 8) << 23);
	}
	for (enum tr_codec codec = TR_CODEC_NONE; codec < CODECS; codec++) {
		uint64_t hash = 0xcbf29ce484222325; /* FNV-1a */
		codec_encode(codec, bytes, input, COUNT);
		for (size_t i = 0; i < codec_bytes(codec, COUNT); i++)
			hash = (hash ^ bytes[i]) * 0x100000001b3;
		if (hash != golden[codec])
			print_message("codec %d: %016llx\n", (int)codec, (unsigned long long)hash);
		assert_true(hash == golden[codec]);
	}
}

static void any_bytes_decode(void **state)
{
	(void)state;
	static uint8_t bytes[4 * COUNT + 2];
	static float first[COUNT], next[COUNT];

	for (uint64_t seed = 0; seed < 60; seed++)
		for (enum tr_codec codec = TR_CODEC_NONE; codec < CODECS; codec++) {
			struct rng_key key = rng_key(seed, codec, 9);
			for (uint64_t i = 0; i < sizeof(bytes); i++)
				bytes[i] = (uint8_t)(rng_u64(key, 0, i) |
				    (rng_below(key, 1, i / 100, 3) == 0 ? 0x7f : 0));
			const uint8_t *from = bytes + (codec >= TR_CODEC_INT8 ? seed % 2 : 0);
			size_t count = (size_t)rng_below(key, 2, 0, COUNT);
			for (const char *const *name = kernels_variants(); *name != NULL; name++) {
				assert_true(kernels_use(*name));
				codec_decode(codec, next, from, count);
				if (strcmp(*name, "plain") == 0)
					memcpy(first, next, sizeof(first));
				assert_same_floats(first, next, count);
			}
			assert_true(kernels_use(NULL));
		}
	uint8_t scales[][2] = { { 0xc0, 0x7f }, { 0x80, 0x7f }, { 0x80, 0xff }, { 0x81, 0xff } };
	for (size_t i = 0; i < 4; i++) { /* NaN, infinities, a signalling NaN: one NaN */
		memset(bytes, 0, sizeof(bytes));
		memcpy(bytes, scales[i], 2);
		codec_decode(TR_CODEC_INT4, next, bytes, 3);
		assert_int_equal(half_bits(next[2]), 0x7fc00000);
	}
}

/* ---- what the numbers mean ---- */

static float largest(const float *data, size_t count)
{
	float size = 0;
	for (size_t i = 0; i < count; i++)
		size = fmaxf(size, fabsf(data[i]));
	return size;
}

static void round_trip(enum tr_codec codec, const float *in, float *out, size_t count)
{
	static uint8_t bytes[4 * GAUSS];
	codec_encode(codec, bytes, in, count);
	codec_decode(codec, out, bytes, count);
}

/* The bounds of codec.h, in steps s of the block (0.4 % more where s itself was rounded). */
static void errors_are_bounded(void **state)
{
	(void)state;
	static float out[COUNT];

	for (unsigned kind = 0; kind < 6; kind++)
		for (uint64_t seed = 0; seed < 20; seed++) {
			if (kind == 2 || kind == 3)
				continue; /* not finite, or the blocks that become zeros */
			fill(input, kind, seed, COUNT);
			for (enum tr_codec codec = TR_CODEC_BF16; codec < TR_CODEC_INT2; codec++) {
				round_trip(codec, input, out, COUNT);
				for (size_t i = 0; i < COUNT; i++) {
					size_t block = i / CODEC_BLOCK * CODEC_BLOCK;
					size_t length = COUNT - block < CODEC_BLOCK ? COUNT - block
					                                            : CODEC_BLOCK;
					float top = largest(input + block, length),
					      x = fabsf(input[i]);
					float bound[] = { 0, x * 0x1p-8f + 1e-40f, top / 127,
						top / 8, fmaxf(x / 3, top / 128) };
					if (codec == TR_CODEC_INT8 ||
					    (codec == TR_CODEC_INT4 && x < top * 0.93f))
						bound[codec] /= 2;
					assert_true(
					    fabsf(out[i] - input[i]) <= bound[codec] * 1.005f);
				}
			}
		}
}

static void zeros_and_small_blocks(void **state)
{
	(void)state;
	static float out[COUNT];

	for (enum tr_codec codec = TR_CODEC_NONE; codec < CODECS; codec++) {
		memset(input, 0, sizeof(input));
		input[3] = -0.0f;
		round_trip(codec, input, out, COUNT);
		for (size_t i = 0; i < COUNT; i++)
			assert_true(out[i] == 0);
		if (codec < TR_CODEC_INT8)
			continue;
		for (size_t i = 0; i < COUNT; i++)
			input[i] = 0x1.fp-101f;
		round_trip(codec, input, out, COUNT);
		for (size_t i = 0; i < COUNT; i++)
			assert_int_equal(half_bits(out[i]), 0);
	}
}

static void the_grid_is_exact(void **state)
{
	(void)state;
	static float out[COUNT];
	static const int low[] = { 0, 0, -127, -8, 0, 0 }, high[] = { 0, 0, 127, 7, 0, 0 };

	for (int turned = -1; turned <= 1; turned += 2)
		for (int exponent = -80; exponent < 100; exponent += 9) {
			float scale = ldexpf(1.4140625f, exponent) * (float)turned; /* a bf16 */
			for (enum tr_codec codec = TR_CODEC_INT8; codec <= TR_CODEC_INT4; codec++) {
				int values = high[codec] - low[codec] + 1;
				for (int i = 0; i < COUNT; i++) /* the lowest in each block */
					input[i] = scale *
					    (float)(low[codec] + i % CODEC_BLOCK * 5 % values);
				round_trip(codec, input, out, COUNT);
				for (int i = 0; i < COUNT; i++)
					assert_true(out[i] == input[i]);
			}
			for (int i = 0; i < COUNT; i++) {
				int power = i % CODEC_BLOCK % 8 - 1;
				input[i] = i % CODEC_BLOCK == 0 ? scale * 64
				    : power < 0                 ? 0
				                : ldexpf(i % 3 ? scale : -scale, power);
			}
			round_trip(TR_CODEC_E3M0, input, out, COUNT);
			for (int i = 0; i < COUNT; i++)
				assert_true(out[i] == input[i]);
			for (enum tr_codec codec = TR_CODEC_BF16; codec < CODECS; codec++) {
				if (codec == TR_CODEC_INT8)
					continue;               /* s is c / 127: no bf16 */
				for (int i = 0; i < COUNT; i++) /* a constant */
					input[i] = scale;
				round_trip(codec, input, out, COUNT);
				for (int i = 0; i < COUNT; i++)
					assert_true(out[i] == scale);
			}
		}
}

static void what_is_not_finite_is_never_hidden(void **state)
{
	(void)state;
	static const float poison[] = { NAN, INFINITY, -INFINITY };
	static uint8_t bytes[4 * COUNT];
	static float out[COUNT], next[COUNT];

	for (enum tr_codec codec = TR_CODEC_INT8; codec < CODECS; codec++)
		for (size_t p = 0; p < 3; p++) {
			fill(input, 0, p, COUNT);
			memset(next, 0, sizeof(next));
			input[200] = poison[p];
			codec_encode_feedback(codec, 1, bytes, input, next, next, COUNT);
			codec_decode(codec, out, bytes, COUNT);
			for (size_t i = 0; i < COUNT; i++) {
				bool hit = i / CODEC_BLOCK == 200 / CODEC_BLOCK;
				assert_int_equal(isnan(out[i]) != 0, hit);
				assert_true(isfinite(next[i]) && (!hit || next[i] == 0));
			}
			for (size_t i = 0; i < COUNT; i++) /* the largest numbers stay finite */
				input[i] = i % 3 == 0 ? FLT_MAX : i % 7 == 0 ? -FLT_MAX : 1e38f;
			round_trip(codec, input, out, COUNT);
			for (size_t i = 0; i < COUNT; i++)
				assert_true(isfinite(out[i]));
		}
}

/* a == decoded + residual_next. Decoded is within a factor of two of a, or 0: the difference is exact (Sterbenz). Not so
 * for int2, which has no 0, and then within half a unit of the last place of what is decoded. */
static void feedback_loses_nothing(void **state)
{
	(void)state;
	static uint8_t bytes[4 * COUNT];
	static float out[COUNT], next[COUNT];

	for (uint64_t seed = 0; seed < 20; seed++)
		for (enum tr_codec codec = TR_CODEC_NONE; codec < CODECS; codec++) {
			fill(input, 0, seed, COUNT);
			fill(residual, 0, seed + 50, COUNT);
			codec_encode_feedback(codec, 0.5f, bytes, input, residual, next, COUNT);
			codec_decode(codec, out, bytes, COUNT);
			for (size_t i = 0; i < COUNT; i++) {
				float a = input[i] + 0.5f * residual[i]; /* a half is exact */
				if (codec == TR_CODEC_INT2)
					assert_true(
					    fabs((double)a - (double)out[i] - (double)next[i]) <=
					    (double)fabsf(out[i]) * 0x1p-24);
				else
					assert_true((double)a == (double)out[i] + (double)next[i]);
			}
		}
}

/* A hundred rounds of one vector through each codec: with feedback the sum of what came out is what went in, but for the last
 * residual. */
static void feedback_sums_up(void **state)
{
	(void)state;
	static uint8_t bytes[4 * COUNT];
	static float out[COUNT], next[COUNT];
	static double sum[COUNT];

	for (enum tr_codec codec = TR_CODEC_BF16; codec < CODECS; codec++) {
		fill(input, 0, 5, COUNT);
		memset(next, 0, sizeof(next));
		memset(sum, 0, sizeof(sum));
		/* It does not grow for ever; two bits let the largest wait longest. */
		float limit = codec == TR_CODEC_INT2 ? 60 : 1.5f;
		for (int round = 0; round < 100; round++) {
			codec_encode_feedback(codec, 1, bytes, input, next, next, COUNT);
			codec_decode(codec, out, bytes, COUNT);
			for (size_t i = 0; i < COUNT; i++)
				sum[i] += (double)out[i];
		}
		for (size_t i = 0; i < COUNT; i++) {
			assert_true(fabs(sum[i] + (double)next[i] - 100 * (double)input[i]) < 1e-3);
			assert_true(fabsf(next[i]) < limit);
		}
	}
}

/* The table of codec.h. */
static void mean_square_errors(void **state)
{
	(void)state;
	static const double expected[] = { 0, 2.8e-6, 4.2e-5, 0.0107, 0.0370, 0.1157 };
	static float in[GAUSS], out[GAUSS];
	struct rng_key key = rng_key(1, 2, 3);

	for (uint64_t i = 0; i < GAUSS; i++)
		in[i] = (float)rng_normal(key, 0, i);
	for (enum tr_codec codec = TR_CODEC_NONE; codec < CODECS; codec++) {
		double error = 0, square = 0;
		round_trip(codec, in, out, GAUSS);
		for (size_t i = 0; i < GAUSS; i++) {
			error += ((double)out[i] - (double)in[i]) *
			    ((double)out[i] - (double)in[i]);
			square += (double)in[i] * (double)in[i];
		}
		print_message("codec %d: relative MSE %.3g\n", (int)codec, error / square);
		assert_true(error / square <= 1.03 * expected[codec]);
		assert_true(error / square >= 0.97 * expected[codec]);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(sizes),
		cmocka_unit_test(forms_are_alike),
		cmocka_unit_test(bytes_are_the_same_on_all_machines),
		cmocka_unit_test(any_bytes_decode),
		cmocka_unit_test(errors_are_bounded),
		cmocka_unit_test(zeros_and_small_blocks),
		cmocka_unit_test(the_grid_is_exact),
		cmocka_unit_test(what_is_not_finite_is_never_hidden),
		cmocka_unit_test(feedback_loses_nothing),
		cmocka_unit_test(feedback_sums_up),
		cmocka_unit_test(mean_square_errors),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
