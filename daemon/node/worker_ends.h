/* The newest ends of workers, kept packed: memberd may have been away, or gone down with the message, when one ended. It takes a
 * second report of the same end for nothing. They are all sent in one turn when memberd is back, so all together take at most half of what may wait on that connection: the
 * oldest ones lose their last words first, which were sent at least once.
 */
#ifndef TR_DAEMON_NODE_WORKER_ENDS_H
#define TR_DAEMON_NODE_WORKER_ENDS_H

#include <stddef.h>

#include "common/limits.h"
#include "traind/peer/peer.pb-c.h"

#define WORKER_ENDS_MAX       TR_NODE_WORKERS_MAX
#define WORKER_ENDS_BYTES_MAX (TR_CONN_QUEUE_BYTES_MAX / 2)

struct worker_ends {
	Traind__Peer__WorkerExited *ends[WORKER_ENDS_MAX]; /* a ring */
	size_t sizes[WORKER_ENDS_MAX];                     /* packed */
	size_t count;                                      /* ever kept */
	size_t bytes;                                      /* of all sizes */
};

void worker_ends_keep(struct worker_ends *ends, const Traind__Peer__WorkerExited *end);
/* The end of this peer, if it is among them. */
Traind__Peer__WorkerExited *worker_ends_find(const struct worker_ends *ends, uint64_t peer);
void worker_ends_each(const struct worker_ends *ends,
    void (*each)(void *arg, Traind__Peer__WorkerExited *end), void *arg);
void worker_ends_finish(struct worker_ends *ends);

#endif
