#include "collectives/engine/pacer.h"

#define CROWDED    0.01 /* of what is sent is sent again */
#define RESENT_MIN 32
#define QUEUED     1.1  /* round trips of a way on which something queues */
#define FULL       1.25 /* and a lot */
#define SPIKES     10   /* one look of so many that is so is none of its second's */
#define AT_PACE    0.85 /* of what we may send is all of it */
#define CHANGED \
	0.7 /* of its rate: it is another way, or others use it, or there was less to send */

static void begin_burst(struct pacer *pacer, const struct pacer_look *look)
{
	pacer->began = *look;
	pacer->looks = pacer->queued_looks = pacer->full_looks = 0;
}

static void forget(struct pacer *pacer, const struct pacer_look *look)
{
	*pacer = (struct pacer){ .last = *look, .gain = PACER_GAIN };
	begin_burst(pacer, look);
}

/* What this burst shows of the way, at least; 0: nothing. */
static double shown(struct pacer *pacer, const struct pacer_look *look, bool full)
{
	double seen = arrival_end(&pacer->down);
	uint64_t out = look->up_bytes - pacer->began.up_bytes,
	         in = look->down_bytes - pacer->began.down_bytes;
	double mean = (double)out * 1e6 / (double)(look->now_us - pacer->began.now_us);
	double said = in >= out / 2 ? seen : full ? mean : 0;
	return said > 0 && mean > said ? mean : said;
}

static double largest(const struct pacer *pacer)
{
	double most = 0;
	for (unsigned i = 0; i < PACER_BURSTS; i++)
		most = pacer->said[i] > most ? pacer->said[i] : most;
	return most;
}

/* Sends what it may. */
static bool at_pace(const struct pacer *pacer, const struct pacer_look *look)
{
	double out = (double)(look->up_bytes - pacer->began.up_bytes);
	return pacer_rate(pacer) > 0 &&
	    out * 1e6 >=
	    AT_PACE * pacer->bytes_per_s * (double)(look->now_us - pacer->began.now_us);
}

static void end_burst(struct pacer *pacer, const struct pacer_look *look)
{
	uint64_t resent = look->resent_packets - pacer->began.resent_packets,
	         sent = look->sent_packets - pacer->began.sent_packets;
	bool full = pacer->full_looks * SPIKES > pacer->looks,
	     queued = pacer->queued_looks * SPIKES > pacer->looks;
	bool crowded = full && resent >= RESENT_MIN && (double)resent > CROWDED * (double)sent;
	bool grows = !queued && at_pace(pacer, look);
	double said = shown(pacer, look, full);
	begin_burst(pacer, look);
	pacer->gain = full ? PACER_GAIN_FULL : PACER_GAIN;
	if (grows)
		pacer->bytes_per_s *= PACER_GROWS;
	if (said <= 0)
		return;
	pacer->said[pacer->bursts++ % PACER_BURSTS] = said;
	said = largest(pacer);
	if (said > pacer->bytes_per_s || full)
		pacer->bytes_per_s = said;
	pacer->on = pacer->on ||
	    (crowded && pacer->bursts > 1 && look->peers > 1 && look->rtt_us >= PACER_RTT_US);
	if (!pacer->on)
		return;
	pacer->most = pacer->bytes_per_s > pacer->most ? pacer->bytes_per_s : pacer->most;
	if (pacer->bytes_per_s < CHANGED * pacer->most)
		forget(pacer, look);
}

/* Totals are of what is open: they fall when something is closed. */
static bool fell(const struct pacer_look *now, const struct pacer_look *then)
{
	return now->up_bytes < then->up_bytes || now->down_bytes < then->down_bytes ||
	    now->sent_packets < then->sent_packets || now->resent_packets < then->resent_packets;
}

void pacer_look(struct pacer *pacer, const struct pacer_look *look)
{
	uint64_t window_us = look->rtt_us / 4, burst_us = 8 * window_us;
	if (look->rtt_us == 0)
		return;
	if (look->now_us - pacer->last.now_us > PACER_KEEPS_US)
		forget(pacer, look);
	if (fell(look, &pacer->last))
		begin_burst(pacer, look);
	pacer->last = *look;
	arrival_look(&pacer->down, look->now_us, look->down_bytes, window_us);
	pacer->looks += look->trips > 0;
	pacer->queued_looks += look->trips > QUEUED;
	pacer->full_looks += look->trips > FULL;
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
	return pacer->on && pacer->last.peers > 1 ? pacer->gain * pacer->bytes_per_s : 0;
}

void pacer_share(double bytes_per_s, struct pacer_link *links, unsigned count)
{
	double left_over = bytes_per_s, equal = count > 0 ? bytes_per_s / count : 0;
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
