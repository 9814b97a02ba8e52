/* ZeRO-1 where a replica that trains apart is several copies (mesh.copies and mesh.zero_owners; daemon/plan/owners.h): of its shard's moments each copy owns pieces, R copies each piece. A step is taken by each worker
 * on what it owns, of the gradient that all copies have; then the first owner of each piece sends the parameters that came of it to the copies that do not own it, into their work. Until that is there a worker `lacks`
 * it: the step is taken all the same, once and for all, and where the round begins again the roster says so, and all copies of the shard give each other the pieces again, which are the same bits: as long as one of them lacks some, none has heard that all have them, and so none has changed its work at a take
 * (sharded_stream.c).
 *
 * Where another worker comes for one that was lost it gets its pieces from their other owners in the replica (sharded_apart_moments.c); if there are none, all of the replica begin with fresh
 * ones. A checkpoint has the pieces of one replica, from their owners. */
#include "daemon/plan/job_mesh_sync.h"
#include "daemon/worker/trainer_inside.h"

enum { SUMS = JOB_MESH_INNER_SUMS };

uint32_t sharded_owners_now(const struct trainer *t)
{
	const struct sharded *s = t->sharded;
	uint64_t copies = s->state->ranks.copies;
	if (s->apart == NULL)
		return t->zero_owners;
	return t->zero_owners < copies ? t->zero_owners : 0;
}

unsigned sharded_owned(const struct trainer *t, struct owners_range ranges[2])
{
	const struct sharded *s = t->sharded;
	struct ranks_part mine = ranks_part(&s->next, s->self);
	if (sharded_owners_share(s))
		return owners_ranges(t->layout.count, &mine, s->owners, ranges);
	ranges[0] = (struct owners_range){ 0, t->layout.count };
	return 1;
}

bool sharded_owners_share(const struct sharded *s)
{
	return s->owners > 0 && s->owners < sharded_copies(s);
}

/* Who sends piece `piece` and who gets it, of the copies; false: this worker has no part in it. */
static bool scope_of(const struct sharded *s, uint32_t piece, struct sharded_scope *scope,
    unsigned *root)
{
	uint32_t copies = sharded_copies(s);
	bool in = false;
	scope->count = 0;
	for (uint32_t i = 0; i < s->copies.count; i++) {
		uint32_t index = s->copies.members[i], copy = ranks_copy(&s->next, index);
		if (copy != piece && owners_owns(s->owners, copies, copy, piece))
			continue;
		if (copy == piece)
			*root = scope->count;
		in = in || index == s->self;
		scope->members[scope->count++] = index;
	}
	return in;
}

static uint32_t tag_of(const struct sharded *s, uint32_t piece)
{
	return sharded_inner_tag(s, s->apart->own.steps - 1) + SUMS + piece;
}

tr_status sharded_owners_exchange(struct trainer *t, struct tr_error *error)
{
	struct sharded *s = t->sharded;
	uint32_t copies = sharded_copies(s), mine[TR_GROUP_PEERS_MAX], count = 0;
	tr_status status = TR_OK;
	for (uint32_t piece = 0; piece < copies && status == TR_OK; piece++) {
		struct owners_range range = owners_piece(t->layout.count, copies, piece);
		struct sharded_scope scope;
		unsigned root = 0;
		if (range.first == range.end || !scope_of(s, piece, &scope, &root))
			continue;
		mine[count++] = piece;
		status = sharded_broadcast(t, tag_of(s, piece), s->apart->work + range.first,
		    range.end - range.first, &scope, root, error);
	}
	for (uint32_t i = 0; i < count && status == TR_OK; i++)
		status = tr_wait(t->group, tag_of(s, mine[i]), error);
	/* From here on it lacks nothing: another copy may hear of the barrier, and change its work at a take, while this one never does. */
	if (status == TR_OK)
		s->apart->own.lacks = false;
	/* All have theirs: `work` is this worker's again. */
	if (status == TR_OK)
		status = sharded_barrier(t, tag_of(s, copies), &s->copies, error);
	for (uint32_t i = 0; i < count && status == TR_OK; i++)
		status = tr_release(t->group, tag_of(s, mine[i]), error);
	return status;
}

tr_status sharded_owners_release(struct trainer *t, struct tr_error *error)
{
	const struct sharded *s = t->sharded;
	return sharded_owners_share(s) ? tr_release(t->group, tag_of(s, sharded_copies(s)), error)
	                               : TR_OK;
}

void sharded_owners_begin(struct trainer *t)
{
	struct sharded *s = t->sharded;
	struct apart_moments *m = &s->apart->moments;
	struct owners_range owned[2];
	uint32_t number = ranks_number(&s->next, s->self);
	size_t at = 0;
	/* More than is owned was read, or put together for another mesh that was not made. */
	bool more = m->whole || (s->untidy && m->number == number);
	if (!more || m->shard != ranks_shard(&s->shards.mesh, s->rank))
		return;
	m->whole = s->untidy = false;
	m->number = number;
	unsigned count = sharded_owned(t, owned);
	for (unsigned i = 0; i < count; at = owned[i++].end)
		sharded_clear_range(t, at, owned[i].first);
	sharded_clear_range(t, at, t->layout.count);
}
