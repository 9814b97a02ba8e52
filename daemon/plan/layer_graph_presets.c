/* The two presets, op by op. */
#include "daemon/plan/layer_graph.h"

#include <assert.h>

/* Tables are read by their columns. */
/* clang-format off */
#define TOKENS { DIM_BATCH, DIM_SEQUENCE }
#define STREAM { DIM_BATCH, DIM_SEQUENCE, DIM_WIDTH }
#define QUERY { DIM_BATCH, DIM_SEQUENCE, DIM_QUERY }
#define KEY { DIM_BATCH, DIM_SEQUENCE, DIM_KEY }
#define HIDDEN { DIM_BATCH, DIM_SEQUENCE, DIM_HIDDEN }
#define LOGITS { DIM_BATCH, DIM_SEQUENCE, DIM_VOCAB }
#define FREE(name, ...) { name, TENSOR_ACTIVATION, PIN_NONE, __VA_ARGS__, 0 }
#define PINNED(name, pin, ...) { name, TENSOR_ACTIVATION, pin, __VA_ARGS__, 0 }
#define VECTOR(name, d, p) { name, TENSOR_PARAMETER, PIN_NONE, { d }, p }
#define MATRIX(name, rows, cols, p) { name, TENSOR_PARAMETER, PIN_NONE, { rows, cols }, p }

enum { E_TOKENS, E_TABLE, E_POSITIONS, E_FOUND, E_STREAM };
static const struct graph_tensor gpt2_embedding_tensors[] = {
	[E_TOKENS] = { "tokens", TENSOR_DATA, PIN_TOKENS, TOKENS, 0 },
	[E_TABLE] = MATRIX("embedding.table", DIM_VOCAB, DIM_WIDTH, PARAMETER_TABLE),
	[E_POSITIONS] = MATRIX("embedding.positions", DIM_CONTEXT, DIM_WIDTH, PARAMETER_POSITIONS),
	[E_FOUND] = FREE("embedding.rows", STREAM),
	[E_STREAM] = PINNED("embedding.stream", PIN_STREAM, STREAM),
};
static const struct graph_op gpt2_embedding_ops[] = {
	{ OP_EMBED, { E_TOKENS, E_TABLE }, E_FOUND },
	{ OP_POSITION, { E_FOUND, E_POSITIONS }, E_STREAM },
};

enum { F_TOKENS, F_TABLE, F_STREAM };
static const struct graph_tensor llama_embedding_tensors[] = {
	[F_TOKENS] = { "tokens", TENSOR_DATA, PIN_TOKENS, TOKENS, 0 },
	[F_TABLE] = MATRIX("embedding.table", DIM_VOCAB, DIM_WIDTH, PARAMETER_TABLE),
	[F_STREAM] = PINNED("embedding.stream", PIN_STREAM, STREAM),
};
static const struct graph_op llama_embedding_ops[] = { { OP_EMBED, { F_TOKENS, F_TABLE },
    F_STREAM } };

enum {
	G_IN,
	G_NORM1_W,
	G_NORM1_B,
	G_NORM1_S,
	G_NORM1,
	G_Q_W,
	G_Q_B,
	G_K_W,
	G_K_B,
	G_V_W,
	G_V_B,
	G_Q_P,
	G_K_P,
	G_V_P,
	G_Q,
	G_K,
	G_V,
	G_O,
	G_O_W,
	G_O_B,
	G_O_P,
	G_O_Y,
	G_MID,
	G_NORM2_W,
	G_NORM2_B,
	G_NORM2_S,
	G_NORM2,
	G_UP_W,
	G_UP_B,
	G_UP_P,
	G_UP,
	G_GELU,
	G_DOWN_W,
	G_DOWN_B,
	G_DOWN_P,
	G_DOWN_Y,
	G_OUT
};
static const struct graph_tensor gpt2_layer_tensors[] = {
	[G_IN] = PINNED("layer.input", PIN_STREAM, STREAM),
	[G_NORM1_W] = VECTOR("layer.norm1.weight", DIM_WIDTH, PARAMETER_NORM1_W),
	[G_NORM1_B] = VECTOR("layer.norm1.bias", DIM_WIDTH, PARAMETER_NORM1_B),
	[G_NORM1_S] = PINNED("layer.norm1.scaled", PIN_STREAM, STREAM),
	[G_NORM1] = PINNED("layer.norm1", PIN_STREAM, STREAM),
	[G_Q_W] = MATRIX("layer.attention.q.weight", DIM_WIDTH, DIM_QUERY, PARAMETER_Q_W),
	[G_Q_B] = VECTOR("layer.attention.q.bias", DIM_QUERY, PARAMETER_Q_B),
	[G_K_W] = MATRIX("layer.attention.k.weight", DIM_WIDTH, DIM_KEY, PARAMETER_K_W),
	[G_K_B] = VECTOR("layer.attention.k.bias", DIM_KEY, PARAMETER_K_B),
	[G_V_W] = MATRIX("layer.attention.v.weight", DIM_WIDTH, DIM_KEY, PARAMETER_V_W),
	[G_V_B] = VECTOR("layer.attention.v.bias", DIM_KEY, PARAMETER_V_B),
	[G_Q_P] = FREE("layer.attention.q.product", QUERY),
	[G_K_P] = FREE("layer.attention.k.product", KEY),
	[G_V_P] = FREE("layer.attention.v.product", KEY),
	[G_Q] = FREE("layer.attention.q", QUERY),
	[G_K] = FREE("layer.attention.k", KEY),
	[G_V] = FREE("layer.attention.v", KEY),
	[G_O] = FREE("layer.attention", QUERY),
	[G_O_W] = MATRIX("layer.attention.o.weight", DIM_QUERY, DIM_WIDTH, PARAMETER_O_W),
	[G_O_B] = VECTOR("layer.attention.o.bias", DIM_WIDTH, PARAMETER_O_B),
	[G_O_P] = FREE("layer.attention.o.product", STREAM),
	[G_O_Y] = PINNED("layer.attention.o", PIN_STREAM, STREAM),
	[G_MID] = PINNED("layer.middle", PIN_STREAM, STREAM),
	[G_NORM2_W] = VECTOR("layer.norm2.weight", DIM_WIDTH, PARAMETER_NORM2_W),
	[G_NORM2_B] = VECTOR("layer.norm2.bias", DIM_WIDTH, PARAMETER_NORM2_B),
	[G_NORM2_S] = PINNED("layer.norm2.scaled", PIN_STREAM, STREAM),
	[G_NORM2] = PINNED("layer.norm2", PIN_STREAM, STREAM),
	[G_UP_W] = MATRIX("layer.mlp.up.weight", DIM_WIDTH, DIM_HIDDEN, PARAMETER_UP_W),
	[G_UP_B] = VECTOR("layer.mlp.up.bias", DIM_HIDDEN, PARAMETER_UP_B),
	[G_UP_P] = FREE("layer.mlp.up.product", HIDDEN),
	[G_UP] = FREE("layer.mlp.up", HIDDEN),
	[G_GELU] = FREE("layer.mlp.gelu", HIDDEN),
	[G_DOWN_W] = MATRIX("layer.mlp.down.weight", DIM_HIDDEN, DIM_WIDTH, PARAMETER_DOWN_W),
	[G_DOWN_B] = VECTOR("layer.mlp.down.bias", DIM_WIDTH, PARAMETER_DOWN_B),
	[G_DOWN_P] = FREE("layer.mlp.down.product", STREAM),
	[G_DOWN_Y] = PINNED("layer.mlp.down", PIN_STREAM, STREAM),
	[G_OUT] = PINNED("layer.output", PIN_STREAM, STREAM),
};
static const struct graph_op gpt2_layer_ops[] = {
	{ OP_NORM, { G_IN, G_NORM1_W }, G_NORM1_S },
	{ OP_BIAS, { G_NORM1_S, G_NORM1_B }, G_NORM1 },
	{ OP_MATMUL, { G_NORM1, G_Q_W }, G_Q_P },
	{ OP_MATMUL, { G_NORM1, G_K_W }, G_K_P },
	{ OP_MATMUL, { G_NORM1, G_V_W }, G_V_P },
	{ OP_BIAS, { G_Q_P, G_Q_B }, G_Q },
	{ OP_BIAS, { G_K_P, G_K_B }, G_K },
	{ OP_BIAS, { G_V_P, G_V_B }, G_V },
	{ OP_ATTENTION, { G_Q, G_K, G_V }, G_O },
	{ OP_MATMUL, { G_O, G_O_W }, G_O_P },
	{ OP_BIAS, { G_O_P, G_O_B }, G_O_Y },
	{ OP_ADD, { G_IN, G_O_Y }, G_MID },
	{ OP_NORM, { G_MID, G_NORM2_W }, G_NORM2_S },
	{ OP_BIAS, { G_NORM2_S, G_NORM2_B }, G_NORM2 },
	{ OP_MATMUL, { G_NORM2, G_UP_W }, G_UP_P },
	{ OP_BIAS, { G_UP_P, G_UP_B }, G_UP },
	{ OP_GELU, { G_UP }, G_GELU },
	{ OP_MATMUL, { G_GELU, G_DOWN_W }, G_DOWN_P },
	{ OP_BIAS, { G_DOWN_P, G_DOWN_B }, G_DOWN_Y },
	{ OP_ADD, { G_MID, G_DOWN_Y }, G_OUT },
};

enum {
	L_IN,
	L_NORM1_W,
	L_NORM1,
	L_Q_W,
	L_K_W,
	L_V_W,
	L_Q_P,
	L_K_P,
	L_Q,
	L_K,
	L_V,
	L_O,
	L_O_W,
	L_O_P,
	L_MID,
	L_NORM2_W,
	L_NORM2,
	L_GATE_W,
	L_UP_W,
	L_GATE,
	L_UP,
	L_SWIGLU,
	L_DOWN_W,
	L_DOWN_P,
	L_OUT
};
static const struct graph_tensor llama_layer_tensors[] = {
	[L_IN] = PINNED("layer.input", PIN_STREAM, STREAM),
	[L_NORM1_W] = VECTOR("layer.norm1.weight", DIM_WIDTH, PARAMETER_NORM1_W),
	[L_NORM1] = PINNED("layer.norm1", PIN_STREAM, STREAM),
	[L_Q_W] = MATRIX("layer.attention.q.weight", DIM_WIDTH, DIM_QUERY, PARAMETER_Q_W),
	[L_K_W] = MATRIX("layer.attention.k.weight", DIM_WIDTH, DIM_KEY, PARAMETER_K_W),
	[L_V_W] = MATRIX("layer.attention.v.weight", DIM_WIDTH, DIM_KEY, PARAMETER_V_W),
	[L_Q_P] = FREE("layer.attention.q.product", QUERY),
	[L_K_P] = FREE("layer.attention.k.product", KEY),
	[L_Q] = FREE("layer.attention.q", QUERY),
	[L_K] = FREE("layer.attention.k", KEY),
	[L_V] = FREE("layer.attention.v", KEY),
	[L_O] = FREE("layer.attention", QUERY),
	[L_O_W] = MATRIX("layer.attention.o.weight", DIM_QUERY, DIM_WIDTH, PARAMETER_O_W),
	[L_O_P] = FREE("layer.attention.o.product", STREAM),
	[L_MID] = PINNED("layer.middle", PIN_STREAM, STREAM),
	[L_NORM2_W] = VECTOR("layer.norm2.weight", DIM_WIDTH, PARAMETER_NORM2_W),
	[L_NORM2] = PINNED("layer.norm2", PIN_STREAM, STREAM),
	[L_GATE_W] = MATRIX("layer.mlp.gate.weight", DIM_WIDTH, DIM_HIDDEN, PARAMETER_GATE_W),
	[L_UP_W] = MATRIX("layer.mlp.up.weight", DIM_WIDTH, DIM_HIDDEN, PARAMETER_UP_W),
	[L_GATE] = FREE("layer.mlp.gate", HIDDEN),
	[L_UP] = FREE("layer.mlp.up", HIDDEN),
	[L_SWIGLU] = FREE("layer.mlp.swiglu", HIDDEN),
	[L_DOWN_W] = MATRIX("layer.mlp.down.weight", DIM_HIDDEN, DIM_WIDTH, PARAMETER_DOWN_W),
	[L_DOWN_P] = FREE("layer.mlp.down.product", STREAM),
	[L_OUT] = PINNED("layer.output", PIN_STREAM, STREAM),
};
static const struct graph_op llama_layer_ops[] = {
	{ OP_NORM, { L_IN, L_NORM1_W }, L_NORM1 },
	{ OP_MATMUL, { L_NORM1, L_Q_W }, L_Q_P },
	{ OP_MATMUL, { L_NORM1, L_K_W }, L_K_P },
	{ OP_MATMUL, { L_NORM1, L_V_W }, L_V },
	{ OP_ROPE, { L_Q_P }, L_Q },
	{ OP_ROPE, { L_K_P }, L_K },
	{ OP_ATTENTION, { L_Q, L_K, L_V }, L_O },
	{ OP_MATMUL, { L_O, L_O_W }, L_O_P },
	{ OP_ADD, { L_IN, L_O_P }, L_MID },
	{ OP_NORM, { L_MID, L_NORM2_W }, L_NORM2 },
	{ OP_MATMUL, { L_NORM2, L_GATE_W }, L_GATE },
	{ OP_MATMUL, { L_NORM2, L_UP_W }, L_UP },
	{ OP_SWIGLU, { L_GATE, L_UP }, L_SWIGLU },
	{ OP_MATMUL, { L_SWIGLU, L_DOWN_W }, L_DOWN_P },
	{ OP_ADD, { L_MID, L_DOWN_P }, L_OUT },
};

enum {
	H_IN,
	H_NORM_W,
	H_NORM_B,
	H_SCALED,
	H_NORM,
	H_TABLE,
	H_TARGETS,
	H_LOGITS,
	H_MAX,
	H_STATISTICS,
	H_LOSS,
	H_TOTAL
};
#define HEAD_TENSORS(table_name, table) [H_IN] = PINNED("head.input", PIN_STREAM, STREAM), [H_NORM_W] = VECTOR("head.norm.weight", DIM_WIDTH, PARAMETER_LAST_NORM_W), [H_NORM] = PINNED("head.norm", PIN_STREAM, STREAM), [H_TABLE] = MATRIX(table_name, DIM_VOCAB, DIM_WIDTH, table), [H_TARGETS] = { "targets", TENSOR_DATA, PIN_TOKENS, TOKENS, 0 }, [H_LOGITS] = FREE("head.logits", LOGITS), [H_MAX] = PINNED("head.maximum", PIN_TOKENS, TOKENS), [H_STATISTICS] = PINNED("head.statistics", PIN_TOKENS, { DIM_BATCH, DIM_SEQUENCE, DIM_PAIR }), [H_LOSS] = PINNED("head.loss", PIN_TOKENS, TOKENS), [H_TOTAL] = PINNED("head.loss_total", PIN_TOTAL, { DIM_ONE })
#define HEAD_OPS { OP_MATMUL_T, { H_NORM, H_TABLE }, H_LOGITS }, { OP_ROW_MAX, { H_LOGITS }, H_MAX }, { OP_STATISTICS, { H_LOGITS, H_MAX, H_TARGETS }, H_STATISTICS }, { OP_LOSS, { H_STATISTICS, H_MAX }, H_LOSS }, { OP_LOSS_TOTAL, { H_LOSS }, H_TOTAL }

static const struct graph_tensor gpt2_head_tensors[] = {
	HEAD_TENSORS("embedding.table", PARAMETER_TABLE),
	[H_NORM_B] = VECTOR("head.norm.bias", DIM_WIDTH, PARAMETER_LAST_NORM_B),
	[H_SCALED] = PINNED("head.norm.scaled", PIN_STREAM, STREAM),
};
static const struct graph_op gpt2_head_ops[] = {
	{ OP_NORM, { H_IN, H_NORM_W }, H_SCALED },
	{ OP_BIAS, { H_SCALED, H_NORM_B }, H_NORM },
	HEAD_OPS,
};
/* Places of GPT-2's bias are nobody's in these. */
#define NOT_THERE { "", TENSOR_DATA, PIN_TOKENS, TOKENS, 0 }
static const struct graph_tensor llama_tied_head_tensors[] = {
	HEAD_TENSORS("embedding.table", PARAMETER_TABLE),
	[H_NORM_B] = NOT_THERE,
	[H_SCALED] = NOT_THERE,
};
static const struct graph_tensor llama_head_tensors[] = {
	HEAD_TENSORS("head.table", PARAMETER_HEAD),
	[H_NORM_B] = NOT_THERE,
	[H_SCALED] = NOT_THERE,
};
static const struct graph_op llama_head_ops[] = { { OP_NORM, { H_IN, H_NORM_W }, H_NORM },
	HEAD_OPS };

#define COUNT(array) (uint8_t)(sizeof(array) / sizeof((array)[0]))
#define SECTION(name, tensors, ops, in) { name, tensors, ops, COUNT(tensors), COUNT(ops), in }

static const struct graph_section sections[MODEL_PRESETS][SECTIONS] = {
	[MODEL_GPT2] = { [SECTION_EMBEDDING] = SECTION("embedding", gpt2_embedding_tensors,
	                     gpt2_embedding_ops, GRAPH_NO_TENSOR),
	    [SECTION_LAYER] = SECTION("layer", gpt2_layer_tensors, gpt2_layer_ops, G_IN),
	    [SECTION_HEAD] = SECTION("head", gpt2_head_tensors, gpt2_head_ops, H_IN) },
	[MODEL_LLAMA] = { [SECTION_EMBEDDING] = SECTION("embedding", llama_embedding_tensors,
	                      llama_embedding_ops, GRAPH_NO_TENSOR),
	    [SECTION_LAYER] = SECTION("layer", llama_layer_tensors, llama_layer_ops, L_IN),
	    [SECTION_HEAD] = SECTION("head", llama_head_tensors, llama_head_ops, H_IN) },
};
static const struct graph_section llama_tied_head = SECTION("head", llama_tied_head_tensors,
    llama_head_ops, H_IN);
/* clang-format on */

static_assert(sizeof(gpt2_layer_tensors) / sizeof(gpt2_layer_tensors[0]) <= GRAPH_TENSORS_MAX,
    "tensors of a section");
static_assert(sizeof(gpt2_layer_ops) / sizeof(gpt2_layer_ops[0]) <= GRAPH_OPS_MAX,
    "ops of a section");

const struct graph_section *layer_graph_section(const struct model_config *shape,
    enum graph_section_kind kind)
{
	if (shape->preset == MODEL_LLAMA && !shape->untied && kind == SECTION_HEAD)
		return &llama_tied_head;
	return &sections[shape->preset][kind];
}
