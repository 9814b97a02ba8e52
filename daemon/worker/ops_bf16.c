/* Numbers rounded to bf16, the upper half of an f32: to nearest, ties to even; a NaN stays one. */
#include <string.h>

#include "daemon/worker/ops.h"

void OP(to_bf16)(const real *x, size_t rows, size_t columns, size_t stride, uint16_t *y)
{
	for (size_t row = 0; row < rows; row++, x += stride, y += columns)
		for (size_t i = 0; i < columns; i++) {
			float number = (float)x[i];
			uint32_t bits;
			memcpy(&bits, &number, sizeof(bits));
			uint32_t rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
			uint32_t nan = bits >> 16 | 0x40;
			y[i] = (uint16_t)((bits & 0x7fffffff) > 0x7f800000 ? nan : rounded);
		}
}

void OP(from_bf16)(const uint16_t *x, size_t rows, size_t columns, size_t stride, real *y)
{
	for (size_t row = 0; row < rows; row++, x += stride, y += columns)
		for (size_t i = 0; i < columns; i++) {
			uint32_t bits = (uint32_t)x[i] << 16;
			float number;
			memcpy(&number, &bits, sizeof(number));
			y[i] = (real)number;
		}
}
