/* A caller: begins a round, submits its collectives in any order, commits, applies, thinks. */
#include <stdlib.h>
#include <string.h>

#include "collectives/kernels/reduce.h"
#include "daemon/membership/core/state.h"
#include "tests/sim/sim.h"

#define STREAM_WAITS       9
#define STREAM_EARLY_WAITS 11
#define STREAM_MEASURED    13
#define STREAM_LINGERS     17
#define STREAM_DECLARES    19

/* Whose digits it adds: with replay a contributor's place, for whoever takes it gives the same. */
unsigned worker_key(const struct sim *sim, unsigned number, unsigned index)
{
	return sim->policy == TRAIND__PEER__POLICY__POLICY_REPLAY ? index : number;
}

void worker_wake(struct sim *sim, unsigned number, uint64_t delay_us)
{
	struct sim_worker *worker = &sim->nodes[number].worker;

	sim_at(sim, sim->now_us + delay_us, SIM_WORKER, number, 0, ++worker->stamp);
}

static void worker_free(struct sim *sim, unsigned number)
{
	struct sim_worker *worker = &sim->nodes[number].worker;

	for (unsigned i = 0; i < worker->op_count; i++) {
		struct sim_op *op = &worker->ops[i];
		shape_free(op);
	}
	worker->op_count = worker->submitted = 0;
}

/* The memory is ours again, and we use it. */
static void worker_reclaim(struct sim *sim, unsigned number)
{
	struct sim_worker *worker = &sim->nodes[number].worker;

	for (unsigned i = 0; i < worker->op_count; i++) {
		struct sim_op *op = &worker->ops[i];
		if (!op->data)
			continue;
		release_check(sim, number, op);
		net_check_returned(sim, number, op->data, shape_bytes(op));
		net_check_returned(sim, number, op->input, shape_bytes(op));
		memset(op->data, 0xa5, shape_bytes(op));
		memset(op->input, 0xa5, shape_bytes(op));
	}
}

/* The round whose state it says that it has. A joiner may be wrong: it ended its last rounds alone, or has read a checkpoint of its own. */
static uint64_t worker_declares(const struct sim *sim, unsigned number)
{
	const struct group *group = sim->memberd.core ? state_group(sim->memberd.core, sim->group)
	                                              : NULL;
	uint64_t newest = 0,
	         draw = rng_below(sim->key, STREAM_DECLARES, sim->nodes[number].peer, 8);

	if (!sim->declares || !group || !group->view || draw > 2)
		return 0;
	for (unsigned i = 0; i < sim->node_count; i++)
		if (sim->nodes[i].worker.applied > newest)
			newest = sim->nodes[i].worker.applied;
	return newest + 1 - (newest > 0 ? draw : 0);
}

void worker_start(struct sim *sim, unsigned number)
{
	struct sim_worker *worker = &sim->nodes[number].worker;
	struct group_event event = { .kind = GROUP_READY, .round = worker_declares(sim, number) };

	*worker = (struct sim_worker){ .state = WORKER_THINK };
	(void)node_step(sim, number, &event);
	/* Where faults are aimed it may be in a view for a while before it begins. */
	worker_wake(sim, number, sim_between(sim, 0, sim->aim_count > 0 ? 500 * MS : 20 * MS));
}

void worker_end(struct sim *sim, unsigned number)
{
	worker_free(sim, number);
	sim->nodes[number].worker.state = WORKER_ENDED;
	sim->nodes[number].worker.stamp++;
	if (sim->callers)
		sim->callers->ended(sim, number);
}

/* In a scope of one, the same op. */
static void worker_alone(struct sim_op *op)
{
	op->members[0] = shape_outer(op, op->index);
	op->scoped = 1;
	op->index = op->root = op->source = 0;
	op->contributors = 1;
}

/* Another collective, or the same from another root. False: it has neither. */
static bool worker_alter_way(struct sim_op *op)
{
	if (op->contributors < 2 || op->index >= op->contributors || op->count == 0)
		return false;
	if (op->collective == TR_BROADCAST) {
		op->root = op->source = (op->root + 1) % op->contributors;
		return true;
	}
	if (op->collective != TR_ALL_REDUCE)
		return false;
	op->collective = TR_BROADCAST;
	op->root = op->source = op->index;
	op->feedback = false;
	return true;
}

/* As many elements more or less as make it other segments; then a view changes, in whose plan the op is of who has submitted it before. */
#define RECUT_ELEMENTS 40

static bool worker_recut(struct sim *sim, unsigned number, struct sim_op *op)
{
	if (!sim->recuts || sim_chance(sim, 30))
		return false;
	if (op->count + RECUT_ELEMENTS < SIM_ELEMENTS)
		op->count += RECUT_ELEMENTS;
	else
		op->count -= RECUT_ELEMENTS;
	for (unsigned other = 0; other < sim->node_count; other++)
		if (sim->links[number][other].used && sim->nodes[other].alive &&
		    !sim->links[number][other].dead && sim_chance(sim, 50)) {
			sim->recut++;
			net_break(sim, number, other);
			break;
		}
	return true;
}

static void worker_alter(struct sim *sim, unsigned number)
{
	struct sim_worker *worker = &sim->nodes[number].worker;
	struct sim_op *op = &worker->ops[0];

	/* Nobody sees what is done in a scope of one. */
	for (unsigned i = 0; i < worker->op_count && op->scoped == 1; i++) {
		struct sim_op other = worker->ops[i];
		worker->ops[i] = worker->ops[0];
		worker->ops[0] = other;
	}
	bool alone = worker->op_count > 0 && op->scoped == 1;

	sim->mismatch_node = (int)number;
	sim->mismatch_came = worker->round.index >= worker->round.contributors;
	cover_strike(sim, FAULT_MISMATCH, number);
	worker->altered = true;
	bool pair = op->collective == TR_SEND || op->collective == TR_RECV;
	if (sim->scopes && worker->op_count > 0 && !alone && !pair &&
	    op->index < op->contributors && op->contributors > 1 && sim_chance(sim, 20)) {
		worker_alone(op);
		return;
	}
	if (worker->op_count > 0 && !alone && worker_recut(sim, number, op))
		return;
	if (sim->seed >= SIM_SELDOM_FROM && worker->op_count > 0 && !alone && sim_chance(sim, 50) &&
	    worker_alter_way(op))
		return;
	switch (sim_draw(sim, worker->op_count > 0 && !alone ? 5 : 1)) {
	case 0:
		worker->ops[worker->op_count++] = (struct sim_op){ .tag = 99,
			.dtype = TR_I64,
			.reduce = TR_SUM,
			.in_place = true,
			.index = worker->round.index,
			.contributors = worker->round.contributors,
			.count = 9 };
		break;
	case 1:
		op->count++;
		break;
	case 2:
		if (shape_sourced(op)) /* nobody looks at it */
			op->count++;
		op->reduce = op->reduce == TR_MAX ? TR_MIN : TR_MAX;
		break;
	case 3:
		op->dtype = op->dtype == TR_F32 ? TR_I32 : TR_F32;
		op->codec = TR_CODEC_NONE;
		op->feedback = false;
		break;
	case 4:
		worker->ops[0] = worker->ops[--worker->op_count];
		break;
	}
	sim_trace(sim, "n%u is to do something else than the others", number);
}

/* Which results it reads before it commits: that of the first all-reduce, from which all take the samples that they say, and some. */
static void worker_choose(struct sim *sim, unsigned number)
{
	struct sim_worker *worker = &sim->nodes[number].worker;
	bool first = true;

	worker->samples = 1;
	for (unsigned i = 0; i < worker->op_count; i++) {
		struct sim_op *op = &worker->ops[i];
		uint64_t draw = (worker->round.round * SIM_NODES_MAX + number) * 128 + op->tag;
		bool reduced = op->collective == TR_ALL_REDUCE && op->count > 0 && op->scoped == 0;
		op->read = false;
		op->wanted = sim->waits &&
		    ((reduced && first) || rng_below(sim->key, STREAM_WAITS, draw, 4) == 0);
		first = first && !reduced;
	}
}

/* A result that is still to be read; NULL: none. */
static struct sim_op *worker_wants(struct sim_worker *worker)
{
	for (unsigned i = 0; i < worker->op_count; i++)
		if (worker->ops[i].wanted && !worker->ops[i].read)
			return &worker->ops[i];
	return NULL;
}

/* Who submits other ops than the others makes a circle of such waits, in which nobody closes the round and nobody can know. */
static bool worker_may_wait_early(const struct sim *sim)
{
	bool mismatch = sim->mismatch_node >= 0;

	for (unsigned i = 0; i < sim->fault_count; i++)
		mismatch = mismatch || sim->faults[i].kind == FAULT_MISMATCH;
	for (unsigned i = 0; i < sim->aim_count; i++)
		mismatch = mismatch || sim->aims[i].kind == FAULT_MISMATCH;
	return sim->early_waits && !mismatch;
}

/* The same, before it submits others; NULL: it submits on. Nobody waits in a circle: who waits for an op has submitted all of lower
 * tags. So of all that are waited for the one of the lowest tag is submitted everywhere, in the end. */
static const struct sim_op *worker_wants_early(struct sim *sim, const struct sim_worker *worker)
{
	uint32_t below = UINT32_MAX; /* all ops of lower tags are submitted */

	if (!worker_may_wait_early(sim) ||
	    rng_below(sim->key, STREAM_EARLY_WAITS, sim->submits++, 2) == 0)
		return NULL;
	for (unsigned i = 0; i < worker->op_count; i++)
		if (!worker->ops[i].submitted && worker->ops[i].tag < below)
			below = worker->ops[i].tag;
	for (unsigned i = 0; i < worker->op_count; i++) {
		const struct sim_op *op = &worker->ops[i];
		if (op->wanted && op->submitted && !op->read && op->tag < below)
			return op;
	}
	return NULL;
}

void worker_began(struct sim *sim, unsigned number, const struct tr_round *round)
{
	struct sim_worker *worker = &sim->nodes[number].worker;

	if (worker->holds && !round->receive_state && round->round != worker->applied + 1) {
		sim_violation(sim, "I6: n%u begins round %lu after round %lu", number,
		    (unsigned long)round->round, (unsigned long)worker->applied);
		return;
	}
	if (!worker->holds && !round->receive_state && worker->gradual.deferred > 0) {
		sim_violation(sim, "I7: n%u begins round %lu as if it had the state", number,
		    (unsigned long)round->round);
		return;
	}
	if (!worker->holds && !round->receive_state) {
		/* A founder: its fresh state is everybody's. */
		worker->holds = true;
		worker->applied = round->round - 1;
	}
	sim_trace(sim, "n%u begins round %lu in view %lu as %u of %u%s", number,
	    (unsigned long)round->round, (unsigned long)round->view, round->index,
	    round->contributors, round->receive_state ? ", without the state" : "");
	worker->state = WORKER_OPEN;
	worker->round = *round;
	worker->receives = round->receive_state;
	worker->received = false;
	worker->abandoned = worker->altered = false;
	worker->submitted = 0;
	if (sim->callers) {
		sim->callers->began(sim, number);
		return;
	}
	worker->lingers = sim->releases
	    ? (unsigned)rng_below(sim->key, STREAM_LINGERS, sim->takes++, 6)
	    : 0;
	worker->op_count = shape_ops(sim, round->round, round->index, round->contributors,
	    worker->ops);
	aim_at_begin(sim, number);
	if (sim->mismatch_node == (int)number)
		worker_alter(sim, number);
	worker_choose(sim, number);
	for (unsigned i = 0; i < worker->op_count; i++) {
		struct sim_op *op = &worker->ops[i];
		op->submitted = op->told = false;
		shape_give(sim, worker_key(sim, number, round->index), round->round, op);
	}
	worker_wake(sim, number, sim_between(sim, 0, sim->think_us));
}

static void worker_begin_again(struct sim *sim, unsigned number)
{
	struct sim_worker *worker = &sim->nodes[number].worker;
	struct group_event event = { .kind = GROUP_BEGIN };

	worker_free(sim, number);
	worker->state = WORKER_BEGIN;
	worker->abandoned = false;
	tr_status st = node_step(sim, number, &event);
	if (st != TR_OK && sim->nodes[number].alive && !sim->nodes[number].failed &&
	    sim->plant != PLANT_HIDE)
		sim_violation(sim, "n%u may not begin: %s", number, tr_status_name(st));
}

static void worker_submit(struct sim *sim, unsigned number)
{
	struct sim_worker *worker = &sim->nodes[number].worker;
	unsigned pick = (unsigned)sim_draw(sim, worker->op_count);

	while (worker->ops[pick].submitted)
		pick = (pick + 1) % worker->op_count;
	struct sim_op *op = &worker->ops[pick];
	struct tr_block blocks[2];
	struct group_event event = { .kind = GROUP_SUBMIT, .submit = shape_submit(op, blocks) };
	op->submitted = true;
	worker->submitted++;
	tr_status st = node_step(sim, number, &event);
	if (!sim->nodes[number].alive || sim->nodes[number].failed)
		return;
	if (st == TR_ERESTART || worker->abandoned)
		worker_begin_again(sim, number);
	else if (st != TR_OK && sim->plant != PLANT_HIDE)
		sim_violation(sim, "n%u may not submit: %s", number, tr_status_name(st));
	else
		worker_wake(sim, number, sim_between(sim, 0, 2 * MS));
}

static void worker_wait(struct sim *sim, unsigned number, const struct sim_op *op)
{
	struct sim_worker *worker = &sim->nodes[number].worker;
	struct group_event event = { .kind = GROUP_WAIT, .tag = op->tag };

	worker->state = WORKER_WAITS;
	worker->waited = op->tag;
	tr_status st = node_step(sim, number, &event);
	if (!sim->nodes[number].alive || sim->nodes[number].failed)
		return;
	if (st == TR_ERESTART)
		worker_begin_again(sim, number);
	else if (st != TR_OK && sim->plant != PLANT_HIDE)
		sim_violation(sim, "n%u may not wait: %s", number, tr_status_name(st));
}

void worker_op_done(struct sim *sim, unsigned number, uint32_t tag)
{
	struct sim_worker *worker = &sim->nodes[number].worker;

	if (sim->callers) {
		sim->callers->op_done(sim, number, tag);
		return;
	}
	if (worker->state != WORKER_WAITS || worker->waited != tag)
		return;
	worker->state = WORKER_OPEN;
	for (unsigned i = 0; i < worker->op_count; i++) {
		struct sim_op *op = &worker->ops[i];
		if (op->tag != tag)
			continue;
		op->read = true;
		op->result = shape_result(op);
		if (op->collective == TR_ALL_REDUCE && op->count > 0 && op->scoped == 0 &&
		    worker->samples == 1)
			worker->samples = 2 + op->result.low % 1000;
	}
	sim_trace(sim, "n%u reads op %u", number, tag);
	worker_wake(sim, number, sim_between(sim, 0, 20 * MS));
}

/* In some seeds members measure their links, not all of them, and now and then something else: routes change between rounds. */
static void worker_measure(struct sim *sim, unsigned number)
{
	uint64_t draw = sim->nodes[number].worker.round.round * SIM_NODES_MAX + number;
	uint64_t figure = rng_below(sim->key, STREAM_MEASURED, draw, 16);
	struct group_event event = { .kind = GROUP_LINKS };

	if ((sim->seed % 8 != 3 && sim->seed % 8 != 6) || figure > 9)
		return;
	event.links.bandwidth_bytes_per_s = figure * 1000000;
	event.links.latency_us = (uint32_t)(figure * figure * 1000);
	(void)node_step(sim, number, &event);
}

static void worker_close(struct sim *sim, unsigned number, bool defers)
{
	struct sim_worker *worker = &sim->nodes[number].worker;
	struct group_event event = { .kind = GROUP_CLOSE,
		.close = { .samples = worker->samples,
		    .salt = 7,
		    .flags = defers ? TR_DEFER_STATE : 0 } };

	if (sim->salt_node == (int)number) {
		event.close.salt = 8;
		if (!worker->abandoned) /* else nobody hears it */
			cover_strike(sim, FAULT_SALT, number);
		sim_trace(sim, "n%u says another salt", number);
	}
	worker->state = WORKER_CLOSED;
	worker_measure(sim, number);
	if (!sim->nodes[number].alive || sim->nodes[number].failed)
		return;
	tr_status st = node_step(sim, number, &event);
	if (!sim->nodes[number].alive || sim->nodes[number].failed)
		return;
	if (defers && st != TR_OK)
		pieces_decided(sim, number, st, 0);
	if (st == TR_ERESTART)
		worker_begin_again(sim, number);
	else if (st != TR_OK && sim->plant != PLANT_HIDE)
		sim_violation(sim, "n%u may not commit: %s", number, tr_status_name(st));
}

static void worker_go_on(struct sim *sim, unsigned number)
{
	const struct sim_op *op = worker_wants_early(sim, &sim->nodes[number].worker);

	if (op)
		worker_wait(sim, number, op);
	else
		worker_submit(sim, number);
}

void worker_step(struct sim *sim, unsigned number)
{
	struct sim_worker *worker = &sim->nodes[number].worker;

	if (sim->nodes[number].failed)
		return;
	if (sim->callers) {
		sim->callers->step(sim, number);
		return;
	}
	if (worker->state == WORKER_THINK) {
		worker_begin_again(sim, number);
		return;
	}
	if (worker->state != WORKER_OPEN)
		return;
	release_some(sim, number);
	if (!sim->nodes[number].alive || sim->nodes[number].failed || worker->state != WORKER_OPEN)
		return;
	if (worker->abandoned && sim_chance(sim, 50))
		worker_begin_again(sim, number); /* tr_progress told it */
	else if (worker->submitted < worker->op_count && worker->abandoned)
		worker_submit(sim, number);
	else if (worker->submitted < worker->op_count)
		worker_go_on(sim, number);
	else if (worker_wants(worker) && !worker->abandoned)
		worker_wait(sim, number, worker_wants(worker));
	else if (release_may_come(sim, number) && worker->lingers > 0) {
		worker->lingers--;
		worker_wake(sim, number, sim_between(sim, 0, 40 * MS));
	} else if (!worker->receives || worker->received || worker->abandoned)
		worker_close(sim, number, false);
	else if (gradual_defers(sim, number))
		worker_close(sim, number, true);
}

void worker_takes_state(struct sim *sim, unsigned number, uint64_t round, uint64_t chain)
{
	struct sim_worker *worker = &sim->nodes[number].worker;

	gradual_whole(sim, number, round, chain);
	worker->holds = true;
	worker->applied = round;
	worker->chain = chain;
}

void worker_takes_state_back(struct sim *sim, unsigned number, const struct sim_worker *before)
{
	struct sim_worker *worker = &sim->nodes[number].worker;

	worker->holds = before->holds;
	worker->gradual = before->gradual;
	worker->applied = before->applied;
	worker->chain = before->chain;
}

void worker_state_got(struct sim *sim, unsigned number)
{
	struct sim_worker *worker = &sim->nodes[number].worker;

	sim_trace(sim, "n%u has the state after round %lu", number, (unsigned long)worker->applied);
	sim->nodes[number].asked = false;
	worker->received = true;
	if (sim->callers) {
		sim->callers->took_state(sim, number, worker->applied);
		worker_wake(sim, number, 0);
	} else if (worker->state == WORKER_OPEN && worker->submitted == worker->op_count)
		worker_wake(sim, number, sim_between(sim, 0, 2 * MS));
}

static void worker_commit(struct sim *sim, unsigned number, const struct tr_round *round)
{
	struct sim_worker *worker = &sim->nodes[number].worker;

	check_committed(sim, number, round);
	sim_trace(sim, "n%u commits round %lu in view %lu%s", number, (unsigned long)round->round,
	    (unsigned long)round->view, round->partial ? ", partial" : "");
	worker_reclaim(sim, number);
	worker_free(sim, number);
	if (worker->holds)
		pieces_lay(sim, number);
	worker->state = WORKER_THINK;
	worker_wake(sim, number, sim_between(sim, 0, sim->think_us));
}

/* The state after a round is whoever has it alike: callers check that themselves. */
static void worker_decided_called(struct sim *sim, unsigned number, tr_status status,
    const struct tr_round *round)
{
	struct sim_worker *worker = &sim->nodes[number].worker;

	if (status == TR_OK) {
		check_order(sim, number, round);
		worker->applied = worker->chain = round->round;
	} else if (status == TR_ERESTART) {
		sim->restarts++;
	} else {
		worker_end(sim, number);
		return;
	}
	sim->callers->decided(sim, number, status, round);
}

void worker_decided(struct sim *sim, unsigned number, tr_status status,
    const struct tr_round *round, const char *reason)
{
	struct sim_worker *worker = &sim->nodes[number].worker;

	if (sim->callers) {
		sim_trace(sim, "n%u is told %s of round %lu: %s", number, tr_status_name(status),
		    (unsigned long)(round ? round->round : 0), reason ? reason : "");
		worker_decided_called(sim, number, status, round);
		return;
	}
	if (status == TR_OK) {
		worker_commit(sim, number, round);
		return;
	}
	sim_trace(sim, "n%u is told %s: %s", number, tr_status_name(status), reason);
	if (sim->plant == PLANT_APPLY && status == TR_ERESTART && worker->holds)
		worker->applied++;
	worker_reclaim(sim, number);
	if (status != TR_ERESTART) {
		worker_end(sim, number);
		return;
	}
	sim->restarts++;
	if (worker->state == WORKER_CLOSED || worker->state == WORKER_WAITS) {
		worker_free(sim, number);
		worker->state = WORKER_THINK;
		worker_wake(sim, number, sim_between(sim, 0, 2 * MS));
	} else {
		worker->abandoned = true;
		if (sim->aim_count > 0) /* it computes, and notices late */
			worker_wake(sim, number, sim_between(sim, 0, 500 * MS));
		else if (worker->submitted == worker->op_count)
			worker_wake(sim, number, sim_between(sim, 0, 20 * MS));
	}
}
