/* What sums over tp take of a step: those that workers of one node make by themselves (TR_IN_TURN; collectives/engine/coll_turn.h) what these copy and read, all others a ring's way. Inside the planner, of the plan that was
 * laid out last. Pure.
 */
#ifndef TR_DAEMON_PLAN_PLAN_SUMS_H
#define TR_DAEMON_PLAN_PLAN_SUMS_H

#include "daemon/plan/plan_layout.h"

/* Of one microbatch. */
double plan_sums_s(const struct plan_layout *layout, const struct plan_group *group,
    const struct plan_exchange *what);
/* Of a layer's sums in the backward pass, which takes `backward_s`, what costs nothing. Strict jobs wait for each; where all cores compute, a sum takes their time, and where workers make it by themselves their own. */
double plan_sums_hidden_s(const struct plan_layout *layout, const struct plan_group *group,
    double backward_s);

#endif
