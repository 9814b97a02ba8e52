/* The lanes of a link: which of them sends what, what is kept until it is known to have come, what they say of one another. */
#include "collectives/engine/peer_link.h"

#include <inttypes.h>
#include <stdlib.h>

#include "collectives/transport/lane_tcp.h"
#include "common/log.h"
#include "proto/unpack.h"

/* Bytes of one burst from which a bandwidth can be told; less only measures the kernel's buffers. */
#define BURST_BYTES_MIN (8u << 20)

/* ---- what is kept ---- */

static void keep(struct peer_lane *pl, struct outgoing *out)
{
	out->kept = true;
	outgoing_append(&pl->kept, out);
	if (out->buffer != NULL)
		pl->link->kept_bytes += out->body_bytes;
}

static void unkeep(struct outgoing *out)
{
	if (out->buffer != NULL)
		out->link->kept_bytes -= out->body_bytes;
	out->kept = false;
}

/* The first so many frames of the lane came. */
static void came(struct peer_lane *pl, uint64_t frames)
{
	while (pl->known < frames && pl->kept.first != NULL) {
		struct outgoing *out = outgoing_take(&pl->kept);
		unkeep(out);
		pl->known++;
		if (out->written)
			outgoing_free(out);
	}
}

static bool queue_empty(const struct peer_link *link)
{
	for (unsigned c = 0; c < OUTGOING_CLASSES; c++)
		if (link->queue[c].first != NULL)
			return false;
	return true;
}

bool peer_lane_hungry(const struct peer_link *link)
{
	const struct peer_lane *pl = link->lanes;
	while (pl != NULL && !(pl->up && !pl->retiring && lane_unsent(pl->lane) == 0))
		pl = pl->next;
	return pl != NULL && queue_empty(link);
}

static void lane_remove(struct peer_lane *pl)
{
	struct peer_lane **at = &pl->link->lanes;
	while (*at != NULL && *at != pl)
		at = &(*at)->next;
	if (*at != NULL)
		*at = pl->next;
	for (struct outgoing *out = outgoing_take(&pl->kept); out != NULL;
	     out = outgoing_take(&pl->kept)) {
		unkeep(out);
		outgoing_free(out);
	}
	free(pl);
}

/* It is closed and the other end has told how much came: the rest goes out again. */
static void settle(struct peer_lane *pl)
{
	struct peer_link *link = pl->link;
	struct outgoing_list again[OUTGOING_CLASSES];
	for (unsigned c = 0; c < OUTGOING_CLASSES; c++)
		outgoing_list_init(&again[c]);
	for (struct outgoing *out = outgoing_take(&pl->kept); out != NULL;
	     out = outgoing_take(&pl->kept)) {
		unkeep(out);
		out->written = false;
		if (out->gone) {
			outgoing_free(out);
			continue;
		}
		if (out->class != OUTGOING_CONTROL)
			link->member->resent_bytes += out->body_bytes;
		outgoing_append(&again[out->class], out);
	}
	for (unsigned c = 0; c < OUTGOING_CLASSES; c++)
		outgoing_put_back(&link->queue[c], &again[c]);
	lane_remove(pl);
	peer_lane_feed(link);
}

void peer_lane_forget_closed(struct peer_link *link)
{
	struct peer_lane *next;
	for (struct peer_lane *pl = link->lanes; pl != NULL; pl = next) {
		next = pl->next;
		if (pl->lane == NULL)
			lane_remove(pl);
	}
}

/* ---- sending ---- */

static void measure(struct peer_link *link, size_t bytes)
{
	link->burst_bytes += bytes;
	if (link->near || link->unwritten > 0 || !queue_empty(link))
		return;
	uint64_t took_us = uv_hrtime() / 1000 - link->burst_start_us;
	if (link->burst_bytes >= BURST_BYTES_MIN && took_us > 0) {
		double bytes_per_s = (double)link->burst_bytes * 1e6 / (double)took_us;
		rate_newest_add(&link->rates, bytes_per_s);
		rate_newest_add(&link->lately, bytes_per_s);
		if (!link->distant)
			engine_learn_bandwidth(link->member->engine, bytes_per_s);
	}
	link->burst_bytes = 0;
}

static void on_released(void *arg, bool sent)
{
	struct outgoing *out = arg;
	struct peer_lane *pl = out->lane;
	out->written = true;
	out->dropped = !sent;
	if (!sent) { /* nor will it be counted there */
		pl->sent--;
		if (!out->kept)
			pl->known--;
	}
	out->link->unwritten--;
	measure(out->link, out->body_bytes);
	if (!out->kept && out->buffer != NULL && shm_hub_shows_on(pl->lane))
		outgoing_retire(out);
	else if (!out->kept)
		outgoing_free(out);
}

/* NULL: it goes as it is. */
static struct packing_pace *packs(const struct peer_link *link, const struct outgoing *out)
{
	struct engine *engine = link->member->engine;
	return packing_pays(out->encoded, link->distant, engine->gauge.up.mean_bytes_per_s,
	           &engine->packing)
	    ? &engine->packing
	    : NULL;
}

/* Takes `out`. A frame that cannot be sent is as good as lost on the way: the lane is closed. */
static void lane_take(struct peer_lane *pl, struct outgoing *out)
{
	struct peer_link *link = pl->link;
	bool control = out->class == OUTGOING_CONTROL;
	struct lane_send frame = { .type = control ? FRAME_PEER : FRAME_SEGMENT,
		.body = out->body,
		.body_bytes = out->body_bytes };
	if (!control) {
		frame.head = out->head;
		frame.head_bytes = sizeof(out->head);
		frame.released = on_released;
		frame.arg = out;
		frame.pack = packs(link, out);
		link->unwritten++;
		link->bytes_out += out->body_bytes;
	}
	link->sent_view = link->member->view;
	out->lane = pl;
	out->written = out->dropped = false;
	pl->sent++;
	if (link->striped)
		keep(pl, out);
	else
		pl->known++;
	bool kept = out->kept;
	tr_status st = lane_send(pl->lane, &frame);
	if (control || st != TR_OK) {
		out->written = true;
		if (!control)
			link->unwritten--;
		if (!kept)
			outgoing_free(out);
	}
	if (st != TR_OK) {
		/* The rest goes over the others, and does not wait until it is known what came on this one. */
		pl->broken = true;
		lane_close(pl->lane, tr_status_text(st));
	}
}

struct peer_lane *peer_lane_first_up(const struct peer_link *link)
{
	struct peer_lane *pl = link->lanes;
	while (pl != NULL && !pl->up)
		pl = pl->next;
	return pl;
}

static struct peer_lane *roomiest(const struct peer_link *link)
{
	struct peer_lane *best = NULL;
	size_t best_room = 0;
	for (struct peer_lane *pl = link->lanes; pl != NULL; pl = pl->next) {
		bool takes = pl->up && !pl->retiring && !pl->broken;
		size_t room = takes ? lane_room(pl->lane) : 0;
		if (room > best_room) {
			best = pl;
			best_room = room;
		}
	}
	return best;
}

/* Control frames stay in order: none overtakes one that has to be sent again. */
static bool all_settled(const struct peer_link *link)
{
	for (const struct peer_lane *pl = link->lanes; pl != NULL; pl = pl->next)
		if (pl->lane == NULL || pl->ended || pl->broken)
			return false;
	return true;
}

void peer_lane_feed(struct peer_link *link)
{
	struct peer_lane *pl = peer_lane_first_up(link);
	struct outgoing *out;
	if (link->feeding || pl == NULL)
		return;
	link->feeding = true; /* `released` may queue more */
	while (all_settled(link) && (out = outgoing_take(&link->queue[OUTGOING_CONTROL])) != NULL)
		lane_take(pl, out);
	while (link->queue[OUTGOING_HOT].first != NULL || link->queue[OUTGOING_OWN].first != NULL) {
		pl = roomiest(link);
		out = pl == NULL ? NULL : outgoing_take_segment(link);
		if (out == NULL)
			break;
		lane_take(pl, out);
	}
	link->feeding = false;
	link->idle_seen = link->idle_seen || peer_lane_hungry(link);
}

tr_status peer_lane_say(struct lane *lane, const Traind__Peer__PeerMessage *message)
{
	size_t bytes = traind__peer__peer_message__get_packed_size(message);
	uint8_t *packed = malloc(bytes + 1);
	if (packed == NULL)
		return TR_ENOMEM;
	(void)traind__peer__peer_message__pack(message, packed);
	const struct lane_send frame = { .type = FRAME_PEER, .body = packed, .body_bytes = bytes };
	tr_status st = lane_send(lane, &frame);
	free(packed);
	return st;
}

void peer_lane_pulse(struct peer_lane *pl)
{
	Traind__Peer__Pulse pulse = TRAIND__PEER__PULSE__INIT;
	Traind__Peer__PeerMessage message = TRAIND__PEER__PEER_MESSAGE__INIT;
	message.body_case = TRAIND__PEER__PEER_MESSAGE__BODY_PULSE;
	message.pulse = &pulse;
	(void)peer_lane_say(pl->lane, &message); /* the next one may have the memory */
}

/* ---- dropping ---- */

static void sweep_kept(struct peer_lane *pl)
{
	struct outgoing_list all = pl->kept;
	if (all.first == NULL)
		return;
	outgoing_list_init(&pl->kept);
	for (struct outgoing *out = outgoing_take(&all); out != NULL; out = outgoing_take(&all)) {
		if (out->class == OUTGOING_CONTROL) {
			outgoing_append(&pl->kept, out);
		} else if (out->dropped) {
			unkeep(out);
			outgoing_free(out);
		} else {
			outgoing_let_go(out);
			outgoing_append(&pl->kept, out);
		}
	}
}

void peer_lane_drop_segments(struct peer_link *link)
{
	outgoing_drop_all(&link->queue[OUTGOING_HOT]);
	outgoing_drop_all(&link->queue[OUTGOING_OWN]);
	for (struct peer_lane *pl = link->lanes; pl != NULL; pl = pl->next) {
		if (pl->lane != NULL)
			lane_drop_borrowed(pl->lane);
		sweep_kept(pl);
	}
}

/* Everyone voted, so everyone has all of it; only the word that it came is under way. */
void peer_lane_round_over(struct peer_link *link)
{
	for (struct peer_lane *pl = link->lanes; pl != NULL; pl = pl->next)
		for (struct outgoing *out = pl->kept.first; out != NULL; out = out->next)
			if (out->class != OUTGOING_CONTROL && out->written)
				outgoing_let_go(out);
}

/* ---- what a lane says ---- */

static void ask_what_came(const struct peer_lane *pl)
{
	Traind__Peer__LaneLost lost = TRAIND__PEER__LANE_LOST__INIT;
	Traind__Peer__PeerMessage message = TRAIND__PEER__PEER_MESSAGE__INIT;
	struct peer_lane *through = peer_lane_first_up(pl->link);
	lost.lane = pl->number;
	message.body_case = TRAIND__PEER__PEER_MESSAGE__BODY_LANE_LOST;
	message.lane_lost = &lost;
	if (through != NULL && peer_lane_say(through->lane, &message) != TR_OK)
		lane_close(through->lane, "no memory to ask what came");
}

static tr_status take_received(struct peer_link *link, const Traind__Peer__LaneReceived *received,
    struct tr_error *error)
{
	struct peer_lane *pl = link->lanes;
	while (pl != NULL && pl->number != received->lane)
		pl = pl->next;
	if (pl == NULL)
		return TR_OK;
	if (received->frames > pl->sent)
		return tr_error_set(error, TR_EPROTO,
		    "%" PRIu64 " frames came of %" PRIu64 " that were sent", received->frames,
		    pl->sent);
	came(pl, received->frames);
	link->as_one = received->as_one;
	if (!received->ended)
		return TR_OK;
	if (received->frames < pl->known) /* it broke before there was a second one */
		peer_link_lost(link, "a connection broke with frames on it");
	pl->ended = true;
	pl->up = false;
	if (pl->lane != NULL)
		lane_close(pl->lane, "the other end lost it");
	else
		settle(pl);
	return TR_OK;
}

static tr_status on_frame(void *arg, struct lane *lane, const struct lane_frame *frame,
    struct tr_error *error)
{
	struct peer_lane *pl = arg;
	struct unpack_budget budget;
	(void)lane;
	Traind__Peer__PeerMessage *message = frame->type != FRAME_PEER
	    ? NULL
	    : traind__peer__peer_message__unpack(unpack_budget(&budget, frame->head_bytes),
	          frame->head_bytes, frame->head);
	tr_status st = TR_OK;
	if (message == NULL || message->body_case != TRAIND__PEER__PEER_MESSAGE__BODY_LANE_RECEIVED)
		st = tr_error_set(error, TR_EPROTO, "a frame against the connection's direction");
	else if (!pl->link->closing && !pl->link->member->over)
		st = take_received(pl->link, message->lane_received, error);
	if (message != NULL)
		traind__peer__peer_message__free_unpacked(message, NULL);
	if (st == TR_OK && !pl->link->closing)
		peer_lane_feed(pl->link); /* staging that was kept may have held frames up */
	return st;
}

static void on_opened(void *arg, struct lane *lane)
{
	struct peer_lane *pl = arg;
	struct peer_link *link = pl->link;
	Traind__Peer__PeerHello hello = TRAIND__PEER__PEER_HELLO__INIT;
	Traind__Peer__PeerMessage message = TRAIND__PEER__PEER_MESSAGE__INIT;
	hello.group = link->member->group;
	hello.from = link->member->peer;
	hello.to = link->peer;
	hello.link = link->name;
	hello.lane = pl->number;
	hello.token_low = link->member->token[0];
	hello.token_high = link->member->token[1];
	message.body_case = TRAIND__PEER__PEER_MESSAGE__BODY_HELLO;
	message.hello = &hello;
	if (peer_lane_say(lane, &message) != TR_OK) {
		lane_close(lane, "no memory for a hello");
		return;
	}
	/* Not before: of a link's only connection the other end does not say what came. */
	link->striped = link->striped || peer_lane_first_up(link) != NULL;
	pl->up = true;
	if (pulse_on(link->member->engine))
		peer_lane_pulse(pl);
	link_lane_opened(link);
}

static void on_drained(void *arg, struct lane *lane)
{
	struct peer_lane *pl = arg;
	(void)lane;
	peer_lane_feed(pl->link);
}

/* One of several: the link goes on. */
static void stripe_closed(struct peer_lane *pl, bool was_up, const char *reason)
{
	struct peer_link *link = pl->link;
	if (!was_up && !pl->ended) {
		log_info("engine", "peer %" PRIu64 ": one more connection to peer %" PRIu64 ": %s",
		    link->member->peer, link->peer, reason);
		lane_remove(pl);
		stripe_refused(&link->stripe, peer_stripe_alive(link), uv_hrtime() / 1000);
		return;
	}
	if (!pl->retiring)
		log_info("engine",
		    "peer %" PRIu64 ": one of the connections to peer %" PRIu64
		    ": %s; the others carry on",
		    link->member->peer, link->peer, reason);
	if (pl->ended)
		settle(pl);
	/* Also of those that closed before: they may have been asked about on this one. */
	for (const struct peer_lane *at = link->lanes; at != NULL; at = at->next)
		if (at->lane == NULL)
			ask_what_came(at);
}

/* Lanes that were given back, and close when the other end does: while one is there nobody dials, and its way may be cut as well. Their end is no loss of its own. */
static void give_up_retired(struct peer_link *link)
{
	for (struct peer_lane *pl = link->lanes; pl != NULL; pl = pl->next) {
		if (pl->lane == NULL || !pl->retiring)
			continue;
		pl->retiring = pl->ended = false;
		lane_close(pl->lane, "the last other connection is lost");
	}
}

static void on_closed(void *arg, struct lane *lane, const char *reason)
{
	struct peer_lane *pl = arg;
	struct peer_link *link = pl->link;
	bool was_up = pl->up || pl->retiring || pl->ended;
	struct traffic carried = { 0 };
	traffic_add_lane(&carried, lane);
	observe_ended(link->member, link->peer, &carried);
	link->member->engine->far_lanes -= pl->far;
	pl->lane = NULL;
	pl->up = false;
	if (link->closing || link->member->over) {
		lane_remove(pl);
		if (link->lanes == NULL)
			link_last_lane_closed(link, reason);
	} else if (peer_lane_first_up(link) != NULL) {
		stripe_closed(pl, was_up, reason);
	} else if (was_up) {
		peer_lane_forget_closed(link);
		give_up_retired(link);
		link_last_lane_closed(link, reason);
	} else {
		lane_remove(pl);
		if (link->lanes == NULL && link->near)
			link_not_near(link, reason);
		else if (link->lanes == NULL)
			link_dial_failed(link, reason);
	}
}

/* ---- one more ---- */

tr_status peer_lane_dial(struct peer_link *link, const char *address, struct tr_error *error)
{
	static const struct lane_callbacks callbacks = { .frame = on_frame,
		.opened = on_opened,
		.closed = on_closed,
		.drained = on_drained };
	struct engine *engine = link->member->engine;
	struct peer_lane *pl = calloc(1, sizeof(*pl)), **at = &link->lanes;
	if (pl == NULL)
		return tr_error_set(error, TR_ENOMEM, "no memory for a connection");
	pl->link = link;
	pl->number = link->lane_count;
	outgoing_list_init(&pl->kept);
	const struct view_peer_entry *peer = member_view_peer(link->member, link->peer);
	const struct shm_claim claim = { link->member->group, link->peer,
		{ link->member->token[0], link->member->token[1] } };
	tr_status st = link->near
	    ? shm_hub_dial(engine->shm, address, &claim, &link->member->exports, &callbacks, pl,
	          &pl->lane, error)
	    : lane_tcp_dial(&engine->loop, address, peer != NULL ? peer->relay : NULL,
	          engine->links.tls, engine->links.congestion, &callbacks, pl, &pl->lane, error);
	if (st != TR_OK) {
		free(pl);
		return st;
	}
	lane_set_patience(pl->lane, (uint32_t)pulse_member_timeout_ms(link->member));
	link->lane_count++;
	pl->far = !link->near;
	engine->far_lanes += pl->far;
	while (*at != NULL)
		at = &(*at)->next;
	*at = pl;
	return TR_OK;
}
