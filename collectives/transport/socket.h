/* Options of a stream socket, by what the link is. */
#ifndef TR_COLLECTIVES_TRANSPORT_SOCKET_H
#define TR_COLLECTIVES_TRANSPORT_SOCKET_H

#include <stdint.h>
#include <sys/socket.h>

#include "common/error.h"
#include "common/limits.h"

/* Non-blocking and close-on-exec; TCP_NODELAY; on local links a congestion control that does not pace (a kernel whose
 * default is bbr halves loopback). What the kernel refuses is left as it is. */
void socket_tune(int fd, const struct sockaddr *other_end);

/* Name of the other end: "127.0.0.1:40312", "unix:/path". */
void socket_peer_name(int fd, char text[TR_ADDRESS_MAX]);

/* Of a connection on which nothing may be said for long: its other end is asked every `seconds` whether it lives, and what is not
 * answered for three times as long breaks it. */
void socket_keep_alive(int fd, int seconds);

/* How long nothing at all was answered to bytes that were sent again at least `retries_min` times; 0 if they were not. The way
 * is cut without a word, then. A process that is stopped, or does not read, is no such case: its kernel answers. */
uint32_t socket_unanswered_ms(int fd, unsigned retries_min);

#endif
