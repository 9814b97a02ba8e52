#include "daemon/plan/plan_loss.h"

bool plan_loss_goes_back(const struct plan_cluster *cluster, const struct plan *plan, uint32_t node)
{
	const struct mesh *mesh = &plan->choice.mesh;

	for (uint32_t rank = 0; rank < mesh_workers(mesh); rank++) {
		uint32_t holders[PLAN_WORKERS_MAX], here = 0;
		mesh_group(mesh, MESH_DP, rank, holders);
		while (here < mesh->size[MESH_DP] &&
		    cluster->workers[plan->worker_of[holders[here]]].node == node)
			here++;
		if (here == mesh->size[MESH_DP])
			return true;
	}
	return false;
}
