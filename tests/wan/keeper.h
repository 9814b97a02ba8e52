/* The process that clears up behind a laboratory, however that ended: it waits for the laboratory's end of a pipe to close,
 * which a SIGKILL does as well, then ends every process that is left in the namespaces and removes the control socket. It holds
 * the namespaces open until then, and nothing else does. It heeds no signal that can be refused, and is in a session of its
 * own.
 */
#ifndef TR_TESTS_WAN_KEEPER_H
#define TR_TESTS_WAN_KEEPER_H

#include "tests/wan/space.h"

struct keeper {
	pid_t pid; /* 0: none */
	int pipe;  /* our end */
	int watch; /* pidfd: readable when it is gone, which it should not be */
};

/* `folder`: removed with `control` in it. */
tr_status keeper_start(struct keeper *keeper, const struct space *spaces, unsigned count,
    const char *folder, const char *control, struct tr_error *error);
/* Lets it do its work, and waits until it has. */
void keeper_finish(struct keeper *keeper);

#endif
