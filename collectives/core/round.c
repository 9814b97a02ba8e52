/* The caller's side: begin, submit, close, and what it is told. */
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "collectives/core/member.h"
#include "collectives/core/scope.h"

#define TO(state) (1u << (state))

/* Legal moves. ROUND_FAILED is left by nobody. */
static const unsigned round_moves[ROUND_STATES] = {
	[ROUND_IDLE] = TO(ROUND_OPEN) | TO(ROUND_FAILED),
	[ROUND_OPEN] = TO(ROUND_CLOSED) | TO(ROUND_ABANDONED) | TO(ROUND_FAILED),
	[ROUND_CLOSED] = TO(ROUND_IDLE) | TO(ROUND_FAILED),
	[ROUND_ABANDONED] = TO(ROUND_OPEN) | TO(ROUND_FAILED),
};

static void round_move(struct group_core *core, enum round_state state)
{
	assert(round_moves[core->state] & TO(state));
	core->state = state;
	core->moved = true;
}

bool round_active(const struct group_core *core)
{
	return core->state == ROUND_OPEN || core->state == ROUND_CLOSED;
}

struct tr_round round_info(const struct group_core *core)
{
	const struct roster *roster = &core->roster;
	struct tr_round info = {
		.round = core->round,
		.view = core->view.number,
		.contributors = roster->contributor_count,
		.index = roster->contributor_count,
		.receive_state = core->needs_state,
		.nobody_follows = core->view.nobody_follows,
		.peers = core->view.count,
		.policy = (enum tr_policy)core->view.policy,
	};
	for (unsigned i = 0; i < roster->contributor_count; i++)
		if (roster->contributors[i] == core->peer && roster->me != ROSTER_NONE &&
		    roster->live[roster->me])
			info.index = i;
	return info;
}

tr_status round_refuse(const struct group_core *core, const char *call, struct tr_error *error)
{
	switch (core->state) {
	case ROUND_FAILED:
		return tr_error_set(error, core->failure.status, "%s", core->failure.text);
	case ROUND_ABANDONED:
		return tr_error_set(error, TR_ERESTART, "round %" PRIu64 " was abandoned",
		    core->round);
	case ROUND_IDLE:
		return tr_error_set(error, TR_EINVAL, "%s: no round is begun", call);
	default:
		return tr_error_set(error, TR_EINVAL, "%s: round %" PRIu64 " is not decided yet",
		    call, core->round);
	}
}

tr_status round_ready(struct group_core *core, uint64_t round, struct tr_error *error)
{
	if (core->state == ROUND_FAILED)
		return round_refuse(core, "ready", error);
	if (core->ready || core->view.number > 0)
		return tr_error_set(error, TR_EINVAL, "the state was declared before");
	core->ready = true;
	core->committed = round;
	core->state_round = round;
	return TR_OK;
}

tr_status round_begin(struct group_core *core, struct tr_error *error)
{
	if (!core->ready)
		return tr_error_set(error, TR_EINVAL, "begin: the state was not declared");
	if ((core->state != ROUND_IDLE && core->state != ROUND_ABANDONED) || core->begin_wanted)
		return round_refuse(core, "begin", error);
	core->begin_wanted = true;
	core->deferred = core->altering = false;
	/* The caller comes back for more: whatever was committed is applied. */
	if (!core->needs_state)
		core->state_round = core->committed;
	else
		handover_begun(core);
	return TR_OK;
}

void round_answer_begin(struct group_core *core)
{
	if (!core->begin_wanted || core->proposal != 0 || core->view.number == 0)
		return;
	core->begin_wanted = false;
	core->closing = (struct tr_commit){ 0 };
	core->waiting = core->read = false;
	round_move(core, ROUND_OPEN);
	core->begun_attempt = core->roster.attempt;
	struct group_action *action = emit(core, GROUP_DO_BEGAN);
	action->round = core->round;
	action->round_info = round_info(core);
}

static size_t round_place(const struct group_core *core, uint32_t tag)
{
	size_t low = 0, high = core->op_count;

	/* Mostly it is the newest, or behind it: the others would have to come into the cache to be asked. */
	if (high > 0 && core->ops[high - 1]->tag <= tag)
		return core->ops[high - 1]->tag == tag ? high - 1 : high;
	while (low < high) {
		size_t middle = low + (high - low) / 2;
		if (core->ops[middle]->tag < tag)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

struct op *round_op(const struct group_core *core, uint32_t tag)
{
	size_t place = round_place(core, tag);

	return place < core->op_count && core->ops[place]->tag == tag ? core->ops[place] : NULL;
}

static tr_status round_insert(struct group_core *core, struct op *op)
{
	if (core->op_count == core->op_capacity) {
		size_t capacity = core->op_capacity ? 2 * core->op_capacity : 8;
		struct op **ops = realloc(core->ops, capacity * sizeof(*ops));
		if (!ops)
			return TR_ENOMEM;
		core->ops = ops;
		core->op_capacity = capacity;
	}
	size_t place = round_place(core, op->tag);
	memmove(&core->ops[place + 1], &core->ops[place],
	    (core->op_count - place) * sizeof(core->ops[0]));
	core->ops[place] = op;
	op->number = ++core->ops_made;
	core->op_count++;
	return TR_OK;
}

void round_remove(struct group_core *core, struct op *op)
{
	size_t place = round_place(core, op->tag);

	memmove(&core->ops[place], &core->ops[place + 1],
	    (core->op_count - place - 1) * sizeof(core->ops[0]));
	core->op_count--;
	op_destroy(op, &core->pool);
}

static tr_status round_submit_check(struct group_core *core, const struct group_event *event,
    struct tr_error *error)
{
	if (core->state != ROUND_OPEN)
		return round_refuse(core, "submit", error);
	if (core->op_count >= TR_ROUND_OPS_MAX)
		return tr_error_set(error, TR_ELIMIT,
		    "at most %d ops in a round that are not released", TR_ROUND_OPS_MAX);
	if (round_op(core, event->submit.tag))
		return tr_error_set(error, TR_EEXIST, "op %u was submitted before in this round",
		    event->submit.tag);
	if (release_has(&core->released, event->submit.tag))
		return tr_error_set(error, TR_EINVAL,
		    "op %u was released in this round, in which its tag cannot be used again",
		    event->submit.tag);
	bool counts = core->roster.live[core->roster.me];
	if (counts && !event->submit.contribute)
		return tr_error_set(error, TR_EINVAL,
		    "op %u: this peer is contributor %u of %u, but does not contribute",
		    event->submit.tag, round_info(core).index, core->roster.contributor_count);
	return TR_OK;
}

/* The round was redone without somebody, and not given back to the caller: what an op that names contributors by their index means,
 * and how much memory it comes with, is of an attempt before. */
void round_index_lost(struct group_core *core, uint32_t tag)
{
	repair_stuck(core,
	    "op %u names contributors by their index, but one of round %" PRIu64
	    " was lost between its begin and the op",
	    tag, core->round);
}

static void round_scopes_lost(struct group_core *core)
{
	repair_stuck(core,
	    "the callers use scopes, and a contributor of round %" PRIu64 " was lost", core->round);
}

void round_scoped(struct group_core *core)
{
	bool first = !core->scoped;

	core->scoped = true;
	if (core->proposal != 0)
		core->scoped_late = core->scoped_late || first;
	else if (core->state == ROUND_OPEN &&
	    (core->roster.live_count < core->roster.contributor_count ||
	        core->begun_attempt != core->roster.attempt))
		round_scopes_lost(core);
}

void round_scoped_installed(struct group_core *core, bool redone)
{
	bool late = core->scoped_late;

	core->scoped_late = false;
	if (late && core->state == ROUND_OPEN &&
	    (redone || core->roster.live_count < core->roster.contributor_count))
		round_scopes_lost(core);
}

tr_status round_submit(struct group_core *core, const struct group_event *event,
    struct tr_error *error)
{
	tr_status st = round_submit_check(core, event, error);
	if (st != TR_OK)
		return st;
	bool indexed = op_names(&event->submit);
	core->indexed = core->indexed || indexed;
	if (indexed && core->begun_attempt != core->roster.attempt) {
		round_index_lost(core, event->submit.tag);
		return TR_OK; /* as if it waited */
	}
	struct scope scope;
	unsigned index = round_info(core).index;
	st = scope_check(&event->submit.scope, event->submit.tag, core->roster.contributor_count,
	    index, &scope, error);
	if (st != TR_OK)
		return st;
	const struct roster *roster = scope_roster(core, &scope);
	if (!roster)
		return tr_error_set(error, TR_ENOMEM, "out of memory for op %u", event->submit.tag);
	bool scoped = scope.sign.count > 0;
	core->scoped = core->scoped || scoped;
	if (scoped && roster->live_count < roster->contributor_count) {
		repair_stuck(core, "op %u is among contributors of which one was lost",
		    event->submit.tag);
		return TR_OK;
	}
	struct op *op;
	st = op_create(
	    &(struct op_submit){
	        .submit = &event->submit,
	        .roster = roster,
	        .scope = &scope,
	        /* What is in a scope is never done again behind its caller, and may be released while frames of it wait. */
	        .save = core->view.policy == TRAIND__PEER__POLICY__POLICY_UNIFORM && !scoped &&
	            core->roster.live[core->roster.me],
	        .segment_bytes = core->view.segment_bytes,
	        .segments = core->view.op_segments,
	        .contributors = roster->contributor_count,
	        .index = scoped ? roster->bit[roster->me] : index,
	    },
	    &core->pool, &op, error);
	if (st != TR_OK)
		return st;
	st = round_insert(core, op);
	if (st != TR_OK) {
		op_destroy(op, &core->pool);
		return tr_error_set(error, st, "out of memory for op %u", event->submit.tag);
	}
	core->made = true;
	core->made_tag = op->tag;
	if (core->proposal != 0 || core->stuck)
		return TR_OK; /* the install starts it */
	ahead_start(core, op);
	serve_op(core, op);
	if (core->state != ROUND_FAILED)
		window_start(core, op);
	return TR_OK;
}

tr_status round_close(struct group_core *core, const struct tr_commit *closing,
    struct tr_error *error)
{
	if (core->state != ROUND_OPEN)
		return round_refuse(core, "commit", error);
	core->deferred = (closing->flags & TR_DEFER_STATE) != 0 && handover_may_defer(core);
	core->closing = *closing;
	core->signatures = commit_signatures(core);
	core->waiting = false;
	core->early_us = core->now_us + MEMBER_REPEAT_US;
	core->votes_moved = true;
	lack_close(core);
	round_move(core, ROUND_CLOSED);
	return TR_OK;
}

bool round_sealed(const struct group_core *core)
{
	if (core->state != ROUND_CLOSED)
		return false;
	for (size_t i = 0; i < core->op_count; i++)
		if (!op_done(core->ops[i]))
			return false;
	return true;
}

void round_drop_ops(struct group_core *core)
{
	landing_revoke_all(core);
	for (size_t i = 0; i < core->op_count; i++)
		op_destroy(core->ops[i], &core->pool);
	core->op_count = 0;
	release_forget(&core->released);
}

void round_abandon(struct group_core *core, const char *reason)
{
	struct tr_round info = round_info(core);

	core->counters.rounds_abandoned++;
	round_drop_ops(core);
	core->stuck = core->deferred = false;
	if (core->state == ROUND_CLOSED)
		round_move(core, ROUND_IDLE);
	else
		round_move(core, ROUND_ABANDONED);
	emit_decided(core, TR_ERESTART, &info, reason);
}

/* Keeps the ops for group_core_contributors. */
static void round_keep_last(struct group_core *core)
{
	landing_revoke_all(core); /* none but what this member does not need */
	for (size_t i = 0; i < core->last_op_count; i++)
		op_destroy(core->last_ops[i], &core->pool);
	free(core->last_ops);
	free(core->last_contributors);
	core->last_ops = core->ops;
	core->last_op_count = core->op_count;
	core->ops = NULL;
	core->op_count = core->op_capacity = 0;
	for (size_t i = 0; i < core->last_op_count; i++) {
		if (core->last_ops[i]->outlet) /* all have what it may still owe */
			buffer_outlet_starve(core->last_ops[i]->outlet, false);
		free(core->last_ops[i]->saved);
		core->last_ops[i]->saved = NULL;
		core->last_ops[i]->data = NULL; /* the caller's again */
		core->last_ops[i]->roster = NULL;
	}
	unsigned count = core->roster.contributor_count;
	core->last_contributors = calloc(count + 1u, sizeof(core->last_contributors[0]));
	if (!core->last_contributors) {
		core->status = TR_ENOMEM;
		count = 0;
	}
	if (count > 0)
		memcpy(core->last_contributors, core->roster.contributors, count * sizeof(uint64_t));
	core->last_contributor_count = count;
}

/* Blocks of the dead: their sums are nobody's, whatever of them was on its way. */
static void round_keep_residuals(struct group_core *core)
{
	struct route_of of;

	for (size_t i = 0; i < core->op_count; i++) {
		struct op *op = core->ops[i];
		if (!op->residual || op->kind != OP_SCATTERED || !core->roster.live[core->roster.me])
			continue;
		for (uint32_t s = 0; s < op->segments; s++)
			if (!path_route_of(op, s, &of) && op_own_keep(op, &core->pool, s) != TR_OK)
				core->status = TR_ENOMEM;
	}
}

/* TR_RECV has the signature of its TR_SEND. */
enum tr_collective round_collective(const struct op *op)
{
	if (op->kind == OP_PAIR && !op->sends)
		return TR_RECV;
	return (enum tr_collective)op->signature.collective;
}

static void round_count(struct group_core *core)
{
	struct group_core_counters *counters = &core->counters;

	counters->rounds++;
	counters->rounds_repaired += core->roster.attempt != core->view.number ||
	    core->begun_attempt != core->roster.attempt;
	for (size_t i = 0; i < core->op_count; i++) {
		const struct op *op = core->ops[i];
		enum tr_collective collective = round_collective(op);
		counters->ops[collective]++;
		counters->op_bytes[collective] += op->signature.count * op->element_bytes;
	}
	for (size_t k = 0; k < TR_COLLECTIVES_MAX; k++) {
		counters->ops[k] += core->released.ops[k];
		counters->op_bytes[k] += core->released.op_bytes[k];
	}
}

void round_commit(struct group_core *core)
{
	struct tr_round info = round_info(core);
	struct tr_error error;

	assert(round_sealed(core));
	round_keep_residuals(core);
	record_add(core, &info);
	round_count(core);
	round_keep_last(core);
	release_forget(&core->released);
	core->committed = core->round;
	core->altering = core->needs_state;
	core->deferred = false;
	if (core->resume)
		traind__peer__resume__free_unpacked(core->resume, NULL);
	core->resume = NULL;
	handover_decided(core);
	round_move(core, ROUND_IDLE);
	emit_decided(core, TR_OK, &info, NULL);
	if (round_enter(core, core->committed + 1, core->view.number, NULL, 0, &error) != TR_OK)
		core->status = TR_ENOMEM;
}

tr_status round_enter(struct group_core *core, uint64_t round, uint64_t attempt,
    const uint64_t *contributors, size_t contributor_count, struct tr_error *error)
{
	struct roster roster;
	tr_status st = roster_init(&roster, &core->view, round, attempt, contributors,
	    contributor_count, core->peer, error);

	if (st != TR_OK)
		return st;
	st = ahead_enter(core, &roster);
	if (st != TR_OK) {
		roster_finish(&roster);
		return tr_error_set(error, st, "out of memory for round %" PRIu64, round);
	}
	scope_forget(core);
	roster_finish(&core->roster);
	core->roster = roster;
	core->round = round;
	core->voted = false;
	core->early_us = core->now_us + MEMBER_REPEAT_US;
	core->disagreed = false;
	core->votes_moved = true;
	core->moved = true;
	return TR_OK;
}
