/* Framed connections over loopback: what a peer's bytes, or their absence, can do. */
#include "tests/unit/conn_fixture.h"

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
	assert_non_null(strstr(pair->client.reason, "no answer for 1")); /* 10 s and a bit */
	assert_int_equal(pair->server.frames, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		WITH_PAIR(bytes_come_one_by_one),
		WITH_PAIR(four_gib_are_refused),
		WITH_PAIR(garbage_is_refused),
		WITH_PAIR(half_a_frame_then_close),
		WITH_PAIR(reset_is_named),
		WITH_PAIR(a_cut_way_is_noticed),
	};
	return cmocka_run_group_tests_name("conn hostile", tests, NULL, NULL);
}
