/* What a step makes of parameters and moments.
 *
 * Without ZeRO-1 each worker updates all of its shard once the round is committed. With it (daemon/plan/owners.h) nobody has all moments, and where there are more replicas than
 * owners of a piece the new parameters have to go from these to the others, before the commit, since afterwards nobody can begin again:
 *
 *	sums of gradients, all waited for by all; the sum of all workers (TAG_LOSS) says so: the gradients' memory is the caller's again (tr_release)
 *	of its first piece each worker makes the new parameters beside the old ones, and sends them to those that do not own it
 *	what it does not own comes into the gradients' memory, where nothing is wanted any more
 *	commit
 *	what it owns it updates in place, with the gradients that are still there; the rest it copies
 *
 * Until the commit parameters and moments are those before the step. All R owners compute the same bits from the same sums; what was sent is held against what came by the digests of
 * the commit. */
#include <math.h>
#include <string.h>

#include "daemon/worker/trainer_inside.h"

/* Of what a replica says shard by shard. */
static double norm_of(const struct trainer *t, double scale)
{
	const struct sharded *s = t->sharded;
	double sum = t->strict ? sharded_strict_squares(t) : 0;
	for (uint32_t k = 0; k < ranks_shards(&s->shards.mesh) && !t->strict; k++)
		sum += s->sums->squares[k];
	return sqrt(sum) * scale;
}

struct optim_by sharded_step_by(const struct trainer *t)
{
	double scale = 1 / (double)(t->batch * t->layout.config.context);
	uint64_t step = t->counters->step + 1;
	return (struct optim_by){ &t->settings, scale, norm_of(t, scale), step, step };
}

bool sharded_gathers_update(const struct trainer *t)
{
	const struct sharded *s = t->sharded;
	return s->rank != RANKS_NONE && s->owners > 0 && s->owners < s->dp.count;
}

/* ---- before the commit ---- */

/* Nobody wants anything of them any more: all had waited for them before they said their part of TAG_LOSS. A strict job's sums are in other arrays; out of this one go gradients to
 * newcomers. */
static tr_status release_sums(struct trainer *t, struct tr_error *error)
{
	size_t offset, numbers;
	tr_status status = TR_OK;
	if (t->strict)
		return sharded_release_forwarded(t, error);
	for (uint32_t i = 0; i < t->buckets.count && status == TR_OK; i++)
		status = tr_release(t->group, i, error);
	if (status == TR_OK && sharded_has_copy(t, &offset, &numbers))
		status = tr_release(t->group, TAG_TABLE, error);
	if (status == TR_OK && sharded_has_shared(t))
		status = tr_release(t->group, TAG_SHARED, error);
	return status;
}

static tr_status make_room(struct sharded *s, size_t numbers, struct tr_error *error)
{
	if (numbers <= s->made_room)
		return TR_OK;
	mesh_memory_give(&s->memory, s->made);
	s->made = mesh_memory_take(&s->memory, numbers * sizeof(float));
	s->made_room = s->made != NULL ? numbers : 0;
	return s->made != NULL
	    ? TR_OK
	    : tr_error_set(error, TR_ENOMEM,
	          "mesh.zero_owners: no shared memory for new parameters (%zu MiB)",
	          numbers * sizeof(float) >> 20);
}

/* From the worker of replica `from` to that of `to`. */
static tr_status submit_piece(struct trainer *t, uint32_t from, uint32_t to,
    struct owners_range range, struct tr_error *error)
{
	const struct sharded *s = t->sharded;
	uint32_t shard = ranks_shard(&s->shards.mesh, s->rank);
	uint32_t sender = ranks_worker_of(&s->next, shard, from);
	uint32_t receiver = ranks_worker_of(&s->next, shard, to);
	struct tr_op op = TR_OP_INIT;
	if (range.first == range.end)
		return TR_OK;
	op.tag = TAG_UPDATED + sender * TR_GROUP_PEERS_MAX + receiver;
	op.count = range.end - range.first;
	if (sender == s->self) {
		op.collective = TR_SEND;
		op.input = s->made;
		op.root = receiver;
	} else {
		op.collective = TR_RECV;
		op.output = t->arrays.grads + range.first;
		op.root = sender;
	}
	return tr_submit(t->group, &op, error);
}

/* What comes first: it goes where somebody may be sending already. */
static tr_status exchange_pieces(struct trainer *t, struct tr_error *error)
{
	const struct sharded *s = t->sharded;
	struct ranks_part mine = ranks_part(&s->next, s->self);
	tr_status status = TR_OK;
	for (uint32_t k = 1; k < mine.of && status == TR_OK; k++) {
		uint32_t from = (mine.place + k) % mine.of;
		if (!owners_owns(s->owners, mine.of, mine.place, from))
			status = submit_piece(t, from, mine.place,
			    owners_piece(t->layout.count, mine.of, from), error);
	}
	struct owners_range range = owners_piece(t->layout.count, mine.of, mine.place);
	for (uint32_t to = 0; to < mine.of && status == TR_OK; to++)
		if (!owners_owns(s->owners, mine.of, to, mine.place))
			status = submit_piece(t, mine.place, to, range, error);
	return status;
}

tr_status sharded_gather_update(struct trainer *t, struct tr_error *error)
{
	struct sharded *s = t->sharded;
	tr_status status = TR_OK;
	if (!sharded_gathers_update(t))
		return TR_OK;
	if (t->strict)
		status = tr_wait(t->group, TAG_PARTS, error); /* which has the norm */
	if (status != TR_OK)
		return status;
	struct optim_by by = sharded_step_by(t);
	if (!isfinite(by.norm))
		return TR_OK;
	struct ranks_part mine = ranks_part(&s->next, s->self);
	struct owners_range range = owners_piece(t->layout.count, mine.of, mine.place);
	status = release_sums(t, error);
	if (status == TR_OK)
		status = make_room(s, range.end - range.first, error);
	if (status != TR_OK)
		return status;
	sharded_end_shared(t);
	optim_update_beside(t->ops, t->pool, &t->layout, &t->arrays, &by, range.first, range.end,
	    s->made);
	return exchange_pieces(t, error);
}

/* ---- and after it ---- */

static void take_pieces(struct trainer *t)
{
	const struct sharded *s = t->sharded;
	struct ranks_part mine = ranks_part(&s->next, s->self);
	for (uint32_t piece = 0; piece < mine.of; piece++) {
		struct owners_range range = owners_piece(t->layout.count, mine.of, piece);
		if (!owners_owns(s->owners, mine.of, mine.place, piece))
			memcpy(t->arrays.params + range.first, t->arrays.grads + range.first,
			    (range.end - range.first) * sizeof(float));
	}
}

void sharded_update(struct trainer *t, const struct optim_by *by)
{
	const struct sharded *s = t->sharded;
	struct owners_range held[2] = { { 0, t->layout.count } };
	unsigned count = 1;
	sharded_update_newcomer(t, by);
	if (s->rank == RANKS_NONE || !isfinite(by->norm))
		return;
	if (sharded_gathers_update(t)) {
		struct ranks_part mine = ranks_part(&s->next, s->self);
		take_pieces(t);
		count = owners_ranges(t->layout.count, &mine, s->owners, held);
	} else {
		sharded_end_shared(t);
	}
	for (unsigned i = 0; i < count; i++)
		optim_update_range(t->ops, t->pool, &t->layout, &t->arrays, by, held[i].first,
		    held[i].end);
}
