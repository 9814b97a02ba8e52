/* How fast bytes came, from looks at a total that grew: what a way carries while it is full. Pure.
 *
 * The first half of the time tells little: windows open, and what the way's own buckets and queues had room for came faster than the rest
 * can. So the rate is that of the second half.
 *
 *	struct probe_rate rate = { 0 };
 *	probe_rate_look(&rate, now_us, total_bytes);     after each read, the first one with the first bytes
 *	bytes_per_s = probe_rate_of(&rate);
 */
#ifndef TR_COLLECTIVES_TRANSPORT_PROBE_RATE_H
#define TR_COLLECTIVES_TRANSPORT_PROBE_RATE_H

#include <stdbool.h>
#include <stdint.h>

#define PROBE_RATE_LOOKS       256
#define PROBE_RATE_SETTLED     0.04
#define PROBE_RATE_LOOKS_LEAST 16 /* fewer do not tell quarters apart */

struct probe_rate {
	struct {
		uint64_t us, bytes;
	} look[PROBE_RATE_LOOKS]; /* when there are too many every second one goes */
	unsigned looks;
	uint64_t apart_us; /* a look nearer than that to the one before takes its place */
};

/* `total` never shrinks, nor does the time. */
void probe_rate_look(struct probe_rate *rate, uint64_t now_us, uint64_t total);
double probe_rate_of(const struct probe_rate *rate); /* 0: no two looks at different times */
/* That between two times after the first look, while others who began with it are under way too: what each has in its own socket then comes later, and longer of who is slow. */
double probe_rate_within(const struct probe_rate *rate, uint64_t from_us, uint64_t to_us);
/* It has lasted for so long, and its last three quarters were equally fast to within PROBE_RATE_SETTLED. A bucket that lasts longer than that is not seen. */
bool probe_rate_settled(const struct probe_rate *rate, uint64_t least_us);

#endif
