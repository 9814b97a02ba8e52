#include "collectives/transport/probe_rate.h"

static void thin_out(struct probe_rate *rate)
{
	unsigned kept = 0;
	for (unsigned i = 0; i < rate->looks; i += 2)
		rate->look[kept++] = rate->look[i];
	rate->looks = kept;
	uint64_t lasted = rate->look[kept - 1].us - rate->look[0].us;
	rate->apart_us = 2 * lasted / PROBE_RATE_LOOKS;
}

void probe_rate_look(struct probe_rate *rate, uint64_t now_us, uint64_t total)
{
	unsigned last;
	/* The first one stays: it is where the time begins. */
	if (rate->looks > 1 && now_us - rate->look[rate->looks - 2].us < rate->apart_us) {
		last = rate->looks - 1;
	} else {
		if (rate->looks == PROBE_RATE_LOOKS)
			thin_out(rate);
		last = rate->looks++;
	}
	rate->look[last].us = now_us;
	rate->look[last].bytes = total;
}

double probe_rate_of(const struct probe_rate *rate)
{
	if (rate->looks < 2)
		return 0;
	unsigned last = rate->looks - 1, from = 0;
	uint64_t middle = rate->look[0].us + (rate->look[last].us - rate->look[0].us) / 2;
	while (from + 1 < last && rate->look[from + 1].us <= middle)
		from++;
	uint64_t us = rate->look[last].us - rate->look[from].us;
	uint64_t bytes = rate->look[last].bytes - rate->look[from].bytes;
	return us > 0 ? 1e6 * (double)bytes / (double)us : 0;
}
