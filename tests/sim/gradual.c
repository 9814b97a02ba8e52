/* A joiner's state that comes gradually (tr_state_add_gradual), as an engine has it: some parts of it come in each round, which the worker changes with the
 * round's results as all do; the others come later. Whoever has a part holds the same history in it as everybody else. */
#include "tests/sim/sim.h"

#define STREAM_DEFERS 23
#define LOOKS_MS      200

static struct sim_gradual *gradual_of(struct sim *sim, unsigned number)
{
	return &sim->nodes[number].worker.gradual;
}

void gradual_asked(struct sim *sim, unsigned number, uint64_t round)
{
	struct sim_gradual *gradual = gradual_of(sim, number);

	if (gradual->round != round) /* it has missed one, or has nothing yet */
		*gradual = (struct sim_gradual){ .round = round };
}

/* What its donor sends this moment, and nothing of it is lost. */
static bool gradual_sends(const struct sim *sim, unsigned number)
{
	const struct sim_node *node = &sim->nodes[number];
	const struct sim_node *donor = &sim->nodes[node->asked_donor];

	return node->asked && donor->alive && donor->transferring[number] &&
	    !donor->transfers_digests[number] &&
	    donor->transfer_round[number] == node->asked_round &&
	    !sim->links[node->asked_donor][number].dead;
}

bool gradual_defers(struct sim *sim, unsigned number)
{
	struct sim_node *node = &sim->nodes[number];
	struct sim_gradual *gradual = &node->worker.gradual;
	uint64_t draw = rng_below(sim->key, STREAM_DEFERS, sim->awaits++, 6);

	if (!sim->gradual || !group_core_may_defer(node->core))
		return false;
	if (draw > 4 || gradual->deferred > 20) {
		worker_wake(sim, number, LOOKS_MS * MS);
		return false;
	}
	if (sim->pieces && !pieces_defer(sim, number)) {
		worker_wake(sim, number, LOOKS_MS * MS);
		return false;
	}
	if (!sim->pieces && draw > 0 && gradual_sends(sim, number)) {
		unsigned part = gradual->deferred % SIM_GRADUAL_PARTS;
		if (!gradual->here[part])
			gradual->chain[part] = sim->nodes[node->asked_donor].transfer_chain[number];
		gradual->here[part] = true;
	}
	gradual->deferred++;
	node_stops_state(sim, number);
	sim_trace(sim, "n%u lets round %lu be decided without its state", number,
	    (unsigned long)node->worker.round.round);
	sim->deferrals++;
	return true;
}

void gradual_committed(struct sim *sim, unsigned number, uint64_t round, struct tr_digest digest)
{
	struct sim_gradual *gradual = gradual_of(sim, number);
	const struct sim_truth *truth = &sim->truth[round];

	gradual->round = round;
	if (sim->pieces)
		pieces_apply(sim, number, digest);
	for (unsigned i = 0; i < SIM_GRADUAL_PARTS; i++) {
		if (!gradual->here[i])
			continue;
		gradual->chain[i] = tr_digest_fold((struct tr_digest){ gradual->chain[i], 0 },
		    digest)
		                        .low;
		if (truth->known && truth->chain != gradual->chain[i])
			sim_violation(sim,
			    "I7: n%u has another history up to round %lu in part %u of its state",
			    number, (unsigned long)round, i);
	}
}

void gradual_whole(struct sim *sim, unsigned number, uint64_t round, uint64_t chain)
{
	struct sim_gradual *gradual = gradual_of(sim, number);

	for (unsigned i = 0; i < SIM_GRADUAL_PARTS && gradual->round == round; i++)
		if (gradual->here[i] && gradual->chain[i] != chain)
			sim_violation(sim,
			    "I7: part %u of n%u's state, that came earlier, is not that after "
			    "round %lu",
			    i, number, (unsigned long)round);
	*gradual = (struct sim_gradual){ 0 };
}
