#include "collectives/engine/gauge.h"

#include "collectives/engine/engine_internal.h"
#include "collectives/transport/lane.h"
#include "common/log.h"

#define LOOK_MS 4
/* Less is votes and pulses. */
#define MOVED_PACKETS 8
#define QUIET_US      60000u /* nothing moved for so long, and for two round trips: it is over */

uint64_t gauge_count(struct gauge_lane *lane, uint32_t packets, uint32_t packet_bytes)
{
	/* All that it carried before its way counted as long did not go in this moment. */
	if (lane->counted)
		lane->bytes += (uint64_t)(uint32_t)(packets - lane->packets) * packet_bytes;
	lane->counted = true;
	lane->packets = packets;
	return lane->bytes;
}

bool gauge_moves(const struct gauge_lane *lane, uint32_t rtt_us, uint64_t now_us)
{
	return lane->moved_us > 0 && now_us - lane->moved_us <= rtt_us;
}

void gauge_out(struct gauge_lane *lane, const struct lane_glance *now, uint32_t least_us,
    struct gauge_sum *sum)
{
	if (lane->counted) {
		lane->sent_packets += (uint32_t)(now->packets_out - lane->packets);
		lane->resent_packets += (uint32_t)(now->retransmits - lane->retransmits);
	}
	lane->retransmits = now->retransmits;
	sum->up_bytes += gauge_count(lane, now->packets_out, now->packet_bytes_out);
	sum->sent_packets += lane->sent_packets;
	sum->resent_packets += lane->resent_packets;
	if (lane->sent_packets - lane->moved_packets >= MOVED_PACKETS) {
		lane->moved_packets = lane->sent_packets;
		lane->moved_us = sum->now_us;
	}
	if (!gauge_moves(lane, least_us, sum->now_us) || least_us == 0)
		return;
	double trips = (double)now->now_rtt_us / least_us;
	if (sum->trips <= 0 || trips < sum->trips)
		sum->trips = trips;
}

static void look_at(const struct engine *engine, uint64_t now_us, struct gauge_sum *sum)
{
	*sum = (struct gauge_sum){ .now_us = now_us };
	for (struct member *m = engine->members; m != NULL; m = m->next) {
		if (m->over)
			continue;
		peer_link_gauge(m, sum);
		inbound_gauge(m, sum);
	}
}

/* The slower direction, as views have it; 0: nothing is known. Where queues overflow heaps make both look faster than the way is. */
static double slower(const struct gauge *gauge)
{
	double up = gauge->up.bytes_per_s, down = gauge->down.bytes_per_s;
	double found = up <= 0 || down <= 0 ? (up > down ? up : down) : up < down ? up : down;
	double paced = pacer_way(&gauge->pacer);
	return paced > 0 && paced < found ? paced : found;
}

static void told(struct engine *engine)
{
	pthread_mutex_lock(&engine->lock);
	engine->bandwidth_bytes_per_s = slower(&engine->gauge);
	pthread_mutex_unlock(&engine->lock);
}

static bool moved(const struct gauge *gauge, const struct gauge_sum *sum)
{
	return sum->up_bytes != gauge->up_bytes || sum->down_bytes != gauge->down_bytes;
}

static void pace(struct engine *engine, const struct gauge_sum *sum, uint64_t now_us)
{
	struct gauge *gauge = &engine->gauge;
	bool before = pacer_rate(&gauge->pacer) > 0;
	pacer_look(&gauge->pacer,
	    &(struct pacer_look){ .now_us = now_us,
	        .up_bytes = sum->up_bytes,
	        .down_bytes = sum->down_bytes,
	        .sent_packets = sum->sent_packets,
	        .resent_packets = sum->resent_packets,
	        .rtt_us = gauge->rtt_us,
	        .trips = sum->trips,
	        .peers = sum->peers });
	double bytes_per_s = pacer_rate(&gauge->pacer);
	if (bytes_per_s > 0 || before)
		peer_pace_all(engine, bytes_per_s, gauge->rtt_us, now_us);
	if (bytes_per_s > 0 && !gauge->paced)
		log_info("engine",
		    "queues of long ways (round trip %.0f ms) overflow: no more than they carry "
		    "goes out over all of them, for now %.1f MB/s",
		    gauge->rtt_us / 1e3, bytes_per_s / 1e6);
	gauge->paced = gauge->paced || bytes_per_s > 0;
}

static void on_look(uv_timer_t *timer)
{
	struct engine *engine = timer->data;
	struct gauge *gauge = &engine->gauge;
	struct gauge_sum sum;
	uint64_t now_us = uv_hrtime() / 1000;
	look_at(engine, now_us, &sum);
	if (sum.rtt_us > 0)
		gauge->rtt_us = gauge->up.rtt_us = gauge->down.rtt_us = sum.rtt_us;
	if (moved(gauge, &sum))
		gauge->moved_us = now_us;
	gauge->up_bytes = sum.up_bytes;
	gauge->down_bytes = sum.down_bytes;
	int news = rate_look(&gauge->up, now_us, sum.up_bytes);
	news |= rate_look(&gauge->down, now_us, sum.down_bytes);
	if (now_us - gauge->moved_us > QUIET_US + 2 * (uint64_t)gauge->rtt_us) {
		news |= rate_rest(&gauge->up, now_us);
		news |= rate_rest(&gauge->down, now_us);
		(void)uv_timer_stop(timer);
	}
	pace(engine, &sum, now_us);
	if (news)
		told(engine);
}

void gauge_init(struct engine *engine)
{
	(void)uv_timer_init(&engine->loop, &engine->gauge.timer);
	engine->gauge.timer.data = engine;
}

void gauge_stop(struct engine *engine)
{
	uv_close((uv_handle_t *)&engine->gauge.timer, NULL);
}

void gauge_wake(struct engine *engine)
{
	uv_timer_t *timer = &engine->gauge.timer;
	if (engine->stopping || uv_is_active((uv_handle_t *)timer))
		return;
	engine->gauge.moved_us = uv_hrtime() / 1000;
	(void)uv_timer_start(timer, on_look, LOOK_MS, LOOK_MS);
}

bool gauge_is_far(const struct engine *engine)
{
	for (const struct member *m = engine->members; m != NULL; m = m->next)
		if (!m->over && peer_link_far(m))
			return true;
	return false;
}

void gauge_tell(struct member *member)
{
	struct gauge *gauge = &member->engine->gauge;
	struct group_event event = { .kind = GROUP_LINKS };
	uint64_t now_us = uv_hrtime() / 1000;
	if (gauge->rtt_us == 0)
		return;
	int news = rate_rest(&gauge->up,
	    now_us); /* rounds follow one another too closely for a rest */
	news |= rate_rest(&gauge->down, now_us);
	if (news)
		told(member->engine);
	/* Who was far may have left, or be in another group: that is none of this one's ways. */
	if (peer_link_far(member)) {
		event.links.latency_us = gauge->rtt_us / 2;
		event.links.bandwidth_bytes_per_s = (uint64_t)slower(gauge);
	}
	(void)member_step(member, &event, NULL);
}
