/* One collective of a round and its segments: what is sealed, by whom, with which digest. Pure bookkeeping over the
 * caller's memory; who sends what is path.c's.
 */
#ifndef TR_COLLECTIVES_CORE_OP_H
#define TR_COLLECTIVES_CORE_OP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "collectives/coll.h"
#include "collectives/core/buffer.h"
#include "collectives/core/roster.h"
#include "common/digest.h"
#include "common/limits.h"
#include "proto/segment.h"

/* Something that is added to a sum. */
struct fold_part {
	const void *data;            /* NULL: nothing */
	struct group_buffer *buffer; /* that holds it: one reference; NULL: it stays where it is */
	bool wide;                   /* f32, of an op in f16 or bf16 */
};

/* One segment's sum under way, at a node of its route that waits for more (fold.c). */
struct op_fold {
	struct fold_part left; /* the sum so far */
	bool own_in;           /* our input is in `left` */
	unsigned next;         /* ordered: the first participant that is not in `left` */
	unsigned arrived;      /* children whose sums came */
	uint8_t got[TR_GROUP_PEERS_MAX / 8]; /* the same, by participant */
	unsigned part_count;
	struct fold_part part[]; /* by participant: came, and is not in `left` */
};

struct op_segment {
	struct tr_digest digest; /* of the sealed result */
	struct op_fold *fold;
	uint32_t server; /* participant that serves it after a view change; ROSTER_NONE: reduce it */
	bool sealed;
	bool passed; /* our sum is on its way up in this view */
	bool begun;  /* we sent our input and the result is not here: counts in op->begun */
};

struct op {
	uint32_t tag;
	struct op_signature signature;
	enum tr_dtype dtype;
	enum tr_reduce reduce;
	/* In this view (window.c): */
	enum tr_algorithm algorithm;
	bool ordered;              /* sums are taken in ascending peer id */
	uint32_t cursor;           /* segments looked at, in the order in which we begin them */
	uint32_t begun, begun_max; /* segments that we began and that are not sealed here */
	uint32_t rotation;    /* segments in a block that every member begins in another order */
	uint8_t *data;        /* the result: the caller's; borrowed until the round is decided */
	const uint8_t *input; /* apart from the result; NULL: in place */
	uint8_t *saved;       /* POLICY_UNIFORM, in place: a copy of the input */
	size_t element_bytes;
	uint32_t segment_elements, segments, sealed;
	bool told; /* the caller knows that the result is in place */
	struct op_segment *segment;
	size_t set_bytes; /* of one contributor set: bits of the attempt's contributors */
	uint8_t *sets;    /* segments x set_bytes; valid where sealed */
};

struct op_submit {
	uint32_t tag;
	void *data;
	const void *input; /* NULL: in place */
	uint64_t count;
	enum tr_dtype dtype;
	enum tr_reduce reduce;
	bool save; /* keep a copy of an input that the result replaces */
	uint32_t segment_bytes;
	unsigned contributors;
};

tr_status op_create(const struct op_submit *submit, struct op **op, struct tr_error *error);
void op_destroy(struct op *op, struct buffer_pool *pool); /* accepts NULL */

/* A new view: paths start again; with `forget`, nothing is sealed any more (a new attempt of `contributors`). */
tr_status op_reset(struct op *op, struct buffer_pool *pool, bool forget, unsigned contributors);

/* Bytes of a segment of an op of `bytes`: small ones are cut too, so that their hops overlap. `most`: of the view. A multiple of
 * OP_SEGMENT_ALIGN unless `most` is less. */
#define OP_SEGMENT_ALIGN 1024u /* 128 of the widest elements: blocks of codecs are never split */
uint32_t op_segment_bytes(uint64_t bytes, uint32_t most);

uint32_t op_elements(const struct op *op, uint32_t segment); /* in this segment */
size_t op_offset(const struct op *op, uint32_t segment);     /* bytes */
const uint8_t *op_input(const struct op *op, uint32_t segment);
uint8_t *op_set(const struct op *op, uint32_t segment);

/* The segment's result is in op->data: hash it while it is hot. */
void op_seal(struct op *op, struct buffer_pool *pool, uint32_t segment, const uint8_t *set);
bool op_whole(const struct op *op, uint32_t segment, unsigned contributors);
/* Everything sealed: results and contributor sets, in segment order. */
struct tr_digest op_digest(const struct op *op);
void op_fold_drop(struct op *op, struct buffer_pool *pool, uint32_t segment);

#endif
