/* Peers: told to start, started, ready, ended; and the end is durable. */
#include <stdio.h>
#include <string.h>

#include "daemon/membership/core/exit_words.h"
#include "daemon/membership/core/state.h"

#define STOP_PATIENCE_MS (TR_WORKER_TERM_GRACE_MS + 10000u)
#define SIGNATURE_MAX    (1u << 20)
#define GAVE_UP          "its engine gave up: "

static void append_moved(struct membership *m, struct peer *peer)
{
	Traind__Peer__LogEntry entry = TRAIND__PEER__LOG_ENTRY__INIT;
	Traind__Peer__PeerMoved moved = TRAIND__PEER__PEER_MOVED__INIT;
	moved.job_id = peer->job;
	moved.group = peer->group;
	moved.peer = peer->id;
	moved.state = peer->soft.fate == PEER_FINISHED ? "finished" : "lost";
	moved.reason = peer->soft.reason;
	moved.fast = peer->soft.fast;
	moved.exit_code = peer->soft.exit_code;
	moved.refused_round = peer->soft.refusal.round;
	moved.refused_status = peer->soft.refusal.status;
	entry.body_case = TRAIND__PEER__LOG_ENTRY__BODY_PEER_MOVED;
	entry.peer_moved = &moved;
	/* Of a refused round there is no view: nothing would follow. */
	if (peer->soft.fate == PEER_LOST && peer->soft.refusal.round == 0)
		action_append_before_view(m, &entry, PENDING_PEER, peer->id);
	else
		action_append(m, &entry, PENDING_PEER, peer->id, NULL);
}

static void send_stop(struct membership *m, uint64_t conn, uint64_t job, uint64_t peer,
    const char *reason)
{
	Traind__Peer__ToNode message = TRAIND__PEER__TO_NODE__INIT;
	Traind__Peer__StopWorker stop = TRAIND__PEER__STOP_WORKER__INIT;
	char text[REASON_MAX];
	copy_text(text, sizeof(text), reason);
	stop.job_id = job;
	stop.peer = peer;
	stop.reason = text;
	stop.grace_ms = TR_WORKER_TERM_GRACE_MS;
	message.body_case = TRAIND__PEER__TO_NODE__BODY_STOP_WORKER;
	message.stop_worker = &stop;
	action_send(m, conn, &message);
}

static void send_evicted(struct membership *m, uint64_t conn, uint64_t group, uint64_t peer,
    const char *reason, int32_t status, bool refuses)
{
	Traind__Peer__ToNode message = TRAIND__PEER__TO_NODE__INIT;
	Traind__Peer__PeerEvicted evicted = TRAIND__PEER__PEER_EVICTED__INIT;
	char text[REASON_MAX];
	copy_text(text, sizeof(text), reason);
	evicted.group = group;
	evicted.peer = peer;
	evicted.reason = text;
	evicted.status = status;
	evicted.refuses = refuses;
	message.body_case = TRAIND__PEER__TO_NODE__BODY_PEER_EVICTED;
	message.peer_evicted = &evicted;
	action_send(m, conn, &message);
}

/* Out with it: first the engine's member, then the process. */
static void tell_to_stop(struct membership *m, struct peer *peer, uint64_t conn, const char *reason)
{
	if (peer->soft.stop_conn == conn)
		return;
	peer->soft.stop_conn = conn;
	if (peer->soft.stop_ms == 0)
		peer->soft.stop_ms = m->now_ms;
	peer->soft.stopping = peer->job != 0;
	if (peer->group != 0)
		send_evicted(m, conn, peer->group, peer->id, reason, peer->soft.refusal.status,
		    peer->soft.refuses);
	if (peer->job != 0)
		send_stop(m, conn, peer->job, peer->id, reason);
}

static bool is_ending(const struct membership *m, const struct peer *peer)
{
	const struct node *node = state_node(m, peer->node);
	return !state_peer_live(peer) && peer->soft.stopping && node != NULL &&
	    node->soft.conn == peer->soft.stop_conn &&
	    m->now_ms < peer->soft.stop_ms + STOP_PATIENCE_MS;
}

bool peer_holds_slot(const struct membership *m, const struct peer *peer)
{
	return state_peer_live(peer) || is_ending(m, peer);
}

bool peer_may_say_why(const struct membership *m, const struct peer *peer)
{
	return peer->soft.refuses && is_ending(m, peer);
}

void peer_end(struct membership *m, struct peer *peer, enum peer_state fate, bool fast,
    const char *reason)
{
	if (!state_peer_live(peer))
		return;
	peer->soft.fate = fate;
	peer->soft.fast = fast;
	copy_text(peer->soft.reason, sizeof(peer->soft.reason), reason);
	action_log(m, fate == PEER_LOST, "peer p%llu (job %llu, rank %u, on %s) %s%s%s",
	    (unsigned long long)peer->id, (unsigned long long)peer->job, peer->rank,
	    peer->node_name, fate == PEER_FINISHED ? "finished" : "is lost",
	    reason[0] != '\0' ? ": " : "", reason);
	append_moved(m, peer);
	const struct node *node = state_node(m, peer->node);
	if (fate == PEER_LOST && node != NULL && node->soft.conn != 0)
		tell_to_stop(m, peer, node->soft.conn, peer->soft.reason);
	m->dirty = true;
	struct job *job = peer->job != 0 ? state_job(m, peer->job) : NULL;
	if (job != NULL && fate == PEER_LOST)
		job->soft.last_lost = peer->id;
	if (peer->job != 0)
		action_changed(m, peer->job);
}

void peer_end_without_state(struct membership *m, struct peer *peer)
{
	struct job *job = peer->job != 0 ? state_job(m, peer->job) : NULL;
	uint64_t last_lost = job != NULL ? job->soft.last_lost : 0;
	peer_end(m, peer, PEER_LOST, false, "every peer that held the state was lost");
	if (job != NULL)
		job->soft.last_lost = last_lost;
}

/* The job's or group's peer that this node hosts; NULL: ignored, with a line. */
static struct peer *hosted(struct membership *m, const struct node *node, uint64_t job_id,
    uint64_t group_id, uint64_t peer_id, const char *what)
{
	struct job *job = job_id != 0 ? state_job(m, job_id) : NULL;
	struct group *group = job == NULL && group_id != 0 ? state_group(m, group_id) : NULL;
	struct list *peers = job != NULL ? &job->peers
	    : group != NULL              ? state_peers(m, group)
	                                 : NULL;
	struct peer *peer = peers != NULL ? state_peer(peers, peer_id) : NULL;
	if (peer != NULL && peer->node == node->id && peer->incarnation == node->hello->incarnation)
		return peer;
	action_ignored(m, "%s from node n%llu about peer p%llu, which is not there", what,
	    (unsigned long long)node->id, (unsigned long long)peer_id);
	return NULL;
}

void peer_started(struct membership *m, struct node *node,
    const Traind__Peer__WorkerStarted *started)
{
	struct peer *peer = hosted(m, node, started->job_id, 0, started->peer, "WorkerStarted");
	if (peer == NULL || started->job_id == 0)
		return;
	peer->soft.started = true;
	peer->soft.moved_ms = node->soft.started_ms = m->now_ms;
	peer->soft.pid = started->pid;
	peer->soft.missing_ms = 0;
	action_changed(m, peer->job);
}

static bool got_over_its_start(const struct membership *m, const struct peer *peer)
{
	const struct group *group = state_group(m, peer->group);
	const Traind__Peer__ViewPeer *in = group != NULL ? state_view_peer(group, peer->id) : NULL;
	return peer->worked || (in != NULL && peer->soft.round > in->participate_from);
}

void peer_exited(struct membership *m, struct node *node, const Traind__Peer__WorkerExited *exited)
{
	struct peer *peer = hosted(m, node, exited->job_id, 0, exited->peer, "WorkerExited");
	struct job *job = peer != NULL && peer->job != 0 ? state_job(m, peer->job) : NULL;
	if (job == NULL)
		return;
	peer->soft.stop_conn = node->soft.conn; /* nothing is left to stop */
	peer->soft.stopping = false;
	m->dirty = true;
	if (!state_peer_live(peer)) {
		facts_left(m, peer, exited->last_words);
		return;
	}
	facts_last_words(m, node, peer, exited->last_words);
	char reason[REASON_MAX];
	exit_words(exited, reason, sizeof(reason));
	bool well = exited->exit_code == 0 && exited->signal == 0;
	const struct group *group = state_group(m, peer->group);
	/* A native worker that leaves before it trained has not finished anything. */
	bool idle = job->spec->train != NULL &&
	    (group == NULL || state_view_peer(group, peer->id) == NULL);
	if (well && !(idle && state_job_live(job))) {
		peer_end(m, peer, PEER_FINISHED, false, "");
		return;
	}
	/* A kill from outside while the job gets on is churn and says nothing about the job. */
	bool churn = exited->signal == 9 && job->ledger != NULL && ledger_recorded(job->ledger) > 0;
	bool fast = state_job_live(job) && !churn && !got_over_its_start(m, peer);
	if (job->spec->command != NULL && state_job_live(job)) {
		peer->soft.exit_code = exited->signal != 0 ? 128 + exited->signal
		                                           : exited->exit_code;
		command_exited(m, job, peer, peer->soft.exit_code, reason);
	}
	peer_end(m, peer, PEER_LOST, fast, reason);
	if (grow_is_more(job, peer))
		grow_lost(m, job);
	else if (fast)
		native_back_off(m, job);
}

/* All members of a group declare the same state; the first to be ready sets it. */
static const struct peer *differs_from(struct membership *m, const struct group *group,
    const struct peer *peer, struct tr_digest signature)
{
	const struct list *peers = state_peers(m, group);
	for (size_t i = 0; i < peers->count; i++) {
		const struct peer *other = peers->items[i];
		if (other != peer && other->group == group->id && state_peer_live(other) &&
		    other->soft.signed_state && !tr_digest_equal(other->soft.signature, signature))
			return other;
	}
	return NULL;
}

void peer_ready(struct membership *m, struct node *node, const Traind__Peer__PeerReady *ready)
{
	struct peer *peer = hosted(m, node, 0, ready->group, ready->peer, "PeerReady");
	if (peer == NULL || peer->group != ready->group || !state_peer_live(peer))
		return;
	const struct group *group = state_group(m, peer->group);
	struct tr_digest signature = tr_digest_of(ready->state_signature,
	    strlen(ready->state_signature));
	const struct peer *other = group != NULL ? differs_from(m, group, peer, signature) : NULL;
	if (other != NULL) {
		char text[REASON_MAX];
		(void)snprintf(text, sizeof(text),
		    "its state has other names or sizes than that of peer p%llu on %s",
		    (unsigned long long)other->id, other->node_name);
		peer_end(m, peer, PEER_LOST, true, text);
		return;
	}
	if (ready->round >= UINT64_MAX / 2) {
		action_ignored(m, "PeerReady of peer p%llu with round %llu",
		    (unsigned long long)peer->id, (unsigned long long)ready->round);
		return;
	}
	if (!peer->soft.ready)
		latecomer_started(m, peer);
	peer->soft.signature = signature;
	peer->soft.signed_state = true;
	peer->soft.started = peer->soft.ready = true;
	peer->soft.ready_round = ready->round;
	peer->soft.gradual = ready->gradual;
	peer->soft.left_next = ready->left && ready->left_round < UINT64_MAX / 2
	    ? ready->left_round + 1
	    : 0;
	peer->soft.missing_ms = 0;
	m->dirty = true;
	if (peer->job != 0)
		action_changed(m, peer->job);
}

void peer_failed(struct membership *m, struct node *node, const Traind__Peer__PeerFailed *failed)
{
	struct peer *peer = hosted(m, node, 0, failed->group, failed->peer, "PeerFailed");
	if (peer == NULL || peer->group != failed->group)
		return;
	char text[REASON_MAX];
	(void)snprintf(text, sizeof(text), GAVE_UP "%.200s",
	    failed->reason[0] != '\0' ? failed->reason : tr_status_text((tr_status)failed->status));
	if (state_peer_live(peer) && failed->refused_round != 0)
		peer->soft.refusal = (struct refusal){ failed->refused_round, failed->status };
	peer->soft.refuses = true;
	peer_end(m, peer, PEER_LOST, !got_over_its_start(m, peer), text);
}

/* Or of the one after it, where who was a round behind is to finish this one: it would go on with the refused one, without those who gave up. */
static bool refuses(const struct refusal *refusal, uint64_t round)
{
	return refusal->round == round || refusal->round == round + 1;
}

/* The member of the view that gave up because of this round; NULL: none did. */
static const struct peer *refuser(const struct membership *m, const struct group *group,
    uint64_t round)
{
	const struct list *peers = state_peers(m, group);
	for (size_t i = 0; i < peers->count; i++) {
		const struct peer *peer = peers->items[i];
		bool gave_up = refuses(&peer->refusal, round) ||
		    (!state_peer_live(peer) && refuses(&peer->soft.refusal, round));
		if (gave_up && peer->group == group->id && state_view_peer(group, peer->id) != NULL)
			return peer;
	}
	return NULL;
}

/* Members tell each other too, but who freezes for a view without the one that gave up may read that too late, or never: it would finish the round
 * in that view as if the other had died. The view comes from us alone, and who gave up is in no later one than its last words are about (a report is
 * the last that a frozen member says of its view, and who gave up makes none): so whoever is to get a view without it can be told here. By the
 * members' reports the round is still under way, so it is taken from nobody who has committed it; one of an older view that others got over is not
 * the next. First the refusal has to be in the log, else one member could be told and, after a restart, another one go on. */
bool peer_refused(struct membership *m, struct group *group, uint64_t round)
{
	const struct peer *by = refuser(m, group, round);
	const struct proposal *proposal = &group->soft.proposal;
	if (by == NULL)
		return false;
	if (by->state == PEER_PLACED)
		return true; /* its entry is on its way */
	bool prefixed = strncmp(by->reason, GAVE_UP, strlen(GAVE_UP)) == 0;
	const char *reason = by->reason + (prefixed ? strlen(GAVE_UP) : 0);
	for (size_t i = 0; i < proposal->count; i++) {
		struct peer *peer = state_group_peer(m, group, proposal->members[i].peer);
		if (peer == NULL || !state_peer_live(peer))
			continue;
		/* Who was about to enter said nothing of the round: no death of its own. */
		bool fast = state_view_peer(group, peer->id) != NULL &&
		    !got_over_its_start(m, peer);
		peer->soft.refusal = by->refusal;
		peer->soft.refuses = true;
		peer_end(m, peer, PEER_LOST, fast, reason);
	}
	return true;
}

void peer_installed(struct membership *m, struct node *node,
    const Traind__Peer__ViewInstalled *installed)
{
	struct peer *peer = hosted(m, node, 0, installed->group, installed->peer, "ViewInstalled");
	if (peer != NULL && peer->group == installed->group)
		peer->soft.view = installed->view;
}

static void start(struct membership *m, struct peer *peer, const struct node *node)
{
	peer->soft.start_conn = node->soft.conn;
	peer->soft.start_ms = peer->soft.moved_ms = m->now_ms;
	if (peer->job != 0)
		start_worker(m, state_job(m, peer->job), peer, node->soft.conn);
	else
		start_joined(m, state_group(m, peer->group), peer, node->soft.conn);
}

/* Its node came back without it, and did not say in time how it ended. */
static void missing(struct membership *m, struct peer *peer, const struct job *job)
{
	const struct group *group = state_group(m, peer->group);
	bool ran = peer->soft.started || peer->job == 0 ||
	    (group != NULL && state_view_peer(group, peer->id) != NULL) ||
	    (job != NULL && peer->group == 0 &&
	        job->state != TRAIND__V1__JOB_STATE__JOB_STATE_STARTING);
	peer->soft.missing_ms = 0;
	peer->soft.start_conn = 0;
	if (ran) {
		peer->soft.stop_conn = state_node(m, peer->node)->soft.conn; /* nothing to stop */
		peer_end(m, peer, PEER_LOST, false, "its node came back without it");
	}
}

static void peer_think_one(struct membership *m, struct peer *peer)
{
	if (peer->state != PEER_PLACED)
		return;
	if (peer->soft.fate != PEER_PLACED) {
		if (!pending_any(m, PENDING_PEER, peer->id))
			append_moved(m, peer);
		return;
	}
	const struct node *node = state_node(m, peer->node);
	if (node == NULL || node->lost || node->hello->incarnation != peer->incarnation) {
		peer_end(m, peer, PEER_LOST, false, "its node was lost");
		return;
	}
	struct job *job = peer->job != 0 ? state_job(m, peer->job) : NULL;
	if (node->soft.conn == 0)
		return;
	if (job != NULL && !state_job_live(job)) {
		char reason[REASON_MAX];
		(void)snprintf(reason, sizeof(reason), "job %llu is %s",
		    (unsigned long long)job->id, job_state_name(job->state));
		tell_to_stop(m, peer, node->soft.conn, reason);
		if (m->now_ms >= peer->soft.stop_ms + STOP_PATIENCE_MS)
			peer_end(m, peer, PEER_LOST, false,
			    "its node did not report its end in time");
		return;
	}
	if (peer->soft.missing_ms != 0 && m->now_ms >= peer->soft.missing_ms && node->soft.beaten)
		missing(m, peer, job);
	if (state_peer_live(peer) && peer->soft.missing_ms == 0 && !peer->soft.started &&
	    peer->soft.start_conn == 0)
		start(m, peer, node);
}

void peer_think(struct membership *m, struct list *peers)
{
	for (size_t i = 0; i < peers->count; i++)
		peer_think_one(m, peers->items[i]);
}

void peer_left_over(struct membership *m, const struct job *job, uint64_t group)
{
	uint64_t told = 0;
	for (size_t i = 0; i < job->peers.count; i++) {
		struct peer *peer = job->peers.items[i];
		const struct node *node = state_node(m, peer->node);
		bool left = peer->soft.state_left || peer->soft.learning_left;
		if (!left || peer->group != group)
			continue;
		peer->soft.state_left = peer->soft.learning_left = false;
		if (node == NULL || node->soft.conn == 0 || node->soft.conn == told)
			continue;
		told = node->soft.conn;
		Traind__Peer__ToNode message = TRAIND__PEER__TO_NODE__INIT;
		Traind__Peer__GroupOver over = TRAIND__PEER__GROUP_OVER__INIT;
		over.group = group;
		message.body_case = TRAIND__PEER__TO_NODE__BODY_GROUP_OVER;
		message.group_over = &over;
		action_send(m, told, &message);
	}
}

static void reconcile_ours(struct membership *m, struct node *node, struct peer *peer,
    const Traind__Peer__NodeHello *hello)
{
	const Traind__Peer__PeerHere *here = NULL;
	for (size_t i = 0; here == NULL && i < hello->n_peers; i++)
		if (hello->peers[i]->peer == peer->id && hello->peers[i]->job_id == peer->job)
			here = hello->peers[i];
	if (here == NULL) {
		/* Its exit may be the next message. */
		peer->soft.missing_ms = m->now_ms + 2 * m->options.heartbeat_interval_ms;
		return;
	}
	peer->soft.started = true;
	peer->soft.missing_ms = 0;
	peer->soft.pid = here->pid;
	peer->soft.view = here->view;
	peer->soft.moved_ms = m->now_ms;
	if (here->ready && !peer->soft.ready && here->committed_round < UINT64_MAX / 2) {
		peer->soft.ready = true;
		peer->soft.ready_round = here->committed_round;
		peer->soft.gradual = here->gradual;
	}
	struct group *group = peer->group != 0 ? state_group(m, peer->group) : NULL;
	if (group == NULL || group->view == NULL || state_view_peer(group, peer->id) == NULL)
		return;
	if (here->view < state_view_number(group)) {
		/* It was logged but not delivered. What others sent meanwhile in that view is gone.
		 */
		view_send(m, group, node->soft.conn);
		group->soft.repair = true;
		copy_text(group->soft.repair_reason, sizeof(group->soft.repair_reason),
		    "members were in different views after a broken connection to memberd");
	}
	view_ask(m, group, node->soft.conn);
}

static void reconcile_list(struct membership *m, struct node *node, struct list *peers,
    const Traind__Peer__NodeHello *hello)
{
	for (size_t i = 0; i < peers->count; i++) {
		struct peer *peer = peers->items[i];
		if (peer->node == node->id && state_peer_live(peer))
			reconcile_ours(m, node, peer, hello);
	}
}

/* It hosts something that we gave up, or never knew. */
static void reconcile_theirs(struct membership *m, struct node *node,
    const Traind__Peer__PeerHere *here)
{
	const struct job *job = here->job_id != 0 ? state_job(m, here->job_id) : NULL;
	const struct group *group = here->group != 0 ? state_group(m, here->group) : NULL;
	struct peer *peer = NULL;
	if (job != NULL)
		peer = state_peer(&job->peers, here->peer);
	else if (group != NULL)
		peer = state_group_peer(m, group, here->peer);
	if (peer != NULL && peer->node == node->id && state_peer_live(peer))
		return;
	const char *reason = peer == NULL ? "memberd does not know this peer"
	    : peer->reason[0] != '\0'     ? peer->reason
	                                  : peer->soft.reason;
	/* Its entry in the log may be on its way. */
	const struct refusal *refusal = peer == NULL ? NULL
	    : peer->refusal.round != 0               ? &peer->refusal
	                                             : &peer->soft.refusal;
	if (peer != NULL && peer->node == node->id && here->job_id != 0) {
		peer->soft.stopping = true; /* its slot is taken until it has ended */
		peer->soft.stop_conn = node->soft.conn;
		peer->soft.stop_ms = m->now_ms;
	}
	if (here->group != 0)
		send_evicted(m, node->soft.conn, here->group, here->peer, reason,
		    refusal != NULL ? refusal->status : 0,
		    peer != NULL && (peer->soft.refuses || refusal->round != 0));
	if (here->job_id != 0)
		send_stop(m, node->soft.conn, here->job_id, here->peer, reason);
}

void peer_reconcile(struct membership *m, struct node *node, const Traind__Peer__NodeHello *hello)
{
	for (size_t i = 0; i < m->jobs.count; i++)
		reconcile_list(m, node, &((struct job *)m->jobs.items[i])->peers, hello);
	for (size_t i = 0; i < m->groups.count; i++)
		reconcile_list(m, node, &((struct group *)m->groups.items[i])->peers, hello);
	for (size_t i = 0; i < hello->n_peers; i++)
		reconcile_theirs(m, node, hello->peers[i]);
}
