#include "collectives/core/op.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "collectives/core/bits.h"
#include "collectives/kernels/reduce.h"

#define SEGMENT_LEAST   (16u << 10) /* below, the header and the call cost more than overlap gains */
#define SEGMENTS_WANTED 32u

static uint8_t nothing[1]; /* where an empty op's data is */

static tr_status op_check(const struct op_submit *submit, struct tr_error *error)
{
	if (reduce_element_bytes(submit->dtype) == 0 || submit->reduce < TR_SUM ||
	    submit->reduce > TR_PROD)
		return tr_error_set(error, TR_EINVAL, "op %u: dtype %d, reduce op %d", submit->tag,
		    (int)submit->dtype, (int)submit->reduce);
	if (!submit->data && submit->count > 0)
		return tr_error_set(error, TR_EINVAL, "op %u: no data", submit->tag);
	return TR_OK;
}

static tr_status op_size(struct op *op, const struct op_submit *submit, struct tr_error *error)
{
	op->element_bytes = reduce_element_bytes(submit->dtype);
	uint32_t most = submit->segment_bytes;
	/* Sums under way are f32, and must fit a frame. */
	const uint32_t narrow = (TR_FRAME_DATA_MAX - SEGMENT_HEADER_BYTES) / 2;
	if (reduce_is_wide(submit->dtype) && most > narrow)
		most = narrow;
	most = op_segment_bytes(submit->count > UINT64_MAX / 8 ? UINT64_MAX
	                                                       : submit->count * op->element_bytes,
	    most);
	op->segment_elements = most / (uint32_t)op->element_bytes;
	/* An empty op has one empty segment: its signature is compared like any other's. */
	uint64_t segments = submit->count / op->segment_elements +
	    (submit->count % op->segment_elements != 0 || submit->count == 0);
	if (segments > TR_OP_SEGMENTS_MAX)
		return tr_error_set(error, TR_ELIMIT, "op %u: %lu elements, at most %lu in one op",
		    submit->tag, (unsigned long)submit->count,
		    (unsigned long)TR_OP_SEGMENTS_MAX * op->segment_elements);
	op->segments = (uint32_t)segments;
	return TR_OK;
}

tr_status op_create(const struct op_submit *submit, struct op **created, struct tr_error *error)
{
	tr_status st = op_check(submit, error);
	if (st != TR_OK)
		return st;
	struct op *op = calloc(1, sizeof(*op));
	if (!op)
		return tr_error_set(error, TR_ENOMEM, "out of memory for an op");
	op->tag = submit->tag;
	op->signature = (struct op_signature){ .count = submit->count,
		.dtype = (uint8_t)submit->dtype,
		.reduce = (uint8_t)submit->reduce };
	op->dtype = submit->dtype;
	op->reduce = submit->reduce;
	op->data = submit->data ? submit->data : nothing;
	op->input = submit->input;
	st = op_size(op, submit, error);
	if (st != TR_OK)
		goto destroy;
	op->segment = calloc(op->segments, sizeof(*op->segment));
	size_t bytes = submit->count * op->element_bytes;
	bool save = submit->save && !submit->input && bytes > 0;
	if (save) {
		op->saved = malloc(bytes);
		if (op->saved)
			memcpy(op->saved, op->data, bytes);
	}
	if (!op->segment || (save && !op->saved)) {
		st = tr_error_set(error, TR_ENOMEM, "out of memory for op %u", op->tag);
		goto destroy;
	}
	st = op_reset(op, NULL, true, submit->contributors);
	if (st != TR_OK)
		goto destroy;
	*created = op;
	return TR_OK;
destroy:
	op_destroy(op, NULL);
	return st;
}

void op_destroy(struct op *op, struct buffer_pool *pool)
{
	if (!op)
		return;
	for (uint32_t s = 0; op->segment && s < op->segments; s++)
		op_fold_drop(op, pool, s);
	free(op->segment);
	free(op->sets);
	free(op->saved);
	free(op);
}

void op_fold_drop(struct op *op, struct buffer_pool *pool, uint32_t segment)
{
	struct op_fold *fold = op->segment[segment].fold;
	if (!fold)
		return;
	buffer_put(pool, fold->left.buffer);
	for (unsigned i = 0; i < fold->part_count; i++)
		buffer_put(pool, fold->part[i].buffer);
	free(fold);
	op->segment[segment].fold = NULL;
}

tr_status op_reset(struct op *op, struct buffer_pool *pool, bool forget, unsigned contributors)
{
	for (uint32_t s = 0; s < op->segments; s++) {
		struct op_segment *segment = &op->segment[s];
		op_fold_drop(op, pool, s);
		segment->server = ROSTER_NONE;
		segment->passed = segment->begun = false;
		if (forget)
			segment->sealed = false;
	}
	if (!forget)
		return TR_OK;
	op->sealed = 0;
	op->told = false;
	op->set_bytes = bits_bytes(contributors);
	uint8_t *sets = calloc(op->segments, op->set_bytes + (op->set_bytes == 0));
	if (!sets)
		return TR_ENOMEM;
	free(op->sets);
	op->sets = sets;
	return TR_OK;
}

uint32_t op_segment_bytes(uint64_t bytes, uint32_t most)
{
	uint64_t wanted = bytes / SEGMENTS_WANTED;
	uint32_t segment = wanted > most ? most : (uint32_t)wanted;

	if (segment < SEGMENT_LEAST)
		segment = most < SEGMENT_LEAST ? most : SEGMENT_LEAST;
	return segment < OP_SEGMENT_ALIGN ? segment : segment - segment % OP_SEGMENT_ALIGN;
}

uint32_t op_elements(const struct op *op, uint32_t segment)
{
	if (segment + 1 < op->segments)
		return op->segment_elements;
	return (uint32_t)(op->signature.count - (uint64_t)segment * op->segment_elements);
}

size_t op_offset(const struct op *op, uint32_t segment)
{
	return (size_t)segment * op->segment_elements * op->element_bytes;
}

const uint8_t *op_input(const struct op *op, uint32_t segment)
{
	const uint8_t *from = op->saved ? op->saved : op->input ? op->input : op->data;
	return from ? from + op_offset(op, segment) : NULL;
}

uint8_t *op_set(const struct op *op, uint32_t segment)
{
	return op->sets + segment * op->set_bytes;
}

void op_seal(struct op *op, struct buffer_pool *pool, uint32_t s, const uint8_t *set)
{
	struct op_segment *segment = &op->segment[s];
	size_t bytes = op_elements(op, s) * op->element_bytes;

	assert(!segment->sealed);
	op_fold_drop(op, pool, s);
	segment->digest = tr_digest_of(bytes > 0 ? op->data + op_offset(op, s) : (const void *)"",
	    bytes);
	memcpy(op_set(op, s), set, op->set_bytes);
	segment->sealed = true;
	op->sealed++;
	op->begun -= segment->begun;
	segment->begun = false;
}

bool op_whole(const struct op *op, uint32_t segment, unsigned contributors)
{
	return op->segment[segment].sealed &&
	    bits_count(op_set(op, segment), op->set_bytes) == contributors;
}

struct tr_digest op_digest(const struct op *op)
{
	struct tr_digest digest = tr_digest_of(&op->tag, sizeof(op->tag));

	for (uint32_t s = 0; s < op->segments; s++) {
		digest = tr_digest_fold(digest, op->segment[s].digest);
		digest = tr_digest_fold(digest, tr_digest_of(op_set(op, s), op->set_bytes));
	}
	return digest;
}
