/* The update and the norm. Elementwise or in lanes, without fused multiply-add: bits are the same
 * on every machine. */
#include "daemon/worker/lanes.h"
#include "daemon/worker/ops.h"

double OP(sum_squares)(const real *x, size_t count)
{
	double lane[LANES] = { 0 };
	size_t i = 0;
	for (; i + LANES <= count; i += LANES)
		for (size_t j = 0; j < LANES; j++)
			lane[j] += (double)x[i + j] * (double)x[i + j];
	for (size_t j = 0; i + j < count; j++)
		lane[j] += (double)x[i + j] * (double)x[i + j];
	return lanes_fold_f64(lane);
}

#ifdef REAL_IS_DOUBLE
#define adamw_sqrt sqrt
#else
#define adamw_sqrt sqrtf
#endif

void OP(adamw)(real *restrict params, const real *restrict grads, real *restrict first,
    real *restrict second, size_t count, const struct adamw *by)
{
	struct adamw c = *by;
	for (size_t i = 0; i < count; i++) {
		real g = grads[i] * c.gradient_scale;
		real m = first[i] + (g - first[i]) * c.first_share;
		real v = second[i] * c.beta2 + c.second_share * g * g;
		real denominator = adamw_sqrt(v) * c.variance_scale + c.eps;
		first[i] = m;
		second[i] = v;
		params[i] = params[i] * c.keep - c.step_size * m / denominator;
	}
}
