/* What this process measures of its long ways: how far the worst is, and how much all of them carry together, up and down (rate.h). While something is
 * under way to a peer far off it looks every few milliseconds; what it finds goes with each vote (GROUP_LINKS) and with heartbeats, and says how fast we send (pacer.h). Ways of less than
 * GAUGE_RTT_US are left alone: what they carry is bound by processors more than by the way. Engine thread.
 */
#ifndef TR_COLLECTIVES_ENGINE_GAUGE_H
#define TR_COLLECTIVES_ENGINE_GAUGE_H

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "collectives/engine/pacer.h"
#include "collectives/engine/rate.h"

#define GAUGE_RTT_US 1000u

struct engine;
struct member;

/* Of one connection, by packets that came through. */
struct gauge_lane {
	bool counted; /* once: from there on */
	uint32_t packets;
	uint64_t bytes;
};

struct gauge {
	uv_timer_t timer;
	struct rate up, down;
	struct pacer pacer;
	uint64_t up_bytes, down_bytes,
	    moved_us;    /* totals of what is open, and when they last moved */
	uint32_t rtt_us; /* of the worst way; 0: none is long */
};

/* What one look finds. */
struct gauge_sum {
	uint64_t up_bytes, down_bytes;
	uint64_t sent_packets, resent_packets;
	uint32_t rtt_us, now_rtt_us; /* of the worst: without queues, and lately */
	unsigned links;              /* out */
};

/* All bytes of the connection since the first of these calls, now that it has carried so many packets. */
uint64_t gauge_count(struct gauge_lane *lane, uint32_t packets, uint32_t packet_bytes);

void gauge_init(struct engine *engine);
void gauge_stop(struct engine *engine);
/* Something goes out over a long way, or came in. */
void gauge_wake(struct engine *engine);
/* The next vote says what is known now. */
void gauge_tell(struct member *member);

#endif
