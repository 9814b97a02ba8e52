#include "daemon/plan/mesh.h"

#include "common/limits.h"

/* From the one that ranks count along first. */
static const enum mesh_axis by_nearness[MESH_AXES] = { MESH_TP, MESH_DP, MESH_PP };

const char *mesh_axis_name(enum mesh_axis axis)
{
	static const char *const names[MESH_AXES] = { "dp", "pp", "tp" };

	return names[axis];
}

tr_status mesh_check(const struct mesh *mesh, struct tr_error *error)
{
	uint64_t workers = 1;

	for (int axis = 0; axis < MESH_AXES; axis++) {
		if (mesh->size[axis] == 0)
			return tr_error_set(error, TR_EINVAL, "mesh: %s is 0; it is at least 1",
			    mesh_axis_name((enum mesh_axis)axis));
		if (mesh->size[axis] > TR_GROUP_PEERS_MAX)
			return tr_error_set(error, TR_EINVAL,
			    "mesh: %s is %u; at most %u workers can be in a group",
			    mesh_axis_name((enum mesh_axis)axis), mesh->size[axis],
			    TR_GROUP_PEERS_MAX);
		workers *= mesh->size[axis];
	}
	if (workers > TR_GROUP_PEERS_MAX)
		return tr_error_set(error, TR_EINVAL,
		    "mesh: dp %u x pp %u x tp %u is %llu workers; at most %u can be in a group",
		    mesh->size[MESH_DP], mesh->size[MESH_PP], mesh->size[MESH_TP],
		    (unsigned long long)workers, TR_GROUP_PEERS_MAX);
	return TR_OK;
}

uint32_t mesh_workers(const struct mesh *mesh)
{
	return mesh->size[MESH_DP] * mesh->size[MESH_PP] * mesh->size[MESH_TP];
}

bool mesh_equal(const struct mesh *a, const struct mesh *b)
{
	bool equal = true;

	for (int axis = 0; axis < MESH_AXES; axis++)
		equal = equal && a->size[axis] == b->size[axis];
	return equal;
}

struct mesh_at mesh_at(const struct mesh *mesh, uint32_t rank)
{
	struct mesh_at at;

	for (int i = 0; i < MESH_AXES; i++) {
		enum mesh_axis axis = by_nearness[i];
		at.at[axis] = rank % mesh->size[axis];
		rank /= mesh->size[axis];
	}
	return at;
}

uint32_t mesh_rank(const struct mesh *mesh, struct mesh_at at)
{
	uint32_t rank = 0;

	for (int i = MESH_AXES - 1; i >= 0; i--)
		rank = rank * mesh->size[by_nearness[i]] + at.at[by_nearness[i]];
	return rank;
}

uint32_t mesh_rank_by_replica(const struct mesh *mesh, uint32_t place)
{
	const uint32_t *size = mesh->size;
	uint32_t replica = size[MESH_PP] * size[MESH_TP];
	struct mesh_at at = { .at = { [MESH_DP] = place / replica,
		                  [MESH_PP] = place % replica / size[MESH_TP],
		                  [MESH_TP] = place % size[MESH_TP] } };

	return mesh_rank(mesh, at);
}

void mesh_group(const struct mesh *mesh, enum mesh_axis axis, uint32_t rank, uint32_t *ranks)
{
	struct mesh_at at = mesh_at(mesh, rank);

	for (uint32_t i = 0; i < mesh->size[axis]; i++) {
		at.at[axis] = i;
		ranks[i] = mesh_rank(mesh, at);
	}
}
