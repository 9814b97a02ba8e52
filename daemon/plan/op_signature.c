#include "daemon/plan/op_signature.h"

/* Tables are read by their columns. */
/* clang-format off */
#define S0 { PLACEMENT_SPLIT, 0, 0 }
#define S1 { PLACEMENT_SPLIT, 1, 0 }
#define S2 { PLACEMENT_SPLIT, 2, 0 }
#define B { PLACEMENT_BROADCAST, 0, 0 }
#define P { PLACEMENT_PARTIAL, 0, PARTIAL_SUM }
#define M { PLACEMENT_PARTIAL, 0, PARTIAL_MAX }

#define ROW1(a, out) { { a }, out }
#define ROW2(a, b, out) { { a, b }, out }
#define ROW3(a, b, c, out) { { a, b, c }, out }
#define ROW4(a, b, c, d, out) { { a, b, c, d }, out }

#define IN0 OP_FROM_IN0
#define IN1 OP_FROM_IN1
#define IN2 OP_FROM_IN2
#define OUT OP_FROM_OUT
#define DY  OP_FROM_GRADIENT

static const struct op_signature signatures[OP_KINDS] = {
	[OP_MATMUL] = { "matmul", 2, 7,
		{ ROW2(S0, B, S0), ROW2(S1, B, S1), ROW2(B, S1, S2), /* column-parallel */
		  ROW2(S2, S0, P), /* row-parallel */
		  ROW2(P, B, P), ROW2(B, P, P), ROW2(B, B, B) },
		2, { { OP_MATMUL_T, { DY, IN1 }, 0 }, { OP_OUTER, { IN0, DY }, 1 } } },
	[OP_MATMUL_T] = { "matmul_t", 2, 7,
		{ ROW2(S0, B, S0), ROW2(S1, B, S1), ROW2(B, S0, S2), ROW2(S2, S1, P), ROW2(P, B, P), ROW2(B, P, P),
		  ROW2(B, B, B) },
		2, { { OP_MATMUL, { DY, IN1 }, 0 }, { OP_OUTER, { DY, IN0 }, 1 } } },
	[OP_OUTER] = { "outer", 2, 7,
		{ ROW2(S0, S0, P), ROW2(S1, S1, P), ROW2(S2, B, S0), ROW2(B, S2, S1), ROW2(P, B, P), ROW2(B, P, P),
		  ROW2(B, B, B) }, 0, { { 0 } } },
	/* Never (P, B): the bias would be added once for each worker. */
	[OP_BIAS] = { "bias", 2, 5,
		{ ROW2(S0, B, S0), ROW2(S1, B, S1), ROW2(S2, S0, S2), ROW2(P, P, P), ROW2(B, B, B) },
		2, { { OP_COPY, { DY }, 0 }, { OP_BIAS_GRAD, { DY }, 1 } } },
	[OP_BIAS_GRAD] = { "bias_grad", 1, 5,
		{ ROW1(S0, P), ROW1(S1, P), ROW1(S2, S0), ROW1(P, P), ROW1(B, B) }, 0, { { 0 } } },
	[OP_ADD] = { "add", 2, 5,
		{ ROW2(S0, S0, S0), ROW2(S1, S1, S1), ROW2(S2, S2, S2), ROW2(P, P, P), ROW2(B, B, B) },
		2, { { OP_COPY, { DY }, 0 }, { OP_COPY, { DY }, 1 } } },
	[OP_COPY] = { "copy", 1, 5,
		{ ROW1(S0, S0), ROW1(S1, S1), ROW1(S2, S2), ROW1(P, P), ROW1(B, B) }, 0, { { 0 } } },
	[OP_NORM] = { "norm", 2, 4,
		{ ROW2(S0, B, S0), ROW2(S1, B, S1), ROW2(B, P, P), ROW2(B, B, B) },
		2, { { OP_NORM_GRAD_X, { DY, IN0, IN1 }, 0 }, { OP_NORM_GRAD_W, { DY, IN0 }, 1 } } },
	[OP_NORM_GRAD_X] = { "norm_grad_x", 3, 5,
		{ ROW3(S0, S0, B, S0), ROW3(S1, S1, B, S1), ROW3(P, B, B, P), ROW3(B, B, P, P), ROW3(B, B, B, B) }, 0, { { 0 } } },
	[OP_NORM_GRAD_W] = { "norm_grad_w", 2, 4,
		{ ROW2(S0, S0, P), ROW2(S1, S1, P), ROW2(P, B, P), ROW2(B, B, B) }, 0, { { 0 } } },
	[OP_EMBED] = { "embed", 2, 6,
		{ ROW2(S0, B, S0), ROW2(S1, B, S1),
		  ROW2(B, S0, P), /* each token's row is at one worker, zeros at the others */
		  ROW2(B, S1, S2), ROW2(B, P, P), ROW2(B, B, B) },
		1, { { OP_EMBED_GRAD, { IN0, DY }, 1 } } },
	[OP_EMBED_GRAD] = { "embed_grad", 2, 6,
		{ ROW2(S0, S0, P), ROW2(S1, S1, P), ROW2(B, B, S0), ROW2(B, S2, S1), ROW2(B, P, P), ROW2(B, B, B) }, 0, { { 0 } } },
	[OP_POSITION] = { "position", 2, 5,
		{ ROW2(S0, B, S0), ROW2(S1, S0, S1), ROW2(S2, S1, S2), ROW2(P, P, P), ROW2(B, B, B) },
		2, { { OP_COPY, { DY }, 0 }, { OP_POSITION_GRAD, { DY }, 1 } } },
	[OP_POSITION_GRAD] = { "position_grad", 1, 5,
		{ ROW1(S0, P), ROW1(S1, S0), ROW1(S2, S1), ROW1(P, P), ROW1(B, B) }, 0, { { 0 } } },
	[OP_GELU] = { "gelu", 1, 4,
		{ ROW1(S0, S0), ROW1(S1, S1), ROW1(S2, S2), ROW1(B, B) },
		1, { { OP_GELU_GRAD, { DY, IN0 }, 0 } } },
	[OP_GELU_GRAD] = { "gelu_grad", 2, 5,
		{ ROW2(S0, S0, S0), ROW2(S1, S1, S1), ROW2(S2, S2, S2), ROW2(P, B, P), ROW2(B, B, B) }, 0, { { 0 } } },
	[OP_SWIGLU] = { "swiglu", 2, 5,
		{ ROW2(S0, S0, S0), ROW2(S1, S1, S1), ROW2(S2, S2, S2), ROW2(B, P, P), ROW2(B, B, B) },
		2, { { OP_SWIGLU_GRAD_GATE, { DY, IN0, IN1 }, 0 }, { OP_SWIGLU_GRAD_UP, { DY, IN0 }, 1 } } },
	[OP_SWIGLU_GRAD_GATE] = { "swiglu_grad_gate", 3, 6,
		{ ROW3(S0, S0, S0, S0), ROW3(S1, S1, S1, S1), ROW3(S2, S2, S2, S2), ROW3(P, B, B, P), ROW3(B, B, P, P),
		  ROW3(B, B, B, B) }, 0, { { 0 } } },
	[OP_SWIGLU_GRAD_UP] = { "swiglu_grad_up", 2, 5,
		{ ROW2(S0, S0, S0), ROW2(S1, S1, S1), ROW2(S2, S2, S2), ROW2(P, B, P), ROW2(B, B, B) }, 0, { { 0 } } },
	/* S2 is by whole heads: q's and those of k and v that they read. */
	[OP_ROPE] = { "rope", 1, 4,
		{ ROW1(S0, S0), ROW1(S2, S2), ROW1(P, P), ROW1(B, B) },
		1, { { OP_ROPE_GRAD, { DY }, 0 } } },
	[OP_ROPE_GRAD] = { "rope_grad", 1, 4,
		{ ROW1(S0, S0), ROW1(S2, S2), ROW1(P, P), ROW1(B, B) }, 0, { { 0 } } },
	[OP_ATTENTION] = { "attention", 3, 4,
		{ ROW3(S0, S0, S0, S0), ROW3(S2, S2, S2, S2), ROW3(B, B, P, P), ROW3(B, B, B, B) },
		3, { { OP_ATTENTION_GRAD_Q, { DY, IN0, IN1, IN2 }, 0 }, { OP_ATTENTION_GRAD_K, { DY, IN0, IN1, IN2 }, 1 }, { OP_ATTENTION_GRAD_V, { DY, IN0, IN1 }, 2 } } },
	[OP_ATTENTION_GRAD_Q] = { "attention_grad_q", 4, 5,
		{ ROW4(S0, S0, S0, S0, S0), ROW4(S2, S2, S2, S2, S2), ROW4(P, B, B, B, P), ROW4(B, B, B, P, P),
		  ROW4(B, B, B, B, B) }, 0, { { 0 } } },
	[OP_ATTENTION_GRAD_K] = { "attention_grad_k", 4, 5,
		{ ROW4(S0, S0, S0, S0, S0), ROW4(S2, S2, S2, S2, S2), ROW4(P, B, B, B, P), ROW4(B, B, B, P, P),
		  ROW4(B, B, B, B, B) }, 0, { { 0 } } },
	[OP_ATTENTION_GRAD_V] = { "attention_grad_v", 3, 4,
		{ ROW3(S0, S0, S0, S0), ROW3(S2, S2, S2, S2), ROW3(P, B, B, P), ROW3(B, B, B, B) }, 0, { { 0 } } },
	[OP_ROW_MAX] = { "row_max", 1, 5,
		{ ROW1(S0, S0), ROW1(S1, S1), ROW1(S2, M), ROW1(M, M), ROW1(B, B) }, 0, { { 0 } } },
	[OP_STATISTICS] = { "statistics", 3, 4,
		{ ROW3(S0, S0, S0, S0), ROW3(S1, S1, S1, S1), ROW3(S2, B, B, P), ROW3(B, B, B, B) },
		1, { { OP_LOSS_GRAD, { IN0, IN1, OUT, IN2 }, 0 } } },
	[OP_LOSS] = { "loss", 2, 3,
		{ ROW2(S0, S0, S0), ROW2(S1, S1, S1), ROW2(B, B, B) }, 0, { { 0 } } },
	[OP_LOSS_TOTAL] = { "loss_total", 1, 4,
		{ ROW1(S0, P), ROW1(S1, P), ROW1(P, P), ROW1(B, B) }, 0, { { 0 } } },
	[OP_LOSS_GRAD] = { "loss_grad", 4, 4,
		{ ROW4(S0, S0, S0, S0, S0), ROW4(S1, S1, S1, S1, S1), ROW4(S2, B, B, B, S2), ROW4(B, B, B, B, B) }, 0, { { 0 } } },
};
/* clang-format on */

const struct op_signature *op_signature(enum op_kind kind)
{
	return &signatures[kind];
}
