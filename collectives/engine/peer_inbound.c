/* Connections that were dialled to us: frames from one peer to one of our members. The first frame says from whom and
 * to whom (PeerHello).
 */
#include "collectives/engine/engine_internal.h"
#include "collectives/engine/inbound_link.h"

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

struct inbound {
	struct engine *engine;
	struct member *member; /* NULL: it has not said whom it wants */
	struct inbound *next;
	struct lane *lane;
	uint64_t from;
	struct inbound_link *link; /* NULL: it belongs to none (state) */
	uint64_t got_view;         /* newest view of which frames came, without a link */
	uint32_t number;           /* in the link */
	uint64_t frames, told;     /* that came; that the sender knows of */
	size_t untold_bytes;
	uint64_t deadline_ms;
	bool parked;
	bool departed; /* it said goodbye: its end is no loss */
	bool silent;   /* closed for that */
	bool ended;    /* closed because the sender said so */
	bool far;      /* among the engine's far_lanes */
	struct pulse_ear ear;
};

/* ---- strangers ---- */

static void stranger_remove(struct inbound *in)
{
	struct engine *engine = in->engine;
	struct inbound **at = &engine->strangers;
	while (*at != NULL && *at != in)
		at = &(*at)->next;
	if (*at == NULL)
		return;
	*at = in->next;
	if (*at == NULL)
		engine->strangers_tail = at;
	in->next = NULL;
	engine->stranger_count--;
}

static void watch_oldest(struct engine *engine)
{
	uint64_t now_ms = uv_now(&engine->loop);
	const struct inbound *oldest = engine->strangers;
	if (oldest == NULL || engine->stopping)
		return;
	(void)uv_timer_start(&engine->hello_timer, inbound_on_hello_timer,
	    oldest->deadline_ms > now_ms ? oldest->deadline_ms - now_ms : 0, 0);
}

static void stranger_drop(struct inbound *in, const char *reason)
{
	stranger_remove(in);
	lane_close(in->lane, reason);
}

void inbound_on_hello_timer(uv_timer_t *timer)
{
	struct engine *engine = timer->data;
	uint64_t now_ms = uv_now(&engine->loop);
	while (engine->strangers != NULL && engine->strangers->deadline_ms <= now_ms)
		stranger_drop(engine->strangers, "it did not say whom it wants in time");
	watch_oldest(engine);
}

void inbound_strangers_close(struct engine *engine)
{
	while (engine->strangers != NULL)
		stranger_drop(engine->strangers, "the engine stops");
}

/* ---- frames ---- */

/* What a peer shows stays mapped until the next view, also when its lane has ended: one that comes back again and again in a view that
 * does not change would have ever more mapped here. */
static tr_status check_imports(const struct inbound *in, const struct member *member, uint64_t from,
    struct tr_error *error)
{
	unsigned mapped = member_kept_imports(member, from);
	if (traffic_transport(in->lane) != TR_TRANSPORT_SHM)
		return TR_OK;
	for (const struct inbound *other = member->inbound; other != NULL; other = other->next)
		mapped += other->from == from && traffic_transport(other->lane) == TR_TRANSPORT_SHM;
	if (mapped < TR_SHM_IMPORTS_MAX)
		return TR_OK;
	return tr_error_set(error, TR_ELIMIT,
	    "peer %" PRIu64 " shows its memory again: at most %u times in a view", from,
	    TR_SHM_IMPORTS_MAX);
}

static tr_status take_hello(struct inbound *in, const Traind__Peer__PeerMessage *message,
    struct tr_error *error)
{
	if (message->body_case != TRAIND__PEER__PEER_MESSAGE__BODY_HELLO)
		return tr_error_set(error, TR_EPROTO, "the first message is no hello");
	const Traind__Peer__PeerHello *hello = message->hello;
	struct member *member = engine_find(in->engine, hello->group, hello->to);
	if (member == NULL || member->over)
		return tr_error_set(error, TR_ENOTFOUND,
		    "peer %" PRIu64 " of group %" PRIu64 " is not here", hello->to, hello->group);
	if (hello->from == 0 || hello->from == hello->to)
		return tr_error_set(error, TR_EPROTO, "a hello from peer %" PRIu64, hello->from);
	tr_status st = check_imports(in, member, hello->from, error);
	if (st != TR_OK)
		return st;
	if (hello->link != 0) {
		st = inbound_link_join(member, hello->from, hello->link, hello->lane, &in->link,
		    error);
		if (st != TR_OK)
			return st;
		in->number = hello->lane;
	}
	stranger_remove(in);
	in->member = member;
	in->from = hello->from;
	in->next = member->inbound;
	member->inbound = in;
	member->holds++;
	return TR_OK;
}

static void departed(struct inbound *in, const char *reason)
{
	for (struct inbound *other = in->member->inbound; other != NULL; other = other->next)
		if (other->from == in->from)
			other->departed = true;
	peer_link_leave_one(in->member, in->from, reason);
}

static void note_view(struct inbound *in, uint64_t view)
{
	uint64_t *newest = in->link != NULL ? &in->link->got_view : &in->got_view;
	if (view > *newest)
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
	case TRAIND__PEER__PEER_MESSAGE__BODY_STATE_REQUEST:
		note_view(in, message->state_request->view);
		event.kind = GROUP_STATE_ASKED;
		event.round = message->state_request->round;
		event.digests_only = message->state_request->digests_only;
		return verdict(member_step(member, &event, error));
	case TRAIND__PEER__PEER_MESSAGE__BODY_STATE_BEGIN:
		return take_state_begin(in, message->state_begin, error);
	case TRAIND__PEER__PEER_MESSAGE__BODY_STATE_END:
		return state_receive_finish(member, in->from, in, message->state_end, error);
	case TRAIND__PEER__PEER_MESSAGE__BODY_PULSE:
		pulse_ear_promise(&in->ear, uv_hrtime() / 1000000);
		return TR_OK;
	case TRAIND__PEER__PEER_MESSAGE__BODY_LANE_LOST:
		return take_lane_lost(in, message->lane_lost->lane, error);
	case TRAIND__PEER__PEER_MESSAGE__BODY_GOODBYE:
		departed(in, message->goodbye->reason);
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
	tr_status st = stranger ? take_hello(in, message, error) : take_message(in, message, error);
	if (st == TR_OK && !stranger && counted(message))
		count_frame(in, bytes);
	traind__peer__peer_message__free_unpacked(message, NULL);
	return st;
}

tr_status inbound_segment(struct member *member, uint64_t from, const struct lane_frame *frame,
    struct tr_error *error)
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
	struct group_event event = { .kind = GROUP_SEGMENT, .from = from };
	event.segment.header = &header;
	event.segment.payload = frame->body != NULL ? frame->body
	                                            : frame->head + SEGMENT_HEADER_BYTES;
	event.segment.buffer = frame->place;
	event.segment.stable = frame->stable;
	return verdict(member_step(member, &event, error));
}

/* A segment that comes before its op was submitted here does not hold up those behind it: our caller may wait for one
 * of them first. */
static tr_status take_segment(struct inbound *in, const struct lane_frame *frame,
    struct tr_error *error)
{
	size_t bytes = frame->head_bytes + frame->body_bytes;
	if (bytes >= SEGMENT_HEADER_BYTES)
		note_view(in, bytes_get_u64(frame->head));
	tr_status st = inbound_segment(in->member, in->from, frame, error);
	if (st == TR_EAGAIN && held_keep(in->member, in->from, in->lane, frame))
		st = TR_OK;
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
	*place = (struct lane_place){ group_buffer_at(buffer), buffer };
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
		stranger_remove(in);
		log_limited(&in->engine->drops, uv_now(&in->engine->loop), LOG_INFO, "engine",
		    "connection from %s dropped: %s", lane_peer_name(lane), reason);
		free(in);
		return;
	}
	struct traffic carried = { 0 };
	traffic_add_lane(&carried, lane);
	observe_ended(member, in->from, &carried);
	unlink_inbound(in);
	if (!member->over)
		state_receive_broken(member, in, reason);
	uint64_t got_view = in->link != NULL ? in->link->got_view : in->got_view;
	/* Of a lane on which nothing of a view came the core has nothing. */
	if (!member->over && got_view != 0 && member_view_peer(member, in->from) != NULL)
		member_keep_import(member, in->from, shm_hub_import(lane));
	bool lost = !member->over && !in->departed && member->view != 0 &&
	    (in->silent || got_view == member->view) && !others_carry_on(in);
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

static const struct lane_callbacks callbacks = { .frame = on_frame,
	.closed = on_closed,
	.place = on_place,
	.unplace = on_unplace };

static void await_hello(struct engine *engine, struct inbound *in)
{
	in->engine = engine;
	in->deadline_ms = uv_now(&engine->loop) + TR_CONN_GREETING_TIMEOUT_MS;
	*engine->strangers_tail = in;
	engine->strangers_tail = &in->next;
	if (++engine->stranger_count > TR_CONN_UNGREETED_MAX)
		stranger_drop(engine->strangers, "too many others have not said whom they want");
	if (!uv_is_active((uv_handle_t *)&engine->hello_timer))
		watch_oldest(engine);
}

void inbound_accept(struct engine *engine, int fd, const void *early, size_t early_bytes)
{
	struct inbound *in = calloc(1, sizeof(*in));
	if (in == NULL || engine->stopping ||
	    lane_tcp_adopt(&engine->loop, fd, early, early_bytes, engine->links.congestion,
	        &callbacks, in, &in->lane, NULL) != TR_OK) {
		(void)close(fd);
		free(in);
		return;
	}
	in->far = true;
	engine->far_lanes++;
	await_hello(engine, in);
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
	await_hello(engine, in);
}

void inbound_judge(struct member *member, uint64_t now_ms, uint64_t late_ms)
{
	uint64_t timeout_ms = pulse_member_timeout_ms(member);
	for (struct inbound *in = member->inbound; in != NULL; in = in->next) {
		struct lane_counters counters;
		char reason[64];
		pulse_ear_excuse(&in->ear, late_ms);
		lane_counters(in->lane, &counters);
		if (in->link != NULL && in->link->several && in->told != in->frames)
			tell_what_came(in);
		uint64_t silent_ms = pulse_ear_silent_ms(&in->ear, counters.bytes_in, !in->parked,
		    now_ms);
		if (silent_ms < timeout_ms || in->departed || in->silent)
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

static bool entry_in(const struct view_peer_entry *peers, size_t count, uint64_t peer)
{
	for (size_t i = 0; i < count; i++)
		if (peers[i].peer == peer)
			return true;
	return false;
}

void inbound_view_changed(struct member *member, const struct view_peer_entry *before, size_t count)
{
	for (struct inbound *in = member->inbound; in != NULL; in = in->next)
		if (entry_in(before, count, in->from) &&
		    member_view_peer(member, in->from) == NULL) {
			in->departed = true;
			lane_close(in->lane, "no longer in the view");
		}
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

void inbound_describe(const struct member *member, uint64_t peer, struct tr_link *is)
{
	for (const struct inbound *in = member->inbound; in != NULL; in = in->next) {
		if (in->from != peer || in->link == NULL || in->departed)
			continue;
		is->lanes_in++;
		if (is->lanes_out == 0)
			is->transport = traffic_transport(in->lane);
	}
}
