#include "collectives/engine/rate.h"

void rate_newest_add(struct rate_newest *newest, double bytes_per_s)
{
	newest->bursts[newest->count++ % RATE_BURSTS] = bytes_per_s;
}

double rate_newest_middle(const struct rate_newest *newest)
{
	const double *v = newest->bursts;

	if (newest->count < 2)
		return v[0];
	double low = v[0] < v[1] ? v[0] : v[1], high = v[0] < v[1] ? v[1] : v[0];
	if (newest->count == 2)
		return low;
	return v[2] < low ? low : v[2] > high ? high : v[2];
}

static void believe(struct rate *rate, uint64_t now_us)
{
	double said = rate_newest_middle(&rate->newest),
	       passed = (double)(now_us - rate->said_us) / RATE_FALL_US;

	if (rate->bytes_per_s == 0 || said > rate->bytes_per_s)
		rate->bytes_per_s = said;
	else
		rate->bytes_per_s += (said - rate->bytes_per_s) * (passed < 1 ? passed : 1);
}

static void end_whole(struct rate *rate)
{
	uint64_t bytes = rate->whole.moved_bytes - rate->whole.first_bytes,
	         us = rate->whole.moved_us - rate->whole.first_us;

	if (rate->looks == 0 || bytes < RATE_BYTES_MIN || us == 0)
		return;
	double found = (double)bytes * 1e6 / (double)us, before = rate->mean_bytes_per_s;
	rate->mean_bytes_per_s = before > 0 ? before + (found - before) / 4 : found;
}

/* A look that belongs to the burst. */
static void go_on(struct rate *rate, uint64_t now_us, uint64_t total)
{
	if (rate->looks == 0) {
		rate->whole.first_us = now_us;
		rate->whole.first_bytes = total;
	} else if (total == rate->whole.moved_bytes) {
		return;
	}
	rate->whole.moved_us = now_us;
	rate->whole.moved_bytes = total;
}

int rate_rest(struct rate *rate, uint64_t now_us)
{
	double burst = rate->burst;

	end_whole(rate);
	rate->looks = 0;
	rate->burst = 0;
	if (burst <= 0)
		return 0;
	rate_newest_add(&rate->newest, burst);
	believe(rate, now_us);
	rate->said_us = now_us;
	return 1;
}

/* Every second one goes. */
static void thin_out(struct rate *rate)
{
	for (unsigned i = 0; i < RATE_LOOKS / 2; i++)
		rate->look[i] = rate->look[2 * i];
	rate->looks = RATE_LOOKS / 2;
}

/* The newest window that is long and full enough. */
static double window(const struct rate *rate, uint64_t now_us, uint64_t total)
{
	for (unsigned i = rate->looks; i-- > 0;) {
		uint64_t us = now_us - rate->look[i].us, bytes = total - rate->look[i].bytes;
		if (us >= RATE_WINDOW_US && bytes >= RATE_BYTES_MIN)
			return (double)bytes * 1e6 / (double)us;
	}
	return 0;
}

int rate_look(struct rate *rate, uint64_t now_us, uint64_t total)
{
	int ended = 0;

	/* The total is of what is open: it falls when something is closed. */
	if (rate->looks > 0 &&
	    (total < rate->look[rate->looks - 1].bytes ||
	        now_us - rate->look[0].us >= RATE_BURST_US))
		ended = rate_rest(rate, now_us);
	double told = window(rate, now_us, total);
	if (told > rate->burst)
		rate->burst = told;
	go_on(rate, now_us, total);
	if (rate->looks == RATE_LOOKS)
		thin_out(rate);
	rate->look[rate->looks].us = now_us;
	rate->look[rate->looks].bytes = total;
	rate->looks++;
	return ended;
}
