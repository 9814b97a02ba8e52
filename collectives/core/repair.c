/* View changes: freeze, and install, and go on from there. What a frozen member says: report.c; who is given what is sealed: serve.c. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "collectives/core/member.h"
#include "collectives/core/scope.h"

#define REPAIR_LARGE_BYTES (64u << 20) /* of an op that matters: its edges are dialled at once */

/* ---- freeze ---- */

tr_status repair_propose(struct group_core *core, const Traind__Peer__ViewPropose *propose,
    struct tr_error *error)
{
	if (core->state == ROUND_FAILED || propose->number <= core->view.number ||
	    propose->number < core->proposal)
		return tr_error_set(error, TR_ESTALE, "proposal of view %" PRIu64 " is old",
		    propose->number);
	if (core->proposal == 0)
		emit(core, GROUP_DO_DROP_SENDS);
	ahead_drop(core);
	landing_revoke_all(core);
	core->proposal = propose->number;
	report_say(core);
	return TR_OK;
}

/* ---- install ---- */

static Traind__Peer__Resume *repair_copy(const Traind__Peer__Resume *resume)
{
	size_t bytes = traind__peer__resume__get_packed_size(resume);
	uint8_t *packed = malloc(bytes + 1);
	if (!packed)
		return NULL;
	traind__peer__resume__pack(resume, packed);
	Traind__Peer__Resume *copy = traind__peer__resume__unpack(NULL, bytes, packed);
	free(packed);
	return copy;
}

tr_status group_core_may_install(const struct group_core *core,
    const Traind__Peer__ViewInstall *install, struct tr_error *error)
{
	if (!install->view || !install->resume || install->resume->base_round == 0)
		return tr_error_set(error, TR_EPROTO, "view without a resume plan");
	uint64_t number = install->view->number;
	if (core->state == ROUND_FAILED || number <= core->view.number)
		return tr_error_set(error, TR_ESTALE, "view %" PRIu64 " is old", number);
	return view_check(install->view, error);
}

/* Somebody committed the round before the base: then all had voted for it, we too. */
static bool repair_commit_before(struct group_core *core, uint64_t base_round)
{
	uint64_t next = core->needs_state ? core->round : core->committed + 1;

	if (handover_awaited(core) || core->view.number == 0 || next + 1 != base_round)
		return true;
	if (core->round + 1 != base_round || !round_sealed(core)) {
		emit_fail(core, TR_EINTERNAL,
		    "round %" PRIu64 " is committed elsewhere, but this peer never voted for it",
		    base_round - 1);
		return false;
	}
	round_commit(core);
	return true;
}

struct repair_plan {
	uint64_t round, attempt;
	const uint64_t *contributors; /* of an attempt that goes on; NULL */
	size_t contributor_count;
	bool finish;
	bool restart; /* all callers begin again */
};

/* Which round and attempt this member is in now. Who `enters` a group that goes on takes its state, whatever it said that it has: nobody has
 * compared that with the group's. */
static bool repair_plan(struct group_core *core, const Traind__Peer__Resume *resume, bool enters,
    struct repair_plan *plan)
{
	const struct view_peer *me = view_find(&core->view, core->peer);

	if (enters && me->donor != 0)
		core->committed = core->state_round = 0;
	uint64_t next = core->committed + 1;
	bool comes = (enters || core->needs_state) && me->donor != 0;
	*plan = (struct repair_plan){ .round = next,
		.attempt = core->view.number,
		.restart = resume->restart };
	core->needs_state = me->participate_from > next || comes;
	/* One that gets it gradually goes on with the others, unless it has missed a round of theirs. */
	if (core->needs_state && (core->committed == 0 || me->participate_from > next)) {
		core->committed = core->state_round = 0;
		plan->round = me->participate_from;
	}
	if (plan->round < resume->base_round ||
	    (plan->round > resume->base_round && plan->round != me->participate_from)) {
		emit_fail(core, TR_EINTERNAL,
		    "view %" PRIu64 " goes on at round %" PRIu64 ", this peer is at round %" PRIu64,
		    core->view.number, resume->base_round, plan->round);
		return false;
	}
	plan->finish = plan->round == resume->base_round && resume->finish;
	if (plan->finish) {
		plan->attempt = resume->base_attempt;
		plan->contributors = resume->contributors;
		plan->contributor_count = resume->n_contributors;
	}
	return true;
}

static bool repair_same_attempt(const struct group_core *core, const struct repair_plan *plan)
{
	return plan->finish && plan->round == core->round &&
	    plan->attempt == core->roster.attempt &&
	    plan->contributor_count == core->roster.contributor_count &&
	    (plan->contributor_count == 0 ||
	        memcmp(plan->contributors, core->roster.contributors,
	            plan->contributor_count * sizeof(uint64_t)) == 0);
}

/* A begun round whose attempt is over: redo it here from saved or no inputs, or tell the caller. memberd says `restart` where some
 * contributor may name others by their index, which means something else in another attempt: all of them stay, or none. Who does not
 * contribute is nobody's index: it can begin again by itself, and does when others contribute than it was told. */
static bool repair_redo_here(const struct group_core *core, const struct repair_plan *plan,
    bool counted, uint64_t old_round, bool same_contributors)
{
	bool counts = core->roster.live[core->roster.me];

	if (plan->restart || core->round != old_round || counts != counted ||
	    core->released.tags.count > 0)
		return false;
	return counted ? core->view.policy == TRAIND__PEER__POLICY__POLICY_UNIFORM
	               : !core->stuck && same_contributors;
}

/* An op of an attempt that goes on keeps what is sealed: we may have voted for it, and must not say that we are stuck. */
static void repair_reset_op(struct group_core *core, struct op *op, bool forget)
{
	op->repaired = true;
	op->roster = scope_roster(core, &op->scope);
	if (!op->roster) {
		op->roster = &core->roster;
		emit_fail(core, TR_ENOMEM, "out of memory for op %u", op->tag);
		return;
	}
	if (op_reset(op, &core->pool, forget, op->roster->contributor_count) != TR_OK)
		repair_stuck(core, "out of memory for op %u", op->tag);
	/* It was submitted while we were frozen, and memberd did not know of it. */
	else if (op_scoped(op) && op->roster->live_count < op->roster->contributor_count &&
	    !op_done(op))
		repair_stuck(core, "op %u is among contributors of which one was lost", op->tag);
}

static void repair_reset_ops(struct group_core *core, bool forget)
{
	for (size_t i = 0; i < core->op_count && core->state != ROUND_FAILED; i++)
		repair_reset_op(core, core->ops[i], forget);
}

/* Ops that were submitted while we were frozen memberd has not seen: those that name contributors by their index are of the attempt
 * before. */
static void repair_drop_indexed(struct group_core *core)
{
	size_t kept = 0;

	for (size_t i = 0; i < core->op_count; i++) {
		struct op *op = core->ops[i];
		if (op->kind == OP_REDUCED && !op_scoped(op)) {
			core->ops[kept++] = op;
			continue;
		}
		round_index_lost(core, op->tag);
		op_destroy(op, &core->pool);
	}
	core->op_count = kept;
}

static bool repair_contribute(const struct group_core *core, const uint64_t *peers, unsigned count)
{
	return count == core->roster.contributor_count &&
	    (count == 0 || memcmp(peers, core->roster.contributors, count * sizeof(*peers)) == 0);
}

static void repair_enter(struct group_core *core, const struct repair_plan *plan)
{
	bool active = round_active(core);
	bool same = active && repair_same_attempt(core, plan);
	bool counted = active && core->roster.live[core->roster.me];
	uint64_t old_round = core->round, old_attempt = core->roster.attempt;
	uint64_t old[TR_GROUP_PEERS_MAX];
	unsigned old_count = active ? core->roster.contributor_count : 0;
	struct tr_error error;

	if (old_count > 0)
		memcpy(old, core->roster.contributors, old_count * sizeof(old[0]));
	tr_status st = round_enter(core, plan->round, plan->attempt, plan->contributors,
	    plan->contributor_count, &error);
	if (st != TR_OK || core->roster.me == ROSTER_NONE) {
		emit_fail(core, st != TR_OK ? st : TR_EINTERNAL, "%s",
		    st != TR_OK ? error.text : "a view in which this peer does not take part");
		return;
	}
	if (!active)
		return;
	bool same_contributors = repair_contribute(core, old, old_count);
	if (!same && !repair_redo_here(core, plan, counted, old_round, same_contributors)) {
		char reason[96];
		(void)snprintf(reason, sizeof(reason),
		    "round %" PRIu64 " starts again in view %" PRIu64, core->round,
		    core->view.number);
		round_abandon(core, reason);
		return;
	}
	if (!same && !same_contributors)
		repair_drop_indexed(core);
	else if (core->begun_attempt == old_attempt)
		core->begun_attempt = core->roster.attempt; /* as the caller was told */
	repair_reset_ops(core, !same);
	round_scoped_installed(core, !same);
}

/* Edges that this view will use as far as we know; others are named when they are needed. Votes go to the hub. */
static void repair_connect(struct group_core *core)
{
	const struct roster *roster = &core->roster;
	enum tr_algorithm algorithm = window_algorithm(core, REPAIR_LARGE_BYTES);
	bool all = roster->me == roster->hub || algorithm == TR_DIRECT || algorithm == TR_ONE_SHOT;

	if (roster->n > 1 && algorithm == TR_RING)
		emit_connect(core,
		    roster->peers[roster->order[(roster->place[roster->me] + 1) % roster->n]]);
	emit_connect(core, roster->peers[roster->hub]);
	for (unsigned i = 0; all && i < roster->n; i++)
		emit_connect(core, roster->peers[i]);
}

static void repair_count_view(struct group_core *core, const struct view *next)
{
	struct group_core_counters *counters = &core->counters;

	for (unsigned i = 0; i < core->view.count; i++)
		counters->peers_lost += !view_find(next, core->view.peers[i].peer);
	counters->views += view_find(next, core->peer) != NULL;
	counters->view = next->number;
	counters->peers = next->count;
}

static tr_status repair_swap_view(struct group_core *core, const Traind__Peer__View *message,
    struct tr_error *error)
{
	struct view view;
	tr_status st = view_init(&view, message, error);
	if (st != TR_OK)
		return st;
	bool *connected = calloc(view.count, sizeof(*connected));
	if (!connected) {
		view_finish(&view);
		return tr_error_set(error, TR_ENOMEM, "out of memory for a view");
	}
	repair_count_view(core, &view);
	view_finish(&core->view);
	free(core->connected);
	core->view = view;
	core->connected = connected;
	commit_forget_votes(core);
	ahead_forget_words(core);
	return TR_OK;
}

static void repair_links_installed(struct group_core *core)
{
	size_t kept = 0;

	for (size_t i = 0; i < core->link_count; i++) {
		struct member_link *link = &core->links[i];
		bool stays = link->peer == 0
		    ? core->stuck
		    : link->while_frozen && view_find(&core->view, link->peer);
		if (!stays)
			continue;
		if (link->while_frozen)
			link->again_us = core->now_us;
		link->while_frozen = false;
		core->links[kept++] = *link;
	}
	core->link_count = kept;
	repair_links_again(core);
}

tr_status repair_install(struct group_core *core, const Traind__Peer__ViewInstall *install,
    struct tr_error *error)
{
	const Traind__Peer__Resume *resume = install->resume;
	struct repair_plan plan;

	tr_status st = group_core_may_install(core, install, error);
	if (st != TR_OK)
		return st;
	if (core->view.number > 0 && core->proposal < install->view->number) {
		emit_fail(core, TR_EINTERNAL,
		    "view %" PRIu64 " was made without asking this peer (it froze for %" PRIu64 ")",
		    install->view->number, core->proposal);
		return TR_OK;
	}
	if (!repair_commit_before(core, resume->base_round))
		return TR_OK;
	bool enters = core->view.number == 0;
	st = repair_swap_view(core, install->view, error);
	if (st == TR_ENOMEM)
		emit_fail(core, st, "out of memory for a view");
	if (st != TR_OK)
		return st;
	core->proposal = 0;
	if (!view_find(&core->view, core->peer)) {
		emit_fail(core, TR_EEVICTED, "not in view %" PRIu64 ": %s", core->view.number,
		    install->view->reason ? install->view->reason : "");
		return TR_OK;
	}
	if (!repair_plan(core, resume, enters, &plan))
		return TR_OK;
	if (core->resume)
		traind__peer__resume__free_unpacked(core->resume, NULL);
	core->resume = plan.finish ? repair_copy(resume) : NULL;
	if (plan.finish && !core->resume) {
		emit_fail(core, TR_ENOMEM, "out of memory for a resume plan");
		return TR_OK;
	}
	repair_enter(core, &plan);
	if (core->state == ROUND_FAILED)
		return TR_OK;
	repair_connect(core);
	repair_links_installed(core);
	handover_installed(core);
	for (size_t i = 0; i < core->op_count && core->state != ROUND_FAILED && !core->stuck; i++) {
		ahead_start(core, core->ops[i]);
		serve_op(core, core->ops[i]);
		if (core->state != ROUND_FAILED)
			window_start(core, core->ops[i]);
	}
	ahead_forget_released(core);
	record_logged(core, install->recorded_round);
	record_again(core);
	return TR_OK;
}

/* ---- broken links ---- */

static void repair_link_say(struct group_core *core, struct member_link *link)
{
	struct group_action *action = emit(core, GROUP_DO_LINK_LOST);

	action->to = link->peer;
	(void)snprintf(action->text, sizeof(action->text), "%s", link->reason);
	link->again_us = core->now_us + MEMBER_REPEAT_US;
}

static void repair_link_add(struct group_core *core, uint64_t peer, const char *reason)
{
	struct member_link *link = NULL;

	for (size_t i = 0; i < core->link_count && !link; i++)
		if (core->links[i].peer == peer)
			link = &core->links[i];
	if (!link && core->link_count == core->link_capacity) {
		size_t capacity = core->link_capacity ? 2 * core->link_capacity : 4;
		void *links = realloc(core->links, capacity * sizeof(core->links[0]));
		if (!links) {
			core->status = TR_ENOMEM;
			return;
		}
		core->links = links;
		core->link_capacity = capacity;
	}
	if (!link) {
		link = &core->links[core->link_count++];
		*link = (struct member_link){ .peer = peer };
	}
	link->while_frozen = link->while_frozen || core->proposal != 0;
	(void)snprintf(link->reason, sizeof(link->reason), "%s", reason);
	repair_link_say(core, link);
}

void repair_link_lost(struct group_core *core, uint64_t peer, const char *reason)
{
	if (core->state == ROUND_FAILED || core->view.number == 0 || !view_find(&core->view, peer))
		return;
	if (peer == core->asked_donor && core->needs_state)
		handover_lost(core);
	repair_link_add(core, peer, reason ? reason : "connection lost");
}

void repair_stuck(struct group_core *core, const char *format, ...)
{
	char reason[sizeof(core->links[0].reason)];
	va_list arguments;

	if (core->stuck)
		return;
	core->stuck = true;
	int used = snprintf(reason, sizeof(reason), "cannot go on: ");
	va_start(arguments, format);
	(void)vsnprintf(reason + used, sizeof(reason) - (size_t)used, format, arguments);
	va_end(arguments);
	repair_link_add(core, 0, reason);
}

void repair_ask(struct group_core *core, const char *reason)
{
	repair_link_add(core, 0, reason);
}

void repair_links_again(struct group_core *core)
{
	for (size_t i = 0; i < core->link_count; i++)
		if (core->now_us >= core->links[i].again_us)
			repair_link_say(core, &core->links[i]);
}
