#include "collectives/transport/socket.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/un.h>

#include "collectives/transport/address.h"

void socket_tune(int fd, const struct sockaddr *other_end)
{
	(void)fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
	(void)fcntl(fd, F_SETFD, FD_CLOEXEC);
	if (other_end->sa_family == AF_UNIX)
		return;
	int on = 1;
	(void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	if (!address_is_local(other_end))
		return;
	static const char *const unpaced[] = { "cubic", "reno" };
	for (size_t i = 0; i < sizeof(unpaced) / sizeof(unpaced[0]); i++)
		if (setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, unpaced[i],
		        (socklen_t)strlen(unpaced[i])) == 0)
			return;
}

void socket_peer_name(int fd, char text[TR_ADDRESS_MAX])
{
	struct sockaddr_storage sa = { 0 };
	socklen_t length = sizeof(sa);
	if (getpeername(fd, (struct sockaddr *)&sa, &length) != 0)
		(void)snprintf(text, TR_ADDRESS_MAX, "unknown");
	else
		address_format((struct sockaddr *)&sa, length, text);
}

void socket_keep_alive(int fd, int seconds)
{
	int on = 1, times = 3, most_ms = 3000 * seconds;
	(void)setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
	(void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &seconds, sizeof(seconds));
	(void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &seconds, sizeof(seconds));
	(void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &times, sizeof(times));
	(void)setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &most_ms, sizeof(most_ms));
}

uint32_t socket_unanswered_ms(int fd, unsigned retries_min)
{
	struct tcp_info info;
	socklen_t length = sizeof(info);
	memset(&info, 0, sizeof(info));
	if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &length) != 0 ||
	    info.tcpi_retransmits < retries_min)
		return 0;
	return info.tcpi_last_ack_recv;
}
