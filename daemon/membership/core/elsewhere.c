/* A queued job that lost all its workers, and a plan some node of which is not there: when it starts on other nodes, or on fewer, and on how many at least. */
#include "daemon/membership/core/state.h"
#include "daemon/plan/job_mesh.h"

/* With fewer its workers would wait (mesh.too_few). */
uint32_t elsewhere_workers(const struct job *job)
{
	const struct mesh mesh = job_mesh(job->spec->mesh);
	if (job->spec->mesh == NULL)
		return 1;
	return job_mesh_waits(job->spec)
	    ? mesh_workers(&mesh) / mesh.size[MESH_DP] * job_mesh_copies(job->spec->mesh)
	    : 1;
}

uint32_t elsewhere_nodes(const struct job *job)
{
	return job->spec->mesh != NULL && job->spec->mesh->min_nodes > 0
	    ? job->spec->mesh->min_nodes
	    : 1;
}

uint64_t elsewhere_ms(const struct job *job)
{
	bool waits = job->state == TRAIND__V1__JOB_STATE__JOB_STATE_QUEUED &&
	    job->soft.gone_ms != 0;
	return waits ? job->soft.gone_ms + ELSEWHERE_AFTER_MS : 0;
}

/* When a job that has begun, and lost all its workers, goes on with so few nodes, as one that lost some of them does: once the others have had time to come back. UINT64_MAX: it does not. */
uint64_t elsewhere_without_ms(const struct job *job, uint32_t had)
{
	return job->restarts == 0 || had < elsewhere_nodes(job) ||
	        had * state_job_per_node(job) < elsewhere_workers(job)
	    ? UINT64_MAX
	    : elsewhere_ms(job);
}
