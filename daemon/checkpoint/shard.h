/* What one worker of a mesh holds of a model. Over the width, as Megatron-LM places it (Shoeybi et al., arXiv 1909.08053): heads of queries, keys and
 * values, hidden channels of the MLP, rows of the vocabulary; norms, learned positions and biases behind a sum are whole at each. Over the depth, the layers of
 * its stages of the pipeline, the first stage with the embedding and the last with the head (a tied table is with both). A shard is a layout of its
 * own, of a model with smaller counts, and a list of pieces that says where its numbers are in the whole one. So whatever walks over a layout (optimizer,
 * checkpoint, transfer) works on a shard as it is.
 *
 *	struct shard shard = { .rank = 1, .size = 2 };    // of two; all layers
 *	layout_depth_of(stage_layers, 4, 1, 3, &shard.depth); // those of the last of four stages
 *	shard_layout(&whole, &shard, &local, &error);     // GPT-2, width 768: c_attn.weight is [768, 1152] here
 *	shard_take(&whole, &local, &shard, params, mine); // mine [local.count]
 *
 * The vocabulary is divided into equal parts of rows; where it does not divide, the last ones end with rows of zeros that stand for no token. Pure.
 */
#ifndef TR_DAEMON_CHECKPOINT_SHARD_H
#define TR_DAEMON_CHECKPOINT_SHARD_H

#include "daemon/checkpoint/layout.h"

struct shard {
	uint32_t rank, size; /* over the width: of the tensor-parallel group */
	struct layout_depth depth;
};

/* A block of numbers that a shard's tensor has in common with the whole one: `rows` rows of `columns`, from these offsets into both arrays on. */
struct shard_piece {
	size_t rows, columns;
	size_t whole, whole_stride; /* in numbers; strides from row to row */
	size_t local, local_stride;
};

#define SHARD_PIECES_MAX 3 /* GPT-2's queries, keys and values are columns of one matrix */

/* `local` is finished with layout_finish. TR_EINVAL names the key of the job file, and says what is allowed. */
tr_status shard_layout(const struct layout *whole, const struct shard *shard, struct layout *local,
    struct tr_error *error);

/* Of tensor `tensor` of the local layout (local->tensors[tensor].number in the whole one). How many: 0 if all of it stands for no token. */
size_t shard_pieces(const struct layout *whole, const struct layout *local,
    const struct shard *shard, size_t tensor, struct shard_piece pieces[SHARD_PIECES_MAX]);

/* Is that tensor, of the local layout, the same at all members of the tensor-parallel group? */
bool shard_whole(const struct layout *whole, const struct layout *local, size_t tensor);

/* From an array of the whole layout to one of the shard's, padding and gaps zeroed, and back (the rest of `whole_numbers` is not touched). */
void shard_take(const struct layout *whole, const struct layout *local, const struct shard *shard,
    const float *whole_numbers, float *local_numbers);
void shard_put(const struct layout *whole, const struct layout *local, const struct shard *shard,
    const float *local_numbers, float *whole_numbers);
/* The same of tensor `tensor` (of the local layout) alone, and of the whole's numbers [first, end) alone, into to[0 .. end - first). */
void shard_put_part(const struct layout *whole, const struct layout *local,
    const struct shard *shard, size_t tensor, const float *local_numbers, size_t first, size_t end,
    float *to);

#endif
