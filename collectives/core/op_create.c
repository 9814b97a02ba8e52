/* An op from what the caller submitted: everything that can be wrong with it is found here. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "collectives/core/op.h"
#include "collectives/kernels/codec.h"
#include "collectives/kernels/reduce.h"

/* Of ops of a middling size: how many, and of how many bytes at most and at least. */
struct dealing {
	uint32_t segments, middle, least;
};

/* Dealt out evenly to 2, 3, 4, 6 or 8 members. More cost more than their overlap gains while segments are small (docs/benchmarks.md); of large ops there are
 * more, for groups of more members. Below `least` the header and the call cost more than overlap gains. */
#define SEGMENTS_LARGE 32u
static const struct dealing by_size = { 24, 171u << 10 /* of 4 MiB */, 16u << 10 };
/* On one host nothing is under way for long: a segment's own cost is more than its overlap gains until it has some 100 KiB. */
static const struct dealing on_one_host = { TR_OP_SEGMENTS_HOST, 256u << 10, 128u << 10 };

/* ---- values ---- */

static tr_status op_check_values(const struct group_submit *s, struct tr_error *error)
{
	if (reduce_element_bytes(s->dtype) == 0 || (int)s->reduce < TR_SUM ||
	    (int)s->reduce > TR_PROD || (int)s->collective < TR_ALL_REDUCE ||
	    (int)s->collective > TR_RECV || (int)s->algorithm < TR_AUTO ||
	    (int)s->algorithm > TR_ONE_SHOT)
		return tr_error_set(error, TR_EINVAL,
		    "op %u: collective %d, dtype %d, reduce op %d, algorithm %d", s->tag,
		    (int)s->collective, (int)s->dtype, (int)s->reduce, (int)s->algorithm);
	if (!codec_known(s->codec))
		return tr_error_set(error, TR_EINVAL, "op %u: codec %d is unknown", s->tag,
		    (int)s->codec);
	if (s->codec != TR_CODEC_NONE && s->dtype != TR_F32 && !reduce_is_wide(s->dtype))
		return tr_error_set(error, TR_EINVAL,
		    "op %u: codec %d of dtype %d; codecs are for f32, f16 and bf16", s->tag,
		    (int)s->codec, (int)s->dtype);
	bool feedback = s->residual || s->residual_next;
	if (feedback &&
	    (s->codec == TR_CODEC_NONE || !s->residual || !s->residual_next ||
	        (s->collective != TR_ALL_REDUCE && s->collective != TR_REDUCE_SCATTER)))
		return tr_error_set(error, TR_EINVAL,
		    "op %u: error feedback is for sums with a codec, and takes both residuals",
		    s->tag);
	return TR_OK;
}

static tr_status op_check_root(const struct group_submit *s, unsigned contributors, unsigned index,
    struct tr_error *error)
{
	bool pair = s->collective == TR_SEND || s->collective == TR_RECV;

	if ((pair || s->collective == TR_BROADCAST) && s->root >= contributors)
		return tr_error_set(error, TR_EINVAL,
		    "op %u: contributor %u of %u is no source and no destination", s->tag, s->root,
		    contributors);
	if (pair && index >= contributors)
		return tr_error_set(error, TR_EINVAL,
		    "op %u: a peer that does not contribute sends and receives nothing", s->tag);
	if (pair && s->root == index)
		return tr_error_set(error, TR_EINVAL, "op %u: from and to contributor %u", s->tag,
		    s->root);
	return TR_OK;
}

tr_status op_check(const struct group_submit *submit, unsigned contributors, unsigned index,
    struct tr_error *error)
{
	tr_status st = op_check_values(submit, error);

	return st == TR_OK ? op_check_root(submit, contributors, index, error) : st;
}

/* ---- memory ---- */

enum op_kind op_kind_of(const struct group_submit *s)
{
	switch (s->collective) {
	case TR_REDUCE_SCATTER:
		return s->count > 0 ? OP_SCATTERED : OP_REDUCED;
	case TR_ALL_GATHER:
		return s->count > 0 ? OP_SOURCED : OP_REDUCED;
	case TR_BROADCAST:
		return OP_SOURCED;
	case TR_SEND:
	case TR_RECV:
		return OP_PAIR;
	default:
		return OP_REDUCED;
	}
}

bool op_names(const struct group_submit *s)
{
	return op_kind_of(s) != OP_REDUCED || s->scope.count > 0;
}

/* Has this member an input apart from the result? */
static bool op_input_apart(const struct op_submit *submit)
{
	const struct group_submit *s = submit->submit;

	if (!s->input || submit->index >= submit->contributors || s->collective == TR_RECV ||
	    s->collective == TR_BARRIER)
		return false;
	return s->collective != TR_BROADCAST || s->root == submit->index;
}

static tr_status op_layouts(struct op *op, const struct op_submit *submit, struct tr_error *error)
{
	const struct group_submit *s = submit->submit;
	size_t first, own;
	uint64_t count = op->signature.count, data = count, input = count;
	bool apart = op_input_apart(submit);
	bool member_of_none = submit->index >= submit->contributors;
	char what[24];

	what[0] = '\0'; /* what lies in a row cannot be wrong */
	if (s->data_block || s->input_block)
		(void)snprintf(what, sizeof(what), "op %u", s->tag);
	tr_block_range(count, submit->contributors, submit->index, &first, &own);
	if (s->collective == TR_REDUCE_SCATTER && (apart || member_of_none)) {
		data = own;
		op->data_first = first;
	}
	if (s->collective == TR_ALL_GATHER && apart) {
		input = own;
		op->input_first = first;
	}
	if (apart && (data != count || input != count) && s->own_elements != own)
		return tr_error_set(error, TR_EINVAL,
		    "op %u: memory for a block of %" PRIu64
		    " elements, contributor %u of %u has %zu",
		    s->tag, s->own_elements, submit->index, submit->contributors, own);
	if (!(op->sends ? s->input : s->data) && data > 0)
		return tr_error_set(error, TR_EINVAL, "op %u: no data", s->tag);
	tr_status st = TR_OK;
	if (!op->sends) {
		op->data = s->data;
		st = strided_init(&op->data_layout, s->data_block, data, op->element_bytes, what,
		    error);
	}
	if (st != TR_OK || !(apart || op->sends))
		return st;
	op->input = s->input;
	return strided_init(&op->input_layout, s->input_block, input, op->element_bytes, what,
	    error);
}

/* ---- segments ---- */

uint32_t op_segment_bytes(uint64_t bytes, uint32_t most, uint32_t segments)
{
	const struct dealing *of = segments == TR_OP_SEGMENTS_HOST ? &on_one_host : &by_size;
	bool sized = segments == 0 || of == &on_one_host;
	uint64_t wanted = bytes / (sized ? of->segments : segments) + OP_SEGMENT_ALIGN - 1;
	uint32_t segment;

	if (sized && wanted > of->middle)
		wanted = bytes / SEGMENTS_LARGE > of->middle ? bytes / SEGMENTS_LARGE : of->middle;
	segment = wanted > most ? most : (uint32_t)wanted;
	if (segment < of->least)
		segment = most < of->least ? most : of->least;
	return segment < OP_SEGMENT_ALIGN ? segment : segment - segment % OP_SEGMENT_ALIGN;
}

static uint32_t op_segment_elements(const struct op *op, const struct op_submit *submit)
{
	uint64_t count = op->signature.count;
	uint32_t most = submit->segment_bytes;
	uint64_t element_bytes = reduce_element_bytes(op->dtype);
	/* Sums under way are f32, and must fit a frame. */
	const uint32_t narrow = (TR_FRAME_DATA_MAX - SEGMENT_HEADER_BYTES) / 2;

	if (reduce_is_wide(op->dtype) && most > narrow)
		most = narrow;
	most = op_segment_bytes(count > UINT64_MAX / 8 ? UINT64_MAX : count * element_bytes, most,
	    op_segments_of(submit->segments, op->codec));
	return most / (uint32_t)element_bytes;
}

static tr_status op_cut(struct op *op, const struct op_submit *submit, struct tr_error *error)
{
	const struct group_submit *s = submit->submit;
	uint64_t count = op->signature.count;
	bool blocks = s->collective == TR_REDUCE_SCATTER || s->collective == TR_ALL_GATHER;
	struct tr_error cause = { .text = "" };
	tr_status st = cut_init(&op->cut, count, op_segment_elements(op, submit),
	    blocks ? submit->contributors : 0, &cause);
	if (st != TR_OK)
		return tr_error_set(error, st, "op %u: %s", op->tag, cause.text);
	op->segments = op->cut.segments;
	for (uint32_t segment = 0; segment < op->segments; segment++)
		op->needed += op_needs(op, segment, submit->index);
	return TR_OK;
}

/* ---- all of it ---- */

static void op_sign(struct op *op, const struct op_submit *submit)
{
	const struct group_submit *s = submit->submit;
	bool barrier = s->collective == TR_BARRIER, receive = s->collective == TR_RECV;
	bool sums = s->collective == TR_ALL_REDUCE || s->collective == TR_REDUCE_SCATTER;
	bool rooted = op->kind == OP_PAIR || s->collective == TR_BROADCAST;

	op->dtype = barrier ? TR_F32 : s->dtype;
	op->reduce = sums ? s->reduce : TR_SUM;
	op->codec = barrier ? TR_CODEC_NONE : s->codec;
	op->element_bytes = reduce_element_bytes(op->dtype);
	op->source = receive || s->collective == TR_BROADCAST ? s->root
	    : s->collective == TR_SEND                        ? submit->index
	                                                      : ROSTER_NONE;
	op->signature = (struct op_signature){ .count = barrier ? 0 : s->count,
		.dtype = (uint8_t)op->dtype,
		.reduce = (uint8_t)op->reduce,
		.codec = (uint8_t)op->codec,
		.collective = (uint8_t)(receive ? TR_SEND : s->collective),
		.root = !rooted ? 0
		    : receive   ? submit->index
		                : s->root,
		.algorithm = (uint8_t)s->algorithm,
		.scope = op->scope.sign };
}

/* Filled segment by segment (op_save_input): to copy GBs at once would hold up the engine for longer than the others wait for a sign of life. */
static tr_status op_save(struct op *op, struct tr_error *error)
{
	size_t bytes = op->signature.count * op->element_bytes;

	if (bytes == 0 || op->input || op->kind != OP_REDUCED)
		return TR_OK;
	op->saved = malloc(bytes);
	return op->saved ? TR_OK
	                 : tr_error_set(error, TR_ENOMEM, "out of memory for op %u", op->tag);
}

tr_status op_create(const struct op_submit *submit, struct buffer_pool *pool, struct op **created,
    struct tr_error *error)
{
	const struct group_submit *s = submit->submit;
	tr_status st = op_check(s, submit->contributors, submit->index, error);

	if (st != TR_OK)
		return st;
	struct op *op = op_take(pool);
	if (!op)
		return tr_error_set(error, TR_ENOMEM, "out of memory for an op");
	*op = (struct op){ .tag = s->tag,
		.roster = submit->roster,
		.scope = *submit->scope,
		.kind = op_kind_of(s),
		.sends = s->collective == TR_SEND,
		.residual = s->residual,
		.residual_next = s->residual_next,
		.beta = s->beta };
	op_sign(op, submit);
	st = op_layouts(op, submit, error);
	if (st == TR_OK)
		st = op_cut(op, submit, error);
	if (st != TR_OK)
		goto destroy;
	op->segment = op->segments == 1 ? &op->only : calloc(op->segments, sizeof(*op->segment));
	if (!op->segment || op_reset(op, pool, true, submit->contributors) != TR_OK) {
		st = tr_error_set(error, TR_ENOMEM, "out of memory for op %u", op->tag);
		goto destroy;
	}
	st = submit->save ? op_save(op, error) : TR_OK;
	if (st != TR_OK)
		goto destroy;
	*created = op;
	return TR_OK;
destroy:
	op_destroy(op, pool);
	return st;
}
