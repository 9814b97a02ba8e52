#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/membership/core/state.h"

static struct membership_action *action_new(struct membership *m, enum membership_action_kind kind)
{
	struct membership_actions *actions = m->actions;
	if (actions->count == actions->capacity) {
		size_t capacity = actions->capacity > 0 ? 2 * actions->capacity : 16;
		struct membership_action *grown = realloc(actions->items, capacity * sizeof(*grown));
		if (grown == NULL) {
			m->oom = true;
			return NULL;
		}
		actions->items = grown;
		actions->capacity = capacity;
	}
	struct membership_action *action = &actions->items[actions->count++];
	memset(action, 0, sizeof(*action));
	action->kind = kind;
	return action;
}

void action_append(struct membership *m, Traind__Peer__LogEntry *entry, enum pending_kind kind,
    uint64_t object, uint64_t *cookie)
{
	entry->unix_ms = m->unix_ms;
	Traind__Peer__LogEntry *copy = copy_message(m, &entry->base);
	struct membership_action *action = copy != NULL ? action_new(m, MEMBERSHIP_DO_APPEND)
	                                                : NULL;
	if (action == NULL) {
		if (copy != NULL)
			traind__peer__log_entry__free_unpacked(copy, NULL);
		return;
	}
	action->entry = copy;
	action->cookie = ++m->next_cookie;
	pending_add(m, kind, object, action->cookie);
	if (cookie != NULL)
		*cookie = action->cookie;
}

void action_append_before_view(struct membership *m, Traind__Peer__LogEntry *entry,
    enum pending_kind kind, uint64_t object)
{
	size_t before = m->actions->count;
	action_append(m, entry, kind, object, NULL);
	if (m->actions->count > before)
		m->actions->items[before].may_wait = true;
}

static void action_with(struct membership *m, enum membership_action_kind kind, uint64_t conn,
    const Traind__Peer__ToNode *message)
{
	Traind__Peer__ToNode *copy = copy_message(m, &message->base);
	struct membership_action *action = copy != NULL ? action_new(m, kind) : NULL;
	if (action == NULL) {
		if (copy != NULL)
			traind__peer__to_node__free_unpacked(copy, NULL);
		return;
	}
	action->conn = conn;
	action->message = copy;
}

void action_send(struct membership *m, uint64_t conn, const Traind__Peer__ToNode *message)
{
	if (conn != 0)
		action_with(m, MEMBERSHIP_DO_SEND, conn, message);
}

void action_send_also(struct membership *m, uint64_t conn, size_t sent)
{
	Traind__Peer__ToNode *message = sent < m->actions->count ? m->actions->items[sent].message
	                                                         : NULL;
	struct membership_action *action = message != NULL ? action_new(m, MEMBERSHIP_DO_SEND)
	                                                   : NULL;
	if (action == NULL)
		return;
	action->conn = conn;
	action->message = message;
	action->shares = true;
}

void action_relay(struct membership *m, Traind__Peer__RelayDuties *duties)
{
	Traind__Peer__ToNode message = TRAIND__PEER__TO_NODE__INIT;
	message.body_case = TRAIND__PEER__TO_NODE__BODY_RELAY_DUTIES;
	message.relay_duties = duties;
	action_with(m, MEMBERSHIP_DO_RELAY, 0, &message);
}

void action_close(struct membership *m, uint64_t conn, const char *text)
{
	struct membership_action *action = action_new(m, MEMBERSHIP_DO_CLOSE);
	if (action == NULL)
		return;
	action->conn = conn;
	copy_text(action->text, sizeof(action->text), text);
}

void action_reply(struct membership *m, uint64_t request, tr_status status, uint64_t job,
    bool existed, const char *text)
{
	struct membership_action *action = action_new(m, MEMBERSHIP_DO_REPLY);
	if (action == NULL)
		return;
	action->request = request;
	action->status = status;
	action->job = job;
	action->existed = existed;
	copy_text(action->text, sizeof(action->text), text);
}

void action_changed(struct membership *m, uint64_t job)
{
	m->dirty = true;
	struct membership_actions *actions = m->actions;
	for (size_t i = 0; i < actions->count; i++)
		if (actions->items[i].kind == MEMBERSHIP_DO_JOB_CHANGED &&
		    actions->items[i].job == job)
			return;
	struct membership_action *action = action_new(m, MEMBERSHIP_DO_JOB_CHANGED);
	if (action != NULL)
		action->job = job;
}

void action_log(struct membership *m, bool warn, const char *format, ...)
{
	/* A replayed decision was logged when it was made. */
	if (!m->leading)
		return;
	struct membership_action *action = action_new(m, MEMBERSHIP_DO_LOG);
	if (action == NULL)
		return;
	action->warn = warn;
	va_list args;
	va_start(args, format);
	(void)vsnprintf(action->text, sizeof(action->text), format, args);
	va_end(args);
}

void action_ignored(struct membership *m, const char *format, ...)
{
	va_list args;
	va_start(args, format);
	(void)vsnprintf(m->ignored.last, sizeof(m->ignored.last), format, args);
	va_end(args);
	m->ignored.count++;
	if (m->ignored.since_ms != 0 && m->now_ms - m->ignored.since_ms < 1000)
		return;
	if (m->ignored.count == 1)
		action_log(m, true, "ignored: %s", m->ignored.last);
	else
		action_log(m, true, "ignored %llu messages, the last: %s",
		    (unsigned long long)m->ignored.count, m->ignored.last);
	m->ignored.since_ms = m->now_ms;
	m->ignored.count = 0;
}

void action_log_data(struct membership *m, uint64_t conn, const Traind__Peer__LogData *data)
{
	struct membership_action *action = action_new(m, MEMBERSHIP_DO_LOG_DATA);
	if (action == NULL)
		return;
	action->conn = conn;
	action->log_data = data;
}

void membership_actions_clear(struct membership_actions *actions)
{
	for (size_t i = 0; i < actions->count; i++) {
		if (actions->items[i].entry != NULL)
			traind__peer__log_entry__free_unpacked(actions->items[i].entry, NULL);
		if (actions->items[i].message != NULL && !actions->items[i].shares)
			traind__peer__to_node__free_unpacked(actions->items[i].message, NULL);
	}
	actions->count = 0;
}

void membership_actions_finish(struct membership_actions *actions)
{
	membership_actions_clear(actions);
	free(actions->items);
	*actions = (struct membership_actions){ 0 };
}
