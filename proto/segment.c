#include "proto/segment.h"

#include <stdbool.h>
#include <string.h>

#include "proto/bytes.h"

_Static_assert(SEGMENT_HEADER_BYTES == 96, "the wire's layout is fixed");

/* Offsets of the segment header. */
enum {
	AT_VIEW = 0,
	AT_ROUND = 8,
	AT_ATTEMPT = 16,
	AT_TAG = 24,
	AT_SEGMENT = 28,
	AT_COUNT = 32,
	AT_DTYPE = 40,
	AT_REDUCE = 41,
	AT_CODEC = 42,
	AT_FLAGS = 43,
	AT_KIND = 44,
	AT_ELEMENTS = 48,
	AT_RESERVED = 52,
	AT_CONTRIBUTORS = 64,
};

/* By enum tr_dtype (collectives/coll.h), which this layer does not include. */
static const uint8_t dtype_bytes[] = { 0, 4, 8, 4, 8 };
#define DTYPE_MAX  4
#define REDUCE_MAX 5

void segment_header_put(const struct segment_header *header, uint8_t out[SEGMENT_HEADER_BYTES])
{
	memset(out, 0, SEGMENT_HEADER_BYTES);
	bytes_put_u64(out + AT_VIEW, header->view);
	bytes_put_u64(out + AT_ROUND, header->round);
	bytes_put_u64(out + AT_ATTEMPT, header->attempt);
	bytes_put_u32(out + AT_TAG, header->tag);
	bytes_put_u32(out + AT_SEGMENT, header->segment);
	bytes_put_u64(out + AT_COUNT, header->signature.count);
	out[AT_DTYPE] = header->signature.dtype;
	out[AT_REDUCE] = header->signature.reduce;
	out[AT_CODEC] = header->signature.codec;
	out[AT_FLAGS] = header->signature.flags;
	out[AT_KIND] = header->kind;
	bytes_put_u32(out + AT_ELEMENTS, header->elements);
	memcpy(out + AT_CONTRIBUTORS, header->contributors, sizeof(header->contributors));
}

static bool all_zero(const uint8_t *bytes, size_t count)
{
	for (size_t i = 0; i < count; i++)
		if (bytes[i] != 0)
			return false;
	return true;
}

static tr_status segment_header_check(const uint8_t *in, const struct segment_header *header,
    size_t frame_bytes, struct tr_error *error)
{
	const struct op_signature *signature = &header->signature;

	if (header->kind != SEGMENT_PARTIAL && header->kind != SEGMENT_SEALED)
		return tr_error_set(error, TR_EPROTO, "bad segment: kind %u", header->kind);
	if (signature->dtype == 0 || signature->dtype > DTYPE_MAX)
		return tr_error_set(error, TR_EPROTO, "bad segment: dtype %u", signature->dtype);
	if (signature->reduce == 0 || signature->reduce > REDUCE_MAX)
		return tr_error_set(error, TR_EPROTO, "bad segment: reduce op %u",
		    signature->reduce);
	if (signature->codec != 0 || signature->flags != 0)
		return tr_error_set(error, TR_EPROTO, "bad segment: codec %u, flags %u",
		    signature->codec, signature->flags);
	if (!all_zero(in + AT_KIND + 1, 3) ||
	    !all_zero(in + AT_RESERVED, AT_CONTRIBUTORS - AT_RESERVED))
		return tr_error_set(error, TR_EPROTO, "bad segment: reserved bytes are not zero");
	if (header->segment >= TR_OP_SEGMENTS_MAX)
		return tr_error_set(error, TR_EPROTO, "bad segment: number %u", header->segment);
	if (header->elements > signature->count)
		return tr_error_set(error, TR_EPROTO, "bad segment: more elements than its op has");
	if ((uint64_t)header->elements * dtype_bytes[signature->dtype] !=
	    frame_bytes - SEGMENT_HEADER_BYTES)
		return tr_error_set(error, TR_EPROTO,
		    "bad segment: %zu bytes for %u elements of dtype %u",
		    frame_bytes - SEGMENT_HEADER_BYTES, header->elements, signature->dtype);
	return TR_OK;
}

tr_status segment_header_get(const uint8_t *in, size_t frame_bytes, struct segment_header *header,
    struct tr_error *error)
{
	if (frame_bytes < SEGMENT_HEADER_BYTES || frame_bytes > TR_FRAME_DATA_MAX)
		return tr_error_set(error, TR_EPROTO, "bad segment: a frame of %zu bytes",
		    frame_bytes);
	struct segment_header got = {
		.view = bytes_get_u64(in + AT_VIEW),
		.round = bytes_get_u64(in + AT_ROUND),
		.attempt = bytes_get_u64(in + AT_ATTEMPT),
		.tag = bytes_get_u32(in + AT_TAG),
		.segment = bytes_get_u32(in + AT_SEGMENT),
		.signature = { .count = bytes_get_u64(in + AT_COUNT),
		    .dtype = in[AT_DTYPE],
		    .reduce = in[AT_REDUCE],
		    .codec = in[AT_CODEC],
		    .flags = in[AT_FLAGS] },
		.kind = in[AT_KIND],
		.elements = bytes_get_u32(in + AT_ELEMENTS),
	};
	memcpy(got.contributors, in + AT_CONTRIBUTORS, sizeof(got.contributors));
	tr_status st = segment_header_check(in, &got, frame_bytes, error);
	if (st != TR_OK)
		return st;
	*header = got;
	return TR_OK;
}

void state_header_put(const struct state_header *header, uint8_t out[STATE_HEADER_BYTES])
{
	bytes_put_u64(out, header->round);
	bytes_put_u64(out + 8, header->offset);
	bytes_put_u32(out + 16, header->tensor);
	bytes_put_u32(out + 20, header->bytes);
}

tr_status state_header_get(const uint8_t *in, size_t frame_bytes, struct state_header *header,
    struct tr_error *error)
{
	if (frame_bytes < STATE_HEADER_BYTES || frame_bytes > TR_FRAME_DATA_MAX)
		return tr_error_set(error, TR_EPROTO, "bad state: a frame of %zu bytes",
		    frame_bytes);
	struct state_header got = {
		.round = bytes_get_u64(in),
		.offset = bytes_get_u64(in + 8),
		.tensor = bytes_get_u32(in + 16),
		.bytes = bytes_get_u32(in + 20),
	};
	if (got.bytes != frame_bytes - STATE_HEADER_BYTES)
		return tr_error_set(error, TR_EPROTO, "bad state: says %u bytes, has %zu",
		    got.bytes, frame_bytes - STATE_HEADER_BYTES);
	if (got.offset > UINT64_MAX - got.bytes)
		return tr_error_set(error, TR_EPROTO, "bad state: offset wraps");
	*header = got;
	return TR_OK;
}
