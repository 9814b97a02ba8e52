/* Watches a job until it has ended, or the user has had enough: progress on the screen, or the ranks' output. Outlives
 * memberd: training goes on without it, so does this.
 */
#ifndef TR_CLIENT_TRAINCTL_FOLLOW_H
#define TR_CLIENT_TRAINCTL_FOLLOW_H

#include "client/trainctl/rpc.h"

enum follow_end {
	FOLLOW_JOB_ENDED,
	FOLLOW_DETACHED, /* asked for in the dialogue */
	FOLLOW_HANGUP,
	FOLLOW_INTERRUPTED, /* SIGINT off a terminal: the job was to be cancelled */
	FOLLOW_TERMINATED,  /* SIGTERM: likewise */
	FOLLOW_FAILED,      /* rpc->status says why */
};

struct follow_options {
	uint64_t job;
	bool output; /* the ranks' output instead of progress */
	bool raw;    /* without [rank] */
	bool quiet;  /* neither */
};

/* *job is the last state seen, or NULL; free with free_unpacked. *cancelled: the job is, as far as memberd has said; if it was to be and is not, rpc->text says why. */
enum follow_end follow_run(struct rpc *rpc, const struct follow_options *options,
    Traind__V1__Job **job, bool *cancelled);

#endif
