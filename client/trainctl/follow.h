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

struct follow_result {
	Traind__V1__Job *job; /* its last state seen, or NULL; free with free_unpacked */
	bool cancelled; /* as far as memberd has said; if it was to be and is not, rpc->text says why */
	int output_failed; /* why not all output could be written to stdout (errno), or 0 */
};

enum follow_end follow_run(struct rpc *rpc, const struct follow_options *options,
    struct follow_result *result);

#endif
