/* Health: heartbeats, silence, workers without progress. Every decision has its reason in words. */
#include <stdio.h>
#include <string.h>

#include "daemon/membership/core/state.h"

#define WAITS_OVER_MS 10000
/* An engine says them once a second, one with a thousand members of each in seven. */
#define LINKS_OLD_MS 20000
/* bytes/s: more is no measurement. */
#define RATE_MOST 1e15

static struct peer *peer_of(struct membership *m, const struct node *node,
    const Traind__Peer__PeerProgress *row)
{
	struct group *group = state_group(m, row->group);
	struct peer *peer = group != NULL ? state_group_peer(m, group, row->peer) : NULL;
	if (peer == NULL || peer->node != node->id || peer->incarnation != node->hello->incarnation)
		return NULL;
	return peer;
}

/* Of who does not know for how long it waited, as if it had been so since the last heartbeat. Heartbeats come unevenly: one of them may tell of more than has passed. */
static void take_waiting(struct peer *peer, const Traind__Peer__PeerProgress *row, uint64_t now_ms)
{
	double passed_ms = peer->soft.waits_ms == 0 ? 0 : (double)(now_ms - peer->soft.waits_ms);
	double waited_ms = row->waiting ? passed_ms : 0;
	if (passed_ms > 0 && row->waited_us > 0 && row->waited_us >= peer->soft.waited_us)
		waited_ms = (double)(row->waited_us - peer->soft.waited_us) / 1e3;
	double waits = peer->soft.waits +
	    (waited_ms - peer->soft.waits * passed_ms) / (passed_ms + WAITS_OVER_MS);
	peer->soft.waits = waits < 1 ? waits : 1;
	peer->soft.waits_ms = now_ms;
	peer->soft.waited_us = row->waited_us;
}

/* They are not said with each heartbeat; who says nothing of them for long has none any more. */
static void take_links(struct peer *peer, const Traind__Peer__PeerProgress *row, uint64_t now_ms)
{
	if (row->n_links > 0 || now_ms - peer->soft.links_ms > LINKS_OLD_MS)
		peer->soft.links_count = 0;
	if (row->n_links > 0)
		peer->soft.links_ms = now_ms;
	for (size_t i = 0; i < row->n_links && i < TR_PEER_LINKS_MAX; i++) {
		const Traind__Peer__LinkProgress *link = row->links[i];
		size_t at = peer->soft.links_count++;
		peer->soft.links[at].to = link->to;
		peer->soft.links[at].bytes_per_s = link->bytes_per_s < RATE_MOST ? link->bytes_per_s
		                                                                 : 0;
		peer->soft.links[at].sent_bytes = link->sent_bytes;
		peer->soft.links[at].rtt_us = link->rtt_us;
	}
}

static void take_row(struct membership *m, struct peer *peer, const Traind__Peer__PeerProgress *row)
{
	take_waiting(peer, row, m->now_ms);
	take_links(peer, row, m->now_ms);
	if (row->progress != peer->soft.progress || row->round != peer->soft.round ||
	    row->waiting != peer->soft.waiting) {
		peer->soft.moved_ms = m->now_ms;
		if (peer->soft.suspicion[0] != '\0') {
			action_log(m, false, "peer p%llu moves again", (unsigned long long)peer->id);
			peer->soft.suspicion[0] = '\0';
			if (peer->job != 0)
				action_changed(m, peer->job);
		}
	}
	peer->soft.progress = row->progress;
	peer->soft.round = row->round;
	peer->soft.waiting = row->waiting;
	size_t max = sizeof(peer->soft.waits_for) / sizeof(peer->soft.waits_for[0]);
	peer->soft.waits_for_count = row->n_waits_for < max ? row->n_waits_for : max;
	if (peer->soft.waits_for_count > 0)
		memcpy(peer->soft.waits_for, row->waits_for,
		    peer->soft.waits_for_count * sizeof(*peer->soft.waits_for));
}

/* So far apart are a node's heartbeats: where more silence is allowed since its way is long, a third of that, in whole intervals. */
static uint32_t beats_apart_ms(const struct membership *m, const struct node *node)
{
	uint64_t timeout_ms = health_timeout_ms(m, node),
	         step_ms = m->options.heartbeat_interval_ms;
	uint64_t third_ms = step_ms > 0 ? timeout_ms / 3 / step_ms * step_ms : 0;
	bool far = timeout_ms > m->options.heartbeat_timeout_ms && third_ms > step_ms;
	return (uint32_t)(far ? third_ms : step_ms);
}

/* Of those over a long way not each, but one in a timeout: they took a third of what heartbeats take of it. A change is said at once: who may be silent for less now beats more often before
 * that is over. */
static void acknowledge(struct membership *m, struct node *node, uint64_t sequence)
{
	Traind__Peer__ToNode message = TRAIND__PEER__TO_NODE__INIT;
	Traind__Peer__HeartbeatAck ack = TRAIND__PEER__HEARTBEAT_ACK__INIT;
	uint32_t apart_ms = beats_apart_ms(m, node);
	if (node->soft.beaten && node->soft.apart_ms == apart_ms &&
	    apart_ms > m->options.heartbeat_interval_ms &&
	    m->now_ms - node->soft.acked_ms < m->options.heartbeat_timeout_ms)
		return;
	node->soft.apart_ms = apart_ms;
	node->soft.acked_ms = m->now_ms;
	ack.sequence = sequence;
	ack.interval_ms = apart_ms;
	message.body_case = TRAIND__PEER__TO_NODE__BODY_HEARTBEAT_ACK;
	message.heartbeat_ack = &ack;
	action_send(m, node->soft.conn, &message);
}

void health_heartbeat(struct membership *m, struct node *node,
    const Traind__Peer__Heartbeat *heartbeat)
{
	/* The least of late: what the link takes when nothing queues. */
	if (heartbeat->rtt_s > 0 && heartbeat->rtt_s < 3600) {
		if (node->soft.rtt_s <= 0 || heartbeat->rtt_s < node->soft.rtt_s)
			node->soft.rtt_s = heartbeat->rtt_s;
		else
			node->soft.rtt_s += (heartbeat->rtt_s - node->soft.rtt_s) / 16;
	}
	if (heartbeat->bandwidth_bytes_per_s > 0 && heartbeat->bandwidth_bytes_per_s < RATE_MOST)
		node->soft.bandwidth = heartbeat->bandwidth_bytes_per_s;
	for (size_t i = 0; i < heartbeat->n_peers; i++) {
		struct peer *peer = peer_of(m, node, heartbeat->peers[i]);
		if (peer != NULL)
			take_row(m, peer, heartbeat->peers[i]);
		else
			action_ignored(m,
			    "a heartbeat of node n%llu about peer p%llu, which is not there",
			    (unsigned long long)node->id,
			    (unsigned long long)heartbeat->peers[i]->peer);
	}
	acknowledge(m, node, heartbeat->sequence);
	node->soft.beaten = true;
}

static void suspect(struct membership *m, struct node *node, const char *text)
{
	bool fresh = (node->soft.suspicion[0] == '\0') != (text[0] == '\0');
	copy_text(node->soft.suspicion, sizeof(node->soft.suspicion), text);
	if (!fresh)
		return;
	action_log(m, text[0] != '\0', "node n%llu (%s) %s%s", (unsigned long long)node->id,
	    node->hello->name, text[0] != '\0' ? "is suspected: " : "is heard again", text);
	for (size_t i = 0; i < m->jobs.count; i++)
		if (state_job_live(m->jobs.items[i]))
			action_changed(m, ((struct job *)m->jobs.items[i])->id);
}

/* A lost packet is sent again after about two round trips, and then again after four. */
uint64_t health_timeout_ms(const struct membership *m, const struct node *node)
{
	uint64_t far_ms = (uint64_t)(8000.0 * node->soft.rtt_s);
	return far_ms > m->options.heartbeat_timeout_ms ? far_ms : m->options.heartbeat_timeout_ms;
}

uint64_t health_doubt_ms(const struct membership *m, const struct node *node)
{
	uint64_t silent_ms = m->now_ms - node->soft.heard_ms;
	return silent_ms >= health_timeout_ms(m, node) / 2 ? silent_ms : 0;
}

static void node_silence(struct membership *m, struct node *node)
{
	char text[REASON_MAX];
	uint64_t silent_ms = m->now_ms - node->soft.heard_ms;
	uint64_t timeout_ms = health_timeout_ms(m, node);
	int used = snprintf(text, sizeof(text), "silent for %.1f s", (double)silent_ms / 1000.0);
	if (timeout_ms > m->options.heartbeat_timeout_ms)
		(void)snprintf(text + used, sizeof(text) - (size_t)used,
		    " (%.1f s are allowed: its round trip takes %.0f ms)",
		    (double)timeout_ms / 1000.0, node->soft.rtt_s * 1000.0);
	if (silent_ms >= timeout_ms)
		node_lose(m, node, text);
	else if (silent_ms >= timeout_ms / 2)
		suspect(m, node, text);
	else
		suspect(m, node, "");
}

static bool somebody_waits_for(const struct list *peers, const struct peer *peer)
{
	for (size_t i = 0; i < peers->count; i++) {
		const struct peer *other = peers->items[i];
		for (size_t k = 0;
		     other != peer && state_peer_live(other) && other->group == peer->group &&
		     other->soft.waiting && k < other->soft.waits_for_count;
		     k++)
			if (other->soft.waits_for[k] == peer->id)
				return true;
	}
	return false;
}

/* Suspected after half the time, lost after all of it. */
static void stands_still(struct membership *m, struct peer *peer, uint64_t still_ms, bool fast,
    const char *text)
{
	if (still_ms >= m->options.progress_timeout_ms) {
		peer_end(m, peer, PEER_LOST, fast, text);
		return;
	}
	if (peer->soft.suspicion[0] == '\0') {
		action_log(m, true, "peer p%llu on %s is suspected: %s",
		    (unsigned long long)peer->id, peer->node_name, text);
		if (peer->job != 0)
			action_changed(m, peer->job);
	}
	copy_text(peer->soft.suspicion, sizeof(peer->soft.suspicion), text);
}

/* Slow but moving is never evicted: it takes standing still, not waiting for anybody, and being
 * waited for. */
static void member_health(struct membership *m, struct list *peers, struct peer *peer)
{
	uint64_t still_ms = m->now_ms - peer->soft.moved_ms;
	if (peer->soft.moved_ms == 0 || peer->soft.waiting || !somebody_waits_for(peers, peer) ||
	    still_ms < m->options.progress_timeout_ms / 2)
		return;
	char text[REASON_MAX];
	(void)snprintf(text, sizeof(text), "worker made no progress for %.1f s (stopped?)",
	    (double)still_ms / 1000.0);
	stands_still(m, peer, still_ms, false, text);
}

/* On its way into a job, where others wait for it: its node is to start it, and it is to get ready or to compute. */
static void newcomer_health(struct membership *m, const struct job *job, struct peer *peer)
{
	const struct group *group = peer->group != 0 ? state_group(m, peer->group) : NULL;
	const struct node *node = state_node(m, peer->node);
	bool native = job->spec->command == NULL;
	uint64_t moved_ms = peer->soft.moved_ms;
	/* A node that starts one after the other gets to this one too. */
	if (!peer->soft.started && node != NULL && node->soft.started_ms > moved_ms)
		moved_ms = node->soft.started_ms;
	uint64_t still_ms = m->now_ms - moved_ms;
	if (peer->soft.moved_ms == 0 || (native ? peer->soft.ready : peer->soft.started) ||
	    (group != NULL && state_view_peer(group, peer->id) != NULL) ||
	    still_ms < m->options.progress_timeout_ms / 2)
		return;
	char text[REASON_MAX];
	(void)snprintf(text, sizeof(text),
	    peer->soft.started ? "worker made no progress for %.1f s before it was ready (stopped?)"
	                       : "its node has not started it for %.1f s",
	    (double)still_ms / 1000.0);
	stands_still(m, peer, still_ms, native, text);
	if (native && !state_peer_live(peer))
		native_back_off(m, state_job(m, peer->job));
}

static void group_health(struct membership *m, struct group *group)
{
	struct list *peers = state_peers(m, group);
	for (size_t i = 0; i < peers->count; i++) {
		struct peer *peer = peers->items[i];
		const struct node *node = state_node(m, peer->node);
		if (peer->group == group->id && state_peer_live(peer) && node != NULL &&
		    node->soft.conn != 0 && state_view_peer(group, peer->id) != NULL)
			member_health(m, peers, peer);
	}
}

static void job_health(struct membership *m, struct job *job)
{
	for (size_t i = 0; i < job->peers.count; i++) {
		struct peer *peer = job->peers.items[i];
		const struct node *node = state_node(m, peer->node);
		if (state_peer_live(peer) && peer->soft.missing_ms == 0 && node != NULL &&
		    node->soft.conn != 0)
			newcomer_health(m, job, peer);
	}
}

void health_think(struct membership *m)
{
	for (size_t i = 0; i < m->nodes.count; i++) {
		struct node *node = m->nodes.items[i];
		if (!node->lost && node->soft.conn != 0)
			node_silence(m, node);
	}
	for (size_t i = 0; i < m->groups.count; i++) {
		struct group *group = m->groups.items[i];
		const struct job *job = group->job != 0 ? state_job(m, group->job) : NULL;
		if (group->view != NULL && (group->job == 0 || (job != NULL && state_job_live(job))))
			group_health(m, group);
	}
	for (size_t i = 0; i < m->jobs.count; i++)
		if (state_job_live(m->jobs.items[i]))
			job_health(m, m->jobs.items[i]);
}

/* We were stopped, or starved: the silence was ours. */
void health_paused(struct membership *m, uint64_t gap_ms)
{
	for (size_t i = 0; i < m->nodes.count; i++) {
		struct node *node = m->nodes.items[i];
		if (node->soft.conn != 0)
			node->soft.heard_ms += gap_ms;
		if (node->soft.awaited_ms != 0)
			node->soft.awaited_ms += gap_ms;
		if (node->soft.started_ms != 0)
			node->soft.started_ms += gap_ms;
	}
	for (size_t i = 0; i < m->groups.count; i++) {
		struct group *group = m->groups.items[i];
		struct list *peers = state_peers(m, group);
		if (group->soft.proposal.asked)
			group->soft.proposal.deadline_ms += gap_ms;
		/* What the others have to say of it may wait in their sockets. */
		for (size_t k = 0; k < group->soft.complaints_count; k++)
			group->soft.complaints[k].due_ms += gap_ms;
		for (size_t k = 0; k < peers->count; k++) {
			struct peer *peer = peers->items[k];
			if (peer->group == group->id && peer->soft.moved_ms != 0)
				peer->soft.moved_ms += gap_ms;
		}
	}
	for (size_t i = 0; i < m->jobs.count; i++) {
		struct list *peers = &((struct job *)m->jobs.items[i])->peers;
		for (size_t k = 0; k < peers->count; k++) {
			struct peer *peer = peers->items[k];
			if (peer->group == 0 && peer->soft.moved_ms != 0) /* of a command */
				peer->soft.moved_ms += gap_ms;
			if (peer->soft.stop_ms != 0)
				peer->soft.stop_ms += gap_ms;
		}
	}
	action_log(m, true,
	    "memberd itself stood still for %.1f s: silence in that time is held against nobody",
	    (double)gap_ms / 1000.0);
}

/* A regular look as long as there is anybody to look at. */
uint64_t health_deadline_ms(const struct membership *m)
{
	bool anybody = m->greetings.count > 0;
	for (size_t i = 0; !anybody && i < m->nodes.count; i++)
		anybody = !((struct node *)m->nodes.items[i])->lost;
	for (size_t i = 0; !anybody && i < m->jobs.count; i++)
		anybody = !state_job_ended(m->jobs.items[i]);
	return anybody ? m->looked_ms + m->options.heartbeat_interval_ms : UINT64_MAX;
}
