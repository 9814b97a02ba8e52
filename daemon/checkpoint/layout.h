/* Where each parameter lies. All parameters are one array of `count` numbers; gradients and both
 * moments have the same layout. Names and shapes are Hugging Face's, GPT-2's with linear weights
 * [in, out], Llama's with [out, in]. Parts begin at multiples of 16 numbers; what lies between is
 * zero and stays zero.
 *
 * The order is the forward pass's (embeddings, layers, last norm, head), so that in the backward
 * pass gradients become final from the end of the array towards its start.
 *
 * A rank of a pipeline holds some of the layers: its layout is that of a model with so many, whose tensors keep the names that they have in the
 * whole one. With several chunks (daemon/plan/schedule.h) they lie one behind the other, so that gradients become final from the end here too.
 * A tied table is at the first stage and at the last; there it is a copy (layout_copied_table).
 */
#ifndef TR_DAEMON_CHECKPOINT_LAYOUT_H
#define TR_DAEMON_CHECKPOINT_LAYOUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/error.h"
#include "common/limits.h"
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
	size_t number;         /* in the layout of the whole model */
};

/* Layers of the whole model. */
struct layout_range {
	uint32_t first, count;
};

/* What a rank of a pipeline holds: the layers of its chunks, and what is before the first layer or behind the last. Zeroed: everything. */
struct layout_depth {
	uint32_t chunks;                                    /* 0: everything */
	struct layout_range layers[TR_SCHEDULE_CHUNKS_MAX]; /* ascending */
	bool embedding, head;                               /* of the first chunk, of the last */
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
	struct model_config config; /* filled; of `layers` those that are here */
	struct layout_depth depth;  /* filled: one chunk at least */
	const struct model_architecture *architecture;
	size_t count;      /* numbers in all, gaps included */
	size_t parameters; /* without gaps */
	size_t tensor_count;
	struct layout_tensor *tensors; /* by ascending offset */

	size_t tokens, positions;   /* offsets: [V, C], [context, C]; or LAYOUT_NONE */
	size_t first_layer, stride; /* stride: numbers of a layer */
	struct layout_place parts[LAYOUT_PARTS];
	size_t vectors;                  /* numbers of all vectors of a layer */
	size_t last_norm_w, last_norm_b; /* [C]; or LAYOUT_NONE */
	size_t head; /* [V, C]; if tied, that of the tokens or a copy; or LAYOUT_NONE */
};

/* Arrays of layout->count numbers: what an optimizer works on. */
struct optim_arrays {
	float *params, *grads, *first, *second;
	float *outer; /* outer momentum (sync modes but ddp); NULL: none */
};

/* Where config has 0 for a default, layout->config has the default. TR_ELIMIT: it has more than TR_MODEL_NUMBERS_MAX numbers; up to there bytes of all
 * arrays fit in 64 bits. */
tr_status layout_init(const struct model_config *config, struct layout *layout,
    struct tr_error *error);
/* Of the model that `config` is as a whole, what `depth` says. TR_EINVAL: it has no such layers. */
tr_status layout_init_depth(const struct model_config *config, const struct layout_depth *depth,
    struct layout *layout, struct tr_error *error);
void layout_finish(struct layout *layout);

/* Which block a tensor of the whole model is of, by its offset: 0 is what comes before the layers (embeddings), then each layer, layers + 1 what comes behind them. Fragments of a
 * merge are made of whole blocks (struct tr_sync_tensor, layer). */
unsigned layout_block(const struct layout *layout, size_t offset);

/* What rank `rank` of `ranks` holds where stage s, of ranks * chunks, has stage_layers[s] layers. */
void layout_depth_of(const uint32_t *stage_layers, uint32_t ranks, uint32_t chunks, uint32_t rank,
    struct layout_depth *depth);

/* A tied table of which another stage has a copy: its offset and numbers. Its gradient is the sum of both. False: there is none. */
bool layout_copied_table(const struct layout *layout, size_t *offset, size_t *numbers);

/* Offset of a part of the layout's layer `layer`, from 0; LAYOUT_NONE. A layer begins with LAYOUT_NORM1_W. */
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
