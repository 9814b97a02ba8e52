/* Processes by pid and start time, so that a reused pid is never taken for ours. */
#ifndef TR_CLIENT_TRAINCTL_PROC_H
#define TR_CLIENT_TRAINCTL_PROC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Clock ticks since boot (field 22 of /proc/PID/stat); 0: there is no such process, or it is a zombie. */
uint64_t proc_start_time(pid_t pid);
/* False as well once SIGKILL has reached it or it exits: it may take a while to end, but does nothing more. */
bool proc_alive(pid_t pid, uint64_t start_time);
/* TERM, then KILL after `grace_ms`; waits until all are gone. False: one is still there. Entries that are not the
 * recorded process are left alone. */
struct proc {
	pid_t pid;
	uint64_t start_time;
};
bool proc_end(const struct proc *processes, size_t count, unsigned grace_ms);
/* Waits until all that are not alive any more are gone, with their last thread, at most 5 s; sends nothing. False: one is still there. */
bool proc_await(const struct proc *processes, size_t count);
/* Live processes whose environment holds `variable` ("KEY=value"); returns how many, at most max. */
size_t proc_marked(const char *variable, struct proc *found, size_t max);
/* Whether it was started with exactly this argument among others. */
bool proc_has_argument(pid_t pid, const char *argument);
/* The program beside ours, else in `search_path`. False: not found. */
bool proc_find_program(const char *name, const char *search_path, char *path, size_t bytes);

#endif
