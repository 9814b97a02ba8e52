#include "daemon/plan/plan_shared.h"

#include <assert.h>
#include <math.h>

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

/* One ring through all groups, from one replica to the next where the ring over dp goes. */
double plan_shared_s(const struct plan_layout *l, const struct plan *plan)
{
	bool crosses = members(l, plan) > l->tp;
	double most = 0;

	for (uint32_t i = 0; i < l->dp * l->pp && members(l, plan) > 1; i++) {
		const struct plan_ring *ring = &l->rings[i % l->pp];
		const struct plan_group *group = &l->groups[i];
		double latency_s = group->latency_s, a_byte_s = group->seconds_a_byte;
		if (crosses) {
			latency_s = fmax(latency_s, ring->latency_s);
			a_byte_s = fmax(a_byte_s,
			    1 / l->in->cluster->links[ring->link].bandwidth_bytes_per_s);
		}
		most = fmax(most, 2 * latency_s + plan_shared_bytes(l, plan, i % l->pp) * a_byte_s);
	}
	return most;
}

static void ring_traffic(struct plan_layout *l, const struct plan *plan, uint32_t rank)
{
	double bytes = plan_shared_bytes(l, plan, rank);
	const uint16_t *stage = &plan->worker_of[rank * l->dp * l->tp];
	bool crosses = members(l, plan) > l->tp;
	uint32_t order[PLAN_WORKERS_MAX];

	assert(l->tp > 0);
	for (uint32_t replica = 0; replica < l->dp; replica++)
		for (uint32_t t = 0; t < (crosses ? l->tp - 1 : l->tp); t++)
			l->bytes[plan_cluster_way(l->in->cluster, stage[replica * l->tp + t],
			    stage[replica * l->tp + (t + 1) % l->tp])] += bytes;
	if (!crosses)
		return;
	plan_layout_ring(l, plan, rank, 0, order);
	for (uint32_t i = 0; i < l->dp; i++)
		l->bytes[plan_cluster_way(l->in->cluster, order[i], order[(i + 1) % l->dp])] += bytes;
}

void plan_shared_traffic(struct plan_layout *l, const struct plan *plan)
{
	for (uint32_t rank = 0; rank < l->pp && members(l, plan) > 1; rank++)
		ring_traffic(l, plan, rank);
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

/* A ring through the first stages, one replica after the other, and back through the last ones. */
double plan_table_s(const struct plan_layout *l, const struct plan *plan)
{
	double bytes = plan_table_bytes(l), most = 0;

	for (uint32_t i = 0; i < l->dp * l->tp && bytes > 0; i++) {
		uint32_t first = plan->worker_of[i],
		         last = plan->worker_of[(l->pp - 1) * l->dp * l->tp + i];
		const struct flow_link
		    *link = &l->in->cluster->links[plan_cluster_way(l->in->cluster, first, last)];
		double latency_s = link->latency_s, a_byte_s = 1 / link->bandwidth_bytes_per_s;
		for (uint32_t end = 0; end < 2 && table_replicas(l) > 1; end++) {
			const struct plan_ring *ring = &l->rings[end * (l->pp - 1)];
			latency_s = fmax(latency_s, ring->latency_s);
			a_byte_s = fmax(a_byte_s,
			    ring->crossings /
			        l->in->cluster->links[ring->link].bandwidth_bytes_per_s);
		}
		most = fmax(most, 2 * latency_s + bytes * a_byte_s);
	}
	return most;
}

static void table_ring(struct plan_layout *l, const struct plan *plan, uint32_t t)
{
	const struct plan_cluster *c = l->in->cluster;
	uint32_t there[PLAN_WORKERS_MAX], back[PLAN_WORKERS_MAX], n = l->dp;
	double bytes = plan_table_bytes(l);

	assert(n > 0);
	plan_layout_ring(l, plan, 0, t, there);
	plan_layout_ring(l, plan, l->pp - 1, t, back);
	for (uint32_t i = 0; i + 1 < n; i++) {
		l->bytes[plan_cluster_way(c, there[i], there[i + 1])] += bytes;
		l->bytes[plan_cluster_way(c, back[i], back[i + 1])] += bytes;
	}
	l->bytes[plan_cluster_way(c, there[n - 1], back[0])] += bytes;
	l->bytes[plan_cluster_way(c, back[n - 1], there[0])] += bytes;
}

void plan_table_traffic(struct plan_layout *l, const struct plan *plan)
{
	uint32_t apart = l->dp * l->tp;

	if (plan_table_bytes(l) == 0)
		return;
	for (uint32_t t = 0; t < l->tp && table_replicas(l) > 1; t++)
		table_ring(l, plan, t);
	for (uint32_t i = 0; i < apart && table_replicas(l) == 1; i++) {
		uint32_t first = plan->worker_of[i],
		         last = plan->worker_of[(l->pp - 1) * apart + i];
		l->bytes[plan_cluster_way(l->in->cluster, first, last)] += plan_table_bytes(l);
		l->bytes[plan_cluster_way(l->in->cluster, last, first)] += plan_table_bytes(l);
	}
}
