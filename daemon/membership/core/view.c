/* View changes: propose (durable number first), collect reports, decide, install (durable first),
 * deliver. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/membership/core/install.h"
#include "daemon/membership/core/state.h"

void view_drop_proposal(struct group *group)
{
	struct proposal *proposal = &group->soft.proposal;
	for (size_t i = 0; i < proposal->count; i++)
		if (proposal->members[i].report != NULL)
			traind__peer__view_report__free_unpacked(proposal->members[i].report, NULL);
	free(proposal->members);
	*proposal = (struct proposal){ 0 };
}

static bool hosted_by(const struct membership *m, const struct group *group, uint64_t id,
    uint64_t conn)
{
	const struct peer *peer = state_group_peer(m, group, id);
	const struct node *node = peer != NULL ? state_node(m, peer->node) : NULL;
	return node != NULL && node->soft.conn == conn;
}

/* Sends the proposal to one connection if it hosts a member. */
void view_ask(struct membership *m, const struct group *group, uint64_t conn)
{
	const struct proposal *proposal = &group->soft.proposal;
	uint64_t ids[TR_GROUP_PEERS_MAX];
	bool here = false;
	if (!proposal->asked || conn == 0)
		return;
	for (size_t i = 0; i < proposal->count; i++) {
		ids[i] = proposal->members[i].peer;
		here = here || hosted_by(m, group, ids[i], conn);
	}
	if (!here)
		return;
	Traind__Peer__ToNode message = TRAIND__PEER__TO_NODE__INIT;
	Traind__Peer__ViewPropose propose = TRAIND__PEER__VIEW_PROPOSE__INIT;
	propose.group = group->id;
	propose.number = proposal->number;
	propose.members = ids;
	propose.n_members = proposal->count;
	message.body_case = TRAIND__PEER__TO_NODE__BODY_VIEW_PROPOSE;
	message.view_propose = &propose;
	action_send(m, conn, &message);
}

/* Who holds which segment is most of it, and the same for all: only who is told of a relay gets a message of its own. `plain`: where the one without
 * relays is among the actions; SIZE_MAX: not there yet. */
static void send_view(struct membership *m, const struct group *group, uint64_t conn, size_t *plain)
{
	if (group->view == NULL || conn == 0)
		return;
	Traind__Peer__ToNode message = TRAIND__PEER__TO_NODE__INIT;
	Traind__Peer__ViewInstall install = *group->view;
	Traind__Peer__View view = *install.view;
	const struct ledger *ledger = state_ledger(m, group);
	view.relayed = state_alloc(m, (view.n_relayed + 1) * sizeof(Traind__Peer__Relayed *));
	if (view.relayed == NULL)
		return;
	view.n_relayed = relay_rows_of(m, group, conn, view.relayed);
	install.view = &view;
	install.recorded_round = ledger != NULL ? ledger_frontier(ledger) : 0;
	install.reserved = 0;
	message.body_case = TRAIND__PEER__TO_NODE__BODY_VIEW_INSTALL;
	message.view_install = &install;
	if (view.n_relayed == 0 && *plain != SIZE_MAX) {
		action_send_also(m, conn, *plain);
	} else {
		if (view.n_relayed == 0)
			*plain = m->actions->count;
		action_send(m, conn, &message);
	}
	free(view.relayed);
}

void view_send(struct membership *m, const struct group *group, uint64_t conn)
{
	size_t plain = SIZE_MAX;
	send_view(m, group, conn, &plain);
}

/* The farthest member's time. */
static uint64_t answer_timeout_ms(const struct membership *m, const struct group *group)
{
	const struct proposal *proposal = &group->soft.proposal;
	uint64_t longest_ms = m->options.heartbeat_timeout_ms;
	for (size_t i = 0; i < proposal->count; i++) {
		const struct peer *peer = state_group_peer(m, group, proposal->members[i].peer);
		const struct node *node = peer != NULL ? state_node(m, peer->node) : NULL;
		if (node != NULL && health_timeout_ms(m, node) > longest_ms)
			longest_ms = health_timeout_ms(m, node);
	}
	return longest_ms;
}

void view_proposed(struct membership *m, struct group *group)
{
	struct proposal *proposal = &group->soft.proposal;
	if (!m->leading || proposal->number == 0 || proposal->number > group->proposed ||
	    proposal->asked)
		return;
	proposal->asked = true;
	proposal->deadline_ms = m->now_ms + answer_timeout_ms(m, group);
	for (size_t i = 0; i < m->nodes.count; i++)
		view_ask(m, group, ((struct node *)m->nodes.items[i])->soft.conn);
}

void view_installed(struct membership *m, struct group *group)
{
	size_t plain = SIZE_MAX;
	view_drop_proposal(group);
	group->soft.repair = false;
	group->soft.complaints_count = 0;
	group->soft.finished_ms = 0;
	if (!m->leading)
		return;
	action_log(m, false, "group %llu: view %llu of %zu peers: %s",
	    (unsigned long long)group->id, (unsigned long long)group->view->view->number,
	    group->view->view->n_peers, group->view->view->reason);
	relay_look(m);
	relay_tell(m);
	for (size_t i = 0; i < m->nodes.count; i++) {
		const struct node *node = m->nodes.items[i];
		bool here = false;
		for (size_t k = 0; node->soft.conn != 0 && !here && k < group->view->view->n_peers;
		     k++)
			here = hosted_by(m, group, group->view->view->peers[k]->peer,
			    node->soft.conn);
		if (here)
			send_view(m, group, node->soft.conn, &plain);
	}
}

static void propose(struct membership *m, struct group *group, struct peer **members, size_t count,
    const char *reason)
{
	struct proposal *proposal = &group->soft.proposal;
	uint64_t number = state_view_number(group);
	proposal->members = state_alloc(m, count * sizeof(*proposal->members));
	if (proposal->members == NULL)
		return;
	proposal->number = (group->soft.newest > number ? group->soft.newest : number) + 1;
	group->soft.newest = proposal->number;
	proposal->count = count;
	copy_text(proposal->reason, sizeof(proposal->reason), reason);
	for (size_t i = 0; i < count; i++)
		proposal->members[i].peer = members[i]->id;
	action_log(m, false, "group %llu: proposes view %llu to %zu peers: %s",
	    (unsigned long long)group->id, (unsigned long long)proposal->number, count, reason);
	if (proposal->number <= group->proposed) {
		view_proposed(m, group);
		return;
	}
	Traind__Peer__LogEntry entry = TRAIND__PEER__LOG_ENTRY__INIT;
	Traind__Peer__ViewProposed proposed = TRAIND__PEER__VIEW_PROPOSED__INIT;
	proposed.group = group->id;
	proposed.number = proposal->number + VIEWS_RESERVED;
	entry.body_case = TRAIND__PEER__LOG_ENTRY__BODY_VIEW_PROPOSED;
	entry.view_proposed = &proposed;
	action_append(m, &entry, PENDING_GROUP, group->id, NULL);
}

/* Whoever does not answer in time is not alive in any sense that counts. */
static void lose_silent(struct membership *m, struct group *group)
{
	const struct proposal *proposal = &group->soft.proposal;
	char text[REASON_MAX];
	(void)snprintf(text, sizeof(text), "did not answer the proposal of view %llu within %.1f s",
	    (unsigned long long)proposal->number, (double)answer_timeout_ms(m, group) / 1000.0);
	for (size_t i = 0; i < proposal->count; i++) {
		struct peer *peer = state_group_peer(m, group, proposal->members[i].peer);
		if (proposal->members[i].report == NULL && peer != NULL)
			peer_end(m, peer, PEER_LOST, false, text);
	}
}

static bool all_reported(const struct proposal *proposal)
{
	for (size_t i = 0; i < proposal->count; i++)
		if (proposal->members[i].report == NULL)
			return false;
	return true;
}

/* True: the proposal still stands. */
static bool proposal_think(struct membership *m, struct group *group)
{
	struct proposal *proposal = &group->soft.proposal;
	size_t reports = 0;
	if (proposal->asked && m->now_ms >= proposal->deadline_ms)
		lose_silent(m, group);
	for (size_t i = 0; i < proposal->count; i++) {
		const struct peer *peer = state_group_peer(m, group, proposal->members[i].peer);
		if (peer == NULL || !state_peer_live(peer)) {
			/* Those who froze for it thaw with the next one only. */
			if (proposal->asked && !group->soft.repair) {
				group->soft.repair = true;
				(void)snprintf(group->soft.repair_reason,
				    sizeof(group->soft.repair_reason),
				    "the members of proposal %llu changed",
				    (unsigned long long)proposal->number);
			}
			view_drop_proposal(group);
			return false;
		}
		reports += proposal->members[i].report != NULL ? 1 : 0;
	}
	if (!proposal->asked) {
		/* Its number did not get into the log: another try. */
		view_drop_proposal(group);
		return false;
	}
	if (reports == proposal->count && !rounds_pending(m, group))
		install_append(m, group);
	return true;
}

void view_think(struct membership *m, struct group *group)
{
	const struct job *job = group->job != 0 ? state_job(m, group->job) : NULL;
	if (group->job != 0 && (job == NULL || job->group != group->id || !state_job_live(job))) {
		view_drop_proposal(group);
		group->soft.complaints_count = 0; /* nobody decides about them any more */
		return;
	}
	if (pending_any(m, PENDING_GROUP, group->id))
		return;
	link_think(m, group);
	if (group->soft.proposal.number != 0 && proposal_think(m, group))
		return;
	struct peer *members[TR_GROUP_PEERS_MAX];
	char reason[REASON_MAX];
	size_t count = members_wanted(m, group, members, reason);
	if (count > 0)
		propose(m, group, members, count, reason);
}

static const char *report_fault(const Traind__Peer__ViewReport *report)
{
	if (report->n_ops > TR_ROUND_OPS_MAX)
		return "more ops than a round may have";
	if (report->committed_round >= UINT64_MAX / 2 || report->begun_round >= UINT64_MAX / 2)
		return "a round beyond all reason";
	for (size_t i = 0; i < report->n_ops; i++) {
		const Traind__Peer__OpReport *op = report->ops[i];
		size_t bytes = ((size_t)op->segments + 7) / 8;
		if (op->segments > TR_OP_SEGMENTS_MAX ||
		    (op->sealed.len != 0 && op->sealed.len != bytes) ||
		    (op->whole.len != 0 && op->whole.len != bytes))
			return "a bitmap that does not fit its op";
		if (op->scope.len != 0 && op->scope.len != TR_GROUP_PEERS_MAX / 8)
			return "a scope that is no bitmap of contributors";
		if (op->n_needed_by != op->n_needed_until || op->n_needed_by > TR_GROUP_PEERS_MAX)
			return "more blocks than a group has peers";
		if (i > 0 && report->ops[i - 1]->tag >= op->tag)
			return "ops that are not in the order of their tags";
	}
	return NULL;
}

static bool report_of_another_view(struct membership *m, struct group *group,
    const struct node *node, const Traind__Peer__ViewReport *report)
{
	uint64_t wanted = state_view_peer(group, report->peer) != NULL ? state_view_number(group)
	                                                               : 0;
	if (report->view == wanted)
		return false;
	action_ignored(m, "peer p%llu reports from view %llu, not %llu: it gets the view again",
	    (unsigned long long)report->peer, (unsigned long long)report->view,
	    (unsigned long long)wanted);
	/* The install was lost on the way. Once more; the deadline of the proposal bounds this. */
	if (wanted != 0 && report->view < wanted) {
		view_send(m, group, node->soft.conn);
		view_ask(m, group, node->soft.conn);
	}
	return true;
}

/* A member says its report again every second until a view thaws it. If no proposal is under way, it needs one. */
static void frozen_for_nothing(struct membership *m, struct group *group, const struct node *node,
    const Traind__Peer__ViewReport *report)
{
	if (group->soft.proposal.number != 0 || pending_any(m, PENDING_GROUP, group->id) ||
	    report->proposal <= state_view_number(group) || report->proposal > group->proposed ||
	    !hosted_by(m, group, report->peer, node->soft.conn))
		return;
	group->soft.repair = true;
	(void)snprintf(group->soft.repair_reason, sizeof(group->soft.repair_reason),
	    "peer p%llu waits for the view of proposal %llu", (unsigned long long)report->peer,
	    (unsigned long long)report->proposal);
	m->dirty = true;
}

/* With a member's report, which is an event of this group alone: no two groups take theirs from the same. */
static void draw_token(const struct membership *m, struct group *group)
{
	if (group->soft.token[0] == 0 && group->soft.token[1] == 0)
		memcpy(group->soft.token, m->secret, sizeof(m->secret));
}

void view_report(struct membership *m, struct node *node, const Traind__Peer__ViewReport *report)
{
	struct group *group = state_group(m, report->group);
	struct proposal *proposal = group != NULL ? &group->soft.proposal : NULL;
	if (proposal == NULL || !proposal->asked || proposal->number != report->proposal ||
	    pending_any(m, PENDING_GROUP, group->id)) {
		if (group != NULL)
			frozen_for_nothing(m, group, node, report);
		return;
	}
	for (size_t i = 0; i < proposal->count; i++) {
		struct report *slot = &proposal->members[i];
		if (slot->peer != report->peer || slot->report != NULL)
			continue;
		const char *fault = report_fault(report);
		if (fault != NULL || !hosted_by(m, group, report->peer, node->soft.conn)) {
			action_ignored(m, "a report of peer p%llu with %s",
			    (unsigned long long)report->peer,
			    fault != NULL ? fault : "another sender than its node");
			return;
		}
		if (report_of_another_view(m, group, node, report))
			return;
		slot->report = copy_message(m, &report->base);
		draw_token(m, group);
		m->dirty = true;
		return;
	}
	action_ignored(m, "a report of peer p%llu, which was not asked or has answered",
	    (unsigned long long)report->peer);
}

uint64_t view_deadline_ms(const struct membership *m)
{
	uint64_t deadline = UINT64_MAX;
	for (size_t i = 0; i < m->groups.count; i++) {
		const struct group *group = m->groups.items[i];
		const struct proposal *proposal = &group->soft.proposal;
		if (pending_any(m, PENDING_GROUP, group->id))
			continue; /* the log is what is waited for */
		if (proposal->asked && !all_reported(proposal) && proposal->deadline_ms < deadline)
			deadline = proposal->deadline_ms;
		uint64_t link = link_deadline_ms(group);
		if (link < deadline)
			deadline = link;
	}
	return deadline;
}
