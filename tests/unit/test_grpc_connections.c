/* grpc_server and grpc_client: addresses, connections that are lost, shutdown. */
#include "daemon/api/grpc_client_session.h"
#include "daemon/api/grpc_io.h"
#include "tests/unit/grpc_fixture.h"
#include "tests/unit/machine.h"

static void nobody_there(void **state)
{
	struct tr_error error;
	struct fixture *f = *state;
	struct outcome outcome = { 0 };
	struct grpc_client *client;
	char address[TR_ADDRESS_MAX];
	(void)snprintf(address, sizeof(address), "%s", listener_address(f->listener));
	listener_stop(f->listener);
	f->listener = NULL;
	(void)uv_run(&f->loop, UV_RUN_NOWAIT);
	call_to_end(f, "/test/Echo", NULL, 0, &outcome);
	assert_int_equal(outcome.status, GRPC_UNAVAILABLE);
	assert_non_null(strstr(outcome.text, address));
	assert_non_null(strstr(outcome.text, "refused"));
	assert_int_equal(grpc_client_create(&f->loop, "nonsense", NULL, &client, &error), TR_EINVAL);
	/* It comes back, and the next call reaches it. */
	assert_int_equal(listener_start(&f->loop, address, false, NULL, accepted, f, &f->listener,
	                     &error),
	    TR_OK);
	struct outcome again = { 0 };
	call_to_end(f, "/test/Echo", "x", 1, &again);
	assert_int_equal(again.status, GRPC_OK);
}

static void unknown_name(void **state)
{
	struct tr_error error;
	struct fixture *f = *state;
	struct outcome outcome = { 0 };
	grpc_client_destroy(f->client);
	assert_int_equal(grpc_client_create(&f->loop, "no-such-host.invalid:1", NULL, &f->client,
	                     &error),
	    TR_OK);
	call_to_end(f, "/test/Echo", NULL, 0, &outcome);
	assert_int_equal(outcome.status, GRPC_UNAVAILABLE);
	assert_non_null(strstr(outcome.text, "no-such-host.invalid:1"));
}

static void server_closes(void **state)
{
	struct fixture *f = *state;
	struct outcome held = { 0 }, poured = { .pause_after = 1 };
	call(f, "/test/Pour", NULL, 0, 0, &poured);
	run_until(f, &poured.messages, 1);
	call(f, "/test/Hold", NULL, 0, 0, &held);
	run_until(f, &f->holds, 2);
	grpc_server_close(f->server, server_closed, f);
	run_until(f, &held.ended, 1);
	assert_int_equal(held.status, GRPC_UNAVAILABLE);
	assert_non_null(strstr(held.text, "shutting down"));
	run_until(f, &poured.ended, 1);
	assert_int_equal(poured.status, GRPC_UNAVAILABLE);
	run_until(f, &f->cancels, 2);
	while (!f->server_closed)
		(void)uv_run(&f->loop, UV_RUN_DEFAULT);
	/* The listener still answers, with a new server behind it. */
	const struct grpc_server_options options = { .methods = methods, .arg = f };
	f->server_closed = false;
	assert_int_equal(grpc_server_create(&f->loop, &options, &f->server), TR_OK);
	struct outcome again = { 0 };
	call_to_end(f, "/test/Echo", "x", 1, &again);
	assert_int_equal(again.status, GRPC_OK);
}

static void client_destroyed_with_calls(void **state)
{
	struct tr_error error;
	struct fixture *f = *state;
	struct outcome held = { 0 }, unsent = { 0 };
	call(f, "/test/Hold", NULL, 0, 0, &held);
	run_until(f, &f->holds, 1);
	call(f, "/test/Hold", NULL, 0, 0, &unsent);
	grpc_client_destroy(f->client);
	assert_int_equal(held.ended, 1);
	assert_int_equal(held.status, GRPC_CANCELLED);
	assert_int_equal(unsent.status, GRPC_CANCELLED);
	run_until(f, &f->cancels, 1);
	assert_int_equal(grpc_client_create(&f->loop, listener_address(f->listener), NULL,
	                     &f->client, &error),
	    TR_OK);
}

/* Each call keeps its request until it has left: clients of traind could have it keep 16 GiB for a memberd that reads nothing. */
static void requests_that_do_not_leave_are_limited(void **state)
{
	enum { CALLS = TR_GRPC_UNSENT_BYTES_MAX / TR_GRPC_MESSAGE_MAX };
	struct tr_error error;
	struct fixture *f = *state;
	struct grpc_client_call *more;
	struct outcome outcomes[CALLS] = { 0 }, again = { 0 };
	uint8_t *request = calloc(1, TR_GRPC_MESSAGE_MAX);
	assert_non_null(request);
	for (unsigned i = 0; i < CALLS; i++)
		call(f, "/test/Fail", request, TR_GRPC_MESSAGE_MAX - 5, 0, &outcomes[i]);
	assert_int_equal(grpc_client_call(f->client, "/test/Fail", request, TR_GRPC_MESSAGE_MAX, 0,
	                     &callbacks, NULL, &more, &error),
	    TR_ELIMIT);
	assert_string_equal(error.text, "64 MiB of requests wait to be sent, the limit; try again");
	for (unsigned i = 0; i < CALLS; i++) {
		run_until(f, &outcomes[i].ended, 1);
		assert_int_equal(outcomes[i].status, GRPC_NOT_FOUND);
	}
	call_to_end(f, "/test/Fail", request, TR_GRPC_MESSAGE_MAX, &again);
	assert_int_equal(again.status, GRPC_NOT_FOUND);
	free(request);
}

/* ---- an end that hangs */

struct hung {
	uv_loop_t loop;
	unsigned over, closed;
	char reason[64];
};

static void hung_over(void *arg, struct grpc_client_call *call)
{
	((struct hung *)arg)->over++;
	grpc_outbox_finish(&call->request);
	free(call);
}

static void hung_closed(void *arg, const char *reason, bool fault)
{
	struct hung *hung = arg;
	(void)fault;
	hung->closed++;
	(void)snprintf(hung->reason, sizeof(hung->reason), "%s", reason);
}

static void stop_loop(uv_timer_t *timer)
{
	uv_stop(timer->loop);
}

/* It takes no byte and answers no ping. (What was left for it was waited for without an end, and a server that had enough of such
 * connections took no other.) */
static void an_end_that_hangs_is_dropped(void **state)
{
	static const struct grpc_client_session_callbacks hung_callbacks = { .over = hung_over };
	static uint8_t request[200000];
	static char path[] = "/t.T/M";
	struct hung hung = { 0 };
	struct grpc_io *io;
	uv_timer_t timer;
	int fds[2], small = 4096;
	(void)state;
	assert_int_equal(uv_loop_init(&hung.loop), 0);
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds), 0);
	(void)setsockopt(fds[0], SOL_SOCKET, SO_SNDBUF, &small, sizeof(small));
	struct grpc_session *session = grpc_client_session_create("test:1", &hung_callbacks, &hung,
	    uv_now(&hung.loop));
	struct grpc_client_call *call = calloc(1, sizeof(*call));
	assert_true(session != NULL && call != NULL);
	call->path = path;
	call->deadline_ms = GRPC_NO_DEADLINE;
	assert_int_equal(grpc_outbox_add(&call->request, request, sizeof(request)), TR_OK);
	assert_int_equal(grpc_client_session_start(session, call), TR_OK);
	session->pinged = true; /* long ago */
	session->pinged_ms = uv_now(&hung.loop) - TR_GRPC_KEEPALIVE_GRACE_MS + 50;
	assert_int_equal(grpc_io_create(&hung.loop, (struct stream){ fds[0], NULL }, session, NULL,
	                     0, hung_closed, &hung, &io),
	    TR_OK);
	(void)uv_timer_init(&hung.loop, &timer);
	(void)uv_timer_start(&timer, stop_loop, 2000, 0);
	while (hung.closed == 0 && uv_is_active((uv_handle_t *)&timer))
		(void)uv_run(&hung.loop, UV_RUN_ONCE);
	assert_int_equal(hung.over, 1);
	assert_int_equal(hung.closed, 1);
	assert_string_equal(hung.reason, "no answer to a ping");
	uv_close((uv_handle_t *)&timer, NULL);
	(void)uv_run(&hung.loop, UV_RUN_DEFAULT);
	assert_int_equal(uv_loop_close(&hung.loop), 0);
	(void)close(fds[1]);
}

static void call_at(const char *address)
{
	void *f = set_up_at(address);
	struct outcome outcome = { 0 };
	call_to_end(f, "/test/Echo", "hello", 5, &outcome);
	assert_int_equal(outcome.status, GRPC_OK);
	assert_memory_equal(outcome.last, "hello", 5);
	(void)tear_down(&f);
}

static void unix_socket(void **state)
{
	char folder[] = "/tmp/test-grpc-XXXXXX", address[64];
	(void)state;
	assert_non_null(mkdtemp(folder));
	(void)snprintf(address, sizeof(address), "unix:%s/socket", folder);
	call_at(address);
	(void)remove(address + strlen("unix:"));
	(void)remove(folder);
}

static void name_of_loopback(void **state)
{
	(void)state;
	if (!machine_has("localhost"))
		skip();
	call_at("localhost:0");
}

static void ipv6_loopback(void **state)
{
	(void)state;
	if (!machine_has("::1"))
		skip();
	call_at("[::1]:0");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(nobody_there),
		TEST(unknown_name),
		TEST(server_closes),
		TEST(client_destroyed_with_calls),
		TEST(requests_that_do_not_leave_are_limited),
		cmocka_unit_test(an_end_that_hangs_is_dropped),
		cmocka_unit_test(unix_socket),
		cmocka_unit_test(name_of_loopback),
		cmocka_unit_test(ipv6_loopback),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
