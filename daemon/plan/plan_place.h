/* Which worker has which rank. Inside the planner. Pure: the same input gives the same placement.
 *
 * Starts: tensor-parallel groups are cut out of nodes; groups are put in a row, node after node, each followed by the nearest (or the
 * fastest first); the row is laid into the mesh along dp or along the pipeline. Annealing goes on from the best: two workers, two groups or
 * a run of groups change places, a group moves; what takes longer is taken with a chance that falls to nothing (Kirkpatrick et al. 1983).
 */
#ifndef TR_DAEMON_PLAN_PLAN_PLACE_H
#define TR_DAEMON_PLAN_PLAN_PLACE_H

#include "daemon/plan/plan_layout.h"

/* plan->choice is given; the rest is filled in. plan->worker_of has all workers of the cluster, those without a rank behind the others.
 * Returns the score of what was found: the estimated time, far more where the memory does not suffice. */
double plan_place_start(struct plan_layout *layout, struct plan *plan);
/* From plan->worker_of on; fills in the rest. */
double plan_place_anneal(struct plan_layout *layout, uint64_t seed, uint32_t moves,
    struct plan *plan);

/* Whether it has workers on as many nodes as the input asks for: starts have, and no change is made after which it had not. */
bool plan_place_spreads(const struct plan_input *in, const struct plan *plan);

/* A time, made far longer where the plan does not fit, in order of how much is missing. */
double plan_place_score(const struct plan *plan, double seconds);

#endif
