/* The client's side of gRPC without sockets, against a server that may do anything. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "common/limits.h"
#include "daemon/api/grpc_client_session.h"
#include "daemon/api/grpc_frame.h"
#include "tests/unit/http2_peer.h"

#define START_MS 1000000

struct test {
	struct peer *peer;
	unsigned messages, over, settings;
	size_t bytes;
	enum grpc_status status;
	char text[TR_GRPC_STATUS_TEXT_MAX];
	bool lost, cancel_in_message;
	struct grpc_client_call *call;
};

static void on_message(void *arg, const uint8_t *message, size_t bytes)
{
	struct test *test = arg;
	test->messages++;
	test->bytes += bytes;
	if (test->cancel_in_message)
		grpc_client_session_end(test->call, GRPC_CANCELLED, "enough");
	for (size_t i = 0; i < bytes; i++)
		assert_int_equal(message[i], 'x'); /* borrowed until we return */
}

static void on_over(void *arg, struct grpc_client_call *call)
{
	struct test *test = arg;
	test->over++;
	test->status = call->status;
	test->lost = call->lost;
	(void)snprintf(test->text, sizeof(test->text), "%s", call->text);
	if (test->call == call)
		test->call = NULL;
	grpc_outbox_finish(&call->request);
	free(call);
}

static void on_settings(void *arg)
{
	((struct test *)arg)->settings++;
}

static int set_up(void **state)
{
	static const struct grpc_client_session_callbacks callbacks = { on_over, on_settings };
	struct test *test = calloc(1, sizeof(*test));
	test->peer = peer_create(true, true);
	test->peer->now_ms = START_MS;
	test->peer->other = grpc_client_session_create("test:1", &callbacks, test, START_MS);
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

/* Starts a call; the peer has not heard of it. */
static int32_t begin(struct test *test)
{
	static char path[] = "/t.T/M";
	struct grpc_client_call *call = calloc(1, sizeof(*call));
	call->path = path;
	call->callbacks.message = on_message;
	call->arg = test;
	call->deadline_ms = START_MS + 5000;
	assert_int_equal(grpc_outbox_add(&call->request, "hello", 5), TR_OK);
	assert_int_equal(grpc_client_session_start(test->peer->other, call), TR_OK);
	test->call = call;
	return call->stream.id;
}

/* Starts a call; the peer has heard the request. */
static int32_t start(struct test *test)
{
	int32_t id = begin(test);
	peer_pump(test->peer);
	assert_int_equal(peer_stream(test->peer, id)->bytes, 10);
	return id;
}

/* Response headers, then `bytes` of body of which the prefix says `says`, then the end or nothing. */
static void answer(struct test *test, int32_t id, const char *http_status, const char *grpc_status,
    const char *prefix, size_t bytes, bool keep_open)
{
	nghttp2_nv headers[3] = { PEER_HEADER(":status", http_status),
		PEER_HEADER("content-type", "application/grpc") };
	size_t count = 2;
	if (grpc_status != NULL)
		headers[count++] = PEER_HEADER("grpc-status", grpc_status);
	struct peer_stream *stream = peer_stream(test->peer, id);
	nghttp2_data_provider body = peer_body();
	stream->prefix_length = prefix == NULL ? 0 : GRPC_FRAME_PREFIX_BYTES;
	if (prefix != NULL)
		memcpy(stream->prefix, prefix, GRPC_FRAME_PREFIX_BYTES);
	stream->left = bytes;
	stream->keep_open = keep_open;
	(void)nghttp2_submit_response(test->peer->http2, id, headers, count,
	    bytes > 0 || keep_open ? &body : NULL);
	peer_pump(test->peer);
}

static void expect_over(struct test *test, enum grpc_status status)
{
	assert_int_equal(test->over, 1);
	assert_int_equal(test->status, status);
	assert_int_equal(test->peer->other->stream_count, 0);
	assert_int_equal(test->peer->status, TR_OK);
	test->over = 0;
}

static void answers(void **state)
{
	static const struct {
		const char *http_status, *grpc_status, *prefix;
		size_t bytes;
		enum grpc_status status;
		unsigned messages;
	} cases[] = {
		{ "200", "0", NULL, 0, GRPC_OK, 0 },
		{ "200", "5", NULL, 0, GRPC_NOT_FOUND, 0 },
		{ "200", "0", "\0\0\0\0\3", 8, GRPC_OK, 1 },
		{ "200", "0", "\0\0\0\0\3", 7, GRPC_INTERNAL, 0 },             /* cut */
		{ "200", NULL, "\0\0\0\0\3", 8, GRPC_INTERNAL, 1 },            /* no status */
		{ "200", "0", "\1\0\0\0\3", 8, GRPC_INTERNAL, 0 },             /* compressed */
		{ "200", "0", "\7\0\0\0\3", 8, GRPC_INTERNAL, 0 },             /* malformed */
		{ "200", "0", "\0\xff\0\0\0", 8, GRPC_RESOURCE_EXHAUSTED, 0 }, /* 4 GiB */
		{ "503", NULL, NULL, 0, GRPC_UNAVAILABLE, 0 },
		{ "404", NULL, NULL, 0, GRPC_UNIMPLEMENTED, 0 },
	};
	struct test *test = *state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		test->messages = 0;
		int32_t id = start(test);
		answer(test, id, cases[i].http_status, cases[i].grpc_status, cases[i].prefix,
		    cases[i].bytes, false);
		expect_over(test, cases[i].status);
		assert_int_equal(test->messages, cases[i].messages);
	}
}

static void resets(void **state)
{
	static const struct {
		uint32_t code;
		enum grpc_status status;
	} cases[] = {
		{ NGHTTP2_REFUSED_STREAM, GRPC_UNAVAILABLE },
		{ NGHTTP2_CANCEL, GRPC_CANCELLED },
		{ NGHTTP2_ENHANCE_YOUR_CALM, GRPC_RESOURCE_EXHAUSTED },
		{ NGHTTP2_INTERNAL_ERROR, GRPC_INTERNAL },
		{ 4711, GRPC_INTERNAL },
	};
	struct test *test = *state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		int32_t id = start(test);
		(void)nghttp2_submit_rst_stream(test->peer->http2, 0, id, cases[i].code);
		peer_pump(test->peer);
		expect_over(test, cases[i].status);
	}
}

static void cancelled(void **state)
{
	struct test *test = *state;
	int32_t id = start(test);
	grpc_client_session_end(test->call, GRPC_CANCELLED, "enough");
	grpc_client_session_end(test->call, GRPC_INTERNAL, "too late");
	assert_int_equal(test->over, 0);
	peer_pump(test->peer);
	expect_over(test, GRPC_CANCELLED);
	assert_string_equal(test->text, "enough");
	assert_int_equal(peer_stream(test->peer, id)->code, NGHTTP2_CANCEL);
}

static void cancelled_within_a_message(void **state)
{
	struct test *test = *state;
	test->cancel_in_message = true;
	int32_t id = start(test);
	answer(test, id, "200", NULL, "\0\0\0\0\3", 8, true);
	expect_over(test, GRPC_CANCELLED);
	assert_int_equal(test->messages, 1);
}

/* A pause holds messages back, and the server after a window. */
static void paused(void **state)
{
	struct test *test = *state;
	int32_t id = start(test);
	test->call->paused = true;
	answer(test, id, "200", "0", "\0\0\3\0\0", 5 + 0x30000, false); /* 192 KiB */
	assert_int_equal(test->messages, 0);
	assert_int_equal(test->over, 0);
	assert_int_equal(peer_stream(test->peer, id)->sent, TR_GRPC_WINDOW_BYTES);
	test->call->paused = false;
	grpc_session_touch(&test->call->stream);
	peer_pump(test->peer);
	expect_over(test, GRPC_OK);
	assert_int_equal(test->bytes, 0x30000);
}

/* A server allows one call, and later another: who waits for that is told. */
static void a_server_that_allows_more(void **state)
{
	struct test *test = *state;
	nghttp2_settings_entry most = { NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, 1 };
	(void)start(test);
	(void)nghttp2_submit_settings(test->peer->http2, 0, &most, 1);
	peer_pump(test->peer);
	assert_false(grpc_client_session_has_room(test->peer->other));
	unsigned before = test->settings;
	most.value = 2;
	(void)nghttp2_submit_settings(test->peer->http2, 0, &most, 1);
	peer_pump(test->peer);
	assert_true(test->settings > before);
	assert_true(grpc_client_session_has_room(test->peer->other));
}

/* The server takes no more: what it has not begun can be tried again, what it has goes on. */
static void goaway(void **state)
{
	struct test *test = *state;
	int32_t first = start(test);
	struct grpc_client_call *kept = test->call;
	(void)start(test);
	assert_true(grpc_client_session_has_room(test->peer->other));
	(void)nghttp2_submit_goaway(test->peer->http2, 0, first, NGHTTP2_NO_ERROR, NULL, 0);
	peer_pump(test->peer);
	assert_false(grpc_client_session_has_room(test->peer->other));
	assert_int_equal(test->over, 1);
	assert_int_equal(test->status, GRPC_UNAVAILABLE);
	test->over = 0;
	test->call = kept;
	answer(test, first, "200", "0", NULL, 0, false);
	expect_over(test, GRPC_OK);
	assert_true(grpc_session_finished(test->peer->other));
}

static void connection_lost(void **state)
{
	struct test *test = *state;
	(void)start(test);
	(void)start(test);
	grpc_session_lose(test->peer->other, "reset by peer");
	assert_int_equal(test->over, 2);
	assert_int_equal(test->status, GRPC_UNAVAILABLE);
	assert_true(test->lost);
	assert_non_null(strstr(test->text, "test:1"));
	assert_non_null(strstr(test->text, "reset by peer"));
}

/* (nghttp2 still asked the calls for what they had to send, which were freed.) */
static void a_lost_session_sends_nothing(void **state)
{
	uint8_t buffer[1u << 16];
	struct test *test = *state;
	peer_pump(test->peer);
	(void)begin(test);
	grpc_session_lose(test->peer->other, "no answer to a ping");
	assert_int_equal(test->over, 1);
	assert_int_equal(grpc_session_send(test->peer->other, START_MS, buffer, sizeof(buffer)), -1);
}

static void pushed_streams_are_refused(void **state)
{
	struct test *test = *state;
	int32_t id = start(test);
	const nghttp2_nv headers[] = { PEER_HEADER(":method", "GET"), PEER_HEADER(":path", "/x"),
		PEER_HEADER(":scheme", "http"), PEER_HEADER(":authority", "test") };
	(void)nghttp2_submit_push_promise(test->peer->http2, 0, id, headers, 4, NULL);
	answer(test, id, "200", "0", NULL, 0, false);
	assert_int_equal(test->messages, 0);
	grpc_session_lose(test->peer->other, "over");
	assert_int_equal(test->over, 1);
}

static void keepalive(void **state)
{
	struct test *test = *state;
	(void)start(test);
	test->peer->mute = true;
	assert_int_equal(grpc_session_deadline_ms(test->peer->other),
	    START_MS + TR_GRPC_KEEPALIVE_MS);
	grpc_session_tick(test->peer->other, START_MS + TR_GRPC_KEEPALIVE_MS);
	peer_pump(test->peer);
	assert_int_equal(test->peer->pings, 1);
	grpc_session_tick(test->peer->other,
	    START_MS + TR_GRPC_KEEPALIVE_MS + TR_GRPC_KEEPALIVE_GRACE_MS);
	assert_int_equal(test->over, 1);
	assert_true(test->lost);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(answers),
		TEST(resets),
		TEST(cancelled),
		TEST(cancelled_within_a_message),
		TEST(paused),
		TEST(a_server_that_allows_more),
		TEST(goaway),
		TEST(connection_lost),
		TEST(a_lost_session_sends_nothing),
		TEST(pushed_streams_are_refused),
		TEST(keepalive),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
