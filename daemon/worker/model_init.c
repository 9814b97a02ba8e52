#include <math.h>
#include <string.h>

#include "common/rng.h"
#include "daemon/worker/exact_math.h"
#include "daemon/worker/model.h"
#include "daemon/worker/random.h"

/* Box-Muller; two words of 32 bits, the first in (0, 1] so that its logarithm is finite. */
static double exact_normal(struct rng_key key, uint64_t counter)
{
	uint64_t bits = rng_u64(key, RANDOM_INIT, counter);
	double u = ((double)(bits >> 32) + 1) * 0x1p-32;
	double turn = (double)(bits & 0xffffffffu) * 0x1p-32;
	return sqrt(-2 * exact_log(u)) * exact_cos_turns(turn);
}

/* `first`: number of the piece's first element in its tensor. */
static void init_piece(const struct shard_piece *piece, size_t first, enum layout_init init,
    double spread, struct rng_key key, const struct progress *progress, real *params)
{
	for (size_t row = 0; row < piece->rows; row++) {
		real *to = params + piece->local + row * piece->local_stride;
		uint64_t element = first + row * piece->whole_stride;
		for (size_t i = 0; i < piece->columns; i++)
			to[i] = init == LAYOUT_ONES
			    ? 1
			    : (real)(spread * exact_normal(key, element + i));
		progress_tell(progress);
	}
}

void model_init_shard(const struct layout *whole, const struct layout *local,
    const struct shard *shard, uint64_t seed, const struct progress *progress, real *params)
{
	struct shard_piece pieces[SHARD_PIECES_MAX];
	double residual = 0.02 / sqrt(2.0 * whole->config.layers);
	memset(params, 0, local->count * sizeof(*params));
	for (size_t t = 0; t < local->tensor_count; t++) {
		size_t number = local->tensors[t].number;
		const struct layout_tensor *tensor = &whole->tensors[number];
		size_t count = tensor->init == LAYOUT_ZEROS
		    ? 0
		    : shard_pieces(whole, local, shard, t, pieces);
		for (size_t i = 0; i < count; i++)
			init_piece(&pieces[i], pieces[i].whole - tensor->offset, tensor->init,
			    tensor->init == LAYOUT_RESIDUAL ? residual : 0.02,
			    rng_key(seed, number, 0), progress, params);
	}
}

void model_init_params(const struct layout *layout, uint64_t seed, real *params)
{
	model_init_shard(layout, layout, &(struct shard){ .size = 1 }, seed, NULL, params);
}
