/* The lifeline over TLS: a handshake that comes to nothing is given up and tried once more, and said. */
#include <arpa/inet.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include <cmocka.h>

#include "collectives/engine/lifeline.h"
#include "proto/frame.h"
#include "tests/unit/tls_files.h"

static int listen_at(char address[64])
{
	struct sockaddr_in at = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t length = sizeof(at);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_int_equal(bind(fd, (struct sockaddr *)&at, length), 0);
	assert_int_equal(listen(fd, 8), 0);
	assert_int_equal(getsockname(fd, (struct sockaddr *)&at, &length), 0);
	(void)snprintf(address, 64, "127.0.0.1:%u", ntohs(at.sin_port));
	return fd;
}

/* Accepts, says nothing, and reads until the other end gives up. */
static void be_silent(int listener)
{
	uint8_t bytes[4096];
	ssize_t n, all = 0;
	int fd = accept(listener, NULL, NULL);
	assert_true(fd >= 0);
	while ((n = read(fd, bytes, sizeof(bytes))) > 0)
		all += n;
	assert_true(all > 0);
	(void)close(fd);
}

static void a_handshake_without_an_answer_is_tried_once_more(void **state)
{
	(void)state;
	struct tls_files files;
	char address[64], words[LIFELINE_WORDS_MAX];
	uint8_t hello[FRAME_GREETING_BYTES];
	tls_files_make(&files);
	struct tls_context *ours = tls_files_node(&files, "ours"),
	                   *theirs = tls_files_node(&files, "theirs");
	int listener = listen_at(address);
	struct lifeline *lifeline = lifeline_start(ours, "127.0.0.1");
	lifeline_tie(lifeline, address, 7, 9, 1);
	be_silent(listener);
	int fd = accept(listener, NULL, NULL);
	struct tls *tls = tls_create(theirs, fd, NULL);
	const struct iovec piece = { hello, sizeof(hello) };
	if (tls_handshake(tls) != TLS_DONE)
		fail_msg("%s", tls_error(tls));
	assert_int_equal(tls_read(tls, &piece, 1), sizeof(hello));
	assert_memory_equal(hello, FRAME_GREETING, sizeof(hello));
	assert_false(lifeline_failed(lifeline, words));
	/* memberd came back elsewhere, and twice there is no answer: nobody is waited for any longer. */
	lifeline_tie(lifeline, address, 7, 9, 1);
	be_silent(listener);
	be_silent(listener);
	while (!lifeline_failed(lifeline, words))
		(void)usleep(1000);
	assert_string_equal(words, "no answer in the TLS handshake");
	assert_false(lifeline_failed(lifeline, words));
	lifeline_end(lifeline);
	tls_destroy(tls);
	(void)close(fd);
	(void)close(listener);
	tls_context_release(ours);
	tls_context_release(theirs);
	tls_files_end(&files);
}

/* As all who dial one (conn.h): its port speaks no TLS, whatever the others do. */
static void to_a_unix_socket_it_is_plain(void **state)
{
	(void)state;
	struct tls_files files;
	struct sockaddr_un at = { .sun_family = AF_UNIX };
	char address[128], words[LIFELINE_WORDS_MAX];
	uint8_t hello[FRAME_GREETING_BYTES];
	tls_files_make(&files);
	struct tls_context *ours = tls_files_node(&files, "ours");
	(void)snprintf(at.sun_path, sizeof(at.sun_path), "/tmp/test-lifeline-%d.sock", getpid());
	(void)snprintf(address, sizeof(address), "unix:%s", at.sun_path);
	int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_int_equal(bind(listener, (struct sockaddr *)&at, sizeof(at)), 0);
	assert_int_equal(listen(listener, 8), 0);
	struct lifeline *lifeline = lifeline_start(ours, at.sun_path);
	lifeline_tie(lifeline, address, 7, 9, 1);
	int fd = accept(listener, NULL, NULL);
	assert_int_equal(recv(fd, hello, sizeof(hello), MSG_WAITALL), sizeof(hello));
	assert_memory_equal(hello, FRAME_GREETING, sizeof(hello));
	assert_false(lifeline_failed(lifeline, words));
	lifeline_end(lifeline);
	(void)close(fd);
	(void)close(listener);
	(void)unlink(at.sun_path);
	tls_context_release(ours);
	tls_files_end(&files);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_handshake_without_an_answer_is_tried_once_more),
		cmocka_unit_test(to_a_unix_socket_it_is_plain),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
