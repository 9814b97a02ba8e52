/* The only writer of durable state. Every entry was decided by a leader that checked it; still,
 * each is checked again for what could break the state, because bytes on a disk are not to be
 * trusted with memory safety. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/membership/core/state.h"

#define LOST_NODES_MAX       64
#define LOST_NODE_KEPT_MS    (3600u * 1000u)
#define GONE_PEERS_MAX       256
#define DETAILED_LEDGERS_MAX 8 /* ended jobs whose round records are kept one by one */

static void saw_id(struct membership *m, uint64_t id)
{
	if (id >= m->next_id && id != UINT64_MAX)
		m->next_id = id + 1;
}

void apply_event(struct membership *m, struct job *job, uint64_t unix_ms, const char *text)
{
	Traind__V1__JobEvent event = TRAIND__V1__JOB_EVENT__INIT;
	char copy[TR_ERROR_TEXT_MAX];
	copy_text(copy, sizeof(copy), text);
	event.unix_ms = unix_ms;
	event.text = copy;
	Traind__V1__JobEvent *kept = copy_message(m, &event.base);
	if (kept == NULL || !list_add(m, &job->events, kept)) {
		if (kept != NULL)
			traind__v1__job_event__free_unpacked(kept, NULL);
		return;
	}
	if (job->events.count > TR_JOB_EVENTS_MAX) {
		traind__v1__job_event__free_unpacked(job->events.items[0], NULL);
		list_remove(&job->events, 0);
	}
}

static void forget_node(struct membership *m, size_t index)
{
	node_free(m->nodes.items[index]);
	list_remove(&m->nodes, index);
}

/* Processes that link the library come and go by the dozen, and nobody asks for them by their numbers. */
static bool forgotten_before(const struct node *a, const struct node *b)
{
	bool short_lived = a->hello->slots == 0, other = b->hello->slots == 0;
	return short_lived != other ? short_lived : a->changed_unix_ms < b->changed_unix_ms;
}

static void forget_lost_nodes(struct membership *m, uint64_t unix_ms)
{
	size_t lost = 0, first = 0;
	for (size_t i = m->nodes.count; i-- > 0;) {
		const struct node *node = m->nodes.items[i];
		if (node->lost && unix_ms > node->changed_unix_ms &&
		    unix_ms - node->changed_unix_ms > LOST_NODE_KEPT_MS)
			forget_node(m, i);
	}
	for (size_t i = 0; i < m->nodes.count; i++) {
		const struct node *node = m->nodes.items[i];
		if (!node->lost)
			continue;
		if (lost++ == 0 || forgotten_before(node, m->nodes.items[first]))
			first = i;
	}
	/* One more is lost at a time. */
	if (lost > LOST_NODES_MAX)
		forget_node(m, first);
}

static void apply_node_seen(struct membership *m, const Traind__Peer__NodeSeen *seen,
    uint64_t unix_ms)
{
	if (seen->hello == NULL || seen->hello->node_id == 0)
		return;
	saw_id(m, seen->hello->node_id);
	Traind__Peer__NodeHello *hello = copy_message(m, &seen->hello->base);
	if (hello == NULL)
		return;
	struct node *node = state_node(m, hello->node_id);
	if (node == NULL) {
		forget_lost_nodes(m, unix_ms);
		node = m->nodes.count < 2 * TR_NODES_MAX ? state_alloc(m, sizeof(*node)) : NULL;
		if (node == NULL || !list_add(m, &m->nodes, node)) {
			free(node);
			traind__peer__node_hello__free_unpacked(hello, NULL);
			return;
		}
		node->id = hello->node_id;
	}
	if (node->hello != NULL)
		traind__peer__node_hello__free_unpacked(node->hello, NULL);
	node->hello = hello;
	node->lost = false;
	node->reason[0] = '\0';
	node->changed_unix_ms = unix_ms;
	node_registered(m, hello);
}

static void apply_node_gone(struct membership *m, const Traind__Peer__NodeGone *gone,
    uint64_t unix_ms)
{
	struct node *node = state_node(m, gone->node_id);
	if (node == NULL || node->lost)
		return;
	node->lost = true;
	node->changed_unix_ms = unix_ms;
	copy_text(node->reason, sizeof(node->reason), gone->reason);
	node->soft.suspicion[0] = node->soft.closing[0] = '\0';
	forget_lost_nodes(m, unix_ms);
}

void apply_remove_group(struct membership *m, uint64_t id)
{
	for (size_t i = 0; i < m->groups.count; i++) {
		struct group *group = m->groups.items[i];
		if (group->id == id) {
			list_remove(&m->groups, i);
			group_free(group);
			return;
		}
	}
}

static void forget_old_job(struct membership *m)
{
	for (size_t i = 0; i < m->jobs.count; i++) {
		struct job *job = m->jobs.items[i];
		if (state_job_ended(job)) {
			apply_remove_group(m, job->group);
			list_remove(&m->jobs, i);
			job_free(job);
			return;
		}
	}
}

static void apply_submitted(struct membership *m, const Traind__Peer__JobSubmitted *submitted,
    uint64_t unix_ms)
{
	if (submitted->job_id == 0 || submitted->spec == NULL ||
	    state_job(m, submitted->job_id) != NULL)
		return;
	if (submitted->job_id >= m->next_job && submitted->job_id != UINT64_MAX)
		m->next_job = submitted->job_id + 1;
	if (m->jobs.count >= TR_JOBS_MAX)
		forget_old_job(m);
	struct job *job = state_alloc(m, sizeof(*job));
	if (job == NULL)
		return;
	job->id = submitted->job_id;
	job->spec = copy_message(m, &submitted->spec->base);
	job->ledger = submitted->spec->train != NULL ? ledger_create() : NULL;
	if (job->spec == NULL || (submitted->spec->train != NULL && job->ledger == NULL) ||
	    !list_add(m, &m->jobs, job)) {
		m->oom = true;
		job_free(job);
		return;
	}
	copy_text(job->request_id, sizeof(job->request_id), submitted->request_id);
	job->state = TRAIND__V1__JOB_STATE__JOB_STATE_QUEUED;
	job->submitted_unix_ms = unix_ms;
	apply_event(m, job, unix_ms, "submitted");
	action_changed(m, job->id);
}

struct group *apply_add_group(struct membership *m, uint64_t id, uint64_t job)
{
	struct group *group = state_alloc(m, sizeof(*group));
	if (group == NULL || !list_add(m, &m->groups, group)) {
		free(group);
		return NULL;
	}
	group->id = id;
	group->job = job;
	saw_id(m, id);
	return group;
}

/* Founders say how many workers their job has, and of which ranks: those of `now`, the group that it has, stay as long as it does. */
static void forget_gone_peers(struct membership *m, struct list *peers, uint64_t now)
{
	size_t gone = 0;
	for (size_t i = peers->count; i-- > 0;) {
		struct peer *peer = peers->items[i];
		const struct group *group = state_group(m, peer->group);
		if (peer->state == PEER_PLACED || (peer->founder && peer->group == now) ||
		    (group != NULL && state_view_peer(group, peer->id) != NULL))
			continue;
		if (++gone > GONE_PEERS_MAX) {
			list_remove(peers, i);
			peer_free(peer);
		}
	}
}

static void add_peer(struct membership *m, struct list *peers,
    const Traind__Peer__PlannedPeer *planned, uint64_t job, uint64_t group, bool founder)
{
	if (planned->peer == 0 || state_peer(peers, planned->peer) != NULL)
		return;
	struct peer *peer = state_alloc(m, sizeof(*peer));
	if (peer == NULL || !list_add(m, peers, peer)) {
		free(peer);
		return;
	}
	saw_id(m, planned->peer);
	peer->id = planned->peer;
	peer->job = job;
	peer->group = group;
	peer->node = planned->node_id;
	peer->incarnation = planned->incarnation;
	peer->rank = planned->rank;
	peer->local_rank = planned->local_rank;
	peer->founder = founder;
	copy_text(peer->address, sizeof(peer->address), planned->address);
	const struct node *node = state_node(m, planned->node_id);
	if (node != NULL)
		copy_text(peer->node_name, sizeof(peer->node_name), node->hello->name);
}

static void apply_planned(struct membership *m, const Traind__Peer__JobPlanned *planned,
    uint64_t unix_ms)
{
	struct job *job = planned->job_id != 0 ? state_job(m, planned->job_id) : NULL;
	struct group *group = planned->group != 0 ? state_group(m, planned->group) : NULL;
	bool first = job != NULL && job->state == TRAIND__V1__JOB_STATE__JOB_STATE_QUEUED;
	if (planned->n_peers > TR_GROUP_PEERS_MAX || (planned->job_id != 0 && job == NULL) ||
	    (job == NULL && (group == NULL || group->job != 0)))
		return;
	if (job != NULL && !first &&
	    (!state_job_live(job) || group == NULL || group->job != job->id))
		return;
	if (first) {
		if (planned->group != 0 &&
		    (group != NULL || apply_add_group(m, planned->group, job->id) == NULL))
			return;
		job->group = planned->group;
		job->state = TRAIND__V1__JOB_STATE__JOB_STATE_STARTING;
		job->reason[0] = '\0';
		if (job->started_unix_ms == 0)
			job->started_unix_ms = unix_ms;
		copy_text(job->master_address, sizeof(job->master_address), planned->master_address);
		job->master_port = planned->master_port;
	}
	struct list *peers = job != NULL ? &job->peers : &group->peers;
	for (size_t i = 0; i < planned->n_peers; i++) {
		add_peer(m, peers, planned->peers[i], planned->job_id, planned->group, first);
		if (job != NULL) {
			char text[REASON_MAX];
			const struct peer *peer = state_peer(peers, planned->peers[i]->peer);
			(void)snprintf(text, sizeof(text), "peer %llu (rank %u) starts on %s%s",
			    (unsigned long long)planned->peers[i]->peer, planned->peers[i]->rank,
			    peer != NULL ? peer->node_name : "?",
			    first ? ""
			        : peer != NULL && grow_is_more(job, peer)
			        ? ", as that node has come"
			        : " as a replacement");
			apply_event(m, job, unix_ms, text);
		}
	}
	forget_gone_peers(m, peers, planned->group);
	if (job != NULL)
		action_changed(m, job->id);
}

/* Ended jobs keep their sums; the records one by one are kept for the newest few only. */
static void close_old_ledgers(struct membership *m)
{
	unsigned ended = 0;
	for (size_t i = m->jobs.count; i-- > 0;) {
		struct job *job = m->jobs.items[i];
		if (!state_job_ended(job) || ++ended <= DETAILED_LEDGERS_MAX)
			continue;
		apply_remove_group(m, job->group);
		if (job->ledger != NULL)
			ledger_close(job->ledger);
	}
}

static void set_progress(struct membership *m, struct job *job, const Traind__V1__Progress *progress)
{
	Traind__V1__Progress *copy = copy_message(m, &progress->base);
	if (copy == NULL)
		return;
	/* A restart that reached a new checkpoint led somewhere. */
	if (job->progress != NULL && strcmp(copy->checkpoint, job->progress->checkpoint) != 0)
		job->stalled_restarts = 0;
	if (job->progress != NULL)
		traind__v1__progress__free_unpacked(job->progress, NULL);
	job->progress = copy;
}

/* Its workers until the next time are told the same checkpoint, those too that come when there are newer ones: what they agree on counts from there. */
static void apply_requeued(struct membership *m, struct job *job, const Traind__V1__Progress *from)
{
	if (state_job_trained(job))
		job->fast_deaths = 0; /* of those who came later: they say nothing about its beginning */
	apply_remove_group(m, job->group);
	job->group = 0;
	job->view = 0;
	job->restarts++;
	free(job->goes_on_from);
	job->goes_on_from = from != NULL && from->checkpoint[0] != '\0'
	    ? copy_string(m, from->checkpoint)
	    : NULL;
	job->stalled_restarts++;
	job->soft.gone_ms = 0;
	job->soft.late.refused = (struct joining_refused){ 0 };
	job->soft.late.told_step = 0;
	if (job->soft.progress != NULL)
		traind__v1__progress__free_unpacked(job->soft.progress, NULL);
	job->soft.progress = NULL;
}

static void apply_job_moved(struct membership *m, const Traind__Peer__JobMoved *moved,
    uint64_t unix_ms)
{
	struct job *job = state_job(m, moved->job_id);
	if (job == NULL || !job_move_legal(job->state, moved->state))
		return;
	uint64_t group = job->group;
	if (moved->state == TRAIND__V1__JOB_STATE__JOB_STATE_QUEUED)
		apply_requeued(m, job, moved->progress);
	job->state = moved->state;
	if (!state_job_live(job))
		peer_left_over(m, job, group);
	copy_text(job->reason, sizeof(job->reason), moved->reason);
	job->exit_code = moved->exit_code;
	if (moved->progress != NULL)
		set_progress(m, job, moved->progress);
	if (state_job_ended(job)) {
		job->ended_unix_ms = unix_ms;
		close_old_ledgers(m);
	}
	char text[TR_ERROR_TEXT_MAX + 32];
	(void)snprintf(text, sizeof(text), "%s%s%s", job_state_name(job->state),
	    job->reason[0] != '\0' ? ": " : "", job->reason);
	apply_event(m, job, unix_ms, text);
	action_changed(m, job->id);
}

static void apply_peer_moved(struct membership *m, const Traind__Peer__PeerMoved *moved,
    uint64_t unix_ms)
{
	struct job *job = moved->job_id != 0 ? state_job(m, moved->job_id) : NULL;
	struct group *group = moved->job_id == 0 ? state_group(m, moved->group) : NULL;
	struct list *peers = job != NULL ? &job->peers : group != NULL ? &group->peers : NULL;
	struct peer *peer = peers != NULL ? state_peer(peers, moved->peer) : NULL;
	bool finished = strcmp(moved->state, "finished") == 0;
	if (peer == NULL || peer->state != PEER_PLACED ||
	    (!finished && strcmp(moved->state, "lost") != 0))
		return;
	peer->state = finished ? PEER_FINISHED : PEER_LOST;
	peer->exit_code = moved->exit_code;
	peer->refusal = (struct refusal){ moved->refused_round, moved->refused_status };
	copy_text(peer->reason, sizeof(peer->reason), moved->reason);
	if (job != NULL) {
		char text[REASON_MAX + TR_NAME_MAX + 64];
		if (moved->fast && !grow_is_more(job, peer))
			job->fast_deaths++;
		(void)snprintf(text, sizeof(text), "peer %llu (rank %u on %s) %s%s%s",
		    (unsigned long long)peer->id, peer->rank, peer->node_name,
		    finished ? "finished" : "was lost", peer->reason[0] != '\0' ? ": " : "",
		    peer->reason);
		apply_event(m, job, unix_ms, text);
		action_changed(m, job->id);
		return;
	}
	for (size_t i = 0; i < group->peers.count; i++)
		if (((struct peer *)group->peers.items[i])->state == PEER_PLACED)
			return;
	apply_remove_group(m, group->id); /* nobody is left: the name is free again */
}

static void apply_note(struct membership *m, const Traind__Peer__JobNote *note, uint64_t unix_ms)
{
	struct job *job = state_job(m, note->job_id);
	if (job == NULL)
		return;
	if (note->text[0] != '\0')
		apply_event(m, job, unix_ms, note->text);
	if (note->progress != NULL)
		set_progress(m, job, note->progress);
	action_changed(m, job->id);
}

void apply_entry(struct membership *m, const Traind__Peer__LogEntry *entry)
{
	switch (entry->body_case) {
	case TRAIND__PEER__LOG_ENTRY__BODY_NODE_SEEN:
		apply_node_seen(m, entry->node_seen, entry->unix_ms);
		break;
	case TRAIND__PEER__LOG_ENTRY__BODY_NODE_GONE:
		apply_node_gone(m, entry->node_gone, entry->unix_ms);
		break;
	case TRAIND__PEER__LOG_ENTRY__BODY_JOB_SUBMITTED:
		apply_submitted(m, entry->job_submitted, entry->unix_ms);
		break;
	case TRAIND__PEER__LOG_ENTRY__BODY_JOB_PLANNED:
		apply_planned(m, entry->job_planned, entry->unix_ms);
		break;
	case TRAIND__PEER__LOG_ENTRY__BODY_JOB_MOVED:
		apply_job_moved(m, entry->job_moved, entry->unix_ms);
		break;
	case TRAIND__PEER__LOG_ENTRY__BODY_PEER_MOVED:
		apply_peer_moved(m, entry->peer_moved, entry->unix_ms);
		break;
	case TRAIND__PEER__LOG_ENTRY__BODY_VIEW:
		apply_view(m, entry->view, entry->unix_ms);
		break;
	case TRAIND__PEER__LOG_ENTRY__BODY_ROUNDS:
		apply_rounds(m, entry->rounds, entry->unix_ms);
		break;
	case TRAIND__PEER__LOG_ENTRY__BODY_JOB_NOTE:
		apply_note(m, entry->job_note, entry->unix_ms);
		break;
	case TRAIND__PEER__LOG_ENTRY__BODY_GROUP_FOUNDED:
		apply_founded(m, entry->group_founded);
		break;
	case TRAIND__PEER__LOG_ENTRY__BODY_VIEW_PROPOSED:
		apply_proposed(m, entry->view_proposed);
		break;
	case TRAIND__PEER__LOG_ENTRY__BODY_IDS_RESERVED:
		if (entry->ids_reserved->below > m->next_id)
			m->next_id = entry->ids_reserved->below;
		break;
	default:
		break; /* from a newer version: it cannot concern what we know */
	}
}
