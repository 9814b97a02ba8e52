/* Links: what goes from a member to its peers. Dialled on demand, again with growing pauses until the timeout (pulse.h) has
 * passed; frames wait meanwhile. A link whose last connection breaks after it carried frames of the view may have lost
 * some, and the core never sends twice in a view: it is told (GROUP_LINK_LOST), and a new view repairs.
 */
#include "collectives/engine/peer_link.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/log.h"

#define VOTES_BYTES (64u << 10) /* on their way, are no segments yet */

static void link_dial(struct peer_link *link);

/* ---- life ---- */

static void drop_waiting(struct peer_link *link)
{
	for (unsigned c = 0; c < OUTGOING_CLASSES; c++)
		outgoing_drop_all(&link->queue[c]);
}

static void on_redial_closed(uv_handle_t *handle)
{
	struct peer_link *link = handle->data;
	struct member *member = link->member;
	free(link);
	member_unhold(member);
}

/* Its lanes are gone. */
static void link_remove(struct peer_link *link)
{
	struct peer_link **at = &link->member->links;
	while (*at != link)
		at = &(*at)->next;
	*at = link->next;
	drop_waiting(link);
	uv_close((uv_handle_t *)&link->redial, on_redial_closed);
}

static struct peer_link *link_find(struct member *member, uint64_t peer)
{
	struct peer_link *link = member->links;
	while (link != NULL && (link->peer != peer || link->closing))
		link = link->next;
	return link;
}

static struct peer_link *link_get(struct member *member, uint64_t peer)
{
	struct peer_link *link = link_find(member, peer);
	if (link != NULL)
		return link;
	link = calloc(1, sizeof(*link));
	if (link == NULL)
		return NULL;
	link->member = member;
	link->peer = peer;
	link->name = ++member->links_made;
	link->pause_ms = TR_REDIAL_FIRST_MS;
	for (unsigned c = 0; c < OUTGOING_CLASSES; c++)
		outgoing_list_init(&link->queue[c]);
	stripe_init(&link->stripe, member->engine->links.sockets);
	(void)uv_timer_init(&member->engine->loop, &link->redial);
	link->redial.data = link;
	member->holds++;
	link->next = member->links;
	member->links = link;
	return link;
}

/* ---- connecting ---- */

void peer_link_lost(struct peer_link *link, const char *reason)
{
	log_info("engine", "peer %" PRIu64 ": link to peer %" PRIu64 ": %s", link->member->peer,
	    link->peer, reason);
	link->dialling_since_ms = 0;
	drop_waiting(link);
	member_post(link->member, GROUP_LINK_LOST, link->peer, 0, TR_OK, reason);
}

static void on_redial(uv_timer_t *timer)
{
	link_dial(timer->data);
}

static bool dialled_long_enough(const struct peer_link *link)
{
	uint64_t now_ms = uv_now(&link->member->engine->loop);
	return now_ms - link->dialling_since_ms >= pulse_member_timeout_ms(link->member);
}

static void redial_later(struct peer_link *link)
{
	(void)uv_timer_start(&link->redial, on_redial, link->pause_ms, 0);
	if (link->pause_ms < TR_REDIAL_LAST_MS)
		link->pause_ms *= 2;
}

/* For a link's first dial, and for one more that was under way when its last connection broke. */
static void count_from_now(struct peer_link *link)
{
	if (link->dialling_since_ms == 0)
		link->dialling_since_ms = uv_now(&link->member->engine->loop);
}

void link_dial_failed(struct peer_link *link, const char *cause)
{
	count_from_now(link);
	if (!dialled_long_enough(link)) {
		redial_later(link);
		return;
	}
	link->pause_ms = TR_REDIAL_FIRST_MS;
	peer_link_lost(link, cause);
}

void link_lane_opened(struct peer_link *link)
{
	link->dialling_since_ms = 0;
	link->pause_ms = TR_REDIAL_FIRST_MS;
	peer_stripe_look(link);
	peer_lane_feed(link);
	state_receive_link_up(link->member);
}

static bool link_waits(const struct peer_link *link)
{
	bool waits = false;
	for (unsigned c = 0; c < OUTGOING_CLASSES; c++)
		waits = waits || link->queue[c].first != NULL;
	return waits;
}

void link_last_lane_closed(struct peer_link *link, const char *reason)
{
	link->striped = false;
	if (link->closing || link->member->over)
		link_remove(link);
	else if (link->sent_view == link->member->view && link->sent_view != 0)
		peer_link_lost(link, reason);
	else if (pulse_on(link->member->engine) || link_waits(link))
		/* nothing was lost, but the other side waits for pulses, or for what waits here */
		(void)uv_timer_start(&link->redial, on_redial, link->pause_ms, 0);
}

/* Shared memory with every peer of this host that can; else TCP. A caller who asked for nothing else hears of it once the
 * peer had its time: if it has died, a view without it comes first. */
void link_not_near(struct peer_link *link, const char *cause)
{
	struct member *member = link->member;
	char reason[TR_ERROR_TEXT_MAX];
	bool demanded = member->engine->links.transport == TR_TRANSPORT_SHM;
	link->near = false;
	if (demanded && !dialled_long_enough(link)) {
		redial_later(link);
	} else if (demanded) {
		(void)snprintf(reason, sizeof(reason),
		    "transport shm: no shared memory with peer %" PRIu64 " of this host: %s",
		    link->peer, cause);
		member_failed(member, TR_EUNAVAILABLE, reason);
		member_end(member, TR_EUNAVAILABLE, reason);
	} else {
		log_info("engine",
		    "peer %" PRIu64 ": no shared memory with peer %" PRIu64 ": %s; over TCP",
		    member->peer, link->peer, cause);
		link->far = true;
		stripe_init(&link->stripe, member->engine->links.sockets);
		link_dial(link);
	}
}

static bool try_near(struct peer_link *link, const struct view_peer_entry *peer)
{
	const struct engine *engine = link->member->engine;
	struct tr_error error = { 0 };
	bool shares = peer->local_address[0] != '\0';
	link->near = peer->near && engine->shm != NULL && !link->far &&
	    (shares || engine->links.transport == TR_TRANSPORT_SHM) &&
	    engine->links.transport != TR_TRANSPORT_TCP;
	if (!link->near)
		return false;
	if (!shares) {
		link_not_near(link, "it was told to share none, or cannot");
		return true;
	}
	stripe_init(&link->stripe, 1);
	if (peer_lane_dial(link, peer->local_address, &error) != TR_OK)
		link_not_near(link, error.text);
	return true;
}

static void way_of(const struct view_peer_entry *peer, uint64_t way[2])
{
	way[0] = peer->relay != NULL ? peer->relay->say.token[0] : 0;
	way[1] = peer->relay != NULL ? peer->relay->say.token[1] : 0;
}

/* A dial of the way before may be without an answer for long: its end would be taken for that of the new one, which was not tried. */
static void link_way_changed(struct peer_link *link, const struct view_peer_entry *peer)
{
	uint64_t way[2];
	way_of(peer, way);
	if (peer_lane_first_up(link) != NULL || memcmp(way, link->way, sizeof(way)) == 0)
		return;
	link->dialling_since_ms = 0;
	link->pause_ms = TR_REDIAL_FIRST_MS;
	for (struct peer_lane *pl = link->lanes; pl != NULL; pl = pl->next)
		if (pl->lane != NULL && !pl->retiring)
			lane_close(pl->lane, "there is another way");
}

static void link_dial(struct peer_link *link)
{
	const struct view_peer_entry *peer = member_view_peer(link->member, link->peer);
	struct tr_error error = { 0 };
	if (link->lanes != NULL || link->member->over)
		return;
	link->sent_view = 0;
	count_from_now(link);
	if (peer != NULL)
		way_of(peer, link->way);
	if (peer == NULL)
		peer_link_lost(link, "cannot reach it: its address is unknown");
	else if (!try_near(link, peer) && peer_lane_dial(link, peer->address, &error) != TR_OK)
		peer_link_lost(link, error.text);
}

static void dial_if_idle(struct peer_link *link)
{
	if (link->lanes == NULL && !uv_is_active((uv_handle_t *)&link->redial))
		link_dial(link);
}

/* ---- for the other files ---- */

void peer_link_connect(struct member *member, uint64_t peer)
{
	struct peer_link *link = member->over ? NULL : link_get(member, peer);
	if (link != NULL)
		dial_if_idle(link);
}

static void link_queue(struct peer_link *link, struct outgoing *out)
{
	bool learned = !link->near; /* memory's speed is not */
	if (learned && link->unwritten == 0 && !link_waits(link)) {
		link->burst_start_us = uv_hrtime() / 1000;
		link->burst_bytes = 0;
	}
	out->number = link->queued++;
	outgoing_append(&link->queue[out->class], out);
	if (link->distant && out->class != OUTGOING_CONTROL)
		gauge_wake(link->member->engine);
	dial_if_idle(link);
	peer_lane_feed(link);
}

void peer_link_segment(struct member *member, const struct group_action *action)
{
	struct peer_link *link = member->over ? NULL : link_get(member, action->to);
	struct outgoing *out = link == NULL ? NULL : outgoing_segment(link, action);
	if (out != NULL) {
		link_queue(link, out);
		return;
	}
	if (action->buffer != NULL)
		group_buffer_release(member->core, action->buffer);
	if (!member->over)
		member_post(member, GROUP_LINK_LOST, action->to, 0, TR_OK, "no memory to send");
}

void peer_link_nudge(struct member *member)
{
	atomic_thread_fence(memory_order_seq_cst); /* it was shown before we look who sleeps */
	for (struct peer_link *link = member->links; link != NULL; link = link->next) {
		struct peer_lane *pl = link->closing ? NULL : peer_lane_first_up(link);
		if (pl == NULL)
			continue;
		link->sent_view = member->view;
		shm_hub_nudge(pl->lane);
	}
}

bool peer_link_is_up(struct member *member, uint64_t peer)
{
	const struct peer_link *link = link_find(member, peer);
	return link != NULL && !link->closing && peer_lane_first_up(link) != NULL;
}

/* On its way over TCP, as far as the kernel knows. */
static uint64_t under_way(const struct peer_lane *pl)
{
	struct lane_counters counters;
	struct lane_path path;
	if (!pl->up)
		return 0;
	lane_counters(pl->lane, &counters);
	lane_path(pl->lane, &path);
	bool known = path.acked_bytes > 0 && path.acked_bytes < counters.bytes_out;
	return lane_unsent(pl->lane) + (known ? counters.bytes_out - path.acked_bytes : 0);
}

bool peer_link_carries(struct member *member, uint64_t peer)
{
	const struct peer_link *link = link_find(member, peer);
	if (link == NULL || link->closing || link->near)
		return false;
	uint64_t bytes = 0;
	for (const struct peer_lane *pl = link->lanes; pl != NULL; pl = pl->next)
		bytes += under_way(pl);
	return link->queue[OUTGOING_HOT].first != NULL || link->queue[OUTGOING_OWN].first != NULL ||
	    bytes > VOTES_BYTES;
}

void peer_link_say(struct member *member, uint64_t peer, const Traind__Peer__PeerMessage *message)
{
	struct peer_link *link = member->over ? NULL : link_get(member, peer);
	struct outgoing *out = link == NULL ? NULL : outgoing_message(link, message);
	if (out != NULL)
		link_queue(link, out);
	else
		member_post(member, GROUP_LINK_LOST, peer, 0, TR_OK, "no memory to send");
}

void peer_link_look(struct member *member)
{
	for (struct peer_link *link = member->links; link != NULL; link = link->next)
		if (!link->closing)
			peer_stripe_look(link);
	slow_links_look(member);
}

void peer_link_drop_segments(struct member *member)
{
	for (struct peer_link *link = member->links; link != NULL; link = link->next)
		peer_lane_drop_segments(link);
}

void peer_link_round_over(struct member *member)
{
	for (struct peer_link *link = member->links; link != NULL; link = link->next)
		peer_lane_round_over(link);
}

tr_status peer_send_message(struct conn *conn, const Traind__Peer__PeerMessage *message)
{
	size_t bytes = traind__peer__peer_message__get_packed_size(message);
	uint8_t *packed = malloc(bytes + 1);
	if (packed == NULL)
		return TR_ENOMEM;
	(void)traind__peer__peer_message__pack(message, packed);
	tr_status st = conn_send_copy(conn, FRAME_PEER, packed, bytes);
	free(packed);
	return st;
}

tr_status peer_send_hello(struct conn *conn, const struct member *member, uint64_t to)
{
	Traind__Peer__PeerHello hello = TRAIND__PEER__PEER_HELLO__INIT;
	Traind__Peer__PeerMessage message = TRAIND__PEER__PEER_MESSAGE__INIT;
	hello.group = member->group;
	hello.from = member->peer;
	hello.to = to;
	hello.token_low = member->token[0];
	hello.token_high = member->token[1];
	message.body_case = TRAIND__PEER__PEER_MESSAGE__BODY_HELLO;
	message.hello = &hello;
	return peer_send_message(conn, &message);
}

/* Says goodbye if it can, and closes; the link removes itself. */
static void link_leave(struct peer_link *link, const char *reason)
{
	Traind__Peer__Goodbye goodbye = TRAIND__PEER__GOODBYE__INIT;
	Traind__Peer__PeerMessage message = TRAIND__PEER__PEER_MESSAGE__INIT;
	struct peer_lane *first = peer_lane_first_up(link);
	char text[128];
	if (link->closing)
		return;
	if (first != NULL)
		peer_lane_feed(link); /* control frames go before the goodbye */
	peer_lane_drop_segments(link);
	link->closing = true;
	(void)uv_timer_stop(&link->redial);
	drop_waiting(link);
	peer_lane_forget_closed(link);
	if (link->lanes == NULL) {
		link_remove(link);
		return;
	}
	(void)snprintf(text, sizeof(text), "%s", reason);
	goodbye.reason = text;
	message.body_case = TRAIND__PEER__PEER_MESSAGE__BODY_GOODBYE;
	message.goodbye = &goodbye;
	for (struct peer_lane *pl = link->lanes; pl != NULL; pl = pl->next) {
		if (pl->up) {
			(void)peer_lane_say(pl->lane, &message);
			lane_finish(pl->lane, reason);
		} else if (pl->retiring) {
			lane_finish(pl->lane, reason);
		} else {
			lane_close(pl->lane, reason);
		}
	}
}

void peer_link_leave(struct member *member, const char *reason)
{
	struct peer_link *next;
	for (struct peer_link *link = member->links; link != NULL; link = next) {
		next = link->next;
		link_leave(link, reason);
	}
}

void peer_link_view_changed(struct member *member)
{
	struct peer_link *next;
	for (struct peer_link *link = member->links; link != NULL; link = next) {
		const struct view_peer_entry *peer = member_view_peer(member, link->peer);
		next = link->next;
		if (peer == NULL)
			link_leave(link, "no longer in the view");
		else if (!link->closing)
			link_way_changed(link, peer);
	}
}

/* ---- for who looks ---- */

void peer_link_traffic(const struct member *member, uint64_t peer, struct traffic *sum)
{
	for (const struct peer_link *link = member->links; link != NULL; link = link->next)
		for (const struct peer_lane *pl = link->lanes; pl != NULL; pl = pl->next)
			if (pl->lane != NULL && (peer == 0 || link->peer == peer))
				traffic_add_lane(sum, pl->lane);
}

void peer_link_gauge(const struct member *member, struct gauge_sum *sum)
{
	sum->peers += peer_stripe_far_peers(member);
	for (struct peer_link *link = member->links; link != NULL; link = link->next) {
		uint32_t least_us = UINT32_MAX;
		for (struct peer_lane *pl = link->lanes; pl != NULL; pl = pl->next) {
			struct lane_glance now;
			if (!link->distant || !pl->up)
				continue;
			lane_glance(pl->lane, &now);
			if (now.rtt_us == 0) /* it has closed since the loop's last turn */
				continue;
			if (now.rtt_us < least_us)
				least_us = now.rtt_us;
			gauge_out(&pl->gauged, &now, least_us, sum);
		}
		if (least_us != UINT32_MAX && least_us > sum->rtt_us)
			sum->rtt_us = least_us;
	}
}

bool peer_link_far(const struct member *member)
{
	const struct peer_link *link = member->links;
	while (link != NULL && (link->closing || !link->distant))
		link = link->next;
	return link != NULL;
}

void peer_link_describe(const struct member *member, uint64_t peer, struct tr_link *is)
{
	const struct peer_link *link = member->links;
	while (link != NULL && (link->peer != peer || link->closing))
		link = link->next;
	for (const struct peer_lane *pl = link != NULL ? link->lanes : NULL; pl != NULL;
	     pl = pl->next) {
		struct lane_path path;
		if (!pl->up)
			continue;
		lane_path(pl->lane, &path);
		is->lanes_out++;
		is->transport = traffic_transport(pl->lane);
		if (is->rtt_s == 0 || path.rtt_us / 1e6 < is->rtt_s)
			is->rtt_s = path.rtt_us / 1e6;
		(void)snprintf(is->congestion, sizeof(is->congestion), "%s", path.congestion);
	}
	if (link != NULL)
		is->bandwidth_bytes_per_s = rate_newest_middle(&link->rates, RATE_FEW);
}
