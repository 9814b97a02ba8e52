/* Root mean square normalisation over the channels of each token (Zhang and Sennrich, 1910.07467). */
#include "daemon/worker/lanes.h"
#include "daemon/worker/ops.h"

void OP(rmsnorm)(const real *x, const real *weight, real eps, size_t rows, size_t width, real *y,
    real *rstd)
{
	for (size_t row = 0; row < rows; row++, x += width, y += width) {
		real square = lanes_dot(x, x, width) / (real)width;
		real r = (real)(1.0 / sqrt((double)(square + eps)));
		for (size_t i = 0; i < width; i++)
			y[i] = x[i] * r * weight[i];
		rstd[row] = r;
	}
}

/* With n = x rstd and g = dy weight: dx = rstd (g - n mean(g n)). */
void OP(rmsnorm_backward)(const real *dy, const real *x, const real *weight, const real *rstd,
    const real *carry, size_t rows, size_t width, real *dx, real *dweight)
{
	for (size_t row = 0; row < rows; row++, x += width, dy += width, dx += width) {
		real r = rstd[row], sum_gn[LANES] = { 0 };
		size_t i = 0;
		for (; i + LANES <= width; i += LANES)
			for (size_t j = 0; j < LANES; j++)
				sum_gn[j] += dy[i + j] * weight[i + j] * (x[i + j] * r);
		for (size_t j = 0; i + j < width; j++)
			sum_gn[j] += dy[i + j] * weight[i + j] * (x[i + j] * r);
		real mean_gn = lanes_fold(sum_gn) / (real)width;
		for (i = 0; i < width; i++)
			dweight[i] += dy[i] * (x[i] * r);
		if (carry != NULL) {
			for (i = 0; i < width; i++)
				dx[i] = carry[i] + (dy[i] * weight[i] - x[i] * r * mean_gn) * r;
			carry += width;
		} else {
			for (i = 0; i < width; i++)
				dx[i] = (dy[i] * weight[i] - x[i] * r * mean_gn) * r;
		}
	}
}
