/* Connections that were dialled to us: frames from one peer to one of our members. The first frame says from whom and
 * to whom (PeerHello): inbound_door.c.
 */
#include "collectives/engine/engine_internal.h"
#include "collectives/engine/inbound.h"
#include "collectives/engine/inbound_link.h"
#include "collectives/engine/state_receive.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "collectives/transport/lane_tcp.h"
#include "common/log.h"
#include "proto/bytes.h"
#include "proto/unpack.h"

/* So much that came on one of several lanes is told to the sender, which keeps it until then. */
#define TELL_BYTES  (512u << 10)
#define TELL_FRAMES 64u

/* ---- frames ---- */

/* The frame is the sender's last on this connection. */
static void take_goodbye(struct inbound *in, const char *reason)
{
	char text[TR_ERROR_TEXT_MAX];
	(void)snprintf(text, sizeof(text), "it said goodbye: %s", reason);
	lane_close(in->lane, text);
}

static void note_view(struct inbound *in, uint64_t view)
{
	uint64_t *newest = in->link != NULL ? &in->link->got_view : &in->got_view;
	if (view > *newest && group_core_expects(in->member->core, view))
		*newest = view;
}

/* ---- several lanes of one link ---- */

static struct inbound *sibling(const struct inbound *in)
{
	struct inbound *other = in->member->inbound;
	while (other != NULL && (other == in || other->link != in->link || other->ended))
		other = other->next;
	return other;
}

static void tell_what_came(struct inbound *in)
{
	if (inbound_link_tell(in->lane, in->number, in->frames, false) != TR_OK)
		return; /* the next one may have the memory */
	in->link->as_one = true;
	in->told = in->frames;
	in->untold_bytes = 0;
}

static void count_frame(struct inbound *in, size_t bytes)
{
	in->frames++;
	in->untold_bytes += bytes;
	if (in->link == NULL || !in->link->several)
		return;
	if (in->untold_bytes >= TELL_BYTES || in->frames - in->told >= TELL_FRAMES)
		tell_what_came(in);
}

static void tell_end(struct inbound *through, uint32_t lane, uint64_t frames)
{
	if (inbound_link_tell(through->lane, lane, frames, true) != TR_OK)
		lane_close(through->lane, "no memory to say what came");
}

/* The sender lost a lane of this link, or thinks so: nothing more of it is taken. */
static tr_status take_lane_lost(struct inbound *in, uint32_t lane, struct tr_error *error)
{
	uint64_t frames = 0;
	if (in->link == NULL || in->number == lane)
		return tr_error_set(error, TR_EPROTO, "a connection that has no others lost one");
	in->link->several = true; /* there, if not here: it keeps what it sends */
	for (struct inbound *other = in->member->inbound; other != NULL; other = other->next)
		if (other->link == in->link && other->number == lane && other != in) {
			other->ended = true;
			lane_close(other->lane, "the other end lost it"); /* then it is told */
			return TR_OK;
		}
	if (!inbound_link_ended(in->link, lane, &frames))
		inbound_link_end(in->link, lane, 0); /* its hello never came, and is not awaited */
	tell_end(in, lane, frames);
	return TR_OK;
}

/* Stale frames are dropped by their header. */
static tr_status verdict(tr_status st)
{
	return st == TR_ESTALE ? TR_OK : st;
}

static tr_status take_state_begin(struct inbound *in, const Traind__Peer__StateBegin *begin,
    struct tr_error *error)
{
	struct group_event event = { .kind = GROUP_STATE_RECORDS,
		.from = in->from,
		.records = { begin->records, begin->n_records } };
	tr_status st = state_receive_begin(in->member, in->from, in, begin, error);
	return st == TR_OK ? verdict(member_step(in->member, &event, error)) : st;
}

static tr_status take_message(struct inbound *in, const Traind__Peer__PeerMessage *message,
    struct tr_error *error)
{
	struct member *member = in->member;
	struct group_event event = { .from = in->from };
	switch (message->body_case) {
	case TRAIND__PEER__PEER_MESSAGE__BODY_VOTE:
		note_view(in, message->vote->view);
		event.kind = GROUP_VOTE;
		event.vote = message->vote;
		return verdict(member_step(member, &event, error));
	case TRAIND__PEER__PEER_MESSAGE__BODY_COMMIT:
		note_view(in, message->commit->view);
		event.kind = GROUP_COMMIT;
		event.commit = message->commit;
		return verdict(member_step(member, &event, error));
	case TRAIND__PEER__PEER_MESSAGE__BODY_SUBMITTED:
		note_view(in, message->submitted->view);
		event.kind = GROUP_SUBMITTED;
		event.submitted = message->submitted;
		return verdict(member_step(member, &event, error));
	case TRAIND__PEER__PEER_MESSAGE__BODY_STATE_REQUEST:
		note_view(in, message->state_request->view);
		event.kind = GROUP_STATE_ASKED;
		event.round = message->state_request->round;
		event.wish = state_ask_wish(message->state_request);
		event.wish.same = !event.wish.take_back &&
		    state_send_knows(member, message->state_request);
		if (event.wish.take_back)
			state_send_take_back(member, in->from, event.round, &event.wish);
		return verdict(member_step(member, &event, error));
	case TRAIND__PEER__PEER_MESSAGE__BODY_STATE_BEGIN:
		return take_state_begin(in, message->state_begin, error);
	case TRAIND__PEER__PEER_MESSAGE__BODY_STATE_END:
		return state_receive_finish(member, in->from, in, message->state_end, error);
	case TRAIND__PEER__PEER_MESSAGE__BODY_PULSE:
		if (in->link != NULL)
			pulse_ear_promise(&in->link->ear, uv_hrtime() / 1000000);
		return TR_OK;
	case TRAIND__PEER__PEER_MESSAGE__BODY_LANE_LOST:
		return take_lane_lost(in, message->lane_lost->lane, error);
	case TRAIND__PEER__PEER_MESSAGE__BODY_GOODBYE:
		take_goodbye(in, message->goodbye->reason);
		return TR_OK;
	default:
		return tr_error_set(error, TR_EPROTO, "a message of unknown kind");
	}
}

static bool counted(const Traind__Peer__PeerMessage *message)
{
	return message->body_case != TRAIND__PEER__PEER_MESSAGE__BODY_HELLO &&
	    message->body_case != TRAIND__PEER__PEER_MESSAGE__BODY_PULSE &&
	    message->body_case != TRAIND__PEER__PEER_MESSAGE__BODY_LANE_LOST;
}

static tr_status take_packed(struct inbound *in, const uint8_t *payload, size_t bytes,
    struct tr_error *error)
{
	struct unpack_budget budget;
	Traind__Peer__PeerMessage
	    *message = traind__peer__peer_message__unpack(unpack_budget(&budget, bytes), bytes,
	        payload);
	if (message == NULL)
		return tr_error_set(error, TR_EPROTO, "a malformed message");
	bool stranger = in->member == NULL;
	tr_status st = stranger ? inbound_door_hello(in, message, error)
	                        : take_message(in, message, error);
	if (st == TR_OK && !stranger && counted(message))
		count_frame(in, bytes);
	traind__peer__peer_message__free_unpacked(message, NULL);
	return st;
}

tr_status inbound_segment(struct member *member, uint64_t from, const struct lane_frame *frame,
    bool *counted, struct tr_error *error)
{
	struct segment_header header;
	tr_status st = segment_header_get(frame->head, frame->head_bytes + frame->body_bytes,
	    &header, error);
	if (st == TR_OK && member->over)
		st = TR_ESTALE;
	if (st != TR_OK) {
		if (frame->place != NULL)
			group_buffer_release(member->core, frame->place);
		return verdict(st);
	}
	if (header.kind == SEGMENT_PARTIAL)
		gather_came(&member->gather, &header);
	struct group_event event = { .kind = GROUP_SEGMENT, .from = from };
	event.segment.header = &header;
	event.segment.payload = frame->body != NULL ? frame->body
	                                            : frame->head + SEGMENT_HEADER_BYTES;
	event.segment.buffer = frame->place;
	event.segment.stable = frame->stable;
	event.segment.counted = counted;
	return verdict(member_step(member, &event, error));
}

tr_status inbound_segment_or_hold(struct member *member, uint64_t from, const struct lane *lane,
    const struct lane_frame *frame, struct tr_error *error)
{
	bool counted = false;
	tr_status st = inbound_segment(member, from, frame, &counted, error);
	return st == TR_EAGAIN ? held_keep(member, from, lane, frame, counted, error) : st;
}

static tr_status take_segment(struct inbound *in, const struct lane_frame *frame,
    struct tr_error *error)
{
	size_t bytes = frame->head_bytes + frame->body_bytes;
	if (bytes >= SEGMENT_HEADER_BYTES)
		note_view(in, bytes_get_u64(frame->head));
	tr_status st = inbound_segment_or_hold(in->member, in->from, in->lane, frame, error);
	if (st == TR_OK)
		count_frame(in, bytes);
	return st;
}

static void drop_frame(const struct inbound *in, const struct lane_frame *frame)
{
	if (frame->place != NULL)
		group_buffer_release(in->member->core, frame->place);
}

static tr_status on_frame(void *arg, struct lane *lane, const struct lane_frame *frame,
    struct tr_error *error)
{
	struct inbound *in = arg;
	tr_status st;
	(void)lane;
	if (in->member != NULL && in->member->over) {
		drop_frame(in, frame);
		return TR_OK; /* until the other side has read our goodbye */
	}
	if (in->member == NULL && frame->type != FRAME_PEER)
		return tr_error_set(error, TR_EPROTO, "the first frame is no hello");
	/* Set before the step: it may say already that parked frames may be offered again. */
	in->parked = false;
	in->alive = in->member != NULL;
	if (frame->type == FRAME_PEER)
		st = take_packed(in, frame->head, frame->head_bytes, error);
	else if (frame->type == FRAME_SEGMENT)
		st = take_segment(in, frame, error);
	else if (frame->type == FRAME_STATE)
		st = state_receive_chunk(in->member, in->from, in, frame->head, frame->head_bytes,
		    error);
	else
		st = tr_error_set(error, TR_EPROTO, "a frame of type %u between peers", frame->type);
	in->parked = st == TR_EAGAIN;
	return st;
}

/* Strangers get no staging. */
static bool on_place(void *arg, struct lane *lane, const uint8_t *head, size_t body_bytes,
    struct lane_place *place)
{
	struct inbound *in = arg;
	struct segment_header header;
	(void)lane;
	if (in->member == NULL || in->member->over ||
	    segment_header_get(head, SEGMENT_HEADER_BYTES + body_bytes, &header, NULL) != TR_OK)
		return false;
	struct group_buffer *buffer = group_buffer_take(in->member->core, in->from, &header);
	if (buffer == NULL)
		return false;
	*place = (struct lane_place){ group_buffer_at(buffer), buffer, group_buffer_hash(buffer) };
	return true;
}

static void on_unplace(void *arg, void *place)
{
	struct inbound *in = arg;
	group_buffer_release(in->member->core, place);
}

/* ---- life ---- */

static void unlink_inbound(struct inbound *in)
{
	struct inbound **at = &in->member->inbound;
	while (*at != in)
		at = &(*at)->next;
	*at = in->next;
}

/* The link that it belonged to, if any, goes on without it. */
static bool others_carry_on(struct inbound *in)
{
	if (in->link == NULL)
		return false;
	struct inbound *other = sibling(in);
	if (other != NULL)
		tell_end(other, in->number, in->frames);
	return other != NULL;
}

static void on_closed(void *arg, struct lane *lane, const char *reason)
{
	struct inbound *in = arg;
	struct member *member = in->member;
	in->engine->far_lanes -= in->far;
	if (member == NULL) {
		inbound_door_left(in);
		log_limited(&in->engine->drops, uv_now(&in->engine->loop), LOG_INFO, "engine",
		    "connection from %s dropped: %s", lane_peer_name(lane), reason);
		free(in);
		return;
	}
	struct traffic carried = { 0 };
	traffic_add_lane(&carried, lane);
	observe_ended(member, in->from, &carried);
	unlink_inbound(in);
	in->engine->inbound_count--;
	if (!member->over)
		state_receive_broken(member, in, reason);
	uint64_t got_view = in->link != NULL ? in->link->got_view : in->got_view;
	/* Of a lane on which nothing of a view came the core has nothing. */
	if (!member->over && got_view != 0 && member_view_peer(member, in->from) != NULL)
		member_keep_import(member, in->from, shm_hub_import(lane));
	bool ours = !member->over && !in->dismissed;
	/* Told also when nothing came on it: the sender waits for the answer. */
	bool lost = ours && !others_carry_on(in) && member->view != 0 &&
	    (in->silent || got_view == member->view);
	if (in->link != NULL)
		inbound_link_part(member, in->link, in->number, in->frames);
	if (lost) {
		log_info("engine", "peer %" PRIu64 ": link from peer %" PRIu64 ": %s", member->peer,
		    in->from, reason);
		member_post(member, GROUP_LINK_LOST, in->from, 0, TR_OK, reason);
	}
	free(in);
	member_unhold(member);
}

void inbound_attach_boards(struct member *member)
{
	for (struct inbound *in = member->inbound; in != NULL; in = in->next) {
		bool arena = false; /* the first piece is its staging */
		struct shm_import *import = gather_lacks(&member->gather, in->from)
		    ? shm_hub_import(in->lane)
		    : NULL;
		const void *board = import == NULL
		    ? NULL
		    : shm_import_at(import, 0, STAGING_BOARD_AT, sizeof(struct board), &arena);
		if (board != NULL && !arena) {
			/* It stays mapped until the next view, by this lane or when that ends (member_keep_import): something of this view comes that way. */
			note_view(in, member->view);
			gather_attach(&member->gather, in->from, board);
		}
		shm_import_release(import);
	}
}

bool inbound_lent_intact(const struct member *member, uint64_t view)
{
	for (const struct inbound *in = member->inbound; in != NULL; in = in->next) {
		struct shm_import *import = shm_hub_import(in->lane);
		bool intact = import == NULL || member_import_intact(import, view);
		shm_import_release(import);
		if (!intact)
			return false;
	}
	return true;
}

static const struct lane_callbacks callbacks = { .frame = on_frame,
	.closed = on_closed,
	.place = on_place,
	.unplace = on_unplace };

void inbound_accept(struct engine *engine, struct stream stream, const void *early,
    size_t early_bytes)
{
	struct inbound *in = calloc(1, sizeof(*in));
	if (in == NULL || engine->stopping ||
	    lane_tcp_adopt(&engine->loop, stream, early, early_bytes, engine->links.congestion,
	        &callbacks, in, &in->lane, NULL) != TR_OK) {
		stream_close(&stream);
		free(in);
		return;
	}
	in->far = true;
	engine->far_lanes++;
	inbound_door_enter(engine, in);
}

void inbound_accept_lane(struct engine *engine, struct lane *lane)
{
	struct inbound *in = calloc(1, sizeof(*in));
	if (in == NULL) {
		lane_close(lane, "no memory for a connection");
		return;
	}
	in->lane = lane;
	lane->callbacks = callbacks;
	lane->arg = in;
	inbound_door_enter(engine, in);
}

/* A connection that says who it is and nothing else is in nobody's use. */
static bool lifeless(struct inbound *in, const struct lane_counters *counters, uint64_t now_ms,
    uint64_t late_ms)
{
	if (in->looked_ms == 0 || counters->bytes_in != in->looked_bytes || in->parked) {
		in->looked_ms = now_ms;
		in->looked_bytes = counters->bytes_in;
	}
	in->looked_ms += late_ms;
	return !in->alive && now_ms >= in->looked_ms + TR_INBOUND_LIFELESS_MS;
}

/* What came on each link until now. Bytes are added up as they come: of a connection that closed none are missing then, which would look like some that came. */
static void hear_links(struct member *member, uint64_t late_ms)
{
	for (struct inbound_link *link = member->inbound_links; link != NULL; link = link->next) {
		link->parked = false;
		pulse_ear_excuse(&link->ear, late_ms);
	}
	for (struct inbound *in = member->inbound; in != NULL; in = in->next) {
		struct lane_counters counters;
		if (in->link == NULL)
			continue;
		lane_counters(in->lane, &counters);
		in->link->came += counters.bytes_in - in->heard_bytes;
		in->heard_bytes = counters.bytes_in;
		in->link->parked = in->link->parked || in->parked;
	}
}

/* Once for the link, also before anything came, so that its sender says no more pulses than one who judges so needs. */
static void tell_if_news(struct inbound *in)
{
	if (in->link == NULL || !in->link->several || in->ended)
		return;
	if (in->told != in->frames || !in->link->as_one)
		tell_what_came(in);
}

void inbound_judge(struct member *member, uint64_t now_ms, uint64_t late_ms)
{
	uint64_t timeout_ms = pulse_member_timeout_ms(member);
	hear_links(member, late_ms);
	for (struct inbound *in = member->inbound; in != NULL; in = in->next) {
		struct lane_counters counters;
		char reason[64];
		lane_counters(in->lane, &counters);
		tell_if_news(in);
		uint64_t silent_ms = in->link == NULL
		    ? 0
		    : pulse_ear_silent_ms(&in->link->ear, in->link->came, !in->link->parked, now_ms);
		if (lifeless(in, &counters, now_ms, late_ms))
			lane_close(in->lane, "it said nothing after its hello");
		if (silent_ms < timeout_ms || in->dismissed || in->silent)
			continue;
		in->silent = true;
		(void)snprintf(reason, sizeof(reason), "silent for %.1f s",
		    (double)silent_ms / 1000.0);
		lane_close(in->lane, reason);
	}
}

void inbound_resume_all(struct member *member)
{
	for (struct inbound *in = member->inbound; in != NULL; in = in->next)
		if (in->parked)
			lane_resume(in->lane);
}

void inbound_close_from(struct member *member, uint64_t from, const char *reason)
{
	for (struct inbound *in = member->inbound; in != NULL; in = in->next)
		if (in->from == from)
			lane_close(in->lane, reason);
}

void inbound_close_one(struct member *member, const struct inbound *one, const char *reason)
{
	for (struct inbound *in = member->inbound; in != NULL; in = in->next)
		if (in == one)
			lane_close(in->lane, reason);
}

void inbound_view_changed(struct member *member)
{
	for (struct inbound *in = member->inbound; in != NULL; in = in->next)
		if (member_view_peer(member, in->from) == NULL) {
			in->dismissed = true;
			lane_close(in->lane, "no longer in the view");
		}
	inbound_door_look(member->engine);
}

/* lane_finish reads and throws away until the other side has read our goodbye and closed too. */
void inbound_leave(struct member *member)
{
	for (struct inbound *in = member->inbound; in != NULL; in = in->next)
		lane_finish(in->lane, "the member ended");
}

/* ---- for who looks ---- */

void inbound_traffic(const struct member *member, uint64_t peer, struct traffic *sum)
{
	for (const struct inbound *in = member->inbound; in != NULL; in = in->next)
		if (peer == 0 || in->from == peer)
			traffic_add_lane(sum, in->lane);
}

void inbound_gauge(const struct member *member, struct gauge_sum *sum)
{
	for (struct inbound *in = member->inbound; in != NULL; in = in->next) {
		struct lane_glance now;
		if (in->rtt_us > 0 && in->rtt_us < GAUGE_RTT_US)
			continue;
		lane_glance(in->lane, &now);
		in->rtt_us = now.rtt_us;
		if (now.rtt_us >= GAUGE_RTT_US)
			sum->down_bytes += gauge_count(&in->gauged, now.packets_in,
			    now.packet_bytes_in);
	}
}

bool inbound_has(const struct member *member, uint64_t peer)
{
	const struct inbound *in = member->inbound;
	while (in != NULL && in->from != peer)
		in = in->next;
	return in != NULL;
}

void inbound_describe(const struct member *member, uint64_t peer, struct tr_link *is)
{
	for (const struct inbound *in = member->inbound; in != NULL; in = in->next) {
		if (in->from != peer || in->link == NULL)
			continue;
		is->lanes_in++;
		if (is->lanes_out == 0)
			is->transport = traffic_transport(in->lane);
	}
}
