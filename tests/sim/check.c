/* The invariants (DESIGN of this project, collectives):
 *
 *	I1  members that commit a round hold bit-identical results
 *	I2  each contributor counts exactly once per segment, and the reported set says which
 *	I3  no call waits for ever
 *	I4  mismatched signatures fail and name both peers
 *	I5  deterministic: the bits are those of a left fold in ascending peer id
 *	I6  rounds are committed once and in order; view numbers only grow
 *	I7  a joiner's state is the others' state
 *	I8  a view has a cause: a fault, a member that starts or one that returns
 *	I9  what a caller was given to read before the commit is what is committed
 *	I10 nobody is further ahead of a member that has not submitted an op than that member has to keep
 */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "collectives/core/member.h"
#include "collectives/kernels/reduce.h"
#include "tests/sim/sim.h"

static bool same_peers(const uint64_t *a, size_t na, const uint64_t *b, size_t nb)
{
	return na == nb && memcmp(a, b, na * sizeof(a[0])) == 0;
}

static void check_set(struct sim *sim, unsigned number, const struct tr_round *round,
    const struct sim_op *op, const uint64_t *peers, size_t count, bool *partial)
{
	unsigned all = op->scoped > 0 ? op->scoped : round->contributors;

	if (count == 0 || count > all)
		sim_violation(sim, "I2: n%u: %zu of %u contributors in round %lu", number, count,
		    all, (unsigned long)round->round);
	for (size_t i = 0; i < count; i++)
		if (node_of_peer(sim, peers[i]) == SIM_NODES_MAX ||
		    (i > 0 && peers[i] <= peers[i - 1]))
			sim_violation(sim, "I2: n%u: a contributor set that cannot be", number);
	if (count < all)
		*partial = true;
	if (count < all && (sim->policy != TRAIND__PEER__POLICY__POLICY_KEEP || op->scoped > 0))
		sim_violation(sim,
		    "I2: n%u: round %lu lacks contributors, which the policy forbids", number,
		    (unsigned long)round->round);
}

/* One contributor's data: of the right one, or, where that one died and nobody has it, none. */
static void check_source(struct sim *sim, unsigned number, const struct tr_round *round,
    unsigned source, const uint64_t *peers, size_t count, bool *partial)
{
	unsigned node = count > 0 ? node_of_peer(sim, peers[0]) : SIM_NODES_MAX;

	if (count == 0) {
		*partial = true;
		if (sim->policy != TRAIND__PEER__POLICY__POLICY_KEEP)
			sim_violation(sim, "I2: n%u: nobody's data in round %lu", number,
			    (unsigned long)round->round);
		return;
	}
	if (count != 1 || node == SIM_NODES_MAX)
		sim_violation(sim, "I2: n%u: %zu sources in round %lu", number, count,
		    (unsigned long)round->round);
	else if (sim->nodes[node].worker.round.round == round->round &&
	    sim->nodes[node].worker.round.index != source)
		sim_violation(sim, "I2: n%u: data of n%u, which is not contributor %u", number,
		    node, source);
}

struct run {
	uint64_t peers[SIM_NODES_MAX], expected[SIM_ELEMENTS];
	size_t count;
	bool any;
};

/* A new contributor set from this element on: may it be, and what comes of it? */
static void check_run(struct sim *sim, unsigned number, const struct tr_round *round,
    const struct sim_op *op, uint64_t element, const struct run *run, void *expected, bool *partial)
{
	unsigned keys[SIM_NODES_MAX], source = shape_source(op, element);

	if (shape_sourced(op))
		check_source(sim, number, round, shape_outer(op, source), run->peers, run->count,
		    partial);
	else
		check_set(sim, number, round, op, run->peers, run->count, partial);
	if (sim->over)
		return;
	for (size_t i = 0; i < run->count; i++)
		keys[i] = worker_key(sim, node_of_peer(sim, run->peers[i]),
		    shape_outer(op, shape_sourced(op) ? source : (unsigned)i));
	if (run->count > 0)
		shape_expect(sim, op, round->round, keys, run->count, expected);
}

static bool check_element(const struct sim *sim, const struct sim_op *op, uint64_t e,
    const struct run *run, const void *got)
{
	size_t bytes = reduce_element_bytes(op->dtype);

	if (run->count == 0)
		return shape_is_untouched_element(op, got);
	return !shape_exact(sim, op) ||
	    memcmp(got, (const char *)run->expected + e * bytes, bytes) == 0;
}

/* What was taken back was whole, and the core knows it no more. */
static tr_status op_contributors(const struct group_core *core, const struct sim_op *op, uint64_t e,
    uint64_t peers[SIM_NODES_MAX], size_t *count)
{
	if (!op->released)
		return group_core_contributors(core, op->tag, e, peers, SIM_NODES_MAX, count);
	*count = 0;
	if (shape_sourced(op)) {
		peers[(*count)++] = core->last_contributors[shape_outer(op, shape_source(op, e))];
		return TR_OK;
	}
	for (unsigned i = 0; i < op->scoped; i++)
		peers[(*count)++] = core->last_contributors[op->members[i]];
	return TR_OK;
}

/* One op, run by run of equal contributor sets; folds bits and sets into `digest`. */
static struct tr_digest check_op(struct sim *sim, unsigned number, const struct tr_round *round,
    const struct sim_op *op, struct tr_digest digest, bool *partial)
{
	const struct group_core *core = sim->nodes[number].core;
	size_t bytes = reduce_element_bytes(op->dtype), count;
	uint64_t peers[SIM_NODES_MAX];
	struct run run = { .any = false };

	if (shape_common(op))
		digest = tr_digest_fold(digest,
		    (struct tr_digest){ op->tag, op->collective == TR_BARRIER ? 0 : op->count });
	for (uint64_t e = 0; e < op->count; e++) {
		const void *got = shape_element(op, e);
		if (!got)
			continue;
		if (op_contributors(core, op, e, peers, &count) != TR_OK) {
			sim_violation(sim, "I2: n%u: nobody knows who is in op %u", number, op->tag);
			return digest;
		}
		bool again = run.any && same_peers(peers, count, run.peers, run.count) &&
		    (!shape_sourced(op) || shape_source(op, e) == shape_source(op, e - 1));
		if (!again) {
			run.any = true;
			run.count = count;
			memcpy(run.peers, peers, count * sizeof(peers[0]));
			check_run(sim, number, round, op, e, &run, run.expected, partial);
			if (sim->over)
				return digest;
		}
		if (!again && shape_common(op)) {
			digest = tr_digest_fold(digest, (struct tr_digest){ e, count });
			digest = tr_digest_fold(digest,
			    tr_digest_of(count > 0 ? (const void *)peers : "",
			        count * sizeof(peers[0])));
		}
		if (shape_common(op))
			digest = tr_digest_fold(digest, tr_digest_of(got, bytes));
		if (!check_element(sim, op, e, &run, got)) {
			sim_violation(sim,
			    "%s: n%u, round %lu, op %u (collective %d, codec %d, dtype %d), "
			    "element %lu is not what its %zu contributors gave",
			    op->dtype == TR_F32 || op->dtype == TR_F64 ? "I5" : "I2", number,
			    (unsigned long)round->round, op->tag, (int)op->collective,
			    (int)op->codec, (int)op->dtype, (unsigned long)e, count);
			return digest;
		}
	}
	return digest;
}

void check_members(struct sim *sim, const Traind__Peer__View *view)
{
	for (unsigned i = 0; i < sim->seen_count && i < SIM_VIEWS_KEPT; i++)
		if (sim->seen[i].number == view->number)
			return;
	struct sim_view *seen = &sim->seen[sim->seen_count++ % SIM_VIEWS_KEPT];
	/* A fault takes a member out, and it comes back: two views. A member's start is one, and that all of its state is here, where that comes gradually, another. */
	unsigned starts = sim->node_count + (unsigned)sim->way.ended + sim->recut +
	    2 * (sim->faults_done + sim->aim_count),
	         causes = sim->gradual ? 2 * starts : starts;
	if (sim->seen_count > causes)
		sim_violation(sim,
		    "I8: view %lu is the %uth, for %u members that started and %u faults",
		    (unsigned long)view->number, sim->seen_count, sim->node_count,
		    sim->faults_done + sim->aim_count);
	*seen = (struct sim_view){ .number = view->number };
	for (size_t i = 0; i < view->n_peers; i++)
		if (node_of_peer(sim, view->peers[i]->peer) < SIM_NODES_MAX)
			seen->nodes[node_of_peer(sim, view->peers[i]->peer)] = true;
}

/* The op's contributors that were not in the view in which the round was decided. */
static void contributors_gone(const struct sim *sim, unsigned number, const struct tr_round *round,
    const struct sim_op *op, bool gone[SIM_NODES_MAX])
{
	const struct group_core *core = sim->nodes[number].core;
	const struct sim_view *view = sim->seen;

	while (view < sim->seen + SIM_VIEWS_KEPT && view->number != round->view)
		view++;
	/* Of an op of all there may be fewer than its caller was told. */
	for (unsigned i = 0; i < op->contributors && i < SIM_NODES_MAX; i++) {
		unsigned outer = shape_outer(op, i);
		if (outer >= core->last_contributor_count)
			continue;
		unsigned node = node_of_peer(sim, core->last_contributors[outer]);
		gone[i] = view == sim->seen + SIM_VIEWS_KEPT || node == SIM_NODES_MAX ||
		    !view->nodes[node];
	}
}

/* The caller's memory apart from results, and what error feedback leaves. */
static void check_memory(struct sim *sim, unsigned number, const struct tr_round *round,
    const struct sim_op *op)
{
	unsigned key = worker_key(sim, number, shape_outer(op, op->index));
	bool gone[SIM_NODES_MAX] = { false };

	if (!shape_untouched(sim, key, round->round, op))
		sim_violation(sim,
		    "I2: n%u, round %lu, op %u (collective %d, codec %d): memory that is no result "
		    "changed",
		    number, (unsigned long)round->round, op->tag, (int)op->collective,
		    (int)op->codec);
	if (!op->released) /* else it was as it is then, when nobody was */
		contributors_gone(sim, number, round, op, gone);
	if (op->feedback && op->index < op->contributors &&
	    !shape_residual_holds(sim, key, round->round, op, gone))
		sim_violation(sim, "I2: n%u, round %lu, op %u (codec %d): another residual", number,
		    (unsigned long)round->round, op->tag, (int)op->codec);
}

/* The members of a scope hold the same. */
static void check_part(struct sim *sim, unsigned number, const struct tr_round *round,
    const struct sim_op *op, struct tr_digest result)
{
	struct sim_part *part = sim->parts;

	while (part < sim->parts + SIM_PARTS_KEPT &&
	    (part->round != round->round || part->tag != op->tag || part->first != op->members[0]))
		part++;
	if (part == sim->parts + SIM_PARTS_KEPT)
		sim->parts[sim->part_count++ % SIM_PARTS_KEPT] = (struct sim_part){ round->round,
			op->tag, op->members[0], result };
	else if (!tr_digest_equal(part->result, result))
		sim_violation(sim, "I1: n%u holds another result of round %lu, op %u of a scope",
		    number, (unsigned long)round->round, op->tag);
}

static void check_read(struct sim *sim, unsigned number, const struct tr_round *round,
    const struct sim_op *op)
{
	if (!sim->over && op->read && !tr_digest_equal(op->result, shape_result(op)))
		sim_violation(sim,
		    "I9: n%u was given op %u of round %lu to read, and another result is committed",
		    number, op->tag, (unsigned long)round->round);
}

static bool check_follows(struct sim *sim, unsigned number, const struct tr_round *round)
{
	const struct sim_worker *worker = &sim->nodes[number].worker;
	bool may = worker->holds || worker->gradual.deferred > 0;
	uint64_t applied = worker->holds ? worker->applied : worker->gradual.round;

	if (round->round == applied + 1 && may)
		return true;
	sim_violation(sim, "I6: n%u commits round %lu after round %lu", number,
	    (unsigned long)round->round, (unsigned long)applied);
	return false;
}

/* The first to commit it? */
static void check_newest(struct sim *sim, const struct tr_round *round)
{
	sim->rounds++;
	if (round->round != sim->newest_round + 1)
		sim_violation(sim, "I6: round %lu is committed after round %lu",
		    (unsigned long)round->round, (unsigned long)sim->newest_round);
	sim->newest_round = round->round;
}

void check_order(struct sim *sim, unsigned number, const struct tr_round *round)
{
	if (check_follows(sim, number, round) && round->round > sim->newest_round)
		check_newest(sim, round);
}

/* In ascending tags: who left out an op that nobody else knows may have done the others in another order. */
static void check_sort(const struct sim_worker *worker, const struct sim_op **order)
{
	for (unsigned i = 0; i < worker->op_count; i++) {
		unsigned at = i;
		for (; at > 0 && order[at - 1]->tag > worker->ops[i].tag; at--)
			order[at] = order[at - 1];
		order[at] = &worker->ops[i];
	}
}

/* Once memberd has it in its log that members say different things of a round, nobody has that round. (Before, who knew may have died.) */
static bool check_refused(struct sim *sim, unsigned number, const struct tr_round *round)
{
	if (sim->refused_round == 0 || sim->refused_round != round->round)
		return true;
	sim_violation(sim, "I4: n%u has round %lu, in which others gave up since they disagree",
	    number, (unsigned long)round->round);
	return false;
}

/* Callers tell contributors apart by what they were told at their begin, also where a round was redone behind them. */
static void check_told(struct sim *sim, unsigned number, struct sim_truth *truth)
{
	const struct tr_round *told = &sim->nodes[number].worker.round;

	if (told->index >= told->contributors || told->index >= SIM_NODES_MAX)
		return;
	unsigned *who = &truth->told[told->index];
	if (*who != 0 && *who != number + 1)
		sim_violation(sim,
		    "I2: n%u and n%u were both told that they are contributor %u of round %lu",
		    *who - 1, number, told->index, (unsigned long)told->round);
	*who = number + 1;
}

void check_committed(struct sim *sim, unsigned number, const struct tr_round *round)
{
	struct sim_worker *worker = &sim->nodes[number].worker;
	const struct sim_op *order[SIM_CROWD_MAX + 1];
	struct tr_digest digest = { round->round, 0 };
	bool partial = false;

	if (sim->plant == PLANT_CORRUPT && number == 0 && worker->op_count > 0 &&
	    worker->ops[0].count > 0)
		((unsigned char *)worker->ops[0].data)[0] ^= 64;
	if (!check_refused(sim, number, round) || !check_follows(sim, number, round))
		return;
	if (round->round >= SIM_ROUNDS_MAX) {
		sim->over = true;
		return;
	}
	check_sort(worker, order);
	for (unsigned i = 0; i < worker->op_count && !sim->over; i++) {
		const struct sim_op *op = order[i];
		bool part = op->scoped > 0;
		struct tr_digest result = check_op(sim, number, round, op,
		    part ? (struct tr_digest){ 0, 0 } : digest, &partial);
		if (part)
			check_part(sim, number, round, op, result);
		else
			digest = result;
	}
	for (unsigned i = 0; i < worker->op_count && !sim->over; i++)
		check_memory(sim, number, round, &worker->ops[i]);
	if (sim->over)
		return;
	if (worker->op_count > 0 && partial && !round->partial)
		sim_violation(sim, "I2: n%u: round %lu is partial and does not say so", number,
		    (unsigned long)round->round);
	worker->applied = round->round;
	struct sim_truth *truth = &sim->truth[round->round];
	/* Who has not all of the state has the others' history, or parts of it (gradual.c). */
	uint64_t before = worker->holds ? worker->chain : sim->truth[round->round - 1].chain;
	uint64_t chain = tr_digest_fold((struct tr_digest){ before, 0 }, digest).low;
	if (worker->holds)
		worker->chain = chain;
	if (!truth->known) {
		*truth = (struct sim_truth){ true, digest, chain, { 0 } };
		check_newest(sim, round);
	} else if (!tr_digest_equal(truth->results, digest)) {
		sim_violation(sim, "I1: n%u holds other results of round %lu", number,
		    (unsigned long)round->round);
	} else if (truth->chain != chain) {
		sim_violation(sim, "I7: n%u has another history up to round %lu", number,
		    (unsigned long)round->round);
	}
	check_told(sim, number, truth);
	if (!worker->holds)
		gradual_committed(sim, number, round->round, digest);
	for (unsigned i = 0; i < worker->op_count; i++)
		check_read(sim, number, round, &worker->ops[i]);
}

void check_view(struct sim *sim, unsigned number, uint64_t view)
{
	uint64_t *newest = &sim->nodes[number].newest_view;

	if (view <= *newest)
		sim_violation(sim, "I6: n%u is in view %lu after view %lu", number,
		    (unsigned long)view, (unsigned long)*newest);
	*newest = view;
	sim->views++;
	if (!sim->faults_started)
		fault_progress(sim);
}

/* How many of the run's peers a text names; `one`: this one too. */
static unsigned names(const struct sim *sim, const char *text, uint64_t one, bool *named)
{
	bool seen[SIM_NODES_MAX] = { false };
	unsigned count = 0;

	*named = false;
	for (const char *at = text; *at;) {
		if (!isdigit((unsigned char)*at)) {
			at++;
			continue;
		}
		char *end;
		uint64_t number = strtoull(at, &end, 10);
		unsigned node = node_of_peer(sim, number);
		if (node != SIM_NODES_MAX && !seen[node]) {
			seen[node] = true;
			count++;
		}
		*named = *named || number == one;
		at = end;
	}
	return count;
}

void check_failed(struct sim *sim, unsigned number)
{
	const struct sim_node *node = &sim->nodes[number];
	bool named;

	if (node->failure == TR_EDIGEST && pieces_gave_up(sim, number) &&
	    strncmp(node->failure_text, "state from peer", 15) == 0)
		return;
	if (node->failure == TR_EMISMATCH && sim->mismatch_node >= 0) {
		uint64_t guilty = sim->nodes[sim->mismatch_node].peer;
		if (names(sim, node->failure_text, guilty, &named) < 2 || !named)
			sim_violation(sim, "I4: n%u fails and does not name both: %s", number,
			    node->failure_text);
		if (sim->mismatch_came && node->worker.round.index < node->worker.round.contributors)
			sim_violation(sim, "I4: a newcomer that is wrong ends n%u: %s", number,
			    node->failure_text);
		sim->mismatch_told = true;
	} else if (node->failure == TR_EPEERLOST &&
	    (sim->mismatch_told || (sim->mismatch_came && sim->mismatch_node == (int)number))) {
		/* A guilty joiner: all who contributed have been told, or have died, and are gone before it is. */
		return;
	} else if (node->failure == TR_EDIGEST && sim->salt_node >= 0) {
		(void)names(sim, node->failure_text, sim->nodes[sim->salt_node].peer, &named);
		if (!named)
			sim_violation(sim, "I4: n%u fails and does not name the one: %s", number,
			    node->failure_text);
	} else if (node->failure != TR_EEVICTED) {
		sim_violation(sim, "n%u fails: %s: %s", number, tr_status_name(node->failure),
		    node->failure_text);
	}
}

void check_record(struct sim *sim, const Traind__Peer__RoundCommit *record)
{
	if (record->round > sim->newest_round + 1)
		sim_violation(sim, "I6: a record of round %lu, which nobody committed",
		    (unsigned long)record->round);
	for (size_t i = 1; i < record->n_contributors; i++)
		if (record->contributors[i] <= record->contributors[i - 1])
			sim_violation(sim, "I2: a record's contributors do not ascend");
}

static void stuck(struct sim *sim)
{
	char who[400] = "";
	size_t used = 0;

	for (unsigned i = 0; i < sim->node_count; i++) {
		const struct sim_node *node = &sim->nodes[i];
		struct group_core_progress facts = { 0 };
		if (!node->alive)
			continue;
		if (node->core)
			group_core_progress(node->core, false, &facts);
		used += (size_t)snprintf(who + used, sizeof(who) - used,
		    " n%u(peer %lu, view %lu, round %lu, has %lu, waits for %lu)", i,
		    (unsigned long)node->peer, (unsigned long)facts.view,
		    (unsigned long)facts.round, (unsigned long)node->worker.applied,
		    (unsigned long)(facts.waits_for_count > 0 ? facts.waits_for[0] : 0));
		if (used > sizeof(who) - 100)
			break;
	}
	sim_violation(sim, "%s: no end in sight after the last fault:%s",
	    sim->mismatch_node >= 0 || sim->salt_node >= 0 ? "I4" : "I3", who);
}

/* Who has come has all of the state in the end, and its data counts. */
static bool arrived(const struct sim *sim, const struct sim_worker *worker)
{
	return !sim->gradual || (worker->holds && worker->round.index < worker->round.contributors);
}

bool check_finished(struct sim *sim)
{
	if (sim->callers)
		return sim->callers->finished(sim);
	if (!sim->faults_started || sim->faults_done < sim->fault_count || !sim->memberd.up)
		return !sim->faults_started && sim->now_us > SIM_PATIENCE_US ? (stuck(sim), true)
		                                                             : false;
	if (sim->last_fault_us == 0) {
		sim->last_fault_us = sim->now_us;
		sim->target_round = sim->newest_round + 3;
	}
	bool finished = true, anybody = false;
	for (unsigned i = 0; i < sim->node_count; i++) {
		const struct sim_node *node = &sim->nodes[i];
		finished = finished &&
		    (!node->alive ||
		        (node->worker.applied >= sim->target_round && arrived(sim, &node->worker)));
		anybody = anybody || node->alive;
	}
	/* What was committed before is in the log, each round of it, now and then looked at. */
	if (finished && anybody && sim->now_us < sim->looked_us + 100 * MS)
		return false;
	if (finished && anybody) {
		sim->looked_us = sim->now_us;
		finished = memberd_recorded(sim) + 3 >= sim->target_round;
	}
	if (!finished && sim->now_us > sim->last_fault_us + SIM_PATIENCE_US)
		stuck(sim);
	return finished;
}
