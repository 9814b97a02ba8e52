/* One segment at one node of its route: our input and the children's sums become our sum. Complete, it is sealed straight into
 * the caller's memory, or goes on from a buffer.
 *
 * Without an order, what comes in a buffer or is only lent is added as it comes, while it is hot; what stays where it is
 * (our input, a peer's memory that we map) waits, and is added in one pass when all is there. In order (`deterministic`,
 * one-shot, codecs) sums are taken in ascending id: what comes before its turn is held.
 *
 * Sums of f16 and bf16 under way are kept and sent in f32, and rounded once, where they are sealed.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "collectives/core/bits.h"
#include "collectives/core/member.h"
#include "collectives/kernels/reduce.h"

#define BLOCK_ELEMENTS 1024 /* of f32 on the stack */

struct fold_list {
	struct fold_part parts[TR_GROUP_PEERS_MAX + 1];
	unsigned count;
};

/* ---- arithmetic ---- */

static void fold_mixed_block(const struct op *op, float *sum, const struct fold_list *list,
    size_t first, size_t count)
{
	for (unsigned i = 0; i < list->count; i++) {
		const struct fold_part *part = &list->parts[i];
		const float *wide = (const float *)part->data + first;
		const char *narrow = (const char *)part->data + first * op->element_bytes;
		if (i == 0 && part->wide)
			memcpy(sum, wide, count * sizeof(*sum));
		else if (i == 0)
			reduce_widen(op->dtype, sum, narrow, count);
		else if (part->wide)
			reduce_combine(TR_F32, op->reduce, sum, sum, wide, count);
		else
			reduce_combine_wide(op->dtype, op->reduce, sum, narrow, count);
	}
}

/* f16, bf16. divisor 0: none. */
static void fold_mixed(const struct op *op, void *out, bool out_wide, const struct fold_list *list,
    size_t elements, unsigned divisor)
{
	float sum[BLOCK_ELEMENTS];

	for (size_t first = 0; first < elements; first += BLOCK_ELEMENTS) {
		size_t count = elements - first < BLOCK_ELEMENTS ? elements - first
		                                                 : BLOCK_ELEMENTS;
		fold_mixed_block(op, sum, list, first, count);
		if (divisor > 0)
			reduce_divide(TR_F32, sum, count, divisor);
		if (out_wide)
			memcpy((float *)out + first, sum, count * sizeof(sum[0]));
		else
			reduce_narrow(op->dtype, (char *)out + first * op->element_bytes, sum,
			    count);
	}
}

static void fold_sum(const struct op *op, void *out, bool out_wide, const struct fold_list *list,
    size_t elements, unsigned divisor)
{
	const void *inputs[TR_GROUP_PEERS_MAX + 1];

	if (elements == 0)
		return;
	if (list->count > 1 && reduce_is_wide(op->dtype)) {
		fold_mixed(op, out, out_wide, list, elements, divisor);
		return;
	}
	for (unsigned i = 0; i < list->count; i++)
		inputs[i] = list->parts[i].data;
	if (list->count > 1)
		reduce_combine_many(op->dtype, op->reduce, out, inputs, list->count, elements);
	else if (list->parts[0].wide && !out_wide)
		reduce_narrow(op->dtype, out, inputs[0], elements);
	else if (inputs[0] != out)
		memcpy(out, inputs[0], elements * (out_wide ? sizeof(float) : op->element_bytes));
	if (divisor > 0)
		reduce_divide(op->dtype, out, elements, divisor);
}

/* ---- parts ---- */

static size_t part_bytes(const struct op *op, uint32_t segment, bool wide)
{
	return op_elements(op, segment) * (wide ? sizeof(float) : op->element_bytes);
}

/* May its memory take a sum? */
static bool part_writable(const struct op *op, const struct fold_part *part)
{
	return part->buffer && part->buffer->references == 1 &&
	    (part->wide || !reduce_is_wide(op->dtype));
}

static struct fold_part fold_own(const struct op *op, uint32_t segment)
{
	return (struct fold_part){ .data = op_input(op, segment) };
}

/* One-shot: it is ours to give once it was sent, since the result takes its place. */
static bool fold_own_ready(const struct group_core *core, const struct op *op, uint32_t segment)
{
	return core->roster.live[core->roster.me] &&
	    (op->algorithm != TR_ONE_SHOT || op->segment[segment].begun);
}

/* The sum of the list in a buffer; the buffers of the list are given back, or one of them taken. */
static tr_status fold_into_buffer(struct group_core *core, const struct op *op, uint32_t segment,
    struct fold_list *list, struct fold_part *sum)
{
	bool wide = reduce_is_wide(op->dtype) && (list->count > 1 || list->parts[0].wide);
	struct group_buffer *out = NULL;

	for (unsigned i = 0; i < list->count && !out; i++)
		if (part_writable(op, &list->parts[i]) ||
		    (list->count == 1 && list->parts[0].buffer)) {
			out = list->parts[i].buffer;
			sum->data = list->parts[i].data;
			list->parts[i].buffer = NULL;
		}
	if (!out) {
		out = buffer_get(&core->pool, part_bytes(op, segment, wide));
		sum->data = out ? out->data : NULL;
	}
	if (out && !(list->count == 1 && list->parts[0].data == sum->data))
		fold_sum(op, (void *)sum->data, wide, list, op_elements(op, segment), 0);
	for (unsigned i = 0; i < list->count; i++)
		buffer_put(&core->pool, list->parts[i].buffer);
	sum->buffer = out;
	sum->wide = wide;
	return out ? TR_OK : TR_ENOMEM;
}

/* ---- a fold that is not complete ---- */

static struct op_fold *fold_get(struct group_core *core, struct op *op, uint32_t segment)
{
	if (op->segment[segment].fold)
		return op->segment[segment].fold;
	unsigned n = core->roster.n;
	struct op_fold *fold = calloc(1, sizeof(*fold) + n * sizeof(fold->part[0]));
	if (!fold)
		return NULL;
	fold->part_count = n;
	op->segment[segment].fold = fold;
	return fold;
}

static tr_status fold_absorb(struct group_core *core, struct op *op, uint32_t segment,
    struct fold_part part)
{
	struct op_fold *fold = op->segment[segment].fold;
	struct fold_list list = { .count = 0 };

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
	if (!fold->left.data && !part.buffer && fold_own_ready(core, op, segment)) {
		/* It must be copied anyway. */
		fold->left = fold_own(op, segment);
		fold->own_in = true;
	}
	return fold_absorb(core, op, segment, part);
}

/* In order: adds whatever is there and has its turn now, unless all of it can wait where it is. */
static tr_status fold_catch_up(struct group_core *core, struct op *op, uint32_t segment,
    const struct route *route)
{
	struct op_fold *fold = op->segment[segment].fold;
	tr_status st = TR_OK;

	while (st == TR_OK && fold->next < core->roster.n) {
		unsigned turn = fold->next;
		bool own = turn == core->roster.me && core->roster.live[turn];
		if (!own && !bits_get(route->children, turn)) {
			fold->next++;
			continue;
		}
		struct fold_part part = own ? fold_own(op, segment) : fold->part[turn];
		if (!part.data || (own && !fold_own_ready(core, op, segment)) ||
		    (fold->left.data && !fold->left.buffer && !part.buffer))
			break;
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
		part.buffer = buffer_get(&core->pool, part_bytes(op, segment, part.wide));
		if (!part.buffer)
			return TR_ENOMEM;
		if (part_bytes(op, segment, part.wide) > 0)
			memcpy(part.buffer->data, part.data, part_bytes(op, segment, part.wide));
		part.data = part.buffer->data;
	}
	fold->part[from] = part;
	return fold_catch_up(core, op, segment, route);
}

/* ---- complete ---- */

static void fold_collect(struct group_core *core, struct op *op, uint32_t segment, unsigned from,
    struct fold_part last, struct fold_list *list)
{
	struct op_fold *fold = op->segment[segment].fold;
	unsigned me = core->roster.me, next = fold ? fold->next : 0;
	bool own = core->roster.live[me] && !(fold && fold->own_in);

	list->count = 0;
	if (fold && fold->left.data)
		list->parts[list->count++] = fold->left;
	for (unsigned i = next; i < core->roster.n; i++) {
		if (i == from && last.data)
			list->parts[list->count++] = last;
		else if (i == me && own && op->ordered)
			list->parts[list->count++] = fold_own(op, segment);
		else if (fold && fold->part[i].data)
			list->parts[list->count++] = fold->part[i];
	}
	if (own && !op->ordered)
		list->parts[list->count++] = fold_own(op, segment);
	/* The list has the references now. */
	if (fold)
		free(fold);
	op->segment[segment].fold = NULL;
}

static tr_status fold_complete(struct group_core *core, struct op *op, uint32_t segment,
    const struct route *route, unsigned from, struct fold_part last)
{
	uint8_t set[ROUTE_SET_BYTES];
	struct fold_list list;
	struct fold_part sum = { 0 };

	fold_collect(core, op, segment, from, last, &list);
	if (route->seals) {
		fold_sum(op, op->data + op_offset(op, segment), false, &list,
		    op_elements(op, segment), op->reduce == TR_AVG ? core->roster.live_count : 0);
		for (unsigned i = 0; i < list.count; i++)
			buffer_put(&core->pool, list.parts[i].buffer);
		path_live_set(core, set);
		path_sealed_here(core, op, segment, route, set);
		return TR_OK;
	}
	if (fold_into_buffer(core, op, segment, &list, &sum) != TR_OK)
		return TR_ENOMEM;
	route_set(&(struct route_of){ &core->roster, op->algorithm, op->tag, segment },
	    core->roster.me, set);
	op->segment[segment].passed = true;
	path_send(core, op, segment, route->up,
	    &(struct path_frame){ .kind = SEGMENT_PARTIAL,
	        .encoding = sum.wide ? SEGMENT_WIDE : SEGMENT_PLAIN,
	        .set = set,
	        .payload = sum.data,
	        .bytes = part_bytes(op, segment, sum.wide),
	        .buffer = sum.buffer });
	buffer_put(&core->pool, sum.buffer);
	return TR_OK;
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
	struct fold_part part = { payload->data, core->incoming, payload->wide };
	bool own = core->roster.live[core->roster.me];

	if (fold && bits_get(fold->got, from))
		return tr_error_set(error, TR_EPROTO, "peer %" PRIu64 " sent its data twice",
		    core->roster.peers[from]);
	if ((fold ? fold->arrived : 0) + 1 == route->child_count &&
	    (!own || fold_own_ready(core, op, segment))) {
		core->incoming = NULL;
		return fold_complete(core, op, segment, route, from, part);
	}
	fold = fold_get(core, op, segment);
	if (!fold)
		return TR_ENOMEM;
	bits_set(fold->got, from);
	fold->arrived++;
	core->incoming = NULL;
	if (op->ordered)
		return fold_hold_in_order(core, op, segment, route, from, part, payload->stable);
	return fold_hold(core, op, segment, from, part, payload->stable);
}
