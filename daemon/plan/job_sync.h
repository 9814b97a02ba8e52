/* The `sync` section of a job as options of collectives/sync.h. Pure. */
#ifndef TR_DAEMON_PLAN_JOB_SYNC_H
#define TR_DAEMON_PLAN_JOB_SYNC_H

#include "collectives/sync.h"
#include "common/error.h"
#include "traind/v1/trainer.pb-c.h"

/* Whether gradients are not reduced at every step. */
bool job_sync_is_rare(const Traind__V1__Sync *sync);

/* Of a section for which job_sync_is_rare; with the mode's defaults. `steps`: that are to be done. TR_EINVAL: begins with "sync." and the key. */
tr_status job_sync_options(const Traind__V1__TrainSpec *spec, uint64_t steps,
    struct tr_sync_options *options, struct tr_error *error);

/* Merges that so many steps come to; 0: not known, or it is no section for which job_sync_is_rare. */
uint64_t job_sync_merges(const Traind__V1__TrainSpec *spec, uint64_t steps);

/* Layers in the sense of struct tr_sync_tensor: embeddings, each block, the last norm. */
static inline unsigned job_sync_layers(const Traind__V1__Model *model)
{
	return model->layers + 2;
}

#endif
