/* Over how many connections a link's frames go. One is enough on a loopback and on a LAN. Over a long way one stream may
 * not fill the link (windows, losses), so more are tried while there is always something to send: twice as many, kept if
 * the rate grew by a tenth, else given back and not tried again for a while. Pure: looks come in at regular intervals.
 *
 *	stripe_init(&stripe, 0);
 *	lanes = stripe_look(&stripe, &(struct stripe_sample){ now_us, bytes_out, busy, rtt_us, retransmits });
 */
#ifndef TR_COLLECTIVES_ENGINE_STRIPE_H
#define TR_COLLECTIVES_ENGINE_STRIPE_H

#include <stdbool.h>
#include <stdint.h>

struct stripe_sample {
	uint64_t now_us;
	uint64_t bytes_out;   /* of the whole link, ever */
	bool busy;            /* frames were waiting all the time since the last look */
	uint32_t rtt_us;      /* the path's; 0: unknown */
	uint32_t retransmits; /* of the whole link, ever */
};

struct stripe {
	unsigned lanes;
	bool forced;
	enum { STRIPE_STEADY, STRIPE_SETTLING, STRIPE_JUDGING } state;
	double rate_before; /* bytes/s with half as many */
	uint64_t looked_us, looked_bytes, settled_us, next_try_us;
	uint32_t looked_retransmits;
};

/* `forced`: always so many; 0: as the link needs. */
void stripe_init(struct stripe *stripe, unsigned forced);
/* How many lanes there should be from now on, 1 to TR_LANES_MAX. */
unsigned stripe_look(struct stripe *stripe, const struct stripe_sample *sample);

#endif
