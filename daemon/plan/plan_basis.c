#include "daemon/plan/plan_basis.h"

#include <math.h>
#include <stdlib.h>

/* Between hosts, where a plan has one node alone and so knows no way to another. */
#define LATENCY_S   0.25e-3
#define BYTES_PER_S 125e6

/* ---- made ---- */

static void destroy_cost(Traind__V1__PlanCost *cost)
{
	if (cost == NULL)
		return;
	free(cost->forward_s);
	free(cost->backward_s);
	free(cost->kept_bytes);
	free(cost);
}

void plan_basis_destroy(Traind__V1__PlanBasis *basis)
{
	if (basis == NULL)
		return;
	for (size_t i = 0; i < basis->n_costs; i++)
		destroy_cost(basis->costs[i]);
	for (size_t i = 0; i < basis->n_nodes; i++)
		free(basis->nodes[i]);
	free(basis->costs);
	free(basis->nodes);
	free(basis->latency_s);
	free(basis->bandwidth_bytes_per_s);
	free(basis);
}

/* A list of doubles, and its length. */
static bool copy_times(const struct plan_section_time *from, bool forward, double **list,
    size_t *length)
{
	*list = calloc(SECTIONS, sizeof(**list));
	if (*list == NULL)
		return false;
	for (; *length < SECTIONS; (*length)++)
		(*list)[*length] = forward ? from[*length].forward_s : from[*length].backward_s;
	return true;
}

static Traind__V1__PlanCost *cost_made(const struct plan_cost *from)
{
	Traind__V1__PlanCost *cost = calloc(1, sizeof(*cost));

	if (cost == NULL)
		return NULL;
	traind__v1__plan_cost__init(cost);
	cost->tp = from->tp;
	cost->sequences = from->sequences;
	cost->working_bytes = from->working_bytes;
	cost->kept_bytes = calloc(SECTIONS, sizeof(*cost->kept_bytes));
	if (!copy_times(from->time, true, &cost->forward_s, &cost->n_forward_s) ||
	    !copy_times(from->time, false, &cost->backward_s, &cost->n_backward_s) ||
	    cost->kept_bytes == NULL) {
		destroy_cost(cost);
		return NULL;
	}
	for (; cost->n_kept_bytes < SECTIONS; cost->n_kept_bytes++)
		cost->kept_bytes[cost->n_kept_bytes] = from->kept_bytes[cost->n_kept_bytes];
	return cost;
}

/* No microbatch of the job is larger than the plan's. */
static bool add_costs(const struct plan_input *in, const struct plan *plan,
    Traind__V1__PlanBasis *basis)
{
	basis->costs = calloc(in->costs->count, sizeof(Traind__V1__PlanCost *));
	if (basis->costs == NULL)
		return false;
	for (uint32_t i = 0; i < in->costs->count; i++) {
		if (in->costs->at[i].sequences > plan->choice.sequences)
			continue;
		Traind__V1__PlanCost *cost = cost_made(&in->costs->at[i]);
		if (cost == NULL)
			return false;
		basis->costs[basis->n_costs++] = cost;
	}
	return basis->n_costs > 0;
}

/* Numbers in the cluster of the nodes that have ranks, each once, and a worker there. Returns how many. */
static uint32_t nodes_of(const struct plan_input *in, const struct plan *plan, uint32_t *nodes,
    uint32_t *workers)
{
	uint32_t count = 0;

	for (uint32_t rank = 0; rank < mesh_workers(&plan->choice.mesh); rank++) {
		uint32_t worker = plan->worker_of[rank], at = 0,
		         node = in->cluster->workers[worker].node;
		while (at < count && nodes[at] != node)
			at++;
		if (at < count)
			continue;
		nodes[count] = node;
		workers[count++] = worker;
	}
	return count;
}

static bool add_nodes(const struct plan_input *in, const uint64_t *ids, const struct plan *plan,
    Traind__V1__PlanBasis *basis)
{
	uint32_t nodes[PLAN_WORKERS_MAX], workers[PLAN_WORKERS_MAX];
	uint32_t count = nodes_of(in, plan, nodes, workers);

	if (count > PLAN_BASIS_NODES_MAX)
		return false;
	size_t links = (size_t)count * count;
	basis->nodes = calloc(count, sizeof(Traind__V1__PlanNode *));
	basis->latency_s = calloc(links, sizeof(*basis->latency_s));
	basis->bandwidth_bytes_per_s = calloc(links, sizeof(*basis->bandwidth_bytes_per_s));
	if (basis->nodes == NULL || basis->latency_s == NULL || basis->bandwidth_bytes_per_s == NULL)
		return false;
	basis->n_latency_s = basis->n_bandwidth_bytes_per_s = links;
	for (uint32_t i = 0; i < count; i++) {
		const struct plan_worker *worker = &in->cluster->workers[workers[i]];
		Traind__V1__PlanNode *node = calloc(1, sizeof(*node));
		if (node == NULL)
			return false;
		traind__v1__plan_node__init(node);
		node->id = ids[nodes[i]];
		node->memory_bytes = worker->memory_bytes;
		node->speed = worker->speed;
		uint32_t host = in->cluster->nodes[nodes[i]].host;
		node->host = ids[host];
		node->card_out_bytes_per_s = plan_cluster_card_out(in->cluster, host);
		node->card_in_bytes_per_s = plan_cluster_card_in(in->cluster, host);
		uint32_t site = plan_cluster_site(in->cluster, host);
		node->site = ids[site];
		node->cable_out_bytes_per_s = in->cluster->nodes[site].cable_out_bytes_per_s;
		node->cable_in_bytes_per_s = in->cluster->nodes[site].cable_in_bytes_per_s;
		basis->nodes[basis->n_nodes++] = node;
		for (uint32_t j = 0; j < count; j++) {
			const struct flow_link *link = plan_cluster_link(in->cluster, nodes[i],
			    nodes[j]);
			basis->latency_s[(size_t)i * count + j] = link->latency_s;
			basis->bandwidth_bytes_per_s[(size_t)i * count +
			    j] = link->bandwidth_bytes_per_s;
		}
	}
	return true;
}

Traind__V1__PlanBasis *plan_basis_make(const struct plan_input *in, const uint64_t *node_ids,
    const struct plan *plan)
{
	Traind__V1__PlanBasis *basis = calloc(1, sizeof(*basis));

	if (basis == NULL)
		return NULL;
	traind__v1__plan_basis__init(basis);
	basis->update_s = in->costs->update_s;
	basis->round_s = in->costs->round_s;
	basis->sum_s = in->costs->sum_s;
	basis->sum_byte_s = in->costs->sum_byte_s;
	basis->process_bytes = in->costs->process_bytes;
	basis->parameter_bytes = in->costs->parameter_bytes;
	basis->sequence_parallel = in->costs->sequence_parallel;
	basis->dropout = in->costs->dropout;
	basis->busy = in->cluster->busy;
	if (add_costs(in, plan, basis) && add_nodes(in, node_ids, plan, basis))
		return basis;
	plan_basis_destroy(basis);
	return NULL;
}

/* ---- read ---- */

static bool are_costs(const Traind__V1__PlanBasis *basis)
{
	bool good = true;

	for (size_t i = 0; i < basis->n_costs; i++)
		good = good && basis->costs[i]->n_forward_s == SECTIONS &&
		    basis->costs[i]->n_backward_s == SECTIONS &&
		    basis->costs[i]->n_kept_bytes == SECTIONS;
	return good;
}

static bool are_nodes(const Traind__V1__PlanBasis *basis)
{
	bool good = true;

	for (size_t i = 0; i < basis->n_nodes; i++) {
		const Traind__V1__PlanNode *node = basis->nodes[i];
		good = good && node->speed > 0 && isfinite(node->speed) && node->memory_bytes > 0 &&
		    node->card_out_bytes_per_s >= 0 && node->card_in_bytes_per_s >= 0 &&
		    node->cable_out_bytes_per_s >= 0 && node->cable_in_bytes_per_s >= 0;
	}
	return good;
}

static bool are_links(const Traind__V1__PlanBasis *basis)
{
	size_t links = basis->n_nodes * basis->n_nodes;
	bool good = basis->n_latency_s == links && basis->n_bandwidth_bytes_per_s == links;

	for (size_t i = 0; good && i < links; i++)
		good = basis->latency_s[i] >= 0 && isfinite(basis->latency_s[i]) &&
		    basis->bandwidth_bytes_per_s[i] > 0;
	return good;
}

tr_status plan_basis_check(const Traind__V1__PlanBasis *basis, struct tr_error *error)
{
	if (basis->n_costs > PLAN_COSTS_MAX || basis->n_nodes == 0 ||
	    basis->n_nodes > PLAN_BASIS_NODES_MAX)
		return tr_error_set(error, TR_EINVAL,
		    "plan.basis: found %zu costs and %zu nodes, allowed: at most %u, and 1 to %u",
		    basis->n_costs, basis->n_nodes, PLAN_COSTS_MAX, PLAN_BASIS_NODES_MAX);
	if (!are_costs(basis))
		return tr_error_set(error, TR_EINVAL,
		    "plan.basis: a cost is not of embedding, layer and head");
	if (!are_nodes(basis) || !are_links(basis))
		return tr_error_set(error, TR_EINVAL,
		    "plan.basis: a node has no speed, memory, card or cable, or a way between two "
		    "no latency or bandwidth");
	return TR_OK;
}

tr_status plan_basis_costs(const Traind__V1__PlanBasis *basis,
    struct plan_cost rows[PLAN_COSTS_MAX], struct plan_costs *costs, struct tr_error *error)
{
	tr_status st = plan_basis_check(basis, error);

	if (st != TR_OK)
		return st;
	for (size_t i = 0; i < basis->n_costs; i++) {
		const Traind__V1__PlanCost *from = basis->costs[i];
		rows[i] = (struct plan_cost){ .tp = from->tp,
			.sequences = from->sequences,
			.working_bytes = from->working_bytes };
		for (unsigned section = 0; section < SECTIONS; section++) {
			rows[i].time[section] = (struct plan_section_time){ from->forward_s[section],
				from->backward_s[section] };
			rows[i].kept_bytes[section] = from->kept_bytes[section];
		}
	}
	*costs = (struct plan_costs){ .at = rows,
		.count = (uint32_t)basis->n_costs,
		.update_s = basis->update_s,
		.round_s = basis->round_s,
		.sum_s = basis->sum_s,
		.sum_byte_s = basis->sum_byte_s,
		.process_bytes = basis->process_bytes,
		.parameter_bytes = basis->parameter_bytes,
		.sequence_parallel = basis->sequence_parallel,
		.dropout = basis->dropout };
	return TR_OK;
}

uint32_t plan_basis_node(const Traind__V1__PlanBasis *basis, uint64_t id)
{
	for (uint32_t i = 0; i < basis->n_nodes; i++)
		if (basis->nodes[i]->id == id)
			return i;
	return PLAN_BASIS_NONE;
}

static struct flow_link link_at(const Traind__V1__PlanBasis *basis, uint32_t from, uint32_t to)
{
	size_t at = (size_t)from * basis->n_nodes + to;

	return at < basis->n_latency_s && at < basis->n_bandwidth_bytes_per_s
	    ? (struct flow_link){ basis->latency_s[at], basis->bandwidth_bytes_per_s[at] }
	    : (struct flow_link){ LATENCY_S, BYTES_PER_S };
}

static struct flow_link worst_link(const Traind__V1__PlanBasis *basis)
{
	struct flow_link worst = { LATENCY_S, BYTES_PER_S };
	bool known = false;

	for (uint32_t i = 0; i < basis->n_nodes * basis->n_nodes; i++) {
		uint32_t from = i / (uint32_t)basis->n_nodes, to = i % (uint32_t)basis->n_nodes;
		struct flow_link link = link_at(basis, from, to);
		if (from != to &&
		    (!known || link.bandwidth_bytes_per_s < worst.bandwidth_bytes_per_s)) {
			worst = link;
			known = true;
		}
	}
	return worst;
}

struct flow_link plan_basis_link(const Traind__V1__PlanBasis *basis, uint32_t from, uint32_t to)
{
	bool known = from < basis->n_nodes && to < basis->n_nodes;

	return known ? link_at(basis, from, to) : worst_link(basis);
}
