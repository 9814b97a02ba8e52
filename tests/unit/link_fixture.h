/* A link whose memberd is a socket of the test's, and what the link said of it. */
#ifndef TR_TESTS_LINK_FIXTURE_H
#define TR_TESTS_LINK_FIXTURE_H

#include <arpa/inet.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>
#include <cmocka.h>

#include "collectives/engine/link.h"
#include "proto/frame.h"

static struct {
	unsigned welcomes, messages, beats, lost, failed;
	bool behind;
} heard;

static inline void on_hello(void *arg, Traind__Peer__NodeHello *hello)
{
	(void)arg;
	hello->incarnation = 9;
}

static inline void on_heartbeat(void *arg, Traind__Peer__Heartbeat *heartbeat)
{
	(void)arg;
	(void)heartbeat;
	heard.beats++;
}

static inline void on_welcome(void *arg, const Traind__Peer__Welcome *welcome)
{
	(void)arg;
	(void)welcome;
	heard.welcomes++;
}

static inline void on_message(void *arg, const Traind__Peer__ToNode *message)
{
	(void)arg;
	heard.messages += message->body_case == TRAIND__PEER__TO_NODE__BODY_ROUNDS_RECORDED;
	heard.behind = true;
}

static inline void on_lost(void *arg)
{
	(void)arg;
	heard.lost++;
}

static inline void on_failed(void *arg, const char *reason)
{
	(void)arg;
	(void)reason;
	heard.failed++;
}

static inline bool is_behind(void *arg)
{
	(void)arg;
	return heard.behind;
}

static const struct link_callbacks callbacks = { .hello = on_hello,
	.heartbeat = on_heartbeat,
	.welcome = on_welcome,
	.message = on_message,
	.lost = on_lost,
	.failed = on_failed,
	.behind = is_behind };

static inline void say(int fd, const Traind__Peer__ToNode *message)
{
	uint8_t bytes[FRAME_HEADER_BYTES + 64];
	size_t count = traind__peer__to_node__pack(message, bytes + FRAME_HEADER_BYTES);
	struct frame_header header = { .length = (uint32_t)count, .type = FRAME_TO_NODE };
	frame_header_put(&header, bytes);
	assert_int_equal(write(fd, bytes, FRAME_HEADER_BYTES + count), FRAME_HEADER_BYTES + count);
}

static inline void turn(uv_loop_t *loop, unsigned ms)
{
	for (uint64_t until = uv_hrtime() + ms * UINT64_C(1000000); uv_hrtime() < until;) {
		(void)uv_run(loop, UV_RUN_NOWAIT);
		(void)usleep(1000);
	}
}

/* A link that memberd, a socket of ours, has taken. */
static inline int begin(uv_loop_t *loop, struct link *link, int *port)
{
	struct sockaddr_in at = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t length = sizeof(at);
	char address[64];
	memset(&heard, 0, sizeof(heard));
	*port = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_int_equal(bind(*port, (struct sockaddr *)&at, length), 0);
	assert_int_equal(listen(*port, 8), 0);
	assert_int_equal(getsockname(*port, (struct sockaddr *)&at, &length), 0);
	(void)snprintf(address, sizeof(address), "127.0.0.1:%u", ntohs(at.sin_port));
	assert_int_equal(uv_loop_init(loop), 0);
	assert_int_equal(link_start(link, loop, address, NULL, &callbacks, NULL, NULL), TR_OK);
	turn(loop, 50);
	int fd = accept(*port, NULL, NULL);
	assert_true(fd >= 0);
	return fd;
}

static inline void end(uv_loop_t *loop, struct link *link, int fd, int port)
{
	link_close(link, "over");
	(void)close(fd);
	(void)close(port);
	(void)uv_run(loop, UV_RUN_DEFAULT);
	assert_int_equal(uv_loop_close(loop), 0);
}

#endif
