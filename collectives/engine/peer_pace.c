/* The pace of each connection over a long way: its part of what all of them together may send (pacer.h). */
#include "collectives/engine/peer_link.h"

#define SETTLED_RTTS 3 /* of having something to send: what a link takes then is what it can take */
#define NOISE        0.02     /* a pace that differs less stays */
#define PACE_MIN     64e3     /* bytes/s of a connection */
#define SAID_US      1000000u /* until it is said again */

static uint64_t bytes_through(const struct peer_link *link)
{
	uint64_t bytes = 0;
	for (const struct peer_lane *pl = link->lanes; pl != NULL; pl = pl->next)
		bytes += pl->gauged.bytes;
	return bytes;
}

static bool in_use(const struct peer_lane *pl, uint32_t rtt_us, uint64_t now_us)
{
	return pl->up && (lane_unsent(pl->lane) > 0 || gauge_moves(&pl->gauged, rtt_us, now_us));
}

/* Segments wait, or did within the last round trip: the kernel has some of them still. Votes are small. */
static bool is_busy(struct peer_link *link, uint32_t rtt_us, uint64_t now_us)
{
	if (link->unwritten > 0 || link->queue[OUTGOING_HOT].first != NULL ||
	    link->queue[OUTGOING_OWN].first != NULL)
		link->pace.waited_us = now_us;
	return link->distant && !link->closing && link->pace.waited_us > 0 &&
	    now_us - link->pace.waited_us <= rtt_us;
}

/* What it takes is a mean over about a round trip. */
static void look_at(struct peer_link *link, uint32_t rtt_us, uint64_t now_us)
{
	uint64_t bytes = bytes_through(link), us = now_us - link->pace.looked_us;
	bool busy = is_busy(link, rtt_us, now_us);
	if (busy && !link->pace.busy)
		link->pace.busy_since_us = now_us;
	link->pace.busy = busy;
	link->pace.is.settled = busy &&
	    now_us - link->pace.busy_since_us > SETTLED_RTTS * (uint64_t)rtt_us;
	if (us > 0 && bytes >= link->pace.bytes && rtt_us > 0) {
		double rate = (double)(bytes - link->pace.bytes) * 1e6 / (double)us,
		       part = (double)us / rtt_us;
		link->pace.is.takes += (part < 1 ? part : 1) * (rate - link->pace.is.takes);
	}
	link->pace.bytes = bytes;
	link->pace.looked_us = now_us;
}

static bool differs(double now, double then)
{
	return now > then * (1 + NOISE) || now < then * (1 - NOISE);
}

/* Those that carry something share it; others may begin with all of it. */
static void apply(struct peer_link *link, uint32_t rtt_us, uint64_t now_us)
{
	unsigned used = 0;
	for (const struct peer_lane *pl = link->lanes; pl != NULL; pl = pl->next)
		used += in_use(pl, rtt_us, now_us);
	for (struct peer_lane *pl = link->lanes; pl != NULL; pl = pl->next) {
		double pace = link->pace.is.bytes_per_s;
		if (used > 1 && in_use(pl, rtt_us, now_us))
			pace /= used;
		if (pace > 0 && pace < PACE_MIN)
			pace = PACE_MIN;
		bool old = pace > 0 && now_us - pl->paced_us >= SAID_US;
		if (!pl->up || (!differs(pace, pl->pace) && !old))
			continue;
		pl->pace = pace;
		pl->paced_us = now_us;
		lane_set_pace(pl->lane, pace);
	}
}

void peer_pace_let_go(struct peer_link *link)
{
	link->pace.is.bytes_per_s = 0;
	apply(link, 0, 0);
}

static void let_all_go(struct engine *engine)
{
	for (struct member *m = engine->members; m != NULL; m = m->next)
		for (struct peer_link *link = m->links; link != NULL; link = link->next)
			peer_pace_let_go(link);
}

void peer_pace_all(struct engine *engine, double bytes_per_s, uint32_t rtt_us, uint64_t now_us)
{
	struct pacer_link parts[TR_GROUP_PEERS_MAX];
	unsigned count = 0, busy = 0;
	if (bytes_per_s <= 0) {
		let_all_go(engine);
		return;
	}
	for (struct member *m = engine->members; m != NULL; m = m->next)
		for (struct peer_link *link = m->links; link != NULL; link = link->next) {
			look_at(link, rtt_us, now_us);
			if (link->pace.busy && busy++ < TR_GROUP_PEERS_MAX)
				parts[count++] = link->pace.is;
		}
	/* Those beyond so many have equal parts. */
	double part = busy > 0 ? bytes_per_s / busy : 0;
	pacer_share(part * count, parts, count);
	busy = 0;
	for (struct member *m = engine->members; m != NULL; m = m->next)
		for (struct peer_link *link = m->links; link != NULL; link = link->next) {
			if (!link->pace.busy)
				continue;
			link->pace.is.bytes_per_s = busy < count ? parts[busy].bytes_per_s : part;
			busy++;
			apply(link, rtt_us, now_us);
		}
}
