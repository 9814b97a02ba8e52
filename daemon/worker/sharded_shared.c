/* Parameters that every member of a tensor-parallel group holds: norms, positions, biases behind a sum. Members of a sum over dp are added up in the order of their ids (coll.h),
 * which after a replacement is another order at another place along tp; of three or more numbers the last bits would differ, and what all hold drift apart.
 * So these gradients are summed once for a whole stage: tp 0 of each replica says them, the others zeros. Two numbers have one sum in either order. With sequence parallelism each
 * has the gradient of its own rows, and says that.
 */
#include <string.h>

#include "daemon/worker/trainer_inside.h"

static size_t numbers_of(const struct sharded *s, const struct layout *local)
{
	size_t numbers = 0;
	for (size_t i = 0; i < local->tensor_count; i++)
		if (shard_whole(&s->whole, local, i))
			numbers += layout_numbers(&local->tensors[i]);
	return numbers;
}

/* By the replicas that there are, or could be. */
static bool summed_apart(const struct sharded *s, uint32_t replicas)
{
	if (s->strict != NULL) /* the model has summed them up */
		return false;
	if (s->apart != NULL) /* with a merge (sharded_merge.c) */
		return replicas > 1 || s->row_parts > 1;
	return s->row_parts > 1 || replicas > 2;
}

tr_status sharded_make_shared(struct trainer *t, struct tr_error *error)
{
	struct sharded *s = t->sharded;
	size_t most = 1;
	if (s->shards.mesh.size[MESH_TP] < 2 || !summed_apart(s, s->shards.mesh.size[MESH_DP]))
		return TR_OK;
	for (uint32_t stage = 0; stage < s->shards.mesh.size[MESH_PP]; stage++) {
		size_t numbers = numbers_of(s, &s->shards.stages[stage]);
		most = numbers > most ? numbers : most;
	}
	s->shared = mesh_memory_take(&s->memory, most * sizeof(float));
	return s->shared != NULL
	    ? TR_OK
	    : tr_error_set(error, TR_ENOMEM,
	          "mesh.tp: no shared memory for %zu numbers that all hold", most);
}

bool sharded_has_shared(const struct trainer *t)
{
	const struct sharded *s = t->sharded;
	return (s->rank != RANKS_NONE || sharded_is_newcomer(t)) && s->shared != NULL &&
	    summed_apart(s, ranks_replicas(&s->next));
}

static bool says_it(const struct sharded *s)
{
	return s->rank != RANKS_NONE && (s->row_parts > 1 || s->shard.rank == 0);
}

/* Between gradients [first, end) and the buffer, where these tensors lie one after another. */
static void copy(struct trainer *t, size_t first, size_t end, bool back)
{
	const struct sharded *s = t->sharded;
	size_t at = 0;
	for (size_t i = 0; i < t->layout.tensor_count; i++) {
		const struct layout_tensor *tensor = &t->layout.tensors[i];
		size_t numbers = layout_numbers(tensor), offset = tensor->offset;
		if (!shard_whole(&s->whole, &t->layout, i))
			continue;
		size_t from = offset > first ? offset : first;
		size_t to = offset + numbers < end ? offset + numbers : end;
		float *gradient = t->arrays.grads + from,
		      *summed = s->shared + at + (from - offset);
		if (from < to)
			memcpy(back ? gradient : summed, back ? summed : gradient,
			    (to - from) * sizeof(float));
		at += numbers;
	}
}

void sharded_keep_shared(struct trainer *t, size_t first, size_t end)
{
	const struct sharded *s = t->sharded;
	if (sharded_has_shared(t) && says_it(s))
		copy(t, first, end, false);
}

/* All of the stage. */
static void set_scope(const struct trainer *t, struct sharded_scope *scope)
{
	const struct sharded *s = t->sharded;
	uint32_t stage = sharded_stage(t), tp = s->shards.mesh.size[MESH_TP];
	scope->count = 0;
	for (uint32_t i = 0; i < s->next.count; i++)
		if (s->next.peers[i].rank != RANKS_NONE &&
		    mesh_at(&s->shards.mesh, s->next.peers[i].rank).at[MESH_PP] == stage)
			scope->members[scope->count++] = i;
	for (uint64_t i = 0; i < s->newcomers.count; i++)
		if (s->newcomers.of[i].shard / tp == stage)
			sharded_add_newcomer(s, &s->newcomers.of[i], scope);
}

tr_status sharded_submit_shared(struct trainer *t, struct tr_error *error)
{
	const struct sharded *s = t->sharded;
	struct sharded_scope scope;
	struct tr_op op = TR_OP_INIT;
	if (!sharded_has_shared(t))
		return TR_OK;
	set_scope(t, &scope);
	op.tag = TAG_SHARED;
	op.count = numbers_of(s, &t->layout);
	op.output = s->shared;
	op.reduce = TR_SUM;
	op.scope = (struct tr_scope){ scope.members, scope.count };
	if (!says_it(s))
		sharded_add_nothing(s->shared, op.count);
	return tr_submit(t->group, &op, error);
}

tr_status sharded_shared_squares(struct trainer *t, double *sum, struct tr_error *error)
{
	const struct sharded *s = t->sharded;
	tr_status status = tr_wait(t->group, TAG_SHARED, error);
	if (status == TR_OK)
		*sum = optim_squares(t->ops, t->pool, s->shared, numbers_of(s, &t->layout));
	return status;
}

double sharded_kept_squares(const struct trainer *t)
{
	const struct sharded *s = t->sharded;
	return optim_squares(t->ops, t->pool, s->shared, numbers_of(s, &t->layout));
}

size_t sharded_copy_shared(struct trainer *t, bool back)
{
	copy(t, 0, t->layout.count, back);
	return numbers_of(t->sharded, &t->layout);
}

void sharded_end_shared(struct trainer *t)
{
	if (sharded_has_shared(t))
		copy(t, 0, t->layout.count, true);
}
