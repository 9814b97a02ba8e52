/* The UNIX socket beside a pair of rings: it hands over descriptors, says whose process is on the other end, and its end is
 * the death of that process. SOCK_SEQPACKET, abstract names, never blocks.
 *
 *	dialler -> acceptor   HELLO: what it claims (struct shm_claim); two rings (dialler's to write, dialler's to read), its
 *	                      doorbell
 *	acceptor -> dialler   WELCOME: its doorbell; or REFUSED, and it closes
 *	both                  MEMORY: a piece of memory, in the order of the pieces' numbers
 */
#ifndef TR_COLLECTIVES_TRANSPORT_SHM_SOCKET_H
#define TR_COLLECTIVES_TRANSPORT_SHM_SOCKET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/error.h"

#define SHM_SOCKET_VERSION     4u
#define SHM_SOCKET_DESCRIPTORS 3

enum shm_message_kind { SHM_HELLO = 1, SHM_WELCOME = 2, SHM_MEMORY = 3, SHM_REFUSED = 4 };

/* Whom a dialler wants, and that it may. The acceptor looks at it before it maps anything; what goes over the rings says who it is. */
struct shm_claim {
	uint64_t group, to; /* peer */
	uint64_t token[2];  /* the group's */
};

struct shm_message {
	uint32_t kind, version;
	uint64_t bytes; /* MEMORY: its size */
	uint32_t stable;
	uint32_t unused;
	struct shm_claim claim; /* HELLO */
};

struct shm_received {
	struct shm_message message;
	int descriptors[SHM_SOCKET_DESCRIPTORS]; /* the receiver's to close */
	unsigned descriptor_count;
};

/* Listens under a random name of 128 bits; `name` gets it, without the leading NUL of abstract names. */
tr_status shm_socket_listen(char *name, size_t name_bytes, int *fd, struct tr_error *error);
tr_status shm_socket_dial(const char *name, int *fd, struct tr_error *error);
/* TR_EREFUSED unless the other end's user is ours or root. */
tr_status shm_socket_check_peer(int fd, pid_t *pid, struct tr_error *error);

/* TR_OK; TR_EAGAIN: not now, nothing was sent; TR_EUNAVAILABLE: the other side is gone. */
tr_status shm_socket_send(int fd, const struct shm_message *message, const int *descriptors,
    unsigned count);
/* TR_OK; TR_EAGAIN: nothing is there; TR_EUNAVAILABLE: the other side is gone; TR_EPROTO: it is no message (nothing is left
 * open). */
tr_status shm_socket_receive(int fd, struct shm_received *received);

/* Is it an eventfd in non-blocking mode? Ringing anything else might block us. */
bool shm_socket_is_bell(int fd);
void shm_socket_ring(int bell);

#endif
