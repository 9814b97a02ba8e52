/* How fast this process sends over all its long ways together. TCP looks for the rate of a way by filling its queue until it overflows, and each connection
 * does so by itself. Links to several peers share the way at both ends, and where a round trip is longer than the queue what was lost takes round trips to be seen
 * and sent again: four members with 100 Mbit/s, 200 ms apart, with queues of 100 ms, took 2.6 to 20 s for all-reduces of 16 MiB that take 2.2. So when that
 * was seen, the rate is measured (arrival.h), and the kernel is asked to let out no more (SO_MAX_PACING_RATE; socket(7)): 2.4 to 2.7 s. Pure.
 *
 *	pacer_look(&pacer, &(struct pacer_look){ now_us, ... });        every few milliseconds
 *	bytes_per_s = pacer_rate(&pacer);                               0: as TCP likes
 *
 * Only where it is wanted: with two links or more, over at least PACER_RTT_US (below, TCP mends itself within an op), and once a hundredth of what was sent in a
 * second went out again while queues grew: losses without queues are no reason to be slower.
 * It is a little more than was measured, so that it grows with the way, and is taken back only while something queues: traffic that has
 * little to send shows nothing. Where that is much less, all of it is forgotten, and TCP does as it likes until too much is lost once more. What comes in tells, and what goes out where nothing was lost: acknowledgements that wait for a hole to be filled say too much.
 */
#ifndef TR_COLLECTIVES_ENGINE_PACER_H
#define TR_COLLECTIVES_ENGINE_PACER_H

#include <stdbool.h>
#include <stdint.h>

#include "collectives/engine/arrival.h"

#define PACER_RTT_US   50000u
#define PACER_BURST_US 1000000u /* at least, and eight windows */
#define PACER_BURSTS \
	4 /* the largest of which counts: heaps make none larger, and traffic that waits for something smaller */
#define PACER_GAIN       1.03
#define PACER_GAIN_EMPTY 1.08 /* after a second in which nothing queued */
#define PACER_GAIN_FULL  0.96 /* in which too much did */

struct pacer_look {
	uint64_t now_us;
	uint64_t up_bytes, down_bytes; /* came through, of what is open */
	uint64_t resent_packets, sent_packets;
	uint32_t rtt_us, now_rtt_us; /* of the worst way: without queues, and lately */
	unsigned links;              /* over which something goes out, or could: peers */
};

struct pacer {
	struct arrival up, down;
	double said[PACER_BURSTS]; /* by the newest */
	unsigned bursts;           /* ever */
	struct pacer_look began;   /* the burst */
	unsigned links;
	uint32_t longest_us; /* round trip, in it */
	bool on;
	double gain;
	double bytes_per_s; /* of the way; 0: not known */
};

void pacer_look(struct pacer *pacer, const struct pacer_look *look);
/* What the way carries, once it was crowded; 0: not known. */
double pacer_way(const struct pacer *pacer);
double pacer_rate(const struct pacer *pacer);

/* One of the links that share it. */
struct pacer_link {
	double takes; /* bytes/s that came through lately */
	bool settled; /* it has had something to send for so long that this is what it takes */
	double bytes_per_s; /* its part */
};

/* Equal parts, and what a link does not take of its own (a slow receiver) is the others' (max-min fairness, water-filling: Bertsekas and Gallager, "Data
 * Networks", section 6.5.2), but for PACER_ROOM of what it takes, so that it can show that it takes more. */
#define PACER_ROOM 1.5
void pacer_share(double bytes_per_s, struct pacer_link *links, unsigned count);

#endif
