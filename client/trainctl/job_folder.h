/* checkpoint.dir of a job: two jobs may have the same (a job file launched twice), and the later one writes over what the earlier one left. */
#ifndef TR_CLIENT_TRAINCTL_JOB_FOLDER_H
#define TR_CLIENT_TRAINCTL_JOB_FOLDER_H

#include <stdbool.h>

#include "client/trainctl/verbs.h"

/* "": it has none. */
const char *job_folder(const Traind__V1__Job *job);

/* Whether what says that it is of `id`, submitted then, is this job's. */
bool job_folder_is_of(const Traind__V1__Job *job, uint64_t id, uint64_t submitted_unix_ms);
/* Who that is, where it is another one: "job 2", "job 2 ('name')", "job 1 of another cluster". */
#define JOB_FOLDER_WORDS_MAX 128
const char *job_folder_words(const Traind__V1__Job *job, uint64_t id, const char *name,
    char words[JOB_FOLDER_WORDS_MAX]);

/* Of what does not say whose it is, as older workers wrote it: EXIT_OK, or it was said that another job has written there since: a checkpoint if `saved`, else metrics. */
int job_folder_check(struct verb_call *call, const Traind__V1__Job *job, bool saved);

#endif
