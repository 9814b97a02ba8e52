/* From the shepherd to the running worker: fork, own session, parent-death signal, cgroup, environment, exec. */
#ifndef TR_DAEMON_NODE_WORKER_EXEC_H
#define TR_DAEMON_NODE_WORKER_EXEC_H

#include <sys/types.h>

struct shepherd_spec;

/* The worker's pid, or -1. What goes wrong in the child is said on its stderr; it then exits with 127 (no such program)
 * or 126 (cannot be run), as a shell does. */
pid_t worker_exec(const struct shepherd_spec *spec);

/* Closes the shepherd's copies of what only the worker should hold. */
void worker_exec_release(const struct shepherd_spec *spec);

#endif
