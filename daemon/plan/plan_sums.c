#include "daemon/plan/plan_sums.h"

#include <math.h>

#include "common/limits.h"

/* Whether the workers make these by themselves (collectives/engine/coll_turn.c). */
static bool in_turn(const struct plan_layout *l, const struct plan_group *group,
    const struct plan_exchange *what)
{
	return group->one_node && l->in->costs->sum_byte_s > 0 && l->tp > 1 &&
	    l->tp <= TR_IN_TURN_WORKERS_MAX &&
	    what->largest * l->cost->sequences <= (double)TR_IN_TURN_BYTES_MAX / (l->tp - 1);
}

double plan_sums_s(const struct plan_layout *l, const struct plan_group *group,
    const struct plan_exchange *what)
{
	const struct plan_costs *costs = l->in->costs;

	if (in_turn(l, group, what))
		return (costs->sum_s * what->ops +
		           costs->sum_byte_s * what->touched * l->cost->sequences) /
		    group->speed;
	return group->latency_s * what->latencies +
	    what->bytes * l->cost->sequences * group->seconds_a_byte;
}

double plan_sums_hidden_s(const struct plan_layout *l, const struct plan_group *group,
    double backward_s)
{
	double hidden = 0;

	if (l->in->cluster->busy || l->in->batch_parts > 0)
		return 0;
	for (unsigned i = 0; i < PLAN_BEHIND; i++) {
		const struct plan_behind *behind = &l->of_tp->behind[i];
		if (in_turn(l, group, &behind->sum))
			continue;
		hidden += fmin(plan_sums_s(l, group, &behind->sum), behind->share * backward_s);
	}
	return hidden;
}
