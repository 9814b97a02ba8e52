/* A relay: who may use it, and what it does with bytes. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "collectives/transport/relay.h"
#include "common/limits.h"
#include "common/log.h"
#include "proto/bytes.h"
#include "proto/relay.h"

#define DEADLINE_MS 30000

static const struct relay_grant pair = { 4, 5, 6, { 11, 12 } };

static int setup(void **state)
{
	struct relay *relay = NULL;
	log_configure(LOG_ERROR, false);
	assert_int_equal(relay_create(TR_RELAY_JOINED_MAX, &relay, NULL), TR_OK);
	assert_int_equal(relay_grant(relay, &pair, 1, NULL), TR_OK);
	*state = relay;
	return 0;
}

static int teardown(void **state)
{
	relay_destroy(*state);
	return 0;
}

/* Our end of a connection to the relay. */
static int dial(struct relay *relay)
{
	int ends[2];
	const struct timeval most = { DEADLINE_MS / 1000, 0 };
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
	(void)setsockopt(ends[0], SOL_SOCKET, SO_RCVTIMEO, &most, sizeof(most));
	(void)setsockopt(ends[0], SOL_SOCKET, SO_SNDTIMEO, &most, sizeof(most));
	relay_accept(relay, (struct stream){ ends[1], NULL });
	return ends[0];
}

static void say(int fd, enum relay_kind kind, const struct relay_grant *grant)
{
	uint8_t bytes[RELAY_MESSAGE_BYTES];
	const struct relay_message message = { .kind = kind,
		.group = grant->group,
		.from = grant->from,
		.to = grant->to,
		.token = { grant->token[0], grant->token[1] } };
	relay_message_put(&message, bytes);
	assert_int_equal(send(fd, bytes, sizeof(bytes), MSG_NOSIGNAL), sizeof(bytes));
}

static int say_new(struct relay *relay, enum relay_kind kind, const struct relay_grant *grant)
{
	int fd = dial(relay);
	say(fd, kind, grant);
	return fd;
}

/* 0: it was closed without one. */
static enum relay_kind answer(int fd, enum relay_cause *cause)
{
	uint8_t bytes[RELAY_MESSAGE_BYTES];
	struct relay_message message;
	ssize_t n = recv(fd, bytes, sizeof(bytes), MSG_WAITALL);
	if (n <= 0) {
		assert_true(n == 0 || errno == ECONNRESET);
		return 0;
	}
	assert_int_equal(n, sizeof(bytes));
	assert_int_equal(relay_message_get(bytes, &message, NULL), TR_OK);
	*cause = message.cause;
	return message.kind;
}

static void expect_joined(int fd)
{
	enum relay_cause cause;
	assert_int_equal(answer(fd, &cause), RELAY_JOINED);
}

static void expect_refused(int fd, enum relay_cause expected)
{
	enum relay_cause cause = RELAY_CAUSE_NONE;
	assert_int_equal(answer(fd, &cause), RELAY_REFUSED);
	assert_int_equal(cause, expected);
	assert_int_equal(answer(fd, &cause), 0);
	assert_int_equal(close(fd), 0);
}

static void expect_closed(int fd)
{
	enum relay_cause cause;
	assert_int_equal(answer(fd, &cause), 0);
	assert_int_equal(close(fd), 0);
}

static void await(struct relay *relay, unsigned joined, unsigned waiting, unsigned calling)
{
	struct relay_counters counters;
	for (unsigned i = 0; i < DEADLINE_MS; i++) {
		relay_get_counters(relay, &counters);
		if (counters.joined == joined && counters.waiting == waiting &&
		    counters.calling == calling)
			return;
		(void)poll(NULL, 0, 1);
	}
	fail_msg("joined %u waiting %u calling %u", counters.joined, counters.waiting,
	    counters.calling);
}

static void join(struct relay *relay, int ends[2])
{
	ends[1] = say_new(relay, RELAY_WAIT, &pair);
	ends[0] = say_new(relay, RELAY_CALL, &pair);
	expect_joined(ends[0]);
	expect_joined(ends[1]);
}

static void expect_text(int fd, const char *text)
{
	char got[64] = "";
	assert_int_equal(recv(fd, got, strlen(text), MSG_WAITALL), strlen(text));
	assert_string_equal(got, text);
}

static void send_text(int fd, const char *text)
{
	assert_int_equal(send(fd, text, strlen(text), MSG_NOSIGNAL), strlen(text));
}

/* ---- bytes ---- */

static void test_carries_both_ways(void **state)
{
	int ends[2];
	join(*state, ends);
	send_text(ends[0], "there");
	send_text(ends[1], "and back");
	expect_text(ends[1], "there");
	expect_text(ends[0], "and back");
	await(*state, 1, 0, 0);
	(void)close(ends[0]);
	(void)close(ends[1]);
	await(*state, 0, 0, 0);
}

/* Who comes first waits for the other. What the caller says with its first breath is not lost. */
static void test_either_comes_first(void **state)
{
	for (int i = 0; i < 2; i++) {
		int first = say_new(*state, i == 0 ? RELAY_WAIT : RELAY_CALL, &pair);
		await(*state, 0, i == 0, i != 0);
		int second = say_new(*state, i == 0 ? RELAY_CALL : RELAY_WAIT, &pair);
		expect_joined(first);
		send_text(first, "hello");
		expect_joined(second);
		expect_text(second, "hello");
		(void)close(first);
		(void)close(second);
	}
}

static size_t fill(int fd, uint8_t *next)
{
	uint8_t bytes[4096];
	size_t sent = 0;
	for (;;) {
		for (size_t i = 0; i < sizeof(bytes); i++)
			bytes[i] = (uint8_t)(*next + i * 7);
		ssize_t n = send(fd, bytes, sizeof(bytes), MSG_NOSIGNAL | MSG_DONTWAIT);
		if (n < 0 && errno == EAGAIN) { /* the relay may just be about to read */
			struct pollfd room = { fd, POLLOUT, 0 };
			if (poll(&room, 1, 300) == 0)
				return sent;
			continue;
		}
		assert_true(n > 0);
		sent += (size_t)n;
		*next = (uint8_t)(*next + n * 7);
	}
}

static void drain(int fd, size_t count, uint8_t *next)
{
	uint8_t bytes[4096];
	while (count > 0) {
		ssize_t n = recv(fd, bytes, count < sizeof(bytes) ? count : sizeof(bytes), 0);
		assert_true(n > 0);
		for (ssize_t i = 0; i < n; i++) {
			assert_int_equal(bytes[i], *next);
			*next = (uint8_t)(*next + 7);
		}
		count -= (size_t)n;
	}
}

/* Nobody reads: after the sockets' buffers and one of its own the relay takes no more, and goes on in the other direction. */
static void test_back_pressure(void **state)
{
	int ends[2], room = 0;
	socklen_t length = sizeof(room);
	struct relay_counters counters;
	uint8_t put = 1, got = 1;
	join(*state, ends);
	assert_int_equal(getsockopt(ends[0], SOL_SOCKET, SO_SNDBUF, &room, &length), 0);
	for (int i = 0; i < 3; i++) {
		size_t sent = fill(ends[0], &put);
		relay_get_counters(*state, &counters);
		assert_true(sent > 0 && sent <= 2 * (size_t)room + TR_RELAY_BUFFER_BYTES);
		send_text(ends[1], "meanwhile");
		expect_text(ends[0], "meanwhile");
		drain(ends[1], sent, &got);
	}
	(void)close(ends[0]);
	(void)close(ends[1]);
}

static void test_half_close(void **state)
{
	int ends[2];
	uint8_t put = 1, got = 1, byte;
	join(*state, ends);
	size_t sent = fill(ends[0], &put);
	assert_int_equal(shutdown(ends[0], SHUT_WR), 0);
	drain(ends[1], sent, &got);
	assert_int_equal(recv(ends[1], &byte, 1, 0), 0);
	send_text(ends[1], "still here");
	expect_text(ends[0], "still here");
	(void)close(ends[1]);
	assert_int_equal(recv(ends[0], &byte, 1, 0), 0);
	(void)close(ends[0]);
	await(*state, 0, 0, 0);
}

/* One that goes away with all that was under way takes the other along. */
static void test_an_end_breaks(void **state)
{
	int ends[2];
	uint8_t put = 1;
	join(*state, ends);
	(void)fill(ends[0], &put);
	(void)close(ends[1]);
	uint8_t byte;
	ssize_t n = recv(ends[0], &byte, 1, 0);
	assert_true(n == 0 || (n < 0 && errno == ECONNRESET));
	await(*state, 0, 0, 0);
	(void)close(ends[0]);
}

static void test_its_own_end(void **state)
{
	struct relay *relay = NULL;
	int ends[2];
	(void)state;
	assert_int_equal(relay_create(TR_RELAY_JOINED_MAX, &relay, NULL), TR_OK);
	assert_int_equal(relay_grant(relay, &pair, 1, NULL), TR_OK);
	join(relay, ends);
	int waits = say_new(relay, RELAY_WAIT, &pair);
	await(relay, 1, 1, 0);
	relay_destroy(relay);
	expect_closed(ends[0]);
	expect_closed(ends[1]);
	expect_closed(waits);
}

/* ---- who may ---- */

static void test_only_whom_memberd_granted(void **state)
{
	struct relay_grant wrong[] = { pair, pair, pair, pair, pair, pair };
	wrong[0].token[0]++;
	wrong[1].token[1]++;
	wrong[2].token[0] = wrong[2].token[1] = 0;
	wrong[3].group++;
	wrong[4].to++;
	wrong[5].from = pair.to; /* the other direction is another pair */
	wrong[5].to = pair.from;
	int waits = say_new(*state, RELAY_WAIT, &pair);
	await(*state, 0, 1, 0);
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		expect_refused(say_new(*state, RELAY_CALL, &wrong[i]), RELAY_CAUSE_UNKNOWN);
		expect_refused(say_new(*state, RELAY_WAIT, &wrong[i]), RELAY_CAUSE_UNKNOWN);
	}
	await(*state, 0, 1, 0);
	(void)close(waits);
	await(*state, 0, 0, 0);
}

static void test_nonsense(void **state)
{
	const struct relay_message joined = { .kind = RELAY_JOINED };
	uint8_t bytes[RELAY_MESSAGE_BYTES];
	memset(bytes, 0xff, sizeof(bytes));
	int fd = dial(*state);
	assert_int_equal(send(fd, bytes, sizeof(bytes), MSG_NOSIGNAL), sizeof(bytes));
	expect_closed(fd);
	relay_message_put(&joined, bytes);
	fd = dial(*state);
	assert_int_equal(send(fd, bytes, sizeof(bytes), MSG_NOSIGNAL), sizeof(bytes));
	expect_closed(fd);
	fd = dial(*state); /* goes away in the middle */
	assert_int_equal(send(fd, bytes, 7, MSG_NOSIGNAL), 7);
	(void)close(fd);
	fd = say_new(*state, RELAY_WAIT, &pair); /* speaks before it was called */
	send_text(fd, "hello?");
	expect_closed(fd);
	await(*state, 0, 0, 0);
}

/* Any bytes at all: the decoder takes what it wrote, and nothing else that would mean something. */
static void test_messages(void **state)
{
	uint64_t random = 1;
	(void)state;
	for (unsigned i = 0; i < 200000; i++) {
		uint8_t in[RELAY_MESSAGE_BYTES], out[RELAY_MESSAGE_BYTES];
		struct relay_message message;
		memset(in, 0, sizeof(in));
		bytes_put_u32(in, i % 6);
		bytes_put_u32(in + 4, i / 6 % 5);
		for (unsigned k = 8; k < 48; k++)
			in[k] = (uint8_t)((random = random * 6364136223846793005u + 1) >> 56);
		if (i % 7 == 0)
			in[48 + i % 16] = 1;
		if (relay_message_get(in, &message, NULL) != TR_OK)
			continue;
		relay_message_put(&message, out);
		assert_memory_equal(in, out, sizeof(in));
		assert_true(i % 6 >= RELAY_CALL && i % 6 <= RELAY_REFUSED && i % 7 != 0);
	}
}

static void test_silent_strangers_displace_nobody(void **state)
{
	int fds[TR_RELAY_STRANGERS_MAX + 1];
	int waits = say_new(*state, RELAY_WAIT, &pair);
	await(*state, 0, 1, 0);
	for (size_t i = 0; i < TR_RELAY_STRANGERS_MAX + 1; i++)
		fds[i] = dial(*state);
	expect_closed(fds[0]);
	int calls = say_new(*state, RELAY_CALL, &pair); /* that displaces another stranger */
	expect_joined(calls);
	expect_joined(waits);
	for (size_t i = 1; i < TR_RELAY_STRANGERS_MAX + 1; i++)
		(void)close(fds[i]);
	(void)close(calls);
	(void)close(waits);
}

/* Who lost its connection without a word waits once more: its oldest goes. */
static void test_bounds_of_a_pair(void **state)
{
	int waits[TR_RELAY_WAITS_MAX + 1], calls[TR_INBOUND_PEER_MAX];
	for (size_t i = 0; i < TR_RELAY_WAITS_MAX + 1; i++) {
		waits[i] = say_new(*state, RELAY_WAIT, &pair);
		await(*state, 0, i < TR_RELAY_WAITS_MAX ? (unsigned)i + 1 : TR_RELAY_WAITS_MAX, 0);
	}
	expect_closed(waits[0]);
	for (size_t i = 1; i < TR_RELAY_WAITS_MAX + 1; i++)
		(void)close(waits[i]);
	await(*state, 0, 0, 0);
	for (size_t i = 0; i < TR_INBOUND_PEER_MAX; i++)
		calls[i] = say_new(*state, RELAY_CALL, &pair);
	await(*state, 0, 0, TR_INBOUND_PEER_MAX);
	expect_refused(say_new(*state, RELAY_CALL, &pair), RELAY_CAUSE_FULL);
	for (size_t i = 0; i < TR_INBOUND_PEER_MAX; i++)
		(void)close(calls[i]);
	await(*state, 0, 0, 0);
}

/* Who waits at a relay that is full stays for a later call, and is missed when it goes. Whoever calls is told, all of them. */
static void test_full(void **state)
{
	struct relay *relay = NULL;
	int ends[2], calls[2];
	(void)state;
	assert_int_equal(relay_create(1, &relay, NULL), TR_OK);
	assert_int_equal(relay_grant(relay, &pair, 1, NULL), TR_OK);
	join(relay, ends);
	for (unsigned i = 0; i < 2; i++) {
		calls[i] = say_new(relay, RELAY_CALL, &pair);
		await(relay, 1, 0, i + 1);
	}
	int waits = say_new(relay, RELAY_WAIT, &pair);
	expect_refused(calls[0], RELAY_CAUSE_FULL);
	expect_refused(calls[1], RELAY_CAUSE_FULL);
	await(relay, 1, 1, 0);
	(void)close(waits);
	await(relay, 1, 0, 0);

	waits = say_new(relay, RELAY_WAIT, &pair);
	await(relay, 1, 1, 0);
	expect_refused(say_new(relay, RELAY_CALL, &pair), RELAY_CAUSE_FULL);
	(void)close(ends[0]);
	(void)close(ends[1]);
	await(relay, 0, 1, 0);
	calls[0] = say_new(relay, RELAY_CALL, &pair);
	expect_joined(calls[0]);
	expect_joined(waits);
	(void)close(calls[0]);
	(void)close(waits);
	relay_destroy(relay);
}

static void test_grants_change(void **state)
{
	const struct relay_grant other = { 4, 6, 5, { 13, 14 } };
	const struct relay_grant both[] = { pair, other };
	int ends[2], more[2];
	uint8_t byte;
	join(*state, ends);
	assert_int_equal(relay_grant(*state, both, 2, NULL), TR_OK);
	more[0] = say_new(*state, RELAY_CALL, &other);
	more[1] = say_new(*state, RELAY_WAIT, &other);
	expect_joined(more[0]);
	expect_joined(more[1]);
	int waits = say_new(*state, RELAY_WAIT, &pair);
	await(*state, 2, 1, 0);
	assert_int_equal(relay_grant(*state, &other, 1, NULL), TR_OK);
	expect_refused(waits, RELAY_CAUSE_UNKNOWN);
	expect_closed(ends[0]);
	expect_closed(ends[1]);
	send_text(more[0], "goes on");
	expect_text(more[1], "goes on");
	assert_int_equal(relay_grant(*state, NULL, 0, NULL), TR_OK);
	assert_true(recv(more[0], &byte, 1, 0) <= 0);
	(void)close(more[0]);
	(void)close(more[1]);
}

/* Without a grant there is no relay at all. */
static void test_nothing_granted(void **state)
{
	struct relay *relay = NULL;
	(void)state;
	assert_int_equal(relay_create(TR_RELAY_JOINED_MAX, &relay, NULL), TR_OK);
	int fd = dial(relay);
	expect_closed(fd);
	relay_destroy(relay);
}

#define RELAY_TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		RELAY_TEST(test_carries_both_ways),
		RELAY_TEST(test_either_comes_first),
		RELAY_TEST(test_back_pressure),
		RELAY_TEST(test_half_close),
		RELAY_TEST(test_an_end_breaks),
		cmocka_unit_test(test_its_own_end),
		RELAY_TEST(test_only_whom_memberd_granted),
		RELAY_TEST(test_nonsense),
		cmocka_unit_test(test_messages),
		RELAY_TEST(test_silent_strangers_displace_nobody),
		RELAY_TEST(test_bounds_of_a_pair),
		cmocka_unit_test(test_full),
		RELAY_TEST(test_grants_change),
		cmocka_unit_test(test_nothing_granted),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
