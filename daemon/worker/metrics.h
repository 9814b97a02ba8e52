/* metrics.jsonl in the checkpoint folder: one JSON object a committed step, for plots. Written by contributor 0 of the step's round, so a
 * step stands there at most once (again after a resume from an earlier step; a row is lost if its writer dies right after the commit).
 *
 *	{"step":1,"unix_ms":1785315662345,"loss":5.54,"val_loss":null,"grad_norm":1.2,"lr":2e-05,"tokens_per_s":51000,"contributors":3,"view":1,
 *	 "sent_bytes":null,"dense_bytes":null,"hidden":null,"step_s":0.041,"planned_step_s":null}
 *
 * sent_bytes, dense_bytes and hidden are of sync modes other than ddp (traind.v1.Merges); step_s is the time since the commit before, planned_step_s of jobs
 * that were planned (traind.v1.JobPlan).
 */
#ifndef TR_DAEMON_WORKER_METRICS_H
#define TR_DAEMON_WORKER_METRICS_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/checkpoint/checkpoint.h"

struct metrics_row {
	uint64_t step, view, unix_ms; /* when the step was committed */
	unsigned contributors;
	double loss, val_loss, grad_norm, lr, tokens_per_s; /* NaN: written as null */
	double sent_bytes, dense_bytes, hidden;
	double step_s, planned_step_s;
};

/* Appends with one write. False: nothing, or not all, was written (full disk); training goes on. */
bool metrics_append(const char *folder, const struct metrics_row *row);

#endif
