/* The `mesh` section of a job as a mesh, and what a job whose model is split cannot have. Pure. */
#ifndef TR_DAEMON_PLAN_JOB_MESH_H
#define TR_DAEMON_PLAN_JOB_MESH_H

#include <stdbool.h>

#include "daemon/plan/dealing.h"
#include "daemon/plan/mesh.h"
#include "daemon/plan/model_config.h"
#include "daemon/plan/schedule.h"
#include "traind/v1/trainer.pb-c.h"

/* Of a validated section (NULL: one worker). dp is what is left of the workers. */
struct mesh job_mesh(const Traind__V1__Mesh *mesh);

/* Data-parallel copies that make up a replica, where replicas train apart; 1: a replica is one. */
uint32_t job_mesh_copies(const Traind__V1__Mesh *mesh);

/* Whether its workers have ranks: they hold parts of the model, or of its moments, have unequal shares, or may come to that. */
bool job_mesh_is_sharded(const Traind__V1__JobSpec *spec);

/* Whether a job follows what it measures: shares (balance.h), layers (restage.h) and, where it carries what it was planned with, its whole plan (drift.h). */
bool job_mesh_balances(const Traind__V1__JobSpec *spec);

/* With fewer workers than one replica takes; else its mesh is made smaller (remesh.h). */
bool job_mesh_waits(const Traind__V1__JobSpec *spec);

/* mesh.schedule; `chunks`: stages of each worker. */
enum schedule_kind job_mesh_schedule(const Traind__V1__Mesh *mesh, uint32_t chunks);

/* What a batch is divided into. */
struct job_batch {
	uint64_t sequences, micro; /* of a global batch; of a microbatch */
};
/* Stages of each worker of this mesh where the job asks for `chunks`: 1, if it has too few layers or microbatches for them, as another mesh than the job's may have. */
uint32_t job_mesh_chunks(const struct model_config *config, const struct dealing *dealing,
    uint32_t chunks, const struct job_batch *batch);

/* Layers of each of ranks x chunks stages, at least one: so that the slowest rank is as fast as can be on like workers, where the head costs as many layers as its matrix is larger
 * than theirs, or those that `given` says (NULL: nobody does); a rank's over its chunks as evenly as they go. TR_EINVAL: there are fewer layers than stages. */
tr_status job_mesh_stages(const struct model_config *config, uint32_t ranks, uint32_t chunks,
    const uint32_t *given, uint32_t *layers_of, struct tr_error *error);

/* Whether a model can be split over this mesh. TR_EINVAL: begins with the key of the axis that it cannot be split over. */
tr_status job_mesh_allows(const struct model_config *config, const struct mesh *mesh,
    struct tr_error *error);

/* Fills in and checks how many workers there are: what was planned has them on nodes of its own choice; before that mesh.auto goes with none. TR_EINVAL: begins
 * with the key. */
tr_status job_mesh_count(Traind__V1__JobSpec *spec, struct tr_error *error);

/* `spec` has its workers, model and optimizer. TR_EINVAL: begins with the key. */
tr_status job_mesh_check(const Traind__V1__JobSpec *spec, struct tr_error *error);

#endif
