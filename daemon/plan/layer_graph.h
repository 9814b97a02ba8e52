/* What a model is made of: the ops of our two presets with their tensors by name, in three sections (embedding, layer, head), and the
 * sizes of those tensors. Pure data, from which strategy.h places parameters and propagate.h derives collectives.
 *
 *	GPT-2   learned positions, LayerNorm with bias, biases everywhere, GELU, head tied to the table (Radford et al. 2019)
 *	Llama   RMSNorm, RoPE, grouped-query attention, SwiGLU, no biases, head tied or not (Touvron et al., arXiv 2302.13971)
 *
 * q, k and v are tensors of their own here. A trainer that keeps them in one array splits it part by part: a third of a fused array is
 * not a third of its heads. LayerNorm is a norm op and a bias op. Every `shape` is a model_config that was checked and filled (model_config.h).
 */
#ifndef TR_DAEMON_PLAN_LAYER_GRAPH_H
#define TR_DAEMON_PLAN_LAYER_GRAPH_H

#include <stdbool.h>
#include <stdint.h>

#include "common/error.h"
#include "daemon/plan/model_config.h"
#include "daemon/plan/op_signature.h"

/* What runs along a dimension. */
enum model_dim {
	DIM_NONE,
	DIM_BATCH,
	DIM_SEQUENCE,
	DIM_CONTEXT,
	DIM_WIDTH,
	DIM_QUERY, /* heads x head width */
	DIM_KEY,   /* kv heads x head width */
	DIM_HIDDEN,
	DIM_VOCAB,
	DIM_PAIR,
	DIM_ONE,
	MODEL_DIMS
};

enum model_parameter {
	PARAMETER_TABLE,
	PARAMETER_POSITIONS,
	PARAMETER_NORM1_W,
	PARAMETER_NORM1_B,
	PARAMETER_Q_W,
	PARAMETER_Q_B,
	PARAMETER_K_W,
	PARAMETER_K_B,
	PARAMETER_V_W,
	PARAMETER_V_B,
	PARAMETER_O_W,
	PARAMETER_O_B,
	PARAMETER_NORM2_W,
	PARAMETER_NORM2_B,
	PARAMETER_GATE_W,
	PARAMETER_UP_W,
	PARAMETER_UP_B,
	PARAMETER_DOWN_W,
	PARAMETER_DOWN_B,
	PARAMETER_LAST_NORM_W,
	PARAMETER_LAST_NORM_B,
	PARAMETER_HEAD,
	MODEL_PARAMETERS
};

enum tensor_role { TENSOR_DATA, TENSOR_PARAMETER, TENSOR_ACTIVATION };

/* Where a tensor is held to a placement, whatever its op would give. */
enum tensor_pin {
	PIN_NONE,
	PIN_STREAM, /* the residual stream and what norms make of it: by batch over dp; over tp whole, or by sequence (strategy.h) */
	PIN_TOKENS, /* small things of each token: by batch over dp, whole over tp */
	PIN_TOTAL,  /* a sum over the step: whole everywhere, made so once a step */
};

struct graph_tensor {
	const char *name;
	enum tensor_role role;
	enum tensor_pin pin;
	enum model_dim dims[TENSOR_DIMS_MAX];
	enum model_parameter parameter; /* of a TENSOR_PARAMETER */
};

struct graph_op {
	enum op_kind kind;
	uint8_t in[OP_INPUTS_MAX], out; /* tensors of the section */
};

enum graph_section_kind { SECTION_EMBEDDING, SECTION_LAYER, SECTION_HEAD, SECTIONS };

#define GRAPH_TENSORS_MAX 48
#define GRAPH_OPS_MAX     32
#define GRAPH_NO_TENSOR   255

struct graph_section {
	const char *name;
	const struct graph_tensor *tensors;
	const struct graph_op *ops;
	uint8_t tensor_count, op_count;
	uint8_t stream_in; /* the tensor that comes from the section before; GRAPH_NO_TENSOR: none */
};

/* Static; the head of a tied model reads the table of the embedding. */
const struct graph_section *layer_graph_section(const struct model_config *shape,
    enum graph_section_kind kind);

/* Numbers along a dimension, and of how many pieces it is made that cannot be cut ("heads" of head width each): DIM_BATCH
 * and DIM_SEQUENCE are not the model's, they are 0 here. */
uint32_t layer_graph_dim(const struct model_config *shape, enum model_dim dim);
uint32_t layer_graph_units(const struct model_config *shape, enum model_dim dim);
const char *layer_graph_unit_name(enum model_dim dim); /* "heads" */

/* Of a parameter, whatever the preset. */
const char *layer_graph_parameter_name(
    enum model_parameter parameter); /* "layer.attention.q.weight" */
const enum model_dim *layer_graph_parameter_dims(enum model_parameter parameter);
enum graph_section_kind layer_graph_parameter_section(enum model_parameter parameter);
bool layer_graph_has(const struct model_config *shape, enum model_parameter parameter);
uint64_t layer_graph_parameter_count(const struct model_config *shape,
    enum model_parameter parameter);

#endif
