/* What the parts of a model cost on this machine, for the planner (daemon/plan/plan_costs.h): up to four layers of the job's model, with embedding and head, are run as
 * one worker of tp would run them, for each tp that divides and each microbatch, with nobody to exchange with; but who measures beside others waits for those that would be of its tp wherever they exchange
 * something: each sum waits for the slowest, so the times have that in them. Times are between the model's own reports (model_hooks),
 * those of the median of several undisturbed runs (of a strict job the shortest); memory is what the model has put aside (slots.h).
 *
 * Lines of text, for trainctl:
 *
 *	cost TP SEQUENCES EMBEDDING LAYER HEAD (forward and backward of each, seconds) EMBEDDING LAYER HEAD WORKING (bytes)
 *	of MODEL                 plan_costs_of: of which these are
 *	update SECONDS           of one parameter
 *	add SECONDS              of adding one number to another, as strict jobs add up gradients
 *	sum SECONDS SECONDS      of an op that workers of one node make by themselves, and of each byte that one of them copies or reads in it (measure_sums.h)
 *	process BYTES            of a worker besides its model and what it exchanges: code, what libraries put aside, the training text (as far as its files are here)
 *	core SHARE               least part of its time that a run whose times are here had of a core (of one thread; else 1): runs that other work disturbed are thrown away, but for no longer than six seconds in all
 *	# measures K of N: ...   what is measured next; other lines that begin so are remarks
 *	parameter BYTES          of one, with gradient, moments and what products of bf16 (train.dtype) read
 */
#ifndef TR_DAEMON_WORKER_MEASURE_H
#define TR_DAEMON_WORKER_MEASURE_H

#include <stdio.h>

#include "common/error.h"
#include "common/lockstep.h"
#include "traind/v1/trainer.pb-c.h"

struct measure_limits {
	unsigned threads;
	unsigned
	    beside; /* so many other processes measure the same meanwhile, and take as much memory */
	struct lockstep *lockstep; /* with them; borrowed; NULL: each by itself */
	unsigned self;             /* which of them this is; what member 0 prints is read */
	uint32_t
	    tp_most; /* divisors of the heads up to this: small ones, powers of two, the job's own */
	uint32_t
	    sequences_most; /* powers of two up to this that divide the job's batch, and the job's own microbatches */
};

/* `spec` is validated. TR_EINVAL: no such model; TR_ENOMEM; TR_EIO. */
tr_status measure_costs(const Traind__V1__JobSpec *spec, const struct measure_limits *limits,
    FILE *to, struct tr_error *error);

/* `trainworker --measure` and its words, THREADS TP SEQUENCES [BESIDE [SELF]], with NULL behind them: the job is read from stdin, packed. SELF: it measures in step with others, whose page it has inherited
 * (LOCKSTEP_PAGE_FD). Returns the exit code. */
int measure_program(char **words);

#endif
