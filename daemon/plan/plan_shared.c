#include "daemon/plan/plan_shared.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#define GRADIENT_BYTES 4

static uint64_t shared_of(const struct plan_layout *l, const struct plan *plan, uint32_t rank)
{
	uint64_t count = 0;

	for (uint32_t stage = rank; stage < l->stages; stage += l->pp)
		count += plan->layers_of[stage] * l->of_tp->shared[SECTION_LAYER];
	if (rank == 0)
		count += l->of_tp->shared[SECTION_EMBEDDING];
	if (rank + 1 == l->pp)
		count += l->of_tp->shared[SECTION_HEAD];
	return count;
}

/* Workers in the sum; a strict job's groups have made it themselves, and replicas sum what they have as any gradient. */
static uint32_t members(const struct plan_layout *l, const struct plan *plan)
{
	uint32_t dp = plan_apart_summed(l);

	if (l->tp == 1 || (!plan->choice.own_rows && (dp < 3 || l->in->batch_parts > 0)))
		return 1;
	return l->in->batch_parts > 0 ? l->tp : dp * l->tp;
}

double plan_shared_bytes(const struct plan_layout *l, const struct plan *plan, uint32_t rank)
{
	uint32_t all = members(l, plan);

	return all > 1 ? collective_bytes_sent(COLLECTIVE_ALL_REDUCE,
	                     (double)shared_of(l, plan, rank) * GRADIENT_BYTES, all)
	               : 0;
}

static void ring_traffic(const struct plan_layout *l, const struct plan *plan, uint32_t rank,
    double *sums)
{
	double bytes = plan_shared_bytes(l, plan, rank);
	const uint16_t *stage = &plan->worker_of[rank * l->dp * l->tp];
	bool crosses = members(l, plan) > l->tp;
	uint32_t order[PLAN_WORKERS_MAX];

	assert(l->tp > 0);
	for (uint32_t replica = 0; replica < l->dp; replica++)
		for (uint32_t t = 0; t < (crosses ? l->tp - 1 : l->tp); t++)
			plan_layout_use(l,
			    plan_cluster_way(l->in->cluster, stage[replica * l->tp + t],
			        stage[replica * l->tp + (t + 1) % l->tp]),
			    bytes, sums);
	if (!crosses)
		return;
	plan_layout_ring(l, plan, rank, 0, order);
	for (uint32_t i = 0; i < l->dp; i++)
		plan_layout_use(l,
		    plan_cluster_way(l->in->cluster, order[i], order[(i + 1) % l->dp]), bytes,
		    sums);
}

void plan_shared_traffic(const struct plan_layout *l, const struct plan *plan, double *bytes)
{
	for (uint32_t rank = 0; rank < l->pp && members(l, plan) > 1; rank++)
		ring_traffic(l, plan, rank, bytes);
}

/* One ring through all groups, from one replica to the next where the ring over dp goes; those of all stages at the same time. */
double plan_shared_s(const struct plan_layout *l, const struct plan *plan)
{
	bool crosses = members(l, plan) > l->tp;
	double latency_s = 0;

	if (members(l, plan) == 1)
		return 0;
	for (uint32_t i = 0; i < l->dp * l->pp; i++) {
		latency_s = fmax(latency_s, l->groups[i].latency_s);
		latency_s = fmax(latency_s, crosses ? l->rings[i % l->pp].latency_s : 0);
	}
	memset(l->uses, 0, l->link_count * sizeof(*l->uses));
	plan_shared_traffic(l, plan, l->uses);
	return 2 * latency_s + plan_layout_busiest_s(l, l->uses);
}

/* ---- a tied table ---- */

/* Replicas whose two are in one sum. */
static uint32_t table_replicas(const struct plan_layout *l)
{
	return l->in->apart.on || l->in->batch_parts > 0 ? 1 : l->dp;
}

uint64_t plan_table_summed_apart(const struct plan_layout *l, uint32_t rank)
{
	bool has = l->pp > 1 && (rank == 0 || rank + 1 == l->pp);

	return has && table_replicas(l) > 1 ? l->of_tp->table : 0;
}

double plan_table_bytes(const struct plan_layout *l)
{
	return l->pp == 1 ? 0
	                  : collective_bytes_sent(COLLECTIVE_ALL_REDUCE,
	                        (double)l->of_tp->table * GRADIENT_BYTES, 2 * table_replicas(l));
}

static void table_ring(const struct plan_layout *l, const struct plan *plan, uint32_t t,
    double *sums)
{
	const struct plan_cluster *c = l->in->cluster;
	uint32_t there[PLAN_WORKERS_MAX], back[PLAN_WORKERS_MAX], n = l->dp;
	double bytes = plan_table_bytes(l);

	assert(n > 0);
	plan_layout_ring(l, plan, 0, t, there);
	plan_layout_ring(l, plan, l->pp - 1, t, back);
	for (uint32_t i = 0; i + 1 < n; i++) {
		plan_layout_use(l, plan_cluster_way(c, there[i], there[i + 1]), bytes, sums);
		plan_layout_use(l, plan_cluster_way(c, back[i], back[i + 1]), bytes, sums);
	}
	plan_layout_use(l, plan_cluster_way(c, there[n - 1], back[0]), bytes, sums);
	plan_layout_use(l, plan_cluster_way(c, back[n - 1], there[0]), bytes, sums);
}

void plan_table_traffic(const struct plan_layout *l, const struct plan *plan, double *sums)
{
	const struct plan_cluster *c = l->in->cluster;
	uint32_t apart = l->dp * l->tp;
	double bytes = plan_table_bytes(l);

	if (bytes == 0)
		return;
	for (uint32_t t = 0; t < l->tp && table_replicas(l) > 1; t++)
		table_ring(l, plan, t, sums);
	for (uint32_t i = 0; i < apart && table_replicas(l) == 1; i++) {
		uint32_t first = plan->worker_of[i],
		         last = plan->worker_of[(l->pp - 1) * apart + i];
		plan_layout_use(l, plan_cluster_way(c, first, last), bytes, sums);
		plan_layout_use(l, plan_cluster_way(c, last, first), bytes, sums);
	}
}

/* A ring through the first stages, one replica after the other, and back through the last ones; those of all tp, or of all replicas, at the same time. */
double plan_table_s(const struct plan_layout *l, const struct plan *plan)
{
	double latency_s = 0;

	if (plan_table_bytes(l) == 0)
		return 0;
	for (uint32_t i = 0; i < l->dp * l->tp; i++)
		latency_s = fmax(latency_s,
		    l->links[plan_cluster_way(l->in->cluster, plan->worker_of[i],
		                 plan->worker_of[(l->pp - 1) * l->dp * l->tp + i])]
		        .latency_s);
	for (uint32_t end = 0; end < 2 && table_replicas(l) > 1; end++)
		latency_s = fmax(latency_s, l->rings[end * (l->pp - 1)].latency_s);
	memset(l->uses, 0, l->link_count * sizeof(*l->uses));
	plan_table_traffic(l, plan, l->uses);
	return 2 * latency_s + plan_layout_busiest_s(l, l->uses);
}
