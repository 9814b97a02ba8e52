#include "proto/segment.h"

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
	AT_COLLECTIVE = 43,
	AT_ROOT = 44,
	AT_ALGORITHM = 48,
	AT_KIND = 49,
	AT_ENCODING = 50,
	AT_SCOPE_COUNT = 51,
	AT_ELEMENTS = 52,
	AT_BYTES = 56,
	AT_SCOPE_DIGEST = 60,
	AT_RESERVED = 62,
	AT_CONTRIBUTORS = 64,
};

/* Of the enums of collectives/coll.h, which this layer does not include. */
#define DTYPE_MAX      7
#define REDUCE_MAX     5
#define CODEC_MAX      5
#define COLLECTIVE_MAX 6
#define ALGORITHM_MAX  5

uint32_t segment_header_bytes(const uint8_t in[SEGMENT_HEADER_BYTES])
{
	return bytes_get_u32(in + AT_BYTES);
}

void segment_header_put(const struct segment_header *header, uint8_t out[SEGMENT_HEADER_BYTES])
{
	const struct op_signature *signature = &header->signature;

	memset(out, 0, SEGMENT_HEADER_BYTES);
	bytes_put_u64(out + AT_VIEW, header->view);
	bytes_put_u64(out + AT_ROUND, header->round);
	bytes_put_u64(out + AT_ATTEMPT, header->attempt);
	bytes_put_u32(out + AT_TAG, header->tag);
	bytes_put_u32(out + AT_SEGMENT, header->segment);
	bytes_put_u64(out + AT_COUNT, signature->count);
	out[AT_DTYPE] = signature->dtype;
	out[AT_REDUCE] = signature->reduce;
	out[AT_CODEC] = signature->codec;
	out[AT_COLLECTIVE] = signature->collective;
	bytes_put_u32(out + AT_ROOT, signature->root);
	out[AT_ALGORITHM] = signature->algorithm;
	out[AT_SCOPE_DIGEST] = (uint8_t)signature->scope.digest;
	out[AT_SCOPE_DIGEST + 1] = (uint8_t)(signature->scope.digest >> 8);
	out[AT_SCOPE_COUNT] = signature->scope.count;
	out[AT_KIND] = header->kind;
	out[AT_ENCODING] = header->encoding;
	bytes_put_u32(out + AT_ELEMENTS, header->elements);
	bytes_put_u32(out + AT_BYTES, header->bytes);
	memcpy(out + AT_CONTRIBUTORS, header->contributors, sizeof(header->contributors));
}

static tr_status signature_check(const struct op_signature *signature, struct tr_error *error)
{
	if (signature->dtype == 0 || signature->dtype > DTYPE_MAX)
		return tr_error_set(error, TR_EPROTO, "bad segment: dtype %u", signature->dtype);
	if (signature->reduce == 0 || signature->reduce > REDUCE_MAX)
		return tr_error_set(error, TR_EPROTO, "bad segment: reduce op %u",
		    signature->reduce);
	if (signature->codec > CODEC_MAX || signature->collective > COLLECTIVE_MAX ||
	    signature->algorithm > ALGORITHM_MAX)
		return tr_error_set(error, TR_EPROTO,
		    "bad segment: codec %u, collective %u, algorithm %u", signature->codec,
		    signature->collective, signature->algorithm);
	if (signature->scope.count == 0 && signature->scope.digest != 0)
		return tr_error_set(error, TR_EPROTO, "bad segment: the scope of an op of all");
	if (signature->root >= TR_GROUP_PEERS_MAX)
		return tr_error_set(error, TR_EPROTO, "bad segment: root %u", signature->root);
	return TR_OK;
}

static tr_status segment_header_check(const uint8_t *in, const struct segment_header *header,
    size_t frame_bytes, struct tr_error *error)
{
	tr_status st = signature_check(&header->signature, error);
	if (st != TR_OK)
		return st;
	if (header->kind < SEGMENT_PARTIAL || header->kind > SEGMENT_LACKED)
		return tr_error_set(error, TR_EPROTO, "bad segment: kind %u", header->kind);
	if (header->encoding > SEGMENT_ENCODED)
		return tr_error_set(error, TR_EPROTO, "bad segment: encoding %u", header->encoding);
	if (in[AT_RESERVED] != 0 || in[AT_RESERVED + 1] != 0)
		return tr_error_set(error, TR_EPROTO, "bad segment: reserved bytes are not zero");
	if (header->segment >= TR_OP_SEGMENTS_MAX)
		return tr_error_set(error, TR_EPROTO, "bad segment: number %u", header->segment);
	if (header->elements > header->signature.count)
		return tr_error_set(error, TR_EPROTO, "bad segment: more elements than its op has");
	if (header->bytes != frame_bytes - SEGMENT_HEADER_BYTES)
		return tr_error_set(error, TR_EPROTO, "bad segment: says %u bytes, has %zu",
		    header->bytes, frame_bytes - SEGMENT_HEADER_BYTES);
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
		    .collective = in[AT_COLLECTIVE],
		    .root = bytes_get_u32(in + AT_ROOT),
		    .algorithm = in[AT_ALGORITHM],
		    .scope = { in[AT_SCOPE_COUNT],
		        (uint16_t)(in[AT_SCOPE_DIGEST] | in[AT_SCOPE_DIGEST + 1] << 8) } },
		.kind = in[AT_KIND],
		.encoding = in[AT_ENCODING],
		.elements = bytes_get_u32(in + AT_ELEMENTS),
		.bytes = bytes_get_u32(in + AT_BYTES),
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
