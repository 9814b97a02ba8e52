/* Runs `trainworker --measure` (daemon/worker/measure.h) and waits for what it prints. Those beside it measure in step with it (common/lockstep.h). All of them end with
 * whoever runs them, kill -9 included: TRAIND_MEASURE_RUN_BY in their environment is its pid. */
#ifndef TR_DAEMON_SHELL_MEASURE_RUN_H
#define TR_DAEMON_SHELL_MEASURE_RUN_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "common/error.h"

struct measure_run {
	const char *program; /* trainworker; without a slash it is looked up in PATH */
	const void *job;     /* a JobSpec, packed */
	size_t job_bytes;
	unsigned threads;
	unsigned
	    beside; /* so many others measure the same meanwhile, as workers of one machine compute at once */
	uint32_t tp_most, sequences_most;
	uint64_t most_ms;        /* 0: as long as it takes */
	const atomic_bool *stop; /* looked at every 100 ms; NULL: never */
	void (*said)(const char *line,
	    size_t length); /* each line when it is there, without its end; NULL: nobody waits for it */
};

/* *text is the caller's to free. TR_EIO: it cannot be started, ended badly, or took too long; TR_ENOMEM. */
tr_status measure_run(const struct measure_run *run, char **text, struct tr_error *error);

#endif
