/* How the members of a domain speak: a UNIX socket between the leader and each of them, which also shows a death at once.
 * Messages are whole (SOCK_SEQPACKET) and in the order of sending. A member of another user, or of another version, is not let
 * in. Members trust each other no further: what does not look like a message counts as its sender's death.
 *
 *	domain_link_listen(&link, "@meet", 3, &error);        // leader: for members 1 and 2
 *	domain_link_accept(&link, 1000, &error);              // again and again, until TR_OK
 *	domain_link_send(&link, 2, &(struct domain_message){ .kind = DOMAIN_DONE });
 *	while ((st = domain_link_receive(&link, 2, &message)) == TR_OK)
 *		...                                           // TR_EAGAIN: no more; TR_EPEERLOST: gone
 *
 * Threads: one.
 */
#ifndef TR_COLLECTIVES_BACKEND_DOMAIN_LINK_H
#define TR_COLLECTIVES_BACKEND_DOMAIN_LINK_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "collectives/backend/backend.h"

enum domain_kind {
	DOMAIN_HELLO = 1, /* member: number, version */
	DOMAIN_OP,        /* member: made call number `index`: what it was */
	DOMAIN_AT_BEGIN,  /* member: waits for the next round */
	DOMAIN_AT_COMMIT, /* member: waits for the decision; index: calls made */
	DOMAIN_TROUBLE,   /* member: its communicator is broken; text */
	DOMAIN_BUILT,     /* member: opened communicator `view`, or not; status, text */
	DOMAIN_SHARED,    /* member: holds the results, or not; status */
	DOMAIN_BUILD,     /* leader: open communicator `view`; rank, size, id */
	DOMAIN_READY,     /* leader: tr_domain_open is done */
	DOMAIN_BEGIN,     /* leader: round */
	DOMAIN_BREAK,     /* leader: abort the communicator; text */
	DOMAIN_DECIDED,   /* leader: status, text, round. If TR_OK the broadcasts follow */
	DOMAIN_SHARE,     /* leader: the broadcasts once more, on a new communicator */
	DOMAIN_DONE,      /* leader: all hold the results */
	DOMAIN_END,       /* leader: the domain is over; status, text */
	DOMAIN_KINDS,
};

/* A collective that all members call with the same arguments. */
struct domain_call {
	uint32_t collective, tag, dtype, reduce;
	uint64_t count;
};

struct domain_message {
	uint32_t kind;
	int32_t status;
	uint32_t view, rank, size, index; /* HELLO: rank is the member's number, view the version */
	struct domain_call call;
	struct tr_round round;
	uint8_t id[BACKEND_ID_BYTES];
	char text[TR_ERROR_TEXT_MAX]; /* last: sent as long as it is */
};

struct domain_link {
	int listener;
	unsigned members;               /* numbers 0..members-1, the leader is 0 */
	int fds[TR_DOMAIN_MEMBERS_MAX]; /* leader: to each member; member: fds[0]. -1: none */
	pid_t pids[TR_DOMAIN_MEMBERS_MAX];
	char path[TR_ADDRESS_MAX]; /* to remove */
};

void domain_link_init(struct domain_link *link);
void domain_link_close(struct domain_link *link);

tr_status domain_link_listen(struct domain_link *link, const char *address, unsigned members,
    struct tr_error *error);
/* Lets in who comes within `wait_ms`. TR_OK: all are there. TR_EAGAIN: call again. */
tr_status domain_link_accept(struct domain_link *link, int wait_ms, struct tr_error *error);
/* Member: one try. TR_EAGAIN: the leader does not listen yet. */
tr_status domain_link_dial(struct domain_link *link, const char *address, unsigned number,
    uint32_t send_ms, struct tr_error *error);

/* False: the other end is gone, which the next receive says too. Blocks for at most the deadline given to dial. */
bool domain_link_send(struct domain_link *link, unsigned member,
    const struct domain_message *message);
/* Never blocks. After TR_EPEERLOST the socket is closed. */
tr_status domain_link_receive(struct domain_link *link, unsigned member,
    struct domain_message *message);
/* Whether the other end has gone, unread messages or not. */
bool domain_link_gone(const struct domain_link *link, unsigned member);
void domain_link_drop(struct domain_link *link, unsigned member);
/* Until something may be read. Returns at once where a message lies unread. */
void domain_link_wait(const struct domain_link *link, uint32_t wait_us);

#endif
