/* The ops of a transformer's training step, and what each may be given on an axis of the mesh: its legal signatures. Pure data.
 *
 * A row says: with inputs placed so, each worker runs the op on what it holds, unchanged and without a word to the others, and the
 * results are placed so. Rows hold for one axis; axes do not disturb each other. What is in no row needs a conversion first
 * (tensor_placement.h). The backward pass is made of ops of the same table: a matmul's gradients are matmuls.
 *
 * Shapes (dimensions are counted from 0):
 *
 *	x, y        [batch, sequence, features]      features of attention: heads x head width, split between heads only
 *	tokens      [batch, sequence]                also the loss of each token, and the maximum of its logits
 *	statistics  [batch, sequence, 2]             of a token's logits: sum of exp(logit - maximum), target's logit
 *	w           [in, out]                        a vector of features is [features]
 *	table       [vocab, width]
 *
 * A gradient has the name and shape of what it is the gradient of. Kernels count positions and batch from 0 of what they hold, so
 * attention and RoPE are never split by sequence; but ops on the vocabulary know which part of it is theirs.
 */
#ifndef TR_DAEMON_PLAN_OP_SIGNATURE_H
#define TR_DAEMON_PLAN_OP_SIGNATURE_H

#include "daemon/plan/tensor_placement.h"

#define OP_INPUTS_MAX 4
#define OP_ROWS_MAX   8
#define OP_GRADS_MAX  4

enum op_kind {
	/* Linear layers. */
	OP_MATMUL, /* x[..., in], w[in, out] -> y[..., out] */
	OP_MATMUL_T, /* x[..., in], w[out, in] -> y[..., out]: the head of a tied table; grad x of OP_MATMUL */
	OP_OUTER,     /* a[..., i], b[..., j] -> w[i, j], summed over tokens: grad w of both */
	OP_BIAS,      /* x, b[features] -> x + b */
	OP_BIAS_GRAD, /* dy -> db: the sum over tokens */
	/* Residual stream. */
	OP_ADD,         /* a, b -> a + b */
	OP_COPY,        /* a -> a: the gradient of a sum goes to each summand */
	OP_NORM,        /* x, w[features] -> LayerNorm without its bias, or RMSNorm */
	OP_NORM_GRAD_X, /* dy, x, w -> dx */
	OP_NORM_GRAD_W, /* dy, x -> dw */
	/* The embedding. */
	OP_EMBED,         /* tokens, table -> x; rows of other workers' vocabulary are zero */
	OP_EMBED_GRAD,    /* tokens, dx -> dtable */
	OP_POSITION,      /* x, p[sequence, width] -> x + p, learned positions */
	OP_POSITION_GRAD, /* dx -> dp */
	/* Feed-forward. */
	OP_GELU,             /* x -> y */
	OP_GELU_GRAD,        /* dy, x -> dx */
	OP_SWIGLU,           /* gate, up -> silu(gate) * up */
	OP_SWIGLU_GRAD_GATE, /* dy, gate, up -> dgate */
	OP_SWIGLU_GRAD_UP,   /* dy, gate -> dup */
	/* Attention: causal, softmax inside. k and v have as many heads as q or, in groups, fewer. */
	OP_ROPE,             /* x -> y */
	OP_ROPE_GRAD,        /* dy -> dx */
	OP_ATTENTION,        /* q, k, v -> o */
	OP_ATTENTION_GRAD_Q, /* do, q, k, v -> dq */
	OP_ATTENTION_GRAD_K, /* do, q, k, v -> dk */
	OP_ATTENTION_GRAD_V, /* do, q, k -> dv */
	/* Cross entropy, which needs two small reductions where the vocabulary is split. */
	OP_ROW_MAX,    /* logits -> maximum of each token's */
	OP_STATISTICS, /* logits, maximum, targets -> statistics */
	OP_LOSS,       /* statistics, maximum -> loss of each token */
	OP_LOSS_TOTAL, /* loss of each token -> [1], the sum over tokens */
	OP_LOSS_GRAD,  /* logits, maximum, statistics, targets -> dlogits */
	OP_KINDS
};

struct op_row {
	struct tensor_placement in[OP_INPUTS_MAX], out;
};

/* One op of the backward pass: from what, and whose gradient it makes. */
enum op_source {
	OP_FROM_IN0, /* the forward op's inputs */
	OP_FROM_IN1,
	OP_FROM_IN2,
	OP_FROM_IN3,
	OP_FROM_OUT,      /* its result */
	OP_FROM_GRADIENT, /* the gradient of its result */
};

struct op_grad {
	enum op_kind kind;
	enum op_source from[OP_INPUTS_MAX];
	unsigned of; /* input of the forward op */
};

struct op_signature {
	const char *name;
	unsigned inputs, row_count;
	struct op_row rows[OP_ROWS_MAX];
	/* Forward ops. None: nothing behind it needs a gradient through it. (That of the loss begins at the logits: OP_STATISTICS.) */
	unsigned grad_count;
	struct op_grad grads[OP_GRADS_MAX];
};

/* Static. */
const struct op_signature *op_signature(enum op_kind kind);

#endif
