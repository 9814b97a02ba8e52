#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "collectives/core/member.h"

#define ACTIONS_FIRST 32

static void action_release(struct group_action *action)
{
	if (action->report)
		traind__peer__view_report__free_unpacked(action->report, NULL);
	if (action->record)
		traind__peer__round_commit__free_unpacked(action->record, NULL);
	if (action->submitted)
		traind__peer__submitted__free_unpacked(action->submitted, NULL);
}

void emit_finish(struct group_core *core)
{
	action_release(&core->scratch);
}

struct group_action *emit(struct group_core *core, enum group_action_kind kind)
{
	struct group_actions *actions = core->actions;
	struct group_action *action = &core->scratch;

	if (actions->count == actions->capacity) {
		size_t capacity = actions->capacity ? 2 * actions->capacity : ACTIONS_FIRST;
		struct group_action *items = realloc(actions->items, capacity * sizeof(*items));
		if (items) {
			actions->items = items;
			actions->capacity = capacity;
		}
	}
	if (actions->count < actions->capacity) {
		action = &actions->items[actions->count++];
	} else {
		core->status = TR_ENOMEM;
		action_release(action);
	}
	/* Most of it is what most kinds do not have. */
	memset(action, 0, offsetof(struct group_action, vote));
	action->address[0] = action->text[0] = '\0';
	action->kind = kind;
	if (kind == GROUP_DO_SEND_VOTE)
		traind__peer__vote__init(&action->vote);
	else if (kind == GROUP_DO_SEND_COMMIT)
		traind__peer__commit__init(&action->commit);
	return action;
}

void emit_connect(struct group_core *core, uint64_t peer)
{
	const struct view_peer *to = view_find(&core->view, peer);

	if (!to || peer == core->peer || core->connected[to - core->view.peers])
		return;
	core->connected[to - core->view.peers] = true;
	struct group_action *action = emit(core, GROUP_DO_CONNECT);
	action->to = peer;
	(void)snprintf(action->address, sizeof(action->address), "%s", to->address);
}

void emit_decided(struct group_core *core, tr_status status, const struct tr_round *info,
    const char *reason)
{
	struct group_action *action = emit(core, GROUP_DO_DECIDED);
	action->status = status;
	action->round = info->round;
	action->round_info = *info;
	(void)snprintf(action->text, sizeof(action->text), "%s", reason ? reason : "");
}

static void emit_end(struct group_core *core, tr_status status, const char *reason, bool refused)
{
	tr_error_set(&core->failure, status, "%s", reason);
	/* Nothing of ours may be read from the caller's memory once it was answered. */
	emit(core, GROUP_DO_DROP_SENDS);
	ahead_drop(core);
	landing_revoke_all(core);
	struct tr_round info = round_info(core);
	bool waits = round_active(core) || core->begin_wanted;
	/* The ops stay until the core is destroyed: callers up the stack hold them, and sends that GROUP_DO_DROP_SENDS
	 * is about to end read from their saved inputs. */
	core->state = ROUND_FAILED;
	core->begin_wanted = false;
	if (waits)
		emit_decided(core, status, &info, reason);
	struct group_action *action = emit(core, GROUP_DO_FAIL);
	action->status = status;
	action->round = core->round;
	action->refused = refused;
	(void)snprintf(action->text, sizeof(action->text), "%s", reason);
}

void emit_fail(struct group_core *core, tr_status status, const char *format, ...)
{
	char reason[sizeof(core->scratch.text)];
	va_list arguments;

	if (core->state == ROUND_FAILED)
		return;
	va_start(arguments, format);
	(void)vsnprintf(reason, sizeof(reason), format, arguments);
	va_end(arguments);
	emit_end(core, status, reason, false);
}

void emit_refuse(struct group_core *core, tr_status status, const char *reason)
{
	if (core->state != ROUND_FAILED)
		emit_end(core, status, reason, true);
}

void group_actions_clear(struct group_actions *actions)
{
	for (size_t i = 0; i < actions->count; i++)
		action_release(&actions->items[i]);
	actions->count = 0;
}

void group_actions_finish(struct group_actions *actions)
{
	group_actions_clear(actions);
	free(actions->items);
	*actions = (struct group_actions){ 0 };
}
