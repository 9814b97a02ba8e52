/* Over how many connections a link's frames go. One is enough on a loopback and on a LAN. Over a long way one stream may
 * not fill the link (windows, losses), so more are tried while there is always something to send: twice as many, kept if
 * a tenth more came through, else given back and not tried again for a while, longer each time, unless less comes through
 * than at that try: then the path is another one, or what its first seconds promised did not last (a stream of cubic leaves its
 * slow start with a window that losses take back only later). Pure: looks come in at regular intervals.
 *
 * What came through is what the other end has acknowledged while the link was busy: what was merely handed to a new connection
 * looks like a gain, and pauses between ops like a loss. It is measured over many round trips, once new connections have left
 * their slow start, since in a single interval a stream of a long way shows anything from nothing to twice its rate.
 *
 * While the round trip is as long as it ever was, nothing queues: so the path is not full, and a try that brought nothing is
 * followed by one more, since streams that live on losses need their time. Then all of it is given back. Where it is long and a lot
 * is sent twice (bbr against itself), the path is crowded: none are added.
 *
 * A way of 20 ms or more begins with eight. One stream of bbr crowds it by itself: it keeps twice of what the way holds on it, and what the way cannot
 * queue is dropped; several share that. Over 100 Mbit/s and 100 ms, without other losses, 1, 2, 4 and 8 streams carried 71 to 85, 85, 91.5 and 93 Mbit/s,
 * and 6 to 10, 12, 5 and 1 % was dropped. Those that are added later find the queue full, take that for the length of the way, and gain nothing.
 *
 * That is of a process with one such way. Links to several peers share what their process has, at both ends, so n - 1 links of n peers have 1/(n - 1)^2 as
 * many each, at least one: among four peers with 100 Mbit/s each, 32 streams began together wherever 4 do now. What queues could not take was lost: at 200 ms an
 * all-reduce of 1 MiB took 280 ms with one and 352 with eight (direct), 717 and 1259 (one-shot); 16 MiB at 100 ms 3.0 s and 3.8 (ring), 3.4 and 3.3 (direct); and a
 * member with a tenth of the rate took 996 ms and 1518 (direct) for what takes 889 without losses.
 *
 *	stripe_init(&stripe, 0);
 *	lanes = stripe_look(&stripe, &(struct stripe_sample){ now_us, acked_bytes, busy, rtt_us, now_rtt_us,
 *	    retransmits });
 */
#ifndef TR_COLLECTIVES_ENGINE_STRIPE_H
#define TR_COLLECTIVES_ENGINE_STRIPE_H

#include <stdbool.h>
#include <stdint.h>

struct stripe_sample {
	uint64_t now_us;
	uint64_t acked_bytes; /* of the whole link, ever */
	bool busy;            /* there was always something to send since the last look */
	uint32_t rtt_us;      /* the path's, without queues; 0: unknown */
	uint32_t now_rtt_us;  /* lately, queues included; 0: unknown */
	uint32_t retransmits; /* of the whole link, ever */
	unsigned links; /* of this process that share its way, this one included; 0: it alone */
};

struct stripe {
	unsigned lanes;
	bool forced, begun; /* begun: how far it is was seen */
	enum { STRIPE_SETTLING, STRIPE_MEASURING } state;
	bool trying;        /* twice as many as before */
	unsigned good;      /* lanes that are known to be worth it */
	unsigned doubtful;  /* tries in a row that brought nothing on a path that is not full */
	double rate_before; /* bytes/s with half as many */
	double rate_failed; /* rate_before of the newest try that was not worth it */
	unsigned failures;  /* such tries in a row */
	uint64_t next_try_us;
	uint64_t looked_us, looked_bytes;
	uint32_t looked_retransmits;
	uint64_t busy_us, busy_bytes; /* of this state */
	uint64_t resent;              /* packets, in this state */
};

/* `forced`: always so many; 0: as the link needs. */
void stripe_init(struct stripe *stripe, unsigned forced);
/* How many lanes there should be from now on, 1 to TR_LANES_MAX. */
unsigned stripe_look(struct stripe *stripe, const struct stripe_sample *sample);
/* No more than these could be had; if it was forced, that is that. */
void stripe_refused(struct stripe *stripe, unsigned lanes, uint64_t now_us);

#endif
