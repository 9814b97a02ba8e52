/* What a plan takes, of time and of memory. Pure.
 *
 *	struct plan_layout *layout = plan_layout_create(&input, &error);
 *	plan_fill(layout, &plan);                    // choice and placement are given: layers, microbatches
 *	estimate_s = plan_estimate_s(layout, &plan); // by formula, to compare many
 *	st = plan_predict(layout, &plan, &error);    // by the timeline: plan.times, plan.memory_bytes
 */
#ifndef TR_DAEMON_PLAN_PLAN_PREDICT_H
#define TR_DAEMON_PLAN_PLAN_PREDICT_H

#include "daemon/plan/plan_layout.h"

/* Layers of each stage, by what its workers compute and hold, and microbatches of each replica, so that all end together. Where the layers fit
 * in no way, they are split by time alone, and the plan does not fit. */
void plan_fill(struct plan_layout *layout, struct plan *plan);
/* Stage times of this plan, for what is asked of the layout itself. */
void plan_refill(struct plan_layout *layout, const struct plan *plan);

/* Time of a step, without its idle links: near, and cheap. */
double plan_estimate_s(struct plan_layout *layout, const struct plan *plan);

/* Of a worker of speed 1: the optimizer, and of a strict job adding up gradients of parts. */
double plan_update_s(const struct plan_layout *layout, const struct plan *plan, uint32_t rank);

/* What comes behind the sums over dp: the tied table's gradients meet when both ends have theirs, those of own rows all of tp; new parameters go to who has not made them; all hear of
 * the commit. */
double plan_after_reduction_s(const struct plan_layout *layout, const struct plan *plan);

/* plan->times and plan->memory_*, of the placement, layers and microbatches that the plan has. TR_EINVAL: the schedule cannot be; TR_ENOMEM. */
tr_status plan_predict(struct plan_layout *layout, struct plan *plan, struct tr_error *error);

/* No plan of this choice takes less on this cluster, whatever its placement: work over all speed, and one microbatch's way. */
double plan_bound_s(const struct plan_layout *layout, const struct plan_choice *choice);

#endif
