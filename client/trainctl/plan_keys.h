/* A plan as keys of the job file. */
#ifndef TR_CLIENT_TRAINCTL_PLAN_KEYS_H
#define TR_CLIENT_TRAINCTL_PLAN_KEYS_H

#include "daemon/plan/plan_layout.h"
#include "traind/v1/trainer.pb-c.h"

struct plan_keys {
	const struct plan_input *in;
	const struct plan *plan;
	const Traind__V1__JobSpec *spec; /* the job as its file has it */
	unsigned threads;                /* of a worker, as planned */
};

/* A line on stdout: with these in the file, or by --set, the job is launched as planned. What the file has and the plan does without is there too, as the file would have it by default. */
void plan_keys_print(const struct plan_keys *keys);

#endif
