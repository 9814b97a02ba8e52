/* A grpc_server and a grpc_client on one loop, with a few methods. */
#ifndef TR_TESTS_UNIT_GRPC_FIXTURE_H
#define TR_TESTS_UNIT_GRPC_FIXTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "collectives/transport/listener.h"
#include "common/limits.h"
#include "daemon/api/grpc_client.h"
#include "daemon/api/grpc_server.h"

struct fixture {
	uv_loop_t loop;
	struct grpc_server *server;
	struct listener *listener;
	struct grpc_client *client;
	uv_timer_t watchdog;
	struct grpc_call *held; /* the call that /test/Hold got */
	unsigned holds, cancels, writables, sent;
	bool server_closed;
};

/* One call from the client's side. */
struct outcome {
	struct fixture *fixture;
	struct grpc_client_call *call;
	unsigned messages, ended;
	size_t bytes;
	uint8_t last[16];
	enum grpc_status status;
	char text[256];
	unsigned pause_after; /* messages; 0: never */
};

static inline void watchdog_bites(uv_timer_t *timer)
{
	(void)timer;
	(void)fprintf(stderr, "the test hangs\n");
	abort();
}

/* Runs the loop until the counter has the value; who counts, stops it. */
static inline void run_until(struct fixture *f, const unsigned *counter, unsigned value)
{
	while (*counter < value)
		(void)uv_run(&f->loop, UV_RUN_DEFAULT);
}

static inline void on_message(void *arg, const uint8_t *message, size_t bytes)
{
	struct outcome *outcome = arg;
	uv_stop(&outcome->fixture->loop);
	outcome->messages++;
	outcome->bytes += bytes;
	memcpy(outcome->last, message,
	    bytes < sizeof(outcome->last) ? bytes : sizeof(outcome->last));
	if (outcome->messages == outcome->pause_after)
		grpc_client_pause(outcome->call, true);
}

static inline void on_ended(void *arg, enum grpc_status status, const char *text)
{
	struct outcome *outcome = arg;
	uv_stop(&outcome->fixture->loop);
	outcome->ended++;
	outcome->status = status;
	(void)snprintf(outcome->text, sizeof(outcome->text), "%s", text);
}

static const struct grpc_client_callbacks callbacks = { on_message, on_ended };

static inline void call(struct fixture *f, const char *path, const void *request, size_t bytes,
    uint64_t deadline_ms, struct outcome *outcome)
{
	struct tr_error error;
	outcome->fixture = f;
	assert_int_equal(grpc_client_call(f->client, path, request, bytes, deadline_ms, &callbacks,
	                     outcome, &outcome->call, &error),
	    TR_OK);
	assert_int_equal(outcome->ended, 0);
}

static inline void call_to_end(struct fixture *f, const char *path, const void *request,
    size_t bytes, struct outcome *outcome)
{
	call(f, path, request, bytes, 0, outcome);
	run_until(f, &outcome->ended, 1);
	assert_int_equal(outcome->ended, 1);
}

/* ---- methods */

static inline void echo(void *arg, struct grpc_call *call, const uint8_t *request, size_t bytes)
{
	(void)arg;
	(void)grpc_call_send(call, request, bytes);
	grpc_call_end(call, GRPC_OK, NULL);
}

static inline void refuse(void *arg, struct grpc_call *call, const uint8_t *request, size_t bytes)
{
	(void)arg;
	(void)request;
	(void)bytes;
	grpc_call_end(call, GRPC_NOT_FOUND, "no job 7: \xc3\xa9 100%\nlist them");
}

static inline void count_cancel(void *arg)
{
	struct fixture *f = arg;
	uv_stop(&f->loop);
	f->cancels++;
	f->held = NULL;
}

static inline void hold(void *arg, struct grpc_call *call, const uint8_t *request, size_t bytes)
{
	struct fixture *f = arg;
	(void)request;
	(void)bytes;
	f->held = call;
	uv_stop(&f->loop);
	f->holds++;
	grpc_call_on_cancel(call, count_cancel, f);
}

/* Sends a million bytes at a time until told to wait; a hundred in all. */
static inline void pour_more(void *arg)
{
	struct fixture *f = arg;
	static uint8_t message[1000000];
	f->writables++;
	while (f->sent < 100) {
		message[0] = (uint8_t)f->sent++;
		if (grpc_call_send(f->held, message, sizeof(message)) == TR_EAGAIN)
			return;
	}
	grpc_call_end(f->held, GRPC_OK, "poured");
}

static inline void pour(void *arg, struct grpc_call *call, const uint8_t *request, size_t bytes)
{
	struct fixture *f = arg;
	hold(arg, call, request, bytes);
	f->sent = 0;
	grpc_call_on_writable(call, pour_more, f);
	pour_more(f);
}

static inline void time_left(void *arg, struct grpc_call *call, const uint8_t *request, size_t bytes)
{
	(void)arg;
	(void)request;
	(void)bytes;
	uint64_t left_ms = grpc_call_time_left_ms(call);
	(void)grpc_call_send(call, &left_ms, sizeof(left_ms));
	grpc_call_end(call, GRPC_OK, NULL);
}

static const struct grpc_method methods[] = {
	{ "/test/Echo", echo },
	{ "/test/Fail", refuse },
	{ "/test/Hold", hold },
	{ "/test/Pour", pour },
	{ "/test/TimeLeft", time_left },
	{ NULL, NULL },
};

/* ---- set-up */

static inline void accepted(void *arg, enum listener_protocol protocol, struct stream stream,
    const void *early, size_t early_bytes)
{
	struct fixture *f = arg;
	assert_int_equal(protocol, LISTENER_HTTP2);
	grpc_server_accept(f->server, stream, early, early_bytes);
}

static inline void start_server(struct fixture *f, const char *address)
{
	struct tr_error error;
	const struct grpc_server_options options = { .methods = methods, .arg = f };
	assert_int_equal(grpc_server_create(&f->loop, &options, &f->server), TR_OK);
	assert_int_equal(listener_start(&f->loop, address, false, NULL, accepted, f, &f->listener,
	                     &error),
	    TR_OK);
}

static inline struct fixture *set_up_at(const char *address)
{
	struct tr_error error;
	struct fixture *f = calloc(1, sizeof(*f));
	assert_non_null(f);
	assert_int_equal(uv_loop_init(&f->loop), 0);
	(void)uv_timer_init(&f->loop, &f->watchdog);
	(void)uv_timer_start(&f->watchdog, watchdog_bites, 120000, 0);
	start_server(f, address);
	assert_int_equal(grpc_client_create(&f->loop, listener_address(f->listener), NULL,
	                     &f->client, &error),
	    TR_OK);
	return f;
}

static inline int set_up(void **state)
{
	*state = set_up_at("127.0.0.1:0");
	return 0;
}

static inline void server_closed(void *arg)
{
	struct fixture *f = arg;
	uv_stop(&f->loop);
	f->server_closed = true;
	f->server = NULL;
}

static inline int tear_down(void **state)
{
	struct fixture *f = *state;
	grpc_client_destroy(f->client);
	if (f->listener != NULL)
		listener_stop(f->listener);
	if (f->server != NULL)
		grpc_server_close(f->server, server_closed, f);
	uv_close((uv_handle_t *)&f->watchdog, NULL);
	while (uv_run(&f->loop, UV_RUN_DEFAULT) != 0)
		;
	assert_true(f->server_closed);
	assert_int_equal(uv_loop_close(&f->loop), 0);
	free(f);
	return 0;
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

#endif
