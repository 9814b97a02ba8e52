/* What goes wrong, and when: by the clock, or at the n-th message between peers, so that faults fall into the middle of
 * collectives and not only into the long pauses between them.
 */
#include "tests/sim/sim.h"

/* A member that is given up is silent for a second. */
#define STALL_LEAST_US (900 * MS)
#define STALL_MOST_US  (4 * SECOND)

static enum sim_fault_kind draw_kind(struct sim *sim)
{
	const struct {
		enum sim_fault_kind kind;
		unsigned weight;
	} weights[] = {
		{ FAULT_CRASH, 14 },
		{ FAULT_CRASH_AT_ACTION, 18 },
		{ FAULT_POWER_LOSS, 6 },
		{ FAULT_PAUSE, sim->stalls ? 80 : 12 },
		{ FAULT_BREAK_LINK, 14 },
		{ FAULT_CUT_OFF, 8 },
		{ FAULT_CUT_WAY, 8 },
		{ FAULT_MEMBERD_STALL, 5 },
		{ FAULT_JOIN, sim->pieces ? 60 : 20 },
		{ FAULT_MEMBERD_RESTART, 10 },
		{ FAULT_LEAVE, sim->pieces ? 8 : 3 },
		{ FAULT_MISMATCH, sim->recuts ? 40 : 1 },
		{ FAULT_SALT, 1 },
	};
	unsigned total = 0;

	for (size_t i = 0; i < sizeof(weights) / sizeof(weights[0]); i++)
		total += weights[i].weight;
	unsigned pick = (unsigned)sim_draw(sim, total);
	for (size_t i = 0; i < sizeof(weights) / sizeof(weights[0]); i++) {
		if (pick < weights[i].weight)
			return weights[i].kind;
		pick -= weights[i].weight;
	}
	return FAULT_CRASH;
}

/* A planted bug must get its chance. */
static void fault_force(struct sim *sim)
{
	static const struct {
		enum sim_plant plant;
		enum sim_fault_kind kind;
	} needs[] = {
		{ PLANT_HIDE, FAULT_MISMATCH },
		{ PLANT_APPLY, FAULT_CRASH_AT_ACTION },
		{ PLANT_STALE_VIEW, FAULT_JOIN },
		{ PLANT_LATE_STATE, FAULT_JOIN },
		{ PLANT_SPOILT, FAULT_JOIN },
	};
	for (size_t i = 0; i < sizeof(needs) / sizeof(needs[0]); i++)
		if (sim->plant == needs[i].plant)
			for (unsigned f = 0; f < sim->fault_count; f++)
				sim->faults[f].kind = needs[i].kind;
	if (sim->plant == PLANT_APPLY)
		sim->policy = TRAIND__PEER__POLICY__POLICY_REPLAY;
	if (sim->plant == PLANT_UNREAD)
		sim->policy = TRAIND__PEER__POLICY__POLICY_UNIFORM;
	if (sim->plant == PLANT_ARRIVAL)
		sim->deterministic = true;
}

void fault_plan(struct sim *sim)
{
	uint64_t horizon = 60 * sim->think_us < 3 * SECOND ? 60 * sim->think_us : 3 * SECOND;

	sim->fault_count = 1 + (unsigned)sim_draw(sim, sim_chance(sim, 20) ? SIM_FAULTS_MAX : 6);
	for (unsigned i = 0; i < sim->fault_count; i++) {
		struct sim_fault *fault = &sim->faults[i];
		fault->kind = draw_kind(sim);
		if (sim_chance(sim, 40) || sim->founders == 1)
			fault->at_us = sim_draw(sim, horizon) + 1;
		else
			fault->at_delivery = sim_between(sim, 1, sim->stalls ? 400 : 2000);
	}
	fault_force(sim);
}

void fault_progress(struct sim *sim)
{
	sim->faults_started = true;
	sim->deliveries = 0;
	for (unsigned i = 0; i < sim->fault_count; i++)
		if (sim->faults[i].at_us > 0)
			sim_at(sim, sim->now_us + sim->faults[i].at_us, SIM_FAULT, i, 0, 0);
	/* Where nobody talks, deliveries may never come. */
	sim_at(sim, sim->now_us + 20 * SECOND, SIM_FAULT, SIM_FAULTS_MAX, 0, 0);
}

void fault_delivery(struct sim *sim)
{
	for (unsigned i = 0; sim->faults_started && i < sim->fault_count; i++)
		if (!sim->faults[i].done && sim->faults[i].at_delivery > 0 &&
		    sim->deliveries >= sim->faults[i].at_delivery)
			fault_fire(sim, i);
}

unsigned fault_victim(struct sim *sim)
{
	unsigned at = (unsigned)sim_draw(sim, sim->node_count);

	for (unsigned i = 0; i < sim->node_count; i++, at = (at + 1) % sim->node_count)
		if (sim->nodes[at].alive && sim->nodes[at].core && !sim->nodes[at].failed)
			return at;
	return SIM_NODES_MAX;
}

static void fault_cut_off(struct sim *sim, unsigned victim)
{
	uint64_t until = sim->now_us + sim_between(sim, 1 * MS, 4 * SECOND);
	bool from_memberd = sim_chance(sim, 60), from_peers = !from_memberd || sim_chance(sim, 60);

	sim_trace(sim, "n%u is cut off%s%s until %.6f", victim, from_memberd ? " from memberd" : "",
	    from_peers ? " from its peers" : "", (double)until * 1e-6);
	if (from_memberd)
		sim->nodes[victim].hold_until_us = until;
	for (unsigned i = 0; from_peers && i < SIM_NODES_MAX; i++)
		sim->links[victim][i].hold_until_us = sim->links[i][victim].hold_until_us = until;
}

/* Some last longer than a timeout, some do not. */
static void fault_cut_way(struct sim *sim, unsigned victim)
{
	unsigned at = (unsigned)sim_draw(sim, SIM_NODES_MAX);

	for (unsigned i = 0; i < SIM_NODES_MAX; i++, at = (at + 1) % SIM_NODES_MAX) {
		struct sim_link *link = &sim->links[victim][at];
		if (!link->used || link->dead || !sim->nodes[at].alive)
			continue;
		link->hold_until_us = sim->now_us + sim_between(sim, 1 * MS, 6 * SECOND);
		sim_trace(sim, "the way n%u>n%u is cut until %.6f", victim, at,
		    (double)link->hold_until_us * 1e-6);
		return;
	}
}

static void fault_leave(struct sim *sim, unsigned victim)
{
	struct sim_node *node = &sim->nodes[victim];
	Traind__Peer__ToMember message = TRAIND__PEER__TO_MEMBER__INIT;
	Traind__Peer__LeaveGroup leave = TRAIND__PEER__LEAVE_GROUP__INIT;
	Traind__Peer__LastWords words = TRAIND__PEER__LAST_WORDS__INIT;

	(void)node_step(sim, victim, &(struct group_event){ .kind = GROUP_LEAVE });
	if (!node->alive)
		return;
	words.rounds = node->records;
	words.n_rounds = node->record_count;
	leave.group = node->group;
	leave.peer = node->peer;
	leave.last_words = &words;
	message.body_case = TRAIND__PEER__TO_MEMBER__BODY_LEAVE_GROUP;
	message.leave_group = &leave;
	if (node->conn != 0)
		memberd_send(sim, victim, &message);
	node_crash(sim, victim, false, "it leaves");
}

static void fault_pause(struct sim *sim, unsigned victim)
{
	uint64_t least = sim->stalls ? STALL_LEAST_US : 1 * MS,
	         most = sim->stalls ? STALL_MOST_US : 5 * SECOND;

	sim->nodes[victim].paused_until_us = sim->now_us + sim_between(sim, least, most);
	sim_trace(sim, "n%u is stopped until %.6f", victim,
	    (double)sim->nodes[victim].paused_until_us * 1e-6);
}

/* One in so many votes finds its receiver standing still, with what it has and what is on its way. */
#define VOTES_A_STALL 40

bool fault_stalls(struct sim *sim, unsigned to)
{
	if (!sim->stalls || !sim->faults_started || sim->stalled || !sim->nodes[to].alive ||
	    sim_draw(sim, VOTES_A_STALL) != 0)
		return false;
	sim->stalled = true; /* once: the others must be able to go on */
	fault_pause(sim, to);
	return true;
}

static void fault_do(struct sim *sim, enum sim_fault_kind kind, unsigned victim)
{
	struct sim_node *node = &sim->nodes[victim];

	switch (kind) {
	case FAULT_CRASH:
	case FAULT_POWER_LOSS:
		node_crash(sim, victim, kind == FAULT_POWER_LOSS,
		    kind == FAULT_CRASH ? "killed" : "power loss");
		break;
	case FAULT_CRASH_AT_ACTION:
		node->crash_after = 1 + (unsigned)sim_between(sim, 0, 200);
		node->crash_silently = sim_chance(sim, 10);
		break;
	case FAULT_PAUSE:
		fault_pause(sim, victim);
		break;
	case FAULT_BREAK_LINK:
		for (unsigned i = 0, at = (unsigned)sim_draw(sim, SIM_NODES_MAX); i < SIM_NODES_MAX;
		     i++, at = (at + 1) % SIM_NODES_MAX)
			if (sim->links[victim][at].used && !sim->links[victim][at].dead &&
			    sim->nodes[at].alive) {
				net_break(sim, victim, at);
				break;
			}
		break;
	case FAULT_CUT_OFF:
		fault_cut_off(sim, victim);
		break;
	case FAULT_CUT_WAY:
		fault_cut_way(sim, victim);
		break;
	case FAULT_MEMBERD_STALL:
		sim->memberd.stalled_until_us = sim->now_us + sim_between(sim, 1 * MS, 5 * SECOND);
		sim_trace(sim, "memberd is stopped until %.6f",
		    (double)sim->memberd.stalled_until_us * 1e-6);
		break;
	case FAULT_LEAVE:
		fault_leave(sim, victim);
		break;
	case FAULT_MISMATCH:
		if (sim->mismatch_node < 0 && sim->salt_node < 0)
			sim->mismatch_node = (int)victim;
		break;
	case FAULT_SALT:
		if (sim->mismatch_node < 0 && sim->salt_node < 0)
			sim->salt_node = (int)victim;
		break;
	default:
		break;
	}
}

/* The others strike when their victim gets so far. */
static bool fault_at_once(enum sim_fault_kind kind)
{
	return kind != FAULT_CRASH_AT_ACTION && kind != FAULT_MISMATCH && kind != FAULT_SALT &&
	    kind != FAULT_MEMBERD_STALL;
}

void fault_strike(struct sim *sim, enum sim_fault_kind kind, unsigned victim)
{
	if (kind == FAULT_JOIN) {
		cover_strike(sim, FAULT_JOIN, SIM_NODES_MAX);
		if (sim->node_count < SIM_NODES_MAX)
			node_start(sim, sim->node_count);
		sim->joins++;
		return;
	}
	if (kind == FAULT_MEMBERD_RESTART) {
		if (sim->memberd.up)
			cover_strike(sim, FAULT_MEMBERD_RESTART, SIM_NODES_MAX);
		if (sim_chance(sim, 40))
			memberd_snapshot(sim);
		memberd_crash(sim);
		return;
	}
	if (victim == SIM_NODES_MAX)
		return;
	if (kind == FAULT_MEMBERD_STALL && sim->memberd.up)
		cover_strike(sim, FAULT_MEMBERD_STALL, SIM_NODES_MAX);
	else if (fault_at_once(kind))
		cover_strike(sim, kind, victim);
	fault_do(sim, kind, victim);
}

void fault_fire(struct sim *sim, unsigned number)
{
	if (number >= SIM_FAULTS_MAX) {
		for (unsigned i = 0; i < sim->fault_count; i++)
			if (!sim->faults[i].done)
				fault_fire(sim, i);
		return;
	}
	struct sim_fault *fault = &sim->faults[number];
	if (fault->done)
		return;
	fault->done = true;
	sim->faults_done++;
	bool nobodys = fault->kind == FAULT_JOIN || fault->kind == FAULT_MEMBERD_RESTART;
	fault_strike(sim, fault->kind, nobodys ? SIM_NODES_MAX : fault_victim(sim));
}
