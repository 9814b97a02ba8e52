/* What of a plan a job has to ask for: mesh.shares and mesh.layers, where they are not what it has anyway. Pure.
 *
 * A job's shares are in proportion to a plan's microbatches: none is then cut into more of them than the plan has.
 */
#ifndef TR_DAEMON_PLAN_PLAN_DEALING_H
#define TR_DAEMON_PLAN_PLAN_DEALING_H

#include "daemon/plan/dealing.h"
#include "daemon/plan/plan_layout.h"

/* Shares and layers that are as for equal workers are left 0. */
void plan_dealing(const struct plan_input *in, const struct plan *plan, struct dealing *dealing);
/* Microbatches of replica `number` with such shares: its last one may have fewer sequences than the others. */
uint32_t plan_dealing_microbatches(const struct plan_input *in, const struct plan_choice *choice,
    const struct dealing *dealing, uint32_t number);
/* Whether a job with shares in proportion to the plan's microbatches has one for each stage in every replica, as interleaved stages need. */
bool plan_dealing_feeds(const struct plan_input *in, const struct plan *plan);

#endif
