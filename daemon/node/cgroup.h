/* cgroup v2 for workers, where we may make one: kills a whole tree at once, whatever it forks. Without it (no cgroup v2, no
 * permission) the shepherd ends the tree by walking /proc.
 */
#ifndef TR_DAEMON_NODE_CGROUP_H
#define TR_DAEMON_NODE_CGROUP_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* The folder under which cgroups of workers can be made: our own cgroup v2. False, with the reason in words: not here. */
bool cgroup_find(char *folder, size_t size, char *reason, size_t reason_size);

/* All below take the path of one cgroup; "" or failure: they do nothing and say false. */
bool cgroup_make(const char *path);
bool cgroup_enter(const char *path); /* the calling process; safe after fork */
bool cgroup_kill(const char *path);
void cgroup_remove(
    const char *path); /* it and the cgroups that its processes made in it, if empty */
/* Kills and removes every cgroup whose path begins with `prefix`; returns how many there were. For what a traind and its
 * shepherds left behind when all of them were killed at once. */
size_t cgroup_sweep(const char *prefix);

#endif
