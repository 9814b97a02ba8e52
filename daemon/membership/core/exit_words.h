/* How a worker ended, in words for an event and a job's reason. Pure.
 *
 *	exit code 1: Traceback (most recent call last): | ValueError: no such tokens
 *	killed by SIGSEGV: cannot map the data
 *	killed by SIGKILL
 */
#ifndef TR_DAEMON_MEMBERSHIP_CORE_EXIT_WORDS_H
#define TR_DAEMON_MEMBERSHIP_CORE_EXIT_WORDS_H

#include <stddef.h>

#include "traind/peer/peer.pb-c.h"

/* How it ended, and the last whole lines that it wrote, as many as fit, with " | " between. A single line that is too long is cut at
 * its end ("..."). Nothing is quoted of a worker that was told to end or was killed from outside: its last lines do not say why. 256 bytes hold all of it. */
void exit_words(const Traind__Peer__WorkerExited *exited, char *text, size_t size);

#endif
