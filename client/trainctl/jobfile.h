/* Job files: YAML in, a validated JobSpec out, or one line that says where and what:
 *
 *	job.yaml:4: train.lr: found 'fast', allowed: a number from 1e-09 to 10
 *	--set: mesh.nodes: found 0, allowed: a whole number from 1 to 256
 *
 * The keys are the rows of daemon/plan/job_options.h. Paths in a job file are relative to its
 *folder, those of --set to the current folder. Accepted is what the rows need and no more of YAML:
 *a mapping of sections, no aliases, no tags.
 */
#ifndef TR_CLIENT_TRAINCTL_JOBFILE_H
#define TR_CLIENT_TRAINCTL_JOBFILE_H

#include <stddef.h>
#include <stdint.h>

#include "common/error.h"
#include "daemon/plan/job_options.h"

/* Where each key (by its row) was set. */
struct jobfile_places {
	unsigned line[JOB_OPTIONS_MAX]; /* 0: not set */
	bool by_set[JOB_OPTIONS_MAX];   /* --set said so */
	unsigned first_line;            /* of the mapping, for a section that is missing */
};

/* Reads, applies `sets` ("key=value") in order, resolves paths, checks files, validates. Free *spec
 * with free_unpacked. */
tr_status jobfile_read(const char *path, const char *const *sets, size_t n_sets,
    Traind__V1__JobSpec **spec, struct tr_error *error);

/* The YAML alone, touching no file. `name` is for messages. Sets keys of `spec`, paths as written.
 */
tr_status jobfile_parse(const char *name, const uint8_t *bytes, size_t size,
    Traind__V1__JobSpec *spec, struct jobfile_places *places, struct tr_error *error);

#endif
