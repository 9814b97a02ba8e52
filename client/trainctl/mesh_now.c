#include "client/trainctl/mesh_now.h"

#include <stdio.h>
#include <string.h>

#include "common/limits.h"
#include "daemon/plan/job_mesh.h"
#include "daemon/plan/job_options.h"
#include "daemon/plan/job_strict.h"
#include "daemon/plan/job_sync.h"
#include "daemon/plan/ranks.h"
#include "daemon/plan/remesh.h"
#include "daemon/plan/strict.h"

/* As the job file asks for it, or as it was planned anew since. */
static struct mesh asked_now(const Traind__V1__Job *job)
{
	const Traind__V1__PlanNow *plan = job->progress != NULL ? job->progress->plan : NULL;
	if (plan == NULL)
		return job_mesh(job->spec->mesh);
	return (struct mesh){
		.size = { [MESH_DP] = plan->dp, [MESH_PP] = plan->pp, [MESH_TP] = plan->tp }
	};
}

/* With what an answer says besides nothing is computed: sizes of 0 would be divided by. */
static bool is_possible(const struct mesh *mesh)
{
	for (int axis = 0; axis < MESH_AXES; axis++)
		if (mesh->size[axis] == 0 || mesh->size[axis] > TR_GROUP_PEERS_MAX)
			return false;
	return true;
}

/* Of an answer whose sync section makes no sense nothing is asked. */
static struct job_mesh_rounds rounds_of(const Traind__V1__JobSpec *spec)
{
	struct tr_sync_options options;
	if (!job_sync_is_rare(spec->train->sync) ||
	    job_sync_options(spec->train, spec->train->optimizer->steps, &options, NULL) != TR_OK)
		return (struct job_mesh_rounds){ NULL, 0, 0 };
	return job_mesh_rounds_of(spec->train, spec->mesh, &options);
}

/* That training goes on with if so few workers stay as there are; the job's, if it waits for them or its model is not known. */
static struct remesh_shape mesh_for(const Traind__V1__Job *job, uint32_t active)
{
	const Traind__V1__JobSpec *spec = job->spec;
	struct model_config config;
	struct remesh rules = { .config = &config,
		.job = { asked_now(job), job_mesh_copies(spec->mesh) },
		.strict = job_is_strict(spec->train) };
	const Traind__V1__Optimizer *order = spec->train->optimizer;
	if (active == 0 || job_mesh_waits(spec) || order == NULL ||
	    job_model_config(spec->train->model, &config, NULL) != TR_OK || config.context == 0)
		return rules.job;
	rules.sequences = order->batch_tokens / config.context;
	rules.apart = rounds_of(spec);
	return remesh_best(&rules, active);
}

bool mesh_now_of(const Traind__V1__Job *job, struct mesh_now *out)
{
	struct mesh_now now = { .spares = 0 };
	uint32_t active = 0;
	if (job->spec == NULL || job->spec->train == NULL ||
	    !(job_mesh_is_sharded(job->spec) || job_is_strict(job->spec->train)))
		return false;
	const Traind__V1__Mesh *file = job->spec->mesh;
	if (file != NULL && (file->tp > TR_GROUP_PEERS_MAX || file->pp > TR_GROUP_PEERS_MAX))
		return false;
	now.job = now.mesh = job_mesh(file);
	struct mesh asked = asked_now(job);
	if (!is_possible(&now.job) || !is_possible(&asked))
		return false;
	now.copies = job_mesh_copies(file);
	now.replicas = now.mesh.size[MESH_DP];
	for (size_t i = 0; i < job->n_peers; i++)
		active += strcmp(job->peers[i]->state, "active") == 0;
	if (job->state == TRAIND__V1__JOB_STATE__JOB_STATE_RUNNING) {
		struct remesh_shape shape = mesh_for(job, active);
		now.mesh = shape.mesh;
		now.copies = shape.copies;
		uint32_t most = now.mesh.size[MESH_DP];
		uint32_t enough = active / (ranks_shards(&now.mesh) * now.copies) * now.copies;
		now.replicas = enough < most ? enough : most;
		if (job_is_strict(job->spec->train) && now.replicas > 0)
			now.replicas = strict_power_of_two(now.replicas);
		now.spares = active - now.replicas * ranks_shards(&now.mesh);
	}
	*out = now;
	return true;
}

double mesh_now_step_s(const Traind__V1__Job *job)
{
	if (job->spec == NULL || job->spec->train == NULL || job->spec->train->optimizer == NULL ||
	    job->progress == NULL || !(job->progress->tokens_per_s > 0))
		return 0;
	return (double)job->spec->train->optimizer->batch_tokens / job->progress->tokens_per_s;
}

double mesh_now_planned_s(const Traind__V1__Job *job)
{
	const Traind__V1__PlanNow *now = job->progress != NULL ? job->progress->plan : NULL;
	if (now != NULL && now->step_s > 0)
		return now->step_s;
	return job->spec != NULL && job->spec->plan != NULL ? job->spec->plan->step_s : 0;
}

/* "dp 2 x pp 2 x tp 2", "dp 1 of 2 x tp 2" */
static void put_mesh(const struct mesh *mesh, uint32_t replicas, bool of, char *text, size_t bytes)
{
	char lacks[32] = "", stages[32] = "";
	if (of && replicas < mesh->size[MESH_DP])
		(void)snprintf(lacks, sizeof(lacks), " of %u", mesh->size[MESH_DP]);
	if (mesh->size[MESH_PP] > 1)
		(void)snprintf(stages, sizeof(stages), " x pp %u", mesh->size[MESH_PP]);
	(void)snprintf(text, bytes, "dp %u%s%s x tp %u", replicas, lacks, stages,
	    mesh->size[MESH_TP]);
}

bool mesh_now_text(const Traind__V1__Job *job, char *text, size_t bytes)
{
	struct mesh_now now;
	char mesh[64], asked[64], instead[80] = "", copies[64] = "", spares[32] = "";
	if (!mesh_now_of(job, &now))
		return false;
	uint32_t wanted = job_mesh_copies(job->spec->mesh);
	bool same = mesh_equal(&now.mesh, &now.job) && now.copies == wanted;
	put_mesh(&now.mesh, now.replicas, same, mesh, sizeof(mesh));
	put_mesh(&now.job, now.job.size[MESH_DP], false, asked, sizeof(asked));
	if (!mesh_equal(&now.mesh, &now.job))
		(void)snprintf(instead, sizeof(instead), " instead of %s", asked);
	if (now.copies != wanted)
		(void)snprintf(copies, sizeof(copies), ", %u %s a replica instead of %u",
		    now.copies, now.copies == 1 ? "copy" : "copies", wanted);
	if (now.spares > 0)
		(void)snprintf(spares, sizeof(spares), ", %u %s", now.spares,
		    now.spares == 1 ? "spare" : "spares");
	(void)snprintf(text, bytes, "%s%s%s%s", mesh, instead, copies, spares);
	return true;
}
