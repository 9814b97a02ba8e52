#include "tests/wan/control.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

int control_open(const char *path, struct tr_error *error)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	(void)snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
	if (fd >= 0 && bind(fd, (struct sockaddr *)&address, sizeof(address)) == 0 &&
	    chmod(path, 0600) == 0 && listen(fd, 16) == 0)
		return fd;
	(void)tr_error_set(error, TR_EIO, "%s: %s", path, strerror(errno));
	if (fd >= 0)
		(void)close(fd);
	return -1;
}

static void say(int client, const char *text, int file)
{
	union {
		struct cmsghdr head;
		char space[CMSG_SPACE(sizeof(int))];
	} rights = { 0 };
	struct iovec part = { (void *)(uintptr_t)text, strlen(text) };
	struct msghdr message = { .msg_iov = &part, .msg_iovlen = 1 };
	if (file >= 0) {
		message.msg_control = &rights;
		message.msg_controllen = sizeof(rights.space);
		rights.head = (struct cmsghdr){ CMSG_LEN(sizeof(int)), SOL_SOCKET, SCM_RIGHTS };
		memcpy(CMSG_DATA(&rights.head), &file, sizeof(file));
	}
	(void)sendmsg(client, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
}

static void show(int client, const struct relay *relay)
{
	char *text = NULL;
	size_t length = 0;
	FILE *file = open_memstream(&text, &length);
	if (file == NULL)
		return;
	relay_show(relay, file);
	if (fclose(file) == 0)
		say(client, text, -1);
	free(text);
}

static void let_in(int client, const char *name, const struct relay *relay,
    const struct space *spaces)
{
	char text[128];
	int site = topology_find(&relay->topology, name);
	if (site < 0)
		(void)snprintf(text, sizeof(text), "error: there is no site %.32s", name);
	else
		(void)snprintf(text, sizeof(text), "ok " RELAY_ADDRESS "%d", site + 1);
	say(client, text, site < 0 ? -1 : spaces[site].net);
}

void control_answer(int client, struct relay *relay, const struct space *spaces)
{
	static char text[CONTROL_MESSAGE_MAX];
	char answer[TR_ERROR_TEXT_MAX + 16] = "ok";
	struct topology topology = relay->topology;
	struct tr_error error = { 0 };
	ssize_t length = recv(client, text, sizeof(text) - 1, MSG_DONTWAIT);
	if (length <= 0)
		return;
	text[length] = '\0';
	if (strcmp(text, "show") == 0) {
		show(client, relay);
		return;
	}
	if (strncmp(text, "enter ", 6) == 0) {
		let_in(client, text + 6, relay, spaces);
		return;
	}
	if (topology_lines(&topology, text, false, &error) == TR_OK)
		relay_change(relay, &topology, relay_now_ns());
	else
		(void)snprintf(answer, sizeof(answer), "error: %s", error.text);
	say(client, answer, -1);
}
