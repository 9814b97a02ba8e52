/* Rotary positions. */
#include "daemon/worker/ops.h"

static void OP(turn)(const real *restrict cos, const real *restrict sin, size_t half,
    real direction, real *restrict low, real *restrict high)
{
	for (size_t i = 0; i < half; i++) {
		real x = low[i], y = high[i], s = direction * sin[i];
		low[i] = x * cos[i] - y * s;
		high[i] = y * cos[i] + x * s;
	}
}

void OP(rotate)(const struct rotation *shape, real direction, real *x)
{
	size_t half = shape->head / 2;
	for (size_t t = 0; t < shape->rows; t++, x += shape->stride) {
		size_t at = (shape->first + t) * half;
		for (size_t h = 0; h < shape->heads; h++)
			OP(turn)
		(shape->cos + at, shape->sin + at, half, direction, x + h * shape->head,
		    x + h * shape->head + half);
	}
}
