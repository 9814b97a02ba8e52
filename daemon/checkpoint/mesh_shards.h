/* Layouts of all shards of a mesh: of each stage of the pipeline one, which is that of any place along tp. A shard's number is ranks_shard's: stage x tp + place along tp. Pure.
 *
 *	struct mesh_shards shards;
 *	st = mesh_shards_create(&whole, &mesh, 1, NULL, &shards, &error);
 *	layout = mesh_shards_layout(&shards, 3, &shard);    // and what it is of the whole: shard_take, shard_pieces
 *	mesh_shards_finish(&shards);
 */
#ifndef TR_DAEMON_CHECKPOINT_MESH_SHARDS_H
#define TR_DAEMON_CHECKPOINT_MESH_SHARDS_H

#include "daemon/checkpoint/shard.h"
#include "daemon/plan/mesh.h"

struct mesh_shards {
	struct mesh mesh;
	uint32_t chunks; /* stages of each pipeline rank */
	const struct layout *whole;
	struct layout *stages; /* [pp]: of each pipeline rank */
	size_t *tensors; /* [pp, whole->tensor_count]: which of the stage's it is; LAYOUT_NONE: the stage has none of it */
	size_t largest; /* stage */
};

/* `layers`: of each pipeline rank, NULL: as job_mesh_stages deals them. `whole` stays borrowed until mesh_shards_finish. TR_EINVAL names the key of the job file and says what is allowed; then nothing is to be finished. */
tr_status mesh_shards_create(const struct layout *whole, const struct mesh *mesh, uint32_t chunks,
    const uint32_t *layers, struct mesh_shards *shards, struct tr_error *error);
void mesh_shards_finish(struct mesh_shards *shards); /* accepts a zeroed one */

static inline uint32_t mesh_shards_count(const struct mesh_shards *shards)
{
	return shards->mesh.size[MESH_PP] * shards->mesh.size[MESH_TP];
}
/* Of shard `number`, with what it is of the whole. */
const struct layout *mesh_shards_layout(const struct mesh_shards *shards, uint32_t number,
    struct shard *what);
/* Numbers of the largest. */
static inline size_t mesh_shards_most(const struct mesh_shards *shards)
{
	return shards->stages[shards->largest].count;
}
/* Of shard `number`, the tensor that is `tensor` of the whole; LAYOUT_NONE. */
static inline size_t mesh_shards_tensor(const struct mesh_shards *shards, uint32_t number,
    size_t tensor)
{
	size_t stage = number / shards->mesh.size[MESH_TP];
	return shards->tensors[stage * shards->whole->tensor_count + tensor];
}

#endif
