/* The whole durable state as one message, and back. Soft state is not in it. */
#include <stdlib.h>
#include <string.h>

#include "daemon/membership/core/state.h"

static const char *const peer_states[] = { "placed", "finished", "lost" };

/* All copies are made by packing borrowed structs, so that there is one place where memory can run
 * out. */
struct writer {
	struct membership *m;
	bool failed;
};

static void *writer_copy(struct writer *w, const ProtobufCMessage *message)
{
	void *copy = copy_message(w->m, message);
	w->failed = w->failed || copy == NULL;
	return copy;
}

static void *writer_array(struct writer *w, size_t count)
{
	void *array = calloc(count + 1, sizeof(void *));
	w->failed = w->failed || array == NULL;
	return array;
}

static Traind__Peer__SnapshotPeer *put_peer(struct writer *w, struct peer *peer)
{
	Traind__Peer__SnapshotPeer row = TRAIND__PEER__SNAPSHOT_PEER__INIT;
	Traind__Peer__PlannedPeer planned = TRAIND__PEER__PLANNED_PEER__INIT;
	char state[16];
	copy_text(state, sizeof(state), peer_states[peer->state]);
	planned.peer = peer->id;
	planned.node_id = peer->node;
	planned.incarnation = peer->incarnation;
	planned.rank = peer->rank;
	planned.local_rank = peer->local_rank;
	planned.address = peer->address;
	row.planned = &planned;
	row.group = peer->group;
	row.state = state;
	row.reason = peer->reason;
	row.node_name = peer->node_name;
	row.worked = peer->worked;
	row.founder = peer->founder;
	row.exit_code = peer->exit_code;
	row.refused_round = peer->refusal.round;
	row.refused_status = peer->refusal.status;
	return writer_copy(w, &row.base);
}

static void put_peers(struct writer *w, struct list *peers, Traind__Peer__SnapshotPeer ***rows,
    size_t *count)
{
	*rows = writer_array(w, peers->count);
	for (size_t i = 0; !w->failed && i < peers->count; i++) {
		(*rows)[i] = put_peer(w, peers->items[i]);
		*count += (*rows)[i] != NULL ? 1 : 0;
	}
}

static Traind__Peer__SnapshotNode *put_node(struct writer *w, struct node *node)
{
	Traind__Peer__SnapshotNode row = TRAIND__PEER__SNAPSHOT_NODE__INIT;
	row.hello = node->hello;
	row.lost = node->lost;
	row.reason = node->reason;
	row.changed_unix_ms = node->changed_unix_ms;
	return writer_copy(w, &row.base);
}

static Traind__Peer__SnapshotLedger *put_ledger(struct writer *w, const struct ledger *ledger)
{
	if (ledger == NULL)
		return NULL;
	Traind__Peer__SnapshotLedger *packed = ledger_pack(ledger);
	w->failed = w->failed || packed == NULL;
	return packed;
}

static Traind__Peer__SnapshotJob *put_job(struct writer *w, struct job *job)
{
	Traind__Peer__SnapshotJob row = TRAIND__PEER__SNAPSHOT_JOB__INIT;
	Traind__V1__Job facts = TRAIND__V1__JOB__INIT;
	facts.id = job->id;
	facts.spec = job->spec;
	facts.state = job->state;
	facts.reason = job->reason;
	facts.submitted_unix_ms = job->submitted_unix_ms;
	facts.started_unix_ms = job->started_unix_ms;
	facts.ended_unix_ms = job->ended_unix_ms;
	facts.progress = job->progress;
	facts.view = job->view;
	facts.events = (Traind__V1__JobEvent **)job->events.items;
	facts.n_events = job->events.count;
	facts.exit_code = job->exit_code;
	row.job = &facts;
	row.request_id = job->request_id;
	row.group = job->group;
	row.master_address = job->master_address;
	row.master_port = job->master_port;
	row.restarts = job->restarts;
	row.stalled_restarts = job->stalled_restarts;
	row.fast_deaths = job->fast_deaths;
	if (job->goes_on_from != NULL)
		row.goes_on_from = job->goes_on_from;
	Traind__Peer__SnapshotJob *copy = writer_copy(w, &row.base);
	if (copy != NULL) {
		put_peers(w, &job->peers, &copy->peers, &copy->n_peers);
		copy->ledger = put_ledger(w, job->ledger);
	}
	return copy;
}

static Traind__Peer__SnapshotGroup *put_group(struct writer *w, struct group *group)
{
	Traind__Peer__SnapshotGroup row = TRAIND__PEER__SNAPSHOT_GROUP__INIT;
	row.group = group->id;
	row.job_id = group->job;
	row.founder = group->founder;
	row.view = group->view;
	row.proposed = group->proposed;
	Traind__Peer__SnapshotGroup *copy = writer_copy(w, &row.base);
	if (copy != NULL) {
		put_peers(w, &group->peers, &copy->peers, &copy->n_peers);
		copy->ledger = put_ledger(w, group->ledger);
	}
	return copy;
}

Traind__Peer__Snapshot *membership_snapshot(const struct membership *membership)
{
	/* Only its flag for memory is written, and set back: the state itself lacks nothing. */
	struct membership *m = (struct membership *)(uintptr_t)membership;
	bool oom = m->oom;
	struct writer w = { .m = m };
	Traind__Peer__Snapshot *snapshot = malloc(sizeof(*snapshot));
	if (snapshot == NULL)
		return NULL;
	traind__peer__snapshot__init(snapshot);
	snapshot->next_id = m->next_id;
	snapshot->next_job = m->next_job;
	snapshot->nodes = writer_array(&w, m->nodes.count);
	snapshot->jobs = writer_array(&w, m->jobs.count);
	snapshot->groups = writer_array(&w, m->groups.count);
	for (size_t i = 0; !w.failed && i < m->nodes.count; i++)
		if ((snapshot->nodes[i] = put_node(&w, m->nodes.items[i])) != NULL)
			snapshot->n_nodes++;
	for (size_t i = 0; !w.failed && i < m->jobs.count; i++)
		if ((snapshot->jobs[i] = put_job(&w, m->jobs.items[i])) != NULL)
			snapshot->n_jobs++;
	for (size_t i = 0; !w.failed && i < m->groups.count; i++)
		if ((snapshot->groups[i] = put_group(&w, m->groups.items[i])) != NULL)
			snapshot->n_groups++;
	m->oom = oom;
	if (w.failed) {
		traind__peer__snapshot__free_unpacked(snapshot, NULL);
		return NULL; /* NOLINT(clang-analyzer-unix.Malloc): it was freed just now */
	}
	return snapshot;
}

static void get_peers(struct membership *m, struct list *peers, uint64_t job,
    Traind__Peer__SnapshotPeer *const *rows, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		const Traind__Peer__SnapshotPeer *row = rows[i];
		struct peer *peer = row->planned != NULL ? state_alloc(m, sizeof(*peer)) : NULL;
		if (peer == NULL || !list_add(m, peers, peer)) {
			free(peer);
			continue;
		}
		peer->id = row->planned->peer;
		peer->job = job;
		peer->group = row->group;
		peer->node = row->planned->node_id;
		peer->incarnation = row->planned->incarnation;
		peer->rank = row->planned->rank;
		peer->local_rank = row->planned->local_rank;
		copy_text(peer->address, sizeof(peer->address), row->planned->address);
		copy_text(peer->reason, sizeof(peer->reason), row->reason);
		copy_text(peer->node_name, sizeof(peer->node_name), row->node_name);
		peer->worked = row->worked;
		peer->founder = row->founder;
		peer->exit_code = row->exit_code;
		peer->refusal = (struct refusal){ row->refused_round, row->refused_status };
		for (unsigned s = 0; s < sizeof(peer_states) / sizeof(peer_states[0]); s++)
			if (strcmp(row->state, peer_states[s]) == 0)
				peer->state = (enum peer_state)s;
	}
}

static void get_node(struct membership *m, const Traind__Peer__SnapshotNode *row)
{
	struct node *node = row->hello != NULL ? state_alloc(m, sizeof(*node)) : NULL;
	if (node == NULL)
		return;
	node->hello = copy_message(m, &row->hello->base);
	if (node->hello == NULL || !list_add(m, &m->nodes, node)) {
		node_free(node);
		return;
	}
	node->id = row->hello->node_id;
	node->lost = row->lost;
	node->changed_unix_ms = row->changed_unix_ms;
	copy_text(node->reason, sizeof(node->reason), row->reason);
}

static struct ledger *get_ledger(struct membership *m, const Traind__Peer__SnapshotLedger *packed)
{
	struct ledger *ledger = packed != NULL ? ledger_unpack(packed) : ledger_create();
	if (ledger == NULL)
		m->oom = true;
	return ledger;
}

static void get_events(struct membership *m, struct job *job, const Traind__V1__Job *facts)
{
	for (size_t i = 0; i < facts->n_events; i++)
		apply_event(m, job, facts->events[i]->unix_ms, facts->events[i]->text);
}

static void get_job(struct membership *m, const Traind__Peer__SnapshotJob *row)
{
	const Traind__V1__Job *facts = row->job;
	struct job *job = facts != NULL && facts->spec != NULL ? state_alloc(m, sizeof(*job))
	                                                       : NULL;
	if (job == NULL)
		return;
	job->id = facts->id;
	job->spec = copy_message(m, &facts->spec->base);
	if (job->spec == NULL || !list_add(m, &m->jobs, job)) {
		job_free(job);
		return;
	}
	job->state = facts->state;
	job->submitted_unix_ms = facts->submitted_unix_ms;
	job->started_unix_ms = facts->started_unix_ms;
	job->ended_unix_ms = facts->ended_unix_ms;
	job->view = facts->view;
	job->exit_code = facts->exit_code;
	job->group = row->group;
	job->master_port = row->master_port;
	job->restarts = row->restarts;
	job->stalled_restarts = row->stalled_restarts;
	job->fast_deaths = row->fast_deaths;
	if (row->goes_on_from[0] != '\0')
		job->goes_on_from = copy_string(m, row->goes_on_from);
	copy_text(job->reason, sizeof(job->reason), facts->reason);
	copy_text(job->request_id, sizeof(job->request_id), row->request_id);
	copy_text(job->master_address, sizeof(job->master_address), row->master_address);
	if (facts->progress != NULL)
		job->progress = copy_message(m, &facts->progress->base);
	get_events(m, job, facts);
	get_peers(m, &job->peers, job->id, row->peers, row->n_peers);
	if (row->ledger != NULL || job->spec->train != NULL)
		job->ledger = get_ledger(m, row->ledger);
}

static void get_group(struct membership *m, const Traind__Peer__SnapshotGroup *row)
{
	struct group *group = state_alloc(m, sizeof(*group));
	if (group == NULL || !list_add(m, &m->groups, group)) {
		free(group);
		return;
	}
	group->id = row->group;
	group->job = row->job_id;
	group->proposed = row->proposed;
	if (row->founder != NULL)
		group->founder = copy_message(m, &row->founder->base);
	if (row->view != NULL && row->view->view != NULL && row->view->resume != NULL)
		group->view = copy_message(m, &row->view->base);
	get_peers(m, &group->peers, 0, row->peers, row->n_peers);
	if (group->job == 0)
		group->ledger = get_ledger(m, row->ledger);
}

/* A library group needs its founder, a job's group its job: else nothing could be done with it. */
static bool group_usable(const struct membership *m, const Traind__Peer__SnapshotGroup *row)
{
	return row->job_id != 0 ? state_job(m, row->job_id) != NULL : row->founder != NULL;
}

void snapshot_restore(struct membership *m, const Traind__Peer__Snapshot *snapshot)
{
	state_clear(m);
	m->next_id = snapshot->next_id > 0 ? snapshot->next_id : 1;
	m->next_job = snapshot->next_job > 0 ? snapshot->next_job : 1;
	for (size_t i = 0; i < snapshot->n_nodes; i++)
		get_node(m, snapshot->nodes[i]);
	for (size_t i = 0; i < snapshot->n_jobs; i++)
		get_job(m, snapshot->jobs[i]);
	for (size_t i = 0; i < snapshot->n_groups; i++)
		if (group_usable(m, snapshot->groups[i]))
			get_group(m, snapshot->groups[i]);
}
