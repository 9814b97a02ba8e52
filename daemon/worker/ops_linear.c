/* The parts of a linear layer around its matrix product. */
#include <string.h>

#include "daemon/worker/ops.h"

void OP(bias)(const real *bias, size_t rows, size_t width, real *y)
{
	for (size_t row = 0; row < rows; row++)
		memcpy(y + row * width, bias, width * sizeof(*y));
}

void OP(bias_residual)(const real *x, const real *bias, size_t rows, size_t width, real *y)
{
	for (size_t row = 0; row < rows; row++, x += width, y += width)
		for (size_t i = 0; i < width; i++)
			y[i] = x[i] + bias[i];
}

void OP(onto)(const real *sum, const real *residual, const real *bias, size_t rows, size_t width,
    real *y)
{
	for (size_t row = 0; row < rows; row++, sum += width, y += width) {
		const real *x = residual != NULL ? residual + row * width : NULL;
		if (x != NULL && bias != NULL)
			for (size_t i = 0; i < width; i++)
				y[i] = sum[i] + x[i] + bias[i];
		else if (x != NULL || bias != NULL)
			for (size_t i = 0; i < width; i++)
				y[i] = sum[i] + (x != NULL ? x : bias)[i];
		else
			memcpy(y, sum, width * sizeof(*y));
	}
}

void OP(column_sums)(const real *x, size_t rows, size_t width, real *sum)
{
	for (size_t row = 0; row < rows; row++, x += width)
		for (size_t i = 0; i < width; i++)
			sum[i] += x[i];
}
