/* Connections that were dialled to us: frames from one peer to one of our members. The first frame says from whom and
 * to whom (PeerHello).
 */
#include "collectives/engine/engine_internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "common/log.h"
#include "proto/bytes.h"
#include "proto/unpack.h"

struct inbound {
	struct engine *engine;
	struct member *member; /* NULL: it has not said whom it wants */
	struct inbound *next;
	struct conn *conn;
	uint64_t from;
	uint64_t got_view; /* newest view of which frames came */
	uint64_t deadline_ms;
	bool parked;
	bool departed; /* it said goodbye: its end is no loss */
	bool silent;   /* closed for that */
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
	conn_close(in->conn, reason);
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
	if (view > in->got_view)
		in->got_view = view;
}

/* Stale frames are dropped by their header. */
static tr_status verdict(tr_status st)
{
	return st == TR_ESTALE ? TR_OK : st;
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
		return verdict(member_step(member, &event, error));
	case TRAIND__PEER__PEER_MESSAGE__BODY_STATE_BEGIN:
		return state_receive_begin(member, in->from, in, message->state_begin, error);
	case TRAIND__PEER__PEER_MESSAGE__BODY_STATE_END:
		return state_receive_finish(member, in->from, in, message->state_end, error);
	case TRAIND__PEER__PEER_MESSAGE__BODY_PULSE:
		pulse_ear_promise(&in->ear, uv_hrtime() / 1000000);
		return TR_OK;
	case TRAIND__PEER__PEER_MESSAGE__BODY_GOODBYE:
		departed(in, message->goodbye->reason);
		return TR_OK;
	default:
		return tr_error_set(error, TR_EPROTO, "a message of unknown kind");
	}
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
	tr_status st = in->member == NULL ? take_hello(in, message, error)
	                                  : take_message(in, message, error);
	traind__peer__peer_message__free_unpacked(message, NULL);
	return st;
}

tr_status inbound_segment(struct member *member, uint64_t from, const uint8_t *payload,
    size_t bytes, struct tr_error *error)
{
	struct segment_header header;
	tr_status st = segment_header_get(payload, bytes, &header, error);
	if (st != TR_OK)
		return st;
	struct group_event event = { .kind = GROUP_SEGMENT,
		.from = from,
		.segment = { &header, payload + SEGMENT_HEADER_BYTES } };
	return verdict(member_step(member, &event, error));
}

/* A segment that comes before its op was submitted here does not hold up those behind it: our caller may wait for one
 * of them first. */
static tr_status take_segment(struct inbound *in, const uint8_t *payload, size_t bytes,
    struct tr_error *error)
{
	if (bytes >= SEGMENT_HEADER_BYTES)
		note_view(in, bytes_get_u64(payload));
	tr_status st = inbound_segment(in->member, in->from, payload, bytes, error);
	if (st == TR_EAGAIN && held_keep(in->member, in->from, payload, bytes))
		return TR_OK;
	return st;
}

static tr_status on_frame(void *arg, struct conn *conn, uint16_t type, const uint8_t *payload,
    size_t bytes, struct tr_error *error)
{
	struct inbound *in = arg;
	tr_status st;
	(void)conn;
	if (in->member != NULL && in->member->over)
		return TR_OK; /* until the other side has read our goodbye */
	if (in->member == NULL && type != FRAME_PEER)
		return tr_error_set(error, TR_EPROTO, "the first frame is no hello");
	/* Set before the step: it may say already that parked frames may be offered again. */
	in->parked = false;
	if (type == FRAME_PEER)
		st = take_packed(in, payload, bytes, error);
	else if (type == FRAME_SEGMENT)
		st = take_segment(in, payload, bytes, error);
	else if (type == FRAME_STATE)
		st = state_receive_chunk(in->member, in->from, in, payload, bytes, error);
	else
		st = tr_error_set(error, TR_EPROTO, "a frame of type %u between peers", type);
	in->parked = st == TR_EAGAIN;
	return st;
}

/* ---- life ---- */

static void unlink_inbound(struct inbound *in)
{
	struct inbound **at = &in->member->inbound;
	while (*at != in)
		at = &(*at)->next;
	*at = in->next;
}

static void on_closed(void *arg, struct conn *conn, const char *reason)
{
	struct inbound *in = arg;
	struct member *member = in->member;
	(void)conn;
	if (member == NULL) {
		stranger_remove(in);
		log_limited(&in->engine->drops, uv_now(&in->engine->loop), LOG_INFO, "engine",
		    "connection from %s dropped: %s", conn_peer_name(conn), reason);
		free(in);
		return;
	}
	unlink_inbound(in);
	if (!member->over)
		state_receive_broken(member, in, reason);
	/* A connection of state carries no frames of a view. */
	if (!member->over && !in->departed && member->view != 0 &&
	    (in->silent || in->got_view == member->view)) {
		log_info("engine", "peer %" PRIu64 ": link from peer %" PRIu64 ": %s", member->peer,
		    in->from, reason);
		member_post(member, GROUP_LINK_LOST, in->from, 0, TR_OK, reason);
	}
	free(in);
	member_unhold(member);
}

void inbound_accept(struct engine *engine, int fd, const void *early, size_t early_bytes)
{
	static const struct conn_callbacks callbacks = { .frame = on_frame, .closed = on_closed };
	struct inbound *in = calloc(1, sizeof(*in));
	if (in == NULL || engine->stopping ||
	    conn_adopt(&engine->loop, fd, early, early_bytes, &callbacks, in, &in->conn, NULL) !=
	        TR_OK) {
		(void)close(fd);
		free(in);
		return;
	}
	in->engine = engine;
	in->deadline_ms = uv_now(&engine->loop) + TR_CONN_GREETING_TIMEOUT_MS;
	*engine->strangers_tail = in;
	engine->strangers_tail = &in->next;
	if (++engine->stranger_count > TR_CONN_UNGREETED_MAX)
		stranger_drop(engine->strangers, "too many others have not said whom they want");
	if (!uv_is_active((uv_handle_t *)&engine->hello_timer))
		watch_oldest(engine);
}

void inbound_judge(struct member *member, uint64_t now_ms, uint64_t late_ms)
{
	uint64_t timeout_ms = pulse_member_timeout_ms(member);
	for (struct inbound *in = member->inbound; in != NULL; in = in->next) {
		uint64_t bytes_in, bytes_out;
		char reason[64];
		pulse_ear_excuse(&in->ear, late_ms);
		conn_counters(in->conn, &bytes_in, &bytes_out);
		uint64_t silent_ms = pulse_ear_silent_ms(&in->ear, bytes_in, !in->parked, now_ms);
		if (silent_ms < timeout_ms || in->departed || in->silent)
			continue;
		in->silent = true;
		(void)snprintf(reason, sizeof(reason), "silent for %.1f s",
		    (double)silent_ms / 1000.0);
		conn_close(in->conn, reason);
	}
}

void inbound_resume_all(struct member *member)
{
	for (struct inbound *in = member->inbound; in != NULL; in = in->next)
		if (in->parked)
			conn_resume(in->conn);
}

void inbound_close_from(struct member *member, uint64_t from, const char *reason)
{
	for (struct inbound *in = member->inbound; in != NULL; in = in->next)
		if (in->from == from)
			conn_close(in->conn, reason);
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
			conn_close(in->conn, "no longer in the view");
		}
}

/* conn_finish reads and throws away until the other side has read our goodbye and closed too. */
void inbound_leave(struct member *member)
{
	for (struct inbound *in = member->inbound; in != NULL; in = in->next)
		conn_finish(in->conn, "the member ended");
}
