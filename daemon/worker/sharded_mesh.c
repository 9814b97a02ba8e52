/* What is made for a mesh, and unmade when there is another one. */
#include <stdlib.h>
#include <string.h>

#include "daemon/worker/trainer_inside.h"

/* Bits of arrays. */
enum {
	PARAMETERS = 1,
	OUTER = 1 << SHARDED_OUTER,
};

static bool has_outer(const struct sharded *s)
{
	return s->apart != NULL && s->apart->options.outer_momentum > 0;
}

/* Of replicas that train apart moments are not the shard's, but the replica's (sharded_apart.h). */
unsigned sharded_arrays_held(const struct sharded *s)
{
	if (s->apart == NULL)
		return PARAMETERS | SHARDED_MOMENTS;
	return PARAMETERS | (has_outer(s) ? OUTER : 0);
}

/* With ZeRO-1 moments go by pieces (sharded_owners.c). */
unsigned sharded_arrays_moved(const struct sharded *s)
{
	return sharded_table_owners(s) > 0 ? PARAMETERS : sharded_arrays_held(s);
}

unsigned sharded_arrays_whole(const struct sharded *s)
{
	return PARAMETERS | SHARDED_MOMENTS | (has_outer(s) ? OUTER : 0);
}

tr_status sharded_take_arrays(struct trainer *t, size_t numbers, unsigned which,
    struct optim_arrays *arrays, struct tr_error *error)
{
	struct mesh_memory *memory = &t->sharded->memory;
	size_t bytes = numbers * sizeof(float);
	struct optim_arrays made = { 0 };
	float **of[SHARDED_ARRAYS_ALL] = { &made.params, &made.first, &made.second, &made.outer };
	for (unsigned a = 0; a < SHARDED_ARRAYS_ALL; a++) {
		if ((which >> a & 1) == 0)
			continue;
		*of[a] = mesh_memory_take(memory, bytes);
		if (*of[a] != NULL)
			continue;
		sharded_give_arrays(t, &made);
		return tr_error_set(error, TR_ENOMEM,
		    "mesh: no shared memory for a shard's parameters and moments (%u x %zu MiB)",
		    SHARDED_ARRAYS, bytes >> 20);
	}
	*arrays = made;
	return TR_OK;
}

void sharded_give_arrays(struct trainer *t, struct optim_arrays *arrays)
{
	struct mesh_memory *memory = &t->sharded->memory;
	mesh_memory_give(memory, arrays->params);
	mesh_memory_give(memory, arrays->grads);
	mesh_memory_give(memory, arrays->first);
	mesh_memory_give(memory, arrays->second);
	mesh_memory_give(memory, arrays->outer);
	memset(arrays, 0, sizeof(*arrays));
}

static tr_status make_arrays(struct trainer *t, struct tr_error *error)
{
	struct sharded *s = t->sharded;
	size_t most = mesh_shards_most(&s->shards);
	tr_status status = s->held.params == NULL
	    ? sharded_take_arrays(t, most, sharded_arrays_held(s), &s->held, error)
	    : TR_OK;
	if (status != TR_OK)
		return status;
	most = t->strict ? sharded_strict_numbers(t) : most;
	s->held.grads = mesh_memory_take(&s->memory, most * sizeof(float));
	t->arrays = s->held;
	s->staged = calloc(mesh_shards_count(&s->shards), sizeof(*s->staged));
	return s->held.grads != NULL && s->staged != NULL
	    ? TR_OK
	    : tr_error_set(error, TR_ENOMEM,
	          "mesh: no shared memory for a shard's gradients (%zu MiB)",
	          most * sizeof(float) >> 20);
}

/* Another mesh than the job's may have a tp that does not divide the context: all rows at each, then. */
static size_t row_parts(const struct trainer *t)
{
	const struct sharded *s = t->sharded;
	uint32_t tp = s->shards.mesh.size[MESH_TP];
	return (t->sequence_parallel || t->strict) && s->whole.config.context % tp == 0 ? tp : 1;
}

static tr_status make_tensor(struct trainer *t, struct tr_error *error)
{
	struct sharded *s = t->sharded;
	const struct layout *largest = &s->shards.stages[s->shards.largest];
	size_t numbers = (model_exchange_numbers(largest, t->micro) + 15) / 16 * 16;
	float *exchange = mesh_memory_take(&s->memory, 2 * numbers * sizeof(float));
	if (exchange == NULL)
		return tr_error_set(error, TR_ENOMEM,
		    "mesh.tp: no shared memory for sums inside the model (2 x %zu numbers)",
		    numbers);
	s->tensor = (struct model_tensor){ .size = s->shards.mesh.size[MESH_TP],
		.vocab = s->whole.config.vocab,
		.sum = sharded_sum,
		.maximum = sharded_maximum,
		.exchange = exchange,
		.exchange_too = exchange + numbers,
		.reduce_scatter = sharded_reduce_scatter,
		.all_gather = sharded_all_gather,
		.begin = sharded_sum_begin,
		.end = sharded_sum_end,
		.arg = &s->exchange };
	if (!t->strict)
		return TR_OK;
	s->tensor.sum = sharded_pairs_sum;
	s->tensor.maximum = sharded_pairs_maximum;
	s->tensor.reduce_scatter = sharded_pairs_scatter;
	s->tensor.all_gather = sharded_pairs_gather;
	s->tensor.begin = NULL;
	s->tensor.end = NULL;
	return TR_OK;
}

size_t sharded_members(const struct trainer *t)
{
	const struct sharded *s = t->sharded;
	return t->strict ? s->strict->width_parts / s->shards.mesh.size[MESH_TP] : 0;
}

/* Which stage of a pipeline there will be is known with the rank. */
static tr_status make_model(struct trainer *t, struct tr_error *error)
{
	struct sharded *s = t->sharded;
	t->layout = s->shards.stages[s->shards.largest];
	buckets_plan(&t->layout, BUCKETS_BYTES, &t->buckets);
	if (s->shards.mesh.size[MESH_PP] > 1)
		return sharded_pipeline_create(t, error);
	struct model_room how = { .recompute = t->recompute,
		.row_parts = s->row_parts,
		.members = sharded_members(t) };
	tr_status status = model_create_whole(&t->layout, &how, t->micro, t->pool, &t->model, error);
	if (status == TR_OK)
		status = trainer_choose_arithmetic(t, error);
	if (status == TR_OK && s->shards.mesh.size[MESH_TP] > 1)
		model_use_tensor(t->model, &s->tensor);
	return status;
}

tr_status sharded_make_mesh(struct trainer *t, struct tr_error *error)
{
	tr_status status = make_arrays(t, error);
	if (status == TR_OK && t->sharded->apart != NULL)
		status = sharded_apart_make(t, error);
	t->sharded->row_parts = row_parts(t);
	if (status == TR_OK && t->sharded->shards.mesh.size[MESH_TP] > 1)
		status = make_tensor(t, error);
	if (status == TR_OK && t->strict)
		status = sharded_strict_make(t, error);
	if (status == TR_OK)
		status = make_model(t, error);
	return status == TR_OK ? sharded_make_shared(t, error) : status;
}

void sharded_unmake_mesh(struct trainer *t)
{
	struct sharded *s = t->sharded;
	if (s->pipeline != NULL)
		sharded_pipeline_destroy(t); /* with its model */
	model_destroy(t->model);
	t->model = NULL;
	for (uint32_t k = 0; s->staged != NULL && k < mesh_shards_count(&s->shards); k++)
		sharded_give_arrays(t, &s->staged[k]);
	free(s->staged);
	s->staged = NULL;
	sharded_give_arrays(t, &s->held);
	sharded_give_arrays(t, &s->other);
	if (s->strict != NULL)
		sharded_strict_unmake(t);
	if (s->apart != NULL)
		sharded_apart_unmake(t);
	mesh_memory_give(&s->memory, s->tensor.exchange);
	mesh_memory_give(&s->memory, s->shared);
	mesh_memory_give(&s->memory, s->made);
	memset(&s->tensor, 0, sizeof(s->tensor));
	memset(&t->arrays, 0, sizeof(t->arrays));
	memset(&t->layout, 0, sizeof(t->layout)); /* was one of these */
	s->shared = s->made = NULL;
	s->made_room = 0;
	s->untidy = true; /* what is held next has come whole */
	mesh_shards_finish(&s->shards);
}
