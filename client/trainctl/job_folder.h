/* checkpoint.dir of a job: two jobs may have the same (a job file launched twice), and the later one writes over what the earlier one left. */
#ifndef TR_CLIENT_TRAINCTL_JOB_FOLDER_H
#define TR_CLIENT_TRAINCTL_JOB_FOLDER_H

#include <stdbool.h>

#include "client/trainctl/verbs.h"

/* "": it has none. */
const char *job_folder(const Traind__V1__Job *job);

/* EXIT_OK, or it was said that another job has written there since: a checkpoint if `saved`, else metrics. */
int job_folder_check(struct verb_call *call, const Traind__V1__Job *job, bool saved);

#endif
