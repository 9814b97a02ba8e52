/* GELU, tanh form (Hendrycks and Gimpel, 1606.08415). Because (1 + tanh(u)) / 2 = 1 / (1 + e^-2u),
 * one exponential and one division do. */
#include "daemon/worker/lanes.h"
#include "daemon/worker/ops.h"

#define GELU_TWO_K REAL_C(1.5957691216057308) /* 2 sqrt(2 / pi) */
#define GELU_CUBE  REAL_C(0.044715)

void OP(gelu)(const real *restrict x, size_t count, real *restrict y)
{
	for (size_t i = 0; i < count; i++) {
		real u = GELU_TWO_K * (x[i] + GELU_CUBE * x[i] * x[i] * x[i]);
		y[i] = x[i] / (1 + lanes_exp(-u));
	}
}

void OP(gelu_backward)(real *restrict x, real *restrict dy, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		real square = x[i] * x[i];
		real u = GELU_TWO_K * (x[i] + GELU_CUBE * x[i] * square);
		real du = GELU_TWO_K * (1 + 3 * GELU_CUBE * square);
		real s = 1 / (1 + lanes_exp(-u));
		dy[i] *= s + x[i] * s * (1 - s) * du;
		x[i] *= s;
	}
}
