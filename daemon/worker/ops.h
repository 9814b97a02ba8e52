/* The model's operations but the matrix products (gemm.h): plain C in ops_*.c, compiled once for
 * each vector width (ops_x86_v3.c, ops_x86_v4.c include the same files) and chosen at run time. All
 * variants give the same bits. Row-major arrays; "rows" are tokens. Pure functions of their
 * arguments; any thread.
 */
#ifndef TR_DAEMON_WORKER_OPS_H
#define TR_DAEMON_WORKER_OPS_H

#include <stddef.h>
#include <stdint.h>

#include "daemon/worker/real.h"

/* What a training step leaves out of an array (dropout.h), and by what the rest is multiplied. */
struct dropout {
	uint64_t key;  /* of the array */
	int32_t below; /* the share that is left out, in units of 2^-24 */
	real scale;    /* 1 / (1 - share) */
};

/* One sequence's causal self-attention; several heads in a row may share keys and values (grouped-query attention, Ainslie et al.,
 * 2305.13245). */
struct attention {
	size_t length;   /* tokens */
	size_t first;    /* rows of `out` before this one are there already (see model_extend) */
	size_t heads;    /* of queries */
	size_t kv_heads; /* of keys and values; divides heads */
	size_t head;     /* channels of a head */
	size_t first_head; /* of the whole model's, that is the first one here: where there is dropout */
	const struct dropout *dropout; /* of the probabilities; NULL: none */
};

/* Rotary positions: heads of rows [0, rows) of x, whose row i is token `first` + i. */
struct rotation {
	size_t first, rows;
	size_t heads,
	    head; /* heads that are turned, one after another from the row's beginning; channels of each */
	size_t stride;         /* of rows */
	const real *cos, *sin; /* [context, head / 2] */
};

/* Of a vocabulary the columns that this worker has: tokens first to first + count - 1, then padding up to stride. */
struct columns {
	size_t first, count, stride;
};

/* Scalars of one AdamW step (optim.h computes them). */
struct adamw {
	float gradient_scale; /* 1 / tokens, times the clip factor */
	float beta2, eps;
	float first_share, second_share; /* 1 - beta, rounded once */
	float step_size;                 /* lr / (1 - beta1^t) */
	float variance_scale;            /* 1 / sqrt(1 - beta2^t) */
	float keep;                      /* 1 - lr * weight decay */
};

/* Query rows whose scores are held at once. */
#define ATTENTION_TILE 64

/* Numbers of scratch that attention (x1) and attention_backward (x2) need for one thread. */
static inline size_t attention_scratch(size_t length, size_t head)
{
	return (ATTENTION_TILE + head) * ((length + 15) / 16 * 16);
}

struct ops {
	const char *name;

	/* y = (x - mean) * rstd * weight + bias, by row; x, y [rows, width]; mean, rstd [rows]. */
	void (*layernorm)(const real *x, const real *weight, const real *bias, real eps,
	    size_t rows, size_t width, real *y, real *mean, real *rstd);
	/* dx = carry + d layernorm / dx (carry NULL: 0); dweight and dbias [width] are added to. dx
	 * may be carry. */
	void (*layernorm_backward)(const real *dy, const real *x, const real *weight,
	    const real *mean, const real *rstd, const real *carry, size_t rows, size_t width,
	    real *dx, real *dweight, real *dbias);

	/* The same without mean and bias: rstd is 1 / sqrt(mean of squares + eps). */
	void (*rmsnorm)(const real *x, const real *weight, real eps, size_t rows, size_t width,
	    real *y, real *rstd);
	void (*rmsnorm_backward)(const real *dy, const real *x, const real *weight,
	    const real *rstd, const real *carry, size_t rows, size_t width, real *dx,
	    real *dweight);

	/* The tanh form: y = x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))). */
	void (*gelu)(const real *x, size_t count, real *y);
	/* In place: x becomes gelu(x), dy becomes the gradient of x. */
	void (*gelu_backward)(real *x, real *dy, size_t count);

	/* x [rows, 2 width], a row is gate and up: y = gate / (1 + e^-gate) * up, [rows, width]. */
	void (*swiglu)(const real *x, size_t rows, size_t width, real *y);
	/* In place, dy [rows, 2 width]: the first half of a row of x becomes swiglu(x); dy, of which
	 * the first half is given, becomes the gradient of x. */
	void (*swiglu_backward)(real *x, real *dy, size_t rows, size_t width);

	/* y = bias on every row, where a matrix product is added next. */
	void (*bias)(const real *bias, size_t rows, size_t width, real *y);
	/* y = x + bias. */
	void (*bias_residual)(const real *x, const real *bias, size_t rows, size_t width, real *y);
	/* y = sum + residual (NULL: 0) + bias (NULL: 0). */
	void (*onto)(const real *sum, const real *residual, const real *bias, size_t rows,
	    size_t width, real *y);
	/* y = x without what is left out of rows [first, first + rows) of an array. y may be x. */
	void (*drop)(const struct dropout *dropout, size_t first, size_t rows, size_t width,
	    const real *x, real *y);
	/* y = residual + y without that. */
	void (*drop_onto)(const struct dropout *dropout, size_t first, size_t rows, size_t width,
	    const real *residual, real *y);
	/* sum[j] += sum of x[i, j] over i. */
	void (*column_sums)(const real *x, size_t rows, size_t width, real *sum);

	/* Turns the pairs (i, i + head / 2) of each head by the position's angles, in place (Su et
	 * al., 2104.09864; the halves are Hugging Face's form). `direction` 1, or -1: back, which is
	 * also the gradient. */
	void (*rotate)(const struct rotation *shape, real direction, real *x);

	/* qkv [length, (heads + 2 kv_heads) head]: queries, keys, values, each by head. out
	 * [length, heads head]. row_max
	 * and row_scale [heads, length] are what the backward pass needs to make the probabilities
	 * again. */
	void (*attention)(const struct attention *shape, const real *qkv, real *out, real *row_max,
	    real *row_scale, real *scratch);
	/* dqkv, as qkv, is written. */
	void (*attention_backward)(const struct attention *shape, const real *qkv, const real *out,
	    const real *row_max, const real *row_scale, const real *dout, real *dqkv,
	    real *scratch);

	/* Cross-entropy: returns the sum of losses over rows; logits [rows, vocab] become the
	 * gradient of that sum. */
	double (*softmax_loss)(real *logits, const int32_t *targets, size_t rows, size_t vocab);

	/* The same in three passes where others have the other columns, logits [rows, stride]. max [rows], to be made the largest of all. */
	void (*softmax_max)(const struct columns *columns, const real *logits, size_t rows,
	    real *max);
	/* logits become e^(logit - max). sums [rows, 2], to be summed over all: of these, and the target's logit - max. */
	void (*softmax_sums)(const struct columns *columns, real *logits, const int32_t *targets,
	    size_t rows, const real *max, real *sums);
	/* As softmax_loss, of the whole; logits become these columns of the gradient, padding 0. */
	double (*softmax_finish)(const struct columns *columns, real *logits,
	    const int32_t *targets, size_t rows, const real *sums);

	/* x[i] = token_table[tokens[i]] + position_table[i] (NULL: 0); one sequence of `length` rows. */
	void (*embed)(const int32_t *tokens, const real *token_table, const real *position_table,
	    size_t length, size_t width, real *x);
	/* Adds into columns [first, first + columns) of both tables' gradients (positions NULL: none). */
	void (*embed_backward)(const int32_t *tokens, const real *dx, size_t length, size_t width,
	    size_t first, size_t columns, real *dtoken_table, real *dposition_table);

	/* To bf16 (to nearest, ties to even; a NaN stays one) and back: of rows that are `stride` apart, to rows without gaps. */
	void (*to_bf16)(const real *x, size_t rows, size_t columns, size_t stride, uint16_t *y);
	void (*from_bf16)(const uint16_t *x, size_t rows, size_t columns, size_t stride, real *y);

	/* Sum of squares in f64. */
	double (*sum_squares)(const real *x, size_t count);
	/* Decoupled weight decay (Loshchilov and Hutter, 1711.05101), operation by operation as
	 * torch.optim.AdamW. */
	void (*adamw)(real *params, const real *grads, real *first, real *second, size_t count,
	    const struct adamw *by);
};

/* The fastest table that this machine can run; never NULL. */
const struct ops *ops_choose(void);
/* All tables that this machine can run, plain C first; NULL past the last. */
const struct ops *ops_variant(size_t i);

/* ---- inside ops_*.c only
 * ---------------------------------------------------------------------------------- */

#ifndef OP_VARIANT
#define OP_VARIANT plain
#endif
#define OP_PASTE_(name, variant) op_##name##_##variant
#define OP_PASTE(name, variant)  OP_PASTE_(name, variant)
#define OP(name)                 OP_PASTE(name, OP_VARIANT)

void OP(layernorm)(const real *x, const real *weight, const real *bias, real eps, size_t rows,
    size_t width, real *y, real *mean, real *rstd);
void OP(rmsnorm)(const real *x, const real *weight, real eps, size_t rows, size_t width, real *y,
    real *rstd);
void OP(rmsnorm_backward)(const real *dy, const real *x, const real *weight, const real *rstd,
    const real *carry, size_t rows, size_t width, real *dx, real *dweight);
void OP(swiglu)(const real *x, size_t rows, size_t width, real *y);
void OP(swiglu_backward)(real *x, real *dy, size_t rows, size_t width);
void OP(rotate)(const struct rotation *shape, real direction, real *x);
void OP(layernorm_backward)(const real *dy, const real *x, const real *weight, const real *mean,
    const real *rstd, const real *carry, size_t rows, size_t width, real *dx, real *dweight,
    real *dbias);
void OP(gelu)(const real *x, size_t count, real *y);
void OP(gelu_backward)(real *x, real *dy, size_t count);
void OP(bias)(const real *bias, size_t rows, size_t width, real *y);
void OP(bias_residual)(const real *x, const real *bias, size_t rows, size_t width, real *y);
void OP(onto)(const real *sum, const real *residual, const real *bias, size_t rows, size_t width,
    real *y);
void OP(drop)(const struct dropout *dropout, size_t first, size_t rows, size_t width, const real *x,
    real *y);
void OP(drop_onto)(const struct dropout *dropout, size_t first, size_t rows, size_t width,
    const real *residual, real *y);
void OP(column_sums)(const real *x, size_t rows, size_t width, real *sum);
void OP(attention)(const struct attention *shape, const real *qkv, real *out, real *row_max,
    real *row_scale, real *scratch);
void OP(attention_backward)(const struct attention *shape, const real *qkv, const real *out,
    const real *row_max, const real *row_scale, const real *dout, real *dqkv, real *scratch);
double OP(softmax_loss)(real *logits, const int32_t *targets, size_t rows, size_t vocab);
void OP(softmax_max)(const struct columns *columns, const real *logits, size_t rows, real *max);
void OP(softmax_sums)(const struct columns *columns, real *logits, const int32_t *targets,
    size_t rows, const real *max, real *sums);
double OP(softmax_finish)(const struct columns *columns, real *logits, const int32_t *targets,
    size_t rows, const real *sums);
void OP(embed)(const int32_t *tokens, const real *token_table, const real *position_table,
    size_t length, size_t width, real *x);
void OP(embed_backward)(const int32_t *tokens, const real *dx, size_t length, size_t width,
    size_t first, size_t columns, real *dtoken_table, real *dposition_table);
void OP(to_bf16)(const real *x, size_t rows, size_t columns, size_t stride, uint16_t *y);
void OP(from_bf16)(const uint16_t *x, size_t rows, size_t columns, size_t stride, real *y);
double OP(sum_squares)(const real *x, size_t count);
void OP(adamw)(real *params, const real *grads, real *first, real *second, size_t count,
    const struct adamw *by);

#define OPS_TABLE(label)                                                                          \
	{                                                                                         \
		.name = label, .layernorm = OP(layernorm),                                        \
		.layernorm_backward = OP(layernorm_backward), .rmsnorm = OP(rmsnorm),             \
		.rmsnorm_backward = OP(rmsnorm_backward), .swiglu = OP(swiglu),                   \
		.swiglu_backward = OP(swiglu_backward), .rotate = OP(rotate), .gelu = OP(gelu),   \
		.gelu_backward = OP(gelu_backward), .bias = OP(bias),                             \
		.bias_residual = OP(bias_residual), .onto = OP(onto), .drop = OP(drop),           \
		.drop_onto = OP(drop_onto), .column_sums = OP(column_sums),                       \
		.attention = OP(attention), .attention_backward = OP(attention_backward),         \
		.softmax_loss = OP(softmax_loss), .softmax_max = OP(softmax_max),                 \
		.softmax_sums = OP(softmax_sums), .softmax_finish = OP(softmax_finish),           \
		.embed = OP(embed), .embed_backward = OP(embed_backward), .to_bf16 = OP(to_bf16), \
		.from_bf16 = OP(from_bf16), .sum_squares = OP(sum_squares), .adamw = OP(adamw),   \
	}

#endif
