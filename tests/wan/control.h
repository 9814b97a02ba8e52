/* What one says to a running laboratory: a UNIX socket (SOCK_SEQPACKET), a message of text each way on each connection.
 *
 *	lines as in topology.h        -> "ok", or "error: ..."; all of them or none
 *	show                          -> as relay_show
 *	enter SITE                    -> "ok ADDRESS" with the namespace's file (SCM_RIGHTS)
 *
 * client.h is the other side.
 */
#ifndef TR_TESTS_WAN_CONTROL_H
#define TR_TESTS_WAN_CONTROL_H

#include "tests/wan/relay.h"
#include "tests/wan/space.h"

#define CONTROL_MESSAGE_MAX 65536

/* The listening socket; -1: says why. */
int control_open(const char *path, struct tr_error *error);
/* Reads what the client asks, does it, answers. The connection stays the caller's to close. */
void control_answer(int client, struct relay *relay, const struct space *spaces);

#endif
