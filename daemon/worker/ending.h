/* A worker that is told to end (SIGTERM) while it may have something to keep: it has a moment to learn from its next call whether it was put out of its
 * group, and to write. Without this it ends at once. */
#ifndef TR_DAEMON_WORKER_ENDING_H
#define TR_DAEMON_WORKER_ENDING_H

#include <stdbool.h>

/* From now on SIGTERM ends the process only after two seconds. */
void ending_wait(void);
/* It came. */
bool ending_wanted(void);
/* It is writing: from now on SIGTERM does nothing. traind's own patience, TR_WORKER_TERM_GRACE_MS, counts. */
void ending_hold(void);

#endif
