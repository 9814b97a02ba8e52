#include "daemon/plan/layer_graph.h"

struct parameter_row {
	const char *name;
	enum graph_section_kind section;
	enum model_dim dims[TENSOR_DIMS_MAX];
};

/* Tables are read by their columns. */
/* clang-format off */
static const struct parameter_row parameters[MODEL_PARAMETERS] = {
	[PARAMETER_TABLE] = { "embedding.table", SECTION_EMBEDDING, { DIM_VOCAB, DIM_WIDTH } },
	[PARAMETER_POSITIONS] = { "embedding.positions", SECTION_EMBEDDING,
	    { DIM_CONTEXT, DIM_WIDTH } },
	[PARAMETER_NORM1_W] = { "layer.norm1.weight", SECTION_LAYER, { DIM_WIDTH } },
	[PARAMETER_NORM1_B] = { "layer.norm1.bias", SECTION_LAYER, { DIM_WIDTH } },
	[PARAMETER_Q_W] = { "layer.attention.q.weight", SECTION_LAYER, { DIM_WIDTH, DIM_QUERY } },
	[PARAMETER_Q_B] = { "layer.attention.q.bias", SECTION_LAYER, { DIM_QUERY } },
	[PARAMETER_K_W] = { "layer.attention.k.weight", SECTION_LAYER, { DIM_WIDTH, DIM_KEY } },
	[PARAMETER_K_B] = { "layer.attention.k.bias", SECTION_LAYER, { DIM_KEY } },
	[PARAMETER_V_W] = { "layer.attention.v.weight", SECTION_LAYER, { DIM_WIDTH, DIM_KEY } },
	[PARAMETER_V_B] = { "layer.attention.v.bias", SECTION_LAYER, { DIM_KEY } },
	[PARAMETER_O_W] = { "layer.attention.o.weight", SECTION_LAYER, { DIM_QUERY, DIM_WIDTH } },
	[PARAMETER_O_B] = { "layer.attention.o.bias", SECTION_LAYER, { DIM_WIDTH } },
	[PARAMETER_NORM2_W] = { "layer.norm2.weight", SECTION_LAYER, { DIM_WIDTH } },
	[PARAMETER_NORM2_B] = { "layer.norm2.bias", SECTION_LAYER, { DIM_WIDTH } },
	[PARAMETER_GATE_W] = { "layer.mlp.gate.weight", SECTION_LAYER, { DIM_WIDTH, DIM_HIDDEN } },
	[PARAMETER_UP_W] = { "layer.mlp.up.weight", SECTION_LAYER, { DIM_WIDTH, DIM_HIDDEN } },
	[PARAMETER_UP_B] = { "layer.mlp.up.bias", SECTION_LAYER, { DIM_HIDDEN } },
	[PARAMETER_DOWN_W] = { "layer.mlp.down.weight", SECTION_LAYER, { DIM_HIDDEN, DIM_WIDTH } },
	[PARAMETER_DOWN_B] = { "layer.mlp.down.bias", SECTION_LAYER, { DIM_WIDTH } },
	[PARAMETER_LAST_NORM_W] = { "head.norm.weight", SECTION_HEAD, { DIM_WIDTH } },
	[PARAMETER_LAST_NORM_B] = { "head.norm.bias", SECTION_HEAD, { DIM_WIDTH } },
	[PARAMETER_HEAD] = { "head.table", SECTION_HEAD, { DIM_VOCAB, DIM_WIDTH } },
};

static const char *const unit_names[MODEL_DIMS] = {
	[DIM_NONE] = "",
	[DIM_BATCH] = "sequences",
	[DIM_SEQUENCE] = "positions",
	[DIM_CONTEXT] = "positions",
	[DIM_WIDTH] = "features",
	[DIM_QUERY] = "heads",
	[DIM_KEY] = "kv heads",
	[DIM_HIDDEN] = "hidden features",
	[DIM_VOCAB] = "rows of vocabulary",
	[DIM_PAIR] = "numbers",
	[DIM_ONE] = "numbers",
};
/* clang-format on */

uint32_t layer_graph_dim(const struct model_config *shape, enum model_dim dim)
{
	switch (dim) {
	case DIM_CONTEXT:
		return shape->context;
	case DIM_WIDTH:
		return shape->width;
	case DIM_QUERY:
		return (uint32_t)model_queries(shape);
	case DIM_KEY:
		return (uint32_t)model_keys(shape);
	case DIM_HIDDEN:
		return shape->hidden;
	case DIM_VOCAB:
		return shape->vocab;
	case DIM_PAIR:
		return 2;
	case DIM_ONE:
		return 1;
	default:
		return 0;
	}
}

uint32_t layer_graph_units(const struct model_config *shape, enum model_dim dim)
{
	if (dim == DIM_QUERY)
		return shape->heads;
	return dim == DIM_KEY ? shape->kv_heads : layer_graph_dim(shape, dim);
}

const char *layer_graph_unit_name(enum model_dim dim)
{
	return unit_names[dim];
}

const char *layer_graph_parameter_name(enum model_parameter parameter)
{
	return parameters[parameter].name;
}

const enum model_dim *layer_graph_parameter_dims(enum model_parameter parameter)
{
	return parameters[parameter].dims;
}

enum graph_section_kind layer_graph_parameter_section(enum model_parameter parameter)
{
	return parameters[parameter].section;
}

bool layer_graph_has(const struct model_config *shape, enum model_parameter parameter)
{
	const struct graph_section *section = layer_graph_section(shape,
	    layer_graph_parameter_section(parameter));

	for (uint8_t i = 0; i < section->tensor_count; i++)
		if (section->tensors[i].role == TENSOR_PARAMETER &&
		    section->tensors[i].parameter == parameter)
			return true;
	return false;
}

uint64_t layer_graph_parameter_count(const struct model_config *shape,
    enum model_parameter parameter)
{
	uint64_t count = 1;

	for (unsigned d = 0; d < TENSOR_DIMS_MAX && parameters[parameter].dims[d] != DIM_NONE; d++)
		count *= layer_graph_dim(shape, parameters[parameter].dims[d]);
	return count;
}
