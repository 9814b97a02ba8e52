#include "daemon/checkpoint/shard.h"

#include <string.h>

static tr_status divide(const char *key, uint32_t count, uint32_t by, uint32_t *part,
    struct tr_error *error)
{
	if (count % by != 0)
		return tr_error_set(error, TR_EINVAL,
		    "model.%s: found %u, allowed: a multiple of mesh.tp, which is %u", key, count,
		    by);
	*part = count / by;
	return TR_OK;
}

tr_status shard_layout(const struct layout *whole, const struct shard *shard, struct layout *local,
    struct tr_error *error)
{
	struct model_config config = whole->config;
	uint32_t n = shard->size;
	if (n == 0 || shard->rank >= n)
		return tr_error_set(error, TR_EINVAL, "mesh.tp: found %u, rank %u", n, shard->rank);
	tr_status status = divide("heads", config.heads, n, &config.heads, error);
	if (status == TR_OK)
		status = divide("kv_heads", config.kv_heads, n, &config.kv_heads, error);
	if (status == TR_OK)
		status = divide("hidden", config.hidden, n, &config.hidden, error);
	config.vocab = (config.vocab + n - 1) / n;
	return status == TR_OK ? layout_init_depth(&config, &shard->depth, local, error) : status;
}

/* Sizes of what stands side by side in a dimension that is split: [begin, end) of each is another's share. */
struct sides {
	size_t count, whole[SHARD_PIECES_MAX], local[SHARD_PIECES_MAX];
};

/* The tensor of the whole model. */
static const struct layout_tensor *whole_of(const struct layout *whole, const struct layout *local,
    size_t tensor)
{
	return &whole->tensors[local->tensors[tensor].number];
}

static struct sides sides_of(const struct layout *whole, const struct layout *local, size_t tensor)
{
	const struct model_config *w = &whole->config, *l = &local->config;
	if (local->tensors[tensor].fused)
		return (struct sides){ 3, { model_queries(w), model_keys(w), model_keys(w) },
			{ model_queries(l), model_keys(l), model_keys(l) } };
	return (struct sides){ 1, { whole_of(whole, local, tensor)->columns },
		{ local->tensors[tensor].columns } };
}

static size_t rows_of(const struct layout_tensor *tensor)
{
	return tensor->rows > 0 ? tensor->rows : 1;
}

bool shard_whole(const struct layout *whole, const struct layout *local, size_t tensor)
{
	const struct layout_tensor *w = whole_of(whole, local, tensor);
	const struct layout_tensor *l = &local->tensors[tensor];
	return w->rows == l->rows && w->columns == l->columns;
}

static size_t pieces_of_columns(const struct layout *whole, const struct layout *local,
    const struct shard *shard, size_t tensor, struct shard_piece *pieces)
{
	const struct layout_tensor *w = whole_of(whole, local, tensor);
	const struct layout_tensor *l = &local->tensors[tensor];
	struct sides sides = sides_of(whole, local, tensor);
	size_t from = w->offset, to = l->offset;
	for (size_t i = 0; i < sides.count; i++) {
		pieces[i] = (struct shard_piece){ rows_of(w), sides.local[i],
			from + shard->rank * sides.local[i], w->columns, to, l->columns };
		from += sides.whole[i];
		to += sides.local[i];
	}
	return sides.count;
}

size_t shard_pieces(const struct layout *whole, const struct layout *local,
    const struct shard *shard, size_t tensor, struct shard_piece pieces[SHARD_PIECES_MAX])
{
	const struct layout_tensor *w = whole_of(whole, local, tensor);
	const struct layout_tensor *l = &local->tensors[tensor];
	if (w->columns != l->columns)
		return pieces_of_columns(whole, local, shard, tensor, pieces);
	size_t first = w->rows == l->rows ? 0 : shard->rank * l->rows;
	size_t left = first < rows_of(w) ? rows_of(w) - first : 0;
	pieces[0] = (struct shard_piece){ left < rows_of(l) ? left : rows_of(l), w->columns,
		w->offset + first * w->columns, w->columns, l->offset, l->columns };
	return left > 0;
}

static void copy(const struct shard_piece *piece, const float *from, size_t from_stride, float *to,
    size_t to_stride)
{
	for (size_t row = 0; row < piece->rows; row++)
		memcpy(to + row * to_stride, from + row * from_stride, piece->columns * sizeof(*to));
}

void shard_take(const struct layout *whole, const struct layout *local, const struct shard *shard,
    const float *whole_numbers, float *local_numbers)
{
	struct shard_piece pieces[SHARD_PIECES_MAX];
	memset(local_numbers, 0, local->count * sizeof(*local_numbers));
	for (size_t t = 0; t < local->tensor_count; t++) {
		size_t count = shard_pieces(whole, local, shard, t, pieces);
		for (size_t i = 0; i < count; i++)
			copy(&pieces[i], whole_numbers + pieces[i].whole, pieces[i].whole_stride,
			    local_numbers + pieces[i].local, pieces[i].local_stride);
	}
}

void shard_put(const struct layout *whole, const struct layout *local, const struct shard *shard,
    const float *local_numbers, float *whole_numbers)
{
	struct shard_piece pieces[SHARD_PIECES_MAX];
	for (size_t t = 0; t < local->tensor_count; t++) {
		size_t count = shard_pieces(whole, local, shard, t, pieces);
		for (size_t i = 0; i < count; i++)
			copy(&pieces[i], local_numbers + pieces[i].local, pieces[i].local_stride,
			    whole_numbers + pieces[i].whole, pieces[i].whole_stride);
	}
}

static void copy_part(const struct shard_piece *p, const float *local_numbers, size_t first,
    size_t end, float *to)
{
	size_t row = first >= p->whole + p->columns
	    ? (first - p->whole - p->columns) / p->whole_stride + 1
	    : 0;
	for (; row < p->rows && p->whole + row * p->whole_stride < end; row++) {
		size_t start = p->whole + row * p->whole_stride, last = start + p->columns;
		size_t from = start > first ? start : first, till = last < end ? last : end;
		memcpy(to + (from - first),
		    local_numbers + p->local + row * p->local_stride + (from - start),
		    (till - from) * sizeof(*to));
	}
}

void shard_put_part(const struct layout *whole, const struct layout *local,
    const struct shard *shard, size_t tensor, const float *local_numbers, size_t first, size_t end,
    float *to)
{
	struct shard_piece pieces[SHARD_PIECES_MAX];
	size_t count = shard_pieces(whole, local, shard, tensor, pieces);
	for (size_t i = 0; i < count; i++)
		copy_part(&pieces[i], local_numbers, first, end, to);
}
