#include "collectives/engine/channel_op.h"

#include <inttypes.h>
#include <string.h>

#include "collectives/core/bits.h"
#include "collectives/core/strided.h"
#include "collectives/kernels/reduce.h"

static tr_status op_values(const struct channel_submission *s, struct tr_error *error)
{
	if (reduce_element_bytes((enum tr_dtype)s->dtype) == 0 || s->reduce < TR_SUM ||
	    s->reduce > TR_PROD || s->collective > TR_RECV || s->algorithm > TR_ONE_SHOT)
		return tr_error_set(error, TR_EPROTO,
		    "op %u: dtype %u, reduce op %u, collective %u, algorithm %u", s->tag, s->dtype,
		    s->reduce, s->collective, s->algorithm);
	if (s->count > SIZE_MAX / 8)
		return tr_error_set(error, TR_EPROTO, "op %u: %" PRIu64 " elements", s->tag,
		    s->count);
	return TR_OK;
}

/* NULL when it is not there, also with an error. */
static tr_status op_block(const struct channel_block *from, const char *what, struct tr_block *to,
    const struct tr_block **block, struct tr_error *error)
{
	*block = NULL;
	if (from->present == 0)
		return TR_OK;
	if (from->rank > TR_BLOCK_RANK_MAX)
		return tr_error_set(error, TR_EPROTO, "%s: a block of rank %u", what, from->rank);
	to->rank = from->rank;
	for (unsigned i = 0; i < TR_BLOCK_RANK_MAX; i++) {
		to->extents[i] = from->extents[i];
		to->strides[i] = from->strides[i];
	}
	*block = to;
	return TR_OK;
}

/* Where `elements` of it are; their layout's whole span lies in an arena. */
static tr_status op_memory(const struct channel_host *host, const struct channel_place *place,
    const struct tr_block *block, uint64_t elements, size_t element_bytes, const char *what,
    void **memory, struct tr_error *error)
{
	struct strided layout;
	tr_status st = strided_init(&layout, block, elements, element_bytes, what, error);
	if (st != TR_OK)
		return TR_EPROTO;
	*memory = NULL;
	if (layout.span == 0)
		return TR_OK;
	*memory = channel_host_memory(host, place->arena, place->offset,
	    layout.span * element_bytes, element_bytes);
	if (*memory == NULL)
		return tr_error_set(error, TR_EPROTO, "%s: an op outside of its memory", what);
	return TR_OK;
}

static void op_scope(const struct channel_extra *extra, struct channel_op *op)
{
	uint32_t count = 0;
	for (unsigned i = 0; extra->scope_count > 0 && i < TR_GROUP_PEERS_MAX; i++)
		if (bits_get(extra->scope, i))
			op->members[count++] = i;
	op->submit.scope = (struct tr_scope){ op->members, count };
}

static tr_status op_read_extra(const struct channel_host *host, const struct channel_extra *extra,
    struct channel_op *op, struct tr_error *error)
{
	struct group_submit *submit = &op->submit;
	size_t element_bytes = reduce_element_bytes(submit->dtype);
	bool gather = submit->collective == TR_ALL_GATHER;
	void *memory = NULL;
	tr_status st = op_block(&extra->input_block, "input", &op->input_block,
	    &submit->input_block, error);
	if (st != TR_OK)
		return st;
	submit->own_elements = extra->own_elements;
	if (extra->input.present != 0) {
		st = op_memory(host, &extra->input, submit->input_block,
		    gather ? extra->own_elements : submit->count, element_bytes, "input", &memory,
		    error);
		submit->input = memory;
	}
	if (st == TR_OK && extra->residual.present != 0) {
		st = op_memory(host, &extra->residual, NULL, submit->count, sizeof(float),
		    "residual", &memory, error);
		submit->residual = memory;
	}
	if (st == TR_OK && extra->residual_next.present != 0) {
		st = op_memory(host, &extra->residual_next, NULL, submit->count, sizeof(float),
		    "residual_next", &memory, error);
		submit->residual_next = memory;
	}
	submit->beta = extra->beta;
	op_scope(extra, op);
	return st;
}

tr_status channel_op_read(const struct channel_host *host, const struct channel_submission *s,
    struct channel_op *op, struct tr_error *error)
{
	struct group_submit *submit = &op->submit;
	tr_status st = op_values(s, error);
	if (st != TR_OK)
		return st;
	*submit = (struct group_submit){ .tag = s->tag,
		.collective = (enum tr_collective)s->collective,
		.count = s->count,
		.dtype = (enum tr_dtype)s->dtype,
		.reduce = (enum tr_reduce)s->reduce,
		.codec = (enum tr_codec)s->codec,
		.algorithm = (enum tr_algorithm)s->algorithm,
		.root = s->root,
		.contribute = s->contribute != 0 };
	bool scatters = submit->collective == TR_REDUCE_SCATTER;
	/* Who does not contribute has no block of it: the core sees to it that nobody else says so. */
	uint64_t elements = scatters && !submit->contribute ? 0 : s->count;
	if (s->extended != 0) {
		st = op_read_extra(host, &host->extra, op, error);
		if (st == TR_OK)
			st = op_block(&host->extra.output_block, "output", &op->data_block,
			    &submit->data_block, error);
		if (st != TR_OK)
			return st;
		if (scatters && submit->contribute && submit->input != NULL)
			elements = submit->own_elements;
	}
	if (submit->collective == TR_SEND || submit->collective == TR_BARRIER)
		return TR_OK; /* no output */
	return op_memory(host, &(struct channel_place){ s->offset, s->arena, 1 },
	    submit->data_block, elements, reduce_element_bytes(submit->dtype), "output",
	    &submit->data, error);
}
