/* What a plan takes where replicas train apart (any sync.mode but ddp): nothing is summed over dp at a step; now and then all parameters are merged, and workers hold more for that. Inside the planner. Pure.
 *
 *	plan_apart_of(&options, &input.apart);      // of a job's sync section
 *
 * A merge is a ring over dp, as a sum of gradients is, of numbers as its codec leaves them. Fragments are merged one after another, all once in `steps`. Where replicas train on meanwhile it costs what of it takes longer than the
 * steps; else all of it. What is held besides parameters, gradients and moments is what collectives/sync/create.c takes for workers of whole models, and daemon/worker/sharded_apart.c for those of a split one. */
#ifndef TR_DAEMON_PLAN_PLAN_APART_H
#define TR_DAEMON_PLAN_PLAN_APART_H

#include <stdbool.h>

#include "collectives/sync.h"

struct plan;
struct plan_layout;

/* Zeroed: gradients are summed at each step. */
struct plan_apart {
	bool on;
	double steps;      /* from one merge of all parameters to the next; 0: it goes by time, */
	double seconds;    /* of so many */
	bool behind;       /* replicas train on meanwhile */
	double wire_bytes; /* of a number that is merged */
	double held_whole,
	    held_split; /* bytes a parameter that a worker holds, of a whole model, or of a shard */
	double written; /* bytes a parameter of a checkpoint besides parameters and moments */
};

void plan_apart_of(const struct tr_sync_options *options, struct plan_apart *apart);

/* Of the plan that was laid out last: replicas whose gradients are summed at each step, by each of them together. */
uint32_t plan_apart_summed(const struct plan_layout *layout);
/* The norm of a step, whose squares the workers of each replica sum. */
double plan_apart_norm_s(const struct plan_layout *layout);
/* Merges that come to a step of so many seconds; 0 but where replicas train apart. */
double plan_apart_merges(const struct plan_layout *layout, double step_s);
/* What they add to it. */
double plan_apart_merge_s(const struct plan_layout *layout, const struct plan *plan, double step_s);

#endif
