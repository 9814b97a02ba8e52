/* The newest ends of workers, kept packed: memberd may have been away, or gone down with the message, when one ended. It takes a
 * second report of the same end for nothing.
 */
#ifndef TR_DAEMON_NODE_WORKER_ENDS_H
#define TR_DAEMON_NODE_WORKER_ENDS_H

#include <stddef.h>

#include "common/limits.h"
#include "traind/peer/peer.pb-c.h"

#define WORKER_ENDS_MAX TR_NODE_WORKERS_MAX

struct worker_ends {
	Traind__Peer__WorkerExited *ends[WORKER_ENDS_MAX]; /* a ring */
	size_t count;                                      /* ever kept */
};

void worker_ends_keep(struct worker_ends *ends, const Traind__Peer__WorkerExited *end);
/* The end of this peer, if it is among them. */
Traind__Peer__WorkerExited *worker_ends_find(const struct worker_ends *ends, uint64_t peer);
void worker_ends_each(const struct worker_ends *ends,
    void (*each)(void *arg, Traind__Peer__WorkerExited *end), void *arg);
void worker_ends_finish(struct worker_ends *ends);

#endif
