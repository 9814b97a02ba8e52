/* Planning a job anew while it runs: the costs that it was planned with (plan_basis.h), speeds of workers and links as they are measured now, and of all plans those that the job can change to: its microbatch,
 * schedule, recomputation and owners stay what its file says, another dp, pp and tp there may be. Pure.
 *
 *	struct replan_job job = { basis, mesh, &config, batch, micro, saves };
 *	computes_s = replan_computing_s(&job, &task, self);    // one worker's part of a step, if it were of speed 1
 *	replan_search(&job, &task, &wish);                     // the best plan beside the one in force
 */
#ifndef TR_DAEMON_PLAN_REPLAN_H
#define TR_DAEMON_PLAN_REPLAN_H

#include "daemon/plan/plan_writes.h"
#include "daemon/plan/wish.h"
#include "traind/v1/trainer.pb-c.h"

/* Of more contributors a job is not planned anew: a search takes too long beside their work. */
#define REPLAN_PEERS_MAX 64u
/* A plan whose steps are not so much shorter is none to change to. */
#define REPLAN_PERCENT 10

struct replan_job {
	const Traind__V1__PlanBasis *basis;
	const Traind__V1__Mesh *mesh; /* NULL: none */
	const struct model_config *model;
	uint32_t batch, micro;   /* sequences: of a step; of a microbatch */
	enum plan_writes writes; /* checkpoints, for which who writes them needs room */
};

/* What one contributor measures. 0: not known. */
struct replan_figures {
	int64_t speed_ppm;                   /* 1,000,000: as fast as where costs were measured */
	int64_t node;                        /* id */
	int64_t bandwidth[REPLAN_PEERS_MAX]; /* bytes/s, to each contributor */
};

struct replan_task {
	struct dealing dealing; /* in force */
	uint32_t count;         /* contributors */
	uint32_t ranks[REPLAN_PEERS_MAX];
	struct replan_figures figures[REPLAN_PEERS_MAX];
};

/* Of contributor `self`, without what it exchanges; figures are not read. 0: it has no rank, or nobody knows what its part costs. */
double replan_computing_s(const struct replan_job *job, const struct replan_task *task,
    uint32_t self);

/* What the fullest worker of this mesh takes, and what the least of the plan's workers has. False: nobody knows. */
bool replan_memory(const struct replan_job *job, const struct mesh *mesh, uint64_t *bytes,
    uint64_t *room);

/* TR_ENOMEM, TR_EINVAL: *wish is WISH_FAILED. */
tr_status replan_search(const struct replan_job *job, const struct replan_task *task,
    struct wish *wish, struct tr_error *error);

#endif
