#include "daemon/plan/replan.h"

#include <math.h>
#include <string.h>

#include "daemon/plan/job_mesh.h"
#include "daemon/plan/plan_basis.h"
#include "daemon/plan/plan_dealing.h"
#include "daemon/plan/plan_predict.h"
#include "daemon/plan/plan_search.h"
#include "daemon/plan/ranks.h"

_Static_assert(PLAN_BASIS_NODES_MAX >= REPLAN_PEERS_MAX, "a plan of as many nodes can be made anew");
_Static_assert(REPLAN_PEERS_MAX == 64, "job_mesh.c says so");

#define PPM            1e6
#define SPEED_LEAST    1e-3 /* of a worker that hardly works */
#define NS_A_BYTE_MOST 1e6
/* Less than this part of what was planned with is worth a word. */
#define IS_LESS 0.8

struct ground {
	struct plan_cost rows[PLAN_COSTS_MAX];
	struct plan_costs costs;
	struct plan_cluster cluster;
	struct plan_input in;
};

/* ---- what the job runs of all choices ---- */

static uint32_t least(uint32_t a, uint32_t b)
{
	return a < b ? a : b;
}

/* The largest of the microbatches that costs are known of, up to what the job cuts its shares into; 0: there is none. */
static uint32_t sequences_of(const struct replan_job *job, const struct mesh *mesh)
{
	uint32_t dp = mesh->size[MESH_DP], share = dp > 0 ? (job->batch + dp - 1) / dp : job->batch,
	         most = least(job->micro, share), found = 0;

	for (size_t i = 0; i < job->basis->n_costs; i++) {
		const Traind__V1__PlanCost *cost = job->basis->costs[i];
		if (cost->tp == mesh->size[MESH_TP] && cost->sequences <= most &&
		    cost->sequences > found)
			found = cost->sequences;
	}
	return found;
}

/* How the job runs over this mesh. */
static struct plan_choice choice_of(const struct replan_job *job, const struct mesh *mesh)
{
	const Traind__V1__Mesh *m = job->mesh;
	const struct dealing even = { .mesh = *mesh };
	struct job_batch batch = { job->batch, job->micro };
	uint32_t asked = m != NULL && m->chunks > 0 ? m->chunks : 1, dp = mesh->size[MESH_DP];
	uint32_t chunks = job_mesh_chunks(job->model, &even, asked, &batch);
	bool own_rows = (m != NULL && m->sequence_parallel) || job->basis->sequence_parallel;

	return (struct plan_choice){ .mesh = *mesh,
		.kind = mesh->size[MESH_PP] > 1 ? job_mesh_schedule(m, chunks) : SCHEDULE_1F1B,
		.chunks = chunks,
		.sequences = sequences_of(job, mesh),
		.recompute = m != NULL && m->recompute,
		.own_rows = own_rows && mesh->size[MESH_TP] > 1,
		.owners = m != NULL && dp > 1 ? least(m->zero_owners, dp) : 0 };
}

static bool runs_so(const void *arg, const struct plan_choice *choice)
{
	const struct plan_choice runs = choice_of(arg, &choice->mesh);

	return runs.kind == choice->kind && runs.chunks == choice->chunks &&
	    runs.sequences == choice->sequences && runs.recompute == choice->recompute &&
	    runs.own_rows == choice->own_rows && runs.owners == choice->owners;
}

/* ---- who is there, and how fast ---- */

static double speed_of(int64_t ppm)
{
	return fmax((double)ppm / PPM, SPEED_LEAST);
}

/* Who came from a node that the plan does not know is taken to be as fast as the slowest that is measured. */
static double unknown_speed(const struct replan_task *task)
{
	double least = INFINITY;

	for (uint32_t i = 0; i < task->count; i++)
		if (task->figures[i].speed_ppm > 0)
			least = fmin(least, speed_of(task->figures[i].speed_ppm));
	return isinf(least) ? 1 : least;
}

static double planned_speed(const struct replan_job *job, const struct replan_task *task, uint32_t i)
{
	uint32_t node = plan_basis_node(job->basis, (uint64_t)task->figures[i].node);

	return node != PLAN_BASIS_NONE ? job->basis->nodes[node]->speed : unknown_speed(task);
}

static double speed_now(const struct replan_job *job, const struct replan_task *task, uint32_t i)
{
	int64_t ppm = task->figures[i].speed_ppm;

	return ppm > 0 ? speed_of(ppm) : planned_speed(job, task, i);
}

/* The least of all, where its node is none that the plan knows. */
static uint64_t memory_of(const struct replan_job *job, const struct replan_task *task, uint32_t i)
{
	uint32_t node = plan_basis_node(job->basis, (uint64_t)task->figures[i].node);
	uint64_t memory = UINT64_MAX;

	if (node != PLAN_BASIS_NONE)
		return job->basis->nodes[node]->memory_bytes;
	for (size_t k = 0; k < job->basis->n_nodes; k++)
		if (job->basis->nodes[k]->memory_bytes < memory)
			memory = job->basis->nodes[k]->memory_bytes;
	return memory;
}

/* Contributors' nodes, each once; place[i]: of contributor i. Returns how many. */
static uint32_t nodes_there(const struct replan_task *task, int64_t *ids, uint32_t *place)
{
	uint32_t count = 0;

	for (uint32_t i = 0; i < task->count; i++) {
		uint32_t at = 0;
		while (at < count && ids[at] != task->figures[i].node)
			at++;
		if (at == count)
			ids[count++] = task->figures[i].node;
		place[i] = at;
	}
	return count;
}

/* What went from the one to the other; 0: nobody knows. */
static double measured_between(const struct replan_task *task, int64_t from, int64_t to)
{
	int64_t most = 0;

	for (uint32_t i = 0; i < task->count; i++)
		for (uint32_t j = 0; j < task->count; j++)
			if (task->figures[i].node == from && task->figures[j].node == to &&
			    task->figures[i].bandwidth[j] > most)
				most = task->figures[i].bandwidth[j];
	return (double)most;
}

static struct flow_link link_planned(const struct replan_job *job, int64_t from, int64_t to)
{
	return plan_basis_link(job->basis, plan_basis_node(job->basis, (uint64_t)from),
	    plan_basis_node(job->basis, (uint64_t)to));
}

/* What is measured while a job sends is never more than it sends, and so only tells what is less than planned. INFINITY: it does not. */
static double slow_rate(const struct replan_job *job, const struct replan_task *task, int64_t from,
    int64_t to)
{
	double measured = from != to ? measured_between(task, from, to) : 0;

	return measured > 0 &&
	        measured < IS_LESS * link_planned(job, from, to).bandwidth_bytes_per_s
	    ? measured
	    : INFINITY;
}

/* In a ring who is reached slowly hands on what comes, and is never seen to send as much as it could: it is taken to send no faster, where nobody knows. (Taken to be as planned, the ring would look fast in another
 * order, which the slow cable would be in too.) */
static struct flow_link link_now(const struct replan_job *job, const struct replan_task *task,
    int64_t from, int64_t to)
{
	struct flow_link link = link_planned(job, from, to);
	double rate = slow_rate(job, task, from, to);

	for (uint32_t i = 0; i < task->count && from != to && measured_between(task, from, to) == 0;
	     i++)
		rate = fmin(rate, slow_rate(job, task, task->figures[i].node, from));
	link.bandwidth_bytes_per_s = fmin(link.bandwidth_bytes_per_s, rate);
	return link;
}

static uint64_t host_of(const struct replan_job *job, int64_t id)
{
	uint32_t at = plan_basis_node(job->basis, (uint64_t)id);

	return at != PLAN_BASIS_NONE && job->basis->nodes[at]->host != 0
	    ? job->basis->nodes[at]->host
	    : (uint64_t)id;
}

/* The same for nodes of one site. */
static uint64_t site_of(const struct replan_job *job, int64_t id)
{
	uint32_t at = plan_basis_node(job->basis, (uint64_t)id);

	return at != PLAN_BASIS_NONE && job->basis->nodes[at]->site != 0
	    ? job->basis->nodes[at]->site
	    : host_of(job, id);
}

/* Cards and cables stay as planned: of two links that share one each looks half as fast while both send, and the card would then be taken to be shared twice. */
static void take_hosts(const struct replan_job *job, const int64_t *ids,
    struct plan_cluster *cluster)
{
	for (uint32_t i = 0; i < cluster->node_count; i++) {
		struct plan_node *node = &cluster->nodes[i];
		uint32_t at = plan_basis_node(job->basis, (uint64_t)ids[i]);
		node->host = node->site = 0;
		while (host_of(job, ids[node->host]) != host_of(job, ids[i]))
			node->host++;
		while (site_of(job, ids[node->site]) != site_of(job, ids[i]))
			node->site++;
		if (at == PLAN_BASIS_NONE)
			continue;
		node->card_out_bytes_per_s = job->basis->nodes[at]->card_out_bytes_per_s;
		node->card_in_bytes_per_s = job->basis->nodes[at]->card_in_bytes_per_s;
		node->cable_out_bytes_per_s = job->basis->nodes[at]->cable_out_bytes_per_s;
		node->cable_in_bytes_per_s = job->basis->nodes[at]->cable_in_bytes_per_s;
	}
}

static tr_status make_cluster(const struct replan_job *job, const struct replan_task *task,
    struct plan_cluster *cluster, struct tr_error *error)
{
	int64_t ids[REPLAN_PEERS_MAX] = { 0 };
	uint32_t place[REPLAN_PEERS_MAX], nodes = nodes_there(task, ids, place);
	tr_status st = plan_cluster_create(nodes, task->count, cluster, error);

	if (st != TR_OK)
		return st;
	cluster->busy = job->basis->busy;
	for (uint32_t i = 0; i < task->count; i++)
		cluster->workers[i] = (struct plan_worker){ place[i], speed_now(job, task, i),
			memory_of(job, task, i) };
	for (uint32_t i = 0; i < nodes; i++)
		for (uint32_t j = 0; j < nodes; j++)
			*plan_cluster_link(cluster, i, j) = link_now(job, task, ids[i], ids[j]);
	take_hosts(job, ids, cluster);
	return TR_OK;
}

/* `task` with figures of its own, or as the caller has them. Finished by the caller, with the cluster. */
static tr_status make_ground(const struct replan_job *job, const struct replan_task *task,
    struct ground *g, struct tr_error *error)
{
	tr_status st = plan_basis_costs(job->basis, g->rows, &g->costs, error);

	if (st == TR_OK)
		st = make_cluster(job, task, &g->cluster, error);
	g->in = (struct plan_input){ .cluster = &g->cluster,
		.model = job->model,
		.costs = &g->costs,
		.batch = job->batch,
		.sequence_length = job->model->context,
		.runnable = true,
		.owners = job->mesh != NULL ? job->mesh->zero_owners : 0,
		.writes = job->writes };
	return st;
}

/* ---- the plan in force ---- */

static uint32_t contributor_at(const struct replan_task *task, uint32_t rank)
{
	for (uint32_t i = 0; i < task->count; i++)
		if (task->ranks[i] == rank)
			return i;
	return RANKS_NONE;
}

/* Ranks of this replica, as those of replica `number` of a mesh of those that are there. */
static bool take_replica(const struct replan_task *task, const struct mesh *there, uint32_t place,
    uint32_t number, uint16_t *worker_of)
{
	const struct mesh *mesh = &task->dealing.mesh;

	for (uint32_t i = 0; i < ranks_shards(mesh); i++) {
		struct mesh_at at = { .at = { [MESH_DP] = place,
			                  [MESH_PP] = i / mesh->size[MESH_TP],
			                  [MESH_TP] = i % mesh->size[MESH_TP] } };
		uint32_t who = contributor_at(task, mesh_rank(mesh, at));
		if (who == RANKS_NONE)
			return false;
		at.at[MESH_DP] = number;
		worker_of[mesh_rank(there, at)] = (uint16_t)who;
	}
	return true;
}

/* Places along dp of whole replicas, ascending. */
static uint32_t replicas_there(const struct replan_task *task, uint32_t *places)
{
	uint16_t ignored[PLAN_WORKERS_MAX];
	uint32_t count = 0;

	for (uint32_t d = 0; d < task->dealing.mesh.size[MESH_DP]; d++)
		if (take_replica(task, &task->dealing.mesh, d, d, ignored))
			places[count++] = d;
	return count;
}

static tr_status plan_in_force(const struct replan_job *job, const struct replan_task *task,
    const struct plan_input *in, struct plan *plan, struct tr_error *error)
{
	uint32_t places[REPLAN_PEERS_MAX], layers[PLAN_STAGES_MAX];
	struct dealing now = { .mesh = task->dealing.mesh };
	uint32_t *size = now.mesh.size;

	size[MESH_DP] = replicas_there(task, places);
	if (size[MESH_DP] == 0)
		return tr_error_set(error, TR_EINVAL, "no whole replica is there");
	memcpy(now.layers, task->dealing.layers, sizeof(now.layers));
	for (uint32_t d = 0; d < size[MESH_DP]; d++)
		now.shares[d] = task->dealing.shares[places[d]];
	*plan = (struct plan){ .choice = choice_of(job, &now.mesh) };
	if (plan->choice.sequences == 0)
		return tr_error_set(error, TR_EINVAL,
		    "the plan that the job came with has no costs of tp %u", size[MESH_TP]);
	for (uint32_t d = 0; d < size[MESH_DP]; d++) {
		(void)take_replica(task, &now.mesh, places[d], d, plan->worker_of);
		plan->microbatches_of[d] = plan_dealing_microbatches(in, &plan->choice, &now, d);
	}
	tr_status st = job_mesh_stages(job->model, size[MESH_PP], plan->choice.chunks,
	    dealing_layers(&now), layers, error);
	for (uint32_t i = 0; i < size[MESH_PP] * plan->choice.chunks && st == TR_OK; i++)
		plan->layers_of[i] = (uint16_t)layers[i];
	return st;
}

/* ---- a worker's part ---- */

static double computing_s(const struct plan_layout *l, const struct plan *plan, uint32_t worker)
{
	for (uint32_t rank = 0; rank < mesh_workers(&plan->choice.mesh); rank++) {
		struct mesh_at at = mesh_at(&plan->choice.mesh, rank);
		double sum = 0;
		if (plan->worker_of[rank] != worker)
			continue;
		for (uint32_t stage = at.at[MESH_PP]; stage < l->stages; stage += l->pp) {
			size_t i = (size_t)at.at[MESH_DP] * l->stages + stage;
			sum += l->stage_s[i].forward_s + l->stage_s[i].backward_s -
			    l->stage_exchange_s[i];
		}
		return sum * plan->microbatches_of[at.at[MESH_DP]];
	}
	return 0;
}

double replan_computing_s(const struct replan_job *job, const struct replan_task *task,
    uint32_t self)
{
	struct replan_task equal = *task;
	struct ground g = { 0 };
	struct plan_layout *layout = NULL;
	struct plan plan;
	struct tr_error none;
	double found = 0;

	for (uint32_t i = 0; i < equal.count; i++)
		equal.figures[i] = (struct replan_figures){ .speed_ppm = (int64_t)PPM };
	tr_status st = make_ground(job, &equal, &g, &none);
	if (st == TR_OK)
		st = plan_in_force(job, &equal, &g.in, &plan, &none);
	if (st == TR_OK)
		layout = plan_layout_create(&g.in, &none);
	if (layout != NULL && plan_layout_cost(layout, &plan.choice, NULL) != NULL) {
		plan_refill(layout, &plan);
		found = computing_s(layout, &plan, self);
	}
	plan_layout_destroy(layout);
	plan_cluster_finish(&g.cluster);
	return found;
}

/* ---- the search ---- */

static tr_status predict(const struct ground *g, struct plan *plan, struct tr_error *error)
{
	struct plan_layout *layout = plan_layout_create(&g->in, error);
	tr_status st = layout != NULL ? TR_OK : error->status;

	if (layout != NULL && plan_layout_cost(layout, &plan->choice, NULL) == NULL)
		st = tr_error_set(error, TR_EINVAL, "what the plan in force costs is not known");
	if (st == TR_OK)
		st = plan_predict(layout, plan, error);
	plan_layout_destroy(layout);
	return st;
}

/* Of workers that nobody has seen: they have as little as any. */
bool replan_memory(const struct replan_job *job, const struct mesh *mesh, uint64_t *bytes,
    uint64_t *room)
{
	struct replan_task task = { .dealing = { .mesh = *mesh }, .count = mesh_workers(mesh) };
	struct ground g = { 0 };
	struct plan plan;
	struct tr_error none;

	if (task.count > REPLAN_PEERS_MAX)
		return false;
	for (uint32_t i = 0; i < task.count; i++)
		task.ranks[i] = i;
	tr_status st = make_ground(job, &task, &g, &none);
	if (st == TR_OK)
		st = plan_in_force(job, &task, &g.in, &plan, &none);
	if (st == TR_OK)
		st = predict(&g, &plan, &none);
	if (st == TR_OK) {
		*bytes = plan.memory_bytes;
		*room = memory_of(job, &task, 0);
	}
	plan_cluster_finish(&g.cluster);
	return st == TR_OK;
}

static tr_status find_best(const struct replan_job *job, struct ground *g,
    struct plan_result **result, struct tr_error *error)
{
	struct plan_search_settings settings = { .seed = 1,
		.only = { .chunks = job->mesh != NULL ? job->mesh->chunks : 0 },
		.is_wanted = runs_so,
		.arg = job };
	tr_status st = plan_search(&g->in, &settings, result, error);

	if (st != TR_ELIMIT || g->in.writes == PLAN_WRITES_NOTHING ||
	    g->in.writes == PLAN_WRITES_SHARDS)
		return st;
	g->in.writes = PLAN_WRITES_NOTHING; /* as now, then: who writes has no room */
	return plan_search(&g->in, &settings, result, error);
}

static void write_plan(const struct replan_task *task, const struct ground *g,
    const struct plan *plan, struct wish *wish)
{
	plan_dealing(&g->in, plan, &wish->dealing);
	for (uint32_t i = 0; i < TR_GROUP_PEERS_MAX; i++)
		wish->ranks[i] = RANKS_NONE;
	for (uint32_t rank = 0; rank < mesh_workers(&plan->choice.mesh); rank++)
		if (plan->worker_of[rank] < task->count)
			wish->ranks[plan->worker_of[rank]] = rank;
}

static uint32_t percent_of(double part)
{
	return (uint32_t)(100 * part + 0.5);
}

/* The worker, or else the link, that has the least of what was planned with, if that is little. */
static void find_why(const struct replan_job *job, const struct replan_task *task, struct wish *wish)
{
	double worst = IS_LESS;

	for (uint32_t i = 0; i < task->count; i++) {
		double part = speed_now(job, task, i) / planned_speed(job, task, i);
		if (part < worst) {
			worst = part;
			wish->why = WISH_WHY_WORKER;
			wish->who = wish->to = i;
		}
	}
	for (uint32_t i = 0; i < task->count * task->count && wish->why != WISH_WHY_WORKER; i++) {
		const struct replan_figures *from = &task->figures[i / task->count],
		                            *to = &task->figures[i % task->count];
		double part = slow_rate(job, task, from->node, to->node) /
		    link_planned(job, from->node, to->node).bandwidth_bytes_per_s;
		if (part < worst) {
			worst = part;
			wish->why = WISH_WHY_LINK;
			wish->who = i / task->count;
			wish->to = i % task->count;
		}
	}
	wish->percent = percent_of(worst);
}

/* What a change of plan moves may go over any of them. */
static uint64_t slowest_ns_a_byte(const struct plan_cluster *cluster)
{
	double most = 0;

	for (uint32_t i = 0; i < cluster->node_count; i++)
		for (uint32_t j = 0; j < cluster->node_count; j++)
			if (i != j)
				most = fmax(most,
				    1e9 / plan_cluster_link(cluster, i, j)->bandwidth_bytes_per_s);
	return (uint64_t)fmin(most, NS_A_BYTE_MOST);
}

/* Where only shares differ, they follow speeds by themselves. */
static bool moves_nothing(const struct plan *now, const struct plan *best)
{
	uint32_t stages = best->choice.mesh.size[MESH_PP] * best->choice.chunks;

	return mesh_equal(&now->choice.mesh, &best->choice.mesh) &&
	    memcmp(now->worker_of, best->worker_of,
	        mesh_workers(&now->choice.mesh) * sizeof(now->worker_of[0])) == 0 &&
	    memcmp(now->layers_of, best->layers_of, stages * sizeof(now->layers_of[0])) == 0;
}

static bool is_better(const struct plan *now, const struct plan *best)
{
	return 100 * best->times.step_s < (100 - REPLAN_PERCENT) * now->times.step_s &&
	    !moves_nothing(now, best);
}

tr_status replan_search(const struct replan_job *job, const struct replan_task *task,
    struct wish *wish, struct tr_error *error)
{
	struct ground g = { 0 };
	struct plan now;
	struct plan_result *result = NULL;

	*wish = (struct wish){ .kind = WISH_FAILED };
	tr_status st = make_ground(job, task, &g, error);
	if (st == TR_OK)
		st = plan_in_force(job, task, &g.in, &now, error);
	if (st == TR_OK)
		st = predict(&g, &now, error);
	if (st == TR_OK)
		st = find_best(job, &g, &result, error);
	if (st == TR_OK) {
		const struct plan *best = &result->best;
		wish->kind = is_better(&now, best) ? WISH_CHANGE : WISH_STAY;
		find_why(job, task, wish);
		write_plan(task, &g, best, wish);
		wish->now_ns = (uint64_t)(1e9 * now.times.step_s);
		wish->next_ns = (uint64_t)(1e9 * best->times.step_s);
		wish->ns_a_byte = slowest_ns_a_byte(&g.cluster);
	}
	plan_search_destroy(result);
	plan_cluster_finish(&g.cluster);
	return st;
}
