/* A caller: begins a round, submits its collectives in any order, commits, applies, thinks. */
#include <stdlib.h>
#include <string.h>

#include "collectives/kernels/reduce.h"
#include "tests/sim/sim.h"

static uint64_t mix(uint64_t x)
{
	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
	return x ^ (x >> 31);
}

/* What everybody does in this round: the same on all peers. */
unsigned worker_shapes(const struct sim *sim, uint64_t round, struct sim_op ops[SIM_OPS_MAX])
{
	static const uint64_t counts[] = { 0, 1, 2, 7, 8, 9, 16, 17, 33, 64, 100, 110 };
	uint64_t h = mix(sim->seed * 0x9e3779b97f4a7c15u + round);
	unsigned count = (unsigned)(h % (SIM_OPS_MAX + 1));

	for (unsigned i = 0; i < count; i++) {
		uint64_t x = mix(h + i + 1);
		ops[i] = (struct sim_op){ .tag = (uint32_t)(i * 3 + x % 3) };
		/* Half are the sums whose digits say whose data is in. */
		ops[i].dtype = x & 256 ? TR_I64 : (enum tr_dtype)(1 + (x >> 9) % 4);
		ops[i].reduce = x & 256 ? TR_SUM : (enum tr_reduce)(1 + (x >> 12) % 5);
		ops[i].count = counts[(x >> 16) % (sizeof(counts) / sizeof(counts[0]))];
	}
	return count;
}

static int64_t small(uint64_t x)
{
	return (int64_t)(x % 13) - 6;
}

/* What contributor `key` puts in: a pure function, so that a result can be recomputed. */
void worker_fill(const struct sim *sim, unsigned key, uint64_t round, const struct sim_op *op,
    void *data)
{
	for (uint64_t e = 0; e < op->count; e++) {
		uint64_t x = mix(
		    sim->seed ^ (round << 32) ^ ((uint64_t)key << 24) ^ (op->tag << 16) ^ e);
		switch (op->dtype) {
		case TR_F32:
			((float *)data)[e] = (float)small(x) * (float)(1u << (x >> 8) % 24) * 0.1f;
			break;
		case TR_F64:
			((double *)data)[e] = (double)small(x) * (double)(1u << (x >> 8) % 24) *
			    0.1;
			break;
		case TR_I32:
			((int32_t *)data)[e] = (int32_t)small(x);
			break;
		case TR_I64:
			((int64_t *)data)[e] = op->reduce == TR_SUM
			    ? (int64_t)((1 + (e + round) % 3) << (5 * key))
			    : small(x);
			break;
		case TR_F16:
		case TR_BF16:
		case TR_U8:
			break; /* worker_shapes makes none: its seeds mean what they meant */
		}
	}
}

static void worker_schedule(struct sim *sim, unsigned number, uint64_t delay_us)
{
	struct sim_worker *worker = &sim->nodes[number].worker;

	sim_at(sim, sim->now_us + delay_us, SIM_WORKER, number, 0, ++worker->stamp);
}

static void worker_free(struct sim *sim, unsigned number)
{
	struct sim_worker *worker = &sim->nodes[number].worker;

	for (unsigned i = 0; i < worker->op_count; i++) {
		struct sim_op *op = &worker->ops[i];
		free(op->data);
		op->data = NULL;
	}
	worker->op_count = worker->submitted = 0;
}

/* The memory is ours again, and we use it. */
static void worker_reclaim(struct sim *sim, unsigned number)
{
	struct sim_worker *worker = &sim->nodes[number].worker;

	for (unsigned i = 0; i < worker->op_count; i++) {
		struct sim_op *op = &worker->ops[i];
		size_t bytes = op->count * reduce_element_bytes(op->dtype);
		if (!op->data)
			continue;
		net_check_returned(sim, number, op->data, bytes);
		memset(op->data, 0xa5, bytes);
	}
}

void worker_start(struct sim *sim, unsigned number)
{
	struct sim_worker *worker = &sim->nodes[number].worker;
	struct group_event event = { .kind = GROUP_READY };

	*worker = (struct sim_worker){ .state = WORKER_THINK };
	(void)node_step(sim, number, &event);
	worker_schedule(sim, number, sim_between(sim, 0, 20 * MS));
}

void worker_end(struct sim *sim, unsigned number)
{
	worker_free(sim, number);
	sim->nodes[number].worker.state = WORKER_ENDED;
	sim->nodes[number].worker.stamp++;
}

static void worker_alter(struct sim *sim, unsigned number)
{
	struct sim_worker *worker = &sim->nodes[number].worker;
	struct sim_op *op = &worker->ops[0];

	sim->mismatch_node = (int)number;
	cover_strike(sim, FAULT_MISMATCH, number);
	worker->altered = true;
	switch (sim_draw(sim, worker->op_count > 0 ? 5 : 1)) {
	case 0:
		worker->ops[worker->op_count++] = (struct sim_op){ .tag = 99,
			.dtype = TR_I64,
			.reduce = TR_SUM,
			.count = 9 };
		break;
	case 1:
		op->count++;
		break;
	case 2:
		op->reduce = op->reduce == TR_MAX ? TR_MIN : TR_MAX;
		break;
	case 3:
		op->dtype = op->dtype == TR_F32 ? TR_I32 : TR_F32;
		break;
	case 4:
		worker->ops[0] = worker->ops[--worker->op_count];
		break;
	}
	sim_trace(sim, "n%u is to do something else than the others", number);
}

void worker_began(struct sim *sim, unsigned number, const struct tr_round *round)
{
	struct sim_worker *worker = &sim->nodes[number].worker;

	if (worker->holds && !round->receive_state && round->round != worker->applied + 1) {
		sim_violation(sim, "I6: n%u begins round %lu after round %lu", number,
		    (unsigned long)round->round, (unsigned long)worker->applied);
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
	worker->op_count = worker_shapes(sim, round->round, worker->ops);
	if (sim->mismatch_node == (int)number)
		worker_alter(sim, number);
	for (unsigned i = 0; i < worker->op_count; i++) {
		struct sim_op *op = &worker->ops[i];
		op->submitted = false;
		op->data = calloc(1, op->count * reduce_element_bytes(op->dtype) + 1);
		if (!op->data)
			abort();
		bool counts = round->index < round->contributors;
		unsigned key = sim->policy == TRAIND__PEER__POLICY__POLICY_REPLAY ? round->index
		                                                                  : number;
		if (counts)
			worker_fill(sim, key, round->round, op, op->data);
	}
	worker_schedule(sim, number, sim_between(sim, 0, sim->think_us));
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
	struct group_event event = { .kind = GROUP_SUBMIT,
		.submit = { .tag = op->tag,
		    .data = op->data,
		    .count = op->count,
		    .dtype = op->dtype,
		    .reduce = op->reduce,
		    .contribute = worker->round.index < worker->round.contributors } };
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
		worker_schedule(sim, number, sim_between(sim, 0, 2 * MS));
}

static void worker_close(struct sim *sim, unsigned number)
{
	struct sim_worker *worker = &sim->nodes[number].worker;
	struct group_event event = { .kind = GROUP_CLOSE, .close = { .samples = 1, .salt = 7 } };

	if (sim->salt_node == (int)number) {
		event.close.salt = 8;
		cover_strike(sim, FAULT_SALT, number);
		sim_trace(sim, "n%u says another salt", number);
	}
	worker->state = WORKER_CLOSED;
	tr_status st = node_step(sim, number, &event);
	if (!sim->nodes[number].alive || sim->nodes[number].failed)
		return;
	if (st == TR_ERESTART)
		worker_begin_again(sim, number);
	else if (st != TR_OK && sim->plant != PLANT_HIDE)
		sim_violation(sim, "n%u may not commit: %s", number, tr_status_name(st));
}

void worker_step(struct sim *sim, unsigned number)
{
	struct sim_worker *worker = &sim->nodes[number].worker;

	if (sim->nodes[number].failed)
		return;
	if (worker->state == WORKER_THINK) {
		worker_begin_again(sim, number);
		return;
	}
	if (worker->state != WORKER_OPEN)
		return;
	if (worker->abandoned && sim_chance(sim, 50))
		worker_begin_again(sim, number); /* tr_progress told it */
	else if (worker->submitted < worker->op_count)
		worker_submit(sim, number);
	else if (!worker->receives || worker->received || worker->abandoned)
		worker_close(sim, number);
}

void worker_state_got(struct sim *sim, unsigned number, uint64_t round, uint64_t chain)
{
	struct sim_worker *worker = &sim->nodes[number].worker;

	sim_trace(sim, "n%u has the state after round %lu", number, (unsigned long)round);
	sim->nodes[number].asked = false;
	worker->holds = worker->received = true;
	worker->applied = round;
	worker->chain = chain;
	if (worker->state == WORKER_OPEN && worker->submitted == worker->op_count)
		worker_schedule(sim, number, sim_between(sim, 0, 2 * MS));
}

static void worker_commit(struct sim *sim, unsigned number, const struct tr_round *round)
{
	struct sim_worker *worker = &sim->nodes[number].worker;

	check_committed(sim, number, round);
	sim_trace(sim, "n%u commits round %lu in view %lu%s", number, (unsigned long)round->round,
	    (unsigned long)round->view, round->partial ? ", partial" : "");
	worker_reclaim(sim, number);
	worker_free(sim, number);
	worker->state = WORKER_THINK;
	worker_schedule(sim, number, sim_between(sim, 0, sim->think_us));
}

void worker_decided(struct sim *sim, unsigned number, tr_status status,
    const struct tr_round *round, const char *reason)
{
	struct sim_worker *worker = &sim->nodes[number].worker;

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
	if (worker->state == WORKER_CLOSED) {
		worker_free(sim, number);
		worker->state = WORKER_THINK;
		worker_schedule(sim, number, sim_between(sim, 0, 2 * MS));
	} else {
		worker->abandoned = true;
		if (worker->submitted == worker->op_count)
			worker_schedule(sim, number, sim_between(sim, 0, 20 * MS));
	}
}
