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
struct lane_glance;
struct member;

/* Of one connection, by packets that came through. */
struct gauge_lane {
	bool counted; /* once: from there on */
	uint32_t packets, retransmits;
	uint64_t bytes, sent_packets, resent_packets;
	/* Some packets at least, not a vote or a pulse: then, and how many of sent_packets there were. */
	uint64_t moved_us, moved_packets;
};

struct gauge {
	uv_timer_t timer;
	struct rate up, down;
	struct pacer pacer;
	uint64_t up_bytes, down_bytes,
	    moved_us;    /* totals of what is open, and when they last moved */
	uint32_t rtt_us; /* of the worst way, when there was one last; 0: none was long */
	bool paced;      /* the log has said it */
};

/* What one look finds. */
struct gauge_sum {
	uint64_t up_bytes, down_bytes;
	uint64_t sent_packets, resent_packets;
	uint32_t rtt_us; /* of the worst, without queues */
	/* As many times as long a round trip is lately as it is without queues, of the least one on which something moves: what queues at our end shows on all of them. 0: nothing does. */
	double trips;
	unsigned peers;  /* on other hosts */
	uint64_t now_us; /* set by who asks */
};

/* All bytes of the connection since the first of these calls, now that it has carried so many packets. */
uint64_t gauge_count(struct gauge_lane *lane, uint32_t packets, uint32_t packet_bytes);

/* More than votes, within a round trip. */
bool gauge_moves(const struct gauge_lane *lane, uint32_t rtt_us, uint64_t now_us);
/* Adds what a connection of ours has carried. `least_us`: the round trip of its link, without queues. */
void gauge_out(struct gauge_lane *lane, const struct lane_glance *now, uint32_t least_us,
    struct gauge_sum *sum);

void gauge_init(struct engine *engine);
void gauge_stop(struct engine *engine);
/* Something goes out over a long way, or came in. */
void gauge_wake(struct engine *engine);
/* The next vote says what is known now of this member's long ways. */
void gauge_tell(struct member *member);
/* There is a long way now. */
bool gauge_is_far(const struct engine *engine);

#endif
