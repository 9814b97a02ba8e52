/* What the API shows. That memory ran out for an answer says nothing about the state: `oom` stays as it was. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/membership/core/state.h"

/* A peer is slow when the others wait at least this share of their time, and it at most this part of what they do. */
#define SLOW_OTHERS_WAIT 0.2
#define SLOW_WAITS_LESS  0.25

/* Of a job, or one of each peer: who watches it is sent them ten times a second. */
#define LINKS_SHOWN_MAX 512

/* In the view, while its state is on its way, gradually (install.c): it gives nothing to any round. */
static bool is_arriving(const struct membership *m, const struct peer *peer)
{
	const struct group *group = state_group(m, peer->group);
	const Traind__Peer__ViewPeer *row = group != NULL ? state_view_peer(group, peer->id) : NULL;
	return row != NULL && row->contribute_from == TR_ROUND_LATER;
}

static const char *peer_state_name(const struct membership *m, const struct peer *peer)
{
	const struct group *group = state_group(m, peer->group);
	const struct node *node = state_node(m, peer->node);
	if (peer->state == PEER_LOST || peer->soft.fate == PEER_LOST)
		return "lost";
	if (peer->state == PEER_FINISHED || peer->soft.fate == PEER_FINISHED)
		return "finished";
	if (peer->soft.suspicion[0] != '\0' || (node != NULL && node->soft.suspicion[0] != '\0'))
		return "suspected";
	if (peer->group == 0)
		return peer->soft.started ? "active" : "starting";
	if (group != NULL && state_view_peer(group, peer->id) != NULL)
		return is_arriving(m, peer) ? "joining" : "active";
	return peer->soft.ready ? "joining" : "starting";
}

static const char *peer_reason(const struct membership *m, const struct peer *peer)
{
	const struct node *node = state_node(m, peer->node);
	if (peer->state != PEER_PLACED)
		return peer->reason;
	if (peer->soft.fate != PEER_PLACED)
		return peer->soft.reason;
	if (peer->soft.suspicion[0] != '\0')
		return peer->soft.suspicion;
	if (node != NULL && node->soft.suspicion[0] != '\0')
		return node->soft.suspicion;
	return is_arriving(m, peer) ? "its state is on its way" : "";
}

static void fill_peer(const struct membership *m, struct peer *peer, Traind__V1__Peer *row,
    char state[16], char reason[REASON_MAX])
{
	traind__v1__peer__init(row);
	copy_text(state, 16, peer_state_name(m, peer));
	copy_text(reason, REASON_MAX, peer_reason(m, peer));
	row->id = peer->id;
	row->node_id = peer->node;
	row->node_name = peer->node_name;
	row->rank = peer->rank;
	row->pid = peer->soft.pid;
	row->state = state;
	row->reason = reason;
	row->round = peer->soft.round;
	row->waits = peer->soft.waits;
	row->waited_s = 1e-6 * (double)peer->soft.waited_us;
	const struct node *node = state_node(m, peer->node);
	if (node != NULL && !node->lost && state_peer_live(peer)) {
		row->rtt_s = node->soft.rtt_s;
		row->bandwidth_bytes_per_s = node->soft.bandwidth;
	}
}

/* Those that the others wait for: they themselves hardly wait. */
static void mark_slow(Traind__V1__Peer **rows, size_t count)
{
	double all = 0;
	unsigned active = 0;
	for (size_t i = 0; i < count; i++) {
		bool counts = strcmp(rows[i]->state, "active") == 0;
		active += counts;
		all += counts ? rows[i]->waits : 0;
	}
	for (size_t i = 0; i < count && active > 1; i++) {
		double others = (all - rows[i]->waits) / (active - 1);
		rows[i]->slow = strcmp(rows[i]->state, "active") == 0 &&
		    others >= SLOW_OTHERS_WAIT && rows[i]->waits <= SLOW_WAITS_LESS * others;
	}
}

struct peer_row {
	Traind__V1__Peer row;
	char state[16], reason[REASON_MAX];
	Traind__V1__PeerLink links[TR_PEER_LINKS_MAX], *link_list[TR_PEER_LINKS_MAX];
};

/* Whom it cannot reach any more is none of its links. */
static void fill_links(const struct membership *m, const struct job *job, const struct peer *peer,
    size_t most, struct peer_row *row)
{
	row->row.links = row->link_list;
	for (size_t i = 0; i < peer->soft.links_count && row->row.n_links < most; i++) {
		const struct peer *to = state_peer(&job->peers, peer->soft.links[i].to);
		Traind__V1__PeerLink *link = &row->links[row->row.n_links];
		if (to == NULL || strcmp(peer_state_name(m, to), "lost") == 0)
			continue;
		traind__v1__peer_link__init(link);
		link->peer = to->id;
		link->bandwidth_bytes_per_s = (double)peer->soft.links[i].bytes_per_s;
		link->rtt_s = 1e-6 * peer->soft.links[i].rtt_us;
		link->sent_bytes = peer->soft.links[i].sent_bytes;
		row->link_list[row->row.n_links++] = link;
	}
}

static void fill_all_links(const struct membership *m, const struct job *job, struct peer_row *rows)
{
	size_t there = 0;
	for (size_t i = 0; i < job->peers.count; i++)
		there += strcmp(rows[i].state, "lost") != 0;
	if (there == 0)
		return;
	size_t most = there < LINKS_SHOWN_MAX ? LINKS_SHOWN_MAX / there : 1;
	for (size_t i = 0; i < job->peers.count; i++)
		if (strcmp(rows[i].state, "lost") != 0)
			fill_links(m, job, job->peers.items[i], most, &rows[i]);
}

/* Why it is where it is: what it waits for counts more than how it came there. */
static const char *job_reason(const struct membership *m, const struct job *job)
{
	const struct group *group = state_group(m, job->group);
	if (state_job_ended(job))
		return job->reason;
	if (job->soft.waiting[0] != '\0')
		return job->soft.waiting;
	if (group != NULL && group->soft.waiting[0] != '\0')
		return group->soft.waiting;
	return job->reason;
}

static void fill_job(const struct membership *m, struct job *job, bool with_events,
    Traind__V1__Job *row, Traind__V1__Progress *progress, char reason[TR_ERROR_TEXT_MAX])
{
	traind__v1__job__init(row);
	copy_text(reason, TR_ERROR_TEXT_MAX, job_reason(m, job));
	row->id = job->id;
	row->spec = job->spec;
	row->state = job->state;
	row->reason = reason;
	row->submitted_unix_ms = job->submitted_unix_ms;
	row->started_unix_ms = job->started_unix_ms;
	row->ended_unix_ms = job->ended_unix_ms;
	const Traind__V1__Progress *newest = job->soft.progress != NULL ? job->soft.progress
	                                                                : job->progress;
	if (newest != NULL) {
		*progress = *newest;
		progress->samples = NULL; /* large, and membership_samples says it better */
		row->progress = progress;
	}
	row->view = job->view;
	row->exit_code = job->exit_code;
	row->restarts = job->restarts;
	if (with_events) {
		row->events = (Traind__V1__JobEvent **)job->events.items;
		row->n_events = job->events.count;
	}
}

Traind__V1__Job *membership_job(const struct membership *membership, uint64_t id, bool with_events)
{
	struct membership *m = (struct membership *)(uintptr_t)
	    membership; /* for copy_message's flag */
	struct job *job = state_job(m, id);
	bool oom = m->oom;
	if (job == NULL)
		return NULL;
	Traind__V1__Job facts, *copy = NULL;
	Traind__V1__Progress progress;
	char reason[TR_ERROR_TEXT_MAX], digest[TR_DIGEST_HEX_MAX];
	Traind__V1__RoundAccount account = TRAIND__V1__ROUND_ACCOUNT__INIT;
	struct peer_row *peers = calloc(job->peers.count + 1, sizeof(*peers));
	Traind__V1__Peer **rows = calloc(job->peers.count + 1, sizeof(Traind__V1__Peer *));
	if (peers == NULL || rows == NULL)
		goto out;
	fill_job(m, job, with_events, &facts, &progress, reason);
	for (size_t i = 0; i < job->peers.count; i++) {
		fill_peer(m, job->peers.items[i], &peers[i].row, peers[i].state, peers[i].reason);
		rows[i] = &peers[i].row;
	}
	if (with_events)
		fill_all_links(m, job, peers);
	mark_slow(rows, job->peers.count);
	facts.peers = rows;
	facts.n_peers = job->peers.count;
	if (job->ledger != NULL) {
		ledger_account(job->ledger, &account, digest);
		facts.rounds = &account;
	}
	copy = copy_message(m, &facts.base);
	m->oom = oom;
out:
	free(rows);
	free(peers);
	return copy;
}

Traind__V1__ListJobsResponse *membership_jobs(const struct membership *m)
{
	Traind__V1__ListJobsResponse *response = malloc(sizeof(*response));
	if (response == NULL)
		return NULL;
	traind__v1__list_jobs_response__init(response);
	response->jobs = calloc(m->jobs.count + 1, sizeof(*response->jobs));
	/* No more than fits into an answer: a list of thousands of large jobs would be copied in vain. */
	size_t bytes = 0;
	for (size_t i = m->jobs.count;
	     response->jobs != NULL && i-- > 0 && bytes <= TR_GRPC_MESSAGE_MAX;) {
		const struct job *job = m->jobs.items[i];
		Traind__V1__Job *row = membership_job(m, job->id, false);
		if (row == NULL)
			continue;
		response->jobs[response->n_jobs++] = row;
		bytes += traind__v1__job__get_packed_size(row);
	}
	return response;
}

static size_t workers_of(const struct membership *m, const struct node *node,
    Traind__V1__Worker *workers, size_t max)
{
	size_t count = 0;
	for (size_t i = 0; i < m->jobs.count; i++) {
		const struct job *job = m->jobs.items[i];
		for (size_t k = 0; k < job->peers.count && count < max; k++) {
			const struct peer *peer = job->peers.items[k];
			if (peer->node != node->id || !state_peer_live(peer))
				continue;
			traind__v1__worker__init(&workers[count]);
			workers[count].job_id = job->id;
			workers[count].peer_id = peer->id;
			workers[count].rank = peer->rank;
			workers[count++].pid = peer->soft.pid;
		}
	}
	return count;
}

static Traind__V1__Node *read_node(struct membership *m, struct node *node, uint64_t now_ms)
{
	Traind__V1__Node row = TRAIND__V1__NODE__INIT;
	char state[16], reason[REASON_MAX];
	Traind__V1__Worker *workers = calloc(TR_NODE_WORKERS_MAX, sizeof(*workers));
	Traind__V1__Worker **rows = calloc(TR_NODE_WORKERS_MAX, sizeof(Traind__V1__Worker *));
	Traind__V1__Node *copy = NULL;
	bool oom = m->oom;
	if (workers == NULL || rows == NULL)
		goto out;
	bool lost = node->lost || node->soft.closing[0] != '\0';
	bool away = !lost && node->soft.conn == 0;
	const char *why = node->lost ? node->reason
	    : lost                   ? node->soft.closing
	    : away                   ? "has not come back yet after memberd started again"
	                             : node->soft.suspicion;
	copy_text(state, sizeof(state), lost ? "lost" : why[0] != '\0' ? "suspected" : "alive");
	copy_text(reason, sizeof(reason), why);
	row.id = node->id;
	row.name = node->hello->name;
	row.address = node->hello->address;
	row.pid = node->hello->pid;
	row.state = state;
	row.reason = reason;
	row.slots = node->hello->slots;
	row.cores = node->hello->cores;
	row.memory_bytes = node->hello->memory_bytes;
	row.devices = node->hello->devices;
	row.n_devices = node->hello->n_devices;
	row.version = node->hello->version;
	if (node->soft.conn != 0 && now_ms > node->soft.heard_ms)
		row.heartbeat_age_s = (double)(now_ms - node->soft.heard_ms) / 1000.0;
	row.n_workers = workers_of(m, node, workers, TR_NODE_WORKERS_MAX);
	for (size_t i = 0; i < row.n_workers; i++)
		rows[i] = &workers[i];
	row.workers = rows;
	copy = copy_message(m, &row.base);
	m->oom = oom;
out:
	free(rows);
	free(workers);
	return copy;
}

Traind__V1__ListNodesResponse *membership_nodes(const struct membership *membership, uint64_t now_ms)
{
	struct membership *m = (struct membership *)(uintptr_t)
	    membership; /* for copy_message's flag */
	Traind__V1__ListNodesResponse *response = malloc(sizeof(*response));
	if (response == NULL)
		return NULL;
	traind__v1__list_nodes_response__init(response);
	response->nodes = calloc(m->nodes.count + 1, sizeof(*response->nodes));
	for (size_t i = 0; response->nodes != NULL && i < m->nodes.count; i++) {
		Traind__V1__Node *row = read_node(m, m->nodes.items[i], now_ms);
		if (row != NULL)
			response->nodes[response->n_nodes++] = row;
	}
	return response;
}

size_t membership_log_places(const struct membership *m, uint64_t id, bool one_rank, uint32_t rank,
    struct membership_log_place *places, size_t max)
{
	const struct job *job = state_job(m, id);
	size_t count = 0;
	for (size_t i = job != NULL ? job->peers.count : 0; i-- > 0 && count < max;) {
		const struct peer *peer = job->peers.items[i];
		const struct node *node = state_node(m, peer->node);
		if (one_rank && peer->rank != rank)
			continue;
		places[count] = (struct membership_log_place){ .peer = peer->id,
			.rank = peer->rank };
		places[count].conn = node != NULL && !node->lost ? node->soft.conn : 0;
		copy_text(places[count].node_name, sizeof(places[count].node_name), peer->node_name);
		count++;
	}
	return count;
}
