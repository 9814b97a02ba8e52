/* What a worker learned that was put out of its group, for the one that follows it on this machine (collectives/sync.h, tr_sync_keep): a file in a folder
 * that traind names, one for each such worker. */
#ifndef TR_DAEMON_WORKER_KEPT_H
#define TR_DAEMON_WORKER_KEPT_H

#include "common/error.h"

struct trainer;

/* Takes one such file, if there is one, and brings it. What cannot be read or does not fit is left out, with a line of log. */
void kept_bring(struct trainer *t);
/* It was put out: keeps what no merge has. */
void kept_write(const struct trainer *t);

#endif
