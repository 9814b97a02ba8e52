/* What coll.h says of an op's memory and its tag. The core of the collectives does not see it: the library looks before the op comes there (collectives/engine/coll_op.c), and so does this. */
#include <stdlib.h>

#include "collectives/kernels/reduce.h"
#include "common/limits.h"
#include "tests/sim/sharded/play.h"

enum { INPUT, OUTPUT, ENDS };

static bool within(const struct tr_group *g, const void *data, size_t bytes)
{
	for (const struct play_memory *m = g->memory; m != NULL; m = m->next)
		if ((const char *)data >= (char *)m->data &&
		    (const char *)data + bytes <= (char *)m->data + m->bytes)
			return true;
	return false;
}

static bool overlap(const void *a, size_t bytes, const void *b, size_t other)
{
	return a != NULL && b != NULL && (const char *)a < (const char *)b + other &&
	    (const char *)b < (const char *)a + bytes;
}

/* Where either of them writes. */
static bool collide(const struct play_op *a, const struct play_op *b)
{
	for (unsigned i = 0; i < ENDS; i++)
		for (unsigned k = 0; k < ENDS; k++)
			if ((i == OUTPUT || k == OUTPUT) &&
			    overlap(a->data[i], a->used[i], b->data[k], b->used[k]))
				return true;
	return false;
}

static struct play_op op_of(const struct tr_op *op, size_t own)
{
	size_t bytes = op->count * reduce_element_bytes(op->dtype);
	size_t block = own * reduce_element_bytes(op->dtype);
	bool contributes = (op->flags & TR_CONTRIBUTE) != 0, sends = op->collective == TR_SEND;
	bool nothing = op->collective == TR_BARRIER;
	return (struct play_op){ .tag = op->tag,
		.data = { nothing || !contributes || op->collective == TR_RECV ? NULL : op->input,
		    nothing || sends ? NULL : op->output },
		.bytes = bytes,
		.used = { op->collective == TR_ALL_GATHER ? block : bytes,
		    op->collective == TR_REDUCE_SCATTER && contributes ? block : bytes },
		.sent = sends,
		.some = op->scope.count > 0 || sends || op->collective == TR_RECV };
}

static void check_memory(const struct tr_group *g, const struct play_op *op)
{
	unsigned long round = (unsigned long)g->round.round;
	for (unsigned i = 0; i < ENDS; i++)
		if (op->data[i] != NULL && !within(g, op->data[i], op->used[i]))
			sim_violation(g->sim, "S4: n%u: op %u of round %lu: not memory of tr_alloc",
			    g->number, op->tag, round);
	for (unsigned i = 0; i < g->state_count; i++)
		if (overlap(op->data[OUTPUT], op->used[OUTPUT], g->states[i].data,
		        g->states[i].bytes))
			sim_violation(g->sim, "S4: n%u: op %u of round %lu writes to state %u",
			    g->number, op->tag, round, i);
	if (overlap(op->data[INPUT], op->used[INPUT], op->data[OUTPUT], op->used[OUTPUT]))
		sim_violation(g->sim,
		    "S4: n%u: input and output of op %u of round %lu share memory", g->number,
		    op->tag, round);
	for (size_t i = 0; i < g->op_count; i++)
		if (collide(op, &g->ops[i]))
			sim_violation(g->sim, "S4: n%u: op %u and op %u of round %lu share memory",
			    g->number, op->tag, g->ops[i].tag, round);
}

static void check_tag(const struct tr_group *g, uint32_t tag)
{
	bool known = false;
	for (size_t i = 0; i < g->op_count; i++)
		known = known || g->ops[i].tag == tag;
	for (size_t i = 0; i < g->returned_count; i++)
		known = known || g->returned[i] == tag;
	if (known)
		sim_violation(g->sim, "S4: n%u: tag %u twice in round %lu", g->number, tag,
		    (unsigned long)g->round.round);
	if (g->op_count >= TR_ROUND_OPS_MAX)
		sim_violation(g->sim, "S4: n%u: %zu ops in round %lu", g->number, g->op_count,
		    (unsigned long)g->round.round);
}

static void *more(void *all, size_t count, size_t *room, size_t size)
{
	if (count < *room)
		return all;
	*room = 2 * *room + 16;
	all = realloc(all, *room * size);
	if (all == NULL)
		abort();
	return all;
}

void ops_note(struct tr_group *g, const struct tr_op *op, size_t own)
{
	struct play_op made = op_of(op, own);
	check_tag(g, op->tag);
	check_memory(g, &made);
	g->ops = more(g->ops, g->op_count, &g->op_room, sizeof(*g->ops));
	g->ops[g->op_count++] = made;
}

static void give_back(const struct tr_group *g, const struct play_op *op, bool reads_no_more)
{
	for (unsigned i = 0; i < ENDS; i++) {
		if (op->data[i] == NULL)
			continue;
		net_check_returned(g->sim, g->number, op->data[i], op->bytes);
		if (reads_no_more)
			net_unread(g->sim, g->number, op->data[i], op->bytes);
	}
}

void ops_return(struct tr_group *g, uint32_t tag)
{
	for (size_t i = 0; i < g->op_count; i++) {
		struct play_op *op = &g->ops[i];
		if (op->tag != tag)
			continue;
		if (!op->some)
			sim_violation(g->sim, "S4: n%u: op %u of all members is released",
			    g->number, tag);
		give_back(g, op, true);
		*op = g->ops[--g->op_count];
		g->returned = more(g->returned, g->returned_count, &g->returned_room,
		    sizeof(*g->returned));
		g->returned[g->returned_count++] = tag;
		return;
	}
	sim_violation(g->sim, "S4: n%u: op %u is released, which is not of the round", g->number,
	    tag);
}

void ops_return_all(struct tr_group *g)
{
	for (size_t i = 0; i < g->op_count; i++)
		give_back(g, &g->ops[i], false);
	g->op_count = g->returned_count = 0;
}

void ops_finish(struct tr_group *g)
{
	free(g->ops);
	free(g->returned);
}
