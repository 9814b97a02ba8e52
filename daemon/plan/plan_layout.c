#include "daemon/plan/plan_layout.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/plan/job_mesh.h"
#include "daemon/plan/owners.h"
#include "daemon/plan/plan_shared.h"
#include "daemon/plan/plan_sums.h"
#include "daemon/plan/split.h"

#define GRADIENT_BYTES  4
#define PARAMETER_BYTES 4

static bool allocate(struct plan_layout *l)
{
	size_t workers = l->in->cluster->worker_count, links = l->link_count;

	l->groups = calloc(workers, sizeof(*l->groups));
	l->forward = calloc(workers, sizeof(*l->forward));
	l->backward = calloc(workers, sizeof(*l->backward));
	l->rings = calloc(workers, sizeof(*l->rings));
	l->stage_s = calloc(workers * TR_SCHEDULE_CHUNKS_MAX, sizeof(*l->stage_s));
	l->stage_exchange_s = calloc(workers * TR_SCHEDULE_CHUNKS_MAX, sizeof(*l->stage_exchange_s));
	l->bytes = calloc(links, sizeof(*l->bytes));
	l->uses = calloc(links, sizeof(*l->uses));
	l->own_uses = calloc(links, sizeof(*l->own_uses));
	l->links = calloc(links, sizeof(*l->links));
	return l->groups != NULL && l->forward != NULL && l->backward != NULL && l->rings != NULL &&
	    l->stage_s != NULL && l->stage_exchange_s != NULL && l->bytes != NULL &&
	    l->uses != NULL && l->own_uses != NULL && l->links != NULL;
}

/* Cards and cables have no latency: links have what there is between two nodes. */
static void copy_links(struct plan_layout *l)
{
	const struct plan_cluster *c = l->in->cluster;
	uint32_t nodes = c->node_count;

	memcpy(l->links, c->links, (size_t)nodes * nodes * sizeof(*l->links));
	for (uint32_t host = 0; host < nodes; host++) {
		l->links[plan_layout_card(l, host, false)] = (struct flow_link){ 0,
			plan_cluster_card_out(c, host) };
		l->links[plan_layout_card(l, host, true)] = (struct flow_link){ 0,
			plan_cluster_card_in(c, host) };
	}
	for (uint32_t site = 0; site < nodes; site++) {
		double out = plan_cluster_cable_out(c, site), in = plan_cluster_cable_in(c, site);
		l->links[plan_layout_cable(l, site, false)] = (struct flow_link){ 0, out };
		l->links[plan_layout_cable(l, site, true)] = (struct flow_link){ 0, in };
		l->cables = l->cables || !isinf(out) || !isinf(in);
	}
}

struct plan_layout *plan_layout_create(const struct plan_input *in, struct tr_error *error)
{
	struct plan_layout *layout = calloc(1, sizeof(*layout));
	tr_status st = plan_cluster_check(in->cluster, error);

	if (st == TR_OK && in->batch == 0)
		st = tr_error_set(error, TR_EINVAL, "a batch of no sequences");
	if (layout != NULL) {
		layout->in = in;
		layout->link_count = in->cluster->node_count * (in->cluster->node_count + 4);
	}
	if (st == TR_OK && (layout == NULL || !allocate(layout)))
		st = tr_error_set(error, TR_ENOMEM, "no memory to plan for %u workers",
		    in->cluster->worker_count);
	if (st == TR_OK)
		st = plan_costs_derive(in->model, in->sequence_length, in->costs, layout->derived,
		    error);
	if (st == TR_OK && layout != NULL) {
		copy_links(layout);
		layout->good_workers = plan_cluster_good(in->cluster);
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
	free(layout->own_uses);
	free(layout->links);
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

/* What a section adds to a stage's times, and to what of them is exchange. */
static void add_section(const struct plan_layout *l, const struct plan_group *group,
    enum graph_section_kind section, double times, bool recompute, struct plan_section_time *stage,
    double *exchanged)
{
	double forward = plan_sums_s(l, group, &l->of_tp->exchange[section][PHASE_FORWARD]),
	       backward = plan_sums_s(l, group, &l->of_tp->exchange[section][PHASE_BACKWARD]);
	double forward_s = l->cost->time[section].forward_s / group->speed,
	       backward_s = l->cost->time[section].backward_s / group->speed;

	if (section == SECTION_LAYER)
		backward -= plan_sums_hidden_s(l, group, backward_s);
	if (recompute) {
		backward += plan_sums_s(l, group, &l->of_tp->again);
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
	    plan_layout_reduce_bytes(l, plan, rank) * ring->alone.times /
	    plan_layout_bandwidth(l, ring->alone.link);
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
		plan_layout_use(l,
		    plan_cluster_way(l->in->cluster, plan_layout_worker(l, plan, replica, rank, t),
		        plan_layout_worker(l, plan, replica, rank, (t + 1) % l->tp)),
		    bytes, l->bytes);
}

static void pipeline_traffic(struct plan_layout *l, const struct plan *plan, uint32_t replica)
{
	double bytes = l->of_tp->boundary_bytes * l->cost->sequences *
	    plan->microbatches_of[replica];

	for (uint32_t stage = 0; stage + 1 < l->stages && l->pp > 1; stage++) {
		for (uint32_t t = 0; t < l->tp; t++) {
			uint32_t here = plan_layout_worker(l, plan, replica, stage % l->pp, t),
			         there = plan_layout_worker(l, plan, replica, (stage + 1) % l->pp,
			             t);
			plan_layout_use(l, plan_cluster_way(l->in->cluster, here, there), bytes,
			    l->bytes);
			plan_layout_use(l, plan_cluster_way(l->in->cluster, there, here), bytes,
			    l->bytes);
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
				plan_layout_use(l,
				    plan_cluster_way(l->in->cluster,
				        plan_layout_worker(l, plan, from, rank, tp),
				        plan_layout_worker(l, plan, to, rank, tp)),
				    piece, bytes);
		}
	}
}

void plan_layout_traffic(struct plan_layout *l, const struct plan *plan)
{
	const struct plan_cluster *c = l->in->cluster;
	uint32_t order[PLAN_WORKERS_MAX];
	double sums = l->in->apart.on ? plan_apart_merges(l, plan->times.step_s) : 1;

	memset(l->bytes, 0, l->link_count * sizeof(*l->bytes));
	for (uint32_t replica = 0; replica < l->dp; replica++) {
		for (uint32_t rank = 0; rank < l->pp; rank++)
			tensor_traffic(l, plan, replica, rank);
		pipeline_traffic(l, plan, replica);
	}
	plan_table_traffic(l, plan, l->bytes);
	plan_layout_add_pieces(l, plan, l->bytes);
	plan_shared_traffic(l, plan, l->bytes);
	for (uint32_t i = 0; i < l->pp * l->tp && l->dp > 1; i++) {
		plan_layout_ring(l, plan, i / l->tp, i % l->tp, order);
		for (uint32_t j = 0; j < l->dp; j++)
			plan_layout_use(l, plan_cluster_way(c, order[j], order[(j + 1) % l->dp]),
			    sums * plan_layout_reduce_bytes(l, plan, i / l->tp), l->bytes);
	}
}
