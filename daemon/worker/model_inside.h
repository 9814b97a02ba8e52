/* Inside the model: what forward.c leaves for backward.c. Not for others. */
#ifndef TR_DAEMON_WORKER_MODEL_INSIDE_H
#define TR_DAEMON_WORKER_MODEL_INSIDE_H

#include "daemon/worker/model.h"

/* Tokens that a thread takes through a layer together: their activations fit its L2 cache. */
#define MODEL_CHUNK_ROWS 256

/* N rows (tokens), C width, H heads. */
struct layer_activations {
	real *norm1, *mean1, *rstd1; /* [N, C] [N] [N] */
	real *qkv;                   /* [N, 3C] */
	real *row_max, *row_scale;   /* [sequences, H, length] */
	real *attended;              /* [N, C] */
	real *middle;                /* [N, C] residual stream after attention */
	real *norm2, *mean2, *rstd2; /* [N, C] [N] [N] */
	real *up;  /* [N, 4C] before GELU; the backward pass turns it into GELU's result */
	real *out; /* [N, C] residual stream after the layer */
};

/* Gradients of a layer's vectors, by thread; folded into the layer's gradients at the end. In
 * numbers of width. */
enum {
	VECTOR_NORM1_W,
	VECTOR_NORM1_B,
	VECTOR_QKV_B,
	VECTOR_PROJ_B = 5,
	VECTOR_NORM2_W,
	VECTOR_NORM2_B,
	VECTOR_UP_B,
	VECTOR_DOWN_B = 12,
	VECTORS
};

struct thread_scratch {
	real *wide;      /* [chunk, 4C] */
	real *narrow;    /* [chunk, C] */
	real *attention; /* 2 x attention_scratch */
	real *vectors;   /* [VECTORS, C] */
	double loss;
};

struct model {
	const struct layout *layout;
	struct pool *pool;
	const struct ops *ops;
	const real *params;
	real *grads;
	size_t max_sequences;
	real *memory;   /* one allocation for all that follows */
	real *embedded; /* [N, C] */
	struct layer_activations *layers;
	real *last_norm, *last_mean, *last_rstd; /* [N, C] [N] [N] */
	real *logits;                            /* [N, V]; then their gradient */
	real *dout, *dmiddle, *dx;               /* [N, C] */
	real *dup;                               /* [N, 4C] */
	real *dqkv;                              /* [N, 3C] */
	struct thread_scratch *scratch;          /* one a thread */

	/* The batch in work. */
	const int32_t *inputs, *targets;
	size_t sequences, length;
	size_t first; /* rows of the one sequence that are there already; 0 but in model_extend */
	bool train;
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
/* Steps through the chunks of a thread's share; start with *next = 0. */
bool model_next_chunk(const struct model *model, unsigned thread, unsigned threads, size_t *next,
    struct chunk *chunk);

static inline const real *model_param(const struct model *model, size_t layer,
    enum layout_in_layer which)
{
	return model->params + layout_layer(model->layout, layer, which);
}

static inline const real *model_layer_input(const struct model *model, size_t layer)
{
	return layer == 0 ? model->embedded : model->layers[layer - 1].out;
}

static inline bool model_progress(const struct model_hooks *hooks)
{
	return hooks == NULL || hooks->progress == NULL || hooks->progress(hooks->arg);
}

/* forward.c: through all layers; false: stopped. */
bool model_forward(struct model *model, const struct model_hooks *hooks);
/* backward.c: from dout (gradient of the last layer's output) down. */
bool model_backward(struct model *model, const struct model_hooks *hooks);
/* head.c: last norm, logits and loss; with model->train also their gradients down to dout. */
double model_head(struct model *model);

#endif
