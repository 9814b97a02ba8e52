/* Descriptors that travel with a message over a UNIX socket (SCM_RIGHTS; unix(7), cmsg(3)). Sockets of any type; both ends
 * may be hostile: what came and has no place is closed.
 *
 *	_Alignas(struct cmsghdr) uint8_t space[DESCRIPTORS_SPACE(2)];
 *	descriptors_attach(&message, space, fds, 2);
 *	sendmsg(socket, &message, MSG_NOSIGNAL);
 */
#ifndef TR_COLLECTIVES_TRANSPORT_DESCRIPTORS_H
#define TR_COLLECTIVES_TRANSPORT_DESCRIPTORS_H

#include <stdbool.h>
#include <sys/socket.h>

#define DESCRIPTORS_SPACE(most) (CMSG_SPACE((most) * sizeof(int)))

/* `message` sends `count` of them; 0: none. They stay the caller's. `space` (DESCRIPTORS_SPACE(count)) is borrowed until it is
 * sent. */
void descriptors_attach(struct msghdr *message, void *space, const int *descriptors, unsigned count);

/* Appends what came with a received `message` to `descriptors`, of which there are *count, up to `most`. They are the
 * caller's to close, whatever else is wrong with the message. false: some did not fit, here or in the message's space, and
 * were closed. */
bool descriptors_take(struct msghdr *message, int *descriptors, unsigned *count, unsigned most);

#endif
