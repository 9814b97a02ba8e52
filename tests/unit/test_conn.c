/* Framed connections over loopback: what a peer's bytes, or their absence, can do. */
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
};

struct pair {
	uv_loop_t loop;
	struct listener *listener;
	struct end client, server;
	int accepted; /* the server's descriptor, which is its conn's */
};

static uint64_t sum_of(const uint8_t *bytes, size_t count)
{
	uint64_t sum = 0;
	for (size_t i = 0; i < count; i++)
		sum = sum * 31 + bytes[i];
	return sum;
}

static tr_status on_frame(void *arg, struct conn *conn, uint16_t type, const uint8_t *payload,
    size_t bytes, struct tr_error *error)
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

static void on_connected(void *arg, struct conn *conn)
{
	struct end *end = arg;
	(void)conn;
	end->connected++;
}

static void on_closed(void *arg, struct conn *conn, const char *reason)
{
	struct end *end = arg;
	(void)conn;
	end->closed++;
	end->conn = NULL;
	(void)snprintf(end->reason, sizeof(end->reason), "%s", reason);
}

static void on_drained(void *arg, struct conn *conn)
{
	struct end *end = arg;
	(void)conn;
	end->drained++;
}

static const struct conn_callbacks callbacks = { on_frame, on_connected, on_closed, on_drained };

static void on_accepted(void *arg, enum listener_protocol protocol, int fd, const void *early,
    size_t early_bytes)
{
	struct pair *pair = arg;
	assert_int_equal(protocol, LISTENER_FRAMES);
	pair->accepted = fd;
	assert_int_equal(conn_adopt(&pair->loop, fd, early, early_bytes, &callbacks, &pair->server,
	                     &pair->server.conn, NULL),
	    TR_OK);
}

static void on_guard(uv_timer_t *timer)
{
	(void)timer;
	fail_msg("nothing happened for 30 s");
}

/* Runs the loop until *what is at least `least`. */
static void run_until(struct pair *pair, const unsigned *what, unsigned least)
{
	uv_timer_t guard;
	(void)uv_timer_init(&pair->loop, &guard);
	(void)uv_timer_start(&guard, on_guard, 30000, 0);
	while (*what < least)
		(void)uv_run(&pair->loop, UV_RUN_ONCE);
	uv_close((uv_handle_t *)&guard, NULL);
	(void)uv_run(&pair->loop, UV_RUN_NOWAIT);
}

static int pair_listen(void **state, const char *address)
{
	struct pair *pair = calloc(1, sizeof(*pair));
	assert_non_null(pair);
	assert_int_equal(uv_loop_init(&pair->loop), 0);
	assert_int_equal(listener_start(&pair->loop, address, false, on_accepted, pair,
	                     &pair->listener, NULL),
	    TR_OK);
	*state = pair;
	return 0;
}

static int pair_setup(void **state)
{
	return pair_listen(state, "127.0.0.1:0");
}

static int pair_setup_unix(void **state)
{
	char address[64];
	(void)snprintf(address, sizeof(address), "unix:/tmp/test-conn-%d.sock", getpid());
	return pair_listen(state, address);
}

static int pair_teardown(void **state)
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

static void pair_dial(struct pair *pair)
{
	assert_int_equal(conn_dial(&pair->loop, listener_address(pair->listener), &callbacks,
	                     &pair->client, &pair->client.conn, NULL),
	    TR_OK);
}

static void pair_connect(struct pair *pair)
{
	pair_dial(pair);
	assert_int_equal(conn_send_copy(pair->client.conn, FRAME_TO_MEMBER, "hi", 2), TR_OK);
	run_until(pair, &pair->server.frames, 1);
	assert_int_equal(pair->client.connected, 1);
	pair->server.frames = 0;
	pair->server.bytes = 0;
}

/* A blocking socket of the test's own, for bytes that no conn would write. */
static int raw_dial(struct pair *pair)
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

static void raw_write(int fd, const void *bytes, size_t count)
{
	assert_int_equal(send(fd, bytes, count, MSG_NOSIGNAL), count);
}

static void raw_greet(int fd)
{
	raw_write(fd, FRAME_GREETING, FRAME_GREETING_BYTES);
}

static void raw_header(uint8_t out[FRAME_HEADER_BYTES], uint32_t length, uint16_t type)
{
	struct frame_header header = { .length = length, .type = type };
	frame_header_put(&header, out);
}

/* ---- tests ---- */

static void frames_go_both_ways(void **state)
{
	struct pair *pair = *state;
	pair_connect(pair);
	assert_int_equal(conn_send_copy(pair->client.conn, FRAME_TO_MEMBER, "abc", 3), TR_OK);
	assert_int_equal(conn_send_copy(pair->client.conn, FRAME_PEER, NULL, 0), TR_OK);
	run_until(pair, &pair->server.frames, 2);
	assert_int_equal(pair->server.last_type, FRAME_PEER);
	assert_int_equal(pair->server.bytes, 3);
	assert_int_equal(conn_send_copy(pair->server.conn, FRAME_TO_NODE, "defg", 4), TR_OK);
	run_until(pair, &pair->client.frames, 1);
	assert_memory_equal(pair->client.last_payload, "defg", 4);
	conn_finish(pair->client.conn, "done");
	run_until(pair, &pair->client.closed, 1);
	assert_string_equal(pair->client.reason, "done");
	run_until(pair, &pair->server.closed, 1);
	assert_string_equal(pair->server.reason, "closed by peer");
}

static void frames_go_both_ways_by_ipv6(void **state)
{
	if (!machine_has("::1"))
		skip();
	(void)pair_listen(state, "[::1]:0");
	frames_go_both_ways(state);
	(void)pair_teardown(state);
}

static void options_are_set(void **state)
{
	struct pair *pair = *state;
	pair_connect(pair);
	int fd = raw_dial(
	    pair); /* any later socket: only its number is of use, to find the others */
	char algorithm[16];
	int tuned = 0, nodelay = 0;
	for (int i = 3; i < fd; i++) {
		socklen_t length = sizeof(algorithm);
		if (getsockopt(i, IPPROTO_TCP, TCP_CONGESTION, algorithm, &length) != 0)
			continue;
		tuned += strcmp(algorithm, "cubic") == 0 || strcmp(algorithm, "reno") == 0;
		int on = 0;
		length = sizeof(on);
		nodelay += getsockopt(i, IPPROTO_TCP, TCP_NODELAY, &on, &length) == 0 && on != 0;
	}
	assert_true(nodelay >= 2);
	assert_true(tuned >= 2);
	(void)close(fd);
}

static void bytes_come_one_by_one(void **state)
{
	struct pair *pair = *state;
	uint8_t header[FRAME_HEADER_BYTES];
	int fd = raw_dial(pair);
	for (size_t i = 0; i < FRAME_GREETING_BYTES; i++) {
		raw_write(fd, &FRAME_GREETING[i], 1);
		(void)uv_run(&pair->loop, UV_RUN_NOWAIT);
	}
	raw_header(header, 5, FRAME_TO_MEMBER);
	for (unsigned round = 1; round <= 3; round++) {
		for (size_t i = 0; i < sizeof(header); i++) {
			raw_write(fd, &header[i], 1);
			(void)uv_run(&pair->loop, UV_RUN_NOWAIT);
		}
		for (size_t i = 0; i < 5; i++) {
			assert_int_equal(pair->server.frames, round - 1);
			raw_write(fd, &"hello"[i], 1);
			(void)uv_run(&pair->loop, UV_RUN_NOWAIT);
		}
		run_until(pair, &pair->server.frames, round);
		assert_memory_equal(pair->server.last_payload, "hello", 5);
	}
	(void)close(fd);
	run_until(pair, &pair->server.closed, 1);
}

static void expect_closed(struct pair *pair, int fd, const char *reason)
{
	run_until(pair, &pair->server.closed, 1);
	if (strstr(pair->server.reason, reason) == NULL)
		fail_msg("reason is \"%s\", not \"%s\"", pair->server.reason, reason);
	assert_int_equal(pair->server.frames, 0);
	(void)close(fd);
}

static void four_gib_are_refused(void **state)
{
	struct pair *pair = *state;
	uint8_t header[FRAME_HEADER_BYTES];
	int fd = raw_dial(pair);
	raw_greet(fd);
	raw_header(header, UINT32_MAX, FRAME_TO_MEMBER);
	raw_write(fd, header, sizeof(header));
	expect_closed(pair, fd, "bad frame: 4294967295 bytes");
}

static void garbage_is_refused(void **state)
{
	struct pair *pair = *state;
	int fd = raw_dial(pair);
	raw_greet(fd);
	raw_write(fd, "GET / HTTP/1.1\r\n\r\n", 18);
	expect_closed(pair, fd, "bad frame: header check");
}

static void half_a_frame_then_close(void **state)
{
	struct pair *pair = *state;
	uint8_t header[FRAME_HEADER_BYTES];
	int fd = raw_dial(pair);
	raw_greet(fd);
	raw_header(header, 100, FRAME_TO_MEMBER);
	raw_write(fd, header, sizeof(header));
	raw_write(fd, "only this", 9);
	assert_int_equal(shutdown(fd, SHUT_WR), 0);
	expect_closed(pair, fd, "in the middle of a frame, after 17 bytes");
}

static void reset_is_named(void **state)
{
	struct pair *pair = *state;
	uint8_t header[FRAME_HEADER_BYTES];
	struct linger at_once = { .l_onoff = 1, .l_linger = 0 };
	int fd = raw_dial(pair);
	raw_greet(fd);
	raw_header(header, 1, FRAME_TO_MEMBER);
	raw_write(fd, header, sizeof(header));
	raw_write(fd, "x", 1);
	run_until(pair, &pair->server.frames, 1);
	assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once)), 0);
	(void)close(fd);
	run_until(pair, &pair->server.closed, 1);
	assert_string_equal(pair->server.reason, "reset by peer");
}

static void refused_frame_closes(void **state)
{
	struct pair *pair = *state;
	pair_connect(pair);
	pair->server.refuse = true;
	assert_int_equal(conn_send_copy(pair->client.conn, FRAME_TO_MEMBER, "abc", 3), TR_OK);
	run_until(pair, &pair->server.closed, 1);
	assert_string_equal(pair->server.reason, "bad frame: not wanted");
	run_until(pair, &pair->client.closed, 1);
}

static void parked_frame_is_offered_again(void **state)
{
	struct pair *pair = *state;
	pair_connect(pair);
	pair->server.park = 2;
	for (int i = 0; i < 3; i++)
		assert_int_equal(conn_send_copy(pair->client.conn, FRAME_PEER, "0123", 4), TR_OK);
	assert_int_equal(conn_send_copy(pair->client.conn, FRAME_TO_MEMBER, "last", 4), TR_OK);
	while (pair->server.park == 2)
		(void)uv_run(&pair->loop, UV_RUN_ONCE);
	for (int i = 0; i < 20; i++)
		(void)uv_run(&pair->loop, UV_RUN_NOWAIT);
	assert_int_equal(pair->server.frames, 0);
	conn_resume(pair->server.conn); /* refused once more */
	while (pair->server.park == 1)
		(void)uv_run(&pair->loop, UV_RUN_ONCE);
	assert_int_equal(pair->server.frames, 0);
	conn_resume(pair->server.conn);
	run_until(pair, &pair->server.frames, 4);
	assert_int_equal(pair->server.last_type, FRAME_TO_MEMBER);
}

/* A peer that sent and left has not taken its frames back. */
static void parked_frames_outlive_the_peer(void **state)
{
	struct pair *pair = *state;
	pair_connect(pair);
	pair->server.park = 1;
	for (int i = 0; i < 3; i++)
		assert_int_equal(conn_send_copy(pair->client.conn, FRAME_PEER, "0123", 4), TR_OK);
	conn_finish(pair->client.conn, "done");
	while (pair->server.park == 1)
		(void)uv_run(&pair->loop, UV_RUN_ONCE);
	for (int i = 0; i < 20; i++)
		(void)uv_run(&pair->loop, UV_RUN_NOWAIT);
	assert_int_equal(pair->server.closed, 0);
	conn_resume(pair->server.conn);
	run_until(pair, &pair->server.closed, 1);
	assert_int_equal(pair->server.frames, 3);
}

static void on_released(void *arg)
{
	++*(unsigned *)arg;
}

static void borrowed_frames_arrive(void **state)
{
	struct pair *pair = *state;
	enum { FRAMES = 40, BODY = 256 << 10 };
	unsigned released = 0;
	uint8_t head[96];
	memset(head, 7, sizeof(head));
	uint8_t *body = malloc(BODY);
	assert_non_null(body);
	for (size_t i = 0; i < BODY; i++)
		body[i] = (uint8_t)(i * 7);
	pair_connect(pair);
	for (unsigned i = 0; i < FRAMES; i++) {
		assert_int_equal(conn_send_borrow(pair->client.conn, FRAME_SEGMENT, head,
		                     sizeof(head), body, BODY, on_released, &released),
		    TR_OK);
		assert_int_equal(conn_send_copy(pair->client.conn, FRAME_PEER, "odd", 3), TR_OK);
	}
	run_until(pair, &pair->server.frames, 2 * FRAMES);
	assert_int_equal(released, FRAMES);
	assert_int_equal(pair->server.bytes, FRAMES * (BODY + 96 + 3));
	assert_int_equal(conn_unsent(pair->client.conn), 0);
	free(body);
}

/* With a reader that has stopped, a frame is half written: the rest of it must still come, whole and right,
 * although its memory is given back. */
static void drop_borrowed_in_mid_frame(void **state)
{
	struct pair *pair = *state;
	enum { FRAMES = 64, BODY = 1000000 };
	unsigned released = 0;
	pair_connect(pair);
	pair->server.park = 1;
	uint8_t *body = malloc(BODY);
	assert_non_null(body);
	for (size_t i = 0; i < BODY; i++)
		body[i] = (uint8_t)(i * 13 + 1);
	uint64_t right = sum_of(body, BODY);
	for (unsigned i = 0; i < FRAMES; i++)
		assert_int_equal(conn_send_borrow(pair->client.conn, FRAME_SEGMENT, NULL, 0, body,
		                     BODY, on_released, &released),
		    TR_OK);
	for (int i = 0; i < 50; i++)
		(void)uv_run(&pair->loop, UV_RUN_NOWAIT);
	assert_in_range(released, 0, FRAMES - 1);
	conn_drop_borrowed(pair->client.conn);
	assert_int_equal(released, FRAMES);
	memset(body, 0, BODY); /* is the caller's again */
	assert_int_equal(conn_send_copy(pair->client.conn, FRAME_PEER, "end", 3), TR_OK);
	conn_resume(pair->server.conn);
	while (pair->server.last_type != FRAME_PEER) {
		unsigned before = pair->server.frames;
		run_until(pair, &pair->server.frames, before + 1);
		if (pair->server.last_type == FRAME_SEGMENT)
			assert_true(pair->server.sum == right);
	}
	assert_true(pair->server.frames > 1);
	assert_in_range(pair->server.frames, 2, FRAMES);
	free(body);
}

static void close_releases_and_tells_once(void **state)
{
	struct pair *pair = *state;
	static const uint8_t body[1000];
	unsigned released = 0;
	pair_dial(pair);
	assert_int_equal(conn_send_borrow(pair->client.conn, FRAME_SEGMENT, NULL, 0, body,
	                     sizeof(body), on_released, &released),
	    TR_OK);
	struct conn *conn = pair->client.conn;
	conn_close(conn, "changed my mind");
	conn_close(conn, "again");
	assert_int_equal(pair->client.closed, 0);
	assert_int_equal(conn_send_copy(conn, FRAME_PEER, "x", 1), TR_EUNAVAILABLE);
	assert_int_equal(conn_send_borrow(conn, FRAME_SEGMENT, NULL, 0, body, sizeof(body),
	                     on_released, &released),
	    TR_EUNAVAILABLE);
	run_until(pair, &pair->client.closed, 1);
	assert_int_equal(released, 1);
	assert_string_equal(pair->client.reason, "changed my mind");
	assert_int_equal(pair->client.connected, 0);
}

static void queue_is_limited(void **state)
{
	struct pair *pair = *state;
	size_t bytes = TR_FRAME_CONTROL_MAX;
	uint8_t *body = calloc(1, bytes);
	unsigned sent = 0;
	assert_non_null(body);
	pair_connect(pair);
	pair->server.park = 1;
	tr_status st;
	while ((st = conn_send_copy(pair->client.conn, FRAME_PEER, body, bytes)) == TR_OK)
		sent++;
	assert_int_equal(st, TR_ELIMIT);
	assert_true(sent >= TR_CONN_QUEUE_BYTES_MAX / bytes - 1);
	assert_int_equal(conn_send_copy(pair->client.conn, FRAME_PEER, body, bytes + 1), TR_EINVAL);
	while (pair->server.park == 1)
		(void)uv_run(&pair->loop, UV_RUN_ONCE);
	conn_resume(pair->server.conn);
	run_until(pair, &pair->client.drained, 1);
	run_until(pair, &pair->server.frames, sent);
	assert_int_equal(pair->client.drained, 1);
	free(body);
}

static void finish_writes_all(void **state)
{
	struct pair *pair = *state;
	size_t bytes = TR_FRAME_CONTROL_MAX;
	uint8_t *body = calloc(1, bytes);
	assert_non_null(body);
	pair_dial(pair); /* not even connected */
	for (int i = 0; i < 5; i++)
		assert_int_equal(conn_send_copy(pair->client.conn, FRAME_PEER, body, bytes), TR_OK);
	conn_finish(pair->client.conn, "said all");
	run_until(pair, &pair->server.frames, 5);
	run_until(pair, &pair->client.closed, 1);
	assert_string_equal(pair->client.reason, "said all");
	free(body);
}

static void nobody_listens(void **state)
{
	struct pair *pair = *state;
	char address[TR_ADDRESS_MAX];
	(void)snprintf(address, sizeof(address), "%s", listener_address(pair->listener));
	listener_stop(pair->listener);
	pair->listener = NULL;
	assert_int_equal(conn_dial(&pair->loop, address, &callbacks, &pair->client,
	                     &pair->client.conn, NULL),
	    TR_OK);
	run_until(pair, &pair->client.closed, 1);
	assert_non_null(strstr(pair->client.reason, "cannot reach 127.0.0.1:"));
	assert_non_null(strstr(pair->client.reason, "refused"));
	assert_int_equal(pair->client.connected, 0);
}

static void bad_addresses(void **state)
{
	struct pair *pair = *state;
	static const char *const bad[] = { "", "localhost", "127.0.0.1:", "127.0.0.1:x",
		"127.0.0.1:70000", "::1:80", "[::1:80", ":80", "unix:" };
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct tr_error error = { 0 };
		struct conn *conn = NULL;
		assert_int_equal(conn_dial(&pair->loop, bad[i], &callbacks, &pair->client, &conn,
		                     &error),
		    TR_EINVAL);
		assert_null(conn);
		assert_non_null(strstr(error.text, "write HOST:PORT"));
	}
	assert_int_equal(conn_dial(&pair->loop, "no-such-host.invalid:80", &callbacks,
	                     &pair->client, &pair->client.conn, NULL),
	    TR_OK);
	run_until(pair, &pair->client.closed, 1);
	assert_non_null(strstr(pair->client.reason, "cannot resolve"));
}

/* The cable is cut and nobody says so: what arrives is thrown away, as if it did not. */
static void a_cut_way_is_noticed(void **state)
{
	struct pair *pair = *state;
	struct sock_filter nothing[] = { BPF_STMT(BPF_RET | BPF_K, 0) };
	struct sock_fprog program = { .len = 1, .filter = nothing };
	pair_connect(pair);
	assert_int_equal(setsockopt(pair->accepted, SOL_SOCKET, SO_ATTACH_FILTER, &program,
	                     sizeof(program)),
	    0);
	assert_int_equal(conn_send_copy(pair->client.conn, FRAME_TO_MEMBER, "lost", 4), TR_OK);
	run_until(pair, &pair->client.closed, 1);
	assert_string_equal(pair->client.reason, "no answer for 10 s");
	assert_int_equal(pair->server.frames, 0);
}

int main(void)
{
#define WITH_PAIR(test) cmocka_unit_test_setup_teardown(test, pair_setup, pair_teardown)
	const struct CMUnitTest tests[] = {
		WITH_PAIR(frames_go_both_ways),
		cmocka_unit_test(frames_go_both_ways_by_ipv6),
		cmocka_unit_test_setup_teardown(frames_go_both_ways, pair_setup_unix, pair_teardown),
		WITH_PAIR(options_are_set),
		WITH_PAIR(bytes_come_one_by_one),
		WITH_PAIR(four_gib_are_refused),
		WITH_PAIR(garbage_is_refused),
		WITH_PAIR(half_a_frame_then_close),
		WITH_PAIR(reset_is_named),
		WITH_PAIR(refused_frame_closes),
		WITH_PAIR(parked_frame_is_offered_again),
		WITH_PAIR(parked_frames_outlive_the_peer),
		WITH_PAIR(borrowed_frames_arrive),
		WITH_PAIR(drop_borrowed_in_mid_frame),
		WITH_PAIR(close_releases_and_tells_once),
		WITH_PAIR(queue_is_limited),
		WITH_PAIR(finish_writes_all),
		WITH_PAIR(nobody_listens),
		WITH_PAIR(bad_addresses),
		WITH_PAIR(a_cut_way_is_noticed),
	};
	return cmocka_run_group_tests_name("conn", tests, NULL, NULL);
}
