/* Descendants of a process, found in /proc. */
#ifndef TR_DAEMON_NODE_DESCEND_H
#define TR_DAEMON_NODE_DESCEND_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* Signals every live descendant of `root` (not root itself), `spare` and their descendants left out; returns how
 * many. Those that fork meanwhile need another call: until it returns 0. */
size_t descend_signal(pid_t root, int signal_number, const pid_t *spare, size_t spares);

#endif
