/* What train.strict asks of a job's mesh (strict.h). Pure. */
#ifndef TR_DAEMON_PLAN_JOB_STRICT_H
#define TR_DAEMON_PLAN_JOB_STRICT_H

#include "daemon/plan/job_mesh.h"

/* train.strict: such a job runs as one that is sharded, though there be one worker. */
bool job_is_strict(const Traind__V1__TrainSpec *train);

/* Of a job whose workers are counted. TR_EINVAL: begins with the key. */
tr_status job_strict_check(const Traind__V1__JobSpec *spec, struct tr_error *error);

/* What a replica's pipeline runs at a time: of a strict job the sequences of a part of the batch, else all of its share. As a batch for job_mesh_chunks. */
struct job_batch job_strict_batch(const Traind__V1__TrainSpec *train, const struct mesh *mesh,
    const struct job_batch *batch);

#endif
