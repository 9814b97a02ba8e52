/* An account of samples as a worker tells it to memberd (traind.v1.SampleAccount). Pure. */
#ifndef TR_DAEMON_PLAN_SAMPLE_ACCOUNT_H
#define TR_DAEMON_PLAN_SAMPLE_ACCOUNT_H

#include <stdbool.h>

#include "traind/v1/trainer.pb-c.h"

/* A peer's words: whether ranges ascend, none is empty or beyond what was given, and of no epoch there is more than it has. */
bool sample_account_valid(const Traind__V1__SampleAccount *account);

#endif
