/* Descendants of a process, found in /proc. */
#ifndef TR_DAEMON_NODE_DESCEND_H
#define TR_DAEMON_NODE_DESCEND_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* Which of them. */
struct descend {
	pid_t root;         /* not itself */
	const pid_t *spare; /* left out, with their own descendants */
	size_t spares;
	pid_t session; /* left out likewise; 0: none */
	pid_t told; /* a process group whose members are not signalled, their descendants of other groups are; 0: none */
};

/* Signals every live one; returns how many, or 1 where there was no memory or descriptor to look. Those that fork meanwhile need another call: until it returns 0. */
size_t descend_signal(const struct descend *which, int signal_number);
/* Waits for those that have ended, of which the calling process is `root` and the parent. */
void descend_reap(const struct descend *which);

#endif
