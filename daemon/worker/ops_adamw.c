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
#define adamw_size fabs
#else
#define adamw_sqrt sqrtf
#define adamw_size fabsf
#endif

/* Less than these is 0. Else moments of what a model has learned never to expect come to be subnormal numbers (common/float_mode.h), for good, since 0.9 of a few of the smallest rounds to as many; the update of each then takes 20
 * times as long. They are compared, as processors do not agree on what is subnormal. Beside the default eps, 1e-8, the root of what is left out of the variance changes no bit; the least eps that a job may have is 7 times such a root. */
#define LEAST_GRADIENT \
	((real)0x1p-56) /* for the variance: its square by 1 - beta2 is no subnormal f32 */
#define LEAST_FIRST  ((real)0x1p-100)
#define LEAST_SECOND ((real)0x1p-124)

static inline real adamw_least(real x, real least)
{
	return adamw_size(x) < least ? 0 : x;
}

void OP(adamw)(real *restrict params, const real *restrict grads, real *restrict first,
    real *restrict second, size_t count, const struct adamw *by)
{
	struct adamw c = *by;
	for (size_t i = 0; i < count; i++) {
		real g = grads[i] * c.gradient_scale;
		real m = adamw_least(first[i] + (g - first[i]) * c.first_share, LEAST_FIRST);
		real h = adamw_least(g, LEAST_GRADIENT);
		real v = adamw_least(second[i] * c.beta2 + c.second_share * h * h, LEAST_SECOND);
		real denominator = adamw_sqrt(v) * c.variance_scale + c.eps;
		first[i] = m;
		second[i] = v;
		params[i] = params[i] * c.keep - c.step_size * m / denominator;
	}
}
