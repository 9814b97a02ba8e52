/* Gradients of what all workers of a stage hold (norms, learned positions, biases behind a sum): one sum once a step, of all its replicas and their tensor-parallel groups together, besides the sums over
 * dp (daemon/worker/sharded_shared.c). With sequence parallelism each has those of its rows alone; without it they are summed so from three replicas on. And the gradient of a tied table, of which the last stage has a
 * copy: one sum over the first stage and the last one of all replicas, and none over dp besides; but of strict jobs, and of replicas that train apart, a replica's two, and then over dp. Inside the planner. Pure.
 */
#ifndef TR_DAEMON_PLAN_PLAN_SHARED_H
#define TR_DAEMON_PLAN_PLAN_SHARED_H

#include "daemon/plan/plan_layout.h"

/* That one worker of a pipeline rank sends in it; 0: there is no such sum. */
double plan_shared_bytes(const struct plan_layout *layout, const struct plan *plan, uint32_t rank);
/* What those of all stages take, where what they put on a link, a card or a cable takes longest. */
double plan_shared_s(const struct plan_layout *layout, const struct plan *plan);
/* Adds to bytes[links]. */
void plan_shared_traffic(const struct plan_layout *layout, const struct plan *plan, double *bytes);

/* Of a pipeline rank's parameters those of a table that is not among its sums over dp. */
uint64_t plan_table_summed_apart(const struct plan_layout *layout, uint32_t rank);
/* That one worker of either stage sends in its sum, what that takes, and on which ways. */
double plan_table_bytes(const struct plan_layout *layout);
double plan_table_s(const struct plan_layout *layout, const struct plan *plan);
void plan_table_traffic(const struct plan_layout *layout, const struct plan *plan, double *bytes);

#endif
