/* Which mesh a job goes on with when it has fewer contributors than one replica of its mesh takes, and when it goes back. Pure: all contributors of a round know the same, and so
 * decide the same.
 *
 * No axis of a smaller mesh but dp is longer than the job's: a job that has no stages gets none, layers that were not split stay so. Where replicas train apart and are several copies of the mesh
 * (ranks.h), they have no more of them than the job's. Of these meshes the best is
 *	1. the one with the most shards: the more workers share the model, the less of it each holds, and that a worker has room for more than the job's mesh
 *	   asks for is not known;
 *	2. of equally many those with the longest tp, hence the nearest to the job's: same tp before same pp;
 *	3. of the same ones that with the most copies to a replica.
 * One for which workers lack room by what the job was planned with is passed over, unless they do for all.
 * dp is what all the job's workers would make of it, so that of who comes meanwhile whole replicas are used at once.
 *
 * A worker that crashed is there again within a second or so: only when there have been too few for some rounds is the mesh made anew, or when all know that nobody comes instead (after one round, in which they agree on that). And only when a better one has been
 * possible for some rounds: longer each time that it was made smaller, so that a node that comes and goes does not move all state each time; and only if what it saves is more than
 * what the change takes, which the caller knows.
 *
 *	struct remesh rules = { .config = &config, .job = { job_mesh(spec->mesh), 1 }, .wait_rounds = 20 };
 *	if (remesh_next(&rules, &now, contributors, &counts, &next))
 *		...                               // a round that makes next's shards out of now's
 *	remesh_count(&rules, &now, contributors, &counts);   // each round that is committed under now
 */
#ifndef TR_DAEMON_PLAN_REMESH_H
#define TR_DAEMON_PLAN_REMESH_H

#include <stdbool.h>

#include "daemon/plan/job_mesh_sync.h"
#include "daemon/plan/mesh.h"
#include "daemon/plan/model_config.h"
#include "daemon/plan/ranks.h"

/* Rounds for which a better mesh was possible before the job goes on with it; twice as many for each time but the first that its mesh was made smaller, up to 8 times. */
#define REMESH_SETTLED_ROUNDS 10u
#define REMESH_SETTLED_MERGES \
	1u /* the same where replicas train apart: a round is all steps from one merge to the next */

/* A mesh, and how many copies of it, 1 at least, make up a replica: a divisor of its dp. */
struct remesh_shape {
	struct mesh mesh;
	uint32_t copies;
};

/* Of this table. */
static inline struct remesh_shape remesh_shape_of(const struct ranks *ranks)
{
	return (struct remesh_shape){ ranks->mesh, (uint32_t)ranks->copies };
}
/* Has a replica more shards than one of the other, or as many and more copies of them? */
bool remesh_is_larger(const struct remesh_shape *shape, const struct remesh_shape *than);

struct remesh {
	const struct model_config *config; /* of the whole model, filled */
	struct remesh_shape job;
	uint64_t sequences; /* of a global batch: there are no more replicas; 0: any number */
	struct job_mesh_rounds
	    apart; /* of replicas that train apart, with `sequences`: no mesh that they do not fit */
	bool strict; /* dp and tp are powers of two, as strict.h allows them; with `sequences` */
	uint32_t
	    wait_rounds; /* of too few contributors, before the mesh is made smaller; 0: it never is */
	/* Whether workers of a smaller mesh, with as many replicas as are there, have room for their parts; NULL: nobody knows. The same at all. */
	bool (*has_room)(void *arg, const struct mesh *mesh);
	void *arg;
};

/* Common state of a group. */
struct remesh_counts {
	uint64_t
	    waited; /* rounds in a row with too few for one replica; wait_rounds at once, where nobody follows */
	uint64_t better;  /* rounds in a row in which a better mesh was possible */
	uint64_t smaller; /* times that the mesh was made smaller */
	uint64_t
	    declined; /* 1: that better mesh does not pay (worthwhile.h); until there are too few for it, and enough again */
};

/* For so many contributors, at least one: a replica of it is possible. */
struct remesh_shape remesh_best(const struct remesh *rules, uint32_t contributors);
/* For the round that begins; false: the mesh stays. */
bool remesh_next(const struct remesh *rules, const struct remesh_shape *now, uint32_t contributors,
    const struct remesh_counts *counts, struct remesh_shape *next);
/* A round was committed that did not change the mesh. */
void remesh_count(const struct remesh *rules, const struct remesh_shape *now, uint32_t contributors,
    struct remesh_counts *counts);
/* The same, and there are too few, of whom no more come for now: the wait is over. */
void remesh_nobody_follows(const struct remesh *rules, struct remesh_counts *counts);
/* The same, and remesh_next's answer was not worth it. */
void remesh_decline(struct remesh_counts *counts);
/* One that did, to `next`. */
void remesh_changed(const struct remesh_shape *now, const struct remesh_shape *next,
    struct remesh_counts *counts);

#endif
