/* Low-communication training (sync.mode other than ddp): each worker takes inner steps on its share of the global batch with an AdamW of its own,
 * tr_sync merges. What is validated, saved and exported are the outer parameters.
 *
 * The moments of AdamW are this worker's own. One that comes later starts with none, and their age counts from there.
 */
#ifndef TR_DAEMON_WORKER_OUTER_H
#define TR_DAEMON_WORKER_OUTER_H

#include "collectives/sync.h"

struct trainer;

/* Of all workers, as far as this one was there: a group's state may change only inside tr_sync, so these are no state, and a worker that comes
 * later knows nothing of before. What a merge cost is known at the next one. */
struct outer_costs {
	double sent_bytes;
	double dense_bytes,
	    dense_next; /* data parallel: 2 (n - 1) gradients in f32 a step; without, and of, the newest merge */
	double waited_s, flight_s;
	unsigned workers; /* that the next merge is of */
};

struct outer {
	tr_sync *sync; /* NULL: ddp */
	float *params; /* outer ones in the model's layout: a copy, made when it is wanted; arrays.outer is that of their momentum */
	uint64_t age;  /* gradients in AdamW's moments */
	double lr_base[2]; /* to begin with, of a checkpoint; zeros: none */
	double val_loss; /* sum and tokens of this worker's part of a validation that is not yet reported */
	double val_tokens;
	struct outer_costs costs;
	bool costs_due;            /* of the newest merge, not yet given */
	uint64_t sent_bytes;       /* by this worker, given */
	double waited_s, flight_s; /* of that merge */
};

/* Before the arrays are filled with what to begin with; and after it. */
tr_status outer_allocate(struct trainer *t, struct tr_error *error);
tr_status outer_create(struct trainer *t, struct tr_error *error);
void outer_destroy(struct trainer *t);

/* All inner steps. *after: a round that is already under way (struct tr_sync_now), or zeros. */
tr_status outer_run(struct trainer *t, struct tr_round *after, struct tr_error *error);

/* Brings the copies up to date. */
void outer_fetch(struct trainer *t);

/* HDET: the base of the learning rates and its momentum, beside the schedule of `train`. False, and zeros: there is none. */
bool outer_lr_base(const struct trainer *t, double base[2]);

#endif
