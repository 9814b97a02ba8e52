/* Faults that are aimed at a state: they strike when a member, or memberd's group, gets into one that is too rare to be struck by
 * chance (cover.c says which). In one of eight seeds, and in no named one, which keeps the story that it told. In each from SIM_SELDOM_FROM
 * on, at what the others do not meet.
 */
#include "collectives/core/member.h"
#include "tests/sim/sim.h"

#define STREAM_AIM 5

static bool is_named(uint64_t seed)
{
	for (size_t i = 0; i < sim_seed_count; i++)
		if (sim_seeds[i].seed == seed)
			return true;
	return false;
}

/* Without it the state is not reached in this run. */
static void needs_fault(struct sim *sim, unsigned from_end, enum sim_fault_kind kind)
{
	unsigned at = from_end < sim->fault_count ? sim->fault_count - 1 - from_end : 0;

	sim->faults[at].kind = kind;
}

/* Whom memberd has given up while it works on is the only one that begins a round when all others have reported. */
static void needs_given_up(struct sim *sim)
{
	for (unsigned i = 0; i < sim->fault_count; i++)
		if (sim->faults[i].kind != FAULT_JOIN)
			sim->faults[i].kind = FAULT_CUT_OFF;
}

static void aim_prepare(struct sim *sim, const struct sim_aim *aim)
{
	enum round_state state = (enum round_state)(aim->state % ROUND_STATES);

	if (sim->fault_count < 4) {
		for (unsigned i = sim->fault_count; i < 4; i++)
			sim->faults[i] = (struct sim_fault){ .kind = FAULT_BREAK_LINK,
				.at_delivery = 1 + rng_below(sim->key, STREAM_AIM, 100 + i, 400) };
		sim->fault_count = 4;
	}
	needs_fault(sim, 0, FAULT_JOIN);
	if (aim->of_memberd && aim->kind == FAULT_MISMATCH)
		needs_given_up(sim);
	else if (aim->of_memberd)
		needs_fault(sim, 1, FAULT_MEMBERD_RESTART);
	else if (state == ROUND_FAILED)
		needs_fault(sim, 1, FAULT_MISMATCH);
	else if (state == ROUND_ABANDONED)
		needs_fault(sim, 1, FAULT_CRASH);
	if (state == ROUND_ABANDONED && sim->policy == TRAIND__PEER__POLICY__POLICY_KEEP)
		sim->policy = TRAIND__PEER__POLICY__POLICY_REPLAY;
}

void aim_plan(struct sim *sim)
{
	bool seldom = sim->seed >= SIM_SELDOM_FROM && sim->seed < SIM_PIECES_FROM;

	if ((sim->seed % 8 != 5 && !seldom) || sim->plant != PLANT_NONE ||
	    (!seldom && is_named(sim->seed)))
		return;
	sim->aim_count = 1 + (unsigned)rng_below(sim->key, STREAM_AIM, 0, SIM_AIMS_MAX);
	for (unsigned i = 0; i < sim->aim_count; i++) {
		struct sim_aim *aim = &sim->aims[i];
		uint64_t pick = rng_below(sim->key, STREAM_AIM, 1 + i, 1u << 30);
		*aim = cover_rare(pick, seldom);
		aim_prepare(sim, aim);
		sim_trace(sim, "a fault is aimed at %s", cover_name(aim));
	}
}

static bool aim_waits(const struct sim *sim, const struct sim_aim *aim)
{
	return sim->faults_started && !aim->done;
}

static void aim_done(struct sim *sim, struct sim_aim *aim)
{
	sim_trace(sim, "the fault aimed at %s strikes", cover_name(aim));
	aim->done = true;
	sim->last_fault_us = 0; /* time enough from here on */
}

/* The step has brought its member there: it dies at one of the actions. */
void aim_in_step(struct sim *sim, unsigned number, size_t actions)
{
	struct sim_node *node = &sim->nodes[number];

	for (unsigned i = 0; i < sim->aim_count; i++) {
		struct sim_aim *aim = &sim->aims[i];
		if (!aim_waits(sim, aim) || aim->of_memberd || aim->kind != FAULT_CRASH_AT_ACTION ||
		    actions == 0 || node->crash_after > 0 || cover_member(node->core) != aim->state)
			continue;
		aim_done(sim, aim);
		node->crash_after = 1 + (unsigned)sim_draw(sim, actions);
		node->crash_silently = false;
	}
}

static bool aims_at_frozen_failure(const struct sim_aim *aim)
{
	return !aim->of_memberd && aim->state % ROUND_STATES == ROUND_FAILED &&
	    cover_frozen(aim->state) == aim->state;
}

/* A broken link makes memberd propose, and that freezes it. Who has failed freezes no more, so that one has to be frozen while the refusal of its vote is on its way. */
static bool aim_leads(const struct sim *sim, const struct sim_aim *aim, unsigned state,
    unsigned number)
{
	if (!aims_at_frozen_failure(aim))
		return cover_frozen(state) == aim->state;
	return state % ROUND_STATES == ROUND_CLOSED &&
	    cover_frozen(state) + ROUND_FAILED - ROUND_CLOSED == aim->state &&
	    cover_frozen(state) != state &&
	    (sim->mismatch_node == (int)number || sim->salt_node == (int)number);
}

/* After a step. What strikes does so at the next event: nothing is pulled from under the one that is handled. */
void aim_at_member(struct sim *sim, unsigned number)
{
	const struct group_core *core = sim->nodes[number].core;

	for (unsigned i = 0; i < sim->aim_count; i++) {
		struct sim_aim *aim = &sim->aims[i];
		if (!aim_waits(sim, aim) || aim->of_memberd)
			continue;
		unsigned state = cover_member(core);
		if (state == aim->state && aim->kind != FAULT_CRASH_AT_ACTION) {
			sim_at(sim, sim->now_us, SIM_AIM, i, number, 0);
		} else if (!aim->led && aim_leads(sim, aim, state, number)) {
			aim->led = true;
			fault_strike(sim, FAULT_BREAK_LINK, number);
		}
	}
}

void aim_at_memberd(struct sim *sim)
{
	for (unsigned i = 0; i < sim->aim_count; i++) {
		struct sim_aim *aim = &sim->aims[i];
		if (aim_waits(sim, aim) && aim->of_memberd && aim->kind != FAULT_MISMATCH &&
		    cover_group(sim) == aim->state) {
			aim_done(sim, aim);
			fault_strike(sim, aim->kind, fault_victim(sim));
		}
	}
}

void aim_at_begin(struct sim *sim, unsigned number)
{
	for (unsigned i = 0; i < sim->aim_count; i++) {
		struct sim_aim *aim = &sim->aims[i];
		if (!aim_waits(sim, aim) || sim->mismatch_node >= 0 || sim->salt_node >= 0)
			continue;
		if (aims_at_frozen_failure(aim) && sim->nodes[number].core->needs_state &&
		    cover_frozen(cover_member(sim->nodes[number].core)) + ROUND_FAILED -
		            ROUND_OPEN ==
		        aim->state) {
			*(sim_chance(sim, 50) ? &sim->mismatch_node : &sim->salt_node) = (int)number;
		} else if (aim->of_memberd && aim->kind == FAULT_MISMATCH &&
		    cover_group(sim) == aim->state) {
			aim_done(sim, aim);
			sim->mismatch_node = (int)number;
		}
	}
}

void aim_fire(struct sim *sim, unsigned number, unsigned victim)
{
	struct sim_aim *aim = &sim->aims[number];
	const struct sim_node *node = &sim->nodes[victim];

	if (aim->done || !node->alive || cover_member(node->core) != aim->state)
		return;
	aim_done(sim, aim);
	fault_strike(sim, aim->kind, victim);
}
