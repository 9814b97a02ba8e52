#include "daemon/checkpoint/mesh_shards.h"

#include <stdlib.h>
#include <string.h>

#include "daemon/plan/job_mesh.h"

const struct layout *mesh_shards_layout(const struct mesh_shards *shards, uint32_t number,
    struct shard *what)
{
	uint32_t tp = shards->mesh.size[MESH_TP];
	const struct layout *layout = &shards->stages[number / tp];
	*what = (struct shard){ number % tp, tp, layout->depth };
	return layout;
}

static tr_status lay_stages(struct mesh_shards *shards, const uint32_t *given,
    struct tr_error *error)
{
	uint32_t ranks = shards->mesh.size[MESH_PP], chunks = shards->chunks;
	uint32_t *layers = calloc((size_t)ranks * chunks, sizeof(*layers));
	struct shard shard = { .size = shards->mesh.size[MESH_TP] };
	tr_status status = layers != NULL
	    ? job_mesh_stages(&shards->whole->config, ranks, chunks, given, layers, error)
	    : tr_error_set(error, TR_ENOMEM, "mesh: no memory for a table of stages");
	for (uint32_t rank = 0; rank < ranks && status == TR_OK; rank++) {
		if (ranks > 1)
			layout_depth_of(layers, ranks, chunks, rank, &shard.depth);
		status = shard_layout(shards->whole, &shard, &shards->stages[rank], error);
		if (status == TR_OK && shards->stages[rank].count > mesh_shards_most(shards))
			shards->largest = rank;
	}
	free(layers);
	return status;
}

static void find_tensors(struct mesh_shards *shards)
{
	size_t all = shards->whole->tensor_count, stages = shards->mesh.size[MESH_PP];
	for (size_t i = 0; i < stages * all; i++)
		shards->tensors[i] = LAYOUT_NONE;
	for (size_t stage = 0; stage < stages; stage++)
		for (size_t i = 0; i < shards->stages[stage].tensor_count; i++)
			shards->tensors[stage * all + shards->stages[stage].tensors[i].number] = i;
}

tr_status mesh_shards_create(const struct layout *whole, const struct mesh *mesh, uint32_t chunks,
    const uint32_t *layers, struct mesh_shards *out, struct tr_error *error)
{
	size_t stages = mesh->size[MESH_PP];
	struct mesh_shards shards = { .mesh = *mesh,
		.chunks = chunks,
		.whole = whole,
		.stages = calloc(stages, sizeof(*shards.stages)),
		.tensors = calloc(stages * whole->tensor_count, sizeof(*shards.tensors)) };
	tr_status status = TR_OK;
	if (shards.stages == NULL || shards.tensors == NULL)
		status = tr_error_set(error, TR_ENOMEM, "mesh: no memory for a shard's tables");
	if (status == TR_OK)
		status = lay_stages(&shards, layers, error);
	if (status != TR_OK) {
		mesh_shards_finish(&shards);
		return status;
	}
	find_tensors(&shards);
	*out = shards;
	return TR_OK;
}

void mesh_shards_finish(struct mesh_shards *shards)
{
	for (uint32_t stage = 0; shards->stages != NULL && stage < shards->mesh.size[MESH_PP];
	     stage++)
		layout_finish(&shards->stages[stage]);
	free(shards->stages);
	free(shards->tensors);
	memset(shards, 0, sizeof(*shards));
}
