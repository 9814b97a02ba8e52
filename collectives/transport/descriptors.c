#include "collectives/transport/descriptors.h"

#include <string.h>
#include <unistd.h>

void descriptors_attach(struct msghdr *message, void *space, const int *descriptors, unsigned count)
{
	if (count == 0)
		return;
	memset(space, 0, CMSG_SPACE(count * sizeof(int)));
	message->msg_control = space;
	message->msg_controllen = CMSG_SPACE(count * sizeof(int));
	struct cmsghdr *c = CMSG_FIRSTHDR(message);
	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(count * sizeof(int));
	memcpy(CMSG_DATA(c), descriptors, count * sizeof(int));
}

bool descriptors_take(struct msghdr *message, int *descriptors, unsigned *count, unsigned most)
{
	bool whole = (message->msg_flags & MSG_CTRUNC) == 0;
	for (struct cmsghdr *c = CMSG_FIRSTHDR(message); c != NULL; c = CMSG_NXTHDR(message, c)) {
		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		size_t came = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
		for (size_t i = 0; i < came; i++) {
			int fd;
			memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof(fd));
			if (*count < most) {
				descriptors[(*count)++] = fd;
				continue;
			}
			(void)close(fd);
			whole = false;
		}
	}
	return whole;
}
