/* The listening port: what it hands on, and what it drops. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "collectives/transport/address.h"
#include "collectives/transport/listener.h"
#include "common/limits.h"
#include "common/log.h"
#include "tests/unit/machine.h"

struct fixture {
	uv_loop_t loop;
	struct listener *listener;
	unsigned accepted;
	enum listener_protocol protocol;
	int fd;
	char early[32];
	size_t early_bytes;
};

static void on_accepted(void *arg, enum listener_protocol protocol, struct stream stream,
    const void *early, size_t early_bytes)
{
	struct fixture *fx = arg;
	fx->accepted++;
	fx->protocol = protocol;
	if (fx->fd >= 0)
		(void)close(fx->fd);
	fx->fd = stream.fd;
	assert_in_range(early_bytes, 0, sizeof(fx->early));
	if (early_bytes > 0)
		memcpy(fx->early, early, early_bytes);
	fx->early_bytes = early_bytes;
}

static int setup(void **state)
{
	struct fixture *fx = calloc(1, sizeof(*fx));
	struct tr_error error = { 0 };
	assert_non_null(fx);
	fx->fd = -1;
	assert_int_equal(uv_loop_init(&fx->loop), 0);
	if (listener_start(&fx->loop, "127.0.0.1:0", false, NULL, on_accepted, fx, &fx->listener,
	        &error) != TR_OK)
		fail_msg("%s", error.text);
	*state = fx;
	return 0;
}

static int teardown(void **state)
{
	struct fixture *fx = *state;
	listener_stop(fx->listener);
	if (fx->fd >= 0)
		(void)close(fx->fd);
	(void)uv_run(&fx->loop, UV_RUN_DEFAULT);
	assert_int_equal(uv_loop_close(&fx->loop), 0);
	free(fx);
	return 0;
}

static int dial(const struct fixture *fx)
{
	struct sockaddr_in sa = { .sin_family = AF_INET };
	sa.sin_port = htons((uint16_t)atoi(strrchr(listener_address(fx->listener), ':') + 1));
	sa.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_true(fd >= 0);
	assert_int_equal(connect(fd, (struct sockaddr *)&sa, sizeof(sa)), 0);
	return fd;
}

static int dial_and_say(const struct fixture *fx, const char *text)
{
	int fd = dial(fx);
	assert_int_equal(send(fd, text, strlen(text), MSG_NOSIGNAL), strlen(text));
	return fd;
}

static void on_guard(uv_timer_t *timer)
{
	(void)timer;
	fail_msg("nothing happened for 30 s");
}

static void run_until_accepted(struct fixture *fx, unsigned least)
{
	uv_timer_t guard;
	(void)uv_timer_init(&fx->loop, &guard);
	(void)uv_timer_start(&guard, on_guard, 30000, 0);
	while (fx->accepted < least)
		(void)uv_run(&fx->loop, UV_RUN_ONCE);
	uv_close((uv_handle_t *)&guard, NULL);
	(void)uv_run(&fx->loop, UV_RUN_NOWAIT);
}

/* Runs the loop until the other end of fd is closed. */
static void run_until_dropped(struct fixture *fx, int fd)
{
	char byte;
	for (;;) {
		ssize_t n = recv(fd, &byte, 1, MSG_DONTWAIT);
		if (n == 0 || (n < 0 && errno == ECONNRESET))
			return;
		if (n > 0) /* who speaks TLS is told that this port does not */
			continue;
		assert_true(n < 0 && errno == EAGAIN);
		(void)uv_run(&fx->loop, UV_RUN_NOWAIT);
	}
}

/* ---- tests ---- */

static void protocols_are_told_apart(void **state)
{
	struct fixture *fx = *state;
	static const struct {
		const char *said;
		enum listener_protocol protocol;
		const char *early;
	} cases[] = {
		{ "TRAIND6\nrest", LISTENER_FRAMES, "" },
		{ "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", LISTENER_HTTP2, "PRI " },
		{ "GET / HTTP/1.1\r\n", LISTENER_HTTP1, "GET " },
		{ "HEAD / HTTP/1.1\r\n", LISTENER_HTTP1, "HEAD " },
	};
	for (unsigned i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		char all[64] = "";
		int fd = dial_and_say(fx, cases[i].said);
		run_until_accepted(fx, i + 1);
		assert_int_equal(fx->protocol, cases[i].protocol);
		assert_true(fx->early_bytes >= strlen(cases[i].early));
		memcpy(all, fx->early, fx->early_bytes);
		ssize_t n = recv(fx->fd, all + fx->early_bytes, sizeof(all) - fx->early_bytes - 1,
		    0);
		assert_true(n >= 0);
		/* early and what is left in the socket are all that was said, less the greeting */
		size_t skip = cases[i].protocol == LISTENER_FRAMES ? 8 : 0;
		assert_string_equal(all, cases[i].said + skip);
		(void)close(fd);
	}
}

static void greeting_in_pieces(void **state)
{
	struct fixture *fx = *state;
	int fd = dial(fx);
	for (const char *c = "TRAIND6\n"; *c != '\0'; c++) {
		assert_int_equal(fx->accepted, 0);
		assert_int_equal(send(fd, c, 1, MSG_NOSIGNAL), 1);
		for (int i = 0; i < 3; i++)
			(void)uv_run(&fx->loop, UV_RUN_NOWAIT);
	}
	run_until_accepted(fx, 1);
	assert_int_equal(fx->protocol, LISTENER_FRAMES);
	(void)close(fd);
}

static void garbage_is_dropped(void **state)
{
	struct fixture *fx = *state;
	static const char *const said[] = { "SSH-2.0-x", "TRAINE", "TRAIND1\n", "P",
		"\x16\x03\x01" };
	for (unsigned i = 0; i < sizeof(said) / sizeof(said[0]); i++) {
		int fd = dial_and_say(fx, said[i]);
		if (said[i][1] == '\0') /* could still become something */
			assert_int_equal(shutdown(fd, SHUT_WR), 0);
		run_until_dropped(fx, fd);
		(void)close(fd);
	}
	int fd = dial_and_say(fx, "TRAIND6\n"); /* others are unharmed */
	run_until_accepted(fx, 1);
	(void)close(fd);
}

static void silence_is_dropped(void **state)
{
	struct fixture *fx = *state;
	int silent = dial(fx);
	int half = dial_and_say(fx, "TRAIN");
	run_until_dropped(fx, silent); /* after TR_CONN_GREETING_TIMEOUT_MS */
	run_until_dropped(fx, half);
	(void)close(silent);
	(void)close(half);
	assert_int_equal(fx->accepted, 0);
}

static void thousands_of_idle_connections(void **state)
{
	struct fixture *fx = *state;
	enum { IDLE = 3000 };
	static int fds[IDLE];
	struct rlimit limit;
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
	struct rlimit more = { .rlim_cur = limit.rlim_max, .rlim_max = limit.rlim_max };
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &more), 0);
	int count = more.rlim_cur > IDLE + TR_CONN_UNGREETED_MAX + 100 ? IDLE : 600;
	for (int i = 0; i < count; i++) {
		fds[i] = dial(fx);
		(void)uv_run(&fx->loop, UV_RUN_NOWAIT);
	}
	run_until_dropped(fx, fds[0]); /* the oldest had to go */
	int fd = dial_and_say(fx, "TRAIND6\n");
	run_until_accepted(fx, 1);
	(void)close(fd);
	unsigned alive = 0;
	for (int i = 0; i < count; i++) {
		char byte;
		alive += recv(fds[i], &byte, 1, MSG_DONTWAIT) < 0 && errno == EAGAIN;
		(void)close(fds[i]);
	}
	assert_in_range(alive, 1, TR_CONN_UNGREETED_MAX);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
}

static void out_of_descriptors(void **state)
{
	struct fixture *fx = *state;
	struct rlimit limit;
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
	int fd = dial_and_say(fx, "TRAIND6\n");
	int lowest_free = fcntl(fd, F_DUPFD, 0);
	assert_true(lowest_free >= 0);
	(void)close(lowest_free);
	struct rlimit none = { .rlim_cur = (rlim_t)lowest_free, .rlim_max = limit.rlim_max };
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
	for (int i = 0; i < 30; i++)
		(void)uv_run(&fx->loop, UV_RUN_NOWAIT);
	assert_int_equal(fx->accepted, 0);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
	run_until_accepted(fx, 1);
	(void)close(fd);
}

static tr_status try_listen(struct fixture *fx, const char *address, bool insecure,
    struct tr_error *error)
{
	struct listener *listener = NULL;
	tr_status st = listener_start(&fx->loop, address, insecure, NULL, on_accepted, fx,
	    &listener, error);
	listener_stop(listener);
	return st;
}

static void addresses_are_checked(void **state)
{
	struct fixture *fx = *state;
	struct tr_error error = { 0 };
	assert_int_equal(try_listen(fx, "0.0.0.0:0", false, &error), TR_EREFUSED);
	assert_non_null(strstr(error.text, "--insecure"));
	assert_int_equal(try_listen(fx, "[::]:0", false, &error), TR_EREFUSED);
	assert_int_equal(try_listen(fx, "0.0.0.0:0", true, &error), TR_OK);
	assert_int_equal(try_listen(fx, "127.0.0.1", false, &error), TR_EINVAL);
	assert_int_equal(try_listen(fx, "no-such-host.invalid:0", false, &error), TR_EINVAL);
	assert_int_equal(try_listen(fx, "192.0.2.1:0", true, &error), TR_EINVAL); /* RFC 5737 */
	assert_non_null(strstr(error.text, "not one of this machine"));
	assert_int_equal(try_listen(fx, listener_address(fx->listener), false, &error), TR_EEXIST);
	assert_non_null(strstr(error.text, listener_address(fx->listener)));
}

static void plain_addresses_to_dial_are_checked(void **state)
{
	(void)state;
	static const char *const here[] = { "127.0.0.1:1", "127.9.9.9:1", "unix:/run/x" };
	static const char *const elsewhere[] = { "192.0.2.1:1", "[2001:db8::1]:1", "0.0.0.0:1",
		"no-such-host.invalid:1" };
	struct tr_error error = { 0 };
	for (size_t i = 0; i < sizeof(here) / sizeof(here[0]); i++)
		assert_int_equal(address_check_plain(here[i], false, &error), TR_OK);
	for (size_t i = 0; i < sizeof(elsewhere) / sizeof(elsewhere[0]); i++) {
		assert_int_equal(address_check_plain(elsewhere[i], false, &error), TR_EREFUSED);
		assert_non_null(strstr(error.text, elsewhere[i]));
		assert_non_null(strstr(error.text, "--insecure"));
		assert_int_equal(address_check_plain(elsewhere[i], true, &error), TR_OK);
		assert_int_equal(address_check_told(elsewhere[i], false, &error), TR_EREFUSED);
		assert_int_equal(address_check_told(elsewhere[i], true, &error), TR_OK);
	}
	for (size_t i = 0; i < sizeof(here) / sizeof(here[0]); i++)
		assert_int_equal(address_check_told(here[i], false, &error), TR_OK);
	assert_int_equal(address_check_told("localhost:1", false, &error), TR_OK);
	assert_int_equal(address_check_told("nowhere", false, &error), TR_EINVAL);
	assert_int_equal(address_check_plain("nowhere", true, &error), TR_EINVAL);
}

static void name_of_loopback(void **state)
{
	struct tr_error error = { 0 };
	if (!machine_has("localhost"))
		skip();
	assert_int_equal(try_listen(*state, "localhost:0", false, &error), TR_OK);
}

static void ipv6_loopback(void **state)
{
	struct tr_error error = { 0 };
	if (!machine_has("::1"))
		skip();
	assert_int_equal(try_listen(*state, "[::1]:0", false, &error), TR_OK);
}

static void unix_path_of_a_dead_owner(void **state)
{
	struct fixture *fx = *state;
	struct sockaddr_un sa = { .sun_family = AF_UNIX };
	char address[128];
	(void)snprintf(sa.sun_path, sizeof(sa.sun_path), "/tmp/test-listener-%d.sock", getpid());
	(void)snprintf(address, sizeof(address), "unix:%s", sa.sun_path);
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_int_equal(bind(fd, (struct sockaddr *)&sa, sizeof(sa)), 0);
	assert_int_equal(listen(fd, 1), 0);
	struct tr_error error = { 0 };
	assert_int_equal(try_listen(fx, address, false, &error), TR_EEXIST);
	(void)close(fd); /* the file stays, nobody listens */
	assert_int_equal(try_listen(fx, address, false, &error), TR_OK);
	assert_int_equal(access(sa.sun_path, F_OK), -1);
}

int main(void)
{
#define WITH_LISTENER(test) cmocka_unit_test_setup_teardown(test, setup, teardown)
	const struct CMUnitTest tests[] = {
		WITH_LISTENER(protocols_are_told_apart),
		WITH_LISTENER(greeting_in_pieces),
		WITH_LISTENER(garbage_is_dropped),
		WITH_LISTENER(silence_is_dropped),
		WITH_LISTENER(thousands_of_idle_connections),
		WITH_LISTENER(out_of_descriptors),
		WITH_LISTENER(addresses_are_checked),
		cmocka_unit_test(plain_addresses_to_dial_are_checked),
		WITH_LISTENER(name_of_loopback),
		WITH_LISTENER(ipv6_loopback),
		WITH_LISTENER(unix_path_of_a_dead_owner),
	};
	return cmocka_run_group_tests_name("listener", tests, NULL, NULL);
}
