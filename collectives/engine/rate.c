#include "collectives/engine/rate.h"

/* Times as fast as the way is. */
#define RATE_HEAPS_LEAST 1.25
#define RATE_HEAPS_MOST  3

void rate_newest_add(struct rate_newest *newest, double bytes_per_s)
{
	newest->bursts[newest->count++ % RATE_BURSTS] = bytes_per_s;
}

double rate_newest_middle(const struct rate_newest *newest, unsigned many)
{
	double sorted[RATE_BURSTS];
	unsigned count = 0;

	for (; count < many && count < RATE_BURSTS && count < newest->count; count++) {
		double value = newest->bursts[(newest->count - 1 - count) % RATE_BURSTS];
		unsigned at = count;
		for (; at > 0 && sorted[at - 1] > value; at--)
			sorted[at] = sorted[at - 1];
		sorted[at] = value;
	}
	return count > 0 ? sorted[(count - 1) / 2] : 0;
}

/* More than bursts said without heaps, but not so much more that it must be another thing: those waited for something then. */
static bool is_made_of_heaps(const struct rate *rate, double bytes_per_s, double steady)
{
	return bytes_per_s > RATE_HEAPS_LEAST * rate->sure &&
	    bytes_per_s < RATE_HEAPS_MOST * steady;
}

/* `steady`: of the newest burst without heaps; 0: it was too short for that. */
static void believe(struct rate *rate, uint64_t now_us, double steady)
{
	/* The first few begin slowly, and tell little. */
	unsigned many = rate->newest.count < RATE_BURSTS ? RATE_FEW : RATE_BURSTS;
	double said = rate_newest_middle(&rate->newest, many),
	       falls = (double)(now_us - rate->said_us) / RATE_FALL_US;

	if (steady > rate->sure)
		rate->sure = steady;
	if (is_made_of_heaps(rate, said, steady))
		said = rate->sure;
	if (is_made_of_heaps(rate, rate->bytes_per_s, steady) && falls < 0.5)
		falls = 0.5;
	if (rate->bytes_per_s == 0 || said > rate->bytes_per_s)
		rate->bytes_per_s = said;
	else
		rate->bytes_per_s += (said - rate->bytes_per_s) * (falls < 1 ? falls : 1);
	if (rate->sure > rate->bytes_per_s)
		rate->sure = rate->bytes_per_s;
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

static uint64_t steady_us(const struct rate *rate)
{
	uint64_t trips_us = RATE_TRIPS * (uint64_t)rate->rtt_us;
	return trips_us > RATE_STEADY_US ? trips_us : RATE_STEADY_US;
}

/* A look that belongs to the burst. */
static void go_on(struct rate *rate, uint64_t now_us, uint64_t total)
{
	if (rate->looks == 0) {
		rate->whole.first_us = now_us;
		rate->whole.first_bytes = total;
		if (!rate->goes_on)
			rate->began_us = now_us;
	} else if (total == rate->whole.moved_bytes) {
		return;
	}
	/* Looks that come late are no pause. */
	if (rate->looked_us - rate->whole.moved_us >= RATE_WINDOW_US)
		arrival_pause(&rate->steady);
	arrival_look(&rate->steady, now_us, total, steady_us(rate));
	rate->whole.moved_us = now_us;
	rate->whole.moved_bytes = total;
}

/* `goes_on`: it is cut here, since it is long. */
static int end_burst(struct rate *rate, uint64_t now_us, bool goes_on)
{
	double steady = arrival_end(&rate->steady), burst = rate->burst;

	/* A short one has a beginning and an end that look like that. */
	if (rate->looks == 0 || rate->whole.moved_us - rate->began_us < RATE_LONG * steady_us(rate))
		steady = 0;
	if (steady > 0 && steady < burst)
		burst = steady;
	if (!goes_on)
		arrival_pause(&rate->steady);
	end_whole(rate);
	rate->looks = 0;
	rate->burst = 0;
	rate->goes_on = goes_on;
	if (burst <= 0)
		return 0;
	rate_newest_add(&rate->newest, burst);
	believe(rate, now_us, steady);
	rate->said_us = now_us;
	return 1;
}

int rate_rest(struct rate *rate, uint64_t now_us)
{
	return end_burst(rate, now_us, false);
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
	bool falls = rate->looks > 0 && total < rate->look[rate->looks - 1].bytes;
	if (falls || (rate->looks > 0 && now_us - rate->look[0].us >= RATE_BURST_US))
		ended = end_burst(rate, now_us, !falls);
	double told = window(rate, now_us, total);
	if (told > rate->burst)
		rate->burst = told;
	go_on(rate, now_us, total);
	rate->looked_us = now_us;
	if (rate->looks == RATE_LOOKS)
		thin_out(rate);
	rate->look[rate->looks].us = now_us;
	rate->look[rate->looks].bytes = total;
	rate->looks++;
	return ended;
}
