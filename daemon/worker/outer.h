/* Low-communication training (sync.mode other than ddp): each worker takes inner steps on its share of the global batch with an AdamW of its own,
 * tr_sync merges. What is validated, saved and exported are the outer parameters.
 *
 * The moments of AdamW are this worker's own. One that comes later starts with none, and their age counts from there.
 */
#ifndef TR_DAEMON_WORKER_OUTER_H
#define TR_DAEMON_WORKER_OUTER_H

#include <limits.h>

#include "collectives/sync.h"
#include "collectives/sync/costs.h"

struct trainer;

struct outer {
	tr_sync *sync;     /* NULL: ddp */
	uint64_t age;      /* gradients in AdamW's moments */
	uint64_t origin;   /* as of the newest step (tr_sync_origin): age counts from there */
	bool raced;        /* as of it (tr_sync_races) */
	bool skipped;      /* the newest step was not applied */
	uint64_t round;    /* of the newest merge, also of one before this run */
	double lr_base[2]; /* to begin with, of a checkpoint; zeros: none */
	double val_loss; /* sum and tokens of this worker's part of a validation that is not yet reported */
	double val_tokens;
	char kept[PATH_MAX]; /* where workers leave what they learned alone (kept.h); "": nowhere */
	struct sync_costs
	    costs; /* of all merges, as far as a checkpoint knows them; tr_sync goes on from there */
};

/* Before the arrays are filled with what to begin with; and after it, which frees arrays.outer: their momentum is tr_sync's. */
tr_status outer_allocate(struct trainer *t, struct tr_error *error);
tr_status outer_create(struct trainer *t, struct tr_error *error);
void outer_destroy(struct trainer *t);

/* All inner steps. *after: a round that is already under way (struct tr_sync_now), or zeros. */
tr_status outer_run(struct trainer *t, struct tr_round *after, struct tr_error *error);

/* The outer parameters, in the model's layout. */
void outer_fetch(const struct trainer *t, float *params);
/* Their momentum, into arrays.outer, which is made for it; zeros where the mode has none. */
tr_status outer_fetch_momentum(struct trainer *t, struct tr_error *error);

/* HDET: the base of the learning rates and its momentum, beside the schedule of `train`. False, and zeros: there is none. */
bool outer_lr_base(const struct trainer *t, double base[2]);

/* Learning rate of a step of the job by the schedule alone, which counts from where training began anew. */
double outer_lr(const struct trainer *t, uint64_t step);

/* What all merges cost up to now. */
const struct sync_costs *outer_costs(const struct trainer *t);

#endif
