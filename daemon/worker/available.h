/* Memory of this machine that could be had without swapping. */
#ifndef TR_DAEMON_WORKER_AVAILABLE_H
#define TR_DAEMON_WORKER_AVAILABLE_H

double available_bytes(void); /* infinite, where that is not known */

#endif
