/* Library groups: processes that found or enter a group by its name, without a job. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/membership/core/state.h"

#define JOINS_MAX 4096

static void refuse(struct membership *m, uint64_t conn, const char *text)
{
	Traind__Peer__ToNode message = TRAIND__PEER__TO_NODE__INIT;
	Traind__Peer__Refused refused = TRAIND__PEER__REFUSED__INIT;
	char copy[TR_ERROR_TEXT_MAX];
	copy_text(copy, sizeof(copy), text);
	refused.reason = copy;
	message.body_case = TRAIND__PEER__TO_NODE__BODY_REFUSED;
	message.refused = &refused;
	action_send(m, conn, &message);
	action_log(m, true, "a process may not join: %s", copy);
}

static const char *join_fault(const Traind__Peer__JoinGroup *join)
{
	if (join->name[0] == '\0' || strlen(join->name) >= TR_NAME_MAX)
		return "a group's name must have 1 to 63 bytes";
	if (strlen(join->address) >= TR_ADDRESS_MAX)
		return "an address must have at most 127 bytes";
	if (join->size > TR_GROUP_PEERS_MAX)
		return "a group has at most 256 members";
	if (join->segment_bytes % 64 != 0 || join->segment_bytes > TR_SEGMENT_BYTES)
		return "segment_bytes must be a multiple of 64, at most 1047552 (1023 KiB)";
	if ((unsigned)join->policy > TRAIND__PEER__POLICY__POLICY_REPLAY ||
	    (unsigned)join->algorithm > TRAIND__PEER__ALGORITHM__ALGORITHM_ONE_SHOT)
		return "no such policy or algorithm";
	return NULL;
}

void join_free(void *item)
{
	struct join *join = item;
	traind__peer__join_group__free_unpacked(join->wish, NULL);
	free(join);
}

/* Its node may not be registered yet: all wishes wait in line. */
void group_join(struct membership *m, uint64_t conn, const Traind__Peer__JoinGroup *wish)
{
	const char *fault = join_fault(wish);
	if (fault != NULL || m->joins.count >= JOINS_MAX) {
		refuse(m, conn,
		    fault != NULL ? fault : "too many processes are joining: try again later");
		return;
	}
	struct join *join = state_alloc(m, sizeof(*join));
	if (join == NULL)
		return;
	join->conn = conn;
	join->wish = copy_message(m, &wish->base);
	if (join->wish == NULL || !list_add(m, &m->joins, join)) {
		if (join->wish != NULL)
			traind__peer__join_group__free_unpacked(join->wish, NULL);
		free(join);
		return;
	}
	m->dirty = true;
}

static bool somebody_there(const struct membership *m, const struct group *group)
{
	for (size_t i = 0; i < group->peers.count; i++)
		if (state_peer_live(group->peers.items[i]))
			return true;
	return pending_any(m, PENDING_FOUND, group->id);
}

static struct group *group_named(struct membership *m, const char *name)
{
	for (size_t i = m->groups.count; i-- > 0;) {
		struct group *group = m->groups.items[i];
		if (group->job == 0 && strcmp(group->founder->name, name) == 0 &&
		    somebody_there(m, group))
			return group;
	}
	return NULL;
}

static void append_peer(struct membership *m, const struct node *node, uint64_t group,
    struct join *join)
{
	Traind__Peer__LogEntry entry = TRAIND__PEER__LOG_ENTRY__INIT;
	Traind__Peer__JobPlanned planned = TRAIND__PEER__JOB_PLANNED__INIT;
	Traind__Peer__PlannedPeer peer = TRAIND__PEER__PLANNED_PEER__INIT, *rows[1] = { &peer };
	peer.peer = state_take_id(m);
	peer.node_id = node->id;
	peer.incarnation = node->hello->incarnation;
	peer.address = join->wish->address;
	planned.group = group;
	planned.peers = rows;
	planned.n_peers = 1;
	entry.body_case = TRAIND__PEER__LOG_ENTRY__BODY_JOB_PLANNED;
	entry.job_planned = &planned;
	join->group = group;
	join->peer = peer.peer;
	action_append(m, &entry, PENDING_FOUND, group, &join->cookie);
}

static uint64_t append_founded(struct membership *m, Traind__Peer__JoinGroup *wish)
{
	Traind__Peer__LogEntry entry = TRAIND__PEER__LOG_ENTRY__INIT;
	Traind__Peer__GroupFounded founded = TRAIND__PEER__GROUP_FOUNDED__INIT;
	founded.group = state_take_id(m);
	founded.founder = wish;
	entry.body_case = TRAIND__PEER__LOG_ENTRY__BODY_GROUP_FOUNDED;
	entry.group_founded = &founded;
	action_append(m, &entry, PENDING_FOUND, 0, NULL);
	return founded.group;
}

static bool same_terms(const Traind__Peer__JoinGroup *a, const Traind__Peer__JoinGroup *b)
{
	return a->policy == b->policy && a->deterministic == b->deterministic &&
	    a->algorithm == b->algorithm && a->segment_bytes == b->segment_bytes;
}

/* Refused, or its entry is on its way. */
static void admit(struct membership *m, const struct node *node, struct join *join)
{
	struct group *group = group_named(m, join->wish->name);
	if (group == NULL) {
		append_peer(m, node, append_founded(m, join->wish), join);
	} else if (!same_terms(group->founder, join->wish)) {
		char text[TR_ERROR_TEXT_MAX];
		(void)snprintf(text, sizeof(text),
		    "group %s was founded with another policy, algorithm, segment_bytes "
		    "or `deterministic` than this "
		    "process asks for",
		    join->wish->name);
		refuse(m, join->conn, text);
	} else {
		append_peer(m, node, group->id, join);
	}
}

static bool greeting_of(const struct membership *m, uint64_t conn)
{
	for (size_t i = 0; i < m->greetings.count; i++)
		if (((struct greeting *)m->greetings.items[i])->conn == conn)
			return true;
	return false;
}

/* Its process has dialled again meanwhile, and asks again: this peer is nobody. */
static void end_unheard(struct membership *m, const struct join *join)
{
	struct peer *peer = state_group_peer(m, state_group(m, join->group), join->peer);
	if (peer != NULL && state_node_of_conn(m, join->conn) == NULL)
		peer_end(m, peer, PEER_LOST, false, "its process joins again on another connection");
}

void group_join_logged(struct membership *m, uint64_t cookie, bool applied)
{
	for (size_t i = 0; cookie != 0 && i < m->joins.count; i++) {
		struct join *join = m->joins.items[i];
		if (join->cookie != cookie)
			continue;
		join->cookie = 0;
		/* Its founding, an entry before it, may have failed. */
		if (applied && state_group(m, join->group) != NULL) {
			end_unheard(m, join);
			list_remove(&m->joins, i);
			join_free(join);
		}
		return;
	}
}

static void joins_think(struct membership *m)
{
	/* One founding at a time, so that two of the same name cannot happen. */
	for (size_t i = 0; i < m->joins.count && !pending_any(m, PENDING_FOUND, 0);) {
		struct join *join = m->joins.items[i];
		const struct node *node = state_node_of_conn(m, join->conn);
		if (join->cookie == 0 && node != NULL)
			admit(m, node, join);
		if (join->cookie != 0 || (node == NULL && greeting_of(m, join->conn))) {
			i++;
			continue;
		}
		list_remove(&m->joins, i);
		join_free(join);
	}
}

void group_leave(struct membership *m, struct node *node, const Traind__Peer__LeaveGroup *leave)
{
	struct group *group = state_group(m, leave->group);
	struct peer *peer = group != NULL && group->job == 0
	    ? state_group_peer(m, group, leave->peer)
	    : NULL;
	if (peer == NULL || peer->node != node->id ||
	    peer->incarnation != node->hello->incarnation) {
		action_ignored(m, "LeaveGroup of peer p%llu, which node n%llu does not host",
		    (unsigned long long)leave->peer, (unsigned long long)node->id);
		return;
	}
	peer->soft.stop_conn = node->soft.conn;
	if (state_peer_live(peer))
		facts_last_words(m, node, peer, leave->last_words);
	peer_end(m, peer, PEER_FINISHED, false, "it left");
}

/* Joiners of a group whose members all went have nobody to get the state from. */
static void end_orphans(struct membership *m, struct group *group)
{
	bool members = false;
	for (size_t i = 0; i < group->peers.count; i++) {
		const struct peer *peer = group->peers.items[i];
		members = members ||
		    (state_peer_live(peer) && state_view_peer(group, peer->id) != NULL);
	}
	for (size_t i = 0; group->view != NULL && !members && i < group->peers.count; i++)
		peer_end(m, group->peers.items[i], PEER_LOST, false,
		    "every member that held the state is gone: join again");
}

void group_think(struct membership *m)
{
	joins_think(m);
	for (size_t i = 0; i < m->groups.count; i++) {
		struct group *group = m->groups.items[i];
		if (group->job == 0) {
			peer_think(m, &group->peers);
			end_orphans(m, group);
		}
		rounds_think(m, group);
		view_think(m, group);
	}
}
