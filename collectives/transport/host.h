/* Which processes share a kernel's memory and can find each other's UNIX sockets. */
#ifndef TR_COLLECTIVES_TRANSPORT_HOST_H
#define TR_COLLECTIVES_TRANSPORT_HOST_H

#include <stddef.h>

#define HOST_IDENTITY_MAX 64

/* "BOOT-ID/NETNS": the kernel's boot id and the inode of this process's network namespace, in which abstract UNIX sockets
 * have their names. Equal for two processes: they can share memory (if both allow it: same user). "": unknown; nobody
 * shares with it. */
void host_identity(char identity[HOST_IDENTITY_MAX]);

#endif
