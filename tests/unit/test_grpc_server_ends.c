/* The server's side of gRPC without sockets: calls that end otherwise than by their answer, and what they leave to others. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "common/limits.h"
#include "daemon/api/grpc_server_session.h"
#include "tests/unit/http2_peer.h"

#define START_MS      1000000
#define MESSAGE_BYTES (1u << 20)

struct test {
	struct peer *peer;
	struct grpc_call *call; /* the newest */
	unsigned requests, cancels;
	bool pours; /* a message of MESSAGE_BYTES is the answer's first part */
};

static void on_cancelled(void *arg)
{
	((struct test *)arg)->cancels++;
}

static void on_request(void *arg, struct grpc_call *call, const uint8_t *request, size_t bytes)
{
	static const uint8_t message[MESSAGE_BYTES];
	struct test *test = arg;
	(void)request;
	(void)bytes;
	test->requests++;
	test->call = call;
	grpc_call_on_cancel(call, on_cancelled, test);
	if (test->pours)
		(void)grpc_call_send(call, message, sizeof(message));
}

/* The peer opens no window again. */
static int set_up(void **state)
{
	struct test *test = calloc(1, sizeof(*test));
	assert_non_null(test);
	test->peer = peer_create(false, false);
	test->peer->now_ms = START_MS;
	test->peer->other = grpc_server_session_create(on_request, test, START_MS);
	assert_non_null(test->peer->other);
	*state = test;
	return 0;
}

static int tear_down(void **state)
{
	struct test *test = *state;
	peer_destroy(test->peer);
	free(test);
	return 0;
}

/* A call with an empty message; the server has heard of it. */
static int32_t open_call(struct test *test)
{
	const nghttp2_nv headers[] = { PEER_HEADER(":method", "POST"),
		PEER_HEADER(":scheme", "http"), PEER_HEADER(":path", "/t.T/M"),
		PEER_HEADER(":authority", "test"), PEER_HEADER("te", "trailers"),
		PEER_HEADER("content-type", "application/grpc") };
	nghttp2_data_provider body = peer_body();
	int32_t id = (int32_t)nghttp2_session_get_next_stream_id(test->peer->http2);
	struct peer_stream *stream = peer_stream(test->peer, id);
	stream->prefix_length = stream->left = 5;
	(void)nghttp2_submit_request(test->peer->http2, NULL, headers,
	    sizeof(headers) / sizeof(headers[0]), &body, NULL);
	peer_pump(test->peer);
	return id;
}

/* A server that closes ends the call, and before its handler hears of that it ends it too: the handler has let go of it, and
 * must not hear of it any more. */
static void ended_by_both(void **state)
{
	struct test *test = *state;
	int32_t id = open_call(test);
	assert_int_equal(test->requests, 1);
	grpc_server_session_close(test->peer->other);
	assert_int_equal(grpc_call_send(test->call, "yes", 3), TR_ECANCELLED);
	grpc_call_end(test->call, GRPC_OK, NULL);
	peer_pump(test->peer);
	assert_int_equal(test->cancels, 0);
	assert_string_equal(peer_stream(test->peer, id)->grpc_status, "14");
	assert_true(peer_stream(test->peer, id)->closed);
	assert_int_equal(test->peer->other->stream_count, 0);
}

/* (nghttp2 still asked the calls for what they had to send, which were freed.) */
static void a_lost_session_sends_nothing(void **state)
{
	uint8_t buffer[1u << 16];
	struct test *test = *state;
	(void)open_call(test);
	assert_int_equal(grpc_call_send(test->call, "yes", 3), TR_OK);
	grpc_session_lose(test->peer->other, "no answer to a ping");
	assert_int_equal(test->cancels, 1);
	assert_int_equal(grpc_session_send(test->peer->other, START_MS, buffer, sizeof(buffer)), -1);
}

/* A call waits while others have too much unsent. When those go away with it, nothing is sent that would tell. */
static void a_call_that_waits_for_those_that_are_reset(void **state)
{
	enum { CALLS = TR_GRPC_UNSENT_BYTES_MAX / MESSAGE_BYTES + 1 };
	struct test *test = *state;
	int32_t ids[CALLS];
	test->pours = true;
	for (unsigned i = 0; i < CALLS; i++)
		ids[i] = open_call(test);
	assert_int_equal(test->requests, CALLS);
	test->pours = false;
	(void)open_call(test);
	assert_int_equal(test->requests, CALLS);
	for (unsigned i = 0; i < CALLS; i++)
		(void)nghttp2_submit_rst_stream(test->peer->http2, 0, ids[i], NGHTTP2_CANCEL);
	peer_pump(test->peer);
	assert_int_equal(test->cancels, CALLS);
	assert_int_equal(test->requests, CALLS + 1);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(ended_by_both),
		TEST(a_lost_session_sends_nothing),
		TEST(a_call_that_waits_for_those_that_are_reset),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
