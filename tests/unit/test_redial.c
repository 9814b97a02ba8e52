/* When memberd is dialled anew beside a connection to it, and which of the two counts. A cut way is a socket that throws away what arrives, so that its kernel does not answer. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <errno.h>
#include <linux/filter.h>

#include "collectives/engine/redial.h"
#include "collectives/transport/conn.h"
#include "common/limits.h"
#include "tests/unit/link_fixture.h"

static bool due(uint32_t resent, uint32_t quiet_ms, uint32_t rto_ms)
{
	return redial_due(&(struct tcp_path){ .waits = true,
	    .resent = resent,
	    .quiet_ms = quiet_ms,
	    .rto_us = rto_ms * 1000 });
}

static void it_is_due_by_the_way_s_own_timeouts(void **state)
{
	(void)state;
	assert_true(due(2, 600, 200));
	assert_true(due(3, 1400, 200));
	assert_false(due(1, 600, 200));   /* a loss: the first try may be on its way */
	assert_false(due(2, 599, 200));   /* what was sent after it has an answer */
	assert_false(due(0, 10000, 200)); /* nothing to answer */
	assert_false(due(2, 1000, 350));  /* far away */
	assert_true(due(2, 1050, 350));
}

static void a_dial_has_as_long_as_its_way_asks_for(void **state)
{
	(void)state;
	assert_int_equal(redial_patience_ms(0, 60000), 0);
	assert_int_equal(redial_patience_ms(0.0001, 0), 400);
	assert_int_equal(redial_patience_ms(0.15, 0), 1200);
	assert_int_equal(redial_patience_ms(60, 0), TR_CONN_DIAL_TIMEOUT_MS);
}

/* Its way was 0.1 ms, and is some hundred now. */
static void a_dial_has_the_longer_the_more_silence_was_before_it(void **state)
{
	(void)state;
	assert_int_equal(redial_patience_ms(0.0001, 12000), 400);
	assert_int_equal(redial_patience_ms(0.0001, 16000), 500);
	assert_int_equal(redial_patience_ms(0.15, 16000), 1200);
	assert_int_equal(redial_patience_ms(0.0001, 64000), 2000);
	assert_int_equal(redial_patience_ms(0.0001, 3600000), TR_CONN_DIAL_TIMEOUT_MS);
}

static void cut(int fd)
{
	struct sock_filter nothing[] = { BPF_STMT(BPF_RET | BPF_K, 0) };
	const struct sock_fprog program = { .len = 1, .filter = nothing };
	assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof(program)), 0);
}

static void welcome(int fd)
{
	Traind__Peer__ToNode message = TRAIND__PEER__TO_NODE__INIT;
	Traind__Peer__Welcome welcome = TRAIND__PEER__WELCOME__INIT;
	welcome.node_id = 1;
	welcome.heartbeat_interval_ms = 50;
	message.body_case = TRAIND__PEER__TO_NODE__BODY_WELCOME;
	message.welcome = &welcome;
	say(fd, &message);
}

static void await_welcomes(uv_loop_t *loop, unsigned count)
{
	for (unsigned tries = 0; heard.welcomes < count; tries++) {
		assert_true(tries < 10000);
		heard.behind = false;
		turn(loop, 1);
	}
}

/* The next one that is dialled. */
static int taken(uv_loop_t *loop, int port)
{
	int fd = -1;
	for (unsigned tries = 0; fd < 0; tries++) {
		assert_true(tries < 10000);
		turn(loop, 1);
		fd = accept4(port, NULL, NULL, SOCK_NONBLOCK);
	}
	return fd;
}

/* What is left in it, until the other end has closed it. */
static void await_end(uv_loop_t *loop, int fd)
{
	char bytes[4096];
	ssize_t n = -1;
	for (unsigned tries = 0; n != 0; tries++) {
		assert_true(tries < 10000);
		turn(loop, 1);
		n = recv(fd, bytes, sizeof(bytes), MSG_DONTWAIT);
		assert_true(n >= 0 || errno == EAGAIN);
	}
}

static void the_new_one_counts_once_the_old_one_has_no_answer(void **state)
{
	(void)state;
	uv_loop_t loop;
	struct link link;
	int on = 0, port, old = begin(&loop, &link, &port);
	assert_int_equal(ioctl(port, FIONBIO, &(int){ 1 }), 0);
	welcome(old);
	await_welcomes(&loop, 1);
	int lifeline = taken(&loop, port);
	cut(old);
	int fresh = taken(&loop, port);
	for (unsigned tries = 0; heard.lost == 0; tries++) {
		assert_true(tries < 10000);
		turn(&loop, 1);
	}
	/* The way is there again, and memberd knows the old one alone: closed, it would mean that the node is gone. */
	assert_int_equal(setsockopt(old, SOL_SOCKET, SO_DETACH_FILTER, &on, sizeof(on)), 0);
	welcome(old); /* too late: not heard */
	turn(&loop, 100);
	assert_int_equal(heard.welcomes, 1);
	char byte;
	ssize_t n;
	do
		n = recv(old, &byte, 1, MSG_DONTWAIT);
	while (n == 1);
	assert_int_equal(n, -1); /* open */
	welcome(fresh);
	await_welcomes(&loop, 2);
	assert_int_equal(heard.lost, 1);
	await_end(&loop, old);
	(void)close(old);
	(void)close(lifeline);
	end(&loop, &link, fresh, port);
}

/* Given up for its silence, say, in the moment in which the new one is there: that is used, and it is no failure. */
static void the_new_one_counts_while_the_old_one_closes(void **state)
{
	(void)state;
	uv_loop_t loop;
	struct link link;
	int port, old = begin(&loop, &link, &port);
	assert_int_equal(ioctl(port, FIONBIO, &(int){ 1 }), 0);
	welcome(old);
	await_welcomes(&loop, 1);
	int lifeline = taken(&loop, port);
	cut(old);
	for (unsigned tries = 0; link.fresh == NULL || conn_socket(link.fresh) < 0; tries++) {
		assert_true(tries < 100000);
		(void)uv_run(&loop, UV_RUN_NOWAIT);
		(void)usleep(100);
	}
	struct conn *fresh = link.fresh;
	conn_close(link.conn, "silent");
	int fd = taken(&loop, port);
	welcome(fd);
	await_welcomes(&loop, 2);
	assert_ptr_equal(link.conn, fresh);
	assert_int_equal(heard.lost, 1);
	assert_int_equal(heard.failed, 0);
	(void)close(old);
	(void)close(lifeline);
	end(&loop, &link, fd, port);
}

/* Answers by its kernel, reads and says nothing: stopped, or busy. */
static void who_stands_still_is_not_dialled_again(void **state)
{
	(void)state;
	uv_loop_t loop;
	struct link link;
	int port, fd = begin(&loop, &link, &port);
	assert_int_equal(ioctl(port, FIONBIO, &(int){ 1 }), 0);
	welcome(fd);
	await_welcomes(&loop, 1);
	int lifeline = taken(&loop, port);
	unsigned before = heard.beats;
	heard.behind = false;
	for (unsigned tries = 0; heard.beats < before + 30; tries++) {
		assert_true(tries < 10000);
		turn(&loop, 1);
	}
	assert_int_equal(accept(port, NULL, NULL), -1);
	assert_int_equal(heard.lost, 0);
	(void)close(lifeline);
	end(&loop, &link, fd, port);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(it_is_due_by_the_way_s_own_timeouts),
		cmocka_unit_test(a_dial_has_as_long_as_its_way_asks_for),
		cmocka_unit_test(a_dial_has_the_longer_the_more_silence_was_before_it),
		cmocka_unit_test(the_new_one_counts_once_the_old_one_has_no_answer),
		cmocka_unit_test(the_new_one_counts_while_the_old_one_closes),
		cmocka_unit_test(who_stands_still_is_not_dialled_again),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
