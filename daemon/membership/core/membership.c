/* The step: an event changes soft state or brings an entry back; then everything that is due is
 * decided. Decisions are level-triggered: they look at the state, not at the event, so nothing is
 * forgotten when an append fails or memberd dies. */
#include "daemon/membership/core/membership.h"

#include <stdlib.h>
#include <string.h>

#include "daemon/membership/core/state.h"

#define RETRY_APPEND_MS 1000u
#define THINK_MAX       8

tr_status membership_create(const struct membership_options *options, struct membership **membership)
{
	struct membership *m = calloc(1, sizeof(*m));
	if (m == NULL)
		return TR_ENOMEM;
	m->options = *options;
	m->next_id = m->next_job = 1;
	*membership = m;
	return TR_OK;
}

void membership_destroy(struct membership *m)
{
	if (m == NULL)
		return;
	state_clear(m);
	free(m);
}

static void lead(struct membership *m)
{
	m->leading = true;
	m->looked_ms = m->now_ms;
	for (size_t i = 0; i < m->nodes.count; i++) {
		struct node *node = m->nodes.items[i];
		node->soft.gone_ms = m->now_ms;
		if (!node->lost)
			node->soft.awaited_ms = m->now_ms + m->options.reconnect_grace_ms;
	}
	/* Whoever is frozen for a proposal that we do not remember says so as soon as it is back. */
	for (size_t i = 0; i < m->groups.count; i++) {
		struct group *group = m->groups.items[i];
		group->soft.newest = group->proposed;
	}
	relay_look(m);
	m->dirty = true;
}

static void on_message(struct membership *m, uint64_t conn, const Traind__Peer__ToMember *message)
{
	struct node *node = state_node_of_conn(m, conn);
	if (message->body_case == TRAIND__PEER__TO_MEMBER__BODY_HELLO) {
		node_hello(m, conn, message->hello);
		return;
	}
	if (message->body_case == TRAIND__PEER__TO_MEMBER__BODY_LIFELINE) {
		node_lifeline(m, conn, message->lifeline);
		return;
	}
	if (message->body_case == TRAIND__PEER__TO_MEMBER__BODY_JOIN_GROUP) {
		group_join(m, conn, message->join_group);
		return;
	}
	if (node == NULL) {
		action_ignored(m, "a message on connection %llu, which has not said hello",
		    (unsigned long long)conn);
		return;
	}
	node->soft.heard_ms = m->now_ms;
	switch (message->body_case) {
	case TRAIND__PEER__TO_MEMBER__BODY_HEARTBEAT:
		health_heartbeat(m, node, message->heartbeat);
		break;
	case TRAIND__PEER__TO_MEMBER__BODY_WORKER_STARTED:
		peer_started(m, node, message->worker_started);
		break;
	case TRAIND__PEER__TO_MEMBER__BODY_PEER_READY:
		peer_ready(m, node, message->peer_ready);
		break;
	case TRAIND__PEER__TO_MEMBER__BODY_VIEW_REPORT:
		view_report(m, node, message->view_report);
		break;
	case TRAIND__PEER__TO_MEMBER__BODY_LINK_LOST:
		link_lost(m, node, message->link_lost);
		break;
	case TRAIND__PEER__TO_MEMBER__BODY_WORKER_EXITED:
		peer_exited(m, node, message->worker_exited);
		break;
	case TRAIND__PEER__TO_MEMBER__BODY_ROUND_COMMITS:
		rounds_told(m, node, message->round_commits);
		break;
	case TRAIND__PEER__TO_MEMBER__BODY_PEER_REPORT:
		facts_report(m, node, message->peer_report);
		break;
	case TRAIND__PEER__TO_MEMBER__BODY_LOG_DATA:
		action_log_data(m, conn, message->log_data);
		break;
	case TRAIND__PEER__TO_MEMBER__BODY_LEAVE_GROUP:
		group_leave(m, node, message->leave_group);
		break;
	case TRAIND__PEER__TO_MEMBER__BODY_NODE_LEAVE:
		node_leave(m, node, message->node_leave->reason);
		break;
	case TRAIND__PEER__TO_MEMBER__BODY_PEER_FAILED:
		peer_failed(m, node, message->peer_failed);
		break;
	case TRAIND__PEER__TO_MEMBER__BODY_LINK_MEASURED:
		measure_answered(m, node, message->link_measured);
		break;
	case TRAIND__PEER__TO_MEMBER__BODY_VIEW_INSTALLED:
		peer_installed(m, node, message->view_installed);
		break;
	default:
		action_ignored(m, "an empty or unknown message from node n%llu",
		    (unsigned long long)node->id);
		break;
	}
}

static void on_append_failed(struct membership *m, uint64_t cookie, const char *reason)
{
	char text[TR_ERROR_TEXT_MAX];
	uint64_t group;
	copy_text(text, sizeof(text),
	    reason != NULL && reason[0] != '\0' ? reason : "the log refused the entry");
	action_log(m, true, "an entry did not get into the log: %s", text);
	if (pending_is(m, cookie, PENDING_ROUNDS, &group))
		rounds_refused(m, group);
	pending_remove(m, cookie);
	pending_answer(m, cookie, TR_EIO, text);
	group_join_logged(m, cookie, false);
	m->retry_ms = m->now_ms + RETRY_APPEND_MS;
}

static void on_submit(struct membership *m, const struct membership_event *event)
{
	if (m->leading)
		job_submit(m, event->request, event->submit);
	else
		action_reply(m, event->request, TR_EUNAVAILABLE, 0, false,
		    "memberd still reads its log: try again");
}

static void on_cancel(struct membership *m, const struct membership_event *event)
{
	if (m->leading)
		job_cancel(m, event->request, event->job, event->reason);
	else
		action_reply(m, event->request, TR_EUNAVAILABLE, event->job, false,
		    "memberd still reads its log: try again");
}

static void on_measure(struct membership *m, const struct membership_event *event)
{
	if (m->leading)
		measure_request(m, event->request, event->measure);
	else
		action_reply(m, event->request, TR_EUNAVAILABLE, 0, false,
		    "memberd still reads its log: try again");
}

static void on_event(struct membership *m, const struct membership_event *event)
{
	switch (event->kind) {
	case MEMBERSHIP_APPLIED:
		pending_remove(m, event->cookie);
		apply_entry(m, event->entry);
		group_join_logged(m, event->cookie, true);
		if (event->cookie != 0)
			pending_answer(m, event->cookie, TR_OK, "");
		m->dirty = true;
		break;
	case MEMBERSHIP_RESTORED:
		snapshot_restore(m, event->snapshot);
		break;
	case MEMBERSHIP_LEADING:
		lead(m);
		break;
	case MEMBERSHIP_APPEND_FAILED:
		on_append_failed(m, event->cookie, event->reason);
		break;
	case MEMBERSHIP_MESSAGE:
		if (m->leading)
			on_message(m, event->conn, event->message);
		else /* a hello that nobody answers would leave the node waiting for ever */
			action_close(m, event->conn, "memberd still reads its log: try again");
		break;
	case MEMBERSHIP_CLOSED:
		if (m->leading)
			node_closed(m, event->conn, event->reason);
		m->dirty = true;
		break;
	case MEMBERSHIP_SUBMIT:
		on_submit(m, event);
		break;
	case MEMBERSHIP_CANCEL:
		on_cancel(m, event);
		break;
	case MEMBERSHIP_MEASURE:
		on_measure(m, event);
		break;
	case MEMBERSHIP_TICK:
		break;
	}
}

/* A step is due every heartbeat interval, or when an append may be tried again; if none came for much longer, it was us
 * who stood still. */
static void notice_pause(struct membership *m)
{
	uint64_t since = m->stepped_ms > m->retry_ms ? m->stepped_ms : m->retry_ms;
	uint64_t gap = m->now_ms > since ? m->now_ms - since : 0;
	bool watching = m->leading && health_deadline_ms(m) != UINT64_MAX;
	if (watching && gap > m->options.heartbeat_timeout_ms / 2 &&
	    gap > 2 * m->options.heartbeat_interval_ms)
		health_paused(m, gap - m->options.heartbeat_interval_ms);
	if (watching && gap > m->options.heartbeat_timeout_ms)
		m->woke_ms = m->now_ms;
	m->stepped_ms = m->now_ms;
}

static void think(struct membership *m)
{
	if (m->now_ms - m->looked_ms >= m->options.heartbeat_interval_ms) {
		m->looked_ms = m->now_ms;
		m->dirty = true;
		health_think(m);
	}
	if (!m->dirty && membership_deadline_ms(m) > m->now_ms)
		return;
	m->dirty = false;
	node_think(m);
	job_think(m);
	group_think(m);
	relay_tell(m);
	measure_think(m);
}

bool membership_leading(const struct membership *m)
{
	return m->leading;
}

tr_status membership_step(struct membership *m, const struct membership_event *event,
    struct membership_actions *actions, struct tr_error *error)
{
	m->actions = actions;
	m->now_ms = event->now_ms;
	m->unix_ms = event->unix_ms;
	m->random = event->random;
	memcpy(m->secret, event->secret, sizeof(m->secret));
	m->all_read = event->kind == MEMBERSHIP_TICK;
	notice_pause(m);
	on_event(m, event);
	/* One decision may call for another (a lost node ends peers, which call for a view); all
	 * come in one step. */
	for (int i = 0;
	     m->leading && m->now_ms >= m->retry_ms && i < THINK_MAX && (i == 0 || m->dirty); i++)
		think(m);
	m->actions = NULL;
	if (m->oom)
		return tr_error_set(error, TR_ENOMEM, "membership: out of memory");
	return TR_OK;
}

uint64_t membership_deadline_ms(const struct membership *m)
{
	if (!m->leading)
		return UINT64_MAX;
	uint64_t deadlines[] = { health_deadline_ms(m), view_deadline_ms(m), job_deadline_ms(m),
		measure_deadline_ms(m) };
	uint64_t deadline = UINT64_MAX;
	for (size_t i = 0; i < sizeof(deadlines) / sizeof(deadlines[0]); i++)
		if (deadlines[i] < deadline)
			deadline = deadlines[i];
	if (deadline != UINT64_MAX && deadline < m->retry_ms)
		deadline = m->retry_ms;
	return deadline;
}
