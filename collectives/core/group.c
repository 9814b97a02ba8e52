/* The step: one event in, and whatever follows from it out. */
#include "collectives/core/group.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "collectives/core/bits.h"
#include "collectives/core/member.h"
#include "collectives/core/scope.h"

tr_status group_core_create(const struct group_core_options *options, struct group_core **created)
{
	struct group_core *core = calloc(1, sizeof(*core));

	if (!core)
		return TR_ENOMEM;
	core->group = options->group;
	core->peer = options->peer;
	core->roster.me = ROSTER_NONE;
	core->pool.memory = options->memory;
	core->lent = options->lent;
	core->spreads = options->spreads;
	core->ahead_bytes = options->ahead_bytes > 0 ? options->ahead_bytes : TR_AHEAD_BYTES;
	core->ahead_share = core->ahead_bytes;
	core->window_bytes = options->window_bytes > 0 ? options->window_bytes : TR_OP_WINDOW_BYTES;
	core->outlet_bytes = options->outlet_bytes > 0 ? options->outlet_bytes : core->window_bytes;
	*created = core;
	return TR_OK;
}

void group_core_destroy(struct group_core *core)
{
	if (!core)
		return;
	ahead_finish(core);
	round_drop_ops(core);
	release_finish(&core->released);
	free(core->ops);
	for (size_t i = 0; i < core->last_op_count; i++)
		op_destroy(core->last_ops[i], &core->pool);
	free(core->last_ops);
	free(core->last_contributors);
	record_finish(core);
	if (core->resume)
		traind__peer__resume__free_unpacked(core->resume, NULL);
	free(core->votes);
	free(core->asks);
	free(core->links);
	free(core->connected);
	view_finish(&core->view);
	scope_forget(core);
	roster_finish(&core->roster);
	op_finish_spare(&core->pool);
	buffer_pool_finish(&core->pool);
	emit_finish(core);
	free(core);
}

static tr_status group_segment(struct group_core *core, const struct group_event *event,
    struct tr_error *error)
{
	struct group_buffer *buffer = event->segment.buffer;
	bool landed = buffer && buffer->landed;

	if (landed) {
		bool revoked = buffer->revoked;
		landing_end(core, buffer);
		if (revoked) {
			buffer_put(&core->pool, buffer);
			return tr_error_set(error, TR_ESTALE, "its op is over");
		}
	}
	core->incoming = buffer;
	tr_status st = path_segment(core, event, error);

	assert(st != TR_EAGAIN ||
	    !landed); /* nothing moved since it was awaited, or it were revoked */
	if (st != TR_EAGAIN)
		buffer_put(&core->pool, core->incoming);
	core->incoming = NULL;
	return st;
}

static tr_status group_handle(struct group_core *core, const struct group_event *event,
    struct tr_error *error)
{
	switch (event->kind) {
	case GROUP_PROPOSE:
		return repair_propose(core, event->propose, error);
	case GROUP_INSTALL:
		return repair_install(core, event->install, error);
	case GROUP_READY:
		return round_ready(core, event->round, error);
	case GROUP_BEGIN:
		return round_begin(core, error);
	case GROUP_SUBMIT:
		return round_submit(core, event, error);
	case GROUP_WAIT:
		return wait_begin(core, event->tag, error);
	case GROUP_RELEASE:
		return release_op(core, event, error);
	case GROUP_SCOPED:
		round_scoped(core);
		return TR_OK;
	case GROUP_CLOSE:
		return round_close(core, &event->close, error);
	case GROUP_SEGMENT:
		return group_segment(core, event, error);
	case GROUP_GATHERED:
		return spread_gathered(core, event);
	case GROUP_VOTE:
		return commit_vote_got(core, event->from, event->vote, error);
	case GROUP_COMMIT:
		return commit_got(core, event->from, event->commit, error);
	case GROUP_SUBMITTED:
		return ahead_word_got(core, event->from, event->submitted, error);
	case GROUP_LINK_LOST:
		repair_link_lost(core, event->from, event->reason);
		return TR_OK;
	case GROUP_STATE_ASKED:
		return handover_asked(core, event->from, event->round, &event->wish, error);
	case GROUP_STATE_SENT:
		handover_sent(core, event->from, event->round);
		return TR_OK;
	case GROUP_STATE_RECORDS:
		return record_inherit(core, event->records.items, event->records.count, error);
	case GROUP_STATE_GOT:
		return handover_got(core, event->from, event->status, event->round, event->reason,
		    error);
	case GROUP_LINKS:
		links_measured(core, event->links.latency_us, event->links.bandwidth_bytes_per_s);
		return TR_OK;
	case GROUP_LEAVE:
		record_again(core);
		return TR_OK;
	case GROUP_RECORDED:
		record_logged(core, event->round);
		return TR_OK;
	case GROUP_MEMBERD_BACK:
		core->report_again_us = core->now_us;
		return TR_OK;
	case GROUP_TICK:
		return TR_OK;
	}
	return tr_error_set(error, TR_EINVAL, "event %d", (int)event->kind);
}

static bool group_of_peer(enum group_event_kind kind)
{
	return kind == GROUP_SEGMENT || kind == GROUP_VOTE || kind == GROUP_COMMIT ||
	    kind == GROUP_SUBMITTED || kind == GROUP_STATE_ASKED || kind == GROUP_STATE_RECORDS;
}

/* Something of this step was lost for want of memory. If it came from a peer its connection is closed, and a new view repairs. Else
 * nobody would miss it: we ask for a view that begins the round again. */
static void group_note_lost(struct group_core *core, enum group_event_kind kind)
{
	if (core->status == TR_OK || group_of_peer(kind) || !round_active(core) || core->voted)
		return;
	core->status = TR_OK;
	repair_stuck(core, "out of memory in round %" PRIu64, core->round);
}

/* What follows, whatever the event was. */
static void group_advance(struct group_core *core)
{
	if (core->state != ROUND_FAILED) {
		round_answer_begin(core);
		outlet_advance(core);
		wait_advance(core);
		commit_advance(core);
		ahead_advance(core);
		handover_advance(core);
		handover_ask_again(core);
		commit_early_notice(core);
		wait_ask(core);
		lack_ask(core);
		repair_links_again(core);
		if (core->proposal != 0 && core->now_us >= core->report_again_us)
			report_say(core);
	}
	if (core->parked && core->moved) {
		core->parked = false;
		emit(core, GROUP_DO_RETRY);
	} else if (core->parked && core->made) {
		struct group_action *action = emit(core, GROUP_DO_RETRY);
		action->one_op = true;
		action->tag = core->made_tag;
		action->round = core->round;
	}
	core->moved = false;
	core->made = false;
}

/* Actions move while the array grows: point into them at the end. */
static void group_point_reasons(struct group_actions *actions)
{
	for (size_t i = 0; i < actions->count; i++)
		if (actions->items[i].kind == GROUP_DO_SEND_COMMIT)
			actions->items[i].commit.reason = actions->items[i].text;
}

tr_status group_core_step(struct group_core *core, const struct group_event *event,
    struct group_actions *actions, struct tr_error *error)
{
	core->now_us = event->now_us;
	core->actions = actions;
	core->status = TR_OK;
	core->served_bytes = 0;
	tr_status st = group_handle(core, event, error);
	group_note_lost(core, event->kind);
	group_advance(core);
	group_point_reasons(actions);
	core->actions = NULL;
	if (st == TR_OK && core->status != TR_OK)
		return tr_error_set(error, core->status, "out of memory");
	return st;
}

bool group_core_expects(const struct group_core *core, uint64_t view)
{
	uint64_t newest = core->proposal > core->view.number ? core->proposal : core->view.number;

	return view <= newest || view - newest <= TR_VIEWS_AHEAD_MAX;
}

static uint64_t earlier(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

uint64_t group_core_deadline_us(const struct group_core *core)
{
	uint64_t deadline = UINT64_MAX;

	if (core->state == ROUND_FAILED)
		return deadline;
	if (group_core_due(core))
		return 0;
	if (core->proposal != 0)
		deadline = core->report_again_us;
	if (core->state == ROUND_CLOSED && core->proposal == 0 && !core->stuck && !core->voted &&
	    core->roster.me != core->roster.hub)
		deadline = earlier(deadline, core->early_us);
	deadline = earlier(deadline, wait_deadline_us(core));
	deadline = earlier(deadline, lack_deadline_us(core));
	deadline = earlier(deadline, handover_deadline_us(core));
	for (size_t i = 0; i < core->link_count; i++)
		deadline = earlier(deadline, core->links[i].again_us);
	return deadline;
}

struct group_buffer *group_buffer_take(struct group_core *core, uint64_t from,
    const struct segment_header *header)
{
	return landing_take(core, from, header);
}

void *const *group_buffer_at(const struct group_buffer *buffer)
{
	return &buffer->at;
}

struct tr_digest_stream *group_buffer_hash(struct group_buffer *buffer)
{
	return buffer->landed ? &buffer->hash : NULL;
}

void group_core_let_go(struct group_core *core)
{
	landing_revoke_all(core);
}

void group_buffer_release(struct group_core *core, struct group_buffer *buffer)
{
	if (buffer && buffer->landed)
		landing_end(core, buffer);
	buffer_put(&core->pool, buffer);
}
