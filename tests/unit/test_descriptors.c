/* Descriptors over UNIX sockets: what comes is taken or closed, whatever else is wrong with the message. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <cmocka.h>

#include "collectives/engine/channel.h"
#include "collectives/transport/descriptors.h"

#define SENT_MAX 16

static unsigned open_descriptors(void)
{
	unsigned count = 0;
	for (int fd = 0; fd < 256; fd++)
		count += fcntl(fd, F_GETFD) >= 0;
	return count;
}

/* `count` descriptors beside `bytes` zeroes. */
static void send_some(int fd, size_t bytes, unsigned count)
{
	static uint8_t zeroes[2 * sizeof(((struct channel_inbox *)0)->bytes)];
	_Alignas(struct cmsghdr) uint8_t space[DESCRIPTORS_SPACE(SENT_MAX)];
	struct iovec piece = { zeroes, bytes };
	struct msghdr message = { .msg_iov = &piece, .msg_iovlen = 1 };
	int fds[SENT_MAX];
	assert_true(bytes <= sizeof(zeroes) && count <= SENT_MAX);
	for (unsigned i = 0; i < count; i++)
		fds[i] = fd;
	descriptors_attach(&message, space, fds, count);
	assert_int_equal(sendmsg(fd, &message, MSG_NOSIGNAL), bytes);
}

static void what_fits_is_kept_and_the_rest_is_closed(void **state)
{
	(void)state;
	int ends[2], kept[3];
	unsigned before = open_descriptors(), count = 0;
	assert_int_equal(channel_pair(ends, NULL), TR_OK);
	for (unsigned i = 0; i < 2; i++) {
		_Alignas(struct cmsghdr) uint8_t space[DESCRIPTORS_SPACE(2)];
		uint8_t byte;
		struct iovec piece = { &byte, 1 };
		struct msghdr message = { .msg_iov = &piece,
			.msg_iovlen = 1,
			.msg_control = space,
			.msg_controllen = sizeof(space) };
		send_some(ends[0], 1, 2);
		assert_int_equal(recvmsg(ends[1], &message, MSG_CMSG_CLOEXEC), 1);
		assert_int_equal(descriptors_take(&message, kept, &count, 3), i == 0);
		assert_int_equal(count, 2 + i);
	}
	assert_int_equal(open_descriptors(), before + 2 + 3);
	for (unsigned i = 0; i < count; i++)
		(void)close(kept[i]);
	(void)close(ends[0]);
	(void)close(ends[1]);
	assert_int_equal(open_descriptors(), before);
}

/* A message of nothing, one that is too long, one with too many: traind must not keep open what a worker sent so. */
static void an_inbox_leaves_nothing_open(void **state)
{
	(void)state;
	static struct channel_inbox inbox;
	static const struct {
		size_t bytes;
		unsigned count;
		tr_status status;
	} cases[] = { { 0, 2, TR_EUNAVAILABLE }, { sizeof(inbox.bytes) + 8, 2, TR_EPROTO },
		{ 8, CHANNEL_DESCRIPTORS_MAX + 1, TR_EPROTO } };
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		int ends[2];
		unsigned before = open_descriptors();
		memset(&inbox, 0, sizeof(inbox));
		assert_int_equal(channel_pair(ends, NULL), TR_OK);
		send_some(ends[0], cases[i].bytes, cases[i].count);
		assert_int_equal(channel_inbox_fill(&inbox, ends[1]), cases[i].status);
		channel_inbox_finish(&inbox);
		(void)close(ends[0]);
		(void)close(ends[1]);
		assert_int_equal(open_descriptors(), before);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_fits_is_kept_and_the_rest_is_closed),
		cmocka_unit_test(an_inbox_leaves_nothing_open),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
