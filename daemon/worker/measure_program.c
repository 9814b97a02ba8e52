/* trainworker --measure, as a program. */
#include <stdlib.h>

#include "common/limits.h"
#include "common/log.h"
#include "daemon/worker/measure.h"

static int refuse(const struct tr_error *error)
{
	log_error("trainworker", "%s", error->text);
	return 1;
}

int measure_program(char **words)
{
	struct measure_limits limits = { .threads = (unsigned)strtoul(words[0], NULL, 10),
		.tp_most = (uint32_t)strtoul(words[1], NULL, 10),
		.sequences_most = (uint32_t)strtoul(words[2], NULL, 10),
		.beside = words[3] != NULL ? (unsigned)strtoul(words[3], NULL, 10) : 0 };
	struct tr_error error;
	uint8_t *packed = malloc(TR_JOB_FILE_BYTES_MAX);
	size_t bytes = packed != NULL ? fread(packed, 1, TR_JOB_FILE_BYTES_MAX, stdin) : 0;
	Traind__V1__JobSpec *spec = traind__v1__job_spec__unpack(NULL, bytes, packed);
	free(packed);
	if (limits.threads == 0 || limits.threads > 1024 || spec == NULL || spec->train == NULL ||
	    spec->train->model == NULL || spec->train->optimizer == NULL) {
		if (spec != NULL)
			traind__v1__job_spec__free_unpacked(spec, NULL);
		(void)tr_error_set(&error, TR_EINVAL,
		    "--measure THREADS TP SEQUENCES [BESIDE [SELF]] wants a job on stdin; "
		    "`trainctl plan` starts it");
		return refuse(&error);
	}
	tr_status status = TR_OK;
	if (words[3] != NULL && words[4] != NULL) {
		limits.self = (unsigned)strtoul(words[4], NULL, 10);
		status = lockstep_open(LOCKSTEP_PAGE_FD, limits.self, limits.beside + 1,
		    &limits.lockstep, &error);
	}
	if (status == TR_OK)
		status = measure_costs(spec, &limits, stdout, &error);
	lockstep_close(limits.lockstep);
	traind__v1__job_spec__free_unpacked(spec, NULL);
	return status == TR_OK ? 0 : refuse(&error);
}
