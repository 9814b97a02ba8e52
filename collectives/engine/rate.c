#include "collectives/engine/rate.h"

void rate_newest_add(struct rate_newest *newest, double bytes_per_s)
{
	newest->bursts[newest->count++ % RATE_BURSTS] = bytes_per_s;
}

double rate_newest_middle(const struct rate_newest *newest, unsigned many)
{
	double sorted[RATE_BURSTS];
	unsigned count = 0;

	for (; count < many && count < newest->count; count++) {
		double value = newest->bursts[(newest->count - 1 - count) % RATE_BURSTS];
		unsigned at = count;
		for (; at > 0 && sorted[at - 1] > value; at--)
			sorted[at] = sorted[at - 1];
		sorted[at] = value;
	}
	return count > 0 ? sorted[(count - 1) / 2] : 0;
}

static void believe(struct rate *rate, uint64_t now_us)
{
	bool first = rate->newest.count < RATE_BURSTS; /* they begin slowly, or with a heap */
	double said = rate_newest_middle(&rate->newest, first ? 3 : RATE_BURSTS),
	       passed = (double)(now_us - rate->said_us) / RATE_FALL_US;

	if (first || said > rate->bytes_per_s)
		rate->bytes_per_s = said;
	else
		rate->bytes_per_s += (said - rate->bytes_per_s) * (passed < 1 ? passed : 1);
}

static void end_whole(struct rate *rate)
{
	uint64_t bytes = rate->whole.moved_bytes - rate->whole.first_bytes,
	         us = rate->whole.moved_us - rate->whole.first_us;

	if (!rate->goes_on || bytes < RATE_BYTES_MIN || us == 0)
		return;
	double found = (double)bytes * 1e6 / (double)us, before = rate->mean_bytes_per_s;
	rate->mean_bytes_per_s = before > 0 ? before + (found - before) / 4 : found;
}

static void begin_piece(struct rate *rate, uint64_t now_us, uint64_t total)
{
	rate->piece_us = now_us;
	rate->piece_bytes = total;
}

/* With its newest byte; the fastest are first. True: it was one. */
static bool end_piece(struct rate *rate, uint64_t least_us)
{
	uint64_t us = rate->whole.moved_us - rate->piece_us,
	         bytes = rate->whole.moved_bytes - rate->piece_bytes;

	if (!rate->goes_on || us < least_us || bytes < RATE_BYTES_MIN || rate->pieces == RATE_PIECES)
		return false;
	double found = (double)bytes * 1e6 / (double)us;
	unsigned at = rate->pieces++;
	for (; at > 0 && rate->piece[at - 1].bytes_per_s < found; at--)
		rate->piece[at] = rate->piece[at - 1];
	rate->piece[at] = (struct rate_piece){ found, bytes };
	return true;
}

/* 0: nothing told anything. */
static double fastest_third(const struct rate *rate)
{
	uint64_t all = 0, seen = 0;
	unsigned at = 0;

	for (unsigned i = 0; i < rate->pieces; i++)
		all += rate->piece[i].bytes;
	for (; at < rate->pieces && seen + rate->piece[at].bytes < all / 3; at++)
		seen += rate->piece[at].bytes;
	return at < rate->pieces ? rate->piece[at].bytes_per_s : 0;
}

int rate_rest(struct rate *rate, uint64_t now_us)
{
	end_whole(rate);
	(void)end_piece(rate, RATE_PIECE_US / 2);
	double burst = fastest_third(rate);
	rate->goes_on = false;
	rate->pieces = 0;
	if (burst <= 0)
		return 0;
	rate_newest_add(&rate->newest, burst);
	believe(rate, now_us);
	rate->said_us = now_us;
	return 1;
}

static void begin(struct rate *rate, uint64_t now_us, uint64_t total)
{
	rate->goes_on = true;
	rate->whole.first_us = rate->whole.moved_us = now_us;
	rate->whole.first_bytes = rate->whole.moved_bytes = total;
	rate->looked_us = now_us;
	begin_piece(rate, now_us, total);
}

int rate_look(struct rate *rate, uint64_t now_us, uint64_t total)
{
	int ended = 0;

	/* The total is of what is open: it falls when something is closed. */
	if (rate->goes_on &&
	    (total < rate->whole.moved_bytes || now_us - rate->whole.first_us >= RATE_BURST_US))
		ended = rate_rest(rate, now_us);
	if (!rate->goes_on)
		begin(rate, now_us, total);
	/* What came before a pause says no more; what comes after it came since the last look. */
	if (total != rate->whole.moved_bytes) {
		bool paused = rate->looked_us - rate->whole.moved_us >= RATE_PIECE_US / 2;
		uint64_t bytes = rate->whole.moved_bytes - rate->piece_bytes;
		if (paused)
			(void)end_piece(rate, RATE_PIECE_US / 2);
		if (bytes == 0 || (paused && bytes >= RATE_BYTES_MIN))
			begin_piece(rate, rate->looked_us, rate->whole.moved_bytes);
		rate->whole.moved_us = now_us;
		rate->whole.moved_bytes = total;
		if (end_piece(rate, RATE_PIECE_US))
			begin_piece(rate, now_us, total);
	}
	rate->looked_us = now_us;
	return ended;
}
