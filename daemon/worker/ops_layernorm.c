/* Layer normalisation over the channels of each token (Ba et al., 1607.06450). */
#include "daemon/worker/lanes.h"
#include "daemon/worker/ops.h"

static real OP(variance)(const real *x, size_t width, real mean)
{
	real lane[LANES] = { 0 };
	size_t i = 0;
	for (; i + LANES <= width; i += LANES) {
		for (size_t j = 0; j < LANES; j++) {
			real d = x[i + j] - mean;
			lane[j] += d * d;
		}
	}
	for (size_t j = 0; i + j < width; j++) {
		real d = x[i + j] - mean;
		lane[j] += d * d;
	}
	return lanes_fold(lane) / (real)width;
}

void OP(layernorm)(const real *x, const real *weight, const real *bias, real eps, size_t rows,
    size_t width, real *y, real *mean, real *rstd)
{
	for (size_t row = 0; row < rows; row++, x += width, y += width) {
		real m = lanes_sum(x, width) / (real)width;
		real r = (real)(1.0 / sqrt((double)(OP(variance)(x, width, m) + eps)));
		for (size_t i = 0; i < width; i++)
			y[i] = (x[i] - m) * r * weight[i] + bias[i];
		mean[row] = m;
		rstd[row] = r;
	}
}

/* With n = (x - mean) rstd and g = dy weight: dx = rstd (g - mean(g) - n mean(g n)). */
void OP(layernorm_backward)(const real *dy, const real *x, const real *weight, const real *mean,
    const real *rstd, const real *carry, size_t rows, size_t width, real *dx, real *dweight,
    real *dbias)
{
	for (size_t row = 0; row < rows; row++, x += width, dy += width, dx += width) {
		real m = mean[row], r = rstd[row];
		real sum_g[LANES] = { 0 }, sum_gn[LANES] = { 0 };
		size_t i = 0;
		for (; i + LANES <= width; i += LANES) {
			for (size_t j = 0; j < LANES; j++) {
				real n = (x[i + j] - m) * r, g = dy[i + j] * weight[i + j];
				sum_g[j] += g;
				sum_gn[j] += g * n;
			}
		}
		for (size_t j = 0; i + j < width; j++) {
			real n = (x[i + j] - m) * r, g = dy[i + j] * weight[i + j];
			sum_g[j] += g;
			sum_gn[j] += g * n;
		}
		real mean_g = lanes_fold(sum_g) / (real)width;
		real mean_gn = lanes_fold(sum_gn) / (real)width;
		for (i = 0; i < width; i++) {
			dweight[i] += dy[i] * ((x[i] - m) * r);
			dbias[i] += dy[i];
		}
		if (carry != NULL) {
			for (i = 0; i < width; i++)
				dx[i] = carry[i] +
				    (dy[i] * weight[i] - mean_g - (x[i] - m) * r * mean_gn) * r;
			carry += width;
		} else {
			for (i = 0; i < width; i++)
				dx[i] = (dy[i] * weight[i] - mean_g - (x[i] - m) * r * mean_gn) * r;
		}
	}
}
