/* What machines do not all have: a container is often without IPv6, a bare system without a name for loopback. */
#ifndef TR_TESTS_MACHINE_H
#define TR_TESTS_MACHINE_H

#include <netdb.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/socket.h>
#include <unistd.h>

static inline bool machine_has(const char *host)
{
	struct addrinfo hints = { .ai_socktype = SOCK_STREAM }, *found = NULL;
	if (getaddrinfo(host, NULL, &hints, &found) != 0)
		return false;
	int fd = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
	bool has = fd >= 0 && bind(fd, found->ai_addr, found->ai_addrlen) == 0;
	if (fd >= 0)
		(void)close(fd);
	freeaddrinfo(found);
	return has;
}

#endif
