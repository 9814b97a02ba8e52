/* One direction of an emulated line, as arithmetic: when a packet that enters now comes out at the other end, or why it does
 * not. No clock and no packets in here: the relay (relay.h) holds them until the time that this says.
 *
 *	enters -> queue of `queue_bytes`, tail drop -> `rate` with a bucket of `burst_bytes` -> `loss` -> `delay` +- `jitter`
 *
 * A line that is busy is known by one number, the time at which it has sent all that it took (the virtual scheduling
 * algorithm of ITU-T I.371, annex A), so a queue costs no memory and no timers. A lost packet takes its time on the line. In
 * order, unless `reorder`: then jitter may let one overtake another. Random draws are a function of the key and of how many
 * packets came before, so a run with the same packets in the same order loses the same ones.
 *
 *	struct wire wire;
 *	wire_init(&wire, &shape, rng_key(seed, from, to));
 *	if (wire_admit(&wire, now_ns, 1500, &arrives_ns) == WIRE_ARRIVES)
 *		...
 */
#ifndef TR_TESTS_WAN_WIRE_H
#define TR_TESTS_WAN_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/rng.h"

#define WIRE_QUEUE_MIN  (64u << 10) /* of a queue that nobody chose */
#define WIRE_QUEUE_DIV  80          /* such a queue holds 1/10 s at the line's rate of bits */
#define WIRE_RATE_MAX   100000000000ull
#define WIRE_DELAY_MAX  60000000000ull
#define WIRE_PACKET_MAX 65535u
#define WIRE_QUEUE_MAX  ((uint64_t)1 << 32)

struct wire_shape {
	uint64_t rate;        /* bits/s of IP packets, headers included; 0: unlimited */
	uint64_t queue_bytes; /* that wait or are being sent; 0: WIRE_QUEUE_* */
	uint64_t burst_bytes; /* that go at once after a pause; 0: every packet takes its time */
	uint64_t delay_ns, jitter_ns; /* evenly spread over delay - jitter to delay + jitter */
	double loss;                  /* 0 to 1 */
	bool reorder;
	bool blackhole; /* nothing that enters comes out */
	bool cut;       /* the same, and what is under way is lost */
};

enum wire_fate {
	WIRE_ARRIVES,
	WIRE_DROPPED, /* the queue was full */
	WIRE_LOST,
	WIRE_SWALLOWED, /* blackhole or cut */
	WIRE_FATES
};

struct wire {
	struct wire_shape shape;
	struct rng_key key;
	uint64_t sent_ns;    /* when all that was taken has been sent */
	uint64_t arrived_ns; /* of the newest one; never less for the next, unless `reorder` */
	uint64_t entered_ns;
	uint64_t packets[WIRE_FATES], bytes; /* bytes: of those that arrive */
};

void wire_init(struct wire *wire, const struct wire_shape *shape, struct rng_key key);
/* From now on. What waits in the queue keeps its place: it takes as long as its bytes do at the new rate for those behind it. */
void wire_reshape(struct wire *wire, const struct wire_shape *shape, uint64_t now_ns);
/* `now_ns`: not before that of the call before (if it is, that one's). `arrives_ns` is written for WIRE_ARRIVES only. */
enum wire_fate wire_admit(struct wire *wire, uint64_t now_ns, size_t bytes, uint64_t *arrives_ns);
/* Bytes that wait or are being sent. */
uint64_t wire_backlog(const struct wire *wire, uint64_t now_ns);

#endif
