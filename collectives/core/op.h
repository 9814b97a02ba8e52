/* One collective of a round and its segments: what is sealed, by whom, with which digest; and where its elements are. Pure
 * bookkeeping over the caller's memory; who sends what is route.c's.
 */
#ifndef TR_COLLECTIVES_CORE_OP_H
#define TR_COLLECTIVES_CORE_OP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "collectives/coll.h"
#include "collectives/core/buffer.h"
#include "collectives/core/cut.h"
#include "collectives/core/group.h"
#include "collectives/core/roster.h"
#include "collectives/core/route.h"
#include "collectives/core/strided.h"
#include "common/digest.h"
#include "common/limits.h"
#include "proto/segment.h"

/* Among whom an op is: as it is signed, and by bits of the round's contributors; all zero: all. */
struct scope {
	struct op_scope sign;
	uint8_t bits[ROUTE_SET_BYTES];
};

/* Something that is added to a sum. */
struct fold_part {
	const void *data;            /* NULL: nothing */
	struct group_buffer *buffer; /* that holds it: one reference; NULL: it stays where it is */
	enum segment_encoding form; /* SEGMENT_WIDE: f32, of an op in f16 or bf16 or with a codec */
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
	struct group_buffer
	    *own; /* our input, gathered or encoded; NULL: not yet, or it is used where it is */
	struct group_buffer *landing; /* its result is under way into the op's memory (landing.c) */
	uint32_t server; /* participant that serves it after a view change; ROSTER_NONE: reduce it */
	bool sealed;
	bool passed; /* our sum is on its way up in this view */
	bool begun;  /* we sent our input and the result is not here: counts in op->begun */
	bool fed; /* its error feedback is written: what is encoded again may be an input that the caller has changed since, after a release */
	bool saved;                  /* its input is in the op's `saved` */
	bool owed;                   /* sealed here, and not on its way (outlet.c) */
	uint8_t given, given_before; /* bits of segment_kind: sent in this view, in earlier ones */
};

/* Of an op that is not here, in this view (lack.c); sets of the round's participants. */
struct op_known {
	uint64_t ask_us; /* when to ask the keeper again who lacks it; 0: it was never waited for */
	uint8_t lacks[TR_GROUP_PEERS_MAX / 8]; /* who has not submitted it, as the keeper said last */
	/* At the keeper: */
	uint8_t has[TR_GROUP_PEERS_MAX / 8]; /* who said that it has */
	bool asked;                          /* the others were, */
	uint64_t asked_us, again_us;         /* for the first time then; and when again */
};

struct op {
	struct op *next_free;
	uint32_t tag;
	const struct roster *
	    roster; /* of those it is among, in this attempt; the core's. All that is called a participant here is one of it */
	struct scope scope;
	struct op_signature signature; /* TR_RECV says TR_SEND, and the root is the receiver */
	enum op_kind kind;
	uint32_t source; /* contributor: of a broadcast, or of a pair */
	bool sends; /* TR_SEND: there is no result here, and the caller's memory is read only */
	bool repaired; /* begun in an earlier view: what is sent in this one may be for who has it, and has released it */
	enum tr_dtype dtype;
	enum tr_reduce reduce;
	enum tr_codec codec;
	/* In this view (window.c): */
	enum tr_algorithm algorithm;
	bool ordered;              /* sums are taken in ascending peer id */
	uint32_t cursor;           /* segments looked at, in the order in which we begin them */
	uint32_t begun, begun_max; /* segments that we began and that are not sealed here */
	uint32_t rotation;      /* segments in a block that every member begins in another order */
	uint32_t owed, owed_at; /* so many segments, and none of them is before that one */
	const Traind__Peer__OpHolders *holders; /* in the round's resume plan; NULL: it is not in it */
	struct buffer_outlet *outlet; /* NULL: nothing of it was staged to be sent as a source */
	uint8_t *
	    data; /* the result: the caller's; borrowed until the round is decided; a send has none */
	const uint8_t *input; /* apart from the result; NULL: in place */
	uint8_t *saved;       /* POLICY_UNIFORM, in place: room for the input, in a row */
	struct strided data_layout, input_layout;
	uint64_t data_first,
	    input_first;       /* elements of the op that are before the memory's first */
	const float *residual; /* error feedback; NULL: none */
	float *residual_next;
	float beta;
	size_t element_bytes;
	struct cut cut;
	uint32_t segments;
	uint32_t needed; /* segments whose result this member needs */
	uint32_t sealed; /* of those */
	uint64_t number; /* grows with each op that is submitted */
	uint64_t
	    ask_us; /* when to ask whether the others know it; 0: the caller has not waited for it */
	/* In this view, by participant (ahead.c): who has submitted it too; bytes sent to who has not said so. NULL: none. */
	uint8_t submitted[TR_GROUP_PEERS_MAX / 8];
	uint32_t *ahead, ahead_few[8];
	struct op_segment *segment;
	size_t set_bytes;       /* of one contributor set: bits of the attempt's contributors */
	uint8_t *sets;          /* segments x set_bytes; valid where sealed */
	struct op_segment only; /* of an op of one segment: both are here */
	uint8_t only_set[ROUTE_SET_BYTES];
	struct op_known known;
};

struct op_submit {
	const struct group_submit *submit;
	const struct roster *roster;
	const struct scope *scope;
	bool save;                        /* keep a copy of an input that the result replaces */
	uint32_t segment_bytes, segments; /* of the view */
	unsigned contributors;
	unsigned index; /* ours among them; `contributors`: we are none */
};

/* What is wrong with an op's values (TR_EINVAL) if it is the one of contributor `index` among so many, of its scope. Looks at no
 * memory, so that the caller's side of a channel can say the same before the engine does. */
tr_status op_check(const struct group_submit *submit, unsigned contributors, unsigned index,
    struct tr_error *error);

/* TR_EINVAL, TR_ELIMIT: what is wrong with it. */
tr_status op_create(const struct op_submit *submit, struct buffer_pool *pool, struct op **op,
    struct tr_error *error);
void op_destroy(struct op *op, struct buffer_pool *pool); /* accepts NULL */
/* So many are kept for ops to come; more go back to the allocator, those too when the core goes. */
#define OP_SPARE_MAX 128u
struct op *op_take(struct buffer_pool *pool); /* nothing in it is set; NULL: out of memory */
void op_finish_spare(struct buffer_pool *pool);

/* Before the segment's result is written where its input lies; once, if the op keeps a copy of it. */
void op_save_input(struct op *op, uint32_t segment);

/* Where the segment's result lies; NULL: in several pieces. */
void *op_result_row(const struct op *op, uint32_t segment);

/* A new view: paths start again; with `forget`, nothing is sealed any more (a new attempt of `contributors`). */
tr_status op_reset(struct op *op, struct buffer_pool *pool, bool forget, unsigned contributors);

/* Bytes of a segment of an op of `bytes`: small ones are cut too, so that their hops overlap. `most`: of the view;
 * `segments`: op_segments_of, 0: 24 to 32; TR_OP_SEGMENTS_HOST: 8 to 32. A multiple of OP_SEGMENT_ALIGN unless `most` is less. */
#define OP_SEGMENT_ALIGN 1024u /* 128 of the widest elements: blocks of codecs are never split */
uint32_t op_segment_bytes(uint64_t bytes, uint32_t most, uint32_t segments);
/* Out of the view's: with a codec segments are a fraction of that on the wire, so there are no more of them over long ways. */
static inline uint32_t op_segments_of(uint32_t of_view, enum tr_codec codec)
{
	return codec == TR_CODEC_NONE ? of_view : 0;
}

enum op_kind op_kind_of(const struct group_submit *submit);
/* Does it name contributors by their index? Then another attempt is another op. */
bool op_names(const struct group_submit *submit);
static inline bool op_scoped(const struct op *op)
{
	return op->signature.scope.count > 0;
}
/* Contributor whose data the segment is (OP_SOURCED, OP_PAIR) or who gets it (OP_SCATTERED); ROSTER_NONE: all. */
uint32_t op_contributor(const struct op *op, uint32_t segment);
/* May the contributor `index` need the result of this segment? */
bool op_needs(const struct op *op, uint32_t segment, uint32_t index);
bool op_done(const struct op *op);

uint32_t op_elements(const struct op *op, uint32_t segment); /* in this segment */
size_t op_bytes(const struct op *op, uint32_t segment);      /* of them, as they lie in memory */
/* Bytes of this segment in a form on the wire. */
size_t op_form_bytes(const struct op *op, uint32_t segment, enum segment_encoding form);

/* Our input of this segment as it goes into sums: where it is if it lies in a row; else gathered, encoded. The reference is the caller's.
 * TR_ENOMEM. */
tr_status op_own(struct op *op, struct buffer_pool *pool, uint32_t segment, struct fold_part *part);
void op_own_drop(struct op *op, struct buffer_pool *pool, uint32_t segment);

/* Error feedback where the segment's result is nobody's: what we would have given is left for the next round. TR_ENOMEM. */
tr_status op_own_keep(struct op *op, struct buffer_pool *pool, uint32_t segment);

/* Where this segment's result is to be made: in the caller's memory, or in a buffer if it does not lie in a row. TR_ENOMEM. */
struct op_result {
	uint8_t *data;
	struct group_buffer *buffer; /* one reference; NULL: the caller's memory */
	const void *hot;             /* the same bytes, where they are in cache; NULL: in `data` */
	const struct tr_digest_stream *hash; /* of all of them; NULL: not hashed yet */
};
tr_status op_result_make(struct op *op, struct buffer_pool *pool, uint32_t segment,
    struct op_result *result);
/* A sealed result, to be sent. */
tr_status op_result_read(struct op *op, struct buffer_pool *pool, uint32_t segment,
    struct op_result *result);

uint8_t *op_set(const struct op *op, uint32_t segment);

/* The segment's result was made at `result` (of a send there is none: nothing is read or written): hashes it while it is hot, and puts it into its place. */
void op_seal(struct op *op, struct buffer_pool *pool, uint32_t segment,
    const struct op_result *result, const uint8_t *set);
/* Its source is dead and nobody has it: the memory stays as it is, the contributor set is empty. */
void op_seal_void(struct op *op, struct buffer_pool *pool, uint32_t segment);
bool op_is_void(const struct op *op, uint32_t segment);
/* Sealed, and nobody's data is missing. */
bool op_whole(const struct op *op, uint32_t segment, unsigned contributors);
/* Do all its members hold the same result? */
static inline bool op_alike(const struct op *op)
{
	return op->kind == OP_REDUCED || op->kind == OP_SOURCED;
}
/* Does everybody? Then it is part of what is voted on. */
static inline bool op_common(const struct op *op)
{
	return op_alike(op) && !op_scoped(op);
}
/* Everything sealed, op_alike: results and contributor sets, in segment order. */
struct tr_digest op_digest(const struct op *op);
void op_fold_drop(struct op *op, struct buffer_pool *pool, uint32_t segment);

#endif
