/* Ports of a fuzz target's own on the loopback, for what the live engine dials, and its way to the engine's. Static. */
#ifndef TR_TESTS_FUZZ_PORT_H
#define TR_TESTS_FUZZ_PORT_H

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define PORT_ADDRESS_BYTES 64

/* Listens; `address` becomes "127.0.0.1:40123". */
static inline int port_open(char address[PORT_ADDRESS_BYTES])
{
	struct sockaddr_in at = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t bytes = sizeof(at);
	int port = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (port < 0 || bind(port, (struct sockaddr *)&at, bytes) != 0 || listen(port, 64) != 0 ||
	    getsockname(port, (struct sockaddr *)&at, &bytes) != 0) {
		perror("no port");
		abort();
	}
	(void)snprintf(address, PORT_ADDRESS_BYTES, "127.0.0.1:%u", ntohs(at.sin_port));
	return port;
}

/* One that somebody dialled; -1: none. */
static inline int port_dialled(int port)
{
	return accept4(port, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
}

/* To "HOST:PORT" on the loopback. -1: out of ports, many are in TIME_WAIT. */
static inline int port_dial(const char *address)
{
	struct sockaddr_in at = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	at.sin_port = htons((uint16_t)atoi(strrchr(address, ':') + 1));
	if (fd >= 0 && connect(fd, (struct sockaddr *)&at, sizeof(at)) == 0) {
		(void)fcntl(fd, F_SETFL, O_NONBLOCK);
		return fd;
	}
	if (fd >= 0)
		(void)close(fd);
	return -1;
}

#endif
