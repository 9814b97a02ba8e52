#include <math.h>
#include <string.h>

#include "common/rng.h"
#include "daemon/worker/exact_math.h"
#include "daemon/worker/model.h"
#include "daemon/worker/random.h"

/* Box-Muller; two words of 32 bits, the first in (0, 1] so that its logarithm is finite. */
static double exact_normal(struct rng_key key, uint64_t counter)
{
	uint64_t bits = rng_u64(key, RANDOM_INIT, counter);
	double u = ((double)(bits >> 32) + 1) * 0x1p-32;
	double turn = (double)(bits & 0xffffffffu) * 0x1p-32;
	return sqrt(-2 * exact_log(u)) * exact_cos_turns(turn);
}

void model_init_params(const struct layout *layout, uint64_t seed, real *params)
{
	double residual = 0.02 / sqrt(2.0 * layout->config.layers);
	memset(params, 0, layout->count * sizeof(*params));
	for (size_t t = 0; t < layout->tensor_count; t++) {
		const struct layout_tensor *tensor = &layout->tensors[t];
		real *to = params + tensor->offset;
		size_t numbers = layout_numbers(tensor);
		struct rng_key key = rng_key(seed, t, 0);
		double spread = tensor->init == LAYOUT_RESIDUAL ? residual : 0.02;
		for (size_t i = 0; tensor->init != LAYOUT_ZEROS && i < numbers; i++)
			to[i] = tensor->init == LAYOUT_ONES ? 1
			                                    : (real)(spread * exact_normal(key, i));
	}
}
