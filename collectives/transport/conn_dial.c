/* Dialling: resolve off the loop, then try each address until one connects. */
#include "collectives/transport/conn_internal.h"

#include <assert.h>
#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "collectives/transport/socket.h"

static void try_next(struct conn *conn);

static void unreachable(struct conn *conn, const char *cause)
{
	const struct conn_through *through = conn->through;
	if (through == NULL)
		conn_fail(conn, "cannot reach %s: %s", conn->peer_name, cause);
	else
		conn_fail(conn, "cannot reach %s through the relay at %s: %s", conn->peer_name,
		    through->relay.address, cause);
}

static bool to_relay(const struct conn *conn)
{
	return conn->through != NULL && !conn->through->joined;
}

void conn_dial_failed(struct conn *conn, const char *cause)
{
	conn_poll_stop(conn);
	if (conn->fd >= 0)
		(void)close(conn->fd);
	conn->fd = -1;
	tls_destroy(conn->tls);
	conn->tls = NULL;
	if (conn->through != NULL)
		conn->through->joined = false;
	if (conn->next_address != NULL)
		try_next(conn);
	else
		unreachable(conn, cause);
}

static void connected(struct conn *conn)
{
	if (to_relay(conn)) {
		conn_relay_begin(conn);
		return;
	}
	(void)uv_timer_stop(&conn->timer);
	conn_open(conn);
	if (conn->callbacks.connected != NULL && conn->state == CONN_OPEN)
		conn->callbacks.connected(conn->arg, conn);
}

static void shake(struct conn *conn)
{
	char words[sizeof(conn->reason)];
	switch (tls_handshake(conn->tls)) {
	case TLS_DONE:
		connected(conn);
		break;
	case TLS_WAITS:
		conn_poll(conn);
		break;
	case TLS_FAILED: /* the words are the connection's, which ends */
		(void)snprintf(words, sizeof(words), "%s", tls_error(conn->tls));
		conn_dial_failed(conn, words);
		break;
	}
}

/* The certificate has to be for the host that was asked for, not for what it resolved to. */
static void begin_tls(struct conn *conn)
{
	struct address address;
	if (address_parse(to_relay(conn) ? conn->through->relay.address : conn->peer_name, &address,
	        NULL) == TR_OK)
		conn->tls = tls_create(conn->tls_context, conn->fd, address.host);
	if (conn->tls == NULL) {
		conn_dial_failed(conn, "no memory for TLS");
		return;
	}
	if (to_relay(conn))
		tls_read_no_further(conn->tls);
	conn->state = CONN_SHAKING;
	shake(conn);
}

bool conn_found_nobody(const struct conn *conn)
{
	return conn->called && !conn->answered;
}

void conn_dial_joined(struct conn *conn)
{
	conn->answered = true;
	if (conn->tls_context != NULL)
		begin_tls(conn);
	else
		connected(conn);
}

static void on_timeout(uv_timer_t *timer);

static void start_timer(struct conn *conn)
{
	(void)uv_timer_start(&conn->timer, on_timeout,
	    conn->patience_ms > 0 ? conn->patience_ms : TR_CONN_DIAL_TIMEOUT_MS, 0);
}

void conn_dial_ready(struct conn *conn)
{
	if (conn->state == CONN_SHAKING) {
		shake(conn);
		return;
	}
	if (conn->state == CONN_RELAYING) {
		conn_relay_ready(conn);
		return;
	}
	int cause = 0;
	socklen_t length = sizeof(cause);
	if (getsockopt(conn->fd, SOL_SOCKET, SO_ERROR, &cause, &length) != 0)
		cause = errno;
	if (cause != 0) {
		conn_dial_failed(conn, strerror(cause));
		return;
	}
	if (conn->dial_ms > 0)
		start_timer(conn);
	conn_dial_joined(conn);
}

/* Timers come before sockets in a turn of the loop: of a loop that stood still (a busy machine, SIGSTOP) the kernel may have the answer. */
static void on_timeout(uv_timer_t *timer)
{
	struct conn *conn = timer->data;
	struct pollfd answer = { .fd = conn->fd, .events = POLLOUT };
	if (conn->state == CONN_SHAKING) {
		conn_dial_failed(conn, "no answer in the TLS handshake");
		return; /* the next address has its own time, and its own descriptor */
	}
	if (conn->state == CONN_RELAYING) {
		conn_dial_failed(conn, "the other end did not come there in time");
		return;
	}
	if (conn->state != CONN_CONNECTING)
		return;
	if (poll(&answer, 1, 0) > 0) {
		start_timer(conn); /* for what follows: TLS, a relay */
		conn_dial_ready(conn);
	} else {
		conn_dial_failed(conn, "no answer");
	}
}

/* Starts one attempt; 0 or an errno. */
static int attempt(struct conn *conn, const struct sockaddr *sa, socklen_t length)
{
	conn->fd = socket(sa->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (conn->fd < 0)
		return errno;
	socket_tune(conn->fd, sa);
	conn->called = true;
	if (connect(conn->fd, sa, length) != 0 && errno != EINPROGRESS)
		return errno;
	conn->state = CONN_CONNECTING;
	if (conn_poll_start(conn, NULL) != TR_OK)
		return ENOMEM;
	conn_poll(conn);
	start_timer(conn);
	if (conn->dial_ms > 0)
		(void)uv_timer_start(&conn->timer, on_timeout, conn->dial_ms, 0);
	return 0;
}

static void try_next(struct conn *conn)
{
	int cause = EADDRNOTAVAIL;
	while (conn->next_address != NULL) {
		struct addrinfo *info = conn->next_address;
		conn->next_address = info->ai_next;
		cause = attempt(conn, info->ai_addr, info->ai_addrlen);
		if (cause == 0)
			return;
		if (conn->fd >= 0)
			(void)close(conn->fd);
		conn->fd = -1;
	}
	unreachable(conn, strerror(cause));
}

static void on_resolved(uv_getaddrinfo_t *resolver, int status, struct addrinfo *addresses)
{
	struct conn *conn = resolver->data;
	resolver->data = NULL;
	conn->addresses = addresses;
	conn->next_address = addresses;
	if (conn->state == CONN_RESOLVING) {
		if (status == 0)
			try_next(conn);
		else
			conn_fail(conn, "cannot resolve %s: %s", conn->peer_name,
			    uv_strerror(status));
	}
	conn_handle_closed(conn);
}

static tr_status dial_unix(struct conn *conn, const struct address *address, struct tr_error *error)
{
	struct sockaddr_storage sa;
	socklen_t length;
	tr_status st = address_unix(address, &sa, &length, error);
	if (st != TR_OK)
		return st;
	int cause = attempt(conn, (struct sockaddr *)&sa, length);
	if (cause != 0)
		return tr_error_set(error, TR_EUNAVAILABLE, "cannot reach %s: %s", conn->peer_name,
		    strerror(cause));
	return TR_OK;
}

tr_status conn_dial_start(struct conn *conn, const struct address *address, struct tr_error *error)
{
	if (address->is_unix)
		return dial_unix(conn, address, error);
	struct addrinfo hints = { .ai_family = AF_UNSPEC,
		.ai_socktype = SOCK_STREAM,
		.ai_flags = AI_NUMERICSERV };
	conn->resolver.data = conn;
	int rc = uv_getaddrinfo(conn->loop, &conn->resolver, on_resolved, address->host,
	    address->port, &hints);
	if (rc != 0) {
		conn->resolver.data = NULL;
		return tr_error_set(error, TR_EIO, "cannot resolve %s: %s", conn->peer_name,
		    uv_strerror(rc));
	}
	conn->handles++;
	return TR_OK;
}

void conn_dial_finish(struct conn *conn)
{
	if (conn->addresses != NULL)
		uv_freeaddrinfo(conn->addresses);
	conn->addresses = NULL;
}
