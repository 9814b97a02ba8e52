/* Framed connections over loopback: frames both ways, parking, borrowed memory, limits, ends. */
#include "collectives/transport/conn_internal.h"
#include "tests/unit/conn_fixture.h"
#include "tests/unit/tls_files.h"

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
	assert_false(pair->client.found_nobody);
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

static void on_released(void *arg, bool sent)
{
	(void)sent;
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

static bool takes_a_byte(int fd)
{
	return send(fd, "", 1, MSG_NOSIGNAL | MSG_DONTWAIT) == 1;
}

/* All was taken, and there is no room for TLS's last word: it waits for room, and the reason that was given stays. */
static void finish_waits_for_its_goodbye(void **state)
{
	struct pair *pair = *state;
	struct sock_filter nothing[] = { BPF_STMT(BPF_RET | BPF_K, 0) };
	struct sock_fprog program = { .len = 1, .filter = nothing };
	int least = 1;
	pair_connect(pair);
	int client = conn_socket(pair->client.conn);
	assert_int_equal(setsockopt(pair->accepted, SOL_SOCKET, SO_ATTACH_FILTER, &program,
	                     sizeof(program)),
	    0);
	uint8_t body[32 << 10] = { 0 };
	assert_int_equal(conn_send_copy(pair->client.conn, FRAME_PEER, body, sizeof(body)), TR_OK);
	while (conn_unsent(pair->client.conn) > 0)
		(void)uv_run(&pair->loop, UV_RUN_ONCE);
	assert_int_equal(setsockopt(client, SOL_SOCKET, SO_SNDBUF, &least, sizeof(least)), 0);
	assert_false(takes_a_byte(client));
	conn_finish(pair->client.conn, "said all");
	for (int i = 0; i < 3; i++)
		(void)uv_run(&pair->loop, UV_RUN_NOWAIT);
	assert_int_equal(setsockopt(pair->accepted, SOL_SOCKET, SO_DETACH_FILTER, &least,
	                     sizeof(least)),
	    0);
	run_until(pair, &pair->client.closed, 1);
	run_until(pair, &pair->server.closed, 1);
	assert_string_equal(pair->client.reason, "said all");
	assert_int_equal(pair->server.frames, 1);
	assert_string_equal(pair->server.reason, "closed by peer");
}

/* The other end is gone before it has all: the reason that was given stays as well. */
static void finish_keeps_its_reason(void **state)
{
	struct pair *pair = *state;
	const struct linger at_once = { 1, 0 };
	size_t bytes = TR_FRAME_CONTROL_MAX;
	uint8_t *body = calloc(1, bytes);
	assert_non_null(body);
	pair_connect(pair);
	pair->server.park = UINT32_MAX;
	while (conn_send_copy(pair->client.conn, FRAME_PEER, body, bytes) == TR_OK)
		continue;
	assert_int_equal(setsockopt(pair->accepted, SOL_SOCKET, SO_LINGER, &at_once,
	                     sizeof(at_once)),
	    0);
	conn_close(pair->server.conn, "killed");
	conn_finish(pair->client.conn, "said all");
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
	assert_int_equal(conn_dial(&pair->loop, address, NULL, &callbacks, &pair->client,
	                     &pair->client.conn, NULL),
	    TR_OK);
	run_until(pair, &pair->client.closed, 1);
	assert_non_null(strstr(pair->client.reason, "cannot reach 127.0.0.1:"));
	assert_non_null(strstr(pair->client.reason, "refused"));
	assert_true(pair->client.found_nobody);
	assert_int_equal(pair->client.connected, 0);
}

/* The loop that dials stood still past its patience: what the kernel has meanwhile counts. */
static void an_answer_that_came_in_time_is_seen_late(void **state)
{
	struct pair *pair = *state;
	pair_dial(pair);
	conn_set_patience(pair->client.conn, 20);
	while (conn_socket(pair->client.conn) < 0)
		(void)uv_run(&pair->loop, UV_RUN_ONCE); /* to the connect */
	(void)usleep(40000);
	while (pair->client.connected + pair->client.closed == 0)
		(void)uv_run(&pair->loop, UV_RUN_ONCE);
	assert_string_equal(pair->client.reason, "");
	assert_int_equal(pair->client.connected, 1);
}

/* Nor does a timeout wait for an answer that does not come: the listener's queue is full. */
static void no_answer_ends_a_dial(void **state)
{
	struct pair *pair = *state;
	struct sockaddr_in sa = { .sin_family = AF_INET,
		.sin_addr = { .s_addr = htonl(INADDR_LOOPBACK) } };
	socklen_t bytes = sizeof(sa);
	char address[TR_ADDRESS_MAX];
	int port = socket(AF_INET, SOCK_STREAM, 0), fillers[2];
	assert_int_equal(bind(port, (struct sockaddr *)&sa, sizeof(sa)), 0);
	assert_int_equal(listen(port, 0), 0);
	assert_int_equal(getsockname(port, (struct sockaddr *)&sa, &bytes), 0);
	for (unsigned i = 0; i < 2; i++) {
		fillers[i] = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
		(void)connect(fillers[i], (struct sockaddr *)&sa, sizeof(sa));
	}
	(void)snprintf(address, sizeof(address), "127.0.0.1:%d", (int)ntohs(sa.sin_port));
	assert_int_equal(conn_dial(&pair->loop, address, NULL, &callbacks, &pair->client,
	                     &pair->client.conn, NULL),
	    TR_OK);
	conn_set_patience(pair->client.conn, 20);
	run_until(pair, &pair->client.closed, 1);
	assert_non_null(strstr(pair->client.reason, "no answer"));
	assert_true(pair->client.found_nobody);
	for (unsigned i = 0; i < 2; i++)
		(void)close(fillers[i]);
	(void)close(port);
}

/* Who says at every interval how patient it is says nothing new: the look whether there are answers comes when it was to come. */
static void the_same_patience_puts_off_no_look(void **state)
{
	struct pair *pair = *state;
	pair_connect(pair);
	const uv_timer_t *look = &pair->client.conn->timer;
	conn_set_patience(pair->client.conn, 500000);
	uint64_t due_ms = uv_now(&pair->loop) + uv_timer_get_due_in(look);
	for (uint64_t began_ms = uv_now(&pair->loop); uv_now(&pair->loop) == began_ms;)
		uv_update_time(&pair->loop);
	conn_set_patience(pair->client.conn, 500000);
	assert_int_equal(uv_now(&pair->loop) + uv_timer_get_due_in(look), due_ms);
	conn_set_patience(pair->client.conn, 1000000);
	assert_true(uv_now(&pair->loop) + uv_timer_get_due_in(look) > due_ms);
}

static void bad_addresses(void **state)
{
	struct pair *pair = *state;
	static const char *const bad[] = { "", "localhost", "127.0.0.1:", "127.0.0.1:x",
		"127.0.0.1:70000", "::1:80", "[::1:80", ":80", "unix:" };
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct tr_error error = { 0 };
		struct conn *conn = NULL;
		assert_int_equal(conn_dial(&pair->loop, bad[i], NULL, &callbacks, &pair->client,
		                     &conn, &error),
		    TR_EINVAL);
		assert_null(conn);
		assert_non_null(strstr(error.text, "write HOST:PORT"));
	}
	assert_int_equal(conn_dial(&pair->loop, "no-such-host.invalid:80", NULL, &callbacks,
	                     &pair->client, &pair->client.conn, NULL),
	    TR_OK);
	run_until(pair, &pair->client.closed, 1);
	assert_non_null(strstr(pair->client.reason, "cannot resolve"));
}

/* The same connections with TLS on both ends. */
static struct tls_files files;

static int speak_tls(void **state)
{
	(void)state;
	tls_files_make(&files);
	pair_tls[PAIR_SERVER] = tls_files_node(&files, "server");
	pair_tls[PAIR_CLIENT] = tls_files_node(&files, "client");
	return 0;
}

static int speak_plainly(void **state)
{
	(void)state;
	for (int i = 0; i < 2; i++) {
		tls_context_release(pair_tls[i]);
		pair_tls[i] = NULL;
	}
	tls_files_end(&files);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		WITH_PAIR(frames_go_both_ways),
		cmocka_unit_test(frames_go_both_ways_by_ipv6),
		cmocka_unit_test_setup_teardown(frames_go_both_ways, pair_setup_unix, pair_teardown),
		WITH_PAIR(options_are_set),
		WITH_PAIR(refused_frame_closes),
		WITH_PAIR(parked_frame_is_offered_again),
		WITH_PAIR(parked_frames_outlive_the_peer),
		WITH_PAIR(borrowed_frames_arrive),
		WITH_PAIR(drop_borrowed_in_mid_frame),
		WITH_PAIR(close_releases_and_tells_once),
		WITH_PAIR(queue_is_limited),
		WITH_PAIR(finish_writes_all),
		WITH_PAIR(finish_waits_for_its_goodbye),
		WITH_PAIR(finish_keeps_its_reason),
		WITH_PAIR(nobody_listens),
		WITH_PAIR(an_answer_that_came_in_time_is_seen_late),
		WITH_PAIR(no_answer_ends_a_dial),
		WITH_PAIR(the_same_patience_puts_off_no_look),
		WITH_PAIR(bad_addresses),
	};
	const struct CMUnitTest with_tls[] = {
		WITH_PAIR(frames_go_both_ways),
		cmocka_unit_test(frames_go_both_ways_by_ipv6),
		WITH_PAIR(refused_frame_closes),
		WITH_PAIR(parked_frame_is_offered_again),
		WITH_PAIR(parked_frames_outlive_the_peer),
		WITH_PAIR(borrowed_frames_arrive),
		WITH_PAIR(drop_borrowed_in_mid_frame),
		WITH_PAIR(close_releases_and_tells_once),
		WITH_PAIR(queue_is_limited),
		WITH_PAIR(finish_writes_all),
		WITH_PAIR(finish_waits_for_its_goodbye),
		WITH_PAIR(finish_keeps_its_reason),
		WITH_PAIR(nobody_listens),
	};
	return cmocka_run_group_tests_name("conn", tests, NULL, NULL) +
	    cmocka_run_group_tests_name("conn with TLS", with_tls, speak_tls, speak_plainly);
}
