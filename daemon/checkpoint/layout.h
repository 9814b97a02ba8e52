/* Where each parameter lies. All parameters are one array of `count` numbers; gradients and both
 * moments have the same layout. Names and shapes are Hugging Face's GPT-2 (linear weights are [in,
 * out]). Tensors begin at multiples of 16 numbers; what lies between is zero and stays zero.
 *
 * The order is the forward pass's (embeddings, layers, last norm), so that in the backward pass
 * gradients become final from the end of the array towards its start.
 */
#ifndef TR_DAEMON_CHECKPOINT_LAYOUT_H
#define TR_DAEMON_CHECKPOINT_LAYOUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/error.h"

#define LAYOUT_NAME_MAX 64

struct model_config {
	uint32_t layers;
	uint32_t width;   /* C */
	uint32_t heads;   /* divides width */
	uint32_t context; /* most tokens of a sequence */
	uint32_t vocab;   /* V */
};

struct layout_tensor {
	char name[LAYOUT_NAME_MAX];
	size_t offset; /* in numbers */
	size_t rows;   /* 0: a vector of `columns` */
	size_t columns;
};

enum layout_global { LAYOUT_TOKENS, LAYOUT_POSITIONS, LAYOUT_FIRST_LAYER };

enum layout_in_layer {
	LAYOUT_NORM1_W, /* [C] */
	LAYOUT_NORM1_B, /* [C] */
	LAYOUT_QKV_W,   /* [C, 3C] */
	LAYOUT_QKV_B,   /* [3C] */
	LAYOUT_PROJ_W,  /* [C, C] */
	LAYOUT_PROJ_B,  /* [C] */
	LAYOUT_NORM2_W, /* [C] */
	LAYOUT_NORM2_B, /* [C] */
	LAYOUT_UP_W,    /* [C, 4C] */
	LAYOUT_UP_B,    /* [4C] */
	LAYOUT_DOWN_W,  /* [4C, C] */
	LAYOUT_DOWN_B,  /* [C] */
	LAYOUT_PER_LAYER
};

struct layout {
	struct model_config config;
	size_t count;      /* numbers in all, gaps included */
	size_t parameters; /* without gaps */
	size_t tensor_count;
	struct layout_tensor *tensors; /* by ascending offset */
};

/* Arrays of layout->count numbers: what an optimizer works on. */
struct optim_arrays {
	float *params, *grads, *first, *second;
	float *outer; /* outer momentum (sync modes but ddp); NULL: none */
};

tr_status layout_init(const struct model_config *config, struct layout *layout,
    struct tr_error *error);
void layout_finish(struct layout *layout);

/* Offsets of a layer's tensor, and of the last norm's weight (which = 0) and bias (1). */
size_t layout_layer(const struct layout *layout, size_t layer, enum layout_in_layer which);
size_t layout_last_norm(const struct layout *layout, size_t which);
static inline size_t layout_numbers(const struct layout_tensor *tensor)
{
	return (tensor->rows > 0 ? tensor->rows : 1) * tensor->columns;
}

#endif
