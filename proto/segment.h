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
	/* No elements: the caller of participant `segment` waits for this op. `contributors`: of its scope, as those of the attempt. */
	SEGMENT_AWAITED = 3,
	/* No elements: the answer of `segment` to a question that asks for it. `contributors`: participants that have not submitted the op, or with
	 * SEGMENT_ASKS_LACKS in the place of the encoding (Vote.asks) those that have not voted. */
	SEGMENT_LACKED = 4,
};

/* What an awaited frame is about, in the place of its encoding: versions that know only the first take each for that, and send no other. */
enum segment_question {
	SEGMENT_ASKS_CLOSED = 0, /* has somebody closed the round without the op? */
	SEGMENT_ASKS_LACKS = 1, /* who has not submitted it? Of who keeps account of that: have you? */
	SEGMENT_HAS = 2,        /* the answer to that: yes */
};

/* In which form the elements travel. */
enum segment_encoding {
	SEGMENT_PLAIN = 0, /* elements of the op's dtype */
	SEGMENT_WIDE = 1, /* f32: a sum of f16 or bf16 under way, which is rounded once, at its end */
	SEGMENT_ENCODED = 2, /* by the op's codec */
};

/* Among how many of the contributors an op is, 0: all; and a digest of which, so that they can tell whether they mean the same. */
struct op_scope {
	uint8_t count;
	uint16_t digest;
};

/* An op's signature; all members must agree. Values of enum tr_dtype and enum tr_reduce. */
struct op_signature {
	uint64_t count; /* elements of the whole op */
	uint8_t dtype, reduce, codec;
	uint8_t collective; /* values of enum tr_collective */
	uint32_t
	    root; /* TR_BROADCAST, TR_SEND, TR_RECV: a contributor's index, in a scope its index there; else 0 */
	uint8_t algorithm; /* as asked for this op: values of enum tr_algorithm */
	struct op_scope scope;
};

struct segment_header {
	uint64_t view, round, attempt;
	uint32_t tag, segment;
	struct op_signature signature;
	uint8_t kind;      /* enum segment_kind */
	uint8_t encoding;  /* enum segment_encoding; of an awaited frame enum segment_question */
	uint32_t elements; /* elements in this frame */
	uint32_t bytes;    /* of the payload: what dtype, encoding and codec make of `elements` */
	/* Bit i: contributor i of the attempt (Resume.contributors or the view's contributors, in
	 * ascending peer id), or of the scope, is in the sum. */
	uint8_t contributors[TR_GROUP_PEERS_MAX / 8];
};

struct state_header {
	uint64_t round, offset; /* bytes into the tensor */
	uint32_t tensor, bytes;
};

/* Of the payload, as a head that came says it: nothing is checked. */
uint32_t segment_header_bytes(const uint8_t in[SEGMENT_HEADER_BYTES]);
void segment_header_put(const struct segment_header *header, uint8_t out[SEGMENT_HEADER_BYTES]);
/* TR_EPROTO if a field is out of its range or the frame's size is not what `bytes` says. Whether `bytes` fits `elements` is
 * checked where the codecs are known (collectives/core). */
tr_status segment_header_get(const uint8_t *in, size_t frame_bytes, struct segment_header *header,
    struct tr_error *error);
void state_header_put(const struct state_header *header, uint8_t out[STATE_HEADER_BYTES]);
tr_status state_header_get(const uint8_t *in, size_t frame_bytes, struct state_header *header,
    struct tr_error *error);

#endif
