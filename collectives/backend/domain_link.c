#include "collectives/backend/domain_link.h"
#include "common/error.h"

#include <errno.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define LINK_VERSION     1u
#define LINK_HELLO_MS    2000 /* for who has connected to say hello */
#define LINK_SEND_MS     5000
#define LINK_QUEUE_BYTES (1 << 20)

void domain_link_init(struct domain_link *link)
{
	*link = (struct domain_link){ .listener = -1 };
	for (unsigned i = 0; i < TR_DOMAIN_MEMBERS_MAX; i++)
		link->fds[i] = -1;
}

static void link_close_listener(struct domain_link *link)
{
	if (link->listener >= 0)
		(void)close(link->listener);
	link->listener = -1;
	if (link->path[0] != '\0')
		(void)unlink(link->path);
	link->path[0] = '\0';
}

void domain_link_close(struct domain_link *link)
{
	link_close_listener(link);
	for (unsigned i = 0; i < TR_DOMAIN_MEMBERS_MAX; i++)
		domain_link_drop(link, i);
}

void domain_link_drop(struct domain_link *link, unsigned member)
{
	if (link->fds[member] >= 0)
		(void)close(link->fds[member]);
	link->fds[member] = -1;
}

static tr_status link_address(const char *address, struct sockaddr_un *un, socklen_t *bytes,
    struct tr_error *error)
{
	size_t length = strlen(address);
	*un = (struct sockaddr_un){ .sun_family = AF_UNIX };
	if (length == 0 || length >= sizeof(un->sun_path) || length >= TR_ADDRESS_MAX)
		return tr_error_set(error, TR_EINVAL,
		    "a domain's address is a path of 1 to %zu bytes or @name, not '%s'",
		    sizeof(un->sun_path) - 1, address);
	memcpy(un->sun_path, address, length);
	*bytes = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + length);
	if (address[0] == '@')
		un->sun_path[0] = '\0';
	else
		*bytes += 1;
	return TR_OK;
}

static void link_tune(int fd, uint32_t send_ms)
{
	int bytes = LINK_QUEUE_BYTES;
	struct timeval limit = { .tv_sec = send_ms / 1000, .tv_usec = (send_ms % 1000) * 1000 };
	(void)setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof(bytes));
	(void)setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
}

tr_status domain_link_listen(struct domain_link *link, const char *address, unsigned members,
    struct tr_error *error)
{
	struct sockaddr_un un;
	socklen_t bytes;
	tr_status st = link_address(address, &un, &bytes, error);
	if (st != TR_OK)
		return st;
	link->members = members;
	link->listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (link->listener < 0)
		return tr_error_set(error, TR_EIO, "socket: %s", strerror(errno));
	if (bind(link->listener, (struct sockaddr *)&un, bytes) != 0 ||
	    listen(link->listener, TR_DOMAIN_MEMBERS_MAX) != 0) {
		st = tr_error_set(error, TR_EUNAVAILABLE,
		    "the domain's leader cannot listen at %s: %s", address, strerror(errno));
		link_close_listener(link);
		return st;
	}
	if (address[0] != '@')
		(void)snprintf(link->path, sizeof(link->path), "%s", address);
	return TR_OK;
}

static bool link_readable(int fd, int wait_ms)
{
	return poll(&(struct pollfd){ .fd = fd, .events = POLLIN }, 1, wait_ms) > 0;
}

/* Whoever is no member of ours is let go without a word. */
static void link_let_in(struct domain_link *link, int fd)
{
	struct domain_message hello = { 0 };
	struct ucred who = { 0 };
	socklen_t bytes = sizeof(who);
	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &bytes) != 0 || who.uid != geteuid() ||
	    !link_readable(fd, LINK_HELLO_MS) ||
	    recv(fd, &hello, sizeof(hello), MSG_DONTWAIT) <
	        (ssize_t)offsetof(struct domain_message, text) ||
	    hello.kind != DOMAIN_HELLO || hello.view != LINK_VERSION || hello.rank == 0 ||
	    hello.rank >= link->members || link->fds[hello.rank] >= 0) {
		(void)close(fd);
		return;
	}
	link_tune(fd, LINK_SEND_MS);
	link->fds[hello.rank] = fd;
	link->pids[hello.rank] = who.pid;
}

tr_status domain_link_accept(struct domain_link *link, int wait_ms, struct tr_error *error)
{
	char missing[256] = "";
	size_t used = 0;
	unsigned count = 0;
	if (link->members > 1 && link_readable(link->listener, wait_ms)) {
		int fd = accept4(link->listener, NULL, NULL, SOCK_CLOEXEC);
		if (fd >= 0)
			link_let_in(link, fd);
	}
	for (unsigned i = 1; i < link->members; i++) {
		if (link->fds[i] >= 0)
			continue;
		count++;
		if (used < sizeof(missing) - 16)
			used += (size_t)snprintf(missing + used, sizeof(missing) - used, " %u", i);
	}
	if (count > 0)
		return tr_error_set(error, TR_EAGAIN,
		    "of the domain's %u members these did not come: rank%s", link->members,
		    missing);
	link_close_listener(link);
	return TR_OK;
}

tr_status domain_link_dial(struct domain_link *link, const char *address, unsigned number,
    uint32_t send_ms, struct tr_error *error)
{
	struct sockaddr_un un;
	socklen_t bytes;
	struct ucred who = { 0 };
	socklen_t who_bytes = sizeof(who);
	tr_status st = link_address(address, &un, &bytes, error);
	if (st != TR_OK)
		return st;
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return tr_error_set(error, TR_EIO, "socket: %s", strerror(errno));
	if (connect(fd, (struct sockaddr *)&un, bytes) != 0) {
		st = errno == ENOENT || errno == ECONNREFUSED || errno == EAGAIN ? TR_EAGAIN
		                                                                 : TR_EIO;
		(void)tr_error_set(error, st, "the domain's leader does not listen at %s: %s",
		    address, strerror(errno));
		(void)close(fd);
		return st;
	}
	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &who_bytes) != 0 || who.uid != geteuid()) {
		(void)close(fd);
		return tr_error_set(error, TR_EREFUSED, "another user's process listens at %s",
		    address);
	}
	link_tune(fd, send_ms);
	link->members = 1;
	link->fds[0] = fd;
	link->pids[0] = who.pid;
	struct domain_message hello = { .kind = DOMAIN_HELLO, .view = LINK_VERSION, .rank = number };
	if (!domain_link_send(link, 0, &hello))
		return tr_error_set(error, TR_EPEERLOST, "the domain's leader is gone");
	return TR_OK;
}

bool domain_link_send(struct domain_link *link, unsigned member,
    const struct domain_message *message)
{
	size_t bytes = offsetof(struct domain_message, text) + strlen(message->text) + 1;
	ssize_t sent;
	do {
		sent = send(link->fds[member], message, bytes, MSG_NOSIGNAL);
	} while (sent < 0 && errno == EINTR);
	return sent == (ssize_t)bytes;
}

tr_status domain_link_receive(struct domain_link *link, unsigned member,
    struct domain_message *message)
{
	ssize_t bytes;
	*message = (struct domain_message){ 0 };
	if (link->fds[member] < 0)
		return TR_EPEERLOST;
	do { /* a reset is told once, before what the other end sent last */
		bytes = recv(link->fds[member], message, sizeof(*message), MSG_DONTWAIT);
	} while (bytes < 0 && (errno == EINTR || errno == ECONNRESET));
	if (bytes < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
		return TR_EAGAIN;
	if (bytes < (ssize_t)offsetof(struct domain_message, text) || message->kind == 0 ||
	    message->kind >= DOMAIN_KINDS) {
		domain_link_drop(link, member);
		return TR_EPEERLOST;
	}
	message->text[sizeof(message->text) - 1] = '\0';
	if (message->text[0] == '\0') /* whoever passes it on says something */
		(void)snprintf(message->text, sizeof(message->text), "no reason was given");
	return TR_OK;
}

bool domain_link_gone(const struct domain_link *link, unsigned member)
{
	struct pollfd one = { .fd = link->fds[member], .events = POLLRDHUP };
	return link->fds[member] < 0 ||
	    (poll(&one, 1, 0) > 0 && (one.revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0);
}

void domain_link_wait(const struct domain_link *link, uint32_t wait_us)
{
	struct pollfd fds[TR_DOMAIN_MEMBERS_MAX];
	nfds_t count = 0;
	struct timespec limit = { .tv_sec = wait_us / 1000000,
		.tv_nsec = (long)(wait_us % 1000000) * 1000 };
	for (unsigned i = 0; i < TR_DOMAIN_MEMBERS_MAX; i++)
		if (link->fds[i] >= 0)
			fds[count++] = (struct pollfd){ .fd = link->fds[i], .events = POLLIN };
	(void)ppoll(fds, count, &limit, NULL);
}
