/* The loops of codec.h as the compiler likes them: read by variant_*.c, each compiled for other processors. A block goes
 * through two stages: floats and codes of a byte each (convert), then codes of fewer bits (pack). The last, short block is
 * filled up with zeros, which change neither the largest size nor a sum.
 */
#ifndef TR_COLLECTIVES_KERNELS_CODEC_LOOPS_H
#define TR_COLLECTIVES_KERNELS_CODEC_LOOPS_H

#include <string.h>

#include "collectives/kernels/codec_format.h"
#include "collectives/kernels/reduce_loops.h"

/* ---- convert: floats to codes ---- */

static bool block_has(const float *in, uint32_t bits)
{
	uint32_t found = 0;
	for (int i = 0; i < CODEC_BLOCK; i++)
		found |= half_bits(in[i]) == bits;
	return found != 0;
}

#ifdef __AVX2__
#include "collectives/kernels/codec_avx2.h"
#else

static uint32_t block_size(const float *in)
{
	int32_t size = 0;
	for (int i = 0; i < CODEC_BLOCK; i++) {
		int32_t bits = (int32_t)(half_bits(in[i]) & 0x7fffffff);
		size = bits > size ? bits : size;
	}
	return (uint32_t)size;
}

static float lanes_sum(float lane[INT2_LANES])
{
	for (int width = INT2_LANES / 2; width > 0; width /= 2)
		for (int j = 0; j < width; j++)
			lane[j] += lane[j + width];
	return lane[0];
}

static uint16_t block_fit_int2(const float *in, size_t elements)
{
	float lane[INT2_LANES] = { 0 }, high_lane[INT2_LANES] = { 0 };
	uint32_t high[INT2_LANES] = { 0 };

	for (int i = 0; i < CODEC_BLOCK; i += INT2_LANES)
		for (int j = 0; j < INT2_LANES; j++)
			lane[j] += half_float(half_bits(in[i + j]) & 0x7fffffff) * INT2_SHRINK;
	float sum = lanes_sum(lane), part = codec_part_int2(sum, elements);
	for (int i = 0; i < CODEC_BLOCK; i += INT2_LANES)
		for (int j = 0; j < INT2_LANES; j++) {
			float size = half_float(half_bits(in[i + j]) & 0x7fffffff);
			high_lane[j] += size > part ? size * INT2_SHRINK : 0.0f;
			high[j] += size > part;
		}
	for (int j = 1; j < INT2_LANES; j++)
		high[0] += high[j];
	return codec_scale_int2(sum, lanes_sum(high_lane), high[0], elements);
}

/* 1.5 * 2^23 more, a small number has its nearest integer, ties to even, in its low bits. */
#define ROUND_BIAS 12582912.0f

static void convert_int(uint8_t *restrict code, const float *restrict in, float inverse, float low,
    float high)
{
	for (int i = 0; i < CODEC_BLOCK; i++) {
		float steps = in[i] * inverse;
		steps = steps < (float)low ? (float)low : steps;
		steps = steps > (float)high ? (float)high : steps;
		code[i] = (uint8_t)half_bits(steps + ROUND_BIAS);
	}
}

static void convert_e3m0(uint8_t *restrict code, const float *restrict in, float inverse)
{
	for (int i = 0; i < CODEC_BLOCK; i++) {
		uint32_t bits = half_bits(in[i] * inverse), size = bits & 0x7fffffff;
		/* Half a power more carries into the exponent from 1.5 times one on. */
		int32_t exponent = (int32_t)((size + 0x400000) >> 23) - 126;
		exponent = exponent < 1 ? 1 : exponent;
		exponent = exponent > 7 ? 7 : exponent;
		uint32_t coded = (uint32_t)exponent | (bits >> 28 & 8);
		code[i] = (uint8_t)((int32_t)size < 0x3f000000 ? 0 : coded); /* 0.5 */
	}
}

static void convert_int2(uint8_t *restrict code, const float *restrict in, float part)
{
	for (int i = 0; i < CODEC_BLOCK; i++) {
		uint32_t bits = half_bits(in[i]);
		code[i] = (uint8_t)((half_float(bits & 0x7fffffff) > part) | (bits >> 31) << 1);
	}
}

#define CODEC_GROUP 1

static bool encode_group_int8(uint8_t *out, const float *in)
{
	(void)out;
	(void)in;
	return false;
}

#endif

/* ---- convert: codes to signed numbers to floats ---- */

static void expand_int4(uint8_t *code)
{
	for (int i = 0; i < CODEC_BLOCK; i++)
		code[i] = (uint8_t)((code[i] ^ 8) - 8);
}

/* 2^(k - 1) of three bits k, or 0, with a sign, by doubling. */
static void expand_e3m0(uint8_t *code)
{
	for (int i = 0; i < CODEC_BLOCK; i++) {
		uint8_t c = code[i], value = 1;
		value = (uint8_t)(value + (value & (uint8_t) - (c & 1)));
		value = (uint8_t)((c & 2) != 0 ? value << 2 : value);
		value = (uint8_t)((c & 4) != 0 ? value << 4 : value);
		value = (uint8_t)(value >> 1);
		code[i] = (uint8_t)((c & 8) != 0 ? -value : value);
	}
}

static void expand_int2(uint8_t *code)
{
	for (int i = 0; i < CODEC_BLOCK; i++) {
		uint8_t c = code[i], value = (c & 1) != 0 ? INT2_HIGH : INT2_LOW;
		code[i] = (uint8_t)((c & 2) != 0 ? -value : value);
	}
}

/* + 0: a negative scale makes no -0. */
static void values_put(float *restrict out, const int8_t *restrict value, float scale)
{
	for (int i = 0; i < CODEC_BLOCK; i++)
		out[i] = (float)value[i] * scale + 0.0f;
}

/* The same, added in the same pass. */
static void values_add(float *restrict acc, const int8_t *restrict value, float scale)
{
	for (int i = 0; i < CODEC_BLOCK; i++)
		acc[i] = acc[i] + ((float)value[i] * scale + 0.0f);
}

/* ---- pack ---- */

/* Codes of 4 (2) bits: run r of the block is in the bits from r * 4 (2) on. */
static void pack_full(unsigned bits, uint8_t *restrict out, const uint8_t *restrict code)
{
	if (bits == 4)
		for (int i = 0; i < CODEC_BLOCK / 2; i++)
			out[i] = (uint8_t)((code[i] & 15) | code[i + CODEC_BLOCK / 2] << 4);
	else
		for (int i = 0; i < CODEC_BLOCK / 4; i++)
			out[i] = (uint8_t)(code[i] | code[i + 32] << 2 | code[i + 64] << 4 |
			    code[i + 96] << 6);
}

static void unpack_full(unsigned bits, uint8_t *restrict code, const uint8_t *restrict in)
{
	if (bits == 4)
		for (int i = 0; i < CODEC_BLOCK / 2; i++) {
			code[i] = in[i] & 15;
			code[i + CODEC_BLOCK / 2] = in[i] >> 4;
		}
	else
		for (int i = 0; i < CODEC_BLOCK / 4; i++) {
			code[i] = in[i] & 3;
			code[i + 32] = in[i] >> 2 & 3;
			code[i + 64] = in[i] >> 4 & 3;
			code[i + 96] = in[i] >> 6;
		}
}

static void pack_short(unsigned bits, uint8_t *out, const uint8_t *code, size_t elements)
{
	size_t run = (elements * bits + 7) / 8;
	memset(out, 0, run);
	for (size_t i = 0; i < elements; i++)
		out[i % run] = (uint8_t)(out[i % run] |
		    (code[i] & ((1u << bits) - 1)) << i / run * bits);
}

static void unpack_short(unsigned bits, uint8_t *code, const uint8_t *in, size_t elements)
{
	size_t run = (elements * bits + 7) / 8;
	for (size_t i = 0; i < elements; i++)
		code[i] = (uint8_t)((unsigned)in[i % run] >> i / run * bits & ((1u << bits) - 1));
}

/* ---- blocks ---- */

/* `in` is filled up with zeros to a whole block. */
static void encode_block(enum tr_codec codec, uint8_t *out, const float *in, size_t elements)
{
	_Alignas(64) uint8_t code[CODEC_BLOCK];
	uint32_t size = block_size(in);

	if (size >= SIZE_INFINITE || size < SIZE_MIN) {
		memset(out, 0, codec_block_bytes(codec, elements));
		codec_scale_put(out, size < SIZE_MIN ? 0 : SCALE_NAN);
		return;
	}
	uint16_t scale = codec == TR_CODEC_INT2
	    ? block_fit_int2(in, elements)
	    : codec_scale(codec, size, codec == TR_CODEC_INT4 && block_has(in, size | 0x80000000));
	float value = half_from_bf16(scale);
	codec_scale_put(out, scale);
	out += SCALE_BYTES;
	if (codec == TR_CODEC_INT8 && elements == CODEC_BLOCK) {
		convert_int(out, in, 1.0f / value, -127, 127);
		return;
	}
	if (codec == TR_CODEC_INT8)
		convert_int(code, in, 1.0f / value, -127, 127);
	else if (codec == TR_CODEC_INT4)
		convert_int(code, in, 1.0f / value, -8, 7);
	else if (codec == TR_CODEC_E3M0)
		convert_e3m0(code, in, 1.0f / value);
	else
		convert_int2(code, in, value * (float)(INT2_LOW + INT2_HIGH) / 2);
	if (elements == CODEC_BLOCK)
		pack_full(codec_bits(codec), out, code);
	else
		pack_short(codec_bits(codec), out, code, elements);
}

/* Writes a whole block. */
static void decode_block(enum tr_codec codec, float *out, const uint8_t *in, size_t elements)
{
	_Alignas(64) uint8_t code[CODEC_BLOCK];
	float scale = codec_scale_value(codec_scale_get(in));

	in += SCALE_BYTES;
	if (elements < CODEC_BLOCK) {
		memset(code, 0, sizeof(code));
		unpack_short(codec_bits(codec), code, in, elements);
	} else if (codec == TR_CODEC_INT8) {
		values_put(out, (const int8_t *)in, scale);
		return;
	} else {
		unpack_full(codec_bits(codec), code, in);
	}
	if (codec == TR_CODEC_INT4)
		expand_int4(code);
	else if (codec == TR_CODEC_E3M0)
		expand_e3m0(code);
	else if (codec == TR_CODEC_INT2)
		expand_int2(code);
	values_put(out, (const int8_t *)code, scale);
}

/* ---- vectors ---- */

static void loops_encode(enum tr_codec codec, void *out_, const float *in, size_t elements)
{
	uint8_t *out = out_;
	if (codec == TR_CODEC_NONE)
		memcpy(out, in, elements * sizeof(float));
	else if (codec == TR_CODEC_BF16)
		bf16_narrow(out_, in, elements);
	if (!codec_in_blocks(codec))
		return;
	size_t stride = codec_block_bytes(codec, CODEC_BLOCK);
	while (codec == TR_CODEC_INT8 && elements >= CODEC_GROUP * CODEC_BLOCK) {
		bool done = encode_group_int8(out, in);
		for (int b = 0; !done && b < CODEC_GROUP; b++)
			encode_block(codec, out + (size_t)b * stride, in + b * CODEC_BLOCK,
			    CODEC_BLOCK);
		out += CODEC_GROUP * stride;
		in += CODEC_GROUP * CODEC_BLOCK;
		elements -= CODEC_GROUP * CODEC_BLOCK;
	}
	for (; elements >= CODEC_BLOCK; elements -= CODEC_BLOCK) {
		encode_block(codec, out, in, CODEC_BLOCK);
		out += stride;
		in += CODEC_BLOCK;
	}
	if (elements > 0) {
		_Alignas(64) float filled[CODEC_BLOCK] = { 0 };
		memcpy(filled, in, elements * sizeof(float));
		encode_block(codec, out, filled, elements);
	}
}

static void loops_decode(enum tr_codec codec, float *out, const void *in_, size_t elements)
{
	const uint8_t *in = in_;
	if (codec == TR_CODEC_NONE)
		memcpy(out, in, elements * sizeof(float));
	else if (codec == TR_CODEC_BF16)
		bf16_widen(out, in_, elements);
	if (!codec_in_blocks(codec))
		return;
	size_t stride = codec_block_bytes(codec, CODEC_BLOCK);
	for (; elements >= CODEC_BLOCK; elements -= CODEC_BLOCK) {
		decode_block(codec, out, in, CODEC_BLOCK);
		out += CODEC_BLOCK;
		in += stride;
	}
	if (elements > 0) {
		_Alignas(64) float filled[CODEC_BLOCK];
		decode_block(codec, filled, in, elements);
		memcpy(out, filled, elements * sizeof(float));
	}
}

/* Whole blocks that stay in L1 between their decoding and what is done with them. */
#define STAGE (8 * CODEC_BLOCK)

static void loops_decode_combine(enum tr_codec codec, enum tr_reduce op, float *acc, const void *in,
    size_t elements)
{
	_Alignas(64) float decoded[STAGE];

	while (codec == TR_CODEC_INT8 && (op == TR_SUM || op == TR_AVG) && elements >= CODEC_BLOCK) {
		const uint8_t *block = in;
		values_add(acc, (const int8_t *)block + SCALE_BYTES,
		    codec_scale_value(codec_scale_get(block)));
		in = block + SCALE_BYTES + CODEC_BLOCK;
		acc += CODEC_BLOCK;
		elements -= CODEC_BLOCK;
	}
	for (size_t at = 0; at < elements; at += STAGE) {
		size_t length = least(STAGE, elements - at);
		loops_decode(codec, decoded, (const char *)in + codec_bytes(codec, at), length);
		folds[TR_F32][op][0](acc + at, (const void *[]){ acc + at, decoded }, length);
	}
}

static void loops_encode_feedback(enum tr_codec codec, float beta, void *out, const float *in,
    const float *residual, float *residual_next, size_t elements)
{
	_Alignas(64) float a[STAGE], decoded[STAGE];

	for (size_t at = 0; at < elements; at += STAGE) {
		size_t length = least(STAGE, elements - at);
		char *encoded = (char *)out + codec_bytes(codec, at);
		for (size_t i = 0; i < length; i++)
			a[i] = in[at + i] + beta * residual[at + i];
		loops_encode(codec, encoded, a, length);
		loops_decode(codec, decoded, encoded, length);
		float *next = residual_next + at;
		for (size_t i = 0; i < length; i++) {
			bool finite = (half_bits(decoded[i]) & 0x7fffffff) < SIZE_INFINITE;
			next[i] = finite ? a[i] - decoded[i] : 0.0f;
		}
	}
}

#endif
