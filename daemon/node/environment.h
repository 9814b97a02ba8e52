/* The variables of a command job's worker: those that torchrun sets (torch.distributed.elastic, "Environment variables"),
 * ours, then the job's own, which win.
 */
#ifndef TR_DAEMON_NODE_ENVIRONMENT_H
#define TR_DAEMON_NODE_ENVIRONMENT_H

#include <stdbool.h>

#include "traind/peer/peer.pb-c.h"

/* "KEY=value" strings, ended by NULL. `set_omp`: OMP_NUM_THREADS is not in our own environment, so it becomes 1, as torchrun
 * does. `node`: id of the node that it is on. `kept`: where workers of its group keep what they learned alone (kept.h); "": nowhere. NULL: out of memory. */
char **environment_of(const Traind__Peer__StartWorker *start, bool set_omp, uint64_t node,
    const char *kept);
void environment_free(char **environment);

#endif
