/* Causal self-attention of one sequence, in tiles of query rows, so that never more than
 * ATTENTION_TILE x length scores exist; the backward pass makes them again from the rows' maximum
 * and scale (as FlashAttention does, Dao et al., 2205.14135). A tile's products are made in steps
 * of fewer rows, and keys that no row of a step may see are not computed.
 */
#include <string.h>

#include "daemon/worker/dropout.h"
#include "daemon/worker/gemm.h"
#include "daemon/worker/lanes.h"
#include "daemon/worker/ops.h"

/* Rows of a tile that are multiplied at once: with fewer less is computed in vain, but BLAS is slower. */
#define ATTENTION_STEP 32

/* Also a step of one. */
struct OP(tile) {
	size_t first, rows; /* queries */
	size_t keys;        /* visible to the last of them */
	size_t stride;      /* of the scores */
};

static size_t OP(round_up)(size_t count)
{
	return (count + LANES - 1) / LANES * LANES;
}

static struct OP(tile) OP(tile_at)(size_t first, size_t length)
{
	size_t rows = length - first < ATTENTION_TILE ? length - first : ATTENTION_TILE;
	size_t keys = first + rows;
	return (struct OP(tile)){ first, rows, keys, OP(round_up)(keys) };
}

/* From row `row` of the tile on. */
static struct OP(tile) OP(step_at)(const struct OP(tile) * tile, size_t row)
{
	size_t left = tile->rows - row, rows = left < ATTENTION_STEP ? left : ATTENTION_STEP;
	size_t first = tile->first + row;
	return (struct OP(tile)){ first, rows, first + rows, tile->stride };
}

static size_t OP(qkv_stride)(const struct attention *shape)
{
	return (shape->heads + 2 * shape->kv_heads) * shape->head;
}

/* Where a head's keys are from its queries, and its values from its keys. */
static size_t OP(to_keys)(const struct attention *shape, size_t h)
{
	return (shape->heads - h + h / (shape->heads / shape->kv_heads)) * shape->head;
}

static size_t OP(to_values)(const struct attention *shape)
{
	return shape->kv_heads * shape->head;
}

/* Keys or values of a head, as [head, length]: OpenBLAS multiplies by them faster than by what it has to turn itself, and most of them are multiplied by several times. */
static void OP(transpose)(const struct attention *shape, const real *x, real *turned)
{
	gemm_transpose(shape->length, shape->head, x, OP(qkv_stride)(shape), turned,
	    OP(round_up)(shape->length));
}

/* y[rows, keys] = scale X K^T, of what the tile's rows may see; of a step's other keys y stays as it is. */
static void OP(by_keys)(const struct attention *shape, const struct OP(tile) * tile, real scale,
    const real *x, size_t x_stride, const real *turned, real *y)
{
	for (size_t row = 0; row < tile->rows; row += ATTENTION_STEP) {
		struct OP(tile) step = OP(step_at)(tile, row);
		gemm_nn(step.rows, step.keys, shape->head, scale, x + row * x_stride, x_stride,
		    turned, OP(round_up)(shape->length), 0, y + row * tile->stride, tile->stride);
	}
}

/* y[rows, head] = P V, where P is zero of what the rows may not see. */
static void OP(by_rows)(const struct attention *shape, const struct OP(tile) * tile, const real *p,
    const real *v, real *y, size_t y_stride)
{
	for (size_t row = 0; row < tile->rows; row += ATTENTION_STEP) {
		struct OP(tile) step = OP(step_at)(tile, row);
		gemm_nn(step.rows, shape->head, step.keys, 1, p + row * tile->stride, tile->stride,
		    v, OP(qkv_stride)(shape), 0, y + row * y_stride, y_stride);
	}
}

/* y[keys, head] = P^T X + beta y. */
static void OP(to_keys_gradient)(const struct attention *shape, const struct OP(tile) * tile,
    const real *p, const real *x, size_t x_stride, real beta, real *y)
{
	size_t stride = OP(qkv_stride)(shape), done = 0;
	for (size_t row = 0; row < tile->rows; row += ATTENTION_STEP) {
		struct OP(tile) step = OP(step_at)(tile, row);
		gemm_tn(step.keys - done, shape->head, tile->rows - row, 1,
		    p + row * tile->stride + done, tile->stride, x + row * x_stride, x_stride, beta,
		    y + done * stride, stride);
		done = step.keys;
	}
}

/* The key of a head's dropout. */
static uint64_t OP(head_key)(const struct attention *shape, size_t h)
{
	return dropout_key(shape->dropout->key, shape->first_head + h);
}

/* Rows of e^(score - max), in place: the same without what is left out of the probabilities. */
static void OP(
    drop_scores)(const struct dropout *d, uint64_t head, const struct OP(tile) * tile, real *scores)
{
	uint32_t keys = (uint32_t)tile->keys;
	real scale = d->scale;
	int32_t below = d->below;
	for (size_t i = 0; i < tile->rows; i++) {
		real *row = scores + i * tile->stride;
		uint64_t key = dropout_key(head, tile->first + i);
		for (uint32_t j = 0; j < keys; j++)
			row[j] = dropout_draw(key, j) < below ? 0 : row[j] * scale;
	}
}

/* Row of scores -> e^(score - max), zero where the query may not look. Returns 1 / their sum. */
static real OP(softmax_row)(real *row, size_t valid, size_t stride, real *row_max)
{
	size_t whole = OP(round_up)(valid);
	real max = lanes_max(row, valid), lane[LANES] = { 0 };
	/* Far below the maximum: each adds 1e-38 to a sum that is at least 1, which is nothing. */
	for (size_t i = valid; i < whole; i++)
		row[i] = max - 1000;
	for (size_t i = 0; i < whole; i += LANES) {
		for (size_t j = 0; j < LANES; j++) {
			real e = lanes_exp(row[i + j] - max);
			row[i + j] = e;
			lane[j] += e;
		}
	}
	memset(row + valid, 0, (stride - valid) * sizeof(*row));
	*row_max = max;
	return 1 / lanes_fold(lane);
}

void OP(attention)(const struct attention *shape, const real *qkv, real *out, real *row_max,
    real *row_scale, real *scratch)
{
	size_t length = shape->length, head = shape->head, width = shape->heads * head;
	size_t stride = OP(qkv_stride)(shape);
	real scale = (real)(1.0 / sqrt((double)head));
	real *turned = scratch + ATTENTION_TILE * OP(round_up)(length);
	for (size_t h = 0; h < shape->heads; h++) {
		const real *q = qkv + h * head, *k = q + OP(to_keys)(shape, h);
		const real *v = k + OP(to_values)(shape);
		real *max = row_max + h * length, *sum = row_scale + h * length;
		if (h % (shape->heads / shape->kv_heads) == 0)
			OP(transpose)(shape, k, turned);
		for (size_t first = shape->first; first < length; first += ATTENTION_TILE) {
			struct OP(tile) tile = OP(tile_at)(first, length);
			OP(by_keys)
			(shape, &tile, scale, q + first * stride, stride, turned, scratch);
			for (size_t i = 0; i < tile.rows; i++)
				sum[first + i] = OP(softmax_row)(scratch + i * tile.stride,
				    first + i + 1, tile.stride, &max[first + i]);
			if (shape->dropout != NULL) {
				OP(drop_scores)
				(shape->dropout, OP(head_key)(shape, h), &tile, scratch);
			}
			real *o = out + first * width + h * head;
			OP(by_rows)(shape, &tile, scratch, v, o, width);
			for (size_t i = 0; i < tile.rows; i++)
				for (size_t c = 0; c < head; c++)
					o[i * width + c] *= sum[first + i];
		}
	}
}

/* Rows of scores -> probabilities, from what the forward pass kept. */
static void OP(
    probabilities)(const struct OP(tile) * tile, const real *max, const real *scale, real *scores)
{
	for (size_t i = 0; i < tile->rows; i++) {
		real *row = scores + i * tile->stride;
		size_t valid = tile->first + i + 1;
		real m = max[i], s = scale[i];
		for (size_t j = valid; j < OP(round_up)(valid); j++)
			row[j] = m;
		for (size_t j = 0; j < OP(round_up)(valid); j++)
			row[j] = lanes_exp(row[j] - m) * s;
		memset(row + valid, 0, (tile->stride - valid) * sizeof(*row));
	}
}

/* dS = P (dP - sum(P dP)) / sqrt(head width); sum(P dP) over keys is dot(dO, O). In place over P.
 */
static void OP(score_gradients)(const struct OP(tile) * tile, size_t width, size_t head,
    const real *dout, const real *out, const real *dp, real scale, real *p)
{
	for (size_t i = 0; i < tile->rows; i++) {
		real sum = lanes_dot(dout + i * width, out + i * width, head);
		real *row = p + i * tile->stride;
		const real *drow = dp + i * tile->stride;
		for (size_t j = 0; j <= tile->first + i; j++)
			row[j] *= (drow[j] - sum) * scale;
	}
}

/* The same with dropout, D being 0 of what is left out and else the scale: dS = P (D dP - sum(P D dP)) / sqrt(head width), in place over dP, and D P over P; the sum is dot(dO, O) here too. */
static void OP(dropped_gradients)(const struct dropout *d, uint64_t head_key,
    const struct OP(tile) * tile, size_t width, size_t head, const real *dout, const real *out,
    real scale, real *restrict p, real *restrict dp)
{
	real kept = d->scale;
	int32_t below = d->below;
	for (size_t i = 0; i < tile->rows; i++) {
		real sum = lanes_dot(dout + i * width, out + i * width, head);
		real *restrict row = p + i * tile->stride, *restrict drow = dp + i * tile->stride;
		uint32_t valid = (uint32_t)(tile->first + i + 1);
		uint64_t key = dropout_key(head_key, tile->first + i);
		for (uint32_t j = 0; j < valid; j++) {
			real by = dropout_draw(key, j) < below ? 0 : kept;
			drow[j] = row[j] * ((drow[j] * by - sum) * scale);
			row[j] *= by;
		}
		memset(drow + valid, 0, (tile->stride - valid) * sizeof(*drow));
	}
}

void OP(attention_backward)(const struct attention *shape, const real *qkv, const real *out,
    const real *row_max, const real *row_scale, const real *dout, real *dqkv, real *scratch)
{
	size_t length = shape->length, head = shape->head, width = shape->heads * head;
	size_t group = shape->heads / shape->kv_heads, stride = OP(qkv_stride)(shape);
	size_t last = (length - 1) / ATTENTION_TILE * ATTENTION_TILE;
	real scale = (real)(1.0 / sqrt((double)head));
	real *p = scratch, *dp = scratch + attention_scratch(length, head);
	real *k_turned = p + ATTENTION_TILE * OP(round_up)(length);
	real *v_turned = dp + ATTENTION_TILE * OP(round_up)(length);
	for (size_t h = 0; h < shape->heads; h++) {
		const real *q = qkv + h * head, *k = q + OP(to_keys)(shape, h);
		const real *v = k + OP(to_values)(shape);
		real *dq = dqkv + h * head, *dk = dq + OP(to_keys)(shape, h);
		real *dv = dk + OP(to_values)(shape);
		if (h % group == 0) {
			OP(transpose)(shape, k, k_turned);
			OP(transpose)(shape, v, v_turned);
		}
		/* The last tile sees every key, so that of a group's first head writes dk and dv and
		 * the others add. */
		for (size_t first = last + ATTENTION_TILE; first > 0;) {
			first -= ATTENTION_TILE;
			real beta = first == last && h % group == 0 ? 0 : 1;
			struct OP(tile) t = OP(tile_at)(first, length);
			const real *o = out + first * width + h * head;
			const real *d = dout + first * width + h * head;
			const real *x = q + first * stride;
			OP(by_keys)(shape, &t, scale, x, stride, k_turned, p);
			OP(probabilities)
			(&t, row_max + h * length + first, row_scale + h * length + first, p);
			OP(by_keys)(shape, &t, 1, d, width, v_turned, dp);
			const real *ds = p;
			if (shape->dropout != NULL) {
				OP(dropped_gradients)
				(shape->dropout, OP(head_key)(shape, h), &t, width, head, d, o,
				    scale, p, dp);
				ds = dp;
			}
			OP(to_keys_gradient)(shape, &t, p, d, width, beta, dv);
			if (shape->dropout == NULL)
				OP(score_gradients)(&t, width, head, d, o, dp, scale, p);
			OP(by_rows)(shape, &t, ds, k, dq + first * stride, stride);
			OP(to_keys_gradient)(shape, &t, ds, x, stride, beta, dk);
		}
	}
}
