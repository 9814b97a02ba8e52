#include "client/trainctl/mesh_now.h"

#include <stdio.h>
#include <string.h>

#include "daemon/plan/job_mesh.h"
#include "daemon/plan/ranks.h"

bool mesh_now_of(const Traind__V1__Job *job, struct mesh_now *out)
{
	struct mesh_now now = { .spares = 0 };
	uint32_t active = 0;
	if (job->spec == NULL || job->spec->train == NULL || !job_mesh_is_sharded(job->spec->mesh))
		return false;
	now.mesh = job_mesh(job->spec->mesh);
	now.replicas = now.mesh.size[MESH_DP];
	for (size_t i = 0; i < job->n_peers; i++)
		active += strcmp(job->peers[i]->state, "active") == 0;
	if (job->state == TRAIND__V1__JOB_STATE__JOB_STATE_RUNNING) {
		uint32_t enough = active / ranks_shards(&now.mesh);
		now.replicas = enough < now.replicas ? enough : now.replicas;
		now.spares = active - now.replicas * ranks_shards(&now.mesh);
	}
	*out = now;
	return true;
}

bool mesh_now_text(const Traind__V1__Job *job, char *text, size_t bytes)
{
	struct mesh_now now;
	char lacks[32] = "", stages[32] = "", spares[32] = "";
	if (!mesh_now_of(job, &now))
		return false;
	if (now.replicas < now.mesh.size[MESH_DP])
		(void)snprintf(lacks, sizeof(lacks), " of %u", now.mesh.size[MESH_DP]);
	if (now.mesh.size[MESH_PP] > 1)
		(void)snprintf(stages, sizeof(stages), " x pp %u", now.mesh.size[MESH_PP]);
	if (now.spares > 0)
		(void)snprintf(spares, sizeof(spares), ", %u %s", now.spares,
		    now.spares == 1 ? "spare" : "spares");
	(void)snprintf(text, bytes, "dp %u%s%s x tp %u%s", now.replicas, lacks, stages,
	    now.mesh.size[MESH_TP], spares);
	return true;
}
