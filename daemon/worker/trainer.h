/* Training as a member of a group: the loop of rounds, on the blocking calls of collectives/coll.h (docs/architecture.md, "One
 * gradient", "One join", "End of a job").
 *
 *	struct trainer *trainer;
 *	if (trainer_create(group, spec, threads, submitted_unix_ms, &trainer, &error) == TR_OK)
 *		status = trainer_run(trainer, &error);      // until the last checkpoint is written
 *	trainer_destroy(trainer);
 *
 * One thread. The group's memory (tr_alloc) holds parameters, gradients and moments, so it outlives the trainer.
 */
#ifndef TR_DAEMON_WORKER_TRAINER_H
#define TR_DAEMON_WORKER_TRAINER_H

#include "collectives/coll.h"
#include "traind/v1/trainer.pb-c.h"

struct trainer;

/* Loads the text, builds the model, reads the checkpoint to resume from, declares the state. `spec` (validated: daemon/plan/job_options.h) and
 * `group` stay borrowed until trainer_destroy. submitted_unix_ms: of the job, which its number alone does not name for ever. Errors begin with the key of the job file that they are about. */
tr_status trainer_create(tr_group *group, const Traind__V1__JobSpec *spec, unsigned threads,
    uint64_t submitted_unix_ms, struct trainer **trainer, struct tr_error *error);
tr_status trainer_run(struct trainer *trainer, struct tr_error *error);
void trainer_destroy(struct trainer *trainer); /* accepts NULL */
/* For tests: from now on each sample that this worker consumes is in FOLDER/peer-N, a line a step: its round, and numbers of samples as
 * FROM-TO. With sync.mode ddp those of committed rounds. */
tr_status trainer_log_samples(struct trainer *trainer, const char *folder, struct tr_error *error);
/* For tests: each change of a sharded job's mesh stops so long in its middle. */
void trainer_pause_remesh(struct trainer *trainer, unsigned milliseconds);
/* For tests: whoever gets a shard waits so long for it. */
void trainer_pause_join(struct trainer *trainer, unsigned milliseconds);
/* Id of the node that this worker is on, so that its job can be planned anew. */
void trainer_is_on(struct trainer *trainer, uint64_t node);
/* For tests: whether steps are as planned is looked at each so many, the same of all workers; 0: as ever. */
void trainer_look_often(struct trainer *trainer, unsigned steps);
/* If the job's workers train on when they are cut off: where such a one that is put out leaves what it learned. Takes what one before it left. */
void trainer_keep(struct trainer *trainer, const char *folder);

#endif
