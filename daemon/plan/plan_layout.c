#include "daemon/plan/plan_layout.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/plan/job_mesh.h"
#include "daemon/plan/owners.h"
#include "daemon/plan/plan_shared.h"
#include "daemon/plan/split.h"

#define GRADIENT_BYTES  4
#define PARAMETER_BYTES 4

static bool allocate(struct plan_layout *l)
{
	size_t workers = l->in->cluster->worker_count,
	       links = (size_t)l->in->cluster->node_count * l->in->cluster->node_count;

	l->groups = calloc(workers, sizeof(*l->groups));
	l->forward = calloc(workers, sizeof(*l->forward));
	l->backward = calloc(workers, sizeof(*l->backward));
	l->rings = calloc(workers, sizeof(*l->rings));
	l->stage_s = calloc(workers * TR_SCHEDULE_CHUNKS_MAX, sizeof(*l->stage_s));
	l->stage_exchange_s = calloc(workers * TR_SCHEDULE_CHUNKS_MAX, sizeof(*l->stage_exchange_s));
	l->bytes = calloc(links, sizeof(*l->bytes));
	l->uses = calloc(links, sizeof(*l->uses));
	return l->groups != NULL && l->forward != NULL && l->backward != NULL && l->rings != NULL &&
	    l->stage_s != NULL && l->stage_exchange_s != NULL && l->bytes != NULL &&
	    l->uses != NULL;
}

struct plan_layout *plan_layout_create(const struct plan_input *in, struct tr_error *error)
{
	struct plan_layout *layout = calloc(1, sizeof(*layout));
	tr_status st = plan_cluster_check(in->cluster, error);

	if (st == TR_OK && in->batch == 0)
		st = tr_error_set(error, TR_EINVAL, "a batch of no sequences");
	if (layout != NULL)
		layout->in = in;
	if (st == TR_OK && (layout == NULL || !allocate(layout)))
		st = tr_error_set(error, TR_ENOMEM, "no memory to plan for %u workers",
		    in->cluster->worker_count);
	if (st == TR_OK)
		st = plan_costs_derive(in->model, in->sequence_length, in->costs, layout->derived,
		    error);
	if (st == TR_OK) {
		plan_costs_split_rows(in->model, in->sequence_length, in->costs, layout->derived,
		    layout->split, layout->own);
		return layout;
	}
	plan_layout_destroy(layout);
	return NULL;
}

void plan_layout_destroy(struct plan_layout *layout)
{
	if (layout == NULL)
		return;
	free(layout->groups);
	free(layout->forward);
	free(layout->backward);
	free(layout->rings);
	free(layout->stage_s);
	free(layout->stage_exchange_s);
	free(layout->bytes);
	free(layout->uses);
	free(layout);
}

const struct plan_cost *plan_layout_cost(const struct plan_layout *layout,
    const struct plan_choice *choice, const struct plan_derived **derived)
{
	const struct plan_costs *costs = layout->in->costs;
	bool split = choice->own_rows && !costs->sequence_parallel;
	const struct plan_derived *of = split ? layout->own : layout->derived;
	const struct plan_cost *at = split ? layout->split : costs->at;

	for (uint32_t i = 0; i < costs->count; i++) {
		if (at[i].tp != choice->mesh.size[MESH_TP] || at[i].sequences != choice->sequences)
			continue;
		if (derived != NULL)
			*derived = &of[i];
		return of[i].possible ? &at[i] : NULL;
	}
	return NULL;
}

/* Ranks count along tp, then dp, then pp (mesh.h). */
static uint32_t worker_at(const struct plan_layout *l, const struct plan *plan, uint32_t replica,
    uint32_t rank, uint32_t tp)
{
	return plan->worker_of[(rank * l->dp + replica) * l->tp + tp];
}

static void clear_uses(struct plan_layout *l)
{
	size_t nodes = l->in->cluster->node_count;

	memset(l->uses, 0, nodes * nodes * sizeof(*l->uses));
}

static double bandwidth(const struct plan_layout *l, uint32_t link)
{
	return l->in->cluster->links[link].bandwidth_bytes_per_s;
}

/* The tensor-parallel rings of all groups. */
static void place_groups(struct plan_layout *l, const struct plan *plan)
{
	const struct plan_cluster *c = l->in->cluster;

	clear_uses(l);
	for (uint32_t i = 0; i < l->dp * l->pp; i++) {
		const uint16_t *workers = &plan->worker_of[(i % l->pp * l->dp + i / l->pp) * l->tp];
		struct plan_group *group = &l->groups[i];
		*group = (struct plan_group){ .speed = INFINITY };
		for (uint32_t t = 0; t < l->tp; t++) {
			group->speed = fmin(group->speed, c->workers[workers[t]].speed);
			if (l->tp == 1)
				continue;
			uint32_t way = plan_cluster_way(c, workers[t], workers[(t + 1) % l->tp]);
			l->uses[way]++;
			group->latency_s = fmax(group->latency_s, c->links[way].latency_s);
		}
	}
	for (uint32_t i = 0; i < l->dp * l->pp && l->tp > 1; i++) {
		const uint16_t *workers = &plan->worker_of[(i % l->pp * l->dp + i / l->pp) * l->tp];
		for (uint32_t t = 0; t < l->tp; t++) {
			uint32_t way = plan_cluster_way(c, workers[t], workers[(t + 1) % l->tp]);
			l->groups[i].seconds_a_byte = fmax(l->groups[i].seconds_a_byte,
			    l->uses[way] / bandwidth(l, way));
		}
	}
}

/* Of the tp streams of a pair of pipeline ranks, those on the link that has least for them; `share` is all replicas' streams there. */
static struct plan_edge slowest_edge(const struct plan_layout *l, const struct plan *plan,
    uint32_t replica, uint32_t from, uint32_t to)
{
	struct plan_edge edge = { 0 };
	double slowest = -1;

	for (uint32_t t = 0; t < l->tp; t++) {
		uint32_t way = plan_cluster_way(l->in->cluster,
		    worker_at(l, plan, replica, from, t), worker_at(l, plan, replica, to, t));
		double takes = l->uses[way] / bandwidth(l, way);
		if (takes > slowest) {
			slowest = takes;
			edge = (struct plan_edge){ .link = way, .share = l->uses[way] };
		}
		edge.streams += edge.link == way;
	}
	return edge;
}

static void add_uses(struct plan_layout *l, const struct plan *plan, uint32_t replica, double what)
{
	for (uint32_t rank = 0; rank < l->pp; rank++) {
		uint32_t next = (rank + 1) % l->pp;
		if (next == 0 && l->stages == l->pp)
			continue;
		for (uint32_t t = 0; t < l->tp; t++) {
			uint32_t here = worker_at(l, plan, replica, rank, t),
			         there = worker_at(l, plan, replica, next, t);
			l->uses[plan_cluster_way(l->in->cluster, here, there)] += what;
			l->uses[plan_cluster_way(l->in->cluster, there, here)] += what;
		}
	}
}

/* A replica has of a link what its streams are of all replicas' streams; l->uses is what the others have there. */
static void share_edge(const struct plan_layout *l, struct plan_edge *edge)
{
	edge->share = edge->share > 0 ? (edge->share - l->uses[edge->link]) / edge->share : 1;
}

static void place_pipeline(struct plan_layout *l, const struct plan *plan)
{
	clear_uses(l);
	for (uint32_t replica = 0; replica < l->dp && l->pp > 1; replica++)
		add_uses(l, plan, replica, 1);
	for (uint32_t replica = 0; replica < l->dp && l->pp > 1; replica++) {
		struct plan_edge *forward = &l->forward[replica * l->pp],
		                 *backward = &l->backward[replica * l->pp];
		for (uint32_t rank = 0; rank < l->pp; rank++) {
			forward[rank] = slowest_edge(l, plan, replica, rank, (rank + 1) % l->pp);
			backward[rank] = slowest_edge(l, plan, replica, rank,
			    (rank + l->pp - 1) % l->pp);
		}
		add_uses(l, plan, replica, -1);
		for (uint32_t rank = 0; rank < l->pp; rank++) {
			share_edge(l, &forward[rank]);
			share_edge(l, &backward[rank]);
		}
		add_uses(l, plan, replica, 1);
	}
}

/* Workers of one dp group in the order of their ring: those of a node together, then the nearest node (most bandwidth, then least
 * latency). */
void plan_layout_ring(const struct plan_layout *l, const struct plan *plan, uint32_t rank,
    uint32_t tp, uint32_t *order)
{
	const struct plan_cluster *c = l->in->cluster;

	for (uint32_t i = 0; i < l->dp; i++)
		order[i] = worker_at(l, plan, i, rank, tp);
	for (uint32_t i = 1; i < l->dp; i++) {
		uint32_t best = i;
		for (uint32_t j = i; j < l->dp; j++) {
			const struct flow_link
			    *a = &c->links[plan_cluster_way(c, order[i - 1], order[j])],
			    *b = &c->links[plan_cluster_way(c, order[i - 1], order[best])];
			bool here = c->workers[order[j]].node == c->workers[order[i - 1]].node,
			     best_here = c->workers[order[best]].node ==
			    c->workers[order[i - 1]].node;
			if (here != best_here) {
				best = here ? j : best;
				continue;
			}
			if (a->bandwidth_bytes_per_s > b->bandwidth_bytes_per_s ||
			    (a->bandwidth_bytes_per_s == b->bandwidth_bytes_per_s &&
			        a->latency_s < b->latency_s))
				best = j;
		}
		uint32_t taken = order[best];
		order[best] = order[i];
		order[i] = taken;
	}
}

static void place_rings(struct plan_layout *l, const struct plan *plan)
{
	const struct plan_cluster *c = l->in->cluster;
	uint32_t ways[PLAN_WORKERS_MAX], order[PLAN_WORKERS_MAX];

	clear_uses(l);
	for (uint32_t rank = 0; rank < l->pp; rank++) {
		struct plan_ring *ring = &l->rings[rank];
		uint32_t count = 0;
		double slowest = -1;
		*ring = (struct plan_ring){ 0 };
		for (uint32_t t = 0; t < l->tp && l->dp > 1; t++) {
			plan_layout_ring(l, plan, rank, t, order);
			for (uint32_t i = 0; i < l->dp; i++)
				ways[count++] = plan_cluster_way(c, order[i],
				    order[(i + 1) % l->dp]);
		}
		for (uint32_t i = 0; i < count; i++)
			l->uses[ways[i]]++;
		for (uint32_t i = 0; i < count; i++) {
			double takes = l->uses[ways[i]] / bandwidth(l, ways[i]);
			ring->latency_s = fmax(ring->latency_s, c->links[ways[i]].latency_s);
			if (takes > slowest) {
				slowest = takes;
				ring->link = ways[i];
				ring->crossings = l->uses[ways[i]];
			}
		}
		for (uint32_t i = 0; i < count; i++)
			l->uses[ways[i]] = 0;
	}
}

/* The commit of a round goes there and back. */
static double farthest(const struct plan_layout *l, const struct plan *plan)
{
	const struct plan_cluster *c = l->in->cluster;
	bool used[PLAN_WORKERS_MAX] = { false };
	double most = 0;

	for (uint32_t i = 0; i < l->dp * l->pp * l->tp; i++)
		used[c->workers[plan->worker_of[i]].node] = true;
	for (uint32_t from = 0; from < c->node_count; from++)
		for (uint32_t to = 0; to < c->node_count && used[from]; to++)
			if (used[to] && l->dp * l->pp * l->tp > 1)
				most = fmax(most, plan_cluster_link(c, from, to)->latency_s);
	return most;
}

void plan_layout_place(struct plan_layout *l, const struct plan *plan)
{
	const struct plan_choice *choice = &plan->choice;

	l->dp = choice->mesh.size[MESH_DP];
	l->pp = choice->mesh.size[MESH_PP];
	l->tp = choice->mesh.size[MESH_TP];
	l->stages = l->pp * choice->chunks;
	l->cost = plan_layout_cost(l, choice, &l->of_tp);
	place_groups(l, plan);
	place_pipeline(l, plan);
	place_rings(l, plan);
	l->farthest_s = farthest(l, plan);
}

/* Sums over tp of one microbatch. */
static double exchange_s(const struct plan_layout *l, const struct plan_group *group,
    const struct plan_exchange *what)
{
	return group->latency_s * what->latencies +
	    what->bytes * l->cost->sequences * group->seconds_a_byte;
}

/* Of a layer's sums in the backward pass what costs nothing. Strict jobs wait for each; where all cores compute, a sum takes their time. */
static double hidden_s(const struct plan_layout *l, const struct plan_group *group,
    double backward_s)
{
	double hidden = 0;

	if (l->in->cluster->busy || l->in->batch_parts > 0)
		return 0;
	for (unsigned i = 0; i < PLAN_BEHIND; i++) {
		const struct plan_behind *behind = &l->of_tp->behind[i];
		hidden += fmin(exchange_s(l, group, &behind->sum), behind->share * backward_s);
	}
	return hidden;
}

/* What a section adds to a stage's times, and to what of them is exchange. */
static void add_section(const struct plan_layout *l, const struct plan_group *group,
    enum graph_section_kind section, double times, bool recompute, struct plan_section_time *stage,
    double *exchanged)
{
	double forward = exchange_s(l, group, &l->of_tp->exchange[section][PHASE_FORWARD]),
	       backward = exchange_s(l, group, &l->of_tp->exchange[section][PHASE_BACKWARD]);
	double forward_s = l->cost->time[section].forward_s / group->speed,
	       backward_s = l->cost->time[section].backward_s / group->speed;

	if (section == SECTION_LAYER)
		backward -= hidden_s(l, group, backward_s);
	if (recompute) {
		backward += exchange_s(l, group, &l->of_tp->again);
		backward_s += l->of_tp->again_share * forward_s;
	}
	stage->forward_s += times * (forward_s + forward);
	stage->backward_s += times * (backward_s + backward);
	*exchanged += times * (forward + backward);
}

static double both(struct plan_section_time time)
{
	return time.forward_s + time.backward_s;
}

/* A section as a group computes it. */
static double section_s(const struct plan_layout *l, const struct plan_group *group,
    enum graph_section_kind section, bool recompute)
{
	struct plan_section_time time = { 0 };
	double exchanged = 0;

	add_section(l, group, section, 1, recompute && section == SECTION_LAYER, &time, &exchanged);
	return both(time);
}

/* A rank's layers over its chunks, as evenly as they go; what is over goes to those that have neither embedding nor head. */
void plan_layout_deal(uint32_t rank, uint32_t layers, struct plan *plan)
{
	uint32_t chunks = plan->choice.chunks, pp = plan->choice.mesh.size[MESH_PP];

	for (uint32_t chunk = 0; chunk < chunks; chunk++) {
		uint32_t at = rank == 0 ? chunks - 1 - chunk : chunk;
		plan->layers_of[at * pp + rank] = (uint16_t)(layers / chunks +
		    (chunk < layers % chunks));
	}
}

/* As the job asks for them, or as its workers cut them by themselves. */
static bool split_as_dealt(const struct plan_layout *l, struct plan *plan, const uint32_t *most)
{
	uint32_t layers[PLAN_STAGES_MAX];
	struct dealing dealt;

	dealing_on(l->in->dealt, &plan->choice.mesh, &dealt);
	if (job_mesh_stages(l->in->model, l->pp, plan->choice.chunks, dealing_layers(&dealt),
	        layers, NULL) != TR_OK)
		return false;
	for (uint32_t rank = 0; rank < l->pp; rank++) {
		uint32_t all = 0;
		for (uint32_t stage = rank; stage < l->stages; stage += l->pp) {
			plan->layers_of[stage] = (uint16_t)layers[stage];
			all += layers[stage];
		}
		if (most != NULL && all > most[rank])
			return false;
	}
	return true;
}

/* By what a layer takes at a rank's groups, one in each replica, on average: replicas are evened out by their microbatches. */
bool plan_layout_split(struct plan_layout *l, struct plan *plan, const uint32_t *most)
{
	if (l->in->dealt != NULL)
		return split_as_dealt(l, plan, most);
	double speeds[PLAN_STAGES_MAX], worst, layer_s = 0;
	uint32_t layers[PLAN_STAGES_MAX];
	const struct plan_group *last = &l->groups[l->pp - 1];
	bool recompute = plan->choice.recompute;

	for (uint32_t rank = 0; rank < l->pp; rank++) {
		double rate = 0;
		for (uint32_t replica = 0; replica < l->dp; replica++)
			rate += 1 /
			    section_s(l, &l->groups[replica * l->pp + rank], SECTION_LAYER,
			        recompute);
		if (rank == 0)
			layer_s = l->dp / rate;
		speeds[rank] = rate / l->dp * layer_s;
	}
	double head_s = section_s(l, last, SECTION_HEAD, recompute) * layer_s /
	    section_s(l, last, SECTION_LAYER, recompute);
	struct split_input in = { .layers = l->in->model->layers,
		.stages = l->pp,
		.layer_s = layer_s,
		.embedding_s = section_s(l, &l->groups[0], SECTION_EMBEDDING, recompute),
		.head_s = head_s,
		.stage_speed = speeds,
		.most = most,
		.least = plan->choice.chunks };
	if (split_layers(&in, layers, &worst, NULL) != TR_OK)
		return false;
	for (uint32_t rank = 0; rank < l->pp; rank++)
		plan_layout_deal(rank, layers[rank], plan);
	return true;
}

void plan_layout_times(struct plan_layout *l, const struct plan *plan)
{
	for (uint32_t i = 0; i < l->dp * l->stages; i++) {
		uint32_t replica = i / l->stages, stage = i % l->stages;
		const struct plan_group *group = &l->groups[replica * l->pp + stage % l->pp];
		struct plan_section_time *time = &l->stage_s[i];
		double *exchanged = &l->stage_exchange_s[i];
		*time = (struct plan_section_time){ 0 };
		*exchanged = 0;
		add_section(l, group, SECTION_LAYER, plan->layers_of[stage], plan->choice.recompute,
		    time, exchanged);
		if (stage == 0)
			add_section(l, group, SECTION_EMBEDDING, 1, false, time, exchanged);
		if (stage + 1 == l->stages)
			add_section(l, group, SECTION_HEAD, 1, false, time, exchanged);
	}
}

double plan_layout_edge_s(const struct plan_layout *l, const struct plan_edge *edge, double bytes)
{
	return edge->streams * bytes / (bandwidth(l, edge->link) * edge->share);
}

uint64_t plan_layout_parameters(const struct plan_layout *l, const struct plan *plan, uint32_t rank)
{
	const struct plan_derived *of = l->of_tp;
	uint64_t count = 0;

	for (uint32_t stage = rank; stage < l->stages; stage += l->pp)
		count += plan->layers_of[stage] * of->parameters[SECTION_LAYER];
	if (rank == 0)
		count += of->parameters[SECTION_EMBEDDING];
	if (rank + 1 == l->pp)
		count += of->parameters[SECTION_HEAD] - (rank == 0 ? of->table : 0);
	return count;
}

static double piece_bytes(const struct plan_layout *l, const struct plan *plan, uint32_t rank)
{
	uint32_t owners = plan->choice.owners;

	return owners > 0 && owners < l->dp
	    ? (double)plan_layout_parameters(l, plan, rank) * PARAMETER_BYTES / l->dp
	    : 0;
}

uint32_t plan_layout_levels(const struct plan_layout *l)
{
	uint32_t levels = 0;

	for (uint32_t replicas = 1; replicas < l->dp; replicas *= 2)
		levels++;
	return l->in->batch_parts > 0 ? levels : 1;
}

double plan_layout_reduce_bytes(const struct plan_layout *l, const struct plan *plan, uint32_t rank)
{
	double all = (double)(plan_layout_parameters(l, plan, rank) -
	                 plan_table_summed_apart(l, rank)) *
	    (l->in->apart.on ? l->in->apart.wire_bytes : GRADIENT_BYTES);

	if (l->dp == 1)
		return 0;
	return l->in->batch_parts > 0 ? plan_layout_levels(l) * all
	                              : collective_bytes_sent(COLLECTIVE_ALL_REDUCE, all, l->dp);
}

double plan_layout_reduce_s(const struct plan_layout *l, const struct plan *plan, uint32_t rank)
{
	const struct plan_ring *ring = &l->rings[rank];

	return 2 * ring->latency_s * plan_layout_levels(l) +
	    plan_layout_reduce_bytes(l, plan, rank) * ring->crossings / bandwidth(l, ring->link);
}

static void tensor_traffic(struct plan_layout *l, const struct plan *plan, uint32_t replica,
    uint32_t rank)
{
	const struct plan_derived *of = l->of_tp;
	double bytes = 0;

	for (uint32_t stage = rank; stage < l->stages; stage += l->pp) {
		double of_layer = of->exchange[SECTION_LAYER][PHASE_FORWARD].bytes +
		    (plan->choice.recompute ? of->again.bytes : 0) +
		    of->exchange[SECTION_LAYER][PHASE_BACKWARD].bytes;
		bytes += plan->layers_of[stage] * of_layer;
		for (int phase = PHASE_FORWARD; phase <= PHASE_BACKWARD; phase++) {
			bytes += stage == 0 ? of->exchange[SECTION_EMBEDDING][phase].bytes : 0;
			bytes += stage + 1 == l->stages ? of->exchange[SECTION_HEAD][phase].bytes
			                                : 0;
		}
	}
	bytes *= (double)l->cost->sequences * plan->microbatches_of[replica];
	for (uint32_t t = 0; t < l->tp && l->tp > 1; t++)
		l->bytes[plan_cluster_way(l->in->cluster, worker_at(l, plan, replica, rank, t),
		    worker_at(l, plan, replica, rank, (t + 1) % l->tp))] += bytes;
}

static void pipeline_traffic(struct plan_layout *l, const struct plan *plan, uint32_t replica)
{
	double bytes = l->of_tp->boundary_bytes * l->cost->sequences *
	    plan->microbatches_of[replica];

	for (uint32_t stage = 0; stage + 1 < l->stages && l->pp > 1; stage++) {
		for (uint32_t t = 0; t < l->tp; t++) {
			uint32_t here = worker_at(l, plan, replica, stage % l->pp, t),
			         there = worker_at(l, plan, replica, (stage + 1) % l->pp, t);
			l->bytes[plan_cluster_way(l->in->cluster, here, there)] += bytes;
			l->bytes[plan_cluster_way(l->in->cluster, there, here)] += bytes;
		}
	}
}

double plan_layout_updated(const struct plan_layout *l, const struct plan *plan, uint32_t rank)
{
	uint32_t owners = plan->choice.owners;
	double all = (double)plan_layout_parameters(l, plan, rank);

	return owners > 0 && owners < l->dp ? all * (owners + 1) / l->dp : all;
}

/* Each first owner's piece, directly to who does not own it (owners.h). */
void plan_layout_add_pieces(const struct plan_layout *l, const struct plan *plan, double *bytes)
{
	for (uint32_t rank = 0; rank < l->pp; rank++) {
		double piece = piece_bytes(l, plan, rank);
		for (uint32_t i = 0; i < l->dp * l->dp * l->tp && piece > 0; i++) {
			uint32_t tp = i % l->tp, to = i / l->tp % l->dp, from = i / l->tp / l->dp;
			if (!owners_owns(plan->choice.owners, l->dp, to, from))
				bytes[plan_cluster_way(l->in->cluster,
				    worker_at(l, plan, from, rank, tp),
				    worker_at(l, plan, to, rank, tp))] += piece;
		}
	}
}

void plan_layout_traffic(struct plan_layout *l, const struct plan *plan)
{
	const struct plan_cluster *c = l->in->cluster;
	uint32_t order[PLAN_WORKERS_MAX];
	double sums = l->in->apart.on ? plan_apart_merges(l, plan->times.step_s) : 1;

	memset(l->bytes, 0, (size_t)c->node_count * c->node_count * sizeof(*l->bytes));
	for (uint32_t replica = 0; replica < l->dp; replica++) {
		for (uint32_t rank = 0; rank < l->pp; rank++)
			tensor_traffic(l, plan, replica, rank);
		pipeline_traffic(l, plan, replica);
	}
	plan_table_traffic(l, plan);
	plan_layout_add_pieces(l, plan, l->bytes);
	plan_shared_traffic(l, plan);
	for (uint32_t i = 0; i < l->pp * l->tp && l->dp > 1; i++) {
		plan_layout_ring(l, plan, i / l->tp, i % l->tp, order);
		for (uint32_t j = 0; j < l->dp; j++)
			l->bytes[plan_cluster_way(c, order[j], order[(j + 1) % l->dp])] += sums *
			    plan_layout_reduce_bytes(l, plan, i / l->tp);
	}
}
