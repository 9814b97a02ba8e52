/* metrics.jsonl in the checkpoint folder: one JSON object a committed step, for plots. Written by contributor 0 of the step's round. All keep their newest
 * rows: who is to write and did not write the step before adds those that the file lacks, as their writer may have died between a commit and its row. So a step
 * stands there once, also where its writer died behind the row and who writes next comes to the same step; again after a resume from an earlier step, or if a writer that was put out had only been stopped: the last one counts.
 *
 *	{"step":1,"unix_ms":1785315662345,"loss":5.54,"val_loss":null,"grad_norm":1.2,"lr":2e-05,"tokens_per_s":51000,"contributors":3,"view":1,
 *	 "sent_bytes":null,"dense_bytes":null,"hidden":null,"step_s":0.041,"planned_step_s":null,"job":3,"submitted_unix_ms":1785315660012}
 *
 * sent_bytes, dense_bytes and hidden are of sync modes other than ddp (traind.v1.Merges); step_s is the time since the commit before, planned_step_s of jobs
 * that were planned (traind.v1.JobPlan). job and submitted_unix_ms say whose the row is, since a folder may be used by one job after another.
 */
#ifndef TR_DAEMON_WORKER_METRICS_H
#define TR_DAEMON_WORKER_METRICS_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/checkpoint/checkpoint.h"

struct metrics_row {
	uint64_t step, view, unix_ms; /* when the step was committed */
	unsigned contributors;
	uint64_t job, submitted_unix_ms; /* struct manifest_job; 0: not written */
	double loss, val_loss, grad_norm, lr, tokens_per_s; /* NaN: written as null */
	double sent_bytes, dense_bytes, hidden;
	double step_s, planned_step_s;
};

#define METRICS_KEPT 8 /* as many writers may die one after the other */

struct metrics {
	struct metrics_row kept[METRICS_KEPT]; /* oldest first */
	unsigned count;
	bool writes; /* wrote the newest */
};

/* Of each committed step, at every worker; `writes`: at this one it goes to the file. One write a row. False: nothing, or not all, was written (full disk); training
 * goes on, and the next row brings what is missing. */
bool metrics_add(struct metrics *metrics, const char *folder, const struct metrics_row *row,
    bool writes);
/* At the job's end: brings what is missing, and writes `val_loss`, unless it is NaN, into the newest row: a job ends with a look at its validation text. */
bool metrics_end(struct metrics *metrics, const char *folder, double val_loss, bool writes);

#endif
