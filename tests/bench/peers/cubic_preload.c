/* For LD_PRELOAD: every TCP socket that a program makes runs cubic (reno where cubic is not allowed), so that peers whose
 * congestion control cannot be set by an option are compared on the same one. Accepted sockets inherit it from the one that
 * listens. The system's setting stays as it is.
 */
#include <dlfcn.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stddef.h>
#include <sys/socket.h>

__attribute__((visibility("default"))) int socket(int domain, int type, int protocol)
{
	static int (*real)(int, int, int);
	if (real == NULL)
		*(void **)(void *)&real = dlsym(RTLD_NEXT, "socket");
	int fd = real(domain, type, protocol), error = errno;
	int kind = type & ~(SOCK_NONBLOCK | SOCK_CLOEXEC);
	if (fd >= 0 && (domain == AF_INET || domain == AF_INET6) && kind == SOCK_STREAM &&
	    setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, "cubic", 5) != 0)
		(void)setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, "reno", 4);
	errno = error;
	return fd;
}
