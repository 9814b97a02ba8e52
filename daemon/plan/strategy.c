#include "daemon/plan/strategy.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "common/limits.h"

#define WHOLE (-1)

/* Over tp: the dimension that is split. */
static const int8_t megatron[MODEL_PARAMETERS] = {
	[PARAMETER_TABLE] = 0,
	[PARAMETER_POSITIONS] = WHOLE,
	[PARAMETER_NORM1_W] = WHOLE,
	[PARAMETER_NORM1_B] = WHOLE,
	[PARAMETER_Q_W] = 1,
	[PARAMETER_Q_B] = 0,
	[PARAMETER_K_W] = 1,
	[PARAMETER_K_B] = 0,
	[PARAMETER_V_W] = 1,
	[PARAMETER_V_B] = 0,
	[PARAMETER_O_W] = 0,
	[PARAMETER_O_B] = WHOLE,
	[PARAMETER_NORM2_W] = WHOLE,
	[PARAMETER_NORM2_B] = WHOLE,
	[PARAMETER_GATE_W] = 1,
	[PARAMETER_UP_W] = 1,
	[PARAMETER_UP_B] = 0,
	[PARAMETER_DOWN_W] = 0,
	[PARAMETER_DOWN_B] = WHOLE,
	[PARAMETER_LAST_NORM_W] = WHOLE,
	[PARAMETER_LAST_NORM_B] = WHOLE,
	[PARAMETER_HEAD] = 0,
};

void strategy_megatron(const struct model_config *shape, const struct mesh *mesh,
    struct strategy *strategy)
{
	*strategy = (struct strategy){ .mesh = *mesh,
		.sequences = mesh->size[MESH_DP],
		.sequence_length = shape->context,
		.value_bytes = 4,
		.gradient_bytes = 4 };
	for (int i = 0; i < MODEL_PARAMETERS; i++)
		strategy->over_tp[i] = megatron[i] == WHOLE
		    ? tensor_placement_broadcast()
		    : tensor_placement_split((unsigned)megatron[i]);
}

static unsigned dim_count(const enum model_dim *dims)
{
	unsigned count = 0;

	while (count < TENSOR_DIMS_MAX && dims[count] != DIM_NONE)
		count++;
	return count;
}

tr_status strategy_place(const struct model_config *shape, struct strategy *strategy,
    const char *parameter, struct tensor_placement placement, struct tr_error *error)
{
	char text[TENSOR_PLACEMENT_TEXT_MAX];

	for (int i = 0; i < MODEL_PARAMETERS; i++) {
		enum model_parameter which = (enum model_parameter)i;
		unsigned dims = dim_count(layer_graph_parameter_dims(which));
		if (strcmp(parameter, layer_graph_parameter_name(which)) != 0 ||
		    !layer_graph_has(shape, which))
			continue;
		if (placement.kind == PLACEMENT_PARTIAL ||
		    (placement.kind == PLACEMENT_SPLIT && placement.dim >= dims))
			return tr_error_set(error, TR_EINVAL,
			    "%s: cannot be placed as %s over tp; B%s is allowed", parameter,
			    tensor_placement_text(placement, text),
			    dims > 1 ? ", S(0) or S(1)" : " or S(0)");
		strategy->over_tp[which] = placement;
		return TR_OK;
	}
	return tr_error_set(error, TR_EINVAL, "%s: this model has no such parameter", parameter);
}

uint32_t strategy_padded_vocab(uint32_t vocab, uint32_t tp)
{
	return (vocab + tp - 1) / tp * tp;
}

/* "1, 2, 3 or 6": what divides `units`, from 1 up to `most`. */
static void divisors(uint64_t units, uint64_t most, char *text, size_t bytes)
{
	uint64_t last = 1;
	size_t used = 0;

	for (uint64_t d = 1; d <= units && d <= most; d++)
		if (units % d == 0)
			last = d;
	text[0] = '\0';
	for (uint64_t d = 1; d <= last && used + 24 < bytes; d++)
		if (units % d == 0)
			used += (size_t)snprintf(text + used, bytes - used, "%s%llu",
			    d == 1 ? "" : (d == last ? " or " : ", "), (unsigned long long)d);
}

static tr_status check_split(const char *tensor, enum model_dim dim, uint64_t units,
    enum mesh_axis axis, uint32_t n, struct tr_error *error)
{
	char allowed[200];
	const char *name = mesh_axis_name(axis);

	if (units % n == 0)
		return TR_OK;
	divisors(units, TR_GROUP_PEERS_MAX, allowed, sizeof(allowed));
	return tr_error_set(error, TR_EINVAL,
	    "%s: %llu %s cannot be split over %s %u; %s may be %s%s", tensor,
	    (unsigned long long)units, layer_graph_unit_name(dim), name, n, name, allowed,
	    dim == DIM_VOCAB ? ", or the vocabulary may be padded" : "");
}

static tr_status check_parameters(const struct model_config *shape, const struct strategy *strategy,
    struct tr_error *error)
{
	for (int i = 0; i < MODEL_PARAMETERS; i++) {
		enum model_parameter which = (enum model_parameter)i;
		struct tensor_placement placement = strategy->over_tp[which];
		if (placement.kind != PLACEMENT_SPLIT || !layer_graph_has(shape, which))
			continue;
		enum model_dim dim = layer_graph_parameter_dims(which)[placement.dim];
		tr_status st = check_split(layer_graph_parameter_name(which), dim,
		    layer_graph_units(shape, dim), MESH_TP, strategy->mesh.size[MESH_TP], error);
		if (st != TR_OK)
			return st;
	}
	return TR_OK;
}

tr_status strategy_check(const struct model_config *shape, const struct strategy *strategy,
    struct tr_error *error)
{
	uint32_t pp = strategy->mesh.size[MESH_PP];
	tr_status st = model_config_check(shape, error);

	if (st == TR_OK)
		st = mesh_check(&strategy->mesh, error);
	if (st != TR_OK)
		return st;
	assert(shape->head_width > 0 && shape->kv_heads > 0 && shape->hidden > 0); /* filled */
	if (strategy->sequences == 0 || strategy->sequence_length == 0 ||
	    strategy->sequence_length > shape->context)
		return tr_error_set(error, TR_EINVAL,
		    "a microbatch of %u sequences of %u positions; at least 1, of 1 to %u",
		    strategy->sequences, strategy->sequence_length, shape->context);
	if ((strategy->value_bytes != 2 && strategy->value_bytes != 4) ||
	    (strategy->gradient_bytes != 2 && strategy->gradient_bytes != 4))
		return tr_error_set(error, TR_EINVAL,
		    "numbers of %u bytes and gradients of %u; each 2 or 4", strategy->value_bytes,
		    strategy->gradient_bytes);
	if (strategy->zero_owners > strategy->mesh.size[MESH_DP])
		return tr_error_set(error, TR_EINVAL,
		    "%u owners of each piece of the moments; at most dp, %u", strategy->zero_owners,
		    strategy->mesh.size[MESH_DP]);
	if (pp > shape->layers)
		return tr_error_set(error, TR_EINVAL,
		    "%u layers cannot be split over pp %u; pp may be at most %u", shape->layers, pp,
		    shape->layers);
	st = check_split("a microbatch", DIM_BATCH, strategy->sequences, MESH_DP,
	    strategy->mesh.size[MESH_DP], error);
	if (st == TR_OK && strategy->sequence_parallel)
		st = check_split("the residual stream", DIM_SEQUENCE, strategy->sequence_length,
		    MESH_TP, strategy->mesh.size[MESH_TP], error);
	return st == TR_OK ? check_parameters(shape, strategy, error) : st;
}

bool strategy_pinned(const struct strategy *strategy, enum tensor_pin pin, enum mesh_axis axis,
    struct tensor_placement *placement)
{
	if (pin == PIN_NONE)
		return false;
	*placement = tensor_placement_broadcast();
	if (axis == MESH_DP && pin != PIN_TOTAL)
		*placement = tensor_placement_split(0);
	if (axis == MESH_TP && pin == PIN_STREAM && strategy->sequence_parallel)
		*placement = tensor_placement_split(1);
	return true;
}

uint64_t strategy_dim(const struct model_config *shape, const struct strategy *strategy,
    enum model_dim dim)
{
	if (dim == DIM_BATCH)
		return strategy->sequences;
	return dim == DIM_SEQUENCE ? strategy->sequence_length : layer_graph_dim(shape, dim);
}

uint64_t strategy_boundary_bytes(const struct model_config *shape, const struct strategy *strategy)
{
	uint64_t bytes = (uint64_t)strategy->sequences / strategy->mesh.size[MESH_DP] *
	    strategy->sequence_length * shape->width * strategy->value_bytes;

	return strategy->sequence_parallel ? bytes / strategy->mesh.size[MESH_TP] : bytes;
}
