/* Copies of the mesh that make up a replica which trains apart (mesh.copies; sharded_apart.h). They take each step together: each computes its part of the replica's sequences, and the workers of a shard sum
 * their gradients, so that the same bits are in each copy's work and moments. Of a merge each gives a part:
 *
 *	merge    copy c sums part c of the shard's movement with copy c of the other replicas: so what a replica moved goes over the links between them once, however many copies it has
 *	barrier  of these: all have their part, so its memory may be used again
 *	gather   in the replica each copy sends its part to the others, as it came: so all have the same bits, with any codec
 *
 * What all of a tensor-parallel group hold is summed over all of a stage at once where a replica has three copies and more (sharded_shared.c says why), a tied table over the first and last stages of all
 * copies. One copy alone: none of this is there. */
#include <string.h>

#include "daemon/worker/trainer_inside.h"

enum { RANGES = 2 };
_Static_assert(TAG_COPIES + RANGES * TR_GROUP_PEERS_MAX + RANGES <= TAG_GIVEN,
    "tags of parts and barriers");

uint32_t sharded_copies(const struct sharded *s)
{
	return (uint32_t)s->next.copies;
}

void sharded_copy_samples(const struct sharded *s, uint64_t share, uint64_t *first, uint64_t *last)
{
	samples_share(share, ranks_copy(&s->next, s->self), sharded_copies(s), first, last);
}

bool sharded_speaks_for_replica(const struct trainer *t)
{
	const struct sharded *s = t->sharded;
	return sharded_speaks(t) && ranks_copy(&s->next, s->self) == 0;
}

/* ---- scopes within the replica ---- */

static bool beside(const struct sharded *s, uint32_t index, struct mesh_at *at)
{
	if (s->next.peers[index].rank == RANKS_NONE ||
	    ranks_replica(&s->next, index) != ranks_replica(&s->next, s->self))
		return false;
	*at = mesh_at(&s->shards.mesh, s->next.peers[index].rank);
	return true;
}

void sharded_copies_stage(const struct sharded *s, struct sharded_scope *scope)
{
	uint32_t stage = mesh_at(&s->shards.mesh, s->rank).at[MESH_PP];
	struct mesh_at at;
	scope->count = 0;
	for (uint32_t i = 0; i < s->next.count; i++)
		if (beside(s, i, &at) && at.at[MESH_PP] == stage)
			scope->members[scope->count++] = i;
}

void sharded_copies_ends(const struct sharded *s, struct sharded_scope *scope)
{
	uint32_t last = s->shards.mesh.size[MESH_PP] - 1;
	uint32_t tp = mesh_at(&s->shards.mesh, s->rank).at[MESH_TP];
	struct mesh_at at;
	scope->count = 0;
	for (uint32_t i = 0; i < s->next.count; i++)
		if (beside(s, i, &at) && at.at[MESH_TP] == tp &&
		    (at.at[MESH_PP] == 0 || at.at[MESH_PP] == last))
			scope->members[scope->count++] = i;
}

/* ---- parts of a merge ---- */

struct owners_range sharded_copy_part(const struct sharded *s, uint32_t copy, size_t first,
    size_t end)
{
	struct owners_range part = owners_piece(end - first, sharded_copies(s), copy);
	return (struct owners_range){ first + part.first, first + part.end };
}

struct owners_range sharded_own_part(const struct sharded *s, size_t first, size_t end)
{
	return sharded_copy_part(s, ranks_copy(&s->next, s->self), first, end);
}

tr_status sharded_barrier(struct trainer *t, uint32_t tag, const struct sharded_scope *scope,
    struct tr_error *error)
{
	struct tr_op op = TR_OP_INIT;
	op.tag = tag;
	op.collective = TR_BARRIER;
	op.scope = (struct tr_scope){ scope->members, scope->count };
	tr_status status = tr_submit(t->group, &op, error);
	return status == TR_OK ? tr_wait(t->group, op.tag, error) : status;
}

tr_status sharded_broadcast(struct trainer *t, uint32_t tag, float *numbers, size_t count,
    const struct sharded_scope *scope, unsigned root, struct tr_error *error)
{
	struct tr_op op = TR_OP_INIT;
	op.tag = tag;
	op.collective = TR_BROADCAST;
	op.output = numbers;
	op.count = count;
	op.root = root;
	op.scope = (struct tr_scope){ scope->members, scope->count };
	return tr_submit(t->group, &op, error);
}

static uint32_t gather_tag(unsigned which, uint32_t copy)
{
	return TAG_COPIES + which * TR_GROUP_PEERS_MAX + copy;
}

/* The part that the member of s->copies with this number has merged. */
static tr_status submit_part(struct trainer *t, unsigned which, uint32_t member, float *numbers,
    struct owners_range range, struct tr_error *error)
{
	const struct sharded *s = t->sharded;
	uint32_t copy = ranks_copy(&s->next, s->copies.members[member]);
	struct owners_range part = sharded_copy_part(s, copy, range.first, range.end);
	return part.first < part.end
	    ? sharded_broadcast(t, gather_tag(which, copy), numbers + part.first,
	          part.end - part.first, &s->copies, member, error)
	    : TR_OK;
}

/* For each copy whose part is not empty. */
static tr_status each_part(struct trainer *t, unsigned which, struct owners_range range,
    tr_status (*call)(tr_group *group, uint32_t tag, struct tr_error *error),
    struct tr_error *error)
{
	const struct sharded *s = t->sharded;
	tr_status status = TR_OK;
	for (uint32_t copy = 0; copy < sharded_copies(s) && status == TR_OK; copy++) {
		struct owners_range part = sharded_copy_part(s, copy, range.first, range.end);
		if (part.first < part.end)
			status = call(t->group, gather_tag(which, copy), error);
	}
	return status;
}

tr_status sharded_gather_parts(struct trainer *t, unsigned which, float *numbers,
    struct owners_range range, struct tr_error *error)
{
	struct sharded *s = t->sharded;
	struct owners_range own;
	tr_status status = TR_OK;
	if (sharded_copies(s) < 2 || s->dp.count < 2)
		return TR_OK;
	own = sharded_own_part(s, range.first, range.end);
	if (own.first < own.end) {
		status = sharded_barrier(t, TAG_COPIES + RANGES * TR_GROUP_PEERS_MAX + which,
		    &s->dp, error);
		if (status == TR_OK)
			status = tr_release(t->group, TAG_MERGE + which, error);
	}
	for (uint32_t i = 0; i < s->copies.count && status == TR_OK; i++)
		status = submit_part(t, which, i, numbers, range, error);
	return status == TR_OK ? each_part(t, which, range, tr_wait, error) : status;
}

tr_status sharded_release_parts(struct trainer *t, unsigned which, struct owners_range range,
    struct tr_error *error)
{
	return each_part(t, which, range, tr_release, error);
}
