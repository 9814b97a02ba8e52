/* Callers that take memory back in the middle of a round, as soon as every member of an op has its result, or later. The simulator knows that; a caller knows it from
 * a later op. What they take back is used at once, for something else: nobody may read it, write to it or still receive into it. Copies of what was in it stay for the checks.
 */
#include <stdlib.h>
#include <string.h>

#include "collectives/core/member.h"
#include "tests/sim/sim.h"

#define STREAM_TAKES 15
#define USED_AGAIN   0xa5

/* It has the op's result, in the view and the attempt that `core` is in, or has taken it back before. */
static bool release_has_result(const struct sim *sim, uint64_t peer, const struct group_core *core,
    const struct op *op)
{
	unsigned number = node_of_peer(sim, peer);
	const struct sim_node *node = &sim->nodes[number];

	if (number == SIM_NODES_MAX || !node->alive || node->failed || !node->core ||
	    node->core->round != core->round || node->core->view.number != core->view.number ||
	    node->core->roster.attempt != core->roster.attempt || !round_active(node->core))
		return false;
	const struct op *theirs = round_op(node->core, op->tag);
	if (!theirs)
		return release_has(&node->core->released, op->tag);
	return op_done(theirs) && theirs->kind == op->kind &&
	    memcmp(theirs->scope.bits, op->scope.bits, sizeof(op->scope.bits)) == 0;
}

static bool release_all_have(const struct sim *sim, const struct group_core *core,
    const struct sim_op *op, const struct op *of)
{
	const uint64_t *contributors = core->roster.contributors;

	if (of->kind == OP_PAIR)
		return release_has_result(sim, contributors[shape_outer(op, op->root)], core, of);
	for (unsigned i = 0; i < op->scoped; i++)
		if (!release_has_result(sim, contributors[op->members[i]], core, of))
			return false;
	return true;
}

static bool release_whole(const struct op *op)
{
	for (uint32_t s = 0; s < op->segments; s++)
		if (op->segment[s].sealed && !op_whole(op, s, op->roster->contributor_count))
			return false;
	return true;
}

static bool release_can(const struct sim *sim, const struct group_core *core,
    const struct sim_op *op)
{
	const struct op *of = op->submitted && !op->released ? round_op(core, op->tag) : NULL;

	return of && (of->kind == OP_PAIR || op->scoped > 0) && (!op->wanted || op->read) &&
	    op_done(of) && release_whole(of) && release_all_have(sim, core, op, of);
}

/* The caller's copy, for which the core's memory goes to the caller. */
static void *release_copy(void *memory, size_t bytes, uint8_t **taken_back)
{
	void *copy = memory ? malloc(bytes + 1) : NULL;

	if (memory && !copy)
		abort();
	if (copy)
		memcpy(copy, memory, bytes);
	*taken_back = memory;
	return copy;
}

static size_t release_bytes(const struct sim_op *op, unsigned which)
{
	return which < 2 ? shape_bytes(op) : op->count * sizeof(float);
}

static void release_take(struct sim *sim, unsigned number, struct sim_op *op)
{
	size_t bytes = shape_bytes(op), residual_bytes = op->count * sizeof(float);

	op->released = true;
	op->data = release_copy(op->data, bytes, &op->taken_back[0]);
	op->input = release_copy(op->input, bytes, &op->taken_back[1]);
	op->residual = release_copy(op->residual, residual_bytes, &op->taken_back[2]);
	op->residual_next = release_copy(op->residual_next, residual_bytes, &op->taken_back[3]);
	for (unsigned i = 0; i < 4; i++) {
		if (!op->taken_back[i])
			continue;
		net_check_returned(sim, number, op->taken_back[i], release_bytes(op, i));
		net_unread(sim, number, op->taken_back[i], release_bytes(op, i));
		memset(op->taken_back[i], USED_AGAIN, release_bytes(op, i));
	}
	sim->released++;
	sim_trace(sim, "n%u takes back op %u", number, op->tag);
}

void release_some(struct sim *sim, unsigned number)
{
	const struct sim_node *node = &sim->nodes[number];
	struct sim_worker *worker = &sim->nodes[number].worker;

	for (unsigned i = 0; sim->releases && i < worker->op_count; i++) {
		struct sim_op *op = &worker->ops[i];
		if (worker->abandoned || !node->core || !release_can(sim, node->core, op) ||
		    rng_below(sim->key, STREAM_TAKES, sim->takes++, 2) == 0)
			continue;
		struct group_event event = { .kind = GROUP_RELEASE, .tag = op->tag };
		tr_status st = node_step(sim, number, &event);
		if (!node->alive || node->failed || st == TR_ERESTART ||
		    worker->state != WORKER_OPEN)
			return;
		if (st == TR_OK)
			release_take(sim, number, op);
		else
			sim_violation(sim, "n%u may not take back op %u: %s", number, op->tag,
			    tr_status_name(st));
	}
}

bool release_may_come(const struct sim *sim, unsigned number)
{
	const struct sim_worker *worker = &sim->nodes[number].worker;
	bool some = false;

	for (unsigned i = 0; sim->releases && !worker->abandoned && i < worker->op_count; i++) {
		const struct sim_op *op = &worker->ops[i];
		some = some ||
		    (!op->released &&
		        (op->scoped > 0 || op->collective == TR_SEND || op->collective == TR_RECV));
	}
	return some;
}

void release_check(struct sim *sim, unsigned number, const struct sim_op *op)
{
	for (unsigned i = 0; i < 4; i++)
		for (size_t b = 0; op->taken_back[i] && b < release_bytes(op, i); b++)
			if (op->taken_back[i][b] != USED_AGAIN) {
				sim_violation(sim,
				    "n%u: memory of op %u was written after it was taken back",
				    number, op->tag);
				return;
			}
}
