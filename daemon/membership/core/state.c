#include "daemon/membership/core/state.h"

#include <stdlib.h>
#include <string.h>

void *state_alloc(struct membership *m, size_t bytes)
{
	void *memory = calloc(1, bytes);
	if (memory == NULL)
		m->oom = true;
	return memory;
}

bool list_add(struct membership *m, struct list *list, void *item)
{
	if (list->count == list->capacity) {
		size_t capacity = list->capacity > 0 ? 2 * list->capacity : 8;
		void **grown = realloc(list->items, capacity * sizeof(*grown));
		if (grown == NULL) {
			m->oom = true;
			return false;
		}
		list->items = grown;
		list->capacity = capacity;
	}
	list->items[list->count++] = item;
	return true;
}

void list_remove(struct list *list, size_t index)
{
	memmove(&list->items[index], &list->items[index + 1],
	    (list->count - index - 1) * sizeof(*list->items));
	list->count--;
}

static void list_free(struct list *list, void (*release)(void *item))
{
	for (size_t i = 0; i < list->count; i++)
		release(list->items[i]);
	free(list->items);
	*list = (struct list){ 0 };
}

struct node *state_node(const struct membership *m, uint64_t id)
{
	for (size_t i = 0; i < m->nodes.count; i++) {
		struct node *node = m->nodes.items[i];
		if (node->id == id)
			return node;
	}
	return NULL;
}

struct node *state_node_of_conn(const struct membership *m, uint64_t conn)
{
	for (size_t i = 0; conn != 0 && i < m->nodes.count; i++) {
		struct node *node = m->nodes.items[i];
		if (node->soft.conn == conn)
			return node;
	}
	return NULL;
}

/* Submitted in this order: where a view is told to hundreds of nodes, each of its members asks for its job, behind which may be thousands. */
struct job *state_job(const struct membership *m, uint64_t id)
{
	size_t low = 0, high = m->jobs.count;
	while (low < high) {
		size_t middle = low + (high - low) / 2;
		struct job *job = m->jobs.items[middle];
		if (job->id == id)
			return job;
		if (job->id < id)
			low = middle + 1;
		else
			high = middle;
	}
	/* A log that somebody else wrote may have them in another order. */
	for (size_t i = m->jobs.count; i-- > 0;) {
		struct job *job = m->jobs.items[i];
		if (job->id == id)
			return job;
	}
	return NULL;
}

struct group *state_group(const struct membership *m, uint64_t id)
{
	for (size_t i = m->groups.count; i-- > 0;) {
		struct group *group = m->groups.items[i];
		if (group->id == id)
			return group;
	}
	return NULL;
}

struct list *state_peers(const struct membership *m, const struct group *group)
{
	struct job *job = group->job != 0 ? state_job(m, group->job) : NULL;
	return job != NULL ? &job->peers : (struct list *)(uintptr_t)&group->peers;
}

struct ledger *state_ledger(const struct membership *m, const struct group *group)
{
	struct job *job = group->job != 0 ? state_job(m, group->job) : NULL;
	return job != NULL ? job->ledger : group->ledger;
}

struct peer *state_peer(const struct list *peers, uint64_t id)
{
	for (size_t i = peers->count; i-- > 0;) {
		struct peer *peer = peers->items[i];
		if (peer->id == id)
			return peer;
	}
	return NULL;
}

struct peer *state_group_peer(const struct membership *m, const struct group *group, uint64_t id)
{
	struct peer *peer = state_peer(state_peers(m, group), id);
	return peer != NULL && peer->group == group->id ? peer : NULL;
}

bool state_peer_live(const struct peer *peer)
{
	return peer->state == PEER_PLACED && peer->soft.fate == PEER_PLACED;
}

bool state_job_ended(const struct job *job)
{
	return job->state == TRAIND__V1__JOB_STATE__JOB_STATE_DONE ||
	    job->state == TRAIND__V1__JOB_STATE__JOB_STATE_FAILED ||
	    job->state == TRAIND__V1__JOB_STATE__JOB_STATE_CANCELLED;
}

bool state_job_live(const struct job *job)
{
	return job->state == TRAIND__V1__JOB_STATE__JOB_STATE_STARTING ||
	    job->state == TRAIND__V1__JOB_STATE__JOB_STATE_RUNNING;
}

uint32_t state_job_nodes(const struct job *job)
{
	return job->spec->mesh != NULL && job->spec->mesh->nodes > 0 ? job->spec->mesh->nodes : 1;
}

uint32_t state_job_per_node(const struct job *job)
{
	const Traind__V1__Mesh *mesh = job->spec->mesh;
	return mesh != NULL && mesh->workers_per_node > 0 ? mesh->workers_per_node : 1;
}

/* Commands get what there is. */
static uint32_t asked_workers(const struct job *job)
{
	if (job->spec->command != NULL)
		return 0;
	return job->spec->plan != NULL ? (uint32_t)job->spec->plan->n_nodes
	                               : state_job_nodes(job) * state_job_per_node(job);
}

uint32_t state_job_workers(const struct job *job, uint64_t group)
{
	uint32_t founders = 0;
	for (size_t i = 0; i < job->peers.count; i++) {
		const struct peer *peer = job->peers.items[i];
		founders += peer->group == group && peer->founder ? 1 : 0;
	}
	uint32_t asked = asked_workers(job);
	return founders > 0 && asked > founders ? asked : founders;
}

uint32_t state_job_live_workers(const struct job *job, uint64_t group)
{
	uint32_t live = 0;
	for (size_t i = 0; i < job->peers.count; i++) {
		const struct peer *peer = job->peers.items[i];
		live += peer->group == group && state_peer_live(peer) ? 1 : 0;
	}
	return live;
}

bool state_job_trained(const struct job *job)
{
	for (size_t i = 0; i < job->peers.count; i++) {
		const struct peer *peer = job->peers.items[i];
		if (peer->group == job->group && peer->worked)
			return true;
	}
	return false;
}

const Traind__Peer__ViewPeer *state_view_peer(const struct group *group, uint64_t peer)
{
	const Traind__Peer__View *view = group->view != NULL ? group->view->view : NULL;
	for (size_t i = 0; view != NULL && i < view->n_peers; i++)
		if (view->peers[i]->peer == peer)
			return view->peers[i];
	return NULL;
}

uint64_t state_view_number(const struct group *group)
{
	return group->view != NULL ? group->view->view->number : 0;
}

uint64_t state_take_id(struct membership *m)
{
	if (m->soft_next_id < m->next_id)
		m->soft_next_id = m->next_id;
	return m->soft_next_id++;
}

void node_free(struct node *node)
{
	if (node == NULL)
		return;
	if (node->hello != NULL)
		traind__peer__node_hello__free_unpacked(node->hello, NULL);
	free(node);
}

void peer_free(void *peer)
{
	free(peer);
}

static void event_free(void *event)
{
	traind__v1__job_event__free_unpacked(event, NULL);
}

void job_free(struct job *job)
{
	if (job == NULL)
		return;
	if (job->spec != NULL)
		traind__v1__job_spec__free_unpacked(job->spec, NULL);
	if (job->progress != NULL)
		traind__v1__progress__free_unpacked(job->progress, NULL);
	if (job->soft.progress != NULL)
		traind__v1__progress__free_unpacked(job->soft.progress, NULL);
	free(job->goes_on_from);
	list_free(&job->events, event_free);
	list_free(&job->peers, peer_free);
	ledger_destroy(job->ledger);
	free(job);
}

void group_free(struct group *group)
{
	if (group == NULL)
		return;
	view_drop_proposal(group);
	if (group->founder != NULL)
		traind__peer__join_group__free_unpacked(group->founder, NULL);
	if (group->view != NULL)
		traind__peer__view_install__free_unpacked(group->view, NULL);
	if (group->soft.batch != NULL)
		traind__peer__round_commits__free_unpacked(group->soft.batch, NULL);
	list_free(&group->peers, peer_free);
	list_free(&group->soft.ways, free);
	ledger_destroy(group->ledger);
	free(group);
}

static void release_node(void *node)
{
	node_free(node);
}

static void release_job(void *job)
{
	job_free(job);
}

static void release_group(void *group)
{
	group_free(group);
}

static void release_greeting(void *item)
{
	struct greeting *greeting = item;
	traind__peer__node_hello__free_unpacked(greeting->hello, NULL);
	free(greeting);
}

void state_clear(struct membership *m)
{
	list_free(&m->nodes, release_node);
	list_free(&m->jobs, release_job);
	list_free(&m->groups, release_group);
	list_free(&m->greetings, release_greeting);
	list_free(&m->joins, join_free);
	measure_clear(m);
	free(m->pending);
	free(m->waiters);
	m->pending = NULL;
	m->waiters = NULL;
	m->pending_count = m->pending_capacity = m->waiters_count = m->waiters_capacity = 0;
	m->next_id = m->next_job = 1;
	m->soft_next_id = m->soft_next_job = 1;
}
