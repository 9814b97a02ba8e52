/* SwiGLU: a sigmoid-weighted gate times a linear part (Shazeer, 2002.05202). */
#include "daemon/worker/lanes.h"
#include "daemon/worker/ops.h"

void OP(swiglu)(const real *restrict x, size_t rows, size_t width, real *restrict y)
{
	for (size_t row = 0; row < rows; row++, x += 2 * width, y += width) {
		const real *restrict up = x + width;
		for (size_t i = 0; i < width; i++)
			y[i] = x[i] / (1 + lanes_exp(-x[i])) * up[i];
	}
}

void OP(swiglu_backward)(real *restrict x, real *restrict dy, size_t rows, size_t width)
{
	for (size_t row = 0; row < rows; row++, x += 2 * width, dy += 2 * width) {
		real *restrict up = x + width, *restrict dup = dy + width;
		for (size_t i = 0; i < width; i++) {
			real s = 1 / (1 + lanes_exp(-x[i])), silu = x[i] * s, d = dy[i];
			dup[i] = d * silu;
			dy[i] = d * up[i] * (s + silu * (1 - s));
			x[i] = silu * up[i];
		}
	}
}
