#include "collectives/sync/hdet.h"

#include <math.h>
#include <stdbool.h>

#include "common/rng.h"

#define BASE_MOST 64.0

double hdet_factor(const struct tr_sync_options *o, uint64_t round, unsigned index,
    unsigned contributors)
{
	double half = ((double)contributors - 1) / 2;
	uint64_t place = rng_permute(rng_key(o->seed, round, 0), contributors, index);

	return 1 + o->lr_spread * ((double)place - half) / (half > 0.5 ? half : 0.5);
}

double hdet_exp(double x)
{
	if (!(x > -700))
		return 0;
	double exponent = floor(x * 1.4426950408889634 + 0.5); /* 1 / log 2 */
	double rest = (x - exponent * 0.693147180369123816490) -
	    exponent * 1.90821492927058770002e-10;
	double sum = 1;
	for (unsigned i = 16; i > 0; i--) /* |rest| < 0.35 */
		sum = 1 + sum * rest / i;
	return ldexp(sum, (int)exponent);
}

/* The smallest, of those who have one. False: nobody has. */
static bool least_loss(const struct sync_report *reports, size_t count, double *least)
{
	bool known = false;

	for (size_t i = 0; i < count; i++) {
		if (reports[i].lr_scale <= 0)
			continue;
		if (!known || reports[i].loss < *least)
			*least = reports[i].loss;
		known = true;
	}
	return known;
}

/* Its rate; 0: nobody's, or of who had no samples (share_by_speed) and tried none. */
static double scale_of(const struct sync_report *r)
{
	return r->share > 0 && r->samples == 0 ? 0 : fabs(r->lr_scale);
}

void hdet_control(const struct tr_sync_options *o, const struct sync_report *reports, size_t count,
    double base[2])
{
	double least = 0, weights = 0, weighted = 0, scales = 0;
	unsigned peers = 0;

	if (!least_loss(reports, count, &least))
		return;
	for (size_t i = 0; i < count; i++) {
		double scale = scale_of(&reports[i]), w = 0;
		if (scale == 0)
			continue;
		/* Both parts of the softmax, divided by its largest term: the mean cancels. */
		if (reports[i].lr_scale > 0)
			w = hdet_exp((least - reports[i].loss) / o->lr_temperature);
		weights += w;
		weighted += w * scale;
		scales += scale;
		peers++;
	}
	if (!isfinite(weighted / weights) || !isfinite(scales))
		return;
	base[1] = o->lr_momentum * base[1] +
	    (1 - o->lr_momentum) * (weighted / weights - scales / peers);
	base[0] = base[0] * (1 - o->lr_decay) + o->lr_step * base[1];
	if (!(base[0] > 1 / BASE_MOST))
		base[0] = 1 / BASE_MOST;
	if (base[0] > BASE_MOST)
		base[0] = BASE_MOST;
}
