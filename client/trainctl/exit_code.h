/* What trainctl returns. `trainctl help` prints this list. */
#ifndef TR_CLIENT_TRAINCTL_EXIT_CODE_H
#define TR_CLIENT_TRAINCTL_EXIT_CODE_H

#define EXIT_CODE_MAP(X)                                                                                   \
	X(EXIT_OK, 0, "done as asked")                                                                     \
	X(EXIT_JOB_FAILED, 1, "the job failed, or the verb could not do its work")                         \
	X(EXIT_USAGE, 2, "bad usage or bad input; nothing was started")                                    \
	X(EXIT_UNREACHABLE, 3, "the cluster cannot be reached")                                            \
	X(EXIT_NOT_FOUND, 4, "no such job")                                                                \
	X(EXIT_CANCELLED, 5, "the job was cancelled")                                                      \
	X(EXIT_UNKNOWN, 6,                                                                                 \
	    "the job ended in a state that this trainctl does not know: the cluster is newer")             \
	X(EXIT_HANGUP, 129, "the terminal went away; a job that was submitted goes on")                    \
	X(EXIT_INTERRUPTED,                                                                                \
	    130, "interrupted (SIGINT); the followed job was cancelled, or what was started for it ended") \
	X(EXIT_TERMINATED, 143, "told to end (SIGTERM); likewise")

enum exit_code {
#define X(name, number, text) name = number,
	EXIT_CODE_MAP(X)
#undef X
};

#endif
