/* Where each parameter lies. All parameters are one array of `count` numbers; gradients and both
 * moments have the same layout. Names and shapes are Hugging Face's, GPT-2's with linear weights
 * [in, out], Llama's with [out, in]. Parts begin at multiples of 16 numbers; what lies between is
 * zero and stays zero.
 *
 * The order is the forward pass's (embeddings, layers, last norm, head), so that in the backward
 * pass gradients become final from the end of the array towards its start.
 */
#ifndef TR_DAEMON_CHECKPOINT_LAYOUT_H
#define TR_DAEMON_CHECKPOINT_LAYOUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/error.h"
#include "daemon/plan/model_config.h"

#define LAYOUT_NAME_MAX 64
#define LAYOUT_NONE     SIZE_MAX /* the architecture has no such part */

enum layout_init { LAYOUT_ZEROS, LAYOUT_ONES, LAYOUT_NORMAL, LAYOUT_RESIDUAL };

struct layout_tensor {
	char name[LAYOUT_NAME_MAX];
	size_t offset; /* in numbers */
	size_t rows;   /* 0: a vector of `columns` */
	size_t columns;
	enum layout_init init; /* of its numbers, see model_init_params */
	bool fused;            /* its columns are queries, keys and values side by side */
};

/* A layer's parameters by their use. One part may be several tensors, one after the other without a
 * gap: queries, keys and values of Llama are the rows of one matrix. A bias follows its weight here;
 * sizes are in model_config.h. */
enum layout_part {
	LAYOUT_NORM1_W, /* C */
	LAYOUT_NORM1_B,
	LAYOUT_QKV_W, /* C -> queries, keys, values */
	LAYOUT_QKV_B,
	LAYOUT_PROJ_W, /* queries -> C */
	LAYOUT_PROJ_B,
	LAYOUT_NORM2_W, /* C */
	LAYOUT_NORM2_B,
	LAYOUT_UP_W, /* C -> up: gate and up, or F */
	LAYOUT_UP_B,
	LAYOUT_DOWN_W, /* F -> C */
	LAYOUT_DOWN_B,
	LAYOUT_PARTS
};

struct layout_place {
	size_t offset;  /* from the layer's first number; LAYOUT_NONE */
	size_t in, out; /* in 0: a vector of `out` */
	size_t vector;  /* of a vector: where it lies among those of its layer */
};

struct layout {
	struct model_config config; /* filled */
	const struct model_architecture *architecture;
	size_t count;      /* numbers in all, gaps included */
	size_t parameters; /* without gaps */
	size_t tensor_count;
	struct layout_tensor *tensors; /* by ascending offset */

	size_t tokens, positions;   /* offsets: [V, C], [context, C] or LAYOUT_NONE */
	size_t first_layer, stride; /* stride: numbers of a layer */
	struct layout_place parts[LAYOUT_PARTS];
	size_t vectors;                  /* numbers of all vectors of a layer */
	size_t last_norm_w, last_norm_b; /* [C]; bias: or LAYOUT_NONE */
	size_t head;                     /* [V, C]; if tied, that of the tokens */
};

/* Arrays of layout->count numbers: what an optimizer works on. */
struct optim_arrays {
	float *params, *grads, *first, *second;
	float *outer; /* outer momentum (sync modes but ddp); NULL: none */
};

/* Where config has 0 for a default, layout->config has the default. */
tr_status layout_init(const struct model_config *config, struct layout *layout,
    struct tr_error *error);
void layout_finish(struct layout *layout);

/* Offset of a layer's part; LAYOUT_NONE. A layer begins with LAYOUT_NORM1_W. */
static inline size_t layout_layer(const struct layout *layout, size_t layer, enum layout_part which)
{
	size_t offset = layout->parts[which].offset;
	return offset == LAYOUT_NONE ? LAYOUT_NONE
	                             : layout->first_layer + layer * layout->stride + offset;
}

static inline size_t layout_numbers(const struct layout_tensor *tensor)
{
	return (tensor->rows > 0 ? tensor->rows : 1) * tensor->columns;
}

#endif
