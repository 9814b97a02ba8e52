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

/* The newest look so long after the first one, or before. */
static unsigned look_after(const struct probe_rate *rate, uint64_t us)
{
	unsigned last = rate->looks - 1, at = 0;
	while (at < last && rate->look[at + 1].us <= rate->look[0].us + us)
		at++;
	return at;
}

/* At that part of the time. */
static unsigned look_at(const struct probe_rate *rate, unsigned part, unsigned of)
{
	return look_after(rate, (rate->look[rate->looks - 1].us - rate->look[0].us) * part / of);
}

static double rate_between(const struct probe_rate *rate, unsigned from, unsigned to)
{
	uint64_t us = rate->look[to].us - rate->look[from].us;
	uint64_t bytes = rate->look[to].bytes - rate->look[from].bytes;
	return us > 0 ? 1e6 * (double)bytes / (double)us : 0;
}

double probe_rate_of(const struct probe_rate *rate)
{
	if (rate->looks < 2)
		return 0;
	unsigned last = rate->looks - 1, middle = look_at(rate, 1, 2);
	return rate_between(rate, middle < last ? middle : last - 1, last);
}

double probe_rate_within(const struct probe_rate *rate, uint64_t from_us, uint64_t to_us)
{
	return rate->looks < 2
	    ? 0
	    : rate_between(rate, look_after(rate, from_us), look_after(rate, to_us));
}

bool probe_rate_settled(const struct probe_rate *rate, uint64_t least_us)
{
	double least = 0, most = 0;
	if (rate->looks < PROBE_RATE_LOOKS_LEAST ||
	    rate->look[rate->looks - 1].us - rate->look[0].us < least_us)
		return false;
	for (unsigned quarter = 1; quarter < 4; quarter++) {
		double found = rate_between(rate, look_at(rate, quarter, 4),
		    look_at(rate, quarter + 1, 4));
		least = quarter == 1 || found < least ? found : least;
		most = found > most ? found : most;
	}
	return most > 0 && most <= (1 + PROBE_RATE_SETTLED) * least;
}
