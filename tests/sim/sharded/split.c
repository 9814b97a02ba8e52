/* Faults that divide the workers into two groups, one of which may not hear memberd either (play.h). */
#include "collectives/core/member.h"
#include "tests/sim/sharded/play.h"

#define BRIEF_US (300 * MS)

static void hold(uint64_t *hold_until_us, uint64_t until_us)
{
	if (*hold_until_us < until_us)
		*hold_until_us = until_us;
}

static bool is_in(uint32_t group, unsigned node)
{
	return (group >> node & 1) != 0;
}

static unsigned count_in(const struct sim *sim, uint32_t group)
{
	unsigned count = 0;
	for (unsigned i = 0; i < sim->node_count; i++)
		count += is_in(group, i) && sim->nodes[i].alive && !sim->nodes[i].failed;
	return count;
}

/* So many of those who are there may be put out: who memberd does not hear; or of the smaller group, since each of the larger one says the same of them. */
static unsigned count_lost(const struct sim *sim, uint32_t group, uint32_t away)
{
	if (away != 0)
		return count_in(sim, away);
	unsigned in = count_in(sim, group), out = count_in(sim, ~group);
	return in < out ? in : out;
}

/* So many processes more can be started. */
static unsigned room(const struct play *play)
{
	unsigned taken = play->sim->founders + play->following;
	return taken < SIM_NODES_MAX ? SIM_NODES_MAX - taken : 0;
}

unsigned split_strike(struct tr_group *g, const struct play_fault *fault)
{
	struct sim *sim = g->sim;
	struct play *play = g->play;
	const uint32_t all = (1u << SIM_NODES_MAX) - 1;
	uint32_t group = (fault->group | 1u << g->number) & all, others = all & ~group;
	uint32_t away = fault->kind == PLAY_SPLIT    ? group
	    : fault->kind == PLAY_SPLIT_WITH_MEMBERD ? others
	                                             : 0;
	unsigned lost = count_lost(sim, group, away);
	bool brief = fault->returns_us > 0 && lost > room(play); /* nobody is put out */
	uint64_t until_us = sim->now_us + (brief ? BRIEF_US : fault->lasts_us);
	sim_trace(sim, "nodes %#x hear nothing of the others until %.6f; %#x not of memberd", group,
	    (double)until_us * 1e-6, away);
	for (unsigned i = 0; i < SIM_NODES_MAX; i++) {
		for (unsigned k = 0; k < SIM_NODES_MAX; k++)
			if (is_in(group, i) != is_in(group, k))
				hold(&sim->links[i][k].hold_until_us, until_us);
		if (is_in(away, i))
			hold(&sim->nodes[i].hold_until_us, until_us);
	}
	play->split.away = away;
	play->split.until_us = until_us;
	play->split.newest = sim->newest_round;
	play->split.count++;
	return brief ? 0 : lost;
}

/* Those of the round who hear memberd may have a view without the others, so that what the others would commit they commit otherwise. */
static bool all_are_away(struct tr_group *g)
{
	const struct group_core *core = g->sim->nodes[g->number].core;
	for (size_t i = 0; i < core->last_contributor_count; i++)
		if (!is_in(g->play->split.away, node_of_peer(g->sim, core->last_contributors[i])))
			return false;
	return true;
}

void split_decided(struct tr_group *g, uint64_t round)
{
	const struct play *play = g->play;
	if (g->sim->now_us < play->split.until_us && is_in(play->split.away, g->number) &&
	    round > play->split.newest + 1 && !all_are_away(g))
		sim_violation(g->sim,
		    "S6: n%u does not hear memberd, and commits round %lu; the newest one was %lu",
		    g->number, (unsigned long)round, (unsigned long)play->split.newest);
}
