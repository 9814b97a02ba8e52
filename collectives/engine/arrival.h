/* How fast bytes come through a way that has a queue of them, although they come in heaps: acknowledgements that were held up, a relay that slept, a
 * hole that was filled after a loss. Looks at a total that grows. Pure.
 *
 * The most that came in any time t is r t + h, of a way of rate r whose largest heap is h (the arrival curve of network calculus: Le Boudec and Thiran, "Network
 * Calculus", 2001, section 1.2). So the most in two windows less the most in one, over a window, is r, whatever h. Over a relayed way of 12.07 MB/s that lost a
 * third of what was sent it said 11.9 to 12.3 where the fastest window of 10 ms had 14 to 110.
 *
 *	arrival_look(&arrival, now_us, total, rtt_us / 4);      every few milliseconds
 *	bytes_per_s = arrival_end(&arrival);                    0: too little came, or with pauses
 */
#ifndef TR_COLLECTIVES_ENGINE_ARRIVAL_H
#define TR_COLLECTIVES_ENGINE_ARRIVAL_H

#include <stdint.h>

#define ARRIVAL_LOOKS         256
#define ARRIVAL_WINDOW_US_MIN 10000

struct arrival {
	struct {
		uint64_t us, bytes;
	} look[ARRIVAL_LOOKS]; /* oldest first; two windows of them are needed */
	unsigned looks;
	uint64_t window_us;
	double most_in_one, most_in_two; /* bytes, of what came without a pause so far */
	double one, two;                 /* of all that filled two windows since arrival_end */
};

/* The window of the first look since arrival_end is that of all until the next one. A total that falls is another way's: its looks are begun again. */
void arrival_look(struct arrival *arrival, uint64_t now_us, uint64_t total, uint64_t window_us);
/* What came before the next look is not part of the same windows, and says nothing if it has not filled two of them. */
void arrival_pause(struct arrival *arrival);
/* Since the last call. Looks stay: what is under way goes on. */
double arrival_end(struct arrival *arrival);

#endif
