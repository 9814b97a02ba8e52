/* The two ends of a relay: who calls (conn_dial_through), who waits (relay_waits) and takes it for an ordinary connection (listener_take). */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "collectives/transport/conn.h"
#include "collectives/transport/listener.h"
#include "collectives/transport/relay.h"
#include "collectives/transport/relay_waits.h"
#include "common/limits.h"
#include "tests/unit/tls_files.h"

#define DEADLINE_MS 30000

static const struct relay_grant pair = { 4, 5, 6, { 11, 12 } };

struct ends {
	uv_loop_t loop;
	struct relay *relay;
	struct relay_waits *waits;
	struct listener *at_relay, *at_target;
	struct tls_context *tls[3]; /* caller, relay, target */
	struct conn *caller, *inbound;
	char got[64], said[64], reason[256];
	bool caller_closed, inbound_closed, connected;
};

static tr_status on_frame(void *arg, struct conn *conn, uint16_t type, const uint8_t *payload,
    size_t bytes, struct tr_error *error)
{
	struct ends *m = arg;
	(void)error;
	assert_int_equal(type, FRAME_PEER);
	char *to = conn == m->caller ? m->said : m->got;
	assert_in_range(bytes, 1, sizeof(m->got) - 1);
	memcpy(to, payload, bytes);
	to[bytes] = '\0';
	if (conn != m->caller)
		assert_int_equal(conn_send_copy(conn, FRAME_PEER, "welcome", 7), TR_OK);
	return TR_OK;
}

static void on_connected(void *arg, struct conn *conn)
{
	struct ends *m = arg;
	m->connected = true;
	assert_int_equal(conn_send_copy(conn, FRAME_PEER, "hello", 5), TR_OK);
}

static void on_caller_closed(void *arg, struct conn *conn, const char *reason)
{
	struct ends *m = arg;
	(void)conn;
	m->caller_closed = true;
	(void)snprintf(m->reason, sizeof(m->reason), "%s", reason);
}

static void on_inbound_closed(void *arg, struct conn *conn, const char *reason)
{
	struct ends *m = arg;
	(void)conn;
	(void)reason;
	m->inbound_closed = true;
}

static void at_relay(void *arg, enum listener_protocol protocol, struct stream stream,
    const void *early, size_t early_bytes)
{
	struct ends *m = arg;
	(void)early;
	assert_int_equal(early_bytes, 0);
	assert_int_equal(protocol, LISTENER_RELAY);
	relay_accept(m->relay, stream);
}

static void at_target(void *arg, enum listener_protocol protocol, struct stream stream,
    const void *early, size_t early_bytes)
{
	static const struct conn_callbacks callbacks = { .frame = on_frame,
		.closed = on_inbound_closed };
	struct ends *m = arg;
	assert_int_equal(protocol, LISTENER_FRAMES);
	assert_int_equal((stream.tls != NULL), (m->tls[2] != NULL));
	assert_int_equal(conn_adopt(&m->loop, stream, early, early_bytes, &callbacks, m,
	                     &m->inbound, NULL),
	    TR_OK);
}

static void ends_open(struct ends *m, const struct tls_files *files)
{
	static const char *const names[] = { "caller", "relay", "target" };
	memset(m, 0, sizeof(*m));
	assert_int_equal(uv_loop_init(&m->loop), 0);
	for (unsigned i = 0; files != NULL && i < 3; i++)
		m->tls[i] = tls_files_node(files, names[i]);
	assert_int_equal(relay_create(TR_RELAY_JOINED_MAX, &m->relay, NULL), TR_OK);
	assert_int_equal(relay_grant(m->relay, &pair, 1, NULL), TR_OK);
	assert_int_equal(listener_start(&m->loop, "127.0.0.1:0", false, m->tls[1], at_relay, m,
	                     &m->at_relay, NULL),
	    TR_OK);
	assert_int_equal(listener_start(&m->loop, "127.0.0.1:0", false, m->tls[2], at_target, m,
	                     &m->at_target, NULL),
	    TR_OK);
	assert_int_equal(relay_waits_create(&m->loop, m->tls[2], m->at_target, &m->waits, NULL),
	    TR_OK);
}

static void way(const struct ends *m, const struct relay_grant *grant, struct conn_relay *row)
{
	*row = (struct conn_relay){ .say = { .kind = RELAY_CALL,
		                        .group = grant->group,
		                        .from = grant->from,
		                        .to = grant->to,
		                        .token = { grant->token[0], grant->token[1] } } };
	(void)snprintf(row->address, sizeof(row->address), "%s", listener_address(m->at_relay));
}

static void on_deadline(uv_timer_t *timer)
{
	(void)timer;
	fail_msg("nothing comes any more");
}

static void run_until(struct ends *m, bool (*done)(const struct ends *m))
{
	uv_timer_t deadline;
	(void)uv_timer_init(&m->loop, &deadline);
	(void)uv_timer_start(&deadline, on_deadline, DEADLINE_MS, 0);
	while (!done(m))
		(void)uv_run(&m->loop, UV_RUN_ONCE);
	uv_close((uv_handle_t *)&deadline, NULL);
	(void)uv_run(&m->loop, UV_RUN_NOWAIT);
}

static void on_beat(uv_timer_t *timer)
{
	(void)timer;
}

/* A socket that is not this loop's. */
static void run_until_readable(struct ends *m, int fd)
{
	struct pollfd readable = { .fd = fd, .events = POLLIN };
	uv_timer_t beat;
	int turns = 0;
	(void)uv_timer_init(&m->loop, &beat);
	(void)uv_timer_start(&beat, on_beat, 1, 1);
	for (; poll(&readable, 1, 0) == 0 && turns < DEADLINE_MS; turns++)
		(void)uv_run(&m->loop, UV_RUN_ONCE);
	uv_close((uv_handle_t *)&beat, NULL);
	(void)uv_run(&m->loop, UV_RUN_NOWAIT);
	if (turns == DEADLINE_MS)
		fail_msg("nothing comes any more");
}

static void ends_close(struct ends *m)
{
	conn_close(m->caller_closed ? NULL : m->caller, "the test ends");
	conn_close(m->inbound_closed ? NULL : m->inbound, "the test ends");
	relay_waits_close(m->waits);
	listener_stop(m->at_relay);
	listener_stop(m->at_target);
	(void)uv_run(&m->loop, UV_RUN_DEFAULT);
	relay_destroy(m->relay);
	for (unsigned i = 0; i < 3; i++)
		tls_context_release(m->tls[i]);
	assert_int_equal(uv_loop_close(&m->loop), 0);
}

static const struct conn_callbacks caller_callbacks = { .frame = on_frame,
	.connected = on_connected,
	.closed = on_caller_closed };

static bool said(const struct ends *m)
{
	return m->said[0] != '\0';
}

static bool gone(const struct ends *m)
{
	return m->caller_closed;
}

static bool inbound_gone(const struct ends *m)
{
	return m->inbound_closed;
}

static void talk_through(const struct tls_files *files)
{
	struct ends m;
	struct conn_relay row;
	ends_open(&m, files);
	way(&m, &pair, &row);
	assert_int_equal(relay_waits_set(m.waits, &row, 1, NULL), TR_OK);
	for (int i = 0; i < 3; i++) { /* after each call the next one waits */
		m.said[0] = m.got[0] = '\0';
		m.inbound_closed = m.caller_closed = false;
		assert_int_equal(conn_dial_through(&m.loop, listener_address(m.at_target), &row,
		                     m.tls[0], &caller_callbacks, &m, &m.caller, NULL),
		    TR_OK);
		run_until(&m, said);
		assert_string_equal(m.got, "hello");
		assert_string_equal(m.said, "welcome");
		conn_finish(m.caller, "that was all");
		run_until(&m, inbound_gone);
		run_until(&m, gone);
	}
	ends_close(&m);
}

static void test_two_ends(void **state)
{
	(void)state;
	talk_through(NULL);
}

/* TLS with the relay, and TLS of the ends inside: the target's listener takes nothing else. */
static void test_two_ends_with_tls(void **state)
{
	struct tls_files files;
	(void)state;
	tls_files_make(&files);
	talk_through(&files);
	tls_files_end(&files);
}

static void expect_failure(struct ends *m, const char *address, const struct conn_relay *row,
    const char *words)
{
	m->caller_closed = m->connected = false;
	assert_int_equal(conn_dial_through(&m->loop, address, row, m->tls[0], &caller_callbacks, m,
	                     &m->caller, NULL),
	    TR_OK);
	conn_set_patience(m->caller, 1000);
	run_until(m, gone);
	assert_false(m->connected);
	assert_non_null(strstr(m->reason, "cannot reach "));
	assert_non_null(strstr(m->reason, " through the relay at "));
	if (strstr(m->reason, words) == NULL)
		fail_msg("'%s' has no '%s'", m->reason, words);
}

/* The relay's certificate does not do for the other end: that one shows its own, for the host that is meant. */
static void test_the_other_end_is_who_was_meant(void **state)
{
	struct ends m;
	struct conn_relay row;
	struct tls_files files;
	(void)state;
	tls_files_make(&files);
	ends_open(&m, &files);
	way(&m, &pair, &row);
	assert_int_equal(relay_waits_set(m.waits, &row, 1, NULL), TR_OK);
	expect_failure(&m, "10.9.8.7:7600", &row, "is not for 10.9.8.7");
	ends_close(&m);
	tls_files_end(&files);
}

static void test_refused(void **state)
{
	struct ends m;
	struct conn_relay row;
	struct relay_grant wrong = pair;
	(void)state;
	wrong.token[1]++;
	ends_open(&m, NULL);
	way(&m, &wrong, &row);
	expect_failure(&m, listener_address(m.at_target), &row, "does not know this pair");
	way(&m, &pair, &row);
	expect_failure(&m, listener_address(m.at_target), &row, "did not come there in time");
	ends_close(&m);
}

/* It waits again and again for a relay that has not heard of the pair yet, and stops when it is not to any more. */
static bool waits_at_last(const struct ends *m)
{
	struct relay_counters counters;
	relay_get_counters(m->relay, &counters);
	return counters.waiting == 1;
}

static bool waits_no_more(const struct ends *m)
{
	struct relay_counters counters;
	relay_get_counters(m->relay, &counters);
	return counters.waiting == 0;
}

static bool refused_twice(const struct ends *m)
{
	struct relay_counters counters;
	relay_get_counters(m->relay, &counters);
	return counters.refused >= 2;
}

static void test_waits_for_the_grant(void **state)
{
	struct ends m;
	struct conn_relay row;
	struct relay_grant other = pair;
	uv_timer_t beat;
	(void)state;
	ends_open(&m, NULL);
	(void)uv_timer_init(&m.loop, &beat);
	(void)uv_timer_start(&beat, on_beat, 1, 1); /* the relay's thread does not wake this loop */
	other.group++;
	way(&m, &pair, &row);
	assert_int_equal(relay_grant(m.relay, &other, 1, NULL), TR_OK);
	assert_int_equal(relay_waits_set(m.waits, &row, 1, NULL), TR_OK);
	run_until(&m, refused_twice);
	assert_int_equal(relay_grant(m.relay, &pair, 1, NULL), TR_OK);
	run_until(&m, waits_at_last);
	assert_int_equal(relay_waits_set(m.waits, &row, 1, NULL), TR_OK); /* nothing changes */
	assert_true(waits_at_last(&m));
	assert_int_equal(relay_waits_set(m.waits, NULL, 0, NULL), TR_OK);
	run_until(&m, waits_no_more);
	uv_close((uv_handle_t *)&beat, NULL);
	ends_close(&m);
}

/* A relay that answers with a part of a message and breaks, both before we look. */
static void test_a_relay_that_breaks_in_its_answer(void **state)
{
	struct ends m;
	struct conn_relay row;
	struct sockaddr_in at = { .sin_family = AF_INET, .sin_addr = { htonl(INADDR_LOOPBACK) } };
	socklen_t length = sizeof(at);
	const struct linger at_once = { 1, 0 };
	char heard[64];
	int port = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), relay;
	(void)state;
	assert_int_equal(bind(port, (struct sockaddr *)&at, sizeof(at)), 0);
	assert_int_equal(listen(port, 5), 0);
	assert_int_equal(getsockname(port, (struct sockaddr *)&at, &length), 0);
	ends_open(&m, NULL);
	way(&m, &pair, &row);
	(void)snprintf(row.address, sizeof(row.address), "127.0.0.1:%u", ntohs(at.sin_port));
	assert_int_equal(relay_waits_set(m.waits, &row, 1, NULL), TR_OK);
	for (int i = 0; i < 2; i++) { /* it has noticed, and comes again */
		run_until_readable(&m, port);
		relay = accept(port, NULL, NULL);
		run_until_readable(&m, relay);
		assert_true(read(relay, heard, sizeof(heard)) > 0);
		assert_int_equal(write(relay, heard, 4), 4);
		assert_int_equal(setsockopt(relay, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once)),
		    0);
		assert_int_equal(close(relay), 0);
	}
	assert_int_equal(close(port), 0);
	ends_close(&m);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_two_ends),
		cmocka_unit_test(test_two_ends_with_tls),
		cmocka_unit_test(test_the_other_end_is_who_was_meant),
		cmocka_unit_test(test_refused),
		cmocka_unit_test(test_waits_for_the_grant),
		cmocka_unit_test(test_a_relay_that_breaks_in_its_answer),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
