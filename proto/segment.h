/* The fixed headers of bulk frames (FRAME_SEGMENT, FRAME_STATE), little-endian. Pure. */
#ifndef TR_PROTO_SEGMENT_H
#define TR_PROTO_SEGMENT_H

#include <stddef.h>
#include <stdint.h>

#include "common/error.h"
#include "common/limits.h"

#define SEGMENT_HEADER_BYTES (32 + 16 + 16 + TR_GROUP_PEERS_MAX / 8)
#define STATE_HEADER_BYTES   24

enum segment_kind {
	SEGMENT_PARTIAL = 1, /* a sum under way: goes to the next peer of the segment's path */
	SEGMENT_SEALED = 2,  /* a final result */
};

/* An op's signature; all members must agree. Values of enum tr_dtype and enum tr_reduce. */
struct op_signature {
	uint64_t count; /* elements of the whole op */
	uint8_t dtype, reduce, codec, flags;
};

struct segment_header {
	uint64_t view, round, attempt;
	uint32_t tag, segment;
	struct op_signature signature; /* count u64, dtype, reduce, codec, flags u8 */
	uint8_t kind;                  /* enum segment_kind; then 3 zero bytes */
	uint32_t elements;             /* elements in this frame; then 12 zero bytes */
	/* Bit i: contributor i of the attempt (Resume.contributors or the view's contributors, in
	 * ascending peer id) is in the sum. */
	uint8_t contributors[TR_GROUP_PEERS_MAX / 8];
};

struct state_header {
	uint64_t round, offset; /* bytes into the tensor */
	uint32_t tensor, bytes;
};

void segment_header_put(const struct segment_header *header, uint8_t out[SEGMENT_HEADER_BYTES]);
/* TR_EPROTO if a field is out of its range or `payload_bytes` does not match elements x dtype size.
 */
tr_status segment_header_get(const uint8_t *in, size_t frame_bytes, struct segment_header *header,
    struct tr_error *error);
void state_header_put(const struct state_header *header, uint8_t out[STATE_HEADER_BYTES]);
tr_status state_header_get(const uint8_t *in, size_t frame_bytes, struct state_header *header,
    struct tr_error *error);

#endif
