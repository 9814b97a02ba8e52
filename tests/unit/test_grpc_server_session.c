/* The server's side of gRPC without sockets, in virtual time: heads, endings, deadlines, windows, floods, keepalive. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "common/limits.h"
#include "daemon/api/grpc_frame.h"
#include "daemon/api/grpc_server_session.h"
#include "tests/unit/http2_peer.h"

#define START_MS 1000000

struct test {
	struct peer *peer;
	struct grpc_call *call; /* the newest; NULL when cancelled */
	unsigned requests, cancels;
	size_t last_bytes;
	bool hold; /* else answered with OK at once */
};

static void on_cancelled(void *arg)
{
	struct test *test = arg;
	test->cancels++;
	test->call = NULL;
}

static void on_request(void *arg, struct grpc_call *call, const uint8_t *request, size_t bytes)
{
	struct test *test = arg;
	(void)request;
	test->requests++;
	test->last_bytes = bytes;
	test->call = call;
	grpc_call_on_cancel(call, on_cancelled, test);
	if (test->hold)
		return;
	(void)grpc_call_send(call, "yes", 3);
	grpc_call_end(call, GRPC_OK, NULL);
}

static struct test *set_up_peer(bool reads)
{
	struct test *test = calloc(1, sizeof(*test));
	test->peer = peer_create(false, reads);
	test->peer->now_ms = START_MS;
	test->peer->other = grpc_server_session_create(on_request, test, START_MS);
	assert_non_null(test->peer->other);
	return test;
}

static int set_up(void **state)
{
	*state = set_up_peer(true);
	return 0;
}

static int set_up_deaf(void **state)
{
	*state = set_up_peer(false);
	return 0;
}

static int tear_down(void **state)
{
	struct test *test = *state;
	peer_destroy(test->peer);
	free(test);
	return 0;
}

/* Opens a stream: good headers, with one of them replaced or added, or (value NULL) left out. */
static int32_t open_with(struct test *test, const char *name, const char *value,
    const uint8_t *prefix, size_t bytes, bool keep_open)
{
	static const char *const good[][2] = {
		{ ":method", "POST" },
		{ ":scheme", "http" },
		{ ":path", "/t.T/M" },
		{ ":authority", "test" },
		{ "te", "trailers" },
		{ "content-type", "application/grpc" },
	};
	nghttp2_nv headers[8];
	size_t count = 0;
	bool replaced = name == NULL;
	for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
		bool same = name != NULL && strcmp(good[i][0], name) == 0;
		replaced = replaced || same;
		if (!same || value != NULL)
			headers[count++] = PEER_HEADER(good[i][0], same ? value : good[i][1]);
	}
	if (!replaced)
		headers[count++] = PEER_HEADER(name, value);
	nghttp2_data_provider body = peer_body();
	struct peer_stream *stream = peer_stream(test->peer,
	    (int32_t)nghttp2_session_get_next_stream_id(test->peer->http2));
	memset(stream, 0, sizeof(*stream));
	stream->prefix_length = prefix == NULL ? 0 : GRPC_FRAME_PREFIX_BYTES;
	if (prefix != NULL)
		memcpy(stream->prefix, prefix, GRPC_FRAME_PREFIX_BYTES);
	stream->left = bytes;
	stream->keep_open = keep_open;
	return nghttp2_submit_request(test->peer->http2, NULL, headers, count, &body, NULL);
}

/* A call with a message of so many bytes. */
static int32_t open_call(struct test *test, const char *name, const char *value, uint32_t bytes)
{
	uint8_t prefix[GRPC_FRAME_PREFIX_BYTES];
	grpc_frame_put_prefix(prefix, bytes);
	return open_with(test, name, value, prefix, GRPC_FRAME_PREFIX_BYTES + bytes, false);
}

static struct peer_stream *call_once(struct test *test, const char *name, const char *value)
{
	int32_t id = open_call(test, name, value, 4);
	peer_pump(test->peer);
	return peer_stream(test->peer, id);
}

/* ---- how calls begin and end on the wire */

static void answer(void **state)
{
	struct test *test = *state;
	const struct peer_stream *stream = call_once(test, NULL, NULL);
	assert_int_equal(test->requests, 1);
	assert_int_equal(test->last_bytes, 4);
	assert_string_equal(stream->http_status, "200");
	assert_string_equal(stream->grpc_status, "0");
	assert_string_equal(stream->accept_encoding, "identity");
	assert_int_equal(stream->bytes, 8);
	assert_int_equal(stream->header_frames, 2);
	assert_true(stream->closed);
	assert_int_equal(stream->code, NGHTTP2_NO_ERROR);
	assert_int_equal(test->peer->other->stream_count, 0);
}

static void byte_by_byte(void **state)
{
	struct test *test = *state;
	test->peer->step = 1;
	answer(state);
}

static void refusals(void **state)
{
	static const struct {
		const char *name, *value, *http_status, *grpc_status;
	} cases[] = {
		{ ":method", "GET", "405", "2" },
		{ "content-type", "text/plain", "415", "2" },
		{ "content-type", NULL, "415", "2" },
		{ "content-type", "application/grpc+json", "200", "12" },
		{ "te", NULL, "200", "13" },
		{ "grpc-encoding", "gzip", "200", "12" },
		{ "grpc-timeout", "1year", "200", "13" },
		{ "grpc-timeout", "0n", "200", "4" },
	};
	struct test *test = *state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		const struct peer_stream *stream = call_once(test, cases[i].name, cases[i].value);
		assert_string_equal(stream->http_status, cases[i].http_status);
		assert_string_equal(stream->grpc_status, cases[i].grpc_status);
		assert_true(strlen(stream->message) > 10);
		assert_string_equal(stream->accept_encoding, "identity");
		assert_int_equal(stream->header_frames, 1); /* trailers only */
		assert_true(stream->closed);
	}
	assert_int_equal(test->requests, 0);
}

/* The answer comes before the request is whole: the client is told to stop, without an error. */
static void refused_early(void **state)
{
	struct test *test = *state;
	int32_t id = open_with(test, "te", NULL, NULL, 1000, true);
	peer_pump(test->peer);
	const struct peer_stream *stream = peer_stream(test->peer, id);
	assert_string_equal(stream->grpc_status, "13");
	assert_true(stream->closed);
	assert_int_equal(stream->code, NGHTTP2_NO_ERROR);
	assert_int_equal(test->peer->other->stream_count, 0);
}

static void headers_too_large(void **state)
{
	static char value[20001];
	struct test *test = *state;
	memset(value, 'v', sizeof(value) - 1);
	assert_string_equal(call_once(test, "x-large", value)->grpc_status, "8");
	assert_string_equal(call_once(test, NULL, NULL)->grpc_status, "0");
}

static const char *status_of_bytes(struct test *test, const char *prefix, size_t bytes)
{
	int32_t id = open_with(test, NULL, NULL, (const uint8_t *)prefix, bytes, false);
	peer_pump(test->peer);
	return peer_stream(test->peer, id)->grpc_status;
}

static void malformed_messages(void **state)
{
	struct test *test = *state;
	assert_string_equal(status_of_bytes(test, "\1\0\0\0\4", 9), "13"); /* compressed */
	assert_string_equal(status_of_bytes(test, "\2\0\0\0\4", 9), "13"); /* flag */
	assert_string_equal(status_of_bytes(test, "\0\0\0\0\5", 9), "13"); /* cut */
	assert_string_equal(status_of_bytes(test, "\0\0\0\0\3", 9), "12"); /* more than one */
	assert_string_equal(status_of_bytes(test, "\0\xff\xff\xff\xff", 9), "8"); /* 4 GiB */
	assert_string_equal(status_of_bytes(test, NULL, 0), "12");                /* none */
	assert_int_equal(test->requests, 0);
	assert_string_equal(status_of_bytes(test, "\0\0\0\0\4", 9), "0");
}

/* ---- deadlines and cancellation */

static void deadline(void **state)
{
	struct test *test = *state;
	struct peer *peer = test->peer;
	test->hold = true;
	int32_t id = open_call(test, "grpc-timeout", "100m", 4);
	peer_pump(peer);
	assert_int_equal(grpc_session_deadline_ms(peer->other), START_MS + 100);
	assert_int_equal(grpc_call_time_left_ms(test->call), 100);
	grpc_session_tick(peer->other, START_MS + 99);
	peer_pump(peer);
	assert_int_equal(test->cancels, 0);
	grpc_session_tick(peer->other, START_MS + 100);
	assert_int_equal(test->cancels, 1);
	peer_pump(peer);
	assert_string_equal(peer_stream(peer, id)->grpc_status, "4");
	assert_true(peer_stream(peer, id)->closed);
	assert_int_equal(grpc_session_deadline_ms(peer->other), GRPC_NO_DEADLINE);
}

/* Not even trailers could leave: the stream is reset, and nothing of it stays. */
static void deadline_behind_a_shut_window(void **state)
{
	static uint8_t message[200000];
	struct test *test = *state;
	struct peer *peer = test->peer;
	test->hold = true;
	int32_t id = open_call(test, "grpc-timeout", "100m", 4);
	peer_pump(peer);
	assert_int_equal(grpc_call_send(test->call, message, sizeof(message)), TR_OK);
	peer_pump(peer);
	assert_int_equal(peer_stream(peer, id)->bytes, 65535);
	grpc_session_tick(peer->other, START_MS + 100);
	peer_pump(peer);
	assert_int_equal(test->cancels, 1);
	assert_true(peer_stream(peer, id)->closed);
	assert_int_equal(peer_stream(peer, id)->code, NGHTTP2_CANCEL);
	assert_int_equal(peer->other->stream_count, 0);
	assert_int_equal(peer->other->unsent, 0);
}

static void reset_by_the_client(void **state)
{
	struct test *test = *state;
	test->hold = true;
	int32_t id = open_call(test, NULL, NULL, 4);
	peer_pump(test->peer);
	(void)nghttp2_submit_rst_stream(test->peer->http2, 0, id, NGHTTP2_CANCEL);
	peer_pump(test->peer);
	assert_int_equal(test->cancels, 1);
	assert_int_equal(test->peer->other->stream_count, 0);
}

static void connection_lost(void **state)
{
	struct test *test = *state;
	test->hold = true;
	for (int i = 0; i < 5; i++)
		(void)open_call(test, NULL, NULL, 4);
	peer_pump(test->peer);
	grpc_session_lose(test->peer->other, "reset by peer");
	grpc_session_lose(test->peer->other, "again");
	assert_int_equal(test->cancels, 5);
	assert_true(grpc_session_finished(test->peer->other));
}

static void closing(void **state)
{
	struct test *test = *state;
	struct peer *peer = test->peer;
	test->hold = true;
	int32_t id = open_call(test, NULL, NULL, 4);
	peer_pump(peer);
	grpc_server_session_close(peer->other);
	assert_false(grpc_session_finished(peer->other));
	peer_pump(peer);
	assert_string_equal(peer_stream(peer, id)->grpc_status, "14");
	assert_int_equal(test->cancels, 1);
	assert_int_equal(peer->goaways, 1);
	assert_int_equal(peer->goaway_code, NGHTTP2_NO_ERROR);
	assert_true(grpc_session_finished(peer->other));
}

/* ---- windows and memory */

static size_t memory_of(const struct grpc_session *session)
{
	size_t total = 0;
	for (const struct grpc_stream *s = session->streams; s != NULL; s = s->next)
		total += s->in.capacity + s->out.unsent;
	return total;
}

/* Twenty messages of 3 MiB at once: a few at a time get room, and all end. */
static void many_large_requests(void **state)
{
	struct test *test = *state;
	struct peer *peer = test->peer;
	int32_t ids[20];
	for (int i = 0; i < 20; i++)
		ids[i] = open_call(test, NULL, NULL, 3u << 20);
	size_t most = 0;
	while (peer_tell(peer) + peer_hear(peer) > 0)
		most = memory_of(peer->other) > most ? memory_of(peer->other) : most;
	assert_int_equal(test->requests, 20);
	for (int i = 0; i < 20; i++)
		assert_string_equal(peer_stream(peer, ids[i])->grpc_status, "0");
	assert_true(most < 2 * TR_GRPC_REQUESTS_BYTES_MAX);
}

/* 256 clients that say 4 MiB and send what they may: memory is what was set aside, and a window each. */
static void requests_that_never_end(void **state)
{
	struct test *test = *state;
	uint8_t prefix[GRPC_FRAME_PREFIX_BYTES];
	grpc_frame_put_prefix(prefix, TR_GRPC_MESSAGE_MAX);
	for (int i = 0; i < TR_GRPC_STREAMS_MAX; i++)
		(void)open_with(test, NULL, NULL, prefix, TR_GRPC_MESSAGE_MAX - 1, true);
	peer_pump(test->peer);
	assert_int_equal(test->peer->other->stream_count, TR_GRPC_STREAMS_MAX);
	size_t bound = TR_GRPC_REQUESTS_BYTES_MAX + TR_GRPC_STREAMS_MAX * TR_GRPC_WINDOW_BYTES;
	assert_true(memory_of(test->peer->other) < bound * 3 / 2);
	assert_int_equal(test->requests, 0);
}

/* Answers that nobody reads: new calls wait rather than pile up more of them. */
static void answers_that_are_not_read(void **state)
{
	static uint8_t message[1u << 20];
	struct test *test = *state;
	struct peer *peer = test->peer;
	test->hold = true;
	for (int i = 0; i < 200; i++) {
		unsigned before = test->requests;
		(void)open_call(test, NULL, NULL, 4);
		peer_pump(peer);
		if (test->requests > before)
			(void)grpc_call_send(test->call, message, sizeof(message));
	}
	assert_in_range(test->requests, 50, 70);
	assert_true(peer->other->unsent <= TR_GRPC_UNSENT_BYTES_MAX + sizeof(message) + 5);
}

static void slow_sender_is_told(void **state)
{
	static uint8_t message[400000];
	struct test *test = *state;
	test->hold = true;
	(void)open_call(test, NULL, NULL, 4);
	peer_pump(test->peer);
	assert_int_equal(grpc_call_send(test->call, message, sizeof(message)), TR_OK);
	assert_int_equal(grpc_call_send(test->call, message, sizeof(message)), TR_OK);
	assert_int_equal(grpc_call_send(test->call, message, sizeof(message)), TR_EAGAIN);
}

/* ---- floods */

static void flood_ends(struct test *test)
{
	assert_int_not_equal(test->peer->status, TR_OK);
	assert_non_null(strstr(test->peer->error.text, "flood"));
	(void)peer_hear(test->peer);
	assert_int_equal(test->peer->goaway_code, NGHTTP2_ENHANCE_YOUR_CALM);
}

static void ping_flood(void **state)
{
	struct test *test = *state;
	for (int i = 0; i < TR_GRPC_CONTROL_BURST + 10 && test->peer->status == TR_OK; i++) {
		(void)nghttp2_submit_ping(test->peer->http2, NGHTTP2_FLAG_NONE, NULL);
		(void)peer_tell(test->peer);
	}
	flood_ends(test);
}

/* A client that measures the way with a ping for each piece that it gets, on a fast one: thousands in no time. */
static void pings_for_what_was_sent(void **state)
{
	struct test *test = *state;
	test->hold = true;
	int32_t id = open_call(test, NULL, NULL, 4);
	peer_pump(test->peer);
	for (int i = 0; i < 5 * TR_GRPC_CONTROL_BURST && test->peer->status == TR_OK; i++) {
		assert_int_equal(grpc_call_send(test->call, "line", 4), TR_OK);
		peer_pump(test->peer);
		(void)nghttp2_submit_ping(test->peer->http2, NGHTTP2_FLAG_NONE, NULL);
		peer_pump(test->peer);
	}
	assert_int_equal(test->peer->status, TR_OK);
	assert_int_equal(peer_stream(test->peer, id)->bytes,
	    5 * TR_GRPC_CONTROL_BURST * (4 + GRPC_FRAME_PREFIX_BYTES));
	ping_flood(state); /* more than those are still one */
}

/* What was sent long ago allows a bounded number. */
static void pings_are_not_saved_up(void **state)
{
	struct test *test = *state;
	test->hold = true;
	(void)open_call(test, NULL, NULL, 4);
	peer_pump(test->peer);
	for (int i = 0; i < 2 * TR_GRPC_PINGS_DUE_MAX; i++) {
		assert_int_equal(grpc_call_send(test->call, "line", 4), TR_OK);
		peer_pump(test->peer);
	}
	int pings = 0;
	for (; pings < 4 * TR_GRPC_PINGS_DUE_MAX && test->peer->status == TR_OK; pings++) {
		(void)nghttp2_submit_ping(test->peer->http2, NGHTTP2_FLAG_NONE, NULL);
		(void)peer_tell(test->peer);
		(void)peer_hear(test->peer);
	}
	assert_in_range(pings, TR_GRPC_PINGS_DUE_MAX,
	    TR_GRPC_PINGS_DUE_MAX + TR_GRPC_CONTROL_BURST + 10);
	assert_non_null(strstr(test->peer->error.text, "flood"));
}

static void rapid_reset(void **state)
{
	struct test *test = *state;
	int resets = 0;
	test->hold = true;
	while (resets < 2 * TR_GRPC_CONTROL_BURST && test->peer->status == TR_OK) {
		int32_t id = open_call(test, NULL, NULL, 4);
		(void)peer_tell(test->peer);
		(void)nghttp2_submit_rst_stream(test->peer->http2, 0, id, NGHTTP2_CANCEL);
		(void)peer_tell(test->peer);
		resets++;
	}
	assert_in_range(resets, TR_GRPC_CONTROL_BURST - 10, TR_GRPC_CONTROL_BURST + 10);
	flood_ends(test);
	grpc_session_lose(test->peer->other, test->peer->error.text);
	assert_int_equal(test->cancels, test->requests);
}

/* As many, but slowly: that is how honest clients look. */
static void slow_resets_are_fine(void **state)
{
	struct test *test = *state;
	test->hold = true;
	for (int i = 0; i < 2 * TR_GRPC_CONTROL_BURST; i++) {
		int32_t id = open_call(test, NULL, NULL, 4);
		test->peer->now_ms += 10;
		peer_pump(test->peer);
		(void)nghttp2_submit_rst_stream(test->peer->http2, 0, id, NGHTTP2_CANCEL);
	}
	peer_pump(test->peer);
	assert_int_equal(test->peer->status, TR_OK);
	assert_int_equal(test->cancels, 2 * TR_GRPC_CONTROL_BURST);
}

/* ---- greetings */

/* So much of preface and SETTINGS, then silence. */
static void greeting_of(struct test *test, size_t bytes, bool whole)
{
	static const uint8_t greeting[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0";
	struct grpc_session *session = test->peer->other;
	struct tr_error error;
	assert_int_equal(grpc_session_receive(session, START_MS + 10, greeting, bytes, &error),
	    TR_OK);
	(void)peer_hear(test->peer);
	grpc_session_tick(session, START_MS + TR_CONN_GREETING_TIMEOUT_MS - 1);
	assert_false(grpc_session_finished(session));
	assert_int_equal(grpc_session_deadline_ms(session),
	    whole ? GRPC_NO_DEADLINE : START_MS + TR_CONN_GREETING_TIMEOUT_MS);
	grpc_session_tick(session, START_MS + TR_CONN_GREETING_TIMEOUT_MS);
	assert_int_equal(grpc_session_finished(session), !whole);
	if (whole)
		return;
	assert_string_equal(session->reason,
	    "it did not say its HTTP/2 preface and settings in time");
	/* The rest comes after all: too late. */
	assert_int_equal(grpc_session_receive(session, START_MS + TR_CONN_GREETING_TIMEOUT_MS,
	                     greeting + bytes, sizeof(greeting) - 1 - bytes, &error),
	    TR_EPROTO);
	assert_false(session->greeted);
}

static void half_a_preface(void **state)
{
	greeting_of(*state, 10, false);
}

static void a_preface_without_settings(void **state)
{
	greeting_of(*state, 24, false);
}

static void a_greeting_and_silence(void **state)
{
	greeting_of(*state, 33, true);
}

/* ---- keepalive */

static void keepalive_answered(void **state)
{
	struct test *test = *state;
	struct peer *peer = test->peer;
	test->hold = true;
	peer_pump(peer);
	assert_int_equal(grpc_session_deadline_ms(peer->other), GRPC_NO_DEADLINE);
	(void)open_call(test, NULL, NULL, 4);
	peer_pump(peer);
	for (unsigned i = 1; i <= 3; i++) {
		peer->now_ms = grpc_session_deadline_ms(peer->other);
		assert_int_equal(peer->now_ms, START_MS + i * TR_GRPC_KEEPALIVE_MS);
		grpc_session_tick(peer->other, peer->now_ms);
		peer_pump(peer);
		assert_int_equal(peer->pings, i);
	}
	assert_int_equal(test->cancels, 0);
}

static void keepalive_unanswered(void **state)
{
	struct test *test = *state;
	struct peer *peer = test->peer;
	test->hold = true;
	(void)open_call(test, NULL, NULL, 4);
	peer_pump(peer);
	peer->mute = true;
	grpc_session_tick(peer->other, START_MS + TR_GRPC_KEEPALIVE_MS);
	peer_pump(peer);
	assert_int_equal(peer->pings, 1);
	peer->now_ms = grpc_session_deadline_ms(peer->other);
	assert_int_equal(peer->now_ms, START_MS + TR_GRPC_KEEPALIVE_MS + TR_GRPC_KEEPALIVE_GRACE_MS);
	grpc_session_tick(peer->other, peer->now_ms);
	assert_int_equal(test->cancels, 1);
	assert_true(grpc_session_finished(peer->other));
	assert_string_equal(peer->other->reason, "no answer to a ping");
}

#define TEST(name)      cmocka_unit_test_setup_teardown(name, set_up, tear_down)
#define DEAF_TEST(name) cmocka_unit_test_setup_teardown(name, set_up_deaf, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(answer),
		TEST(byte_by_byte),
		TEST(refusals),
		TEST(refused_early),
		TEST(headers_too_large),
		TEST(malformed_messages),
		TEST(deadline),
		DEAF_TEST(deadline_behind_a_shut_window),
		TEST(reset_by_the_client),
		TEST(connection_lost),
		TEST(closing),
		TEST(many_large_requests),
		TEST(requests_that_never_end),
		DEAF_TEST(answers_that_are_not_read),
		DEAF_TEST(slow_sender_is_told),
		TEST(ping_flood),
		TEST(pings_for_what_was_sent),
		TEST(pings_are_not_saved_up),
		TEST(rapid_reset),
		TEST(slow_resets_are_fine),
		TEST(half_a_preface),
		TEST(a_preface_without_settings),
		TEST(a_greeting_and_silence),
		TEST(keepalive_answered),
		TEST(keepalive_unanswered),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
