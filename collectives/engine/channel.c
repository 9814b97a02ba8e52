#include "collectives/engine/channel.h"

#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "collectives/transport/descriptors.h"
#include "common/error.h"

tr_status channel_pair(int ends[2], struct tr_error *error)
{
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0)
		return tr_error_set(error, TR_EIO, "cannot make a worker's channel: %s",
		    strerror(errno));
	return TR_OK;
}

uint64_t channel_now_us(void)
{
	struct timespec now;
	(void)clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

uint64_t channel_waited_us(uint64_t word)
{
	return (word & 1) != 0 ? channel_now_us() - (word >> 1) : word >> 1;
}

/* Moves `pieces` on by what was sent. */
static void pieces_advance(struct msghdr *message, size_t sent)
{
	while (message->msg_iovlen > 0 && sent >= message->msg_iov->iov_len) {
		sent -= message->msg_iov->iov_len;
		message->msg_iov++;
		message->msg_iovlen--;
	}
	if (message->msg_iovlen > 0) {
		message->msg_iov->iov_base = (uint8_t *)message->msg_iov->iov_base + sent;
		message->msg_iov->iov_len -= sent;
	}
}

tr_status channel_send(int fd, uint32_t kind, const void *head, size_t head_bytes, const void *body,
    size_t body_bytes, const int *descriptors, unsigned descriptor_count)
{
	struct channel_message header = { kind, (uint32_t)(head_bytes + body_bytes) };
	struct iovec pieces[3] = {
		{ &header, sizeof(header) },
		{ (void *)(uintptr_t)head, head_bytes },
		{ (void *)(uintptr_t)body, body_bytes },
	};
	_Alignas(struct cmsghdr) uint8_t space[DESCRIPTORS_SPACE(CHANNEL_DESCRIPTORS_MAX)];
	struct msghdr message = { .msg_iov = pieces, .msg_iovlen = 3 };
	assert(descriptor_count <= CHANNEL_DESCRIPTORS_MAX);
	if (header.bytes > TR_CHANNEL_MESSAGE_MAX)
		return TR_ELIMIT;
	descriptors_attach(&message, space, descriptors, descriptor_count);
	while (message.msg_iovlen > 0) {
		ssize_t n = sendmsg(fd, &message, MSG_NOSIGNAL);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
			struct pollfd wait = { .fd = fd, .events = POLLOUT };
			(void)poll(&wait, 1, -1);
			continue;
		}
		if (n < 0)
			return TR_EUNAVAILABLE;
		pieces_advance(&message, (size_t)n);
		message.msg_control = NULL;
		message.msg_controllen = 0;
	}
	return TR_OK;
}

tr_status channel_inbox_fill(struct channel_inbox *inbox, int fd)
{
	_Alignas(struct cmsghdr) uint8_t space[DESCRIPTORS_SPACE(CHANNEL_DESCRIPTORS_MAX)];
	memmove(inbox->bytes, inbox->bytes + inbox->begin, inbox->end - inbox->begin);
	inbox->end -= inbox->begin;
	inbox->begin = 0;
	struct iovec piece = { inbox->bytes + inbox->end, sizeof(inbox->bytes) - inbox->end };
	struct msghdr message = { .msg_iov = &piece,
		.msg_iovlen = 1,
		.msg_control = space,
		.msg_controllen = sizeof(space) };
	ssize_t n;
	do {
		n = recvmsg(fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	} while (n < 0 && errno == EINTR);
	if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
		return TR_EAGAIN;
	if (n < 0)
		return TR_EUNAVAILABLE;
	/* They are ours to close whatever is said beside them. */
	bool whole = descriptors_take(&message, inbox->descriptors, &inbox->descriptor_count,
	    CHANNEL_DESCRIPTORS_MAX);
	if (n == 0)
		return TR_EUNAVAILABLE;
	inbox->end += (size_t)n;
	return whole && (message.msg_flags & MSG_TRUNC) == 0 ? TR_OK : TR_EPROTO;
}

tr_status channel_inbox_next(struct channel_inbox *inbox, struct channel_message *message,
    const uint8_t **payload)
{
	size_t held = inbox->end - inbox->begin;
	if (held < sizeof(*message))
		return TR_EAGAIN;
	memcpy(message, inbox->bytes + inbox->begin, sizeof(*message));
	if (message->bytes > TR_CHANNEL_MESSAGE_MAX)
		return TR_EPROTO;
	if (held < sizeof(*message) + message->bytes)
		return TR_EAGAIN;
	*payload = inbox->bytes + inbox->begin + sizeof(*message);
	inbox->begin += sizeof(*message) + message->bytes;
	return TR_OK;
}

int channel_inbox_descriptor(struct channel_inbox *inbox)
{
	if (inbox->descriptor_count == 0)
		return -1;
	int fd = inbox->descriptors[0];
	inbox->descriptor_count--;
	memmove(inbox->descriptors, inbox->descriptors + 1, inbox->descriptor_count * sizeof(int));
	return fd;
}

void channel_inbox_finish(struct channel_inbox *inbox)
{
	for (int fd = channel_inbox_descriptor(inbox); fd >= 0; fd = channel_inbox_descriptor(inbox))
		(void)close(fd);
	inbox->begin = inbox->end = 0;
}
