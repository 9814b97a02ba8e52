/* How many lanes a link has: as many as its stripe (stripe.h) wants, by what came through on those that it has. */
#include "collectives/engine/peer_link.h"

#include <inttypes.h>
#include <string.h>

#include "common/log.h"

/* Less than this in an interval is a pulse or two, or nothing. */
#define BUSY_BYTES_MIN 64u
/* Since the kernel was asked last for its rate. */
#define TOLD_BYTES_MIN (1u << 20)
/* What follows a pause comes late, and slowly at first. */
#define BUSY_RTTS 4
/* Of its part of a pace. */
#define TAKES_ITS_PART 0.7

unsigned peer_stripe_alive(const struct peer_link *link)
{
	unsigned count = 0;
	for (const struct peer_lane *pl = link->lanes; pl != NULL; pl = pl->next)
		count += pl->lane != NULL && !pl->retiring;
	return count;
}

static void grow(struct peer_link *link)
{
	const struct view_peer_entry *peer = member_view_peer(link->member, link->peer);
	unsigned alive = peer_stripe_alive(link);
	for (struct peer_lane *pl = link->lanes; pl != NULL && alive < link->stripe.lanes;
	     pl = pl->next) {
		if (!pl->up || !pl->retiring)
			continue;
		pl->retiring = false;
		alive++;
	}
	for (; peer != NULL && alive < link->stripe.lanes; alive++)
		if (peer_lane_dial(link, peer->address, NULL) != TR_OK)
			return;
}

static void shrink(struct peer_link *link)
{
	for (unsigned alive = peer_stripe_alive(link); alive > link->stripe.lanes; alive--) {
		struct peer_lane *newest = NULL;
		for (struct peer_lane *pl = link->lanes; pl != NULL; pl = pl->next)
			if (pl->up && !pl->retiring && pl != peer_lane_first_up(link))
				newest = pl;
		if (newest == NULL)
			return;
		newest->retiring = true;
	}
}

/* On a slow lane that takes its time, and what is cut off in the middle would be sent twice. */
static void retire_if_drained(struct peer_lane *pl)
{
	struct lane_counters counters;
	lane_counters(pl->lane, &counters);
	if (lane_unsent(pl->lane) > 0 || pl->acked_bytes < counters.bytes_out)
		return;
	pl->up = false;
	lane_finish(pl->lane, "one connection too many");
}

static void least(uint32_t *value, uint32_t other)
{
	if (other != 0 && (*value == 0 || other < *value))
		*value = other;
}

/* What has come through on the lane since it was last looked at. At which rate, if it was full; 0: it was not. */
static uint64_t count(struct peer_lane *pl, struct stripe_sample *now)
{
	struct lane_path path;
	lane_path(pl->lane, &path);
	/* It has closed since the loop's last turn: of its totals nothing is known any more. */
	if (path.acked_bytes < pl->acked_bytes || path.retransmits < pl->retransmits)
		return 0;
	pl->link->acked_bytes += path.acked_bytes - pl->acked_bytes;
	pl->link->retransmits += path.retransmits - pl->retransmits;
	pl->acked_bytes = path.acked_bytes;
	pl->retransmits = path.retransmits;
	pl->link->by_rate = strcmp(path.congestion, "bbr") == 0;
	least(&now->rtt_us, path.rtt_us);
	least(&now->now_rtt_us, path.now_rtt_us);
	return path.full_bytes_per_s;
}

/* What the kernel says of a link whose lanes were full: of one that is never idle for long, but whose pieces wait for others between them, as in a ring, no burst tells. */
static void tell_rate(struct peer_link *link, double bytes_per_s)
{
	if (link->near || link->distant || link->acked_bytes - link->told_bytes < TOLD_BYTES_MIN)
		return;
	link->told_bytes = link->acked_bytes;
	if (bytes_per_s > 0) {
		rate_newest_add(&link->rates, bytes_per_s);
		rate_newest_add(&link->lately, bytes_per_s);
	}
}

/* Of a burst that is no large one, but took longer than the time between two looks. */
static void tell_busy(struct peer_link *link, const struct stripe_sample *now)
{
	uint64_t us = now->now_us - link->busy.looked_us;
	uint64_t bytes = link->acked_bytes - link->busy.bytes;
	if (link->idle_seen || link->busy.looked_us == 0)
		link->busy.since_us = now->now_us;
	else if (!link->near && us > 0 && bytes >= BUSY_BYTES_MIN &&
	    now->now_us - link->busy.since_us >= BUSY_RTTS * (uint64_t)now->rtt_us)
		rate_newest_add(&link->lately, (double)bytes * 1e6 / (double)us);
	link->busy.looked_us = now->now_us;
	link->busy.bytes = link->acked_bytes;
}

unsigned peer_stripe_far_peers(const struct member *member)
{
	unsigned count = 0;
	for (size_t i = 0; i < member->view_peer_count; i++)
		count += !member->view_peers[i].near && member->view_peers[i].peer != member->peer;
	return count;
}

/* A paced link is no faster with more connections, but where losses bind one of cubic. */
static bool needs_more(const struct peer_link *link)
{
	const struct pacer_link *part = &link->pace.is;
	return part->bytes_per_s <= 0 ||
	    (!link->by_rate && part->takes < TAKES_ITS_PART * part->bytes_per_s);
}

/* `hungry`: there is nothing to send but this look's pulses. */
static void sample(struct peer_link *link, bool hungry)
{
	struct stripe_sample now = { .now_us = uv_hrtime() / 1000,
		.busy = !link->idle_seen && needs_more(link),
		.links = peer_stripe_far_peers(link->member) };
	double all_bytes_per_s = 0;
	bool full = true;
	for (struct peer_lane *pl = link->lanes; pl != NULL; pl = pl->next) {
		if (!pl->up)
			continue;
		uint64_t bytes_per_s = count(pl, &now);
		full = full && bytes_per_s > 0;
		all_bytes_per_s += (double)bytes_per_s;
		if (pl == peer_lane_first_up(link))
			pl->retiring = false; /* what is older has broken: votes stay on this one, in order */
		if (pl->retiring)
			retire_if_drained(pl);
	}
	tell_busy(link, &now);
	link->rtt_us = now.rtt_us;
	if (now.rtt_us > 0) {
		link->distant = now.rtt_us >= GAUGE_RTT_US;
		if (!link->distant)
			peer_pace_let_go(link);
	}
	tell_rate(link, full ? all_bytes_per_s : 0);
	now.acked_bytes = link->acked_bytes;
	now.retransmits = link->retransmits;
	unsigned before = link->stripe.lanes, wanted = stripe_look(&link->stripe, &now);
	if (wanted != before)
		log_info("engine",
		    "peer %" PRIu64 ": link to peer %" PRIu64
		    " over %u connections instead of %u (round trip %.1f ms)",
		    link->member->peer, link->peer, wanted, before, now.rtt_us / 1000.0);
	link->idle_seen = hungry;
}

/* On which lanes nothing was said since the last look. How many there are of all kinds. */
static unsigned look_for_quiet(struct peer_link *link)
{
	unsigned count = 0;
	for (struct peer_lane *pl = link->lanes; pl != NULL; pl = pl->next) {
		struct lane_counters counters;
		pl->quiet = false;
		if (!pl->up ||
		    pl->retiring) /* a pulse under way would keep it from having drained */
			continue;
		lane_counters(pl->lane, &counters);
		/* A view in which the way is longer asks for more of it than the one in which it was dialled. */
		lane_set_patience(pl->lane, (uint32_t)pulse_member_timeout_ms(link->member));
		pl->quiet = counters.bytes_out - pl->looked_bytes < BUSY_BYTES_MIN &&
		    lane_unsent(pl->lane) == 0;
		pl->looked_bytes = counters.bytes_out;
		count++;
	}
	return count;
}

/* On the next `many` of them, after those that have said it last. */
static void say_pulses(struct peer_link *link, unsigned many)
{
	uint32_t after = link->pulsed_lane;
	for (unsigned pass = 0; pass < 2; pass++)
		for (struct peer_lane *pl = link->lanes; pl != NULL && many > 0; pl = pl->next) {
			if (!pl->quiet || (pl->number > after) != (pass == 0))
				continue;
			peer_lane_pulse(pl);
			link->pulsed_lane = pl->number;
			many--;
		}
}

/* On how many idle lanes, of so many, a pulse is due. */
static unsigned due_now(struct peer_link *link, unsigned lanes)
{
	const struct engine *engine = link->member->engine;
	uint64_t timeout_ms = pulse_member_timeout_ms(link->member);
	bool relayed = link->way[0] != 0 || link->way[1] != 0;
	if (lanes > 1 && link->as_one && !relayed)
		return pulse_due(&link->mouth, link->acked_bytes, link->rtt_us,
		    engine->pulse.interval_ms, timeout_ms);
	return pulse_turns(lanes, engine->pulse.interval_ms, timeout_ms);
}

void peer_stripe_look(struct peer_link *link)
{
	if (peer_lane_first_up(link) == NULL)
		return;
	bool hungry = peer_lane_hungry(
	    link); /* a pulse on its way would make an idle link a busy one */
	unsigned lanes = look_for_quiet(link);
	sample(link, hungry);
	if (pulse_on(link->member->engine))
		say_pulses(link, due_now(link, lanes));
	grow(link);
	shrink(link);
	peer_lane_feed(link); /* one that was to go may have been taken back */
}
