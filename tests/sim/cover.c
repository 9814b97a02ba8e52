/* Where the faults struck: a table of the states of a member's round, and one of memberd's group, by kind of fault. Counted over
 * all seeds of a process. What was never hit is named; what cannot be hit has its reason here.
 */
#include <stdio.h>
#include <string.h>

#include "collectives/core/member.h"
#include "daemon/membership/core/state.h"
#include "tests/sim/sim.h"

static const char *const fault_names[FAULT_KINDS] = {
	[FAULT_CRASH] = "crash",
	[FAULT_CRASH_AT_ACTION] = "in-step",
	[FAULT_POWER_LOSS] = "power",
	[FAULT_PAUSE] = "pause",
	[FAULT_BREAK_LINK] = "break",
	[FAULT_CUT_OFF] = "cut-off",
	[FAULT_CUT_WAY] = "cut-way",
	[FAULT_MEMBERD_STALL] = "m-stall",
	[FAULT_JOIN] = "join",
	[FAULT_MEMBERD_RESTART] = "m-crash",
	[FAULT_LEAVE] = "leave",
	[FAULT_MISMATCH] = "mismatch",
	[FAULT_SALT] = "salt",
};

/* A member: its round, frozen or not, with or without its state. */
#define COVER_FROZEN ROUND_STATES
#define COVER_NEEDS  (2 * ROUND_STATES)
#define COVER_STATES (4 * ROUND_STATES)
static const char *const round_names[ROUND_STATES] = {
	[ROUND_IDLE] = "idle",
	[ROUND_OPEN] = "open",
	[ROUND_CLOSED] = "closed",
	[ROUND_ABANDONED] = "abandoned",
	[ROUND_FAILED] = "failed",
};

enum cover_group {
	COVER_DOWN,
	COVER_NO_GROUP,
	COVER_FOUNDING, /* no view and no proposal */
	COVER_QUIET,    /* a view, nothing wanted */
	COVER_COMPLAINTS,
	COVER_UNNUMBERED, /* a proposal waits for numbers in the log */
	COVER_COLLECTS,   /* reports are to come */
	COVER_REPORTED,   /* all are there; the view is on its way into the log */
	COVER_GROUP_STATES
};
static const char *const group_names[COVER_GROUP_STATES] = {
	[COVER_DOWN] = "down",
	[COVER_NO_GROUP] = "no group",
	[COVER_FOUNDING] = "no view",
	[COVER_QUIET] = "view, quiet",
	[COVER_COMPLAINTS] = "links complained of",
	[COVER_UNNUMBERED] = "proposal, no number",
	[COVER_COLLECTS] = "proposal, reports due",
	[COVER_REPORTED] = "proposal, all reported",
};

static uint64_t member_hits[COVER_STATES][FAULT_KINDS];
static uint64_t group_hits[COVER_GROUP_STATES][FAULT_KINDS];

/* ---- counting ---- */

unsigned cover_member(const struct group_core *core)
{
	return (unsigned)core->state + (core->proposal != 0 ? COVER_FROZEN : 0) +
	    (core->needs_state ? COVER_NEEDS : 0);
}

unsigned cover_frozen(unsigned state)
{
	return state % COVER_NEEDS >= COVER_FROZEN ? state : state + COVER_FROZEN;
}

static void count_member(const struct sim *sim, enum sim_fault_kind kind, unsigned number)
{
	const struct group_core *core = sim->nodes[number].core;

	if (core)
		member_hits[cover_member(core)][kind]++;
}

static enum cover_group group_now(const struct sim *sim)
{
	const struct group *group = NULL;
	size_t reported = 0;

	if (!sim->memberd.up)
		return COVER_DOWN;
	if (sim->group != 0)
		group = state_group(sim->memberd.core, sim->group);
	if (!group)
		return COVER_NO_GROUP;
	const struct proposal *proposal = &group->soft.proposal;
	if (proposal->number == 0 && group->soft.complaints_count > 0)
		return COVER_COMPLAINTS;
	if (proposal->number == 0)
		return group->view ? COVER_QUIET : COVER_FOUNDING;
	if (!proposal->asked)
		return COVER_UNNUMBERED;
	for (size_t i = 0; i < proposal->count; i++)
		reported += proposal->members[i].report != NULL;
	return reported < proposal->count ? COVER_COLLECTS : COVER_REPORTED;
}

unsigned cover_group(const struct sim *sim)
{
	return group_now(sim);
}

void cover_strike(const struct sim *sim, enum sim_fault_kind kind, unsigned victim)
{
	group_hits[group_now(sim)][kind]++;
	if (victim != SIM_NODES_MAX) {
		count_member(sim, kind, victim);
		return;
	}
	for (unsigned i = 0; i < sim->node_count; i++)
		if (sim->nodes[i].alive)
			count_member(sim, kind, i);
}

/* ---- what cannot be ---- */

static bool is_memberds(unsigned kind)
{
	return kind == FAULT_MEMBERD_STALL || kind == FAULT_MEMBERD_RESTART || kind == FAULT_JOIN;
}

/* NULL: it can. */
static const char *member_never(unsigned state, unsigned kind)
{
	unsigned round = state % ROUND_STATES;
	bool frozen = state % COVER_NEEDS >= COVER_FROZEN;

	if ((kind == FAULT_MISMATCH || kind == FAULT_SALT) &&
	    (round != ROUND_OPEN || (frozen && kind == FAULT_MISMATCH)))
		return "a worker alters an op as it begins, a salt as it closes: its round is "
		       "open, and begins unfrozen";
	if (round == ROUND_FAILED && !is_memberds(kind) && kind != FAULT_CRASH_AT_ACTION)
		return "who has failed is no victim any more (fault_victim)";
	return NULL;
}

static const char *group_never(unsigned state, unsigned kind)
{
	if (state == COVER_DOWN && kind == FAULT_MEMBERD_STALL)
		return "a memberd that is down does not stall (fault_fire)";
	if (state == COVER_DOWN && kind == FAULT_MEMBERD_RESTART)
		return "a memberd that is down does not crash (fault_fire)";
	if (state == COVER_FOUNDING)
		return "faults begin with the group's first view (fault_progress)";
	return NULL;
}

/* ---- what chance hardly meets ---- */

/* Not who takes part before its state is there, nor who fails of a refusal while it is frozen: there were none when seeds got their stories, which these aims are drawn for. */
static bool member_rare(unsigned state)
{
	unsigned round = state % ROUND_STATES;
	bool frozen = state % COVER_NEEDS >= COVER_FROZEN, needs = state >= COVER_NEEDS;

	if ((needs && round == ROUND_CLOSED) || (frozen && round == ROUND_FAILED))
		return false;
	return round >= ROUND_ABANDONED || (frozen && (needs || round == ROUND_OPEN)) ||
	    (needs && round == ROUND_IDLE);
}

static bool group_rare(unsigned state)
{
	return state == COVER_NO_GROUP || state == COVER_UNNUMBERED || state == COVER_REPORTED;
}

/* Who takes part before its state is there, who fails while it is frozen, whose round is given up while it is frozen without its state; and what is altered meanwhile. */
static bool member_seldom(unsigned state, unsigned kind)
{
	unsigned round = state % ROUND_STATES;
	bool frozen = state % COVER_NEEDS >= COVER_FROZEN, needs = state >= COVER_NEEDS;

	if (kind == FAULT_MISMATCH || kind == FAULT_SALT)
		return kind == FAULT_SALT && frozen && needs && round == ROUND_OPEN;
	return (needs && round == ROUND_CLOSED) || (frozen && round == ROUND_FAILED) ||
	    (frozen && needs && round == ROUND_ABANDONED);
}

static struct sim_aim cover_seldom(uint64_t pick)
{
	struct sim_aim all[COVER_STATES * FAULT_KINDS + 1];
	size_t count = 0;

	for (unsigned kind = 0; kind < FAULT_KINDS; kind++)
		for (unsigned state = 0; state < COVER_STATES; state++)
			if (member_seldom(state, kind) && !member_never(state, kind))
				all[count++] = (struct sim_aim){ .state = state,
					.kind = (enum sim_fault_kind)kind };
	all[count++] = (struct sim_aim){ .of_memberd = true,
		.state = COVER_REPORTED,
		.kind = FAULT_MISMATCH };
	return all[pick % count];
}

struct sim_aim cover_rare(uint64_t pick, bool seldom)
{
	struct sim_aim all[(COVER_STATES + COVER_GROUP_STATES) * FAULT_KINDS];
	size_t count = 0;

	if (seldom)
		return cover_seldom(pick);

	for (unsigned kind = 0; kind < FAULT_KINDS; kind++) {
		if (kind == FAULT_MISMATCH || kind == FAULT_SALT)
			continue; /* they strike when their worker gets so far */
		for (unsigned state = 0; state < COVER_STATES; state++)
			if (member_rare(state) && !member_never(state, kind))
				all[count++] = (struct sim_aim){ .state = state,
					.kind = (enum sim_fault_kind)kind };
		for (unsigned state = 0; state < COVER_GROUP_STATES; state++)
			if (group_rare(state) && kind != FAULT_CRASH_AT_ACTION)
				all[count++] = (struct sim_aim){ .of_memberd = true,
					.state = state,
					.kind = (enum sim_fault_kind)kind };
	}
	return all[pick % count];
}

/* ---- printing ---- */

static const char *member_name(unsigned state)
{
	static char name[64];

	(void)snprintf(name, sizeof(name), "%s%s%s", round_names[state % ROUND_STATES],
	    state % COVER_NEEDS >= COVER_FROZEN ? ", frozen" : "",
	    state >= COVER_NEEDS ? ", no state" : "");
	return name;
}

static const char *group_name(unsigned state)
{
	return group_names[state];
}

const char *cover_name(const struct sim_aim *aim)
{
	static char name[128];

	(void)snprintf(name, sizeof(name), "%s x %s",
	    aim->of_memberd ? group_name(aim->state) : member_name(aim->state),
	    fault_names[aim->kind]);
	return name;
}

static void print_table(const char *title, unsigned states, uint64_t hits[][FAULT_KINDS],
    const char *(*name)(unsigned), const char *(*never)(unsigned, unsigned))
{
	unsigned hit = 0, missed = 0, impossible = 0;

	printf("%-27s", title);
	for (unsigned kind = 0; kind < FAULT_KINDS; kind++)
		printf(" %8s", fault_names[kind]);
	putchar('\n');
	for (unsigned state = 0; state < states; state++) {
		printf("%-27s", name(state));
		for (unsigned kind = 0; kind < FAULT_KINDS; kind++) {
			if (hits[state][kind] > 0)
				printf(" %8lu", (unsigned long)hits[state][kind]);
			else
				printf(" %8s", never(state, kind) ? "x" : ".");
		}
		putchar('\n');
	}
	for (unsigned state = 0; state < states; state++)
		for (unsigned kind = 0; kind < FAULT_KINDS; kind++) {
			const char *why = never(state, kind);
			hit += hits[state][kind] > 0;
			if (hits[state][kind] == 0 && why)
				impossible++;
			else if (hits[state][kind] == 0 && ++missed)
				printf("never hit: %s x %s\n", name(state), fault_names[kind]);
			else if (why)
				printf("hit, though it cannot be: %s x %s: %s\n", name(state),
				    fault_names[kind], why);
		}
	printf("%s: %u pairs hit, %u never hit, %u cannot be\n\n", title, hit, missed, impossible);
}

static void print_reasons(const char *title, unsigned states,
    const char *(*never)(unsigned, unsigned))
{
	const char *said[8];
	size_t count = 0;

	for (unsigned state = 0; state < states; state++)
		for (unsigned kind = 0; kind < FAULT_KINDS; kind++) {
			const char *why = never(state, kind);
			size_t i = 0;
			while (why && i < count && strcmp(said[i], why) != 0)
				i++;
			if (!why || i < count || count == sizeof(said) / sizeof(said[0]))
				continue;
			said[count++] = why;
			printf("x in %s: %s\n", title, why);
		}
}

void cover_print(void)
{
	print_table("member", COVER_STATES, member_hits, member_name, member_never);
	print_table("memberd", COVER_GROUP_STATES, group_hits, group_name, group_never);
	print_reasons("member", COVER_STATES, member_never);
	print_reasons("memberd", COVER_GROUP_STATES, group_never);
}
