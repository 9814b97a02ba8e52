/* One segment at one node of its route: our input and the children's sums become our sum. Complete, it is sealed straight into
 * the caller's memory, or goes on from a buffer.
 *
 * Without an order, what comes in a buffer or is only lent is added as it comes, while it is hot; what stays where it is
 * (our input, a peer's memory that we map) waits, and is added in one pass when all is there. In order (`deterministic`,
 * one-shot, codecs) sums are taken in ascending id: what comes before its turn is held.
 *
 * Sums of f16 and bf16 under way are kept and sent in f32, and rounded once, where they are sealed.
 */
#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "collectives/core/bits.h"
#include "collectives/core/coded.h"
#include "collectives/core/member.h"
#include "collectives/kernels/reduce.h"

struct fold_list {
	struct fold_part parts[TR_GROUP_PEERS_MAX + 1];
	unsigned count;
};

/* ---- arithmetic ---- */

/* One pass in f32: parts of f16 or bf16, or encoded ones. divisor 0: none. `form` encoded: `decoded`, which may be NULL, gets what the
 * encoded bytes say. */
static void fold_in_f32(const struct op *op, void *out, enum segment_encoding form, void *decoded,
    const struct fold_list *list, size_t elements, unsigned divisor)
{
	float sum[CODED_BLOCK];

	for (size_t first = 0; first < elements; first += CODED_BLOCK) {
		size_t count = elements - first < CODED_BLOCK ? elements - first : CODED_BLOCK;
		coded_load(op, sum, &list->parts[0], first, count);
		for (unsigned i = 1; i < list->count; i++)
			coded_combine(op, sum, &list->parts[i], first, count);
		if (divisor > 0)
			reduce_divide(TR_F32, sum, count, divisor);
		if (op->roster->deterministic)
			reduce_settle_nans(TR_F32, sum, count);
		coded_store(op, out, form, sum, first, count);
		if (!decoded)
			continue;
		coded_decode(op, (uint8_t *)decoded + first * op->element_bytes,
		    (const uint8_t *)out + coded_bytes(op, SEGMENT_ENCODED, first), count);
	}
}

static void fold_sum(const struct op *op, void *out, enum segment_encoding form,
    const struct fold_list *list, size_t elements, unsigned divisor)
{
	const void *inputs[TR_GROUP_PEERS_MAX + 1];
	const struct fold_part *first = &list->parts[0];

	assert(list->count > 0);
	if (elements == 0)
		return;
	if (list->count == 1 && first->form == form && divisor < 2) {
		if (first->data != out)
			memcpy(out, first->data, coded_bytes(op, form, elements));
		return;
	}
	if (reduce_is_wide(op->dtype) || op->codec != TR_CODEC_NONE) {
		fold_in_f32(op, out, form, NULL, list, elements, divisor);
		return;
	}
	for (unsigned i = 0; i < list->count; i++)
		inputs[i] = list->parts[i].data;
	if (list->count > 1)
		reduce_combine_many(op->dtype, op->reduce, out, inputs, list->count, elements);
	else if (inputs[0] != out)
		memcpy(out, inputs[0], elements * op->element_bytes);
	if (divisor > 0)
		reduce_divide(op->dtype, out, elements, divisor);
}

/* One-shot: each member makes the result by itself. Deterministic: which of several NaNs a sum keeps follows from who takes it, and how; with a codec
 * all decode the same bytes, so there it is done before they are made. */
static void fold_settle(const struct op *op, void *result, size_t elements)
{
	bool one_shot = op->algorithm == TR_ONE_SHOT && op->kind == OP_REDUCED;
	bool sum = op->kind == OP_REDUCED || op->kind == OP_SCATTERED;

	if (op->roster->deterministic ? sum && op->codec == TR_CODEC_NONE : one_shot)
		reduce_settle_nans(op->dtype, result, elements);
}

/* A block of the result is hashed while it is in the first cache. (The simulator's segments are shorter: tests/sim/fold.c.) */
#ifndef HASHED_BYTES
#define HASHED_BYTES (32u << 10)
#endif

/* As fold_sum of a result in the op's own type. */
static void fold_sum_hashed(const struct op *op, uint8_t *out, const struct fold_list *list,
    size_t elements, unsigned divisor, struct tr_digest_stream *hash)
{
	size_t block = HASHED_BYTES / op->element_bytes;
	struct fold_list at; /* large: only what is used of it is written */

	at.count = list->count;
	tr_digest_begin(hash);
	for (size_t first = 0; first < elements; first += block) {
		size_t count = elements - first < block ? elements - first : block;
		for (unsigned i = 0; i < list->count; i++) {
			at.parts[i] = list->parts[i];
			at.parts[i].data = (const uint8_t *)list->parts[i].data +
			    coded_bytes(op, list->parts[i].form, first);
		}
		fold_sum(op, out + first * op->element_bytes, SEGMENT_PLAIN, &at, count, divisor);
		fold_settle(op, out + first * op->element_bytes, count);
		tr_digest_add(hash, out + first * op->element_bytes, count * op->element_bytes);
	}
}

/* ---- parts ---- */

/* May its memory take a sum? */
static bool part_writable(const struct op *op, const struct fold_part *part)
{
	bool sum = op->codec != TR_CODEC_NONE || reduce_is_wide(op->dtype)
	    ? part->form == SEGMENT_WIDE
	    : part->form == SEGMENT_PLAIN;

	return part->buffer && part->buffer->references == 1 && sum;
}

/* One-shot: it is ours to give once it was sent, since the result takes its place. */
static bool fold_own_ready(const struct op *op, uint32_t segment)
{
	return op->roster->live[op->roster->me] &&
	    (op->algorithm != TR_ONE_SHOT || op->segment[segment].begun);
}

/* In what form is the sum of the list kept? */
static enum segment_encoding fold_form(const struct op *op, const struct fold_list *list)
{
	if (list->count == 1)
		return list->parts[0].form;
	return reduce_is_wide(op->dtype) || op->codec != TR_CODEC_NONE ? SEGMENT_WIDE
	                                                               : SEGMENT_PLAIN;
}

/* The sum of the list in a buffer; the buffers of the list are given back, or one of them taken. */
static tr_status fold_into_buffer(struct group_core *core, const struct op *op, uint32_t segment,
    struct fold_list *list, struct fold_part *sum)
{
	assert(list->count > 0);
	enum segment_encoding form = fold_form(op, list);
	struct group_buffer *out = NULL;

	for (unsigned i = 0; i < list->count && !out; i++)
		if (part_writable(op, &list->parts[i]) ||
		    (list->count == 1 && list->parts[0].buffer)) {
			out = list->parts[i].buffer;
			sum->data = list->parts[i].data;
			list->parts[i].buffer = NULL;
		}
	if (!out) {
		out = buffer_get(&core->pool, op_form_bytes(op, segment, form));
		sum->data = out ? out->data : NULL;
	}
	if (out && !(list->count == 1 && list->parts[0].data == sum->data))
		fold_sum(op, (void *)sum->data, form, list, op_elements(op, segment), 0);
	for (unsigned i = 0; i < list->count; i++)
		buffer_put(&core->pool, list->parts[i].buffer);
	sum->buffer = out;
	sum->form = form;
	return out ? TR_OK : TR_ENOMEM;
}

/* ---- a fold that is not complete ---- */

static struct op_fold *fold_get(struct op *op, uint32_t segment)
{
	if (op->segment[segment].fold)
		return op->segment[segment].fold;
	unsigned n = op->roster->n;
	size_t bytes = sizeof(struct op_fold) + n * sizeof(struct fold_part);
	struct op_fold *fold = malloc(bytes);
	if (!fold)
		return NULL;
	memset(fold, 0, bytes);
	fold->part_count = n;
	op->segment[segment].fold = fold;
	return fold;
}

static tr_status fold_absorb(struct group_core *core, struct op *op, uint32_t segment,
    struct fold_part part)
{
	struct op_fold *fold = op->segment[segment].fold;
	struct fold_list list; /* large: only what is used of it is written */

	list.count = 0;
	if (fold->left.data)
		list.parts[list.count++] = fold->left;
	list.parts[list.count++] = part;
	fold->left = (struct fold_part){ 0 };
	return fold_into_buffer(core, op, segment, &list, &fold->left);
}

/* Without an order. */
static tr_status fold_hold(struct group_core *core, struct op *op, uint32_t segment, unsigned from,
    struct fold_part part, bool stable)
{
	struct op_fold *fold = op->segment[segment].fold;

	if (stable) {
		fold->part[from] = part;
		return TR_OK;
	}
	if (!fold->left.data && !part.buffer && fold_own_ready(op, segment)) {
		/* It must be copied anyway. If it was gathered, the sum takes its place. */
		if (op_own(op, &core->pool, segment, &fold->left) != TR_OK)
			return TR_ENOMEM;
		op_own_drop(op, &core->pool, segment);
		fold->own_in = true;
	}
	return fold_absorb(core, op, segment, part);
}

/* Encoded, parts wait as they came while all of them are smaller than their sum would be: that is f32. The usual few are thus
 * decoded and added in one pass, a block at a time, and no sum is written to be read again. */
static bool fold_waits(const struct op *op, uint32_t segment, const struct op_fold *fold)
{
	return op->codec != TR_CODEC_NONE &&
	    fold->arrived * op_form_bytes(op, segment, SEGMENT_ENCODED) <
	    op_form_bytes(op, segment, SEGMENT_WIDE);
}

/* In order: adds whatever is there and has its turn now, unless all of it can wait where it is. */
static tr_status fold_catch_up(struct group_core *core, struct op *op, uint32_t segment,
    const struct route *route)
{
	struct op_fold *fold = op->segment[segment].fold;
	tr_status st = TR_OK;

	if (fold_waits(op, segment, fold))
		return TR_OK;
	while (st == TR_OK && fold->next < op->roster->n) {
		unsigned turn = fold->next;
		bool own = turn == op->roster->me && op->roster->live[turn];
		if (!own && !bits_get(route->children, turn)) {
			fold->next++;
			continue;
		}
		if (own && !fold_own_ready(op, segment))
			break;
		struct fold_part part = fold->part[turn];
		if (own && op_own(op, &core->pool, segment, &part) != TR_OK)
			return TR_ENOMEM;
		if (!part.data || (fold->left.data && !fold->left.buffer && !part.buffer))
			break;
		if (own)
			op_own_drop(op, &core->pool, segment);
		fold->part[turn] = (struct fold_part){ 0 };
		fold->next++;
		if (fold->left.data)
			st = fold_absorb(core, op, segment, part);
		else
			fold->left = part;
	}
	return st;
}

static tr_status fold_hold_in_order(struct group_core *core, struct op *op, uint32_t segment,
    const struct route *route, unsigned from, struct fold_part part, bool stable)
{
	struct op_fold *fold = op->segment[segment].fold;

	if (!part.buffer && !stable) {
		size_t bytes = op_form_bytes(op, segment, part.form);
		part.buffer = buffer_get(&core->pool, bytes);
		if (!part.buffer)
			return TR_ENOMEM;
		if (bytes > 0)
			memcpy(part.buffer->data, part.data, bytes);
		part.data = part.buffer->data;
	}
	fold->part[from] = part;
	return fold_catch_up(core, op, segment, route);
}

/* ---- complete ---- */

static tr_status fold_collect_own(struct group_core *core, struct op *op, uint32_t segment,
    struct fold_list *list)
{
	tr_status st = op_own(op, &core->pool, segment, &list->parts[list->count]);

	list->count += st == TR_OK;
	return st;
}

static tr_status fold_collect(struct group_core *core, struct op *op, uint32_t segment,
    unsigned from, struct fold_part last, struct fold_list *list)
{
	struct op_fold *fold = op->segment[segment].fold;
	unsigned me = op->roster->me, next = fold ? fold->next : 0;
	bool own = op->roster->live[me] && !(fold && fold->own_in);
	tr_status st = TR_OK;

	list->count = 0;
	if (fold && fold->left.data)
		list->parts[list->count++] = fold->left;
	for (unsigned i = next; i < op->roster->n; i++) {
		if (i == from && last.data)
			list->parts[list->count++] = last;
		else if (i == me && own && op->ordered)
			st = st == TR_OK ? fold_collect_own(core, op, segment, list) : st;
		else if (fold && fold->part[i].data)
			list->parts[list->count++] = fold->part[i];
	}
	if (own && !op->ordered)
		st = fold_collect_own(core, op, segment, list);
	/* The list has the references now. */
	if (fold)
		free(fold);
	op->segment[segment].fold = NULL;
	return st;
}

static void fold_list_drop(struct group_core *core, struct fold_list *list)
{
	for (unsigned i = 0; i < list->count; i++)
		buffer_put(&core->pool, list->parts[i].buffer);
	list->count = 0;
}

/* The encoded result, which everybody, we too, decodes: what came is passed on as it is if there was nothing to add. */
static tr_status fold_encode(struct group_core *core, struct op *op, uint32_t segment,
    struct fold_list *list, unsigned divisor, void *decoded, struct group_buffer **encoded)
{
	struct fold_part *first = &list->parts[0];
	uint32_t elements = op_elements(op, segment);
	bool as_it_is = list->count == 1 && first->form == SEGMENT_ENCODED && divisor < 2;

	if (as_it_is && first->buffer && first->data == first->buffer->data) {
		*encoded = first->buffer;
		first->buffer = NULL;
	} else {
		*encoded = buffer_get(&core->pool, op_form_bytes(op, segment, SEGMENT_ENCODED));
		if (!*encoded)
			return TR_ENOMEM;
		if (as_it_is && elements > 0)
			memcpy((*encoded)->data, first->data,
			    op_form_bytes(op, segment, SEGMENT_ENCODED));
	}
	if (!as_it_is)
		fold_in_f32(op, (*encoded)->data, SEGMENT_ENCODED, decoded, list, elements, divisor);
	else if (decoded)
		coded_decode(op, decoded, (*encoded)->data, elements);
	return TR_OK;
}

static tr_status fold_seal(struct group_core *core, struct op *op, uint32_t segment,
    const struct route *route, struct fold_list *list)
{
	unsigned divisor = op->reduce == TR_AVG ? op->roster->live_count : 0;
	struct group_buffer *encoded = NULL;
	struct tr_digest_stream hash;
	uint8_t set[ROUTE_SET_BYTES];
	struct op_result result;

	tr_status st = op_result_make(op, &core->pool, segment, &result);
	if (st != TR_OK)
		return st;
	if (op->codec != TR_CODEC_NONE) {
		st = fold_encode(core, op, segment, list, divisor, result.data, &encoded);
	} else if (op_bytes(op, segment) > HASHED_BYTES) {
		fold_sum_hashed(op, result.data, list, op_elements(op, segment), divisor, &hash);
		result.hash = &hash;
	} else {
		fold_sum(op, result.data, SEGMENT_PLAIN, list, op_elements(op, segment), divisor);
	}
	if (st == TR_OK) {
		if (!result.hash) /* else before it was hashed */
			fold_settle(op, result.data, op_elements(op, segment));
		path_full_set(op, segment, set);
		op_seal(op, &core->pool, segment, &result, set);
		path_pass_on(core, op, segment, route, &result, encoded);
	}
	buffer_put(&core->pool, encoded);
	buffer_put(&core->pool, result.buffer);
	return st;
}

static tr_status fold_pass_up(struct group_core *core, struct op *op, uint32_t segment,
    const struct route *route, struct fold_list *list)
{
	uint8_t set[ROUTE_SET_BYTES];
	struct fold_part sum = { 0 };
	struct route_of of;
	tr_status st;

	(void)path_route_of(op, segment, &of); /* `route` is it */
	if (op->codec != TR_CODEC_NONE) {
		st = fold_encode(core, op, segment, list, 0, NULL, &sum.buffer);
		sum.data = sum.buffer ? sum.buffer->data : NULL;
		sum.form = SEGMENT_ENCODED;
	} else {
		st = fold_into_buffer(core, op, segment, list, &sum);
		list->count = 0;
	}
	if (st != TR_OK)
		return st;
	route_set(&of, op->roster->me, set);
	op->segment[segment].passed = true;
	path_send(core, op, segment, route->up,
	    &(struct path_frame){ .kind = SEGMENT_PARTIAL,
	        .encoding = sum.form,
	        .set = set,
	        .payload = sum.data,
	        .bytes = op_form_bytes(op, segment, sum.form),
	        .buffer = sum.buffer });
	buffer_put(&core->pool, sum.buffer);
	op_own_drop(op, &core->pool, segment);
	return TR_OK;
}

static tr_status fold_complete(struct group_core *core, struct op *op, uint32_t segment,
    const struct route *route, unsigned from, struct fold_part last)
{
	struct fold_list list;
	tr_status st = fold_collect(core, op, segment, from, last, &list);

	if (st == TR_OK)
		st = route->seals ? fold_seal(core, op, segment, route, &list)
		                  : fold_pass_up(core, op, segment, route, &list);
	fold_list_drop(core, &list);
	return st;
}

tr_status fold_own_given(struct group_core *core, struct op *op, uint32_t segment,
    const struct route *route)
{
	struct op_fold *fold = op->segment[segment].fold;

	if ((fold ? fold->arrived : 0) == route->child_count)
		return fold_complete(core, op, segment, route, ROSTER_NONE, (struct fold_part){ 0 });
	return fold && op->ordered ? fold_catch_up(core, op, segment, route) : TR_OK;
}

tr_status fold_add(struct group_core *core, struct op *op, uint32_t segment,
    const struct route *route, unsigned from, const struct path_payload *payload,
    struct tr_error *error)
{
	struct op_fold *fold = op->segment[segment].fold;
	struct fold_part part = { payload->data, core->incoming, payload->form };
	bool own = op->roster->live[op->roster->me];

	if (fold && bits_get(fold->got, from))
		return tr_error_set(error, TR_EPROTO, "peer %" PRIu64 " sent its data twice",
		    op->roster->peers[from]);
	if ((fold ? fold->arrived : 0) + 1 == route->child_count &&
	    (!own || fold_own_ready(op, segment))) {
		core->incoming = NULL;
		return fold_complete(core, op, segment, route, from, part);
	}
	fold = fold_get(op, segment);
	if (!fold)
		return TR_ENOMEM;
	bits_set(fold->got, from);
	fold->arrived++;
	core->incoming = NULL;
	if (op->ordered)
		return fold_hold_in_order(core, op, segment, route, from, part, payload->stable);
	return fold_hold(core, op, segment, from, part, payload->stable);
}

tr_status fold_all(struct group_core *core, struct op *op, const void *const *payloads)
{
	struct fold_list list; /* large: only what is used of it is written */
	struct route route;
	tr_status st = TR_OK;

	route_none(&route); /* nobody gets the result from us */
	list.count = 0;
	for (unsigned i = 0; i < op->roster->n && st == TR_OK; i++) {
		if (i == op->roster->me)
			st = fold_collect_own(core, op, 0, &list);
		else
			list.parts[list.count++] = (struct fold_part){ .data = *payloads++,
				.form = SEGMENT_PLAIN };
	}
	if (st == TR_OK)
		st = fold_seal(core, op, 0, &route, &list);
	fold_list_drop(core, &list);
	return st;
}
