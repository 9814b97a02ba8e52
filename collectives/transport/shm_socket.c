#include "collectives/transport/shm_socket.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "collectives/transport/descriptors.h"
#include "common/limits.h"

/* All members of a group that are on this host may dial before the loop turns, and who finds no room takes TCP. */
#define BACKLOG (4 * TR_GROUP_PEERS_MAX)

static socklen_t name_address(const char *name, struct sockaddr_un *address)
{
	size_t bytes = strnlen(name, sizeof(address->sun_path) - 1);
	*address = (struct sockaddr_un){ .sun_family = AF_UNIX };
	memcpy(address->sun_path + 1, name, bytes);
	return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + bytes);
}

static int make_socket(void)
{
	return socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
}

tr_status shm_socket_listen(char *name, size_t name_bytes, int *fd, struct tr_error *error)
{
	uint64_t random[2];
	struct sockaddr_un address;
	if (getrandom(random, sizeof(random), 0) != sizeof(random))
		return tr_error_set(error, TR_EIO, "no random numbers: %s", strerror(errno));
	(void)snprintf(name, name_bytes, "traind-%016" PRIx64 "%016" PRIx64, random[0], random[1]);
	socklen_t bytes = name_address(name, &address);
	int made = make_socket();
	if (made < 0 || bind(made, (struct sockaddr *)&address, bytes) != 0 ||
	    listen(made, BACKLOG) != 0) {
		(void)tr_error_set(error, TR_EIO, "cannot listen on a UNIX socket: %s",
		    strerror(errno));
		if (made >= 0)
			(void)close(made);
		return TR_EIO;
	}
	*fd = made;
	return TR_OK;
}

tr_status shm_socket_dial(const char *name, int *fd, struct tr_error *error)
{
	struct sockaddr_un address;
	socklen_t bytes = name_address(name, &address);
	int made = make_socket();
	if (made < 0 || connect(made, (struct sockaddr *)&address, bytes) != 0) {
		(void)tr_error_set(error, TR_EUNAVAILABLE, "its UNIX socket does not answer: %s",
		    strerror(errno));
		if (made >= 0)
			(void)close(made);
		return TR_EUNAVAILABLE;
	}
	*fd = made;
	return TR_OK;
}

tr_status shm_socket_check_peer(int fd, pid_t *pid, struct tr_error *error)
{
	struct ucred who;
	socklen_t bytes = sizeof(who);
	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &bytes) != 0)
		return tr_error_set(error, TR_EREFUSED, "its user is unknown: %s", strerror(errno));
	if (who.uid != geteuid() && who.uid != 0)
		return tr_error_set(error, TR_EREFUSED, "it belongs to user %u, we to user %u",
		    (unsigned)who.uid, (unsigned)geteuid());
	*pid = who.pid;
	return TR_OK;
}

tr_status shm_socket_send(int fd, const struct shm_message *message, const int *descriptors,
    unsigned count)
{
	_Alignas(struct cmsghdr) uint8_t space[DESCRIPTORS_SPACE(SHM_SOCKET_DESCRIPTORS)];
	struct iovec piece = { (void *)(uintptr_t)message, sizeof(*message) };
	struct msghdr header = { .msg_iov = &piece, .msg_iovlen = 1 };
	assert(count <= SHM_SOCKET_DESCRIPTORS);
	descriptors_attach(&header, space, descriptors, count);
	ssize_t n;
	do {
		n = sendmsg(fd, &header, MSG_NOSIGNAL | MSG_DONTWAIT);
	} while (n < 0 && errno == EINTR);
	if (n == (ssize_t)sizeof(*message))
		return TR_OK;
	/* ETOOMANYREFS: too many descriptors are on their way already. */
	if (n < 0 &&
	    (errno == EAGAIN || errno == EWOULDBLOCK || errno == ENOBUFS || errno == ETOOMANYREFS))
		return TR_EAGAIN;
	return TR_EUNAVAILABLE;
}

static void close_all(struct shm_received *received)
{
	while (received->descriptor_count > 0)
		(void)close(received->descriptors[--received->descriptor_count]);
}

tr_status shm_socket_receive(int fd, struct shm_received *received)
{
	_Alignas(struct cmsghdr) uint8_t space[DESCRIPTORS_SPACE(SHM_SOCKET_DESCRIPTORS)];
	struct iovec piece = { &received->message, sizeof(received->message) };
	struct msghdr header = { .msg_iov = &piece,
		.msg_iovlen = 1,
		.msg_control = space,
		.msg_controllen = sizeof(space) };
	ssize_t n;
	received->descriptor_count = 0;
	do {
		n = recvmsg(fd, &header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	} while (n < 0 && errno == EINTR);
	if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
		return TR_EAGAIN;
	if (n < 0)
		return TR_EUNAVAILABLE;
	bool whole = descriptors_take(&header, received->descriptors, &received->descriptor_count,
	                 SHM_SOCKET_DESCRIPTORS) &&
	    (header.msg_flags & MSG_TRUNC) == 0;
	if (n == 0 && received->descriptor_count == 0)
		return TR_EUNAVAILABLE;
	if (whole && n == (ssize_t)sizeof(received->message) &&
	    received->message.version == SHM_SOCKET_VERSION)
		return TR_OK;
	close_all(received);
	return TR_EPROTO;
}

bool shm_socket_is_bell(int fd)
{
	char path[64], target[64];
	int flags = fcntl(fd, F_GETFL);
	(void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	ssize_t n = readlink(path, target, sizeof(target) - 1);
	if (n < 0 || flags < 0 || (flags & O_NONBLOCK) == 0)
		return false;
	target[n] = '\0';
	return strcmp(target, "anon_inode:[eventfd]") == 0;
}

void shm_socket_ring(int bell)
{
	uint64_t one = 1;
	ssize_t ignored = write(bell, &one, sizeof(one));
	(void)ignored; /* full: it is rung already */
}
