#include "collectives/transport/conn.h"

#include <assert.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "collectives/transport/conn_internal.h"
#include "collectives/transport/socket.h"
#include "collectives/transport/watch.h"

#define WRITE_PIECES_MAX 64
/* Unsent bytes from which a frame is written at once and not at the end of the loop's turn: a pipeline should flow
 * while the rest of the turn computes, small frames should share one system call. */
#define WRITE_AT_ONCE_BYTES (64u << 10)

static void on_idle(uv_idle_t *idle);
static void on_finish_timeout(uv_timer_t *timer);
static void conn_flush(struct conn *conn);

/* ---- life ---- */

void conn_handle_closed(struct conn *conn)
{
	assert(conn->handles > 0);
	if (--conn->handles > 0)
		return;
	send_queue_finish(&conn->queue);
	if (conn->callbacks.closed != NULL)
		conn->callbacks.closed(conn->arg, conn, conn->reason);
	conn_dial_finish(conn);
	tls_context_release(conn->tls_context);
	free(conn->through);
	free(conn->input.bytes);
	free(conn);
}

static void on_handle_closed(uv_handle_t *handle)
{
	conn_handle_closed(handle->data);
}

static void on_poll_closed(uv_handle_t *handle)
{
	struct conn *conn = handle->data;
	free(handle);
	conn_handle_closed(conn);
}

static struct conn *conn_create(uv_loop_t *loop, const struct conn_callbacks *callbacks, void *arg)
{
	struct conn *conn = calloc(1, sizeof(*conn));
	if (conn == NULL)
		return NULL;
	conn->loop = loop;
	conn->callbacks = *callbacks;
	conn->arg = arg;
	conn->fd = -1;
	send_queue_init(&conn->queue);
	(void)uv_idle_init(loop, &conn->idle);
	(void)uv_timer_init(loop, &conn->timer);
	conn->idle.data = conn;
	conn->timer.data = conn;
	conn->handles = 2;
	return conn;
}

static void conn_begin_close(struct conn *conn)
{
	conn->state = CONN_CLOSING;
	conn_place_drop(conn);
	conn_poll_stop(conn);
	if (conn->fd >= 0)
		(void)close(conn->fd);
	tls_destroy(conn->tls);
	conn->tls = NULL;
	conn->fd = -1;
	if (conn->resolver.data != NULL)
		(void)uv_cancel((uv_req_t *)&conn->resolver);
	uv_close((uv_handle_t *)&conn->idle, on_handle_closed);
	uv_close((uv_handle_t *)&conn->timer, on_handle_closed);
}

/* A connection that never became one: nobody hears of it. */
static void conn_abandon(struct conn *conn)
{
	conn->callbacks = (struct conn_callbacks){ 0 };
	conn_begin_close(conn);
}

void conn_close(struct conn *conn, const char *reason)
{
	if (conn == NULL || conn->state == CONN_CLOSING)
		return;
	if (reason != conn->reason)
		(void)snprintf(conn->reason, sizeof(conn->reason), "%s", reason);
	conn_begin_close(conn);
}

void conn_fail(struct conn *conn, const char *format, ...)
{
	char reason[sizeof(conn->reason)];
	va_list args;
	va_start(args, format);
	(void)vsnprintf(reason, sizeof(reason), format, args);
	va_end(args);
	conn_close(conn, reason);
}

/* ---- polling ---- */

static void on_poll(uv_poll_t *poll, int status, int events)
{
	struct conn *conn = poll->data;
	if (poll != conn->poll || conn->state == CONN_CLOSING)
		return;
	if (status < 0)
		conn->polled = 0; /* libuv has stopped it */
	if (conn->state == CONN_CONNECTING || conn->state == CONN_SHAKING ||
	    conn->state == CONN_RELAYING) {
		conn_dial_ready(conn);
		return;
	}
	if (status <
	    0) { /* an error on the socket: what it still holds is read, then the error is met */
		if (conn->input.parked)
			conn_fail(conn, "connection broken");
		else
			conn_read(conn);
		conn_poll(conn);
		return;
	}
	if ((events & UV_DISCONNECT) != 0 && conn->input.parked)
		conn->hang_up_seen = true; /* met when reading goes on */
	if ((events & UV_READABLE) != 0 && !conn->input.parked)
		conn_read(conn);
	if ((events & UV_WRITABLE) != 0 && conn->state != CONN_CLOSING)
		conn_flush(conn);
	conn_poll(conn);
}

tr_status conn_poll_start(struct conn *conn, struct tr_error *error)
{
	uv_poll_t *poll = calloc(1, sizeof(*poll));
	if (poll == NULL)
		return tr_error_set(error, TR_ENOMEM, "no memory for a connection");
	int rc = uv_poll_init(conn->loop, poll, conn->fd);
	if (rc != 0) {
		free(poll);
		return tr_error_set(error, TR_EIO, "cannot watch a socket: %s", uv_strerror(rc));
	}
	poll->data = conn;
	conn->poll = poll;
	conn->polled = 0;
	conn->handles++;
	return TR_OK;
}

void conn_poll_stop(struct conn *conn)
{
	if (conn->poll != NULL)
		uv_close((uv_handle_t *)conn->poll, on_poll_closed);
	conn->poll = NULL;
	conn->polled = 0;
}

/* Bytes that no socket has taken. */
static size_t left_to_send(const struct conn *conn)
{
	return conn->queue.unsent + (conn->tls == NULL ? 0 : tls_unsent(conn->tls));
}

/* Decrypted bytes may be there that no poll tells of. */
static bool more_to_read(const struct conn *conn)
{
	return conn->tls != NULL && tls_pending(conn->tls) && !conn->input.parked &&
	    (conn->state == CONN_OPEN || conn->state == CONN_FINISHING);
}

void conn_poll(struct conn *conn)
{
	int wanted = 0;
	if (more_to_read(conn))
		conn_wake(conn);
	if (conn->state == CONN_CONNECTING) {
		wanted = UV_WRITABLE;
	} else if (conn->state == CONN_SHAKING || conn->state == CONN_RELAYING) {
		const struct stream stream = { conn->fd, conn->tls };
		wanted = UV_READABLE | (stream_unsent(&stream) > 0 ? UV_WRITABLE : 0);
	} else if (conn->state == CONN_OPEN || conn->state == CONN_FINISHING) {
		if (!conn->input.parked)
			wanted |= UV_READABLE;
		else if (!conn->hang_up_seen)
			wanted |= UV_DISCONNECT;
		if (left_to_send(conn) > 0 && !uv_is_active((uv_handle_t *)&conn->idle))
			wanted |= UV_WRITABLE;
	}
	if (conn->poll == NULL || wanted == conn->polled)
		return;
	conn->polled = wanted;
	if (wanted != 0)
		watch_start(conn->poll, wanted, on_poll);
	else
		(void)uv_poll_stop(conn->poll);
}

void conn_wake(struct conn *conn)
{
	if (conn->state != CONN_CLOSING)
		(void)uv_idle_start(&conn->idle, on_idle);
}

static uint32_t silent_limit_ms(const struct conn *conn)
{
	return conn->patience_ms > 0 ? conn->patience_ms : TR_CONN_SILENT_MS;
}

/* The kernel alone would try for a quarter of an hour. */
static void on_check(uv_timer_t *timer)
{
	struct conn *conn = timer->data;
	/* Who sets a patience sends often: what was not answered was sent not long ago. */
	unsigned retries = conn->patience_ms > 0 ? TR_CONN_WATCHED_RETRIES_MIN
	                                         : TR_CONN_RETRIES_MIN;
	uint32_t silent_ms = conn->state == CONN_OPEN ? socket_unanswered_ms(conn->fd, retries) : 0;
	if (silent_ms >= silent_limit_ms(conn))
		conn_fail(conn, "no answer for %.1f s", silent_ms / 1000.0);
}

static void watch_answers(struct conn *conn)
{
	uint32_t every_ms = silent_limit_ms(conn) / 5;
	(void)uv_timer_start(&conn->timer, on_check, every_ms, every_ms);
}

void conn_set_patience(struct conn *conn, uint32_t patience_ms)
{
	if (conn->patience_ms == patience_ms)
		return; /* who says the same again and again does not put off the look */
	conn->patience_ms = patience_ms;
	if (conn->state == CONN_OPEN)
		watch_answers(conn);
}

void conn_set_dial_patience(struct conn *conn, uint32_t patience_ms)
{
	conn->dial_ms = patience_ms;
}

void conn_open(struct conn *conn)
{
	conn->state = conn->finish_asked ? CONN_FINISHING : CONN_OPEN;
	if (conn->finish_asked)
		(void)uv_timer_start(&conn->timer, on_finish_timeout, TR_CONN_FINISH_TIMEOUT_MS, 0);
	else
		watch_answers(conn);
	socket_peer_name(conn->fd, conn->peer_name);
	conn_wake(conn);
	conn_poll(conn);
}

/* ---- writing ---- */

static void check_drained(struct conn *conn)
{
	bool due = (conn->queue_full && conn->queue.unsent_copied <= TR_CONN_QUEUE_BYTES_MAX / 2) ||
	    (conn->drain_watched && left_to_send(conn) <= conn->drain_below);
	if (!due)
		return;
	if (conn->in_send) { /* not from within a call of the owner's */
		conn_wake(conn);
		return;
	}
	conn->queue_full = conn->drain_watched = false;
	if (conn->callbacks.drained != NULL)
		conn->callbacks.drained(conn->arg, conn);
}

static void on_finish_timeout(uv_timer_t *timer)
{
	struct conn *conn = timer->data;
	conn_begin_close(conn);
}

/* All is written: the other end reads it and closes. Closing first, with its bytes unread here, would reset the
 * connection and take away what it has not read. */
static void end_sending(struct conn *conn)
{
	if (!conn->ended_send) {
		conn->ended_send = true;
		if (conn->tls != NULL)
			tls_end(conn->tls);
		(void)uv_timer_start(&conn->timer, on_finish_timeout, TR_CONN_FINISH_TIMEOUT_MS, 0);
	}
	/* TLS's goodbye may have found no room: it is flushed as all else was, and we come here again. */
	if (left_to_send(conn) == 0)
		(void)shutdown(conn->fd, SHUT_WR);
}

static void cannot_write(struct conn *conn, int cause)
{
	if (conn->state == CONN_FINISHING)
		conn_close(conn, conn->reason);
	else if (conn->tls != NULL && cause == EPROTO)
		conn_fail(conn, "%s", tls_error(conn->tls));
	else
		conn_fail(conn, "cannot write: %s", strerror(cause));
}

/* One go at what is next; as sendmsg. */
static ssize_t write_some(struct conn *conn)
{
	struct iovec pieces[WRITE_PIECES_MAX];
	int count = send_queue_pieces(&conn->queue, pieces, WRITE_PIECES_MAX);
	if (conn->tls != NULL)
		return tls_write(conn->tls, pieces, count);
	struct msghdr message = { .msg_iov = pieces, .msg_iovlen = (size_t)count };
	conn->counters.calls++;
	return sendmsg(conn->fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
}

/* Writes until the queue is empty or the socket is full. */
static void conn_flush(struct conn *conn)
{
	if (conn->in_flush || (conn->state != CONN_OPEN && conn->state != CONN_FINISHING))
		return;
	conn->in_flush = true;
	while (conn->state != CONN_CLOSING && left_to_send(conn) > 0) {
		ssize_t n = write_some(conn);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
			break;
		if (n < 0) {
			cannot_write(conn, errno);
			break;
		}
		conn->counters.bytes_out += (uint64_t)n;
		send_queue_written(&conn->queue, (size_t)n);
	}
	conn->in_flush = false;
	if (conn->state == CONN_CLOSING)
		return;
	check_drained(conn);
	if (conn->state == CONN_FINISHING && left_to_send(conn) == 0)
		end_sending(conn);
}

static void on_idle(uv_idle_t *idle)
{
	struct conn *conn = idle->data;
	(void)uv_idle_stop(idle);
	conn_flush(conn);
	if (conn->state == CONN_OPEN && conn->input.resume) {
		conn->input.resume = false;
		conn->input.parked = false;
		conn->hang_up_seen = false;
		conn_read_dispatch(conn);
	}
	if (more_to_read(conn))
		conn_read(conn);
	if (conn->state != CONN_CLOSING)
		conn_poll(conn);
}

static void frame_queued(struct conn *conn)
{
	if (conn->queue.unsent >= WRITE_AT_ONCE_BYTES && (conn->polled & UV_WRITABLE) == 0) {
		conn->in_send = true;
		conn_flush(conn);
		conn->in_send = false;
	}
	/* With TLS all may have been taken, and what was encrypted of it not sent. */
	if (left_to_send(conn) > 0 && (conn->polled & UV_WRITABLE) == 0)
		conn_wake(conn);
}

static size_t put_head(uint8_t head[SEND_HEAD_MAX], uint16_t type, const void *own,
    size_t own_bytes, size_t body_bytes)
{
	struct frame_header header = { .length = (uint32_t)(own_bytes + body_bytes), .type = type };
	frame_header_put(&header, head);
	if (own_bytes > 0)
		memcpy(head + FRAME_HEADER_BYTES, own, own_bytes);
	return FRAME_HEADER_BYTES + own_bytes;
}

static bool conn_sends(const struct conn *conn)
{
	return conn->state != CONN_CLOSING && !conn->finish_asked;
}

tr_status conn_send_copy(struct conn *conn, uint16_t type, const void *payload, size_t bytes)
{
	uint8_t head[SEND_HEAD_MAX];
	if (!conn_sends(conn))
		return TR_EUNAVAILABLE;
	if (bytes > TR_FRAME_CONTROL_MAX)
		return TR_EINVAL;
	if (conn->queue.unsent_copied + bytes > TR_CONN_QUEUE_BYTES_MAX) {
		conn->queue_full = true;
		return TR_ELIMIT;
	}
	size_t head_bytes = put_head(head, type, NULL, 0, bytes);
	tr_status st = send_queue_copy(&conn->queue, head, head_bytes, payload, bytes);
	if (st == TR_OK)
		frame_queued(conn);
	return st;
}

tr_status conn_send_borrow(struct conn *conn, uint16_t type, const void *head, size_t head_bytes,
    const void *body, size_t body_bytes, lane_released_fn *released, void *arg)
{
	uint8_t whole_head[SEND_HEAD_MAX];
	if (!conn_sends(conn))
		return TR_EUNAVAILABLE;
	if (head_bytes > sizeof(whole_head) - FRAME_HEADER_BYTES ||
	    body_bytes > TR_FRAME_CONTROL_MAX - head_bytes)
		return TR_EINVAL;
	size_t whole_bytes = put_head(whole_head, type, head, head_bytes, body_bytes);
	tr_status st = send_queue_borrow(&conn->queue, whole_head, whole_bytes, body, body_bytes,
	    released, arg);
	if (st == TR_OK)
		frame_queued(conn);
	return st;
}

void conn_drop_borrowed(struct conn *conn)
{
	if (send_queue_drop_borrowed(&conn->queue) != TR_OK)
		conn_fail(conn, "no memory for the rest of a frame");
}

/* ---- the rest of the interface ---- */

/* `text`: whom to speak to in the end; through a relay, if there is one. */
static tr_status dial(uv_loop_t *loop, const char *text, const struct conn_relay *relay,
    conn_handed_fn *handed, struct tls_context *tls, const struct conn_callbacks *callbacks,
    void *arg, struct conn **conn, struct tr_error *error)
{
	struct address address;
	tr_status st = address_parse(text, &address, error);
	if (st == TR_OK && relay != NULL)
		st = address_parse(relay->address, &address, error);
	if (st != TR_OK)
		return st;
	struct conn *made = conn_create(loop, callbacks, arg);
	if (made == NULL)
		return tr_error_set(error, TR_ENOMEM, "no memory for a connection to %s", text);
	(void)snprintf(made->peer_name, sizeof(made->peer_name), "%s", text);
	made->tls_context = address.is_unix ? NULL : tls_context_hold(tls);
	st = send_queue_copy(&made->queue, FRAME_GREETING, FRAME_GREETING_BYTES, NULL, 0);
	made->through = relay == NULL ? NULL : calloc(1, sizeof(*made->through));
	if (made->through != NULL)
		*made->through = (struct conn_through){ .relay = *relay, .handed = handed };
	else if (relay != NULL)
		st = TR_ENOMEM;
	if (st == TR_OK)
		st = conn_dial_start(made, &address, error);
	else
		(void)tr_error_set(error, st, "no memory for a connection to %s", text);
	if (st != TR_OK) {
		conn_abandon(made);
		return st;
	}
	*conn = made;
	return TR_OK;
}

tr_status conn_dial(uv_loop_t *loop, const char *address, struct tls_context *tls,
    const struct conn_callbacks *callbacks, void *arg, struct conn **conn, struct tr_error *error)
{
	return dial(loop, address, NULL, NULL, tls, callbacks, arg, conn, error);
}

tr_status conn_dial_through(uv_loop_t *loop, const char *address, const struct conn_relay *relay,
    struct tls_context *tls, const struct conn_callbacks *callbacks, void *arg, struct conn **conn,
    struct tr_error *error)
{
	return dial(loop, address, relay, NULL, tls, callbacks, arg, conn, error);
}

tr_status conn_wait_at(uv_loop_t *loop, const struct conn_relay *relay, struct tls_context *tls,
    conn_handed_fn *handed, const struct conn_callbacks *callbacks, void *arg, struct conn **conn,
    struct tr_error *error)
{
	return dial(loop, relay->address, relay, handed, tls, callbacks, arg, conn, error);
}

tr_status conn_adopt(uv_loop_t *loop, struct stream stream, const void *early, size_t early_bytes,
    const struct conn_callbacks *callbacks, void *arg, struct conn **conn, struct tr_error *error)
{
	struct sockaddr_storage sa = { 0 };
	socklen_t length = sizeof(sa);
	struct conn *made = conn_create(loop, callbacks, arg);
	if (made == NULL)
		return tr_error_set(error, TR_ENOMEM, "no memory for a connection");
	made->fd = stream.fd;
	made->tls = stream.tls;
	if (getpeername(stream.fd, (struct sockaddr *)&sa, &length) != 0)
		sa.ss_family = AF_UNIX;
	socket_tune(stream.fd, (struct sockaddr *)&sa);
	tr_status st = conn_read_early(made, early, early_bytes);
	if (st == TR_OK)
		st = conn_poll_start(made, error);
	else
		(void)tr_error_set(error, st, "no memory for a connection");
	if (st != TR_OK) {
		made->fd = -1; /* stays with the caller */
		made->tls = NULL;
		conn_abandon(made);
		return st;
	}
	made->input.resume = early_bytes > 0;
	conn_open(made);
	*conn = made;
	return TR_OK;
}

void conn_resume(struct conn *conn)
{
	if (conn->state != CONN_OPEN || !conn->input.parked)
		return;
	conn->input.resume = true;
	conn_wake(conn);
}

void conn_finish(struct conn *conn, const char *reason)
{
	if (conn == NULL || conn->state == CONN_CLOSING || conn->finish_asked)
		return;
	conn->finish_asked = true;
	(void)snprintf(conn->reason, sizeof(conn->reason), "%s", reason);
	if (conn->state != CONN_OPEN) /* goes on once it is connected */
		return;
	conn->state = CONN_FINISHING;
	conn->input.parked = conn->input.resume = false;
	conn->input.begin = conn->input.end = 0;
	conn_place_drop(conn);
	(void)uv_timer_start(&conn->timer, on_finish_timeout, TR_CONN_FINISH_TIMEOUT_MS, 0);
	conn_wake(conn);
	conn_poll(conn);
}

void conn_watch_unsent(struct conn *conn, size_t below)
{
	conn->drain_watched = true;
	conn->drain_below = below;
	if (left_to_send(conn) <= below)
		conn_wake(conn);
}

size_t conn_unsent(const struct conn *conn)
{
	return left_to_send(conn);
}

const char *conn_peer_name(const struct conn *conn)
{
	return conn->peer_name;
}

void conn_counters(const struct conn *conn, struct lane_counters *counters)
{
	*counters = conn->counters;
	if (conn->tls == NULL)
		return;
	struct tls_counters wire; /* half a record is a sign of life as well */
	tls_get_counters(conn->tls, &wire);
	counters->bytes_in = wire.bytes_in;
	counters->bytes_out = wire.bytes_out;
	counters->calls = wire.calls;
}

int conn_socket(const struct conn *conn)
{
	return conn->fd;
}
