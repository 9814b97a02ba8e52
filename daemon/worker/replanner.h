/* What a worker knows to plan its job anew with: costs, nodes and links of the plan that the job came with (JobPlan), and a search in a thread of its own.
 *
 *	replanner_create(job, &whole, batch, micro, &planner, &error);    // *planner NULL: the job is not to be planned anew
 *	replanner_say(planner, group, &dealing, &ranks, self, computed_s, &figures);
 *	replanner_start(planner, &task);
 *	if (replanner_poll(planner, &wish)) ...                           // now and then
 *	replanner_destroy(planner);
 *
 * One thread calls. What is measured goes to who searches as whole numbers in an op.
 */
#ifndef TR_DAEMON_WORKER_REPLANNER_H
#define TR_DAEMON_WORKER_REPLANNER_H

#include "collectives/coll.h"
#include "common/error.h"
#include "daemon/plan/ranks.h"
#include "daemon/plan/replan.h"

struct replanner;

/* `whole` is of the model that is not split, and stays borrowed, as does `job`. TR_ENOMEM. */
tr_status replanner_create(const Traind__V1__JobSpec *job, const struct model_config *whole,
    uint64_t batch, uint64_t micro, struct replanner **planner, struct tr_error *error);
/* Waits for a search under way; accepts NULL. */
void replanner_destroy(struct replanner *planner);

/* All but the node. Of contributor `self`, which computed so long in a step, without waiting for others; without a rank its speed is what it was when it had one. */
void replanner_say(struct replanner *planner, tr_group *group, const struct dealing *dealing,
    const struct ranks *ranks, uint32_t self, double computed_s, struct replan_figures *figures);
/* replan_memory of the job. */
bool replanner_memory(struct replanner *planner, const struct mesh *mesh, uint64_t *bytes,
    uint64_t *room);
/* A search under way, which nobody needs any more, ends first. */
void replanner_start(struct replanner *planner, const struct replan_task *task);
/* True: the search that was started last has ended, and *wish is what came of it. */
bool replanner_poll(struct replanner *planner, struct wish *wish);

#endif
