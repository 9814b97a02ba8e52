#include "tests/wan/client.h"

#include <errno.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static bool failed(char *answer, const char *what)
{
	(void)snprintf(answer, CLIENT_TEXT_MAX, "%s: %s", what, strerror(errno));
	return false;
}

/* -1: `answer` says why. */
static int reach(char *answer)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	const char *path = getenv(CLIENT_ENVIRONMENT);
	if (path == NULL || strlen(path) >= sizeof(address.sun_path)) {
		(void)snprintf(answer, CLIENT_TEXT_MAX,
		    CLIENT_ENVIRONMENT " does not say where the laboratory's socket is");
		return -1;
	}
	(void)snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (fd >= 0 && connect(fd, (struct sockaddr *)&address, sizeof(address)) == 0)
		return fd;
	(void)failed(answer, path);
	if (fd >= 0)
		(void)close(fd);
	return -1;
}

/* The answer, and the file that came with it, if any. */
static bool hear(int fd, char *answer, int *file)
{
	union {
		struct cmsghdr head;
		char space[CMSG_SPACE(sizeof(int))];
	} rights = { 0 };
	struct iovec part = { answer, CLIENT_TEXT_MAX - 1 };
	struct msghdr message = { .msg_iov = &part,
		.msg_iovlen = 1,
		.msg_control = &rights,
		.msg_controllen = sizeof(rights.space) };
	ssize_t length = recvmsg(fd, &message, MSG_CMSG_CLOEXEC);
	if (length <= 0) {
		errno = length < 0 ? errno : ECONNRESET;
		return failed(answer, "the laboratory");
	}
	answer[length] = '\0';
	if (message.msg_controllen >= CMSG_LEN(sizeof(int)) && rights.head.cmsg_type == SCM_RIGHTS)
		memcpy(file, CMSG_DATA(&rights.head), sizeof(*file));
	return true;
}

static bool ask(const char *request, char *answer, int *file)
{
	int fd = reach(answer);
	bool well = fd >= 0;
	*file = -1;
	if (well && send(fd, request, strlen(request), MSG_NOSIGNAL) < 0)
		well = failed(answer, "the laboratory");
	well = well && hear(fd, answer, file);
	if (fd >= 0)
		(void)close(fd);
	if (well && strncmp(answer, "error: ", 7) == 0) {
		const char *rest = answer + 7;
		memmove(answer, rest, strlen(rest) + 1);
		well = false;
	} else if (well && strncmp(answer, "ok", 2) == 0) {
		const char *rest = answer + 2 + strspn(answer + 2, " ");
		memmove(answer, rest, strlen(rest) + 1);
	}
	return well;
}

bool client_ask(const char *request, char answer[CLIENT_TEXT_MAX])
{
	int file;
	bool well = ask(request, answer, &file);
	if (file >= 0)
		(void)close(file);
	return well;
}

bool client_enter(const char *site, char answer[CLIENT_TEXT_MAX])
{
	char request[128];
	int file;
	(void)snprintf(request, sizeof(request), "enter %s", site);
	bool well = ask(request, answer, &file);
	if (well && (file < 0 || setns(file, CLONE_NEWNET) != 0))
		well = failed(answer, "entering the site");
	if (file >= 0)
		(void)close(file);
	return well;
}
