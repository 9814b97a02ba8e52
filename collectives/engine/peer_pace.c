/* The pace of each connection over a long way: its part of what all of them together may send (pacer.h). */
#include "collectives/engine/peer_link.h"

#define SETTLED_RTTS 3 /* of having something to send: what a link takes then is what it can take */
#define NOISE        0.02 /* a pace that differs less stays */

static uint64_t bytes_through(const struct peer_link *link)
{
	uint64_t bytes = 0;
	for (const struct peer_lane *pl = link->lanes; pl != NULL; pl = pl->next)
		bytes += pl->gauged.bytes;
	return bytes;
}

/* Segments wait; votes are small. */
static bool is_busy(const struct peer_link *link)
{
	return link->distant && !link->closing &&
	    (link->unwritten > 0 || link->queue[OUTGOING_HOT].first != NULL ||
	        link->queue[OUTGOING_OWN].first != NULL);
}

/* What it takes is a mean over about a round trip. */
static void look_at(struct peer_link *link, uint32_t rtt_us, uint64_t now_us)
{
	uint64_t bytes = bytes_through(link), us = now_us - link->pace.looked_us;
	bool busy = is_busy(link);
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

static void apply(struct peer_link *link)
{
	unsigned lanes = 0;
	for (const struct peer_lane *pl = link->lanes; pl != NULL; pl = pl->next)
		lanes += pl->up && !pl->retiring;
	for (struct peer_lane *pl = link->lanes; pl != NULL; pl = pl->next) {
		double pace = lanes > 0 ? link->pace.is.bytes_per_s / lanes : 0;
		if (!pl->up || !differs(pace, pl->pace))
			continue;
		pl->pace = pace;
		lane_set_pace(pl->lane, pace);
	}
}

static void free_all(struct engine *engine)
{
	for (struct member *m = engine->members; m != NULL; m = m->next)
		for (struct peer_link *link = m->links; link != NULL; link = link->next) {
			link->pace.is = (struct pacer_link){ 0 };
			apply(link);
		}
}

void peer_pace_all(struct engine *engine, double bytes_per_s, uint32_t rtt_us, uint64_t now_us)
{
	struct pacer_link parts[TR_GROUP_PEERS_MAX];
	struct peer_link *of[TR_GROUP_PEERS_MAX];
	unsigned count = 0;
	if (bytes_per_s <= 0) {
		free_all(engine);
		return;
	}
	for (struct member *m = engine->members; m != NULL; m = m->next)
		for (struct peer_link *link = m->links; link != NULL; link = link->next) {
			look_at(link, rtt_us, now_us);
			if (!link->distant) { /* any more */
				link->pace.is.bytes_per_s = 0;
				apply(link);
			}
			if (!link->pace.busy || count == TR_GROUP_PEERS_MAX)
				continue;
			of[count] = link;
			parts[count++] = link->pace.is;
		}
	pacer_share(bytes_per_s, parts, count);
	for (unsigned i = 0; i < count; i++) {
		of[i]->pace.is.bytes_per_s = parts[i].bytes_per_s;
		apply(of[i]);
	}
}
