/* Inside the model: what forward.c leaves for backward.c. Not for others. */
#ifndef TR_DAEMON_WORKER_MODEL_INSIDE_H
#define TR_DAEMON_WORKER_MODEL_INSIDE_H

#include "daemon/worker/dropout.h"
#include "daemon/worker/gemm_bf16.h"
#include "daemon/worker/model.h"
#include "daemon/worker/rope.h"
#include "daemon/worker/slots.h"
#include "daemon/worker/virtual.h"

/* Tokens that a thread takes through a layer together: their activations fit its L2 cache. */
#define MODEL_CHUNK_ROWS 256

/* N rows (tokens), of which n are our own (N, but for sequence parallelism); C width, H heads; Q, QKV and U: model_queries, model_qkv and model_up of the config. */
struct layer_activations {
	const real *x;               /* [n, C] residual stream before the layer */
	real *norm1, *mean1, *rstd1; /* [N, C] [n] [n] */
	real *qkv; /* [N, QKV]; queries and keys are turned where positions are rotary */
	real *row_max, *row_scale;   /* [sequences, H, length] */
	real *attended;              /* [N, Q] */
	real *middle;                /* [n, C] residual stream after attention */
	real *norm2, *mean2, *rstd2; /* [N, C] [n] [n] */
	real *up; /* [N, U] before the activation; the backward pass turns the first F of each row into its result */
	real *out;   /* [n, C] residual stream after the layer */
	real *block; /* where the arrays lie, without the stream; NULL: in model->again */
};

struct model_slot {
	bool taken, head;
	size_t first, count;              /* layers, of those in the layout */
	struct layer_activations *layers; /* [count] */
	const real *input;                /* [n, C] before the first layer */
	real *embedded;                   /* the same, if we make it; NULL: it was given */
	real *output;                     /* [n, C] for others; NULL: the head's */
	struct model_batch batch;
};

struct thread_scratch {
	real *wide;      /* [chunk, F] */
	real *narrow;    /* [chunk, C or Q] */
	real *attention; /* 2 x attention_scratch */
	real *vectors; /* gradients of a layer's vectors (or of the last norm), folded at its end */
	struct gemm_bf16 *bf16; /* NULL: products are of f32 */
	struct onednn *f32;     /* and oneDNN's; NULL: OpenBLAS's */
	double loss;
};

struct model_dropout {
	int32_t below; /* 0: there is none */
	real scale;
	uint64_t seed;
	const struct layout_depth *depth; /* which layers of the whole model the layout has */
	real *dproj; /* [n, C]: gradient of what attention adds to the stream */
	real *ddown; /* and of what the MLP does, behind it in one array */
	void *allocated;
};

struct model {
	const struct layout *layout;
	struct pool *pool;
	const struct ops *ops;
	const struct model_tensor *tensor; /* NULL: alone */
	const real *params;
	real *grads;
	uint16_t *rounded; /* the parameters in bf16; NULL: products are of f32 */
	void *rounded_allocated;
	bool stale; /* they may have changed since they were rounded */
	bool exact; /* generation: products of f32 all the same */
	size_t max_sequences;
	struct model_room room;
	struct model_bytes bytes;
	struct model_dropout dropout;
	struct virtual_members *virtual_members; /* that make it up; NULL: it is one */
	struct model_slot
	    *whole; /* of a model without others: for good (model_extend); NULL: there is none */

	real *memory; /* one array of all arrays, 64-byte aligned, in this: */
	void *allocated;
	real **streams; /* [room.streams], those that are free first */
	real **blocks;  /* [room.layers], the same */
	size_t free_streams, free_blocks;
	struct model_slot *slots;                /* [room.slots] */
	struct layer_activations *tables;        /* of all slots */
	struct layer_activations again;          /* recompute: of the layer in work; else zeroed */
	real *last_norm, *last_mean, *last_rstd; /* [N, C] [n] [n] */
	real *logits;                            /* [N, V]; then their gradient */
	real *flow[2], *dmiddle;                 /* [n, C]; flow: what dout and dx are */
	real *dup;                               /* [N, U] */
	real *dqkv;                              /* [N, QKV] */
	real *cos, *sin;                /* [context, head width / 2], if positions are rotary */
	struct thread_scratch *scratch; /* one a thread */

	/* The exchange (tensor.c): which of its two halves is written next. */
	unsigned turn;

	/* The microbatch in work. */
	struct model_slot *slot;
	const real *dout; /* gradient of the layer's output */
	real *dx;         /* and of its input */
	const int32_t *inputs, *targets;
	const uint64_t *samples; /* NULL: nothing is left out of it */
	size_t sequences, length;
	size_t first; /* rows of the one sequence that are there already; 0 but in model_extend */
};

/* Part of one pool_run: layer `layer` of `model`. */
struct layer_part {
	struct model *model;
	size_t layer;
};

/* Rows of a thread's chunk, all multiples of the length. */
struct chunk {
	size_t row, rows;
	size_t sequence, sequences;
};
/* The sequences of a thread. Where there are fewer of them than threads, the first threads have one each: the others never touch what they would need for one. */
void model_share(const struct model *model, unsigned thread, unsigned threads, size_t *first,
    size_t *last);
/* Steps through the chunks of a thread's share; start with *next = 0. */
bool model_next_chunk(const struct model *model, unsigned thread, unsigned threads, size_t *next,
    struct chunk *chunk);

/* Our own rows of the stream: all, or with sequence parallelism block `place` of them, from row model_own_first of the batch on. Arrays of [n, ...] have these alone. */
static inline bool model_splits_rows(const struct model *model)
{
	return model->room.row_parts > 1;
}
static inline size_t model_own_rows(const struct model *model)
{
	size_t rows = model->sequences * model->length;
	return model_splits_rows(model) ? rows / model->room.row_parts : rows;
}
static inline size_t model_own_first(const struct model *model)
{
	return model_splits_rows(model) ? model->tensor->place * model_own_rows(model) : 0;
}
/* Steps through a thread's share of our own rows; chunk->row counts from the first of them. */
bool model_next_own(const struct model *model, unsigned thread, unsigned threads, size_t *next,
    struct chunk *chunk);

/* NULL: the architecture has none. */
static inline const real *model_param(const struct model *model, size_t layer,
    enum layout_part which)
{
	size_t offset = layout_layer(model->layout, layer, which);
	return offset == LAYOUT_NONE ? NULL : model->params + offset;
}

/* slots.c: memory that begins where vectors may, to be freed as *allocated; NULL: there is none. */
void *model_allocate(size_t bytes, void **allocated);

static inline struct layer_activations *model_layer(const struct model *model, size_t layer)
{
	return &model->slot->layers[layer - model->slot->first];
}

/* What the head gets. */
static inline const real *model_stream_end(const struct model *model)
{
	const struct model_slot *slot = model->slot;
	return slot->count == 0 ? slot->input : slot->layers[slot->count - 1].out;
}

static inline bool model_progress(const struct model_hooks *hooks)
{
	return hooks == NULL || hooks->progress == NULL || hooks->progress(hooks->arg);
}

/* product.c: products with parameters, in f32 or of operands rounded to bf16. */

/* A matrix of parameters [rows, columns], as it lies. */
struct weights {
	const real *at; /* in model->params */
	size_t rows, columns;
};
/* y [n, columns] = x [n, rows] W + beta y, beta 0 or 1. */
void model_times(const struct model *m, struct thread_scratch *s, size_t n, const real *x,
    size_t x_stride, const struct weights *w, real beta, real *y, size_t y_stride);
/* y [n, rows] = x [n, columns] W^T + beta y. */
void model_times_transposed(const struct model *m, struct thread_scratch *s, size_t n,
    const real *x, size_t x_stride, const struct weights *w, real beta, real *y, size_t y_stride);
/* dw [rows, columns] += x[N, rows]^T y[N, columns], over all rows of the microbatch. */
void model_gather(const struct model *m, struct thread_scratch *s, const real *x, size_t x_stride,
    size_t rows, const real *y, size_t y_stride, size_t columns, real *dw);
/* The parameters may have changed, the layout's whole array: they are rounded again. */
void model_round(struct model *m);
/* For model_destroy. */
void model_end_bf16(struct model *m);
void model_end_onednn(struct model *m);

/* parts.c: what differs between architectures. */

/* Weight and bias (NULL: RMSNorm) of a norm, and what is kept of its rows. */
struct norm {
	const real *weight, *bias;
	real *mean, *rstd;
};
/* A layer's norm, from our row `row` on: `weight` is LAYOUT_NORM1_W or LAYOUT_NORM2_W. */
struct norm model_layer_norm(const struct model *m, size_t layer, enum layout_part weight,
    size_t row);
struct norm model_last_norm(const struct model *m, size_t row);
void model_norm(const struct model *m, const struct norm *norm, size_t rows, const real *x, real *y);
/* dx = carry (NULL: 0) + gradient; dbias is not touched if there is none. */
void model_norm_backward(const struct model *m, const struct norm *norm, size_t rows,
    const real *dy, const real *x, const real *carry, real *dx, real *dweight, real *dbias);

/* A linear layer, by its weight: y [rows, out] = residual (NULL: 0) + x [rows, in] W + bias. */
void model_linear(const struct model *m, struct thread_scratch *s, size_t layer,
    enum layout_part weight, size_t rows, const real *x, const real *residual, real *y);
/* dx [rows, in], whose rows are dx_stride apart. */
void model_linear_backward(const struct model *m, struct thread_scratch *s, size_t layer,
    enum layout_part weight, size_t rows, const real *dy, real *dx, size_t dx_stride);
/* The gradient of its bias, if there is one, is added in s->vectors. */
void model_bias_backward(const struct model *m, struct thread_scratch *s, enum layout_part weight,
    size_t rows, const real *dy);
/* The weight's gradient over the whole batch, this thread's rows of it. */
void model_linear_weights(const struct model *m, size_t layer, enum layout_part weight,
    const real *x, size_t x_stride, const real *dy, unsigned thread, unsigned threads);

/* [rows, U] -> [rows, F]; back as ops->swiglu_backward. */
void model_activate(const struct model *m, size_t rows, const real *up, real *out);
void model_activate_backward(const struct model *m, size_t rows, real *up, real *dup);

/* Turns the queries and keys of a chunk (which begins at a sequence's first row that is computed), or back. Nothing where positions are learned. */
void model_rotate(const struct model *m, const struct chunk *chunk, real direction, real *qkv);

/* model_dropout.c */

enum model_site {
	MODEL_SITE_EMBEDDING,
	MODEL_SITE_PROBABILITIES,
	MODEL_SITE_PROJ, /* what attention adds to the stream */
	MODEL_SITE_DOWN, /* and the MLP */
	MODEL_SITES
};

static inline bool model_drops(const struct model *m)
{
	return m->samples != NULL && m->dropout.below > 0;
}
static inline enum model_site model_site_of(enum layout_part weight)
{
	return weight == LAYOUT_PROJ_W ? MODEL_SITE_PROJ : MODEL_SITE_DOWN;
}
/* What ops->attention and its backward pass are told of a sequence; *dropout is borrowed. */
struct attention model_attention(const struct model *m, size_t layer, size_t sequence,
    struct dropout *dropout);
/* Where it does: of one of the batch's sequences. Layers are the layout's. */
struct dropout model_dropout_of(const struct model *m, enum model_site site, size_t layer,
    size_t sequence);
/* y = x [rows, C] without what is left out, of our own rows from `row` on. y may be x. */
void model_drop(const struct model *m, enum model_site site, size_t layer, size_t row, size_t rows,
    const real *x, real *y);
/* y = residual + y without that. */
void model_drop_onto(const struct model *m, enum model_site site, size_t layer, size_t row,
    size_t rows, const real *residual, real *y);
/* All our own rows of x, by all threads. */
void model_drop_all(const struct model *m, enum model_site site, size_t layer, const real *x,
    real *y);

/* tensor.c: where the model is a shard. A sum of all members is made in the exchange, [N, C]: in its two halves in turn, since others may still read
 * what we gave to the sum before (coll.h, tr_release). */

static inline real *model_exchange(const struct model *m, bool next)
{
	bool second = next == (m->turn == 1);
	return second && m->tensor->exchange_too != NULL ? m->tensor->exchange_too
	                                                 : m->tensor->exchange;
}
/* Where our part of the next sum goes, and where the last one is. */
static inline real *model_partial(const struct model *m, size_t row)
{
	return model_exchange(m, true) + row * m->layout->config.width;
}
static inline const real *model_summed(const struct model *m, size_t row)
{
	return model_exchange(m, false) + row * m->layout->config.width;
}
/* A call of the group (model_tensor.sum and so on) with numbers of the half that was written; it is the last one then. False: stopped. */
bool model_meet(struct model *m, size_t offset, size_t count,
    bool (*call)(void *arg, real *data, size_t count));
/* partial [rows, C] = x [rows, in] W, of a linear layer whose inputs are split. */
void model_linear_partial(const struct model *m, struct thread_scratch *s, size_t layer,
    enum layout_part weight, size_t rows, const real *x, real *partial);
/* model_sum in two calls: what is computed in between sees both halves as they were, and touches neither the one that was written nor what was summed before. */
bool model_sum_begin(struct model *m);
bool model_sum_end(struct model *m);
/* Sums the stream: our own rows of it are in the exchange then (model_summed), at their places among all. */
bool model_sum(struct model *m);
/* The same, then y [n, C] = residual + sum + bias of `weight`, LAYOUT_PROJ_W or LAYOUT_DOWN_W. */
bool model_sum_onto(struct model *m, size_t layer, enum layout_part weight, const real *residual,
    real *y);
bool model_embed_sum(struct model *m);
/* Adds dout [N, C] to columns [first, first + columns) of the gradients of our tokens, and that of our own rows to those of positions (NULL: none). */
void model_embed_backward_part(const struct model *m, const real *dout, size_t first,
    size_t columns, real *positions);

/* sequence.c: with sequence parallelism, from our own rows to all. Each gathers what it has written into the exchange, where it is until the call after the next one. */

/* The norm of our rows x [n, C]. */
bool model_norm_gather(struct model *m, const struct norm *norm, const real *x);
/* A copy of them. */
bool model_copy_gather(struct model *m, const real *x);
/* Where all rows of what was gathered last are; without sequence parallelism `own` are all. */
static inline const real *model_all_rows(const struct model *m, const real *own)
{
	return model_splits_rows(m) ? model_summed(m, 0) : own;
}

/* forward.c: from tokens or input through all layers of the slot in work; false: stopped. */
bool model_forward(struct model *model, const struct model_hooks *hooks);
/* forward.c: a layer again, all that its backward pass reads. */
bool model_forward_again(struct model *model, size_t layer);
/* backward.c: from m->dout (gradient of the last layer's output, or of the head's input) down. `dinput`: NULL where there is an embedding. */
bool model_backward(struct model *model, real *dinput, const struct model_hooks *hooks);
/* head.c: last norm, logits and loss; also their gradients down to dout (NULL: the loss alone). False: stopped. */
bool model_head(struct model *model, real *dout, double *loss);

#endif
