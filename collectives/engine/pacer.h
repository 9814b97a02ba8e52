/* How fast this process sends over all its long ways together. TCP looks for the rate of a way by filling its queue until it overflows, and each connection
 * does so by itself. Links to several peers share the way at both ends, and where a round trip is longer than the queue what was lost takes round trips to be seen
 * and sent again: four members with 100 Mbit/s, 200 ms apart, with queues of 100 ms, took 2.6 to 20 s for all-reduces of 16 MiB that take 2.2. So when that
 * was seen, the rate is measured (arrival.h), and the kernel is asked to let out no more (SO_MAX_PACING_RATE; socket(7)): 2.3 to 3.2 s. Pure.
 *
 *	pacer_look(&pacer, &(struct pacer_look){ now_us, ... });        every few milliseconds
 *	bytes_per_s = pacer_rate(&pacer);                               0: as TCP likes
 *
 * Only where it is wanted: with two far peers or more, one of them at least PACER_RTT_US away (below, TCP mends itself within an op), and once a hundredth of what was sent in a
 * second went out again while queues grew: losses without queues are no reason to be slower.
 *
 * Each second, while something queues, the rate is the largest that the last few showed, and a little less is sent, so that the queue goes; else a little more. What comes in
 * shows it: what goes out is known by acknowledgements, whose heaps have no bound. But where the ways out and in differ, or little comes in, that is
 * another way's: so all that went out in that second counts too, and where we send what we may and nothing queues the rate grows, whatever is seen. Traffic that has
 * little to send shows nothing. Where seconds in which something queues show much less, all is forgotten, and TCP does as it likes until too much is lost once more.
 */
#ifndef TR_COLLECTIVES_ENGINE_PACER_H
#define TR_COLLECTIVES_ENGINE_PACER_H

#include <stdbool.h>
#include <stdint.h>

#include "collectives/engine/arrival.h"

#define PACER_RTT_US   50000u
#define PACER_BURST_US 1000000u  /* at least, and eight windows: a "second" of the above */
#define PACER_KEEPS_US 30000000u /* without a look: nothing is known any more */
#define PACER_BURSTS \
	4 /* the largest of which counts: heaps make none larger, and traffic that waits for something smaller */
#define PACER_GAIN      1.03
#define PACER_GAIN_FULL 0.96 /* after a second in which something queued */
#define PACER_GROWS     1.08 /* after one in which nothing did, though we sent what we may */

struct pacer_look {
	uint64_t now_us;
	uint64_t up_bytes, down_bytes; /* came through, of what is open */
	uint64_t sent_packets, resent_packets;
	uint32_t rtt_us; /* of the worst way, without queues */
	double trips; /* as many times as long it is now, of the least way on which something moves; 0: none */
	unsigned
	    peers; /* far ones, whether something goes to them or not: what they get comes together at its end */
};

struct pacer {
	struct arrival down;
	double said[PACER_BURSTS]; /* by the newest */
	unsigned bursts;           /* ever */
	struct pacer_look began, last;
	unsigned looks, queued_looks, full_looks; /* of this burst, in which something moved */
	bool on;
	double gain, bytes_per_s; /* of the way; 0: not known */
	double most;              /* that it ever was, since it is on */
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
