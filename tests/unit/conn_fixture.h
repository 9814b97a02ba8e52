/* Two ends of a framed connection over loopback, and raw sockets for bytes that no conn would write. */
#ifndef TR_TESTS_CONN_FIXTURE_H
#define TR_TESTS_CONN_FIXTURE_H

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <linux/filter.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "collectives/transport/conn.h"
#include "collectives/transport/listener.h"
#include "common/limits.h"
#include "tests/unit/machine.h"

/* One end of a connection under test, and what happened to it. */
struct end {
	struct conn *conn;
	unsigned frames, connected, closed, drained;
	size_t bytes;
	uint16_t last_type;
	uint8_t last_payload[64];
	uint64_t sum;
	char reason[256];
	unsigned park; /* so many offers of a frame are answered TR_EAGAIN */
	bool refuse;
	bool found_nobody; /* when it was closed */
};

struct pair {
	uv_loop_t loop;
	struct listener *listener;
	struct end client, server;
	int accepted; /* the server's descriptor, which is its conn's */
};

/* What each end speaks; NULL: plain. */
enum { PAIR_SERVER, PAIR_CLIENT };
static struct tls_context *pair_tls[2];

static uint64_t sum_of(const uint8_t *bytes, size_t count)
{
	uint64_t sum = 0;
	for (size_t i = 0; i < count; i++)
		sum = sum * 31 + bytes[i];
	return sum;
}

static inline tr_status on_frame(void *arg, struct conn *conn, uint16_t type,
    const uint8_t *payload, size_t bytes, struct tr_error *error)
{
	struct end *end = arg;
	assert_ptr_equal(conn, end->conn);
	assert_int_equal((uintptr_t)payload % 8, 0);
	if (end->refuse)
		return tr_error_set(error, TR_EPROTO, "bad frame: not wanted");
	if (end->park > 0) {
		end->park--;
		return TR_EAGAIN;
	}
	end->frames++;
	end->bytes += bytes;
	end->last_type = type;
	end->sum = sum_of(payload, bytes);
	memcpy(end->last_payload, payload, bytes < 64 ? bytes : 64);
	return TR_OK;
}

static inline void on_connected(void *arg, struct conn *conn)
{
	struct end *end = arg;
	(void)conn;
	end->connected++;
}

static inline void on_closed(void *arg, struct conn *conn, const char *reason)
{
	struct end *end = arg;
	end->closed++;
	end->found_nobody = conn_found_nobody(conn);
	end->conn = NULL;
	(void)snprintf(end->reason, sizeof(end->reason), "%s", reason);
}

static inline void on_drained(void *arg, struct conn *conn)
{
	struct end *end = arg;
	(void)conn;
	end->drained++;
}

static const struct conn_callbacks callbacks = { .frame = on_frame,
	.connected = on_connected,
	.closed = on_closed,
	.drained = on_drained };

static inline void on_accepted(void *arg, enum listener_protocol protocol, struct stream stream,
    const void *early, size_t early_bytes)
{
	struct pair *pair = arg;
	assert_int_equal(protocol, LISTENER_FRAMES);
	pair->accepted = stream.fd;
	assert_int_equal(conn_adopt(&pair->loop, stream, early, early_bytes, &callbacks,
	                     &pair->server, &pair->server.conn, NULL),
	    TR_OK);
}

static inline void on_guard(uv_timer_t *timer)
{
	(void)timer;
	fail_msg("nothing happened for 30 s");
}

/* Runs the loop until *what is at least `least`. */
static inline void run_until(struct pair *pair, const unsigned *what, unsigned least)
{
	uv_timer_t guard;
	(void)uv_timer_init(&pair->loop, &guard);
	(void)uv_timer_start(&guard, on_guard, 30000, 0);
	while (*what < least)
		(void)uv_run(&pair->loop, UV_RUN_ONCE);
	uv_close((uv_handle_t *)&guard, NULL);
	(void)uv_run(&pair->loop, UV_RUN_NOWAIT);
}

static inline int pair_listen(void **state, const char *address)
{
	struct pair *pair = calloc(1, sizeof(*pair));
	assert_non_null(pair);
	assert_int_equal(uv_loop_init(&pair->loop), 0);
	assert_int_equal(listener_start(&pair->loop, address, false, pair_tls[PAIR_SERVER],
	                     on_accepted, pair, &pair->listener, NULL),
	    TR_OK);
	*state = pair;
	return 0;
}

static inline int pair_setup(void **state)
{
	return pair_listen(state, "127.0.0.1:0");
}

static inline int pair_setup_unix(void **state)
{
	char address[64];
	(void)snprintf(address, sizeof(address), "unix:/tmp/test-conn-%d.sock", getpid());
	return pair_listen(state, address);
}

static inline int pair_teardown(void **state)
{
	struct pair *pair = *state;
	conn_close(pair->client.conn, "test over");
	conn_close(pair->server.conn, "test over");
	listener_stop(pair->listener);
	(void)uv_run(&pair->loop, UV_RUN_DEFAULT);
	assert_int_equal(uv_loop_close(&pair->loop), 0);
	free(pair);
	return 0;
}

static inline void pair_dial(struct pair *pair)
{
	assert_int_equal(conn_dial(&pair->loop, listener_address(pair->listener),
	                     pair_tls[PAIR_CLIENT], &callbacks, &pair->client, &pair->client.conn,
	                     NULL),
	    TR_OK);
}

static inline void pair_connect(struct pair *pair)
{
	pair_dial(pair);
	assert_int_equal(conn_send_copy(pair->client.conn, FRAME_TO_MEMBER, "hi", 2), TR_OK);
	run_until(pair, &pair->server.frames, 1);
	assert_int_equal(pair->client.connected, 1);
	pair->server.frames = 0;
	pair->server.bytes = 0;
}

/* A blocking socket of the test's own, for bytes that no conn would write. */
static inline int raw_dial(struct pair *pair)
{
	struct sockaddr_in sa = { .sin_family = AF_INET };
	const char *colon = strrchr(listener_address(pair->listener), ':');
	sa.sin_port = htons((uint16_t)atoi(colon + 1));
	sa.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	int on = 1;
	assert_true(fd >= 0);
	assert_int_equal(connect(fd, (struct sockaddr *)&sa, sizeof(sa)), 0);
	assert_int_equal(setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)), 0);
	return fd;
}

static inline void raw_write(int fd, const void *bytes, size_t count)
{
	assert_int_equal(send(fd, bytes, count, MSG_NOSIGNAL), count);
}

static inline void raw_greet(int fd)
{
	raw_write(fd, FRAME_GREETING, FRAME_GREETING_BYTES);
}

static inline void raw_header(uint8_t out[FRAME_HEADER_BYTES], uint32_t length, uint16_t type)
{
	struct frame_header header = { .length = length, .type = type };
	frame_header_put(&header, out);
}

#define WITH_PAIR(test) cmocka_unit_test_setup_teardown(test, pair_setup, pair_teardown)

#endif
