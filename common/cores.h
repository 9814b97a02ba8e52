/* Cores that this process may run on (affinity; a cgroup's share of their time is not in it). At least 1. Any thread. */
#ifndef TR_COMMON_CORES_H
#define TR_COMMON_CORES_H

unsigned cores_allowed(void);

#endif
