#include "collectives/core/op.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "collectives/core/bits.h"
#include "collectives/core/coded.h"
#include "collectives/core/landing.h"

/* ---- life ---- */

struct op *op_take(struct buffer_pool *pool)
{
	struct op *op = pool->ops;

	if (!op)
		return malloc(sizeof(*op));
	pool->ops = op->next_free;
	pool->op_count--;
	return op;
}

static void op_give_back(struct op *op, struct buffer_pool *pool)
{
	if (pool->op_count >= OP_SPARE_MAX) {
		free(op);
		return;
	}
	op->next_free = pool->ops;
	pool->ops = op;
	pool->op_count++;
}

void op_finish_spare(struct buffer_pool *pool)
{
	while (pool->ops) {
		struct op *next = pool->ops->next_free;
		free(pool->ops);
		pool->ops = next;
	}
	pool->op_count = 0;
}

static void op_ahead_drop(struct op *op)
{
	if (op->ahead != op->ahead_few)
		free(op->ahead);
	op->ahead = NULL;
	memset(op->submitted, 0, sizeof(op->submitted));
}

void op_destroy(struct op *op, struct buffer_pool *pool)
{
	if (!op)
		return;
	op_ahead_drop(op);
	for (uint32_t s = 0; op->segment && s < op->segments; s++)
		op_fold_drop(op, pool, s);
	if (op->segment != &op->only)
		free(op->segment);
	if (op->sets != op->only_set)
		free(op->sets);
	free(op->saved);
	if (op->outlet)
		buffer_outlet_starve(op->outlet, false);
	buffer_outlet_put(op->outlet);
	op_give_back(op, pool);
}

void op_own_drop(struct op *op, struct buffer_pool *pool, uint32_t segment)
{
	buffer_put(pool, op->segment[segment].own);
	op->segment[segment].own = NULL;
}

void op_fold_drop(struct op *op, struct buffer_pool *pool, uint32_t segment)
{
	struct op_fold *fold = op->segment[segment].fold;

	op_own_drop(op, pool, segment);
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
	op_ahead_drop(op);
	memset(&op->known, 0, sizeof(op->known));
	op->owed = op->owed_at = 0;
	op->holders = NULL;
	if (op->outlet)
		buffer_outlet_starve(op->outlet, false); /* who owes in the next view asks again */
	for (uint32_t s = 0; s < op->segments; s++) {
		struct op_segment *segment = &op->segment[s];
		op_fold_drop(op, pool, s);
		segment->server = ROSTER_NONE;
		segment->passed = segment->begun = segment->owed = false;
		segment->given_before |= segment->given;
		segment->given = 0;
		if (forget)
			segment->sealed = false;
	}
	if (!forget)
		return TR_OK;
	op->sealed = 0;
	op->set_bytes = bits_bytes(contributors);
	if (op->segments == 1) {
		memset(op->only_set, 0, sizeof(op->only_set));
		op->sets = op->only_set;
		return TR_OK;
	}
	uint8_t *sets = calloc(op->segments, op->set_bytes + (op->set_bytes == 0));
	if (!sets)
		return TR_ENOMEM;
	free(op->sets);
	op->sets = sets;
	return TR_OK;
}

/* ---- what it is ---- */

uint32_t op_contributor(const struct op *op, uint32_t segment)
{
	if (op->kind == OP_REDUCED)
		return ROSTER_NONE;
	return op->source != ROSTER_NONE ? op->source : cut_block(&op->cut, segment);
}

bool op_needs(const struct op *op, uint32_t segment, uint32_t index)
{
	switch (op->kind) {
	case OP_SCATTERED:
		return op_contributor(op, segment) == index;
	case OP_PAIR:
		return index == op->source || index == op->signature.root;
	default:
		return true;
	}
}

bool op_done(const struct op *op)
{
	return op->sealed == op->needed;
}

uint32_t op_elements(const struct op *op, uint32_t segment)
{
	return cut_elements(&op->cut, segment);
}

size_t op_bytes(const struct op *op, uint32_t segment)
{
	return op_elements(op, segment) * op->element_bytes;
}

size_t op_form_bytes(const struct op *op, uint32_t segment, enum segment_encoding form)
{
	return coded_bytes(op, form, op_elements(op, segment));
}

/* ---- memory ---- */

static uint8_t nothing[1]; /* where an empty op's data is */

/* `first`: element of the op at which the memory begins. NULL: the segment does not lie in a row. */
static uint8_t *op_row(const struct op *op, const uint8_t *memory, const struct strided *layout,
    uint64_t first, uint32_t segment)
{
	if (!strided_contiguous(layout))
		return NULL;
	if (!memory)
		return nothing;
	return (uint8_t *)(uintptr_t)memory +
	    (cut_first(&op->cut, segment) - first) * op->element_bytes;
}

void *op_result_row(const struct op *op, uint32_t segment)
{
	return op_row(op, op->data, &op->data_layout, op->data_first, segment);
}

static void op_own_gather(const struct op *op, uint32_t segment, uint8_t *out)
{
	uint64_t first = cut_first(&op->cut, segment);

	if (op->input)
		strided_gather(&op->input_layout, op->element_bytes, op->input,
		    first - op->input_first, op_elements(op, segment), out);
	else
		strided_gather(&op->data_layout, op->element_bytes, op->data,
		    first - op->data_first, op_elements(op, segment), out);
}

void op_save_input(struct op *op, uint32_t segment)
{
	if (!op->saved || op->segment[segment].saved)
		return;
	const uint8_t *row = op_result_row(op, segment);
	uint8_t *to = op->saved + cut_first(&op->cut, segment) * op->element_bytes;
	if (row)
		memcpy(to, row, op_bytes(op, segment));
	else
		op_own_gather(op, segment, to);
	op->segment[segment].saved = true;
}

static const uint8_t *op_own_row(struct op *op, uint32_t segment)
{
	op_save_input(op, segment);
	if (op->saved)
		return op->saved + cut_first(&op->cut, segment) * op->element_bytes;
	if (op->input)
		return op_row(op, op->input, &op->input_layout, op->input_first, segment);
	return op_result_row(op, segment);
}

/* What does not lie in a row already is put into one, which `gathered` is then. */
static tr_status op_own_in_row(const struct op *op, struct buffer_pool *pool, uint32_t segment,
    const uint8_t **row, struct group_buffer **gathered)
{
	*gathered = NULL;
	if (*row)
		return TR_OK;
	*gathered = buffer_get(pool, op_bytes(op, segment));
	if (!*gathered)
		return TR_ENOMEM;
	op_own_gather(op, segment, (*gathered)->data);
	*row = (*gathered)->data;
	return TR_OK;
}

static tr_status op_own_make(struct op *op, struct buffer_pool *pool, uint32_t segment,
    const uint8_t *row)
{
	struct group_buffer *gathered, *encoded;
	tr_status st = op_own_in_row(op, pool, segment, &row, &gathered);

	if (st != TR_OK)
		return st;
	if (op->codec == TR_CODEC_NONE) {
		op->segment[segment].own = gathered;
		return TR_OK;
	}
	encoded = buffer_get(pool, op_form_bytes(op, segment, SEGMENT_ENCODED));
	if (encoded) {
		coded_encode_input(op, cut_first(&op->cut, segment), row, op_elements(op, segment),
		    !op->segment[segment].fed, encoded->data);
		op->segment[segment].fed = true;
	}
	buffer_put(pool, gathered);
	op->segment[segment].own = encoded;
	return encoded ? TR_OK : TR_ENOMEM;
}

tr_status op_own(struct op *op, struct buffer_pool *pool, uint32_t segment, struct fold_part *part)
{
	const uint8_t *row = op_own_row(op, segment);

	*part = (struct fold_part){ .form = SEGMENT_PLAIN };
	if (row && op->codec == TR_CODEC_NONE) {
		part->data = row;
		return TR_OK;
	}
	if (!op->segment[segment].own && op_own_make(op, pool, segment, row) != TR_OK)
		return TR_ENOMEM;
	part->buffer = op->segment[segment].own;
	part->buffer->references++;
	part->data = part->buffer->data;
	part->form = op->codec != TR_CODEC_NONE ? SEGMENT_ENCODED : SEGMENT_PLAIN;
	return TR_OK;
}

tr_status op_own_keep(struct op *op, struct buffer_pool *pool, uint32_t segment)
{
	const uint8_t *row = op_own_row(op, segment);
	struct group_buffer *gathered;
	tr_status st = op_own_in_row(op, pool, segment, &row, &gathered);

	if (st != TR_OK)
		return st;
	coded_keep_input(op, cut_first(&op->cut, segment), row, op_elements(op, segment));
	buffer_put(pool, gathered);
	return TR_OK;
}

tr_status op_result_make(struct op *op, struct buffer_pool *pool, uint32_t segment,
    struct op_result *result)
{
	assert(!op->sends);
	op_save_input(op, segment);
	*result = (struct op_result){ .data = op_result_row(op, segment) };
	if (result->data)
		return TR_OK;
	result->buffer = buffer_get(pool, op_bytes(op, segment));
	if (!result->buffer)
		return TR_ENOMEM;
	result->data = result->buffer->data;
	return TR_OK;
}

tr_status op_result_read(struct op *op, struct buffer_pool *pool, uint32_t segment,
    struct op_result *result)
{
	tr_status st = op_result_make(op, pool, segment, result);

	if (st == TR_OK && result->buffer)
		strided_gather(&op->data_layout, op->element_bytes, op->data,
		    cut_first(&op->cut, segment) - op->data_first, op_elements(op, segment),
		    result->data);
	return st;
}

/* ---- sealing ---- */

uint8_t *op_set(const struct op *op, uint32_t segment)
{
	return op->sets + segment * op->set_bytes;
}

static void op_sealed(struct op *op, struct buffer_pool *pool, uint32_t s)
{
	struct op_segment *segment = &op->segment[s];

	assert(!segment->sealed);
	landing_revoke(segment);
	op_fold_drop(op, pool, s);
	segment->sealed = true;
	op->sealed++;
	op->begun -= segment->begun;
	segment->begun = false;
}

void op_seal(struct op *op, struct buffer_pool *pool, uint32_t s, const struct op_result *result,
    const uint8_t *set)
{
	if (result->hash)
		op->segment[s].digest = tr_digest_end(result->hash);
	else if (!op->sends)
		op->segment[s].digest = tr_digest_of(result->hot ? result->hot : result->data,
		    op_bytes(op, s));
	if (!op->sends && result->buffer)
		strided_scatter(&op->data_layout, op->element_bytes, op->data,
		    cut_first(&op->cut, s) - op->data_first, op_elements(op, s), result->data);
	memcpy(op_set(op, s), set, op->set_bytes);
	op_sealed(op, pool, s);
}

void op_seal_void(struct op *op, struct buffer_pool *pool, uint32_t s)
{
	op->segment[s].digest = tr_digest_of("", 0);
	memset(op_set(op, s), 0, op->set_bytes);
	op_sealed(op, pool, s);
}

bool op_is_void(const struct op *op, uint32_t segment)
{
	return op->segment[segment].sealed && bits_count(op_set(op, segment), op->set_bytes) == 0;
}

bool op_whole(const struct op *op, uint32_t segment, unsigned contributors)
{
	bool one = op->kind == OP_SOURCED || op->kind == OP_PAIR;

	return op->segment[segment].sealed &&
	    bits_count(op_set(op, segment), op->set_bytes) == (one ? 1 : contributors);
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
