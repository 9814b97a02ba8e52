/* The shepherd: a tiny process between traind and one worker, so that no process of a worker outlives traind, not even
 * after kill -9 of traind and not even one that double-forked and ignores SIGTERM.
 *
 *	traind --shepherd       (the traind binary again; it links nothing that it does not have in memory anyway)
 *	   worker               own session and process group, parent-death signal KILL
 *	      its children      orphans of them come to the shepherd, which is a subreaper
 *
 * It watches traind by pidfd and by their socket pair. When traind dies, says STOP, or the worker ends and leaves children
 * behind: TERM to the whole tree, after the grace KILL (cgroup.kill and a walk of /proc, again and again until nothing is
 * left). It exits only when it has no descendant.
 */
#ifndef TR_DAEMON_NODE_SHEPHERD_H
#define TR_DAEMON_NODE_SHEPHERD_H

#include <stdint.h>

#define SHEPHERD_ARGUMENT "--shepherd"

/* What a shepherd finds open, beside 0 (nothing to read), 1 and 2 (the worker's output). */
enum {
	SHEPHERD_FD_CONTROL = 3, /* SOCK_SEQPACKET: struct shepherd_message both ways */
	SHEPHERD_FD_SPEC = 4,    /* shepherd_spec.h */
	SHEPHERD_FD_CHANNEL = 5, /* if the spec says so: becomes the worker's TRAIND_WORKER_FD */
};

enum shepherd_message_kind {
	SHEPHERD_STARTED = 1, /* from the shepherd; a: pid */
	SHEPHERD_EXITED = 2,  /* from the shepherd; a: exit code, b: signal or 0 */
	SHEPHERD_STOP = 3,    /* to the shepherd; a: grace in ms */
	SHEPHERD_HALTED = 4, /* from the shepherd: a signal, a, stopped the worker; 0: it goes on */
};

struct shepherd_message {
	int32_t kind, a, b;
};

/* The whole life of a shepherd; returns its exit code. */
int shepherd_run(void);

#endif
