/* Connections that we dialled: frames from a member to one peer. Dialled on demand, again with growing pauses until
 * the timeout (pulse.h) has passed; frames wait meanwhile. A connection that breaks after it carried frames of the view may have
 * lost some, and the core never sends twice in a view: it is told (GROUP_LINK_LOST), and a new view repairs.
 */
#include "collectives/engine/engine_internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/log.h"

/* Bytes of one burst from which a bandwidth can be told; less only measures the kernel's buffers. */
#define BURST_BYTES_MIN (8u << 20)
/* Less than this in an interval is a pulse, or nothing. */
#define BUSY_BYTES_MIN 64u

/* A frame that waits for a connection, or for being written. */
struct outgoing {
	struct outgoing *next;
	struct peer_link *link;
	struct group_buffer *buffer;
	const void *body; /* of a segment: borrowed from the core; else `copy` */
	uint8_t *copy;
	size_t body_bytes;
	uint8_t head[SEGMENT_HEADER_BYTES];
};

struct peer_link {
	struct member *member;
	struct peer_link *next;
	uint64_t peer;
	struct conn *conn;
	bool up;      /* connected, hello said */
	bool closing; /* ours to close: no loss is told */
	uv_timer_t redial;
	uint64_t dialling_since_ms; /* without success; 0: not */
	uint64_t pulsed_bytes;      /* sent when it was last looked whether it is idle */
	unsigned pause_ms;
	uint64_t sent_view; /* newest view of which frames were sent on `conn` */
	struct outgoing *waiting, **waiting_tail;
	uint64_t burst_start_us, burst_bytes;
};

static void link_dial(struct peer_link *link);

/* ---- frames ---- */

static void outgoing_free(struct outgoing *out)
{
	if (out->buffer != NULL)
		group_buffer_release(out->link->member->core, out->buffer);
	free(out->copy);
	free(out);
}

static void measure(struct peer_link *link, size_t bytes)
{
	link->burst_bytes += bytes;
	if (link->conn == NULL || conn_unsent(link->conn) > 0)
		return;
	uint64_t took_us = uv_hrtime() / 1000 - link->burst_start_us;
	if (link->burst_bytes >= BURST_BYTES_MIN && took_us > 0)
		engine_learn_bandwidth(link->member->engine,
		    (double)link->burst_bytes * 1e6 / (double)took_us);
	link->burst_bytes = 0;
}

static void on_released(void *arg)
{
	struct outgoing *out = arg;
	measure(out->link, out->body_bytes);
	outgoing_free(out);
}

/* Takes `out`. A frame that cannot be sent is as good as lost on the way: the connection is closed. */
static void link_send(struct peer_link *link, struct outgoing *out)
{
	tr_status st;
	if (conn_unsent(link->conn) == 0) {
		link->burst_start_us = uv_hrtime() / 1000;
		link->burst_bytes = 0;
	}
	if (out->copy == NULL) {
		st = conn_send_borrow(link->conn, FRAME_SEGMENT, out->head, sizeof(out->head),
		    out->body, out->body_bytes, on_released, out);
		if (st != TR_OK)
			outgoing_free(out);
	} else {
		st = conn_send_copy(link->conn, FRAME_PEER, out->copy, out->body_bytes);
		outgoing_free(out);
	}
	link->sent_view = link->member->view;
	if (st != TR_OK)
		conn_close(link->conn, tr_status_text(st));
}

static void link_queue(struct peer_link *link, struct outgoing *out)
{
	out->link = link;
	if (link->up) {
		link_send(link, out);
		return;
	}
	*link->waiting_tail = out;
	link->waiting_tail = &out->next;
	if (link->conn == NULL && !uv_is_active((uv_handle_t *)&link->redial))
		link_dial(link);
}

static void waiting_drop(struct peer_link *link, bool segments_only)
{
	struct outgoing **at = &link->waiting;
	while (*at != NULL) {
		struct outgoing *out = *at;
		if (segments_only && out->copy != NULL) {
			at = &out->next;
			continue;
		}
		*at = out->next;
		outgoing_free(out);
	}
	link->waiting_tail = at;
}

/* ---- life ---- */

static void on_redial_closed(uv_handle_t *handle)
{
	struct peer_link *link = handle->data;
	struct member *member = link->member;
	free(link);
	member_unhold(member);
}

static void link_remove(struct peer_link *link)
{
	struct peer_link **at = &link->member->links;
	while (*at != link)
		at = &(*at)->next;
	*at = link->next;
	waiting_drop(link, false);
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
	link->waiting_tail = &link->waiting;
	link->pause_ms = TR_REDIAL_FIRST_MS;
	(void)uv_timer_init(&member->engine->loop, &link->redial);
	link->redial.data = link;
	member->holds++;
	link->next = member->links;
	member->links = link;
	return link;
}

/* ---- connecting ---- */

static void link_lost(struct peer_link *link, const char *reason)
{
	log_info("engine", "peer %" PRIu64 ": link to peer %" PRIu64 ": %s", link->member->peer,
	    link->peer, reason);
	link->dialling_since_ms = 0;
	waiting_drop(link, false);
	member_post(link->member, GROUP_LINK_LOST, link->peer, 0, TR_OK, reason);
}

static void on_redial(uv_timer_t *timer)
{
	link_dial(timer->data);
}

static void dial_failed(struct peer_link *link, const char *cause)
{
	uint64_t now_ms = uv_now(&link->member->engine->loop);
	if (now_ms - link->dialling_since_ms < pulse_member_timeout_ms(link->member)) {
		(void)uv_timer_start(&link->redial, on_redial, link->pause_ms, 0);
		if (link->pause_ms < TR_REDIAL_LAST_MS)
			link->pause_ms *= 2;
		return;
	}
	link->pause_ms = TR_REDIAL_FIRST_MS;
	link_lost(link, cause);
}

static tr_status on_frame(void *arg, struct conn *conn, uint16_t type, const uint8_t *payload,
    size_t bytes, struct tr_error *error)
{
	(void)arg;
	(void)conn;
	(void)type;
	(void)payload;
	(void)bytes;
	return tr_error_set(error, TR_EPROTO, "a frame against the connection's direction");
}

static void link_pulse(struct peer_link *link)
{
	Traind__Peer__Pulse pulse = TRAIND__PEER__PULSE__INIT;
	Traind__Peer__PeerMessage message = TRAIND__PEER__PEER_MESSAGE__INIT;
	message.body_case = TRAIND__PEER__PEER_MESSAGE__BODY_PULSE;
	message.pulse = &pulse;
	(void)peer_send_message(link->conn, &message); /* the next one may have the memory */
}

static void on_connected(void *arg, struct conn *conn)
{
	struct peer_link *link = arg;
	if (peer_send_hello(conn, link->member, link->peer) != TR_OK) {
		conn_close(conn, "no memory for a hello");
		return;
	}
	link->up = true;
	link->dialling_since_ms = 0;
	link->pulsed_bytes = 0;
	if (pulse_on(link->member->engine))
		link_pulse(link);
	link->pause_ms = TR_REDIAL_FIRST_MS;
	while (link->waiting != NULL) {
		struct outgoing *out = link->waiting;
		link->waiting = out->next;
		if (link->waiting == NULL)
			link->waiting_tail = &link->waiting;
		out->next = NULL;
		link_send(link, out);
	}
}

static void on_closed(void *arg, struct conn *conn, const char *reason)
{
	struct peer_link *link = arg;
	(void)conn;
	bool was_up = link->up;
	link->conn = NULL;
	link->up = false;
	if (link->closing || link->member->over) {
		link_remove(link);
		return;
	}
	if (!was_up)
		dial_failed(link, reason);
	else if (link->sent_view == link->member->view && link->sent_view != 0)
		link_lost(link, reason);
	else if (pulse_on(
	             link->member->engine)) /* nothing was lost, but the other side waits for pulses */
		(void)uv_timer_start(&link->redial, on_redial, link->pause_ms, 0);
}

static void link_dial(struct peer_link *link)
{
	static const struct conn_callbacks callbacks = { .frame = on_frame,
		.connected = on_connected,
		.closed = on_closed };
	const struct view_peer_entry *peer = member_view_peer(link->member, link->peer);
	struct tr_error error = { 0 };
	if (link->conn != NULL || link->member->over)
		return;
	link->sent_view = 0;
	if (link->dialling_since_ms == 0)
		link->dialling_since_ms = uv_now(&link->member->engine->loop);
	if (peer == NULL)
		link_lost(link, "cannot reach it: its address is unknown");
	else if (conn_dial(&link->member->engine->loop, peer->address, &callbacks, link,
	             &link->conn, &error) != TR_OK)
		link_lost(link, error.text);
	else
		conn_set_patience(link->conn, (uint32_t)pulse_member_timeout_ms(link->member));
}

/* ---- for the other files ---- */

void peer_link_connect(struct member *member, uint64_t peer)
{
	struct peer_link *link = member->over ? NULL : link_get(member, peer);
	if (link != NULL && link->conn == NULL && !uv_is_active((uv_handle_t *)&link->redial))
		link_dial(link);
}

void peer_link_segment(struct member *member, const struct group_action *action)
{
	struct peer_link *link = member->over ? NULL : link_get(member, action->to);
	struct outgoing *out = link == NULL ? NULL : calloc(1, sizeof(*out));
	if (out == NULL) {
		if (action->buffer != NULL)
			group_buffer_release(member->core, action->buffer);
		if (!member->over)
			member_post(member, GROUP_LINK_LOST, action->to, 0, TR_OK,
			    "no memory to send");
		return;
	}
	segment_header_put(&action->header, out->head);
	out->body = action->payload;
	out->body_bytes = action->payload_bytes;
	out->buffer = action->buffer;
	link_queue(link, out);
}

void peer_link_say(struct member *member, uint64_t peer, const Traind__Peer__PeerMessage *message)
{
	size_t bytes = traind__peer__peer_message__get_packed_size(message);
	struct peer_link *link = member->over ? NULL : link_get(member, peer);
	struct outgoing *out = link == NULL ? NULL : calloc(1, sizeof(*out));
	uint8_t *copy = out == NULL ? NULL : malloc(bytes + 1);
	if (copy == NULL) {
		free(out);
		member_post(member, GROUP_LINK_LOST, peer, 0, TR_OK, "no memory to send");
		return;
	}
	(void)traind__peer__peer_message__pack(message, copy);
	out->copy = copy;
	out->body_bytes = bytes;
	link_queue(link, out);
}

void peer_link_pulse(struct member *member)
{
	for (struct peer_link *link = member->links; link != NULL; link = link->next) {
		uint64_t in, out;
		if (!link->up || link->closing)
			continue;
		conn_counters(link->conn, &in, &out);
		if (out - link->pulsed_bytes < BUSY_BYTES_MIN && conn_unsent(link->conn) == 0)
			link_pulse(link);
		link->pulsed_bytes = out;
	}
}

void peer_link_drop_segments(struct member *member)
{
	for (struct peer_link *link = member->links; link != NULL; link = link->next) {
		waiting_drop(link, true);
		if (link->conn != NULL)
			conn_drop_borrowed(link->conn);
	}
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
	message.body_case = TRAIND__PEER__PEER_MESSAGE__BODY_HELLO;
	message.hello = &hello;
	return peer_send_message(conn, &message);
}

/* Says goodbye if it can, and closes; the link removes itself. */
static void link_leave(struct peer_link *link, const char *reason)
{
	Traind__Peer__Goodbye goodbye = TRAIND__PEER__GOODBYE__INIT;
	Traind__Peer__PeerMessage message = TRAIND__PEER__PEER_MESSAGE__INIT;
	char text[128];
	if (link->closing)
		return;
	link->closing = true;
	(void)uv_timer_stop(&link->redial);
	waiting_drop(link, false);
	if (link->conn == NULL) {
		link_remove(link);
		return;
	}
	conn_drop_borrowed(link->conn);
	if (!link->up) {
		conn_close(link->conn, reason);
		return;
	}
	(void)snprintf(text, sizeof(text), "%s", reason);
	goodbye.reason = text;
	message.body_case = TRAIND__PEER__PEER_MESSAGE__BODY_GOODBYE;
	message.goodbye = &goodbye;
	(void)peer_send_message(link->conn, &message);
	conn_finish(link->conn, reason);
}

void peer_link_leave(struct member *member, const char *reason)
{
	struct peer_link *next;
	for (struct peer_link *link = member->links; link != NULL; link = next) {
		next = link->next;
		link_leave(link, reason);
	}
}

void peer_link_leave_one(struct member *member, uint64_t peer, const char *reason)
{
	struct peer_link *link = link_find(member, peer);
	if (link != NULL)
		link_leave(link, reason);
}

void peer_link_view_changed(struct member *member)
{
	struct peer_link *next;
	for (struct peer_link *link = member->links; link != NULL; link = next) {
		next = link->next;
		if (member_view_peer(member, link->peer) == NULL)
			link_leave(link, "no longer in the view");
	}
}
