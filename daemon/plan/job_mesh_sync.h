/* Which `sync` sections a job may have whose model is split over workers (mesh.tp, mesh.pp): its replicas train apart, daemon/worker/sharded_apart.h. Pure. */
#ifndef TR_DAEMON_PLAN_JOB_MESH_SYNC_H
#define TR_DAEMON_PLAN_JOB_MESH_SYNC_H

#include "collectives/sync.h"
#include "common/error.h"
#include "daemon/plan/mesh.h"
#include "traind/v1/trainer.pb-c.h"

#define JOB_MESH_INNER_STEPS_MAX 1000000 /* each has tags of its own in its round */
/* Tags of a step: of its sums (daemon/worker/sharded_inner.c), and with ZeRO-1 over copies of each one's piece and a barrier. */
#define JOB_MESH_INNER_SUMS 5
#define JOB_MESH_INNER_TAGS ((UINT64_C(1) << 23) - 1)
static inline uint32_t job_mesh_inner_tags(uint32_t copies, uint32_t owners)
{
	return JOB_MESH_INNER_SUMS + (owners > 0 ? copies + 1 : 0);
}
/* Of a round, of all its steps together: half of what 32 bits number, for what it has beside them; and tags of sums inside the model. */
#define JOB_MESH_MESSAGES_MAX (UINT64_C(1) << 31)
#define JOB_MESH_SUMS_MAX     ((UINT64_C(1) << 23) - 8192)

/* Whether replicas train on while a merge is under way, or what they have done goes on through it: daemon/worker/sharded_stream.h. */
bool job_mesh_sync_streams(const struct tr_sync_options *options);
/* What the longest round of replicas that train apart numbers has to fit. */
struct job_mesh_rounds {
	const Traind__V1__TrainSpec *spec; /* NULL: they do not, and nothing has to */
	uint64_t chunks;                   /* mesh.chunks, 1 at least */
	uint64_t steps;                    /* of the longest one; 0: it goes by time */
};
struct job_mesh_rounds job_mesh_rounds_of(const Traind__V1__TrainSpec *spec,
    const Traind__V1__Mesh *mesh, const struct tr_sync_options *options);
/* Steps that a round may have over this mesh, by what numbers them, also where one replica, of so many copies, computes all of a step's `batch` sequences. */
uint64_t job_mesh_rounds_most(const struct job_mesh_rounds *rounds, const struct mesh *mesh,
    uint32_t copies, uint64_t batch);
/* Whether the longest one has no more. */
bool job_mesh_rounds_fit(const struct job_mesh_rounds *rounds, const struct mesh *mesh,
    uint32_t copies, uint64_t batch);
/* Of a job that has ranks and does not sum gradients at every step (job_sync_is_rare). `why`: "mesh.tp is 2". TR_EINVAL: begins with the key. */
tr_status job_mesh_sync_check(const Traind__V1__JobSpec *spec, const char *why,
    struct tr_error *error);
/* Of one that does: what is of no use there. */
tr_status job_mesh_sync_check_none(const Traind__V1__JobSpec *spec, struct tr_error *error);

#endif
