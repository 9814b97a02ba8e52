/* Dropout of rows of the residual stream. */
#include "daemon/worker/dropout.h"
#include "daemon/worker/ops.h"

void OP(
    drop)(const struct dropout *d, size_t first, size_t rows, size_t width, const real *x, real *y)
{
	uint32_t columns = (uint32_t)width;
	real scale = d->scale;
	int32_t below = d->below;
	for (size_t row = 0; row < rows; row++, x += width, y += width) {
		uint64_t key = dropout_key(d->key, first + row);
		/* What compilers know to be in place is vectorised there too. */
		if (x == y)
			for (uint32_t i = 0; i < columns; i++)
				y[i] = dropout_draw(key, i) < below ? 0 : y[i] * scale;
		else
			for (uint32_t i = 0; i < columns; i++)
				y[i] = dropout_draw(key, i) < below ? 0 : x[i] * scale;
	}
}

void OP(drop_onto)(const struct dropout *d, size_t first, size_t rows, size_t width,
    const real *residual, real *y)
{
	uint32_t columns = (uint32_t)width;
	real scale = d->scale;
	int32_t below = d->below;
	for (size_t row = 0; row < rows; row++, residual += width, y += width) {
		uint64_t key = dropout_key(d->key, first + row);
		for (uint32_t i = 0; i < columns; i++)
			y[i] = residual[i] + (dropout_draw(key, i) < below ? 0 : y[i] * scale);
	}
}
