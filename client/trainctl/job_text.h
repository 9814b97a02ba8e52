/* Whether there is enough to train on in the files that a job names, as its workers will count it. */
#ifndef TR_CLIENT_TRAINCTL_JOB_TEXT_H
#define TR_CLIENT_TRAINCTL_JOB_TEXT_H

#include "common/error.h"
#include "traind/v1/trainer.pb-c.h"

/* `spec` is validated, and its paths are absolute. Of compressed text and of text for a tokenizer the first MiB is read: what is longer is
 * guessed. The error begins with the key that it is about. */
tr_status job_text_check(const Traind__V1__JobSpec *spec, struct tr_error *error);

#endif
