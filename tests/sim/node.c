/* An engine: runs the core of one member and does what it asks. A process with one peer. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "collectives/core/member.h"
#include "tests/sim/sim.h"

unsigned node_of_peer(const struct sim *sim, uint64_t peer)
{
	for (unsigned i = 0; i < sim->node_count; i++)
		if (sim->nodes[i].peer == peer && peer != 0)
			return i;
	return SIM_NODES_MAX;
}

void node_start(struct sim *sim, unsigned number)
{
	struct sim_node *node = &sim->nodes[number];

	*node = (struct sim_node){ .sim = sim,
		.started = true,
		.alive = true,
		.tick_us = UINT64_MAX };
	node->incarnation = 1000 + number;
	node->left = sim->left;
	sim->left.there = false;
	if (number >= sim->node_count)
		sim->node_count = number + 1;
	sim_trace(sim, "n%u starts", number);
	sim_at(sim, sim->now_us + sim_between(sim, 0, 100 * MS), SIM_CONNECT, number, 0, 0);
	sim_at(sim, sim->now_us + SIM_HEARTBEAT_US, SIM_HEARTBEAT, number, 0, 0);
}

/* In some seeds (not in the named ones, which mean what they meant) a dead worker's memory lives on, and another one is
 * started with it. */
static void node_leave_state(struct sim *sim, unsigned number)
{
	const struct sim_node *node = &sim->nodes[number];
	uint64_t round = 0;

	if (sim->callers || (sim->seed % 8 != 0 && sim->seed % 8 != 7) || !node->core ||
	    node->failed || !group_core_state(node->core, &round) || round == 0)
		return;
	if (!node->worker.holds || node->worker.applied != round)
		sim_violation(sim,
		    "I7: n%u is said to leave the state after round %lu, it has that after %lu",
		    number, (unsigned long)round, (unsigned long)node->worker.applied);
	sim->left = (struct sim_left){ .there = true, .round = round, .chain = node->worker.chain };
	sim_trace(sim, "n%u leaves the state after round %lu", number, (unsigned long)round);
	sim_at(sim, sim->now_us + sim_between(sim, 1 * MS, 300 * MS), SIM_FOLLOW, 0, 0, 0);
}

void node_follow(struct sim *sim)
{
	if ((!sim->left.there && !sim->callers && !sim->pieces) || sim->node_count == SIM_NODES_MAX)
		return;
	node_start(sim, sim->node_count);
	sim->joins++;
}

void node_crash(struct sim *sim, unsigned number, bool silently, const char *why)
{
	struct sim_node *node = &sim->nodes[number];

	if (!node->alive)
		return;
	sim_trace(sim, "n%u (peer %lu) dies: %s", number, (unsigned long)node->peer, why);
	node_leave_state(sim, number);
	node->alive = false;
	node->crash_after = 0;
	net_node_died(sim, number, silently);
	pieces_died(sim, number, silently);
	worker_end(sim, number);
	if (node->conn != 0 && !silently)
		sim_at(sim, sim->now_us + sim_between(sim, 0, 100 * MS), SIM_CONN_CLOSED, number, 0,
		    node->conn);
	node->conn = 0;
}

void node_finish(struct sim *sim, unsigned number)
{
	pieces_finish(sim, number);
	uplink_forget_records(sim, number, UINT64_MAX);
	for (unsigned to = 0; to < SIM_NODES_MAX; to++)
		free(sim->nodes[number].transfer_records[to].data);
	free(sim->nodes[number].records);
	free(sim->nodes[number].board);
	net_unmap(sim, number);
	group_core_destroy(sim->nodes[number].core);
}

static void node_ask_state(struct sim *sim, unsigned number, unsigned donor, uint64_t round)
{
	struct sim_node *node = &sim->nodes[number];
	struct sim_message *message = calloc(1, sizeof(*message));

	if (!message)
		abort();
	node->left.there = node->left.there && node->left.round == round;
	message->kind = SIM_STATE_ASK;
	message->round = round;
	message->wish.digests_only = node->left.there;
	sim_trace(sim, "n%u asks n%u for %s the state after round %lu", number, donor,
	    node->left.there ? "the digests of" : "", (unsigned long)round);
	net_send_plain(sim, number, donor, message);
}

static void node_act_state_ask(struct sim *sim, unsigned number, const struct group_action *action)
{
	struct sim_node *node = &sim->nodes[number];
	unsigned donor = node_of_peer(sim, action->to);

	node->asked = true;
	node->asked_donor = donor;
	node->asked_round = action->round;
	gradual_asked(sim, number, action->round);
	node_ask_state(sim, number, donor, action->round);
}

static void node_pack_records(struct sim *sim, unsigned number, unsigned to, uint64_t round)
{
	struct sim_node *node = &sim->nodes[number];
	struct sim_records *packed = &node->transfer_records[to];
	Traind__Peer__RoundCommit *records[TR_STATE_RECORDS_MAX];
	Traind__Peer__RoundCommits message = TRAIND__PEER__ROUND_COMMITS__INIT;

	message.rounds = records;
	message.n_rounds = group_core_records(node->core, round, records, TR_STATE_RECORDS_MAX);
	free(packed->data);
	packed->bytes = traind__peer__round_commits__get_packed_size(&message);
	packed->data = malloc(packed->bytes + 1);
	if (!packed->data)
		abort();
	traind__peer__round_commits__pack(&message, packed->data);
}

/* Those that the donor `from` sent along. */
static void node_take_records(struct sim *sim, unsigned number, unsigned from)
{
	const struct sim_records *packed = &sim->nodes[from].transfer_records[number];
	Traind__Peer__RoundCommits *records = traind__peer__round_commits__unpack(NULL,
	    packed->bytes, packed->data);

	if (!records)
		abort();
	struct group_event event = { .kind = GROUP_STATE_RECORDS,
		.from = sim->nodes[from].peer,
		.records = { records->rounds, records->n_rounds } };
	if (node_step(sim, number, &event) == TR_EPROTO)
		sim_violation(sim, "n%u refuses the records of n%u", number, from);
	traind__peer__round_commits__free_unpacked(records, NULL);
}

static void node_act_state_send(struct sim *sim, unsigned number, const struct group_action *action)
{
	struct sim_node *node = &sim->nodes[number];
	unsigned to = node_of_peer(sim, action->to);

	node->transferring[to] = true;
	node->transfers_digests[to] = action->wish.digests_only;
	node->transfer_round[to] = action->round;
	node->transfer_chain[to] = node->worker.chain;
	node_pack_records(sim, number, to, action->round);
	sim_trace(sim, "n%u streams its state after round %lu to n%u", number,
	    (unsigned long)node->worker.applied, to);
	if (node->worker.applied != action->round || !node->worker.holds)
		sim_violation(sim,
		    "I7: n%u is to stream the state after round %lu, it has that after %lu", number,
		    (unsigned long)action->round, (unsigned long)node->worker.applied);
	sim_at(sim, sim->now_us + sim_between(sim, 100, 500 * MS), SIM_TRANSFER, number, to, 0);
}

static void node_act(struct sim *sim, unsigned number, struct group_action *action)
{
	switch (action->kind) {
	case GROUP_DO_SEND_SEGMENT:
		net_send(sim, number, action, SIM_SEGMENT);
		break;
	case GROUP_DO_SPREAD:
		board_spread(sim, number, action);
		break;
	case GROUP_DO_SEND_VOTE:
		net_send(sim, number, action, SIM_VOTE);
		break;
	case GROUP_DO_SEND_COMMIT:
		net_send(sim, number, action, SIM_COMMIT);
		break;
	case GROUP_DO_SEND_SUBMITTED:
		net_send(sim, number, action, SIM_SUBMITTED);
		break;
	case GROUP_DO_DROP_SENDS:
		net_drop_sends(sim, number);
		break;
	case GROUP_DO_REPORT:
		uplink_report(sim, number, action);
		break;
	case GROUP_DO_LINK_LOST:
		uplink_link_lost(sim, number, action);
		break;
	case GROUP_DO_BEGAN:
		worker_began(sim, number, &action->round_info);
		break;
	case GROUP_DO_DECIDED:
		net_unmap(sim, number);
		if (action->status == TR_OK)
			memset(sim->nodes[number].transferring, 0,
			    sizeof(sim->nodes[number].transferring));
		if (sim->plant == PLANT_HIDE && action->status == TR_EMISMATCH)
			break;
		pieces_decided(sim, number, action->status, action->round);
		worker_decided(sim, number, action->status, &action->round_info, action->text);
		break;
	case GROUP_DO_RECORD:
		uplink_record(sim, number, action);
		break;
	case GROUP_DO_STATE_SEND:
		if (sim->pieces)
			pieces_send(sim, number, action);
		else
			node_act_state_send(sim, number, action);
		break;
	case GROUP_DO_STATE_ASK:
		if (sim->pieces)
			pieces_ask(sim, number, action);
		else
			node_act_state_ask(sim, number, action);
		break;
	case GROUP_DO_FAIL:
		if (sim->plant != PLANT_HIDE)
			uplink_fail(sim, number, action);
		break;
	case GROUP_DO_RETRY:
		net_retry(sim, number, action);
		break;
	case GROUP_DO_OP_DONE:
		worker_op_done(sim, number, action->tag);
		break;
	case GROUP_DO_CONNECT:
		break;
	}
}

static void node_drop_action(struct sim *sim, unsigned number, const struct group_action *action)
{
	if ((action->kind == GROUP_DO_SEND_SEGMENT || action->kind == GROUP_DO_SPREAD) &&
	    action->buffer)
		group_buffer_release(sim->nodes[number].core, action->buffer);
}

/* Is the op's result in place after this step, and was not before? */
static bool node_op_done(const struct group_core *core, const struct sim_worker *worker,
    struct sim_op *op)
{
	const struct op *of = round_op(core, op->tag);
	bool told = op->told;

	op->told = op->submitted && ((of && op_done(of)) || core->committed == worker->round.round);
	return op->told && !told;
}

/* Cores said so of every op when the older named seeds were found, whose deaths fall on a number of actions. */
static void node_tell_done(const struct sim_node *node, struct group_actions *actions)
{
	struct sim_worker worker = node->worker;
	size_t at = actions->count;

	while (at > 0 && actions->items[at - 1].kind != GROUP_DO_SEND_SEGMENT)
		at--;
	for (unsigned i = 0; i < worker.op_count && node->core->state != ROUND_FAILED; i++) {
		if (!node_op_done(node->core, &worker, (struct sim_op *)&node->worker.ops[i]))
			continue;
		if (actions->count == actions->capacity) {
			actions->capacity = 2 * actions->capacity + 8;
			actions->items = realloc(actions->items,
			    actions->capacity * sizeof(actions->items[0]));
			if (!actions->items)
				abort();
		}
		memmove(&actions->items[at + 1], &actions->items[at],
		    (actions->count - at) * sizeof(actions->items[0]));
		actions->items[at] = (struct group_action){ .kind = GROUP_DO_OP_DONE };
		actions->count++;
	}
}

static void node_tick(struct sim *sim, unsigned number)
{
	struct sim_node *node = &sim->nodes[number];
	uint64_t deadline = group_core_deadline_us(node->core);

	if (deadline == 0)
		deadline = sim->now_us;
	if (deadline == UINT64_MAX || deadline >= node->tick_us)
		return;
	node->tick_us = deadline;
	sim_at(sim, deadline, SIM_CORE_TICK, number, 0, deadline);
}

void node_release(struct sim *sim, unsigned number, struct group_buffer *buffer)
{
	struct sim_node *node = &sim->nodes[number];

	group_buffer_release(node->core, buffer);
	if (node->alive && group_core_due(node->core))
		node_tick(sim, number);
}

tr_status node_step(struct sim *sim, unsigned number, struct group_event *event)
{
	struct sim_node *node = &sim->nodes[number];
	struct group_actions actions = { 0 };
	struct tr_error error = { 0 };

	if (!node->core || !node->alive)
		return TR_ESTALE;
	event->now_us = sim->now_us;
	bool held = pieces_hold(sim, number);
	tr_status st = group_core_step(node->core, event, &actions, &error);
	plant_step(sim, number, event);
	if (st == TR_EPROTO || st == TR_EINVAL)
		sim_trace(sim, "n%u: %s", number, error.text);
	if (event->kind == GROUP_PROPOSE && st == TR_OK)
		net_unmap(sim, number);
	if (event->kind == GROUP_INSTALL && st == TR_OK && !node->failed) {
		node->view = event->install->view->number;
		check_members(sim, event->install->view);
		check_view(sim, number, node->view);
	}
	if (sim->tells)
		node_tell_done(node, &actions);
	aim_in_step(sim, number, actions.count);
	for (size_t i = 0; i < actions.count; i++) {
		if (node->crash_after > 0 && node->alive && --node->crash_after == 0) {
			cover_strike(sim, FAULT_CRASH_AT_ACTION, number);
			node_crash(sim, number, node->crash_silently, "in the middle of a step");
		}
		if (node->alive)
			node_act(sim, number, &actions.items[i]);
		else
			node_drop_action(sim, number, &actions.items[i]);
	}
	group_actions_finish(&actions);
	pieces_let(sim, number, held);
	if (!node->alive)
		return TR_ESTALE;
	aim_at_member(sim, number);
	board_wake(sim, number);
	node_tick(sim, number);
	return st;
}

/* ---- links and state ---- */

/* The peer to which `number` streams its state is gone, or no longer of the view: the connection closes, and the joiner sees it. */
static void node_transfer_ends(struct sim *sim, unsigned number, unsigned to)
{
	struct sim_node *node = &sim->nodes[number];

	node->transferring[to] = false;
	sim_at(sim, sim->now_us + sim_between(sim, 20, sim->delay_us), SIM_STATE_IN, to, number, 1);
	struct group_event sent = { .kind = GROUP_STATE_SENT,
		.from = sim->nodes[to].peer,
		.round = node->transfer_round[to],
		.status = TR_EPEERLOST };
	(void)node_step(sim, number, &sent);
}

void node_stops_state(struct sim *sim, unsigned number)
{
	struct sim_node *node = &sim->nodes[number];

	for (unsigned from = 0; from < sim->node_count && node->alive; from++) {
		node->arriving[from] = false;
		if (sim->nodes[from].alive && sim->nodes[from].transferring[number])
			node_transfer_ends(sim, from, number);
	}
	node->asked = false;
}

void node_view_changed(struct sim *sim, unsigned number, const Traind__Peer__View *view)
{
	struct sim_node *node = &sim->nodes[number];

	for (unsigned to = 0; to < sim->node_count && node->alive; to++) {
		bool there = false;
		for (size_t i = 0; i < view->n_peers; i++)
			there = there || view->peers[i]->peer == sim->nodes[to].peer;
		if (node->transferring[to] && !there)
			node_transfer_ends(sim, number, to);
	}
}

void node_link_seen(struct sim *sim, unsigned number, unsigned other)
{
	struct sim_node *node = &sim->nodes[number], *peer = &sim->nodes[other];

	/* Redialled from now on, if there is somebody. */
	if (peer->alive)
		sim->links[number][other].dead = false;
	node->arriving[other] = false;
	if (peer->peer == 0)
		return;
	if (peer->alive)
		pieces_link_up(sim, number);
	struct group_event event = { .kind = GROUP_LINK_LOST,
		.from = peer->peer,
		.reason = "reset" };
	(void)node_step(sim, number, &event);
	if (node->asked && node->asked_donor == other && node->alive) {
		struct group_event got = { .kind = GROUP_STATE_GOT,
			.from = peer->peer,
			.round = node->asked_round,
			.status = TR_EPEERLOST };
		(void)node_step(sim, number, &got);
	}
	if (node->transferring[other] && node->alive)
		node_transfer_ends(sim, number, other);
}

void node_transfer_done(struct sim *sim, unsigned number, unsigned to)
{
	struct sim_node *node = &sim->nodes[number];

	if (!node->transferring[to])
		return;
	node->transferring[to] = false;
	if (node->worker.chain != node->transfer_chain[to] && sim->nodes[to].alive)
		sim_violation(sim, "I7: the state of n%u changed while it was streamed to n%u",
		    number, to);
	bool vanishes = sim->seed % 8 == 2 && !node->vanished[to];
	node->vanished[to] = true;
	if (vanishes)
		sim_trace(sim, "n%u's connection for the state is refused by n%u's port", number,
		    to);
	/* A connection of its own: a parked segment must not hold the state up. */
	if (!sim->links[number][to].dead && !vanishes) {
		sim->nodes[to].arriving[number] = true;
		sim_at(sim, sim->now_us + sim_between(sim, 20, sim->delay_us), SIM_STATE_IN, to,
		    number, 0);
	}
	/* Where faults are aimed the joiner may have all of it before the donor hears that the connection has closed. */
	if (sim->aim_count > 0)
		sim_at(sim, sim->now_us + sim_between(sim, 0, 600 * MS), SIM_TRANSFER_TOLD, number,
		    to, node->transfer_round[to]);
	else
		node_transfer_told(sim, number, to, node->transfer_round[to]);
}

void node_transfer_told(struct sim *sim, unsigned number, unsigned to, uint64_t round)
{
	struct group_event sent = { .kind = GROUP_STATE_SENT,
		.from = sim->nodes[to].peer,
		.round = round };
	(void)node_step(sim, number, &sent);
}

/* A donor's digests are here. What was left is damaged sometimes: then all of it is asked for. */
static bool node_left_agrees(struct sim *sim, unsigned number, unsigned from, uint64_t round,
    uint64_t chain)
{
	struct sim_node *node = &sim->nodes[number];

	if (!node->left.there || !node->asked || node->asked_donor != from ||
	    node->asked_round != round)
		return false;
	if (node->left.chain != chain)
		sim_violation(sim, "I7: n%u has another state after round %lu than n%u", number,
		    (unsigned long)round, from);
	node->left.there = false;
	if (sim_chance(sim, 80)) {
		sim->lefts++;
		return true;
	}
	sim_trace(sim, "n%u: what was left is damaged", number);
	node_ask_state(sim, number, from, round);
	return false;
}

void node_state_in(struct sim *sim, unsigned number, unsigned from, bool failed)
{
	struct sim_node *node = &sim->nodes[number];
	const struct sim_node *donor = &sim->nodes[from];
	uint64_t round = donor->transfer_round[number];
	uint64_t chain = donor->transfer_chain[number] ^ (sim->plant == PLANT_LATE_STATE);

	if (failed) {
		struct group_event got = { .kind = GROUP_STATE_GOT,
			.from = donor->peer,
			.round = round,
			.status = TR_EPEERLOST };
		(void)node_step(sim, number, &got);
		return;
	}
	if (!node->arriving[from])
		return;
	node->arriving[from] = false;
	if (node->asked && node->asked_donor == from && node->asked_round == round)
		node_take_records(sim, number, from);
	if (donor->transfers_digests[number] && !node_left_agrees(sim, number, from, round, chain))
		return;
	struct group_event event = { .kind = GROUP_STATE_GOT, .from = donor->peer, .round = round };
	/* It is in the worker's memory before anybody says so, also if the process dies of saying it. */
	const struct sim_worker before = node->worker;
	worker_takes_state(sim, number, round, chain);
	if (node_step(sim, number, &event) == TR_OK)
		worker_state_got(sim, number);
	else if (node->alive)
		worker_takes_state_back(sim, number, &before);
}
