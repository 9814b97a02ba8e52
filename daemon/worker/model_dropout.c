/* Dropout in the model (dropout.h): of which arrays what is left out, by the number of the sample in the whole job, the layer of the whole model, the head of all heads, and rows and columns by their places
 * in the sequence. So it is the same wherever a sample is computed, with whichever others, and however the layers are split. */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>

#include "common/rng.h"
#include "daemon/worker/model_inside.h"
#include "daemon/worker/random.h"

tr_status model_use_dropout(struct model *m, double share, uint64_t seed, struct tr_error *error)
{
	if (share <= 0)
		return TR_OK;
	if (m->virtual_members != NULL)
		return virtual_use_dropout(m, share, seed, error);
	struct model_dropout *d = &m->dropout;
	size_t rows = m->max_sequences * m->layout->config.context;
	size_t own = model_splits_rows(m) ? rows / m->room.row_parts : rows;
	size_t numbers = (own * m->layout->config.width + 15) / 16 * 16;
	size_t bytes = 2 * numbers * sizeof(real);
	real *memory = model_allocate(bytes, &d->allocated);
	if (memory == NULL)
		return tr_error_set(error, TR_ENOMEM,
		    "train.dropout: no memory for gradients (%zu MiB)", bytes >> 20);
	d->below = (int32_t)lround(ldexp(share, DROPOUT_BITS));
	d->scale = (real)(1 / (1 - share));
	d->seed = seed;
	d->depth = &m->layout->depth;
	d->dproj = memory;
	d->ddown = memory + numbers;
	m->bytes.working += bytes;
	return TR_OK;
}

/* Of the whole model. */
static uint64_t layer_number(const struct layout_depth *depth, size_t layer)
{
	for (uint32_t c = 0; c < depth->chunks; c++) {
		const struct layout_range *range = &depth->layers[c];
		if (layer < range->count)
			return range->first + layer;
		layer -= range->count;
	}
	return layer;
}

struct dropout model_dropout_of(const struct model *m, enum model_site site, size_t layer,
    size_t sequence)
{
	const struct model_dropout *d = &m->dropout;
	struct rng_key key = rng_key(d->seed, m->samples[sequence], 0);
	uint64_t number = site == MODEL_SITE_EMBEDDING ? 0 : layer_number(d->depth, layer);
	return (struct dropout){ rng_u64(key, RANDOM_DROPOUT, number * MODEL_SITES + site),
		d->below, d->scale };
}

struct attention model_attention(const struct model *m, size_t layer, size_t sequence,
    struct dropout *dropout)
{
	const struct model_config *config = &m->layout->config;
	struct attention shape = { .length = m->length,
		.first = m->first,
		.heads = config->heads,
		.kv_heads = config->kv_heads,
		.head = config->head_width };
	if (!model_drops(m))
		return shape;
	*dropout = model_dropout_of(m, MODEL_SITE_PROBABILITIES, layer, sequence);
	shape.first_head = m->tensor != NULL ? m->tensor->rank * (size_t)config->heads : 0;
	shape.dropout = dropout;
	return shape;
}

/* Rows of one sequence after another: [*row, *row + the returned number) of our own are of `sequence`, from its row `first` on. */
static size_t rows_of_sequence(const struct model *m, size_t row, size_t end, size_t *sequence,
    size_t *first)
{
	size_t at = model_own_first(m) + row, left;
	*sequence = at / m->length;
	*first = at % m->length;
	left = m->length - *first;
	return left < end - row ? left : end - row;
}

void model_drop(const struct model *m, enum model_site site, size_t layer, size_t row, size_t rows,
    const real *x, real *y)
{
	size_t C = m->layout->config.width, sequence, first;
	for (size_t at = row, n; at < row + rows; at += n) {
		n = rows_of_sequence(m, at, row + rows, &sequence, &first);
		struct dropout d = model_dropout_of(m, site, layer, sequence);
		m->ops->drop(&d, first, n, C, x + (at - row) * C, y + (at - row) * C);
	}
}

void model_drop_onto(const struct model *m, enum model_site site, size_t layer, size_t row,
    size_t rows, const real *residual, real *y)
{
	size_t C = m->layout->config.width, sequence, first;
	for (size_t at = row, n; at < row + rows; at += n) {
		n = rows_of_sequence(m, at, row + rows, &sequence, &first);
		struct dropout d = model_dropout_of(m, site, layer, sequence);
		m->ops->drop_onto(&d, first, n, C, residual + (at - row) * C, y + (at - row) * C);
	}
}

struct drop_all {
	const struct model *model;
	enum model_site site;
	size_t layer;
	const real *x;
	real *y;
};

static void drop_part(void *arg, unsigned thread, unsigned threads)
{
	const struct drop_all *all = arg;
	const struct model *m = all->model;
	size_t C = m->layout->config.width;
	struct chunk c;
	for (size_t next = 0; model_next_own(m, thread, threads, &next, &c);)
		model_drop(m, all->site, all->layer, c.row, c.rows, all->x + c.row * C,
		    all->y + c.row * C);
}

void model_drop_all(const struct model *m, enum model_site site, size_t layer, const real *x,
    real *y)
{
	struct drop_all all = { m, site, layer, x, y };
	pool_run_flushing(m->pool, drop_part, &all);
}
