/* The references of codec.h: one element at a time, nothing clever. */
#include <math.h>
#include <string.h>

#include "collectives/kernels/codec_format.h"
#include "collectives/kernels/plain.h"
#include "collectives/kernels/reduce.h"

static uint32_t size_of(float value)
{
	return half_bits(value) & 0x7fffffff;
}

static float sum_of(const float *lanes)
{
	float lane[INT2_LANES];
	memcpy(lane, lanes, sizeof(lane));
	for (int width = INT2_LANES / 2; width > 0; width /= 2)
		for (int j = 0; j < width; j++)
			lane[j] += lane[j + width];
	return lane[0];
}

static uint16_t fit_int2(const float *in, size_t elements)
{
	float lanes[INT2_LANES] = { 0 }, high_lanes[INT2_LANES] = { 0 };
	unsigned high = 0;

	for (size_t i = 0; i < elements; i++)
		lanes[i % INT2_LANES] += half_float(size_of(in[i])) * INT2_SHRINK;
	float sum = sum_of(lanes), part = codec_part_int2(sum, elements);
	for (size_t i = 0; i < elements; i++) {
		if (!(half_float(size_of(in[i])) > part))
			continue;
		high_lanes[i % INT2_LANES] += half_float(size_of(in[i])) * INT2_SHRINK;
		high++;
	}
	return codec_scale_int2(sum, sum_of(high_lanes), high, elements);
}

/* In steps of the scale, onto the codec's grid. */
static unsigned code_of(enum tr_codec codec, float value, float scale)
{
	if (codec == TR_CODEC_INT2) {
		bool high = half_float(size_of(value)) > scale * (float)(INT2_LOW + INT2_HIGH) / 2;
		return (unsigned)high | (half_bits(value) >> 31) << 1;
	}
	float steps = value * (1.0f / scale);
	if (codec == TR_CODEC_E3M0) {
		float size = fabsf(steps);
		if (size < 0.5f)
			return 0;
		unsigned code = 1;
		while (code < 7 && size >= 0.75f * (float)(1u << code))
			code++;
		return code | (steps < 0 ? 8u : 0u);
	}
	float low = codec == TR_CODEC_INT8 ? -127 : -8, high = codec == TR_CODEC_INT8 ? 127 : 7;
	float whole = rintf(fminf(fmaxf(steps, low), high));
	return (unsigned)(int)whole & (codec == TR_CODEC_INT8 ? 255u : 15u);
}

static float value_of(enum tr_codec codec, unsigned code)
{
	static const int8_t e3m0[] = { 0, 1, 2, 4, 8, 16, 32, 64 };
	static const int8_t int2[] = { INT2_LOW, INT2_HIGH, -INT2_LOW, -INT2_HIGH };
	switch (codec) {
	case TR_CODEC_INT8:
		return (float)(int8_t)code;
	case TR_CODEC_INT4:
		return (float)((int)(code ^ 8) - 8);
	case TR_CODEC_E3M0:
		return (float)(code & 8 ? -e3m0[code & 7] : e3m0[code & 7]);
	default:
		return int2[code];
	}
}

static void encode_block(enum tr_codec codec, uint8_t *out, const float *in, size_t elements)
{
	unsigned bits = codec_bits(codec);
	size_t run = (elements * bits + 7) / 8;
	uint32_t size = 0;
	bool has_negative = false;

	memset(out, 0, SCALE_BYTES + run);
	for (size_t i = 0; i < elements; i++)
		size = size_of(in[i]) > size ? size_of(in[i]) : size;
	if (size >= SIZE_INFINITE)
		codec_scale_put(out, SCALE_NAN);
	if (size >= SIZE_INFINITE || size < SIZE_MIN)
		return;
	for (size_t i = 0; i < elements; i++)
		has_negative |= half_bits(in[i]) == (size | 0x80000000);
	uint16_t scale = codec == TR_CODEC_INT2 ? fit_int2(in, elements)
	                                        : codec_scale(codec, size, has_negative);
	codec_scale_put(out, scale);
	for (size_t i = 0; i < elements; i++) {
		unsigned code = code_of(codec, in[i], half_from_bf16(scale));
		uint8_t *byte = out + SCALE_BYTES + i % run;
		*byte = (uint8_t)(*byte | code << (i / run * bits));
	}
}

static void decode_block(enum tr_codec codec, float *out, const uint8_t *in, size_t elements)
{
	float scale = codec_scale_value(codec_scale_get(in));
	unsigned bits = codec_bits(codec);
	size_t run = (elements * bits + 7) / 8;

	for (size_t i = 0; i < elements; i++) {
		unsigned byte = in[SCALE_BYTES + i % run];
		unsigned code = byte >> (i / run * bits) & ((1u << bits) - 1);
		out[i] = value_of(codec, code) * scale + 0.0f; /* + 0: never -0 */
	}
}

void plain_encode(enum tr_codec codec, void *out, const float *in, size_t elements)
{
	if (codec == TR_CODEC_NONE)
		memcpy(out, in, elements * sizeof(float));
	for (size_t i = 0; codec == TR_CODEC_BF16 && i < elements; i++)
		memcpy((char *)out + 2 * i, &(uint16_t){ half_to_bf16(in[i]) }, 2);
	for (size_t i = 0; codec_in_blocks(codec) && i < elements; i += CODEC_BLOCK)
		encode_block(codec, (uint8_t *)out + codec_bytes(codec, i), in + i,
		    elements - i < CODEC_BLOCK ? elements - i : CODEC_BLOCK);
}

void plain_decode(enum tr_codec codec, float *out, const void *in, size_t elements)
{
	if (codec == TR_CODEC_NONE)
		memcpy(out, in, elements * sizeof(float));
	for (size_t i = 0; codec == TR_CODEC_BF16 && i < elements; i++) {
		uint16_t half;
		memcpy(&half, (const char *)in + 2 * i, 2);
		out[i] = half_from_bf16(half);
	}
	for (size_t i = 0; codec_in_blocks(codec) && i < elements; i += CODEC_BLOCK)
		decode_block(codec, out + i, (const uint8_t *)in + codec_bytes(codec, i),
		    elements - i < CODEC_BLOCK ? elements - i : CODEC_BLOCK);
}

void plain_decode_combine(enum tr_codec codec, enum tr_reduce op, float *acc, const void *in,
    size_t elements)
{
	float decoded[CODEC_BLOCK];

	for (size_t i = 0; i < elements; i += CODEC_BLOCK) {
		size_t length = elements - i < CODEC_BLOCK ? elements - i : CODEC_BLOCK;
		plain_decode(codec, decoded, (const char *)in + codec_bytes(codec, i), length);
		reduce_plain_combine(TR_F32, op, acc + i, acc + i, decoded, length);
	}
}

void plain_encode_feedback(enum tr_codec codec, float beta, void *out, const float *in,
    const float *residual, float *residual_next, size_t elements)
{
	float a[CODEC_BLOCK], decoded[CODEC_BLOCK];

	for (size_t i = 0; i < elements; i += CODEC_BLOCK) {
		size_t length = elements - i < CODEC_BLOCK ? elements - i : CODEC_BLOCK;
		char *encoded = (char *)out + codec_bytes(codec, i);
		for (size_t k = 0; k < length; k++)
			a[k] = in[i + k] + beta * residual[i + k];
		plain_encode(codec, encoded, a, length);
		plain_decode(codec, decoded, encoded, length);
		for (size_t k = 0; k < length; k++)
			residual_next[i + k] = isfinite(decoded[k]) ? a[k] - decoded[k] : 0;
	}
}
