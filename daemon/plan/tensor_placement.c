#include "daemon/plan/tensor_placement.h"

#include <assert.h>
#include <stdio.h>

struct tensor_placement tensor_placement_broadcast(void)
{
	return (struct tensor_placement){ .kind = PLACEMENT_BROADCAST };
}

struct tensor_placement tensor_placement_split(unsigned dim)
{
	assert(dim < TENSOR_DIMS_MAX);
	return (struct tensor_placement){ .kind = PLACEMENT_SPLIT, .dim = (uint8_t)dim };
}

struct tensor_placement tensor_placement_partial(enum partial_op op)
{
	return (struct tensor_placement){ .kind = PLACEMENT_PARTIAL, .op = (uint8_t)op };
}

bool tensor_placement_equal(struct tensor_placement a, struct tensor_placement b)
{
	return a.kind == b.kind && a.dim == b.dim && a.op == b.op;
}

const char *tensor_placement_text(struct tensor_placement placement,
    char text[TENSOR_PLACEMENT_TEXT_MAX])
{
	if (placement.kind == PLACEMENT_SPLIT)
		(void)snprintf(text, TENSOR_PLACEMENT_TEXT_MAX, "S(%u)", placement.dim % 10u);
	else if (placement.kind == PLACEMENT_PARTIAL)
		(void)snprintf(text, TENSOR_PLACEMENT_TEXT_MAX, "P(%s)",
		    placement.op == PARTIAL_MAX ? "max" : "sum");
	else
		(void)snprintf(text, TENSOR_PLACEMENT_TEXT_MAX, "B");
	return text;
}

tr_status tensor_placement_convert(struct tensor_placement from, struct tensor_placement to,
    enum collective *how, struct tr_error *error)
{
	/* By kind; what stays within a kind is decided below. */
	static const enum collective table[3][3] = {
		[PLACEMENT_BROADCAST] = { [PLACEMENT_SPLIT] = COLLECTIVE_LOCAL_SLICE },
		[PLACEMENT_SPLIT] = { [PLACEMENT_BROADCAST] = COLLECTIVE_ALL_GATHER,
		    [PLACEMENT_SPLIT] = COLLECTIVE_ALL_TO_ALL },
		[PLACEMENT_PARTIAL] = { [PLACEMENT_BROADCAST] = COLLECTIVE_ALL_REDUCE,
		    [PLACEMENT_SPLIT] = COLLECTIVE_REDUCE_SCATTER },
	};
	char a[TENSOR_PLACEMENT_TEXT_MAX], b[TENSOR_PLACEMENT_TEXT_MAX];

	if (tensor_placement_equal(from, to)) {
		*how = COLLECTIVE_NONE;
		return TR_OK;
	}
	if (to.kind == PLACEMENT_PARTIAL)
		return tr_error_set(error, TR_EINVAL,
		    "no conversion from %s to %s: a partial tensor comes from an op only",
		    tensor_placement_text(from, a), tensor_placement_text(to, b));
	*how = table[from.kind][to.kind];
	return TR_OK;
}

struct tensor_placement tensor_placement_of_gradient(struct tensor_placement of)
{
	return of.kind == PLACEMENT_PARTIAL ? tensor_placement_broadcast() : of;
}

const char *collective_name(enum collective collective)
{
	static const char *const names[COLLECTIVES] = { "none", "local slice", "all-gather",
		"all-reduce", "reduce-scatter", "all-to-all", "send and receive" };

	return names[collective];
}

double collective_bytes_sent(enum collective collective, double bytes, uint32_t n)
{
	double others = n > 1 ? (double)(n - 1) / n : 0;

	switch (collective) {
	case COLLECTIVE_ALL_GATHER:
	case COLLECTIVE_REDUCE_SCATTER:
		return others * bytes;
	case COLLECTIVE_ALL_REDUCE:
		return 2 * others * bytes;
	case COLLECTIVE_ALL_TO_ALL:
		return others * bytes / n;
	default:
		return 0;
	}
}
