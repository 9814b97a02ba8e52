/* Registration of nodes: hello, durable NodeSeen, welcome; loss, durable NodeGone. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/membership/core/state.h"

#define HELLO_PEERS_MAX   4096
#define HELLO_DEVICES_MAX 64
#define HELLO_DEVICE_MAX  128

static void refuse(struct membership *m, uint64_t conn, const char *reason)
{
	Traind__Peer__ToNode message = TRAIND__PEER__TO_NODE__INIT;
	Traind__Peer__Refused refused = TRAIND__PEER__REFUSED__INIT;
	char text[TR_ERROR_TEXT_MAX];
	copy_text(text, sizeof(text), reason);
	refused.reason = text;
	message.body_case = TRAIND__PEER__TO_NODE__BODY_REFUSED;
	message.refused = &refused;
	action_send(m, conn, &message);
	action_close(m, conn, text);
	action_log(m, true, "a node was refused: %s", text);
}

static const char *hello_fault(const Traind__Peer__NodeHello *hello)
{
	if (hello->incarnation == 0)
		return "hello without an incarnation";
	if (hello->name[0] == '\0' || strlen(hello->name) >= TR_NAME_MAX)
		return "the node's name must have 1 to 63 bytes";
	if (hello->address[0] == '\0' || strlen(hello->address) >= TR_ADDRESS_MAX)
		return "the node's address must have 1 to 127 bytes";
	if (strlen(hello->host) >= TR_ADDRESS_MAX || strlen(hello->local_address) >= TR_ADDRESS_MAX)
		return "the node's host and local address must have at most 127 bytes";
	if (strlen(hello->version) >= TR_NAME_MAX)
		return "the node's version must have at most 63 bytes";
	if (hello->slots > TR_GROUP_PEERS_MAX)
		return "a node has at most 256 slots";
	if (hello->n_peers > HELLO_PEERS_MAX || hello->n_devices > HELLO_DEVICES_MAX)
		return "hello lists too many peers or devices";
	for (size_t i = 0; i < hello->n_devices; i++)
		if (strlen(hello->devices[i]) >= HELLO_DEVICE_MAX)
			return "a device's name must have at most 127 bytes";
	return NULL;
}

static void greeting_free(struct greeting *greeting)
{
	traind__peer__node_hello__free_unpacked(greeting->hello, NULL);
	free(greeting);
}

static void greeting_drop(struct membership *m, size_t index)
{
	greeting_free(m->greetings.items[index]);
	list_remove(&m->greetings, index);
}

static struct greeting *greeting_add(struct membership *m, uint64_t conn,
    const Traind__Peer__NodeHello *hello, uint64_t rival_heard_ms)
{
	struct greeting *greeting = state_alloc(m, sizeof(*greeting));
	if (greeting == NULL)
		return NULL;
	greeting->conn = conn;
	greeting->rival_heard_ms = rival_heard_ms;
	greeting->hello = copy_message(m, &hello->base);
	if (greeting->hello == NULL || !list_add(m, &m->greetings, greeting)) {
		if (greeting->hello != NULL)
			traind__peer__node_hello__free_unpacked(greeting->hello, NULL);
		free(greeting);
		return NULL;
	}
	return greeting;
}

static void append_seen(struct membership *m, const Traind__Peer__NodeHello *hello, uint64_t id)
{
	Traind__Peer__LogEntry entry = TRAIND__PEER__LOG_ENTRY__INIT;
	Traind__Peer__NodeSeen seen = TRAIND__PEER__NODE_SEEN__INIT;
	Traind__Peer__NodeHello facts = *hello;
	facts.node_id = id;
	facts.call = 0;
	facts.peers = NULL;
	facts.n_peers = 0;
	seen.hello = &facts;
	entry.body_case = TRAIND__PEER__LOG_ENTRY__BODY_NODE_SEEN;
	entry.node_seen = &seen;
	action_append(m, &entry, PENDING_NODE, id, NULL);
}

static void append_gone(struct membership *m, struct node *node)
{
	Traind__Peer__LogEntry entry = TRAIND__PEER__LOG_ENTRY__INIT;
	Traind__Peer__NodeGone gone = TRAIND__PEER__NODE_GONE__INIT;
	gone.node_id = node->id;
	gone.reason = node->soft.closing;
	entry.body_case = TRAIND__PEER__LOG_ENTRY__BODY_NODE_GONE;
	entry.node_gone = &gone;
	action_append_before_view(m, &entry, PENDING_NODE, node->id);
}

static void welcome(struct membership *m, const struct node *node)
{
	Traind__Peer__ToNode message = TRAIND__PEER__TO_NODE__INIT;
	Traind__Peer__Welcome body = TRAIND__PEER__WELCOME__INIT;
	body.node_id = node->id;
	body.heartbeat_interval_ms = (uint32_t)m->options.heartbeat_interval_ms;
	body.heartbeat_timeout_ms = (uint32_t)m->options.heartbeat_timeout_ms;
	message.body_case = TRAIND__PEER__TO_NODE__BODY_WELCOME;
	message.welcome = &body;
	action_send(m, node->soft.conn, &message);
}

static void attach(struct membership *m, struct node *node, uint64_t conn,
    const Traind__Peer__NodeHello *hello)
{
	if (node->soft.conn != 0 && node->soft.conn != conn)
		action_close(m, node->soft.conn, "replaced by a newer connection of the same node");
	if (node->soft.lifeline != 0) /* it closes that one before it ties the next */
		action_close(m, node->soft.lifeline,
		    "replaced by a newer connection of the same node");
	node->soft.conn = conn;
	node->soft.call = hello->call;
	node->soft.gone_ms = node->soft.lifeline = 0;
	node->soft.heard_ms = m->now_ms;
	node->soft.beaten = false;
	node->soft.awaited_ms = 0;
	node->soft.closing[0] = node->soft.suspicion[0] = '\0';
	node->soft.duties = hello->relays ? 1 : 0;
	m->relaying = m->relaying || hello->relays;
	action_log(m, false, "node n%llu (%s, %s, pid %u) is here with %u slot%s",
	    (unsigned long long)node->id, hello->name, hello->address, hello->pid, hello->slots,
	    hello->slots == 1 ? "" : "s");
	welcome(m, node);
	peer_reconcile(m, node, hello);
	m->dirty = true;
}

static bool same_facts(const Traind__Peer__NodeHello *a, const Traind__Peer__NodeHello *b)
{
	return a->pid == b->pid && a->slots == b->slots && strcmp(a->name, b->name) == 0 &&
	    strcmp(a->address, b->address) == 0 && strcmp(a->host, b->host) == 0 &&
	    strcmp(a->local_address, b->local_address) == 0;
}

static struct node *known_node(struct membership *m, const Traind__Peer__NodeHello *hello)
{
	struct node *node = hello->node_id != 0 ? state_node(m, hello->node_id) : NULL;
	/* Its welcome was lost on the way. */
	for (size_t i = 0; node == NULL && i < m->nodes.count; i++) {
		struct node *other = m->nodes.items[i];
		if (other->hello->incarnation == hello->incarnation)
			node = other;
	}
	return node;
}

static size_t nodes_alive(const struct membership *m)
{
	size_t alive = 0;
	for (size_t i = 0; i < m->nodes.count; i++)
		alive += ((struct node *)m->nodes.items[i])->lost ? 0 : 1;
	return alive + m->greetings.count;
}

static void node_register(struct membership *m, uint64_t conn, const Traind__Peer__NodeHello *hello)
{
	struct node *node = known_node(m, hello);
	uint64_t id = node != NULL ? node->id : state_take_id(m);
	if (node == NULL && id == hello->node_id)
		id = state_take_id(m); /* by its new number it knows that this is another log */
	if (node == NULL && hello->node_id != 0)
		action_log(m, true,
		    "%s says it is node n%llu, which is not in the log: it becomes n%llu",
		    hello->name, (unsigned long long)hello->node_id, (unsigned long long)id);
	struct greeting *greeting = greeting_add(m, conn, hello, UINT64_MAX);
	if (greeting == NULL)
		return;
	greeting->hello->node_id = id;
	append_seen(m, greeting->hello, id);
}

/* By a connection that the process had left when it said hello on another: it was on its way, or only the kernel still sends it. */
static const char late_hello[] = "its node has said hello on a newer connection";

/* The same process greets again on another connection before its registration was durable. */
static bool greeting_again(struct membership *m, uint64_t conn, const Traind__Peer__NodeHello *hello)
{
	for (size_t i = 0; i < m->greetings.count; i++) {
		struct greeting *greeting = m->greetings.items[i];
		if (greeting->conn == conn)
			return true;
		if (greeting->hello->incarnation != hello->incarnation)
			continue;
		if (hello->call < greeting->hello->call) {
			action_close(m, conn, late_hello);
			return true;
		}
		action_close(m, greeting->conn, "replaced by a newer connection of the same node");
		greeting->conn = conn;
		greeting->hello->call = hello->call;
		return true;
	}
	return false;
}

void node_hello(struct membership *m, uint64_t conn, const Traind__Peer__NodeHello *hello)
{
	const char *fault = hello_fault(hello);
	if (fault != NULL) {
		refuse(m, conn, fault);
		return;
	}
	if (state_node_of_conn(m, conn) != NULL) {
		action_ignored(m, "a second hello on connection %llu", (unsigned long long)conn);
		return;
	}
	if (greeting_again(m, conn, hello))
		return;
	struct node *node = known_node(m, hello);
	if (node == NULL && nodes_alive(m) >= TR_NODES_MAX) {
		refuse(m, conn, "this cluster has its largest number of nodes (1024) already");
		return;
	}
	bool registers = node != NULL && pending_any(m, PENDING_NODE, node->id);
	bool same = node != NULL && !node->lost && node->hello->incarnation == hello->incarnation;
	if (registers && !same && node->soft.closing[0] == '\0') {
		refuse(m, conn, "another process of this node is registering just now: try again");
		return;
	}
	bool here = node != NULL && !node->lost && node->soft.closing[0] == '\0';
	if (here && same) {
		if (node->soft.conn != 0 && hello->call < node->soft.call) {
			action_close(m, conn, late_hello);
			return;
		}
		attach(m, node, conn, hello);
		/* What is on its way into the log is of an older hello. */
		if (registers || !same_facts(node->hello, hello))
			append_seen(m, hello, node->id);
		return;
	}
	if (here && node->soft.conn != 0) {
		/* Either two processes share one folder, or the first died and its connection does
		 * not know yet. The next heartbeat tells. */
		(void)greeting_add(m, conn, hello, node->soft.heard_ms);
		return;
	}
	if (here)
		node_lose(m, node, "its process was replaced by a new one");
	node_register(m, conn, hello);
}

void node_registered(struct membership *m, const Traind__Peer__NodeHello *hello)
{
	struct node *node = state_node(m, hello->node_id);
	for (size_t i = 0; node != NULL && i < m->greetings.count; i++) {
		struct greeting *greeting = m->greetings.items[i];
		if (greeting->rival_heard_ms != UINT64_MAX ||
		    greeting->hello->node_id != hello->node_id ||
		    greeting->hello->incarnation != hello->incarnation)
			continue;
		list_remove(&m->greetings, i);
		attach(m, node, greeting->conn, greeting->hello);
		greeting_free(greeting);
		return;
	}
}

static void lose_peers(struct membership *m, struct list *peers, const struct node *node,
    const char *reason)
{
	for (size_t i = 0; i < peers->count; i++) {
		struct peer *peer = peers->items[i];
		if (peer->node == node->id)
			peer_end(m, peer, PEER_LOST, false, reason);
	}
}

void node_lose(struct membership *m, struct node *node, const char *reason)
{
	if (node->lost || node->soft.closing[0] != '\0')
		return;
	copy_text(node->soft.closing, sizeof(node->soft.closing), reason);
	action_log(m, true, "node n%llu (%s) is lost: %s", (unsigned long long)node->id,
	    node->hello->name, node->soft.closing);
	if (node->soft.conn != 0)
		action_close(m, node->soft.conn, node->soft.closing);
	if (node->soft.lifeline != 0)
		action_close(m, node->soft.lifeline, node->soft.closing);
	node->soft.conn = node->soft.lifeline = 0;
	node->soft.gone_ms = node->soft.gone_ms != 0 ? node->soft.gone_ms : m->now_ms;
	node->soft.awaited_ms = 0;
	append_gone(m, node);
	char text[REASON_MAX];
	(void)snprintf(text, sizeof(text), "node %s was lost: %.150s", node->hello->name,
	    node->soft.closing);
	for (size_t i = 0; i < m->jobs.count; i++)
		lose_peers(m, &((struct job *)m->jobs.items[i])->peers, node, text);
	for (size_t i = 0; i < m->groups.count; i++)
		lose_peers(m, &((struct group *)m->groups.items[i])->peers, node, text);
	m->dirty = true;
}

void node_leave(struct membership *m, struct node *node, const char *reason)
{
	char text[REASON_MAX];
	(void)snprintf(text, sizeof(text), "it left%s%.200s", reason[0] != '\0' ? ": " : "", reason);
	node_lose(m, node, text);
}

void node_lifeline(struct membership *m, uint64_t conn, const Traind__Peer__Lifeline *lifeline)
{
	struct node *node = state_node(m, lifeline->node_id);
	if (node == NULL || node->soft.conn == 0 || node->soft.conn == conn ||
	    node->hello->incarnation != lifeline->incarnation) {
		action_close(m, conn, "the lifeline of a node that is not here");
		return;
	}
	if (lifeline->call < node->soft.call) {
		action_close(m, conn, "the lifeline of a connection that its node has left");
		return;
	}
	uint64_t before = node->soft.lifeline;
	node->soft.lifeline = conn;
	if (before != 0 && before != conn)
		action_close(m, before, "replaced by a newer lifeline");
}

/* True: it was one. */
static bool lifeline_closed(struct membership *m, uint64_t conn)
{
	for (size_t i = 0; i < m->nodes.count; i++) {
		struct node *node = m->nodes.items[i];
		if (node->soft.lifeline != conn)
			continue;
		node->soft.lifeline = 0;
		/* Without its first connection it dials both again. */
		if (node->soft.conn != 0)
			node_lose(m, node, "its process ended (its lifeline closed)");
		return true;
	}
	return false;
}

void node_closed(struct membership *m, uint64_t conn, const char *reason)
{
	if (lifeline_closed(m, conn))
		return;
	for (size_t i = 0; i < m->greetings.count; i++) {
		if (((struct greeting *)m->greetings.items[i])->conn == conn) {
			greeting_drop(m, i);
			break;
		}
	}
	struct node *node = state_node_of_conn(m, conn);
	if (node == NULL)
		return;
	node->soft.conn = 0;
	node->soft.gone_ms = m->now_ms;
	/* It gave us up while we stood still, and is about to dial again: as after a restart. */
	if (m->woke_ms != 0 && m->now_ms - m->woke_ms < m->options.heartbeat_timeout_ms) {
		node->soft.lifeline = 0;
		node->soft.awaited_ms = m->now_ms + m->options.reconnect_grace_ms;
		m->dirty = true;
		return;
	}
	char text[REASON_MAX];
	(void)snprintf(text, sizeof(text), "its connection closed%s%.200s",
	    reason != NULL && reason[0] != '\0' ? ": " : "", reason != NULL ? reason : "");
	node_lose(m, node, text);
}

/* True: it is decided. */
static bool rival_think(struct membership *m, struct greeting *greeting)
{
	struct node *node = state_node(m, greeting->hello->node_id);
	bool here = node != NULL && !node->lost && node->soft.conn != 0;
	if (here && node->soft.heard_ms == greeting->rival_heard_ms)
		return false;
	if (here && strcmp(node->hello->name, greeting->hello->name) != 0) {
		/* Two machines: another log gave one of them that number, or its folder is a copy. */
		action_log(m, true, "%s says it is node n%llu, which is %s: it becomes a new one",
		    greeting->hello->name, (unsigned long long)node->id, node->hello->name);
		greeting->hello->node_id = 0;
		node_register(m, greeting->conn, greeting->hello);
	} else if (here) {
		char text[TR_ERROR_TEXT_MAX];
		(void)snprintf(text, sizeof(text),
		    "node n%llu (%s) is running already as pid %u at %s: give this one "
		    "its own folder, or stop that one",
		    (unsigned long long)node->id, node->hello->name, node->hello->pid,
		    node->hello->address);
		refuse(m, greeting->conn, text);
	} else {
		node_register(m, greeting->conn, greeting->hello);
	}
	return true;
}

static void nodes_lost_late(struct membership *m, struct node *node)
{
	if (node->lost || node->soft.conn != 0 || pending_any(m, PENDING_NODE, node->id))
		return;
	if (node->soft.closing[0] != '\0') {
		append_gone(m, node); /* an earlier attempt failed */
	} else if (node->soft.awaited_ms == 0) {
		node_lose(m, node, "its connection closed while it registered");
	} else if (m->now_ms >= node->soft.awaited_ms) {
		char text[REASON_MAX];
		(void)snprintf(text, sizeof(text),
		    "did not come back within %.1f s after memberd started again",
		    (double)m->options.reconnect_grace_ms / 1000.0);
		node_lose(m, node, text);
	}
}

void node_think(struct membership *m)
{
	for (size_t i = 0; i < m->nodes.count; i++)
		nodes_lost_late(m, m->nodes.items[i]);
	for (size_t i = 0; i < m->greetings.count;) {
		struct greeting *greeting = m->greetings.items[i];
		/* Deciding may add a greeting, at the end. */
		if (greeting->rival_heard_ms != UINT64_MAX && rival_think(m, greeting)) {
			greeting_drop(m, i);
			continue;
		}
		/* Its registration did not get into the log: it tries again. */
		if (greeting->rival_heard_ms == UINT64_MAX &&
		    !pending_any(m, PENDING_NODE, greeting->hello->node_id))
			append_seen(m, greeting->hello, greeting->hello->node_id);
		i++;
	}
}
