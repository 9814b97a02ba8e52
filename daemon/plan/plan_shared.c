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
