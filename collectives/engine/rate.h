/* How fast bytes go over the long ways of this process, in one direction, from what real traffic does: looks at a total that grows while something
 * is under way, and rests in between. Pure.
 *
 *	rate_look(&up, now_us, acked_bytes);    every few milliseconds
 *	rate_rest(&up, now_us);                 nothing moves any more
 *
 * A link shows what it carries only while it is full, and ops leave gaps: a member waits for others, and all links of a
 * process share what it has. So of a burst the fastest RATE_WINDOW_US count that carried enough to tell: what came before and after, and what a
 * slow receiver took its time for, does not. Packets that were held up come in heaps, which look faster than the way is: of a burst of RATE_LONG windows of RATE_STEADY_US that goes on for two of them,
 * without a pause as long as RATE_WINDOW_US, arrival.h says what it is without them; and the median of the newest five bursts is believed (a relay that stood still now and then made 20 to 30 MB/s of
 * 12, three seconds on end: the next burst that goes on takes half of that back). Slower ones take two thirds of it back within a minute: mostly they were bursts that had something else to wait for.
 */
#ifndef TR_COLLECTIVES_ENGINE_RATE_H
#define TR_COLLECTIVES_ENGINE_RATE_H

#include <stdbool.h>
#include <stdint.h>

#include "collectives/engine/arrival.h"

#define RATE_WINDOW_US 10000  /* at least */
#define RATE_STEADY_US 100000 /* or so many round trips, in which TCP makes its windows larger: */
#define RATE_TRIPS     4
#define RATE_LONG      5 /* of those windows */
#define RATE_BYTES_MIN \
	(48u << 10) /* in it: less comes at once, out of what windows hold at the start */
#define RATE_BURST_US 1000000u  /* a longer burst counts as several */
#define RATE_FALL_US  60000000u /* until a slower one is believed */
#define RATE_LOOKS    64
#define RATE_BURSTS   5
#define RATE_FEW      3 /* of them, at first and of a single link */

/* What the newest bursts said, bytes/s. All zero: there was none yet. */
struct rate_newest {
	double bursts[RATE_BURSTS];
	unsigned count; /* ever */
};

void rate_newest_add(struct rate_newest *newest, double bytes_per_s);
/* The median of the newest so many (RATE_BURSTS at most), of an even number the slower one in the middle; 0: there was none yet. Of three: one that had something else to wait for, or came in a
 * heap, does not count; of a link that is now another one the second burst tells. */
double rate_newest_middle(const struct rate_newest *newest, unsigned many);

struct rate {
	uint32_t rtt_us; /* of the way, as far as its owner knows it; 0: short */
	struct {
		uint64_t us, bytes;
	} look[RATE_LOOKS]; /* of this burst; in a long one the old ones lie further apart */
	unsigned looks;
	double burst;          /* bytes/s, the most in a window of it; 0: none told anything */
	struct arrival steady; /* the same in longer ones, without heaps */
	struct rate_newest newest;
	uint64_t said_us;   /* when the newest ended */
	double sure;        /* bytes/s, the most that was seen without heaps, of what is believed */
	uint64_t looked_us; /* last */
	bool goes_on;       /* the newest burst is the next part of one */
	uint64_t began_us;  /* all of it */
	double bytes_per_s; /* 0: not measured */
	struct {
		uint64_t first_us, first_bytes, moved_us, moved_bytes;
	} whole; /* this burst, to its newest byte */
	/* Of whole bursts, a moving mean: gaps and all, so it is no more than the way carries, whatever comes in heaps. 0: not measured. */
	double mean_bytes_per_s;
};

/* Returns 1 if it ended a burst that told something. */
int rate_look(struct rate *rate, uint64_t now_us, uint64_t total);
int rate_rest(struct rate *rate, uint64_t now_us);

#endif
