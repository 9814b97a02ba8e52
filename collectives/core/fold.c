/* The hub of a star: adds what the leaves send. With `deterministic` in ascending peer id, so that what comes before its
 * turn is kept; else as it comes. Our own input is read where it is and never copied.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "collectives/core/bits.h"
#include "collectives/core/member.h"
#include "collectives/kernels/reduce.h"

static struct op_fold *fold_get(struct group_core *core, struct op *op, uint32_t segment)
{
	if (op->segment[segment].fold)
		return op->segment[segment].fold;
	unsigned held = core->view.deterministic ? core->roster.n : 0;
	struct op_fold *fold = calloc(1, sizeof(*fold) + held * sizeof(fold->held[0]));
	if (!fold)
		return NULL;
	fold->held_count = held;
	op->segment[segment].fold = fold;
	return fold;
}

static void fold_finish(struct group_core *core, struct op *op, uint32_t segment, const void *result)
{
	uint8_t set[TR_GROUP_PEERS_MAX / 8];
	uint8_t *out = op->data + op_offset(op, segment);
	size_t bytes = op_elements(op, segment) * op->element_bytes;

	if (result != out && bytes > 0)
		memmove(out, result, bytes);
	path_live_set(core, set);
	path_sealed_here(core, op, segment, set);
}

/* Adds one contributor's data. The last one makes the result, straight into the caller's memory. */
static tr_status fold_absorb(struct group_core *core, struct op *op, uint32_t segment,
    const void *x, bool ours)
{
	struct op_fold *fold = op->segment[segment].fold;
	size_t bytes = op_elements(op, segment) * op->element_bytes;
	bool last = fold->folded + 1 == core->roster.live_count;

	if (!fold->left && last) {
		fold_finish(core, op, segment, x);
		return TR_OK;
	}
	if (!fold->left && ours) {
		fold->left = x;
		fold->folded++;
		return TR_OK;
	}
	void *out = op->data + op_offset(op, segment);
	if (!last) {
		if (!fold->sum)
			fold->sum = buffer_get(&core->pool, bytes);
		if (!fold->sum)
			return TR_ENOMEM;
		out = fold->sum->data;
	}
	if (fold->left)
		reduce_combine(op->dtype, op->reduce, out, fold->left, x, op_elements(op, segment));
	else if (bytes > 0)
		memcpy(out, x, bytes);
	fold->left = out;
	fold->folded++;
	if (last)
		fold_finish(core, op, segment, out);
	return TR_OK;
}

/* Deterministic: whatever is there and has its turn now. */
static tr_status fold_catch_up(struct group_core *core, struct op *op, uint32_t segment)
{
	const struct roster *roster = &core->roster;

	while (!op->segment[segment].sealed) {
		struct op_fold *fold = op->segment[segment].fold;
		unsigned turn = fold->next;
		if (!roster->live[turn]) {
			fold->next++;
			continue;
		}
		if (turn != roster->me && !fold->held[turn])
			return TR_OK;
		struct group_buffer *held = fold->held[turn];
		fold->held[turn] = NULL;
		fold->next++;
		tr_status st = fold_absorb(core, op, segment,
		    held ? (const void *)held->data : op_input(op, segment), !held);
		buffer_put(&core->pool, held);
		if (st != TR_OK)
			return st;
	}
	return TR_OK;
}

void fold_begin(struct group_core *core, struct op *op, uint32_t segment)
{
	tr_status st = TR_OK;

	if (!fold_get(core, op, segment))
		st = TR_ENOMEM;
	else if (core->view.deterministic)
		st = fold_catch_up(core, op, segment);
	else if (core->roster.live[core->roster.me])
		st = fold_absorb(core, op, segment, op_input(op, segment), true);
	if (st != TR_OK)
		core->status = st;
}

tr_status fold_add(struct group_core *core, struct op *op, uint32_t segment, unsigned from,
    const void *payload, struct tr_error *error)
{
	struct op_fold *fold = fold_get(core, op, segment);
	size_t bytes = op_elements(op, segment) * op->element_bytes;

	if (!fold)
		return TR_ENOMEM;
	if (bits_get(fold->got, from))
		return tr_error_set(error, TR_EPROTO, "peer %" PRIu64 " sent its data twice",
		    core->roster.peers[from]);
	bits_set(fold->got, from);
	if (!core->view.deterministic)
		return fold_absorb(core, op, segment, payload, false);
	fold->held[from] = buffer_get(&core->pool, bytes);
	if (!fold->held[from])
		return TR_ENOMEM;
	if (bytes > 0)
		memcpy(fold->held[from]->data, payload, bytes);
	return fold_catch_up(core, op, segment);
}
