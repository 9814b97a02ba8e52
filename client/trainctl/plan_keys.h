/* A plan as keys of the job file. */
#ifndef TR_CLIENT_TRAINCTL_PLAN_KEYS_H
#define TR_CLIENT_TRAINCTL_PLAN_KEYS_H

#include <stdint.h>

#include "daemon/plan/plan_layout.h"
#include "traind/v1/trainer.pb-c.h"

struct plan_keys {
	const struct plan_input *in;
	const struct plan *plan;
	const Traind__V1__JobSpec *spec; /* the job as its file has it */
	unsigned threads;                /* of a worker, as planned */
};

/* Lines "mesh.tp=2\n": with these by --set, or in the file, the job is launched as planned. What the file has and the plan does without is there too, as the file would have it
 * by default. *uneven: 0, or on how many nodes the plan has its workers, more unevenly than keys can say (`mesh: auto` does it). To be freed;
 * NULL: no memory. */
char *plan_keys_text(const struct plan_keys *keys, uint32_t *uneven);

#endif
