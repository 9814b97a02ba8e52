/* A worker's shard of a model, cut further into equal parts over the width (daemon/plan/strict.h): part `number` of `parts` is what shard rank x parts + number of so many times more would be.
 * Each is a layout of its own, for a model of its own. Parameters are copied to the parts, gradients from them. Pure.
 *
 * A tied table is in each part twice where a worker has both ends of the model: for the embedding, and for the head behind everything else. For its two gradients are summed up apart, as
 * they are where two stages of a pipeline have the ends; an array of gradients has room for the second behind the layout.
 */
#ifndef TR_DAEMON_CHECKPOINT_SHARD_CUT_H
#define TR_DAEMON_CHECKPOINT_SHARD_CUT_H

#include "daemon/checkpoint/shard.h"

struct shard_cut {
	const struct layout *whole; /* the worker's */
	struct layout part;         /* of each part */
	uint32_t parts;
	size_t numbers; /* of the worker's gradients: more than whole->count with a second table */
};

/* `whole` stays borrowed. TR_EINVAL names what does not divide; then nothing is to be finished. */
tr_status shard_cut_init(const struct layout *whole, uint32_t parts, struct shard_cut *cut,
    struct tr_error *error);
void shard_cut_finish(struct shard_cut *cut); /* accepts a zeroed one */

/* Tensors of a part; tensor whole->tensor_count is a second table. */
size_t shard_cut_tensors(const struct shard_cut *cut);
/* Where the numbers of a tensor of part `number` are in the worker's array (`whole`), of gradients or of parameters, and in the part's (`local`). How many pieces: of a part's tensor the same, whoever has the part. */
size_t shard_cut_pieces(const struct shard_cut *cut, uint32_t number, size_t tensor, bool gradients,
    struct shard_piece pieces[SHARD_PIECES_MAX]);
/* Do all parts, and all workers of a tensor-parallel group, hold this tensor of the layout whole: a norm, positions, a bias behind a sum? */
bool shard_cut_shared(const struct layout *layout, size_t tensor);

/* Numbers of a second table of the tied model that `layout` is of; 0: it is not tied. */
size_t shard_cut_table_numbers(const struct layout *layout);

#endif
