#include "collectives/core/coded.h"

#include <string.h>

#include "collectives/kernels/codec.h"
#include "collectives/kernels/reduce.h"

static size_t coded_least(size_t a, size_t b)
{
	return a < b ? a : b;
}

size_t coded_bytes(const struct op *op, enum segment_encoding form, size_t elements)
{
	switch (form) {
	case SEGMENT_WIDE:
		return elements * sizeof(float);
	case SEGMENT_ENCODED:
		return codec_bytes(op->codec, elements);
	default:
		return elements * op->element_bytes;
	}
}

static const void *coded_at(const struct op *op, const void *row, enum segment_encoding form,
    size_t first)
{
	return (const uint8_t *)row + coded_bytes(op, form, first);
}

void coded_load(const struct op *op, float *sum, const struct fold_part *part, size_t first,
    size_t count)
{
	const void *from = coded_at(op, part->data, part->form, first);

	if (part->form == SEGMENT_ENCODED)
		codec_decode(op->codec, sum, from, count);
	else if (part->form == SEGMENT_WIDE || op->dtype == TR_F32)
		memcpy(sum, from, count * sizeof(*sum));
	else
		reduce_widen(op->dtype, sum, from, count);
}

void coded_combine(const struct op *op, float *sum, const struct fold_part *part, size_t first,
    size_t count)
{
	const void *from = coded_at(op, part->data, part->form, first);

	if (part->form == SEGMENT_ENCODED)
		codec_decode_combine(op->codec, op->reduce, sum, from, count);
	else if (part->form == SEGMENT_WIDE || op->dtype == TR_F32)
		reduce_combine(TR_F32, op->reduce, sum, sum, from, count);
	else
		reduce_combine_wide(op->dtype, op->reduce, sum, from, count);
}

void coded_store(const struct op *op, void *row, enum segment_encoding form, const float *sum,
    size_t first, size_t count)
{
	void *to = (uint8_t *)row + coded_bytes(op, form, first);

	if (form == SEGMENT_ENCODED)
		codec_encode(op->codec, to, sum, count);
	else if (form == SEGMENT_WIDE || op->dtype == TR_F32)
		memcpy(to, sum, count * sizeof(*sum));
	else
		reduce_narrow(op->dtype, to, sum, count);
}

void coded_encode_input(const struct op *op, uint64_t first, const void *row, size_t elements,
    bool feed, void *out)
{
	float wide[CODED_BLOCK], unused[CODED_BLOCK];

	for (size_t at = 0; at < elements; at += CODED_BLOCK) {
		size_t count = coded_least(elements - at, CODED_BLOCK);
		const void *in = (const uint8_t *)row + at * op->element_bytes;
		void *to = (uint8_t *)out + coded_bytes(op, SEGMENT_ENCODED, at);
		const float *input = in;
		if (op->dtype != TR_F32) {
			reduce_widen(op->dtype, wide, in, count);
			input = wide;
		}
		if (op->residual)
			codec_encode_feedback(op->codec, op->beta, to, input,
			    op->residual + first + at,
			    feed ? op->residual_next + first + at : unused, count);
		else
			codec_encode(op->codec, to, input, count);
	}
}

void coded_keep_input(const struct op *op, uint64_t first, const void *row, size_t elements)
{
	float wide[CODED_BLOCK];

	for (size_t at = 0; at < elements; at += CODED_BLOCK) {
		size_t count = coded_least(elements - at, CODED_BLOCK);
		const void *in = (const uint8_t *)row + at * op->element_bytes;
		const float *input = in, *residual = op->residual + first + at;
		float *next = op->residual_next + first + at;
		if (op->dtype != TR_F32) {
			reduce_widen(op->dtype, wide, in, count);
			input = wide;
		}
		for (size_t k = 0; k < count; k++)
			next[k] = input[k] + op->beta * residual[k];
	}
}

void coded_decode(const struct op *op, void *out, const void *encoded, size_t elements)
{
	const struct fold_part part = { .data = encoded, .form = SEGMENT_ENCODED };
	float wide[CODED_BLOCK];

	if (op->dtype == TR_F32) {
		codec_decode(op->codec, out, encoded, elements);
		return;
	}
	for (size_t at = 0; at < elements; at += CODED_BLOCK) {
		size_t count = coded_least(elements - at, CODED_BLOCK);
		coded_load(op, wide, &part, at, count);
		coded_store(op, out, SEGMENT_PLAIN, wide, at, count);
	}
}

/* Elements from `first` on, times `by`, encoded. Would they be decoded to what they are? */
static bool coded_encode_again(const struct op *op, const void *row, size_t first, size_t count,
    float by, void *out)
{
	const struct fold_part part = { .data = row, .form = SEGMENT_PLAIN };
	float wide[CODED_BLOCK], back[CODED_BLOCK];

	coded_load(op, wide, &part, first, count);
	for (size_t i = 0; by != 1 && i < count; i++)
		wide[i] *= by;
	coded_store(op, out, SEGMENT_ENCODED, wide, first, count);
	coded_decode(op, back, coded_at(op, out, SEGMENT_ENCODED, first), count);
	return memcmp(back, coded_at(op, row, SEGMENT_PLAIN, first),
	           coded_bytes(op, SEGMENT_PLAIN, count)) == 0;
}

/* bf16 rounds what was decoded by up to 2^-9 of it; then the scale that int8 and int2 make of it may be the next one. A little more or less gives back theirs, and leaves the codes, which are further apart. */
static bool coded_encode_block(const struct op *op, const void *row, size_t first, size_t count,
    void *out)
{
	static const float by[] = { 1, 1 + 0x1p-10f, 1 - 0x1p-10f };
	bool same = false;

	for (size_t i = 0; i < sizeof(by) / sizeof(by[0]) && !same; i++)
		same = coded_encode_again(op, row, first, count, by[i], out);
	return same;
}

bool coded_encode_result(const struct op *op, const void *row, size_t elements, void *out)
{
	bool same = true;

	for (size_t at = 0; at < elements && same; at += CODED_BLOCK) {
		size_t end = at + coded_least(elements - at, CODED_BLOCK);
		if (coded_encode_again(op, row, at, end - at, 1, out))
			continue;
		for (size_t b = at; b < end && same; b += CODEC_BLOCK)
			same = coded_encode_block(op, row, b, coded_least(end - b, CODEC_BLOCK),
			    out);
	}
	return same;
}
