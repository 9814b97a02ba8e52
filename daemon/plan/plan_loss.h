/* What a plan loses with a node. Pure. */
#ifndef TR_DAEMON_PLAN_PLAN_LOSS_H
#define TR_DAEMON_PLAN_PLAN_LOSS_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/plan/plan.h"
#include "daemon/plan/plan_cluster.h"

/* Whether all workers of some shard of the model (a place along pp and tp) are on this node of the cluster: lost, it sends training back to the newest checkpoint, since no
 * other worker holds that shard's numbers. */
bool plan_loss_goes_back(const struct plan_cluster *cluster, const struct plan *plan, uint32_t node);

#endif
