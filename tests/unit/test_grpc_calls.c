/* grpc_server and grpc_client against each other: unary and streaming calls, statuses, deadlines, cancellation on either side, flow
 * control, large messages. */
#include "tests/unit/grpc_fixture.h"

static void unary(void **state)
{
	for (size_t bytes = 0; bytes < 300000; bytes = bytes * 7 + 1) {
		struct outcome outcome = { 0 };
		uint8_t *request = calloc(1, bytes + 1);
		memset(request, (int)bytes, bytes);
		call_to_end(*state, "/test/Echo", request, bytes, &outcome);
		assert_int_equal(outcome.status, GRPC_OK);
		assert_string_equal(outcome.text, "");
		assert_int_equal(outcome.messages, 1);
		assert_int_equal(outcome.bytes, bytes);
		free(request);
	}
}

static void largest_message(void **state)
{
	struct tr_error error;
	struct outcome outcome = { 0 };
	struct fixture *f = *state;
	uint8_t *request = calloc(1, TR_GRPC_MESSAGE_MAX + 1);
	call_to_end(f, "/test/Echo", request, TR_GRPC_MESSAGE_MAX, &outcome);
	assert_int_equal(outcome.status, GRPC_OK);
	assert_int_equal(outcome.bytes, TR_GRPC_MESSAGE_MAX);
	assert_int_equal(grpc_client_call(f->client, "/test/Echo", request, TR_GRPC_MESSAGE_MAX + 1,
	                     0, &callbacks, &outcome, &outcome.call, &error),
	    TR_ELIMIT);
	free(request);
}

static void status_with_text(void **state)
{
	struct outcome outcome = { 0 };
	call_to_end(*state, "/test/Fail", NULL, 0, &outcome);
	assert_int_equal(outcome.status, GRPC_NOT_FOUND);
	assert_string_equal(outcome.text, "no job 7: \xc3\xa9 100%\nlist them");
	assert_int_equal(outcome.messages, 0);
}

static void no_such_method(void **state)
{
	struct outcome outcome = { 0 };
	call_to_end(*state, "/test/Nothing", NULL, 0, &outcome);
	assert_int_equal(outcome.status, GRPC_UNIMPLEMENTED);
}

/* More than MAX_CONCURRENT_STREAMS, and more bytes than a connection may have under way. */
static void many_at_once(void **state)
{
	enum { CALLS = 300 };
	static struct outcome outcomes[CALLS];
	size_t bytes = 200000;
	uint8_t *request = calloc(1, bytes);
	memset(outcomes, 0, sizeof(outcomes));
	for (int i = 0; i < CALLS; i++) {
		request[0] = (uint8_t)i;
		call(*state, "/test/Echo", request, bytes, 0, &outcomes[i]);
	}
	for (int i = 0; i < CALLS; i++) {
		run_until(*state, &outcomes[i].ended, 1);
		assert_int_equal(outcomes[i].status, GRPC_OK);
		assert_int_equal(outcomes[i].bytes, bytes);
		assert_int_equal(outcomes[i].last[0], (uint8_t)i);
	}
	free(request);
}

/* More than one connection may carry: streams that stay open do not keep others out. */
static void many_streams_stay_open(void **state)
{
	enum { CALLS = 600 };
	static struct outcome outcomes[CALLS];
	struct fixture *f = *state;
	memset(outcomes, 0, sizeof(outcomes));
	for (int i = 0; i < CALLS; i++)
		call(f, "/test/Hold", NULL, 0, 0, &outcomes[i]);
	run_until(f, &f->holds, CALLS);
	for (int i = 0; i < CALLS; i++) {
		struct outcome other = { 0 };
		call_to_end(f, "/test/Echo", "x", 1, &other);
		assert_int_equal(other.status, GRPC_OK);
		grpc_client_cancel(outcomes[i].call);
	}
	run_until(f, &f->cancels, CALLS);
}

static void deadline(void **state)
{
	struct fixture *f = *state;
	struct outcome outcome = { 0 };
	call(f, "/test/Hold", NULL, 0, 50, &outcome);
	run_until(f, &outcome.ended, 1);
	assert_int_equal(outcome.status, GRPC_DEADLINE_EXCEEDED);
	if (f->holds > 0) /* a call whose time was over on arrival is never handed out */
		run_until(f, &f->cancels, 1);
}

static void deadline_is_passed_on(void **state)
{
	uint64_t left_ms;
	struct outcome outcome = { 0 };
	call(*state, "/test/TimeLeft", NULL, 0, 60000, &outcome);
	run_until(*state, &outcome.ended, 1);
	memcpy(&left_ms, outcome.last, sizeof(left_ms));
	assert_in_range(left_ms, 1, 60000);
	struct outcome without = { 0 };
	call_to_end(*state, "/test/TimeLeft", NULL, 0, &without);
	memcpy(&left_ms, without.last, sizeof(left_ms));
	assert_true(left_ms == UINT64_MAX);
}

static void cancelled_by_client(void **state)
{
	struct fixture *f = *state;
	struct outcome outcome = { 0 };
	call(f, "/test/Hold", NULL, 0, 0, &outcome);
	run_until(f, &f->holds, 1);
	grpc_client_cancel(outcome.call);
	grpc_client_cancel(outcome.call);
	assert_int_equal(outcome.ended, 0);
	run_until(f, &outcome.ended, 1);
	assert_int_equal(outcome.status, GRPC_CANCELLED);
	run_until(f, &f->cancels, 1);
}

static void cancelled_before_sent(void **state)
{
	struct outcome outcome = { 0 };
	call(*state, "/test/Hold", NULL, 0, 0, &outcome);
	grpc_client_cancel(outcome.call);
	assert_int_equal(outcome.ended, 0);
	run_until(*state, &outcome.ended, 1);
	assert_int_equal(outcome.status, GRPC_CANCELLED);
	assert_int_equal(((struct fixture *)*state)->holds, 0);
}

/* A handler is told to wait, the client pauses, and all arrives in the end. */
static void slow_reader(void **state)
{
	struct fixture *f = *state;
	struct outcome outcome = { .pause_after = 3 };
	struct outcome other = { 0 };
	call(f, "/test/Pour", NULL, 0, 0, &outcome);
	run_until(f, &outcome.messages, 3);
	for (int i = 0; i < 20;
	     i++) { /* other calls go on meanwhile, and give the pour time to run away */
		memset(&other, 0, sizeof(other));
		call_to_end(f, "/test/Echo", "x", 1, &other);
		assert_int_equal(other.status, GRPC_OK);
	}
	assert_int_equal(outcome.messages, 3);
	assert_true(f->sent < 10);
	grpc_client_pause(outcome.call, false);
	run_until(f, &outcome.ended, 1);
	assert_int_equal(outcome.status, GRPC_OK);
	assert_string_equal(outcome.text, "poured");
	assert_int_equal(outcome.messages, 100);
	assert_int_equal(outcome.last[0], 99);
	assert_true(f->writables > 10);
}

/* The client stops reading; its deadline ends the call at the server too, though the window is shut. */
static void deadline_behind_a_shut_window(void **state)
{
	struct fixture *f = *state;
	struct outcome outcome = { .pause_after = 1 };
	call(f, "/test/Pour", NULL, 0, 300, &outcome);
	run_until(f, &outcome.ended, 1);
	assert_int_equal(outcome.status, GRPC_DEADLINE_EXCEEDED);
	if (f->holds > 0)
		run_until(f, &f->cancels, 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(unary),
		TEST(largest_message),
		TEST(status_with_text),
		TEST(no_such_method),
		TEST(many_at_once),
		TEST(many_streams_stay_open),
		TEST(deadline),
		TEST(deadline_is_passed_on),
		TEST(cancelled_by_client),
		TEST(cancelled_before_sent),
		TEST(slow_reader),
		TEST(deadline_behind_a_shut_window),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
