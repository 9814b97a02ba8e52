/* Places queued jobs in the order of submission. A job that cannot be placed yet says why. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/membership/core/placement.h"
#include "daemon/membership/core/state.h"
#include "daemon/plan/job_mesh.h"

#define MASTER_PORT_LEAST 29500u
#define MASTER_PORT_MOST  32767u

/* What came of the first place in the queue. */
enum placed {
	PLACED,     /* its entry is on its way, also where that is its end */
	WAITS,      /* for slots, which jobs behind it are not to take */
	LETS_OTHERS /* it waits for a node of which nobody knows whether it comes */
};

struct table {
	struct placement_node *nodes;
	size_t count;
};

static void count_peers(const struct membership *m, struct table *table, const struct list *peers,
    const struct job *mine)
{
	for (size_t i = 0; i < peers->count; i++) {
		const struct peer *peer = peers->items[i];
		for (size_t n = 0; peer_holds_slot(m, peer) && n < table->count; n++) {
			if (table->nodes[n].id != peer->node)
				continue;
			table->nodes[n].used++;
			table->nodes[n].mine += mine != NULL && peer->job == mine->id &&
			        state_peer_live(peer)
			    ? 1
			    : 0;
		}
	}
}

static bool table_fill(struct membership *m, const struct job *job, struct table *table)
{
	table->nodes = state_alloc(m, (m->nodes.count + 1) * sizeof(*table->nodes));
	table->count = 0;
	if (table->nodes == NULL)
		return false;
	for (size_t i = 0; i < m->nodes.count; i++) {
		const struct node *node = m->nodes.items[i];
		if (!node->lost && node->soft.conn != 0 && node->hello->slots > 0)
			table->nodes[table->count++] = (struct placement_node){ .id = node->id,
				.slots = node->hello->slots };
	}
	for (size_t i = 0; i < m->jobs.count; i++)
		count_peers(m, table, &((struct job *)m->jobs.items[i])->peers, job);
	return true;
}

/* The host part of "host:port" or "[v6]:port". */
static void host_of(const char *address, char *host, size_t size)
{
	const char *from = address, *colon = strrchr(address, ':');
	size_t length = colon != NULL ? (size_t)(colon - address) : strlen(address);
	if (length >= 2 && from[0] == '[' && from[length - 1] == ']') {
		from++;
		length -= 2;
	}
	if (length >= size)
		length = size - 1;
	memcpy(host, from, length);
	host[length] = '\0';
}

static void append_planned(struct membership *m, const struct job *job, uint64_t group,
    const Traind__Peer__PlannedPeer *peers, size_t count)
{
	Traind__Peer__LogEntry entry = TRAIND__PEER__LOG_ENTRY__INIT;
	Traind__Peer__JobPlanned planned = TRAIND__PEER__JOB_PLANNED__INIT;
	Traind__Peer__PlannedPeer copies[TR_GROUP_PEERS_MAX], *rows[TR_GROUP_PEERS_MAX];
	char host[TR_ADDRESS_MAX] = "";
	for (size_t i = 0; i < count; i++) {
		copies[i] = peers[i];
		rows[i] = &copies[i];
	}
	const struct node *first = state_node(m, peers[0].node_id);
	host_of(first->hello->address, host, sizeof(host));
	planned.job_id = job->id;
	planned.group = group;
	planned.peers = rows;
	planned.n_peers = count;
	planned.master_address = host;
	/* Outside the range of ephemeral ports and nobody's by habit; whoever finds it taken starts
	 * the job again. */
	planned.master_port = MASTER_PORT_LEAST +
	    (uint32_t)(m->random % (MASTER_PORT_MOST - MASTER_PORT_LEAST + 1));
	entry.body_case = TRAIND__PEER__LOG_ENTRY__BODY_JOB_PLANNED;
	entry.job_planned = &planned;
	action_append(m, &entry, PENDING_JOB, job->id, NULL);
}

/* In one row, if these workers do not make the job's mesh. */
static void mesh_of(const Traind__V1__Mesh *asked, uint32_t workers, struct mesh *mesh)
{
	*mesh = job_mesh(asked);
	mesh->size[MESH_DP] = workers / (mesh->size[MESH_PP] * mesh->size[MESH_TP]);
	if (mesh_workers(mesh) != workers)
		*mesh = (struct mesh){ .size = { workers, 1, 1 } };
}

/* Ranks follow the nodes, whole replicas after each other (mesh.h); ids follow the ranks. */
static void plan(struct membership *m, struct job *job, const struct table *table, bool native)
{
	Traind__Peer__PlannedPeer peers[TR_GROUP_PEERS_MAX];
	struct mesh mesh;
	uint32_t count = 0, all = 0;
	for (size_t n = 0; n < table->count; n++)
		all += table->nodes[n].placed;
	assert(all > 0 && all <= TR_GROUP_PEERS_MAX);
	mesh_of(native ? job->spec->mesh : NULL, all, &mesh);
	uint64_t group = native ? state_take_id(m) : 0;
	for (size_t n = 0; n < table->count; n++) {
		const struct node *node = state_node(m, table->nodes[n].id);
		for (uint32_t k = 0; k < table->nodes[n].placed; k++) {
			uint32_t rank = mesh_rank_by_replica(&mesh, count++);
			traind__peer__planned_peer__init(&peers[rank]);
			peers[rank].node_id = node->id;
			peers[rank].incarnation = node->hello->incarnation;
			peers[rank].rank = rank;
			peers[rank].local_rank = k;
		}
	}
	for (uint32_t rank = 0; rank < count; rank++)
		peers[rank].peer = state_take_id(m);
	job_wait(m, job, "%s", "");
	append_planned(m, job, group, peers, count);
}

static struct placement_node *row_of(struct table *table, uint64_t node)
{
	for (size_t n = 0; n < table->count; n++)
		if (table->nodes[n].id == node)
			return &table->nodes[n];
	return NULL;
}

static const char *name_of(const struct membership *m, uint64_t id)
{
	const struct node *node = state_node(m, id);
	return node != NULL ? node->hello->name : "a node that is not known";
}

/* Of the nodes of its plan one that is not there; 0: all are. */
static uint64_t gone_node(const struct job *job, struct table *table)
{
	for (size_t rank = 0; rank < job->spec->plan->n_nodes; rank++)
		if (row_of(table, job->spec->plan->nodes[rank]) == NULL)
			return job->spec->plan->nodes[rank];
	return 0;
}

/* When the last one went of those of its plan that are not there. Of one that memberd never saw, or that is there without a slot: when the job was first looked at. */
static uint64_t went_ms(const struct membership *m, const struct job *job, struct table *table)
{
	const uint64_t seen_ms = job->soft.gone_ms != 0 ? job->soft.gone_ms : m->now_ms;
	uint64_t last = 0;
	for (size_t rank = 0; rank < job->spec->plan->n_nodes; rank++) {
		const struct node *node = state_node(m, job->spec->plan->nodes[rank]);
		bool went = node != NULL && node->soft.gone_ms != 0;
		uint64_t since = went ? node->soft.gone_ms : seen_ms;
		if (row_of(table, job->spec->plan->nodes[rank]) == NULL && since > last)
			last = since;
	}
	return last;
}

/* Its workers make their mesh of whoever starts: the job's, or a smaller one (remesh.h). */
static enum placed place_elsewhere(struct membership *m, struct job *job, struct table *table,
    uint64_t gone)
{
	const Traind__V1__JobPlan *wanted = job->spec->plan;
	uint32_t workers = (uint32_t)wanted->n_nodes, least = elsewhere_workers(job), placed = 0,
	         least_nodes = elsewhere_nodes(job);
	char text[REASON_MAX];
	job->soft.gone_ms = went_ms(m, job, table);
	if (m->now_ms < elsewhere_ms(job)) {
		job_wait(m, job,
		    "needs a free slot more on %s, as planned, which is not there; if it does not "
		    "come within %u s it is "
		    "placed on other nodes",
		    name_of(m, gone), ELSEWHERE_AFTER_MS / 1000);
		return WAITS;
	}
	for (size_t rank = 0; rank < wanted->n_nodes; rank++) {
		struct placement_node *row = row_of(table, wanted->nodes[rank]);
		if (row != NULL)
			row->planned++;
	}
	uint32_t nodes = placement_elsewhere(table->nodes, table->count, workers, least_nodes);
	for (size_t n = 0; n < table->count; n++)
		placed += table->nodes[n].placed;
	if (nodes < least_nodes || placed < least) {
		job_wait(m, job,
		    "%s, where its plan has workers, is not there, and it needs %u free slots "
		    "on %u other node%s or more, %u on %u there; cancelled and launched again it "
		    "is planned anew",
		    name_of(m, gone), least, least_nodes, least_nodes > 1 ? "s" : "", placed,
		    nodes);
		return LETS_OTHERS;
	}
	(void)snprintf(text, sizeof(text),
	    "%s, where its plan has workers, is not there: %u of %u workers start, on %u node%s",
	    name_of(m, gone), placed, workers, nodes, nodes > 1 ? "s" : "");
	facts_note(m, job, text);
	plan(m, job, table, true);
	return PLACED;
}

/* Ranks of a plan on its nodes, in their order; what a step then takes was predicted for these. */
static enum placed place_planned(struct membership *m, struct job *job, struct table *table)
{
	const Traind__V1__JobPlan *wanted = job->spec->plan;
	Traind__Peer__PlannedPeer peers[TR_GROUP_PEERS_MAX];
	uint64_t gone = gone_node(job, table);
	if (gone != 0)
		return place_elsewhere(m, job, table, gone);
	job->soft.gone_ms = 0;
	for (size_t rank = 0; rank < wanted->n_nodes; rank++) {
		const struct node *node = state_node(m, wanted->nodes[rank]);
		struct placement_node *row = row_of(table, wanted->nodes[rank]);
		if (row->used + row->placed >= row->slots) {
			job_wait(m, job,
			    "needs a free slot more on %s, as planned; cancelled and launched "
			    "again it is planned anew",
			    node->hello->name);
			return WAITS;
		}
		traind__peer__planned_peer__init(&peers[rank]);
		peers[rank].node_id = node->id;
		peers[rank].incarnation = node->hello->incarnation;
		peers[rank].rank = (uint32_t)rank;
		peers[rank].local_rank = row->placed++;
	}
	assert(wanted->n_nodes > 0); /* job_validate */
	uint64_t group = state_take_id(m);
	for (size_t rank = 0; rank < wanted->n_nodes; rank++)
		peers[rank].peer = state_take_id(m);
	job_wait(m, job, "%s", "");
	append_planned(m, job, group, peers, wanted->n_nodes);
	return PLACED;
}

static void wait_for_nodes(struct membership *m, struct job *job, uint32_t had, bool goes_on)
{
	uint32_t per_node = state_job_per_node(job), nodes = state_job_nodes(job);
	char then[96] = "";
	if (goes_on)
		(void)snprintf(then, sizeof(then),
		    "; if others do not come within %u s it goes on with these",
		    ELSEWHERE_AFTER_MS / 1000);
	if (per_node == 1)
		job_wait(m, job, "needs %u free slots on as many nodes, %u there%s", nodes, had,
		    then);
	else
		job_wait(m, job, "needs %u nodes with %u free slots each, %u there%s", nodes,
		    per_node, had, then);
}

static void note_fewer(struct membership *m, struct job *job, uint32_t had)
{
	uint32_t per_node = state_job_per_node(job), nodes = state_job_nodes(job);
	char text[REASON_MAX];
	(void)snprintf(text, sizeof(text), "%u of %u nodes are there: %u of %u workers start", had,
	    nodes, had * per_node, nodes * per_node);
	facts_note(m, job, text);
}

static enum placed place_native(struct membership *m, struct job *job, struct table *table)
{
	if (job->spec->plan != NULL)
		return place_planned(m, job, table);
	uint32_t per_node = state_job_per_node(job), nodes = state_job_nodes(job);
	if ((uint64_t)nodes * per_node > TR_GROUP_PEERS_MAX) {
		job_append_moved(m, job, TRAIND__V1__JOB_STATE__JOB_STATE_FAILED, 0,
		    "mesh: more than 256 workers in one group", NULL, NULL);
		return PLACED;
	}
	uint32_t had = placement_native(table->nodes, table->count, nodes, per_node);
	if (had < nodes) {
		if (job->restarts > 0 && job->soft.gone_ms == 0)
			job->soft.gone_ms = m->now_ms;
		uint64_t at_ms = elsewhere_without_ms(job, had);
		if (m->now_ms < at_ms) {
			wait_for_nodes(m, job, had, at_ms != UINT64_MAX);
			return WAITS;
		}
		note_fewer(m, job, had);
	}
	job->soft.gone_ms = 0;
	plan(m, job, table, true);
	return PLACED;
}

static enum placed place_command(struct membership *m, struct job *job, struct table *table)
{
	const Traind__V1__Mesh *mesh = job->spec->mesh;
	uint32_t workers = mesh != NULL && mesh->workers > 0 ? mesh->workers : 1;
	uint32_t nodes = mesh != NULL ? mesh->nodes : 0;
	if (workers > TR_GROUP_PEERS_MAX || nodes > workers) {
		job_append_moved(m, job, TRAIND__V1__JOB_STATE__JOB_STATE_FAILED, 0,
		    "mesh: at most 256 workers, and no more nodes than workers", NULL, NULL);
		return PLACED;
	}
	uint32_t had = placement_command(table->nodes, table->count, nodes, workers);
	if (had == 0 || had < nodes) {
		job_wait(m, job, "needs %u node%s with slots and less than %d workers, %u there",
		    nodes > 0 ? nodes : 1, nodes > 1 ? "s" : "", TR_NODE_WORKERS_MAX, had);
		return WAITS;
	}
	plan(m, job, table, false);
	return PLACED;
}

void queue_think(struct membership *m)
{
	uint64_t blocked_by = 0;
	for (size_t i = 0; i < m->jobs.count; i++) {
		struct job *job = m->jobs.items[i];
		struct table table;
		if (job->state != TRAIND__V1__JOB_STATE__JOB_STATE_QUEUED)
			continue;
		bool native = job->spec->command == NULL;
		if (pending_any(m, PENDING_JOB, job->id)) {
			/* Its placement is on its way: where it goes is not known here, so nobody
			 * else is placed. */
			return;
		}
		/* Commands do not need free slots, so they need not wait for those who do. */
		if (native && blocked_by != 0) {
			job_wait(m, job, "waits behind job %llu", (unsigned long long)blocked_by);
			continue;
		}
		if (!table_fill(m, job, &table))
			return;
		enum placed placed = native ? place_native(m, job, &table)
		                            : place_command(m, job, &table);
		free(table.nodes);
		if (placed == PLACED)
			return;
		if (native && placed == WAITS)
			blocked_by = job->id;
	}
}

static bool is_founder(const struct job *job, const struct peer *peer)
{
	return peer->group == job->group && peer->founder;
}

static uint32_t founders_of(const struct job *job)
{
	uint32_t count = 0;
	for (size_t i = 0; i < job->peers.count; i++)
		count += is_founder(job, job->peers.items[i]);
	return count;
}

static bool is_held(const struct job *job, uint32_t rank)
{
	for (size_t i = 0; i < job->peers.count; i++) {
		const struct peer *other = job->peers.items[i];
		if (other->group == job->group && other->rank == rank && state_peer_live(other))
			return true;
	}
	return false;
}

/* As the job asks for, or as many as it was founded with there, where that was on other nodes than planned. */
static uint32_t most_on_a_node(const struct job *job)
{
	uint32_t most = state_job_per_node(job);
	for (size_t i = 0; i < job->peers.count; i++) {
		const struct peer *peer = job->peers.items[i];
		uint32_t here = 0;
		for (size_t k = 0; k < job->peers.count; k++) {
			const struct peer *other = job->peers.items[k];
			here += is_founder(job, other) && other->node == peer->node;
		}
		most = here > most ? here : most;
	}
	return most;
}

/* The lowest rank of the first placement that no live peer holds; or of those that were to be placed and for whom there was no slot. */
static bool free_rank(const struct job *job, uint32_t *rank, uint32_t *local_rank)
{
	for (size_t i = 0; i < job->peers.count; i++) {
		const struct peer *founder = job->peers.items[i];
		if (is_founder(job, founder) && !is_held(job, founder->rank)) {
			*rank = founder->rank;
			*local_rank = founder->local_rank;
			return true;
		}
	}
	for (*rank = founders_of(job), *local_rank = 0; *rank < state_job_workers(job, job->group);
	     ++*rank)
		if (!is_held(job, *rank))
			return true;
	return false;
}

/* Where a dead worker's state is, its replacement need not fetch it from another node; where the last one never trained, this one may
 * not either. */
static void mark_left(const struct job *job, const struct table *table)
{
	for (size_t i = 0; i < job->peers.count; i++) {
		const struct peer *peer = job->peers.items[i];
		bool failed = peer->state == PEER_LOST && !peer->worked;
		bool left = peer->soft.state_left && !peer->soft.left_taken &&
		    peer->group == job->group && !state_peer_live(peer);
		for (size_t n = 0; n < table->count; n++) {
			struct placement_node *node = &table->nodes[n];
			if (node->id != peer->node || peer->group != job->group)
				continue;
			node->left |= left;
			node->failed = failed; /* peers are in order of id: the newest counts */
		}
	}
}

/* One follows it. */
static void take_left(const struct job *job, uint64_t node)
{
	for (size_t i = 0; i < job->peers.count; i++) {
		struct peer *peer = job->peers.items[i];
		if (peer->soft.state_left && !peer->soft.left_taken && peer->group == job->group &&
		    peer->node == node) {
			peer->soft.left_taken = true;
			return;
		}
	}
}

static bool is_held_there(const struct job *job, uint64_t node, uint32_t local_rank)
{
	for (size_t i = 0; i < job->peers.count; i++) {
		const struct peer *peer = job->peers.items[i];
		if (peer->group == job->group && peer->node == node &&
		    peer->local_rank == local_rank && state_peer_live(peer))
			return true;
	}
	return false;
}

/* False: nowhere. True also where nobody is worth it (latecomer.c). */
static bool place_one(struct membership *m, struct job *job, struct table *table,
    Traind__Peer__PlannedPeer *peer)
{
	mark_left(job, table);
	if (!placement_replacement(table->nodes, table->count, most_on_a_node(job)))
		return false;
	for (size_t n = 0; n < table->count; n++) {
		if (table->nodes[n].placed == 0)
			continue;
		const struct node *node = state_node(m, table->nodes[n].id);
		if (!latecomer_pays(m, job, node))
			return true;
		peer->peer = state_take_id(m);
		peer->node_id = node->id;
		peer->incarnation = node->hello->incarnation;
		while (peer->rank >= founders_of(job) &&
		    is_held_there(job, node->id, peer->local_rank))
			peer->local_rank++;
		take_left(job, node->id);
	}
	job_wait(m, job, "%s", "");
	append_planned(m, job, job->group, peer, 1);
	return true;
}

static bool any_is_free(const struct table *table)
{
	bool free_slots = false;
	for (size_t n = 0; n < table->count; n++)
		free_slots = free_slots || table->nodes[n].used < table->nodes[n].slots;
	return free_slots;
}

static void wait_for_slot(struct membership *m, struct job *job, const struct table *table)
{
	if (any_is_free(table))
		job_wait(m, job,
		    "goes on with fewer peers: there is a free slot for a replacement only where "
		    "%u "
		    "of its workers are already, as many as it has on one node",
		    most_on_a_node(job));
	else
		job_wait(m, job, "%s",
		    "goes on with fewer peers: there is no free slot for a replacement");
}

void queue_replace(struct membership *m, struct job *job)
{
	struct table table;
	Traind__Peer__PlannedPeer peer = TRAIND__PEER__PLANNED_PEER__INIT;
	if (!free_rank(job, &peer.rank, &peer.local_rank) || !table_fill(m, job, &table))
		return;
	if (!place_one(m, job, &table, &peer))
		wait_for_slot(m, job, &table);
	free(table.nodes);
}

void queue_grow(struct membership *m, struct job *job)
{
	struct table table;
	Traind__Peer__PlannedPeer peer = TRAIND__PEER__PLANNED_PEER__INIT;
	if (!grow_is_wanted(m, job) || !table_fill(m, job, &table))
		return;
	for (size_t n = 0; n < table.count; n++)
		if (!grow_takes(job, state_node(m, table.nodes[n].id)))
			table.nodes[n].slots = 0;
	peer.rank = state_job_workers(job, job->group);
	while (is_held(job, peer.rank))
		peer.rank++;
	(void)place_one(m, job, &table, &peer);
	free(table.nodes);
}

/* Its process has not ended, or its node may be there again. Not where that is silent: its peer was put out before it is itself, and nobody makes a view for that. */
static bool slot_may_come(const struct membership *m, const struct job *job)
{
	for (size_t i = 0; i < job->peers.count; i++) {
		const struct peer *peer = job->peers.items[i];
		const struct node *node = state_node(m, peer->node);
		if (node != NULL && node->soft.conn != 0 && !state_peer_live(peer) &&
		    peer_holds_slot(m, peer) && health_doubt_ms(m, node) == 0)
			return true;
	}
	for (size_t i = 0; i < m->nodes.count; i++) {
		const struct node *node = m->nodes.items[i];
		bool lost = node->lost || node->soft.closing[0] != '\0'; /* or about to be */
		if (!lost && node->soft.conn == 0 && node->hello->slots > 0)
			return true;
	}
	return false;
}

bool queue_nobody_follows(struct membership *m, const struct group *group, size_t members)
{
	const struct job *job = group->job != 0 ? state_job(m, group->job) : NULL;
	struct table table;
	if (job == NULL || pending_any(m, PENDING_JOB, job->id) || slot_may_come(m, job))
		return false;
	size_t live = state_job_live_workers(job, group->id);
	if (live > members || live >= state_job_workers(job, group->id) ||
	    !table_fill(m, job, &table))
		return false;
	bool follows = placement_replacement(table.nodes, table.count, most_on_a_node(job));
	free(table.nodes);
	return !follows;
}
