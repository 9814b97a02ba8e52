/* The mesh of a job: dp x pp x tp workers, and where each rank stands in it. Pure.
 *
 * Ranks count along tp first, then dp, then pp, as Megatron-LM's do (arXiv 2104.04473): the workers of a tensor-parallel
 * group, which talk most, are neighbours and so fall on one node. Workers of a job whose mesh is given are laid on nodes replica by replica (along tp, then pp, then dp): who loses a node
 * loses a replica, and not all that hold a stage.
 *
 *	struct mesh mesh = { .size = { [MESH_DP] = 2, [MESH_PP] = 2, [MESH_TP] = 2 } };
 *	struct mesh_at at = mesh_at(&mesh, 5);       // dp 0, pp 1, tp 1
 *	mesh_group(&mesh, MESH_DP, 5, ranks);        // 5, 7: who reduces gradients with rank 5
 */
#ifndef TR_DAEMON_PLAN_MESH_H
#define TR_DAEMON_PLAN_MESH_H

#include <stdbool.h>
#include <stdint.h>

#include "common/error.h"

enum mesh_axis { MESH_DP, MESH_PP, MESH_TP, MESH_AXES };

struct mesh {
	uint32_t size[MESH_AXES]; /* each at least 1 */
};

struct mesh_at {
	uint32_t at[MESH_AXES];
};

const char *mesh_axis_name(enum mesh_axis axis); /* "dp", "pp", "tp" */

/* TR_EINVAL: an axis is 0, or there are more workers than TR_GROUP_PEERS_MAX. */
tr_status mesh_check(const struct mesh *mesh, struct tr_error *error);
uint32_t mesh_workers(const struct mesh *mesh);
bool mesh_equal(const struct mesh *a, const struct mesh *b);

struct mesh_at mesh_at(const struct mesh *mesh, uint32_t rank);
uint32_t mesh_rank(const struct mesh *mesh, struct mesh_at at);

/* The rank that is `place`-th where whole replicas follow each other: along tp, then pp, then dp. */
uint32_t mesh_rank_by_replica(const struct mesh *mesh, uint32_t place);

/* The ranks that differ from `rank` along `axis` alone, itself included, by their place on it: mesh->size[axis] of them. */
void mesh_group(const struct mesh *mesh, enum mesh_axis axis, uint32_t rank, uint32_t *ranks);

#endif
