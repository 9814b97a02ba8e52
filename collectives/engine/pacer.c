#include "collectives/engine/pacer.h"

#define CROWDED 0.01 /* of what is sent is sent again */
#define FULL    1.25 /* round trips of a way on which something queues */
#define EMPTY   1.1  /* of one on which nothing does */
#define CHANGED \
	0.7 /* of its rate: it is another way, or others use it, or there was less to send */

static void end_burst(struct pacer *pacer, const struct pacer_look *look)
{
	double up = arrival_end(&pacer->up), down = arrival_end(&pacer->down);
	uint64_t resent = look->resent_packets - pacer->began.resent_packets,
	         sent = look->sent_packets - pacer->began.sent_packets;
	bool one_way = look->down_bytes - pacer->began.down_bytes <
	    (look->up_bytes - pacer->began.up_bytes) / 2;
	double said = !one_way ? down : resent == 0 ? up : 0;
	double trips = (double)pacer->longest_us / (double)look->rtt_us;
	bool full = trips > FULL;
	pacer->gain = full ? PACER_GAIN_FULL : trips < EMPTY ? PACER_GAIN_EMPTY : PACER_GAIN;
	bool crowded = full && (double)resent > CROWDED * (double)sent;
	pacer->began = *look;
	pacer->longest_us = 0;
	if (said <= 0)
		return;
	pacer->said[pacer->bursts++ % PACER_BURSTS] = said;
	for (unsigned i = 0; i < PACER_BURSTS; i++)
		said = pacer->said[i] > said ? pacer->said[i] : said;
	if (pacer->on && full && said < CHANGED * pacer->bytes_per_s) {
		*pacer = (struct pacer){ .began = *look, .links = look->links, .gain = PACER_GAIN };
		return;
	}
	if (said > pacer->bytes_per_s || full)
		pacer->bytes_per_s = said;
	pacer->on = pacer->on || (crowded && look->links > 1 && look->rtt_us >= PACER_RTT_US);
}

void pacer_look(struct pacer *pacer, const struct pacer_look *look)
{
	uint64_t window_us = look->rtt_us / 4, burst_us = 8 * window_us;
	pacer->links = look->links;
	/* Counters are of what is open: they fall when something is closed. */
	if (pacer->began.now_us == 0 || look->resent_packets < pacer->began.resent_packets ||
	    look->sent_packets < pacer->began.sent_packets) {
		pacer->began = *look;
		pacer->longest_us = 0;
	}
	arrival_look(&pacer->up, look->now_us, look->up_bytes, window_us);
	arrival_look(&pacer->down, look->now_us, look->down_bytes, window_us);
	if (look->now_rtt_us > pacer->longest_us)
		pacer->longest_us = look->now_rtt_us;
	if (look->now_us - pacer->began.now_us >=
	    (burst_us > PACER_BURST_US ? burst_us : PACER_BURST_US))
		end_burst(pacer, look);
}

double pacer_way(const struct pacer *pacer)
{
	return pacer->on ? pacer->bytes_per_s : 0;
}

double pacer_rate(const struct pacer *pacer)
{
	if (!pacer->on || pacer->links < 2)
		return 0;
	return pacer->gain * pacer->bytes_per_s;
}

void pacer_share(double bytes_per_s, struct pacer_link *links, unsigned count)
{
	double left_over = bytes_per_s, equal = bytes_per_s / count;
	unsigned left = count;
	bool more = true;
	for (unsigned i = 0; i < count; i++)
		links[i].bytes_per_s = 0;
	/* Each that leaves something makes the parts of the others larger, so one that took its part before may not. */
	while (more && left > 1) {
		double part = left_over / left;
		more = false;
		for (unsigned i = 0; i < count && left > 1; i++) {
			double room = PACER_ROOM * links[i].takes;
			if (links[i].bytes_per_s > 0 || !links[i].settled || room >= part)
				continue;
			links[i].bytes_per_s = equal;
			left_over -= room;
			left--;
			more = true;
		}
	}
	for (unsigned i = 0; i < count; i++)
		if (links[i].bytes_per_s <= 0)
			links[i].bytes_per_s = left_over / left;
}
