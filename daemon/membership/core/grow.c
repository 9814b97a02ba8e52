/* mesh.grow: a planned job takes in nodes that come while it runs. Which ones, and when; queue.c places the workers. What becomes of such a worker says nothing about the job: it does not count where a job fails
 * since its workers die at their start, nor does its end hold up others' replacements. */
#include "daemon/membership/core/state.h"
#include "daemon/plan/replan.h"

/* After the end of such a worker; so many ends on a node, and it is left alone: it may have no data there, or too little memory. */
#define GROW_AFTER_MS 10000u
#define ENDS_MOST     3u

bool grow_is_more(const struct job *job, const struct peer *peer)
{
	return job->spec->command == NULL && peer->group == job->group && job->group != 0 &&
	    peer->rank >= state_job_workers(job, job->group);
}

void grow_lost(const struct membership *m, struct job *job)
{
	job->soft.grow_after_ms = m->now_ms + GROW_AFTER_MS;
}

/* Or it is being placed, and where is not known here. */
static bool waits_for_slots(const struct membership *m, const struct job *job)
{
	if (pending_any(m, PENDING_JOB, job->id))
		return true;
	if (job->spec->command != NULL)
		return false;
	if (job->state == TRAIND__V1__JOB_STATE__JOB_STATE_QUEUED)
		return true;
	return state_job_live(job) && !latecomer_stays_out(job) &&
	    state_job_live_workers(job, job->group) < state_job_workers(job, job->group);
}

bool grow_is_wanted(const struct membership *m, const struct job *job)
{
	const Traind__V1__Mesh *mesh = job->spec->mesh;
	if (mesh == NULL || !mesh->grow || m->now_ms < job->soft.grow_after_ms ||
	    !state_job_trained(job) || state_job_live_workers(job, job->group) >= REPLAN_PEERS_MAX)
		return false;
	for (size_t i = 0; i < m->jobs.count; i++)
		if (waits_for_slots(m, m->jobs.items[i]))
			return false;
	return true;
}

/* The least that the plan's workers have: who has less may not hold what another plan gives it. */
static uint64_t least_memory(const struct job *job)
{
	const Traind__V1__PlanBasis *basis = job->spec->plan != NULL ? job->spec->plan->basis
	                                                             : NULL;
	uint64_t least = UINT64_MAX;
	for (size_t i = 0; basis != NULL && i < basis->n_nodes; i++)
		if (basis->nodes[i]->memory_bytes < least)
			least = basis->nodes[i]->memory_bytes;
	return basis != NULL ? least : 0;
}

bool grow_takes(const struct job *job, const struct node *node)
{
	uint32_t founders = 0, live = 0, ended = 0;
	for (size_t i = 0; i < job->peers.count; i++) {
		const struct peer *peer = job->peers.items[i];
		if (peer->group != job->group || peer->node != node->id)
			continue;
		founders += peer->founder;
		live += state_peer_live(peer);
		ended += grow_is_more(job, peer) && !state_peer_live(peer);
	}
	uint64_t memory = node->hello->memory_bytes;
	bool was_there = node->changed_unix_ms <= job->started_unix_ms;
	if (ended >= ENDS_MOST || (memory > 0 && memory / node->hello->slots < least_memory(job)))
		return false;
	/* What the plan left of a node that was there was not worth it. */
	return !was_there || live < founders;
}
