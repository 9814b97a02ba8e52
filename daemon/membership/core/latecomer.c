/* A place that is free late in a job: whether a worker for it is worth its start (joining.h). Asked of jobs whose workers take whoever comes without a price of their own: those of whole models without
 * ranks, and replicas that train apart. Others ask among themselves, when who comes is to work (sharded_join.c). Decided here, nothing is spent on whoever is left out; an event says why. Who is needed for
 * the job to go on at all, and whoever comes as long as little is known, is always taken. */
#include <stdio.h>

#include "daemon/membership/core/state.h"
#include "daemon/plan/job_mesh.h"
#include "daemon/plan/job_options.h"
#include "daemon/plan/job_sync.h"
#include "daemon/plan/pace.h"

/* Of a parameter that a joiner gets: parameters and two moments; or outer parameters and momentum. */
#define STATE_BYTES       12u
#define OUTER_STATE_BYTES 8u
#define NS                1e9

static bool takes_whoever_comes(const struct job *job)
{
	const Traind__V1__JobSpec *spec = job->spec;
	return spec->train != NULL &&
	    (!job_mesh_is_sharded(spec) || job_sync_is_rare(spec->train->sync));
}

static uint32_t shards_of(const struct job *job)
{
	struct mesh mesh = job_mesh(job->spec->mesh);
	return job_mesh_is_sharded(job->spec) ? mesh.size[MESH_PP] * mesh.size[MESH_TP] : 1;
}

static uint32_t workers_of_a_replica(const struct job *job)
{
	return shards_of(job) *
	    (job_mesh_is_sharded(job->spec) ? job_mesh_copies(job->spec->mesh) : 1);
}

static bool is_member(const struct group *group, const struct peer *peer)
{
	return peer->group == group->id && state_peer_live(peer) &&
	    state_view_peer(group, peer->id) != NULL;
}

/* Of the view those who are left, and on how many nodes they are. */
static uint32_t members_left(const struct job *job, const struct group *group, size_t *nodes)
{
	uint32_t members = 0;
	*nodes = 0;
	for (size_t i = 0; i < job->peers.count; i++) {
		const struct peer *peer = job->peers.items[i];
		bool fresh = is_member(group, peer);
		members += fresh;
		for (size_t k = 0; k < i && fresh; k++) {
			const struct peer *other = job->peers.items[k];
			fresh = other->node != peer->node || !is_member(group, other);
		}
		*nodes += fresh;
	}
	return members;
}

/* They train, or would do so without anybody else. */
static bool goes_on_without(const struct membership *m, const struct job *job,
    const struct group *group)
{
	size_t nodes;
	return members_left(job, group, &nodes) >= workers_of_a_replica(job) &&
	    nodes >= members_least_nodes(m, group);
}

static bool is_member_there(const struct job *job, uint64_t node)
{
	for (size_t i = 0; i < job->peers.count; i++) {
		const struct peer *peer = job->peers.items[i];
		if (peer->group == job->group && peer->node == node && state_peer_live(peer))
			return true;
	}
	return false;
}

/* Over the best of the links that were measured, from who has it. */
static uint64_t state_ns(const struct membership *m, const struct job *job, const struct node *node)
{
	double bytes = job_sync_is_rare(job->spec->train->sync) ? OUTER_STATE_BYTES : STATE_BYTES;
	double best = 0, ns_a_byte = PACE_NS_A_BYTE;
	for (size_t i = 0; i < m->measured.count; i++) {
		const struct measured_link *link = m->measured.items[i];
		if (link->to == node->id && link->error[0] == '\0' &&
		    is_member_there(job, link->from) && link->bandwidth_bytes_per_s > best)
			best = link->bandwidth_bytes_per_s;
	}
	if (best > 0)
		ns_a_byte = NS / best;
	double ns = bytes * (double)job_parameters(job->spec) / shards_of(job) * ns_a_byte;
	return ns < (double)(UINT64_MAX / 4) ? (uint64_t)ns : UINT64_MAX / 4;
}

/* From a merge to the next, in steps that take so long. */
static uint64_t round_steps(const struct job *job, uint64_t steps, uint64_t step_ns)
{
	struct tr_sync_options options;
	struct tr_error error = { 0 };
	if (!job_sync_is_rare(job->spec->train->sync) || step_ns == 0 ||
	    job_sync_options(job->spec->train, steps, &options, &error) != TR_OK)
		return 1;
	double inner = options.inner_seconds > 0 ? options.inner_seconds * NS / (double)step_ns
	                                         : (double)options.inner_steps;
	double round = inner / (options.fragments > 0 ? options.fragments : 1);
	return round > 1 && round < (double)UINT32_MAX ? (uint64_t)round : 1;
}

/* Of who is left: the newest steps may be of more, until there is a view without those who are gone. */
static uint64_t step_ns(const struct job *job, const struct group *group)
{
	const Traind__V1__Progress *now = job->soft.progress;
	size_t nodes;
	uint32_t each = workers_of_a_replica(job), left = members_left(job, group, &nodes) / each,
	         members = (uint32_t)group->view->view->n_peers / each;
	if (now == NULL || !(now->tokens_per_s > 0))
		return 0;
	double ns = NS * (double)job->spec->train->optimizer->batch_tokens / now->tokens_per_s *
	    (members > left ? (double)members / left : 1);
	return ns < (double)(UINT64_MAX / 4) ? (uint64_t)ns : 0;
}

static struct joining joining_of(const struct membership *m, const struct job *job,
    const struct group *group, const struct node *node)
{
	uint32_t live = state_job_live_workers(job, job->group) / workers_of_a_replica(job);
	uint64_t ns = step_ns(job, group);
	uint64_t steps = job->soft.progress != NULL ? job->soft.progress->steps : 0;
	return (struct joining){ .step_ns = ns,
		.workers = live,
		.next_workers = live + 1,
		.done = job->soft.late.told_step,
		.steps = steps,
		.round_steps = round_steps(job, steps, ns),
		.start_ns = job->soft.late.start_ms * 1000000,
		.state_ns = state_ns(m, job, node) };
}

static void tell(struct membership *m, struct job *job, const struct node *node, bool stays_free,
    const char *why)
{
	char text[TR_ERROR_TEXT_MAX];
	(void)snprintf(text, sizeof(text), "the place on %s %s: %s", node->hello->name,
	    stays_free ? "stays free" : "is taken after all", why);
	facts_note(m, job, text);
	if (stays_free)
		job_wait(m, job, "goes on with fewer peers: %s", text);
}

bool latecomer_pays(struct membership *m, struct job *job, const struct node *node)
{
	const struct group *group = state_group(m, job->group);
	struct joining_refused *refused = &job->soft.late.refused;
	bool was = refused->workers > 0;
	char words[JOINING_TEXT];
	if (!takes_whoever_comes(job) || group == NULL || group->view == NULL ||
	    !state_job_trained(job))
		return true;
	if (!goes_on_without(m, job, group)) {
		if (was)
			tell(m, job, node, false, "the job does not go on without it");
		*refused = (struct joining_refused){ 0 };
		return true;
	}
	struct joining joining = joining_of(m, job, group, node);
	if (was && !joining_asks_again(refused, &joining))
		return false;
	bool pays = joining_pays(&joining), fewer = joining.workers < refused->workers;
	if (pays ? was : !was || fewer)
		tell(m, job, node, !pays, joining_words(&joining, words));
	*refused = (struct joining_refused){ 0 };
	if (!pays)
		*refused = (struct joining_refused){ .workers = joining.workers,
			.left_ns = joining_left_ns(&joining),
			.state_ns = joining.state_ns };
	return pays;
}

void latecomer_started(const struct membership *m, const struct peer *peer)
{
	struct job *job = peer->job != 0 ? state_job(m, peer->job) : NULL;
	if (job == NULL || peer->soft.start_ms == 0)
		return;
	uint64_t took_ms = m->now_ms > peer->soft.start_ms ? m->now_ms - peer->soft.start_ms : 1;
	if (job->soft.late.start_ms == 0 || took_ms < job->soft.late.start_ms)
		job->soft.late.start_ms = took_ms;
}

bool latecomer_stays_out(const struct job *job)
{
	return job->soft.late.refused.workers > 0;
}
