#include "collectives/engine/arrival.h"

#include <string.h>

/* Bytes at a window's end come less evenly than this: it had pauses, in which nobody sent. */
#define STEADY    0.6
#define BYTES_MIN (16u << 10) /* in it: fewer are a few messages */

/* The total at that time, between two looks; less than 0: there was none so early. */
static double total_at(const struct arrival *arrival, uint64_t us)
{
	unsigned after = arrival->looks;
	while (after > 0 && arrival->look[after - 1].us > us)
		after--;
	if (after == 0)
		return -1;
	double before = (double)arrival->look[after - 1].bytes;
	if (after == arrival->looks)
		return before;
	double part = (double)(us - arrival->look[after - 1].us) /
	    (double)(arrival->look[after].us - arrival->look[after - 1].us);
	return before +
	    part * (double)(arrival->look[after].bytes - arrival->look[after - 1].bytes);
}

static void most(double *value, double total, double before)
{
	if (before >= 0 && total - before > *value)
		*value = total - before;
}

/* What two windows do not reach back to goes. */
static void make_room(struct arrival *arrival, uint64_t since_us)
{
	unsigned gone = 0;
	while (gone + 1 < arrival->looks && arrival->look[gone + 1].us <= since_us)
		gone++;
	if (gone == 0)
		gone = ARRIVAL_LOOKS / 2; /* looks too close to one another: none reaches so far */
	arrival->looks -= gone;
	memmove(arrival->look, arrival->look + gone, arrival->looks * sizeof(arrival->look[0]));
}

void arrival_look(struct arrival *arrival, uint64_t now_us, uint64_t total, uint64_t window_us)
{
	if (arrival->window_us == 0)
		arrival->window_us = window_us > ARRIVAL_WINDOW_US_MIN ? window_us
		                                                       : ARRIVAL_WINDOW_US_MIN;
	uint64_t one_us = arrival->window_us, two_us = 2 * one_us;
	if (arrival->looks > 0 && total < arrival->look[arrival->looks - 1].bytes)
		arrival->looks = 0;
	if (arrival->looks > 0 && now_us <= arrival->look[arrival->looks - 1].us)
		return;
	if (arrival->looks == ARRIVAL_LOOKS)
		make_room(arrival, now_us > two_us ? now_us - two_us : 0);
	arrival->look[arrival->looks].us = now_us;
	arrival->look[arrival->looks++].bytes = total;
	if (now_us > one_us)
		most(&arrival->most_in_one, (double)total, total_at(arrival, now_us - one_us));
	if (now_us > two_us)
		most(&arrival->most_in_two, (double)total, total_at(arrival, now_us - two_us));
}

static void end_stretch(struct arrival *arrival)
{
	if (arrival->most_in_two > 0) {
		most(&arrival->one, arrival->most_in_one, 0);
		most(&arrival->two, arrival->most_in_two, 0);
	}
	arrival->most_in_one = arrival->most_in_two = 0;
}

void arrival_pause(struct arrival *arrival)
{
	end_stretch(arrival);
	arrival->looks = 0;
}

double arrival_end(struct arrival *arrival)
{
	end_stretch(arrival);
	double more = arrival->two - arrival->one;
	double rate = arrival->one >= BYTES_MIN && more > STEADY * arrival->one
	    ? more * 1e6 / (double)arrival->window_us
	    : 0;
	arrival->one = arrival->two = 0;
	arrival->window_us = 0;
	return rate;
}
