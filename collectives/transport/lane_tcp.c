#include "collectives/transport/lane_tcp.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "collectives/transport/congestion.h"
#include "collectives/transport/conn.h"
#include "collectives/transport/packing.h"
#include "collectives/transport/tcp_path.h"
#include "common/limits.h"
#include "proto/segment.h"

/* Of bulk that waits for the socket: a segment. The next is taken when half of it is left, so it is at hand when it drains. */
#define BACKLOG_BYTES TR_SEGMENT_BYTES
/* Over a long way less: so much time may pass until we look at the socket again, and so little is always there. */
#define BACKLOG_MS        40u
#define BACKLOG_BYTES_MIN (32u << 10)
/* Taken in one go; then the loop gets a turn, and what came in is read. A frame of half of it ends the turn. */
#define TURN_BYTES (1u << 20)
/* Packing a byte takes the time of so many that are only sent. */
#define PACKED_COST 8u
/* bbr empties a way for 200 ms where it has not found it empty for 10 s. */
#define BBR_BEGINS_MS 5000u
/* Unsent bytes in the kernel above which the socket is not writable, at most. */
#define NOT_SENT_BYTES (256u << 10)

struct lane_tcp {
	struct lane lane; /* first */
	struct conn *conn;
	size_t turn_bytes;                    /* of bulk, taken since `drained` ran */
	size_t backlog_bytes, not_sent_bytes; /* at most */
	char congestion[CONGESTION_NAME_MAX]; /* asked for */
	char congestion_used[CONGESTION_NAME_MAX];
	uint64_t begun_ms; /* bbr, because of its pace */
	uint8_t *unpacked; /* head and body of a frame that was not taken yet; NULL: none */
};

static struct lane_tcp *of(struct lane *lane)
{
	return (struct lane_tcp *)lane;
}

/* ---- what the engine does ---- */

/* A body that is sent instead of the caller's. */
struct packed_send {
	struct packing_packed *packed;
	lane_released_fn *released;
	void *arg;
};

static void on_packed_released(void *arg, bool sent)
{
	struct packed_send send = *(struct packed_send *)arg;
	free(send.packed);
	free(arg);
	send.released(send.arg, sent);
}

static uint64_t processor_ns(void)
{
	struct timespec used = { 0 };
	(void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
	return (uint64_t)used.tv_sec * 1000000000 + (uint64_t)used.tv_nsec;
}

/* TR_EAGAIN: as it is, then. */
static tr_status send_packed(struct lane_tcp *tcp, const struct lane_send *frame)
{
	uint64_t since_ns = processor_ns();
	struct packing_packed *packed = packing_pack(frame->body, frame->body_bytes);
	packing_took(frame->pack, frame->body_bytes, processor_ns() - since_ns);
	struct packed_send *send = packed != NULL ? malloc(sizeof(*send)) : NULL;
	if (send == NULL) {
		free(packed);
		return TR_EAGAIN;
	}
	*send = (struct packed_send){ packed, frame->released, frame->arg };
	tcp->turn_bytes += PACKED_COST * frame->body_bytes;
	tr_status status = conn_send_borrow(tcp->conn, FRAME_PACKED, frame->head, frame->head_bytes,
	    packed->bytes, packed->count, on_packed_released, send);
	if (status != TR_OK) {
		free(packed);
		free(send);
	}
	return status;
}

static tr_status tcp_send(struct lane *lane, const struct lane_send *frame)
{
	struct conn *conn = of(lane)->conn;
	tr_status status = frame->pack != NULL && frame->type == FRAME_SEGMENT &&
	        frame->released != NULL
	    ? send_packed(of(lane), frame)
	    : TR_EAGAIN;
	if (status != TR_EAGAIN)
		return status;
	if (frame->released != NULL) {
		of(lane)->turn_bytes += frame->body_bytes < TURN_BYTES / 2 ? frame->body_bytes
		                                                           : TURN_BYTES;
		return conn_send_borrow(conn, frame->type, frame->head, frame->head_bytes,
		    frame->body, frame->body_bytes, frame->released, frame->arg);
	}
	if (frame->head_bytes > 0)
		return TR_EINVAL;
	return conn_send_copy(conn, frame->type, frame->body, frame->body_bytes);
}

static size_t tcp_room(struct lane *lane)
{
	struct conn *conn = of(lane)->conn;
	size_t unsent = conn_unsent(conn);
	size_t most = of(lane)->backlog_bytes;
	if (unsent < most && of(lane)->turn_bytes < TURN_BYTES)
		return most - unsent;
	conn_watch_unsent(conn, most / 2);
	return 0;
}

static size_t tcp_unsent(const struct lane *lane)
{
	return conn_unsent(((const struct lane_tcp *)lane)->conn);
}

static void tcp_drop_borrowed(struct lane *lane)
{
	conn_drop_borrowed(of(lane)->conn);
}

static void tcp_resume(struct lane *lane)
{
	conn_resume(of(lane)->conn);
}

static void tcp_close(struct lane *lane, const char *reason)
{
	conn_close(of(lane)->conn, reason);
}

static void tcp_finish(struct lane *lane, const char *reason)
{
	conn_finish(of(lane)->conn, reason);
}

static void tcp_set_patience(struct lane *lane, uint32_t patience_ms)
{
	conn_set_patience(of(lane)->conn, patience_ms);
}

static void tcp_counters(const struct lane *lane, struct lane_counters *counters)
{
	conn_counters(((const struct lane_tcp *)lane)->conn, counters);
}

size_t lane_tcp_backlog(uint32_t rtt_us, uint64_t bytes_per_s)
{
	uint64_t most = (uint64_t)BACKLOG_BYTES * 1000 / BACKLOG_MS;
	if (rtt_us < CONGESTION_LAN_RTT_US || bytes_per_s > most)
		return BACKLOG_BYTES;
	size_t bytes = bytes_per_s * BACKLOG_MS / 1000;
	return bytes > BACKLOG_BYTES_MIN ? bytes : BACKLOG_BYTES_MIN;
}

static void set_backlog(struct lane_tcp *tcp, const struct tcp_path *known)
{
	size_t bytes = lane_tcp_backlog(known->rtt_us, known->bytes_per_s);
	size_t not_sent = tcp->not_sent_bytes;
	tcp->backlog_bytes = bytes;
	tcp->not_sent_bytes = bytes < NOT_SENT_BYTES ? bytes : NOT_SENT_BYTES;
	int low = (int)tcp->not_sent_bytes;
	if (tcp->not_sent_bytes != not_sent)
		(void)setsockopt(conn_socket(tcp->conn), IPPROTO_TCP, TCP_NOTSENT_LOWAT, &low,
		    sizeof(low));
}

static void tcp_path(struct lane *lane, struct lane_path *path)
{
	struct lane_tcp *tcp = of(lane);
	struct tcp_path known = { 0 };
	int fd = conn_socket(tcp->conn);
	if (tcp_path_get(fd, &known))
		set_backlog(tcp, &known);
	congestion_get(fd, tcp->congestion_used);
	*path = (struct lane_path){ .rtt_us = known.rtt_us,
		.now_rtt_us = known.now_rtt_us,
		.retransmits = known.retransmits,
		.acked_bytes = known.acked_bytes,
		.full_bytes_per_s = known.full ? known.bytes_per_s : 0,
		.congestion = tcp->congestion_used };
}

static void tcp_glance(const struct lane *lane, struct lane_glance *glance)
{
	struct tcp_path known = { 0 };
	(void)tcp_path_get(conn_socket(((const struct lane_tcp *)lane)->conn), &known);
	*glance = (struct lane_glance){ .rtt_us = known.rtt_us,
		.now_rtt_us = known.now_rtt_us,
		.retransmits = known.retransmits,
		.packets_out = known.packets_out,
		.packets_in = known.packets_in,
		.packet_bytes_out = known.packet_bytes_out,
		.packet_bytes_in = known.packet_bytes_in };
}

/* Who lets out no more than a way carries has no need of a way that is emptied, one connection after another, to learn how long it is; an all-reduce waits for
 * each of them. */
static void keep_bbr_from_emptying_the_way(struct lane_tcp *tcp)
{
	uint64_t now_ms = uv_hrtime() / 1000000;
	/* Not at first: it may have just begun, and be in the middle of losses. */
	if (tcp->begun_ms == 0)
		tcp->begun_ms = now_ms;
	if (now_ms - tcp->begun_ms >= BBR_BEGINS_MS &&
	    congestion_begin_bbr_anew(conn_socket(tcp->conn)))
		tcp->begun_ms = now_ms;
}

/* Of what TCP sends, its headers not counted. Without a bound again its packets are still let out one by one, as its congestion control says. */
static void tcp_set_pace(struct lane *lane, double bytes_per_s)
{
	uint32_t most = bytes_per_s > 0 && bytes_per_s < UINT32_MAX ? (uint32_t)bytes_per_s
	                                                            : UINT32_MAX; /* no bound */
	(void)setsockopt(conn_socket(of(lane)->conn), SOL_SOCKET, SO_MAX_PACING_RATE, &most,
	    sizeof(most));
	if (most != UINT32_MAX)
		keep_bbr_from_emptying_the_way(of(lane));
}

static const char *tcp_peer_name(const struct lane *lane)
{
	return conn_peer_name(((const struct lane_tcp *)lane)->conn);
}

static const struct lane_ops tcp_ops = {
	.name = "tcp",
	.send = tcp_send,
	.room = tcp_room,
	.unsent = tcp_unsent,
	.drop_borrowed = tcp_drop_borrowed,
	.resume = tcp_resume,
	.close = tcp_close,
	.finish = tcp_finish,
	.set_patience = tcp_set_patience,
	.counters = tcp_counters,
	.path = tcp_path,
	.glance = tcp_glance,
	.set_pace = tcp_set_pace,
	.peer_name = tcp_peer_name,
};

/* ---- what the connection says ---- */

/* The frame as it was before it was packed, in `unpacked`. */
static tr_status unpack(struct lane_tcp *tcp, const uint8_t *payload, size_t bytes,
    struct tr_error *error)
{
	uint32_t body_bytes = bytes < SEGMENT_HEADER_BYTES ? 0 : segment_header_bytes(payload);
	if (bytes < SEGMENT_HEADER_BYTES || body_bytes > TR_FRAME_DATA_MAX - SEGMENT_HEADER_BYTES)
		return tr_error_set(error, TR_EPROTO, "bad packed segment: its head is not one");
	tcp->unpacked = malloc(SEGMENT_HEADER_BYTES + body_bytes);
	if (tcp->unpacked == NULL)
		return tr_error_set(error, TR_ENOMEM, "no memory to unpack a segment");
	memcpy(tcp->unpacked, payload, SEGMENT_HEADER_BYTES);
	return packing_unpack(payload + SEGMENT_HEADER_BYTES, bytes - SEGMENT_HEADER_BYTES,
	    tcp->unpacked + SEGMENT_HEADER_BYTES, body_bytes, error);
}

static tr_status on_packed(struct lane_tcp *tcp, const uint8_t *payload, size_t bytes,
    struct tr_error *error)
{
	bool offered = tcp->unpacked != NULL;
	if (!tcp->lane.known)
		return tr_error_set(error, TR_EPROTO,
		    "a packed segment before it is known who sends");
	tr_status status = offered ? TR_OK : unpack(tcp, payload, bytes, error);
	if (status == TR_OK) {
		const struct lane_frame frame = { .type = FRAME_SEGMENT,
			.head = tcp->unpacked,
			.head_bytes = SEGMENT_HEADER_BYTES + segment_header_bytes(payload) };
		status = tcp->lane.callbacks.frame(tcp->lane.arg, &tcp->lane, &frame, error);
	}
	if (status != TR_EAGAIN) {
		free(tcp->unpacked);
		tcp->unpacked = NULL;
	}
	return status;
}

static tr_status on_frame(void *arg, struct conn *conn, uint16_t type, const uint8_t *payload,
    size_t bytes, struct tr_error *error)
{
	struct lane_tcp *tcp = arg;
	const struct lane_frame frame = { .type = type, .head = payload, .head_bytes = bytes };
	(void)conn;
	return type == FRAME_PACKED
	    ? on_packed(tcp, payload, bytes, error)
	    : tcp->lane.callbacks.frame(tcp->lane.arg, &tcp->lane, &frame, error);
}

static bool on_place(void *arg, struct conn *conn, const uint8_t *head, size_t body_bytes,
    struct lane_place *place)
{
	struct lane_tcp *tcp = arg;
	(void)conn;
	return tcp->lane.callbacks.place(tcp->lane.arg, &tcp->lane, head, body_bytes, place);
}

static tr_status on_placed(void *arg, struct conn *conn, const uint8_t *head, void *place,
    const void *body, size_t body_bytes, struct tr_error *error)
{
	struct lane_tcp *tcp = arg;
	const struct lane_frame frame = { .type = FRAME_SEGMENT,
		.head = head,
		.head_bytes = SEGMENT_HEADER_BYTES,
		.body = body,
		.body_bytes = body_bytes,
		.place = place };
	(void)conn;
	return tcp->lane.callbacks.frame(tcp->lane.arg, &tcp->lane, &frame, error);
}

static void on_unplace(void *arg, void *place)
{
	struct lane_tcp *tcp = arg;
	tcp->lane.callbacks.unplace(tcp->lane.arg, place);
}

static void tune(struct lane_tcp *tcp)
{
	struct tcp_path known = { 0 };
	int fd = conn_socket(tcp->conn);
	congestion_choose(fd, tcp->congestion);
	(void)tcp_path_get(fd, &known);
	set_backlog(tcp, &known);
}

static void on_connected(void *arg, struct conn *conn)
{
	struct lane_tcp *tcp = arg;
	(void)conn;
	tune(tcp);
	if (tcp->lane.callbacks.opened != NULL)
		tcp->lane.callbacks.opened(tcp->lane.arg, &tcp->lane);
}

static void on_drained(void *arg, struct conn *conn)
{
	struct lane_tcp *tcp = arg;
	(void)conn;
	tcp->turn_bytes = 0;
	if (tcp->lane.callbacks.drained != NULL)
		tcp->lane.callbacks.drained(tcp->lane.arg, &tcp->lane);
}

static void on_closed(void *arg, struct conn *conn, const char *reason)
{
	struct lane_tcp *tcp = arg;
	(void)conn;
	tcp->lane.callbacks.closed(tcp->lane.arg, &tcp->lane, reason);
	free(tcp->unpacked);
	free(tcp);
}

static struct lane_tcp *create(const char *congestion, const struct lane_callbacks *callbacks,
    void *arg, struct conn_callbacks *below, struct tr_error *error)
{
	struct lane_tcp *tcp = calloc(1, sizeof(*tcp));
	if (tcp == NULL) {
		(void)tr_error_set(error, TR_ENOMEM, "no memory for a connection");
		return NULL;
	}
	tcp->lane = (struct lane){ &tcp_ops, *callbacks, arg, false };
	(void)snprintf(tcp->congestion, sizeof(tcp->congestion), "%s",
	    congestion != NULL ? congestion : "");
	*below = (struct conn_callbacks){ .frame = on_frame,
		.connected = on_connected,
		.closed = on_closed,
		.drained = on_drained };
	if (callbacks->place != NULL) {
		below->place = on_place;
		below->placed = on_placed;
		below->unplace = on_unplace;
	}
	return tcp;
}

/* ---- the interface ---- */

tr_status lane_tcp_dial(uv_loop_t *loop, const char *address, const struct conn_relay *relay,
    struct tls_context *tls, const char *congestion, const struct lane_callbacks *callbacks,
    void *arg, struct lane **lane, struct tr_error *error)
{
	struct conn_callbacks below;
	struct lane_tcp *tcp = create(congestion, callbacks, arg, &below, error);
	if (tcp == NULL)
		return TR_ENOMEM;
	tr_status st = conn_dial_through(loop, address, relay, tls, &below, tcp, &tcp->conn, error);
	if (st != TR_OK) {
		free(tcp);
		return st;
	}
	*lane = &tcp->lane;
	return TR_OK;
}

tr_status lane_tcp_adopt(uv_loop_t *loop, struct stream stream, const void *early,
    size_t early_bytes, const char *congestion, const struct lane_callbacks *callbacks, void *arg,
    struct lane **lane, struct tr_error *error)
{
	struct conn_callbacks below;
	struct lane_tcp *tcp = create(congestion, callbacks, arg, &below, error);
	if (tcp == NULL)
		return TR_ENOMEM;
	tr_status st = conn_adopt(loop, stream, early, early_bytes, &below, tcp, &tcp->conn, error);
	if (st != TR_OK) {
		free(tcp);
		return st;
	}
	tune(tcp);
	*lane = &tcp->lane;
	return TR_OK;
}
