#include "collectives/kernels/self_check.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "collectives/kernels/codec.h"
#include "collectives/kernels/reduce.h"

#define ELEMENTS 519 /* whole registers of every width, a block of codes, and a rest of both */
#define INPUTS   3
#define ROOM     (8 * ELEMENTS + 64) /* and what must stay as it is */

struct check {
	const struct variant *variant;
	_Alignas(64) uint8_t input[INPUTS][ROOM];
	_Alignas(64) uint8_t ours[ROOM], plain[ROOM], ours_next[ROOM], plain_next[ROOM];
	char *what;
	size_t what_bytes;
};

/* xorshift64: any bits will do. */
static uint64_t next_bits(uint64_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return *state;
}

/* Finite numbers whose products are finite too: what a NaN's payload is, no standard says. */
static void fill(enum tr_dtype dtype, void *data, uint64_t seed)
{
	uint64_t state = seed * UINT64_C(0x9e3779b97f4a7c15) + dtype;
	for (size_t i = 0; i < ELEMENTS; i++) {
		uint64_t bits = next_bits(&state), scale = next_bits(&state) % 24;
		switch (dtype) {
		case TR_F32:
			((uint32_t *)data)[i] = (uint32_t)(bits & 0x807fffffu) |
			    (uint32_t)((115 + scale) << 23);
			break;
		case TR_F64:
			((uint64_t *)data)[i] = (bits & UINT64_C(0x800fffffffffffff)) |
			    (1011 + scale) << 52;
			break;
		case TR_F16: /* subnormal ones too */
			((uint16_t *)data)[i] = (uint16_t)((bits & 0x83ffu) | (scale << 10));
			break;
		case TR_BF16:
			((uint16_t *)data)[i] = (uint16_t)((bits & 0x807fu) | (115 + scale) << 7);
			break;
		default:
			memcpy((uint8_t *)data + i * reduce_element_bytes(dtype), &bits,
			    reduce_element_bytes(dtype));
			break;
		}
	}
}

static void reset(struct check *c)
{
	memset(c->ours, 0x5a, ROOM);
	memset(c->plain, 0x5a, ROOM);
	memset(c->ours_next, 0x5a, ROOM);
	memset(c->plain_next, 0x5a, ROOM);
}

static bool same(const struct check *c, const char *kernel, int kind, int op)
{
	if (memcmp(c->ours, c->plain, ROOM) == 0 && memcmp(c->ours_next, c->plain_next, ROOM) == 0)
		return true;
	(void)snprintf(c->what, c->what_bytes, "%s (type %d, operation %d)", kernel, kind, op);
	return false;
}

static bool check_reduce(struct check *c, enum tr_dtype dtype, enum tr_reduce op)
{
	const void *inputs[INPUTS] = { c->input[0], c->input[1], c->input[2] };
	reset(c);
	c->variant->combine(dtype, op, c->ours, inputs[0], inputs[1], ELEMENTS);
	variant_plain->combine(dtype, op, c->plain, inputs[0], inputs[1], ELEMENTS);
	if (!same(c, "combine", (int)dtype, (int)op))
		return false;
	c->variant->combine_many(dtype, op, c->ours, inputs, INPUTS, ELEMENTS);
	variant_plain->combine_many(dtype, op, c->plain, inputs, INPUTS, ELEMENTS);
	return same(c, "combine_many", (int)dtype, (int)op);
}

static bool check_dtype(struct check *c, enum tr_dtype dtype)
{
	size_t bytes = ELEMENTS * reduce_element_bytes(dtype);
	for (unsigned i = 0; i < INPUTS; i++)
		fill(dtype, c->input[i], i + 1);
	for (int op = TR_SUM; op <= TR_PROD; op++)
		if (!check_reduce(c, dtype, (enum tr_reduce)op))
			return false;
	reset(c);
	memcpy(c->ours, c->input[0], bytes);
	memcpy(c->plain, c->input[0], bytes);
	c->variant->divide(dtype, c->ours, ELEMENTS, 3);
	variant_plain->divide(dtype, c->plain, ELEMENTS, 3);
	if (!same(c, "divide", (int)dtype, 0))
		return false;
	memset(c->ours + bytes / 2, 0xff, bytes / 8); /* NaNs, of types that have some */
	memcpy(c->plain, c->ours, bytes);
	c->variant->settle_nans(dtype, c->ours, ELEMENTS);
	variant_plain->settle_nans(dtype, c->plain, ELEMENTS);
	return same(c, "settle_nans", (int)dtype, 0);
}

static bool check_wide(struct check *c, enum tr_dtype dtype)
{
	fill(dtype, c->input[0], 1);
	fill(TR_F32, c->input[1], 2);
	reset(c);
	c->variant->widen(dtype, (float *)(void *)c->ours, c->input[0], ELEMENTS);
	variant_plain->widen(dtype, (float *)(void *)c->plain, c->input[0], ELEMENTS);
	if (!same(c, "widen", (int)dtype, 0))
		return false;
	for (int op = TR_SUM; op <= TR_PROD; op++) {
		c->variant->combine_wide(dtype, (enum tr_reduce)op, (float *)(void *)c->ours,
		    c->input[0], ELEMENTS);
		variant_plain->combine_wide(dtype, (enum tr_reduce)op, (float *)(void *)c->plain,
		    c->input[0], ELEMENTS);
		if (!same(c, "combine_wide", (int)dtype, op))
			return false;
	}
	reset(c);
	c->variant->narrow(dtype, c->ours, (const float *)(void *)c->input[1], ELEMENTS);
	variant_plain->narrow(dtype, c->plain, (const float *)(void *)c->input[1], ELEMENTS);
	return same(c, "narrow", (int)dtype, 0);
}

static bool check_codec(struct check *c, enum tr_codec codec)
{
	const float *in = (const float *)(void *)c->input[0];
	const float *residual = (const float *)(void *)c->input[1];
	fill(TR_F32, c->input[0], 1);
	fill(TR_F32, c->input[1], 2);
	reset(c);
	c->variant->encode(codec, c->ours, in, ELEMENTS);
	variant_plain->encode(codec, c->plain, in, ELEMENTS);
	if (!same(c, "encode", (int)codec, 0))
		return false;
	memcpy(c->input[2], c->plain, codec_bytes(codec, ELEMENTS));
	reset(c);
	c->variant->decode(codec, (float *)(void *)c->ours, c->input[2], ELEMENTS);
	variant_plain->decode(codec, (float *)(void *)c->plain, c->input[2], ELEMENTS);
	if (!same(c, "decode", (int)codec, 0))
		return false;
	for (int op = TR_SUM; op <= TR_PROD; op++) {
		c->variant->decode_combine(codec, (enum tr_reduce)op, (float *)(void *)c->ours,
		    c->input[2], ELEMENTS);
		variant_plain->decode_combine(codec, (enum tr_reduce)op, (float *)(void *)c->plain,
		    c->input[2], ELEMENTS);
		if (!same(c, "decode_combine", (int)codec, op))
			return false;
	}
	reset(c);
	c->variant->encode_feedback(codec, 0.9f, c->ours, in, residual,
	    (float *)(void *)c->ours_next, ELEMENTS);
	variant_plain->encode_feedback(codec, 0.9f, c->plain, in, residual,
	    (float *)(void *)c->plain_next, ELEMENTS);
	return same(c, "encode_feedback", (int)codec, 0);
}

bool self_check_variant(const struct variant *variant, char *what, size_t what_bytes)
{
	struct check c = { .variant = variant, .what = what, .what_bytes = what_bytes };
	for (int dtype = TR_F32; dtype <= TR_U8; dtype++)
		if (!check_dtype(&c, (enum tr_dtype)dtype))
			return false;
	for (int codec = TR_CODEC_NONE; codec <= TR_CODEC_INT2; codec++)
		if (!check_codec(&c, (enum tr_codec)codec))
			return false;
	return check_wide(&c, TR_F16) && check_wide(&c, TR_BF16);
}
