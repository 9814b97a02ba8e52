/* One worker process under its shepherd (shepherd.h), as seen by traind's control loop. */
#ifndef TR_DAEMON_NODE_PROCESS_H
#define TR_DAEMON_NODE_PROCESS_H

#include <stdint.h>
#include <sys/types.h>
#include <uv.h>

#include "common/error.h"

struct process;

struct process_end {
	int exit_code;
	int signal;      /* 0: it exited by itself */
	char reason[96]; /* in words: "exit code 1", "killed by SIGSEGV" */
};

struct process_callbacks {
	void (*started)(void *arg, pid_t pid);
	/* A signal stopped it: SIGSTOP, as in a session without a terminal the others stop nobody. 0: it goes on, or has ended. */
	void (*halted)(void *arg, int signal);
	/* Exactly once, when the worker and everything that it started are gone. The process is freed after it returns. */
	void (*ended)(void *arg, const struct process_end *end);
};

struct process_options {
	const char *const *argv;        /* ended by NULL; argv[0] is looked up in PATH */
	const char *const *environment; /* "KEY=value", added to ours; ended by NULL */
	const char *directory;          /* "": ours */
	const char *cgroup;             /* to make for it; "": none */
	int channel_fd;     /* becomes TRAIND_WORKER_FD; -1: none. Borrowed: the caller closes it */
	int out_fd, err_fd; /* borrowed likewise */
	uint64_t open_files; /* soft limit for the worker */
	unsigned grace_ms;   /* between TERM and KILL if traind dies */
};

tr_status process_start(uv_loop_t *loop, const struct process_options *options,
    const struct process_callbacks *callbacks, void *arg, struct process **process,
    struct tr_error *error);

/* TERM to everything, KILL after the grace; may be said again with a shorter one. */
void process_stop(struct process *process, unsigned grace_ms);

/* "exit code 1", "killed by SIGSEGV" */
void process_reason(int exit_code, int signal_number, char *text, size_t size);

#endif
