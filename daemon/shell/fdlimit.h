/* The limit of open files: daemons raise theirs, so that a crowd of idle connections is no outage; workers get the
 * one that we were started with (programs with select() need that). */
#ifndef TR_DAEMON_SHELL_FDLIMIT_H
#define TR_DAEMON_SHELL_FDLIMIT_H

#include <stdint.h>

/* Raises the soft limit to the hard one; *before is the soft limit as it was. Returns the limit now. */
uint64_t fdlimit_raise(uint64_t *before);
void fdlimit_lower(uint64_t soft);

#endif
