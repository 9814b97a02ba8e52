/* Writes checkpoints from a background thread, from a copy of the state, so that training goes on meanwhile.
 * The copy of a whole state costs three more arrays of parameters (four with outer momentum), made at the first save, or by saver_prepare. One caller thread.
 */
#ifndef TR_DAEMON_WORKER_SAVER_H
#define TR_DAEMON_WORKER_SAVER_H

#include <stdbool.h>

#include "common/progress.h"
#include "daemon/checkpoint/checkpoint.h"

struct saver;

struct saver_result {
	tr_status status;
	uint64_t step;
	char path[CHECKPOINT_PATH_MAX]; /* if TR_OK; "": it is no checkpoint yet */
	struct tr_error error;          /* otherwise */
	/* What it cost, seconds: the caller's time in saver_start and saver_settle, which is what training stood still for; the thread's processor time; from its start until it was on the disk. */
	double waited_s, cpu_s, took_s;
};

/* `layout` stays borrowed until saver_destroy; the folder is copied. */
tr_status saver_create(const struct checkpoint_folder *folder, const struct layout *layout,
    struct saver **saver, struct tr_error *error);
void saver_destroy(struct saver *saver); /* waits for a write under way; accepts NULL */

/* TR_EAGAIN: a save that began now would be left out, as the one before is not done yet. For who makes copies for it. */
tr_status saver_check(const struct saver *saver, const struct manifest *manifest,
    struct tr_error *error);
/* Takes the memory of copies in the background, for who will save: else the first save does, and the step that waits for its copy waits for that. Once. */
void saver_prepare(struct saver *saver, bool outer);
/* Begins to copy the state, which is not to change before saver_settle, and then to write it. TR_EAGAIN: as saver_check; TR_ENOMEM: no memory for the copy. */
tr_status saver_start(struct saver *saver, const struct optim_arrays *arrays,
    const struct manifest *manifest, struct tr_error *error);
/* A state that is not there as a whole: what is read when it is written, once `copy` has made copies of what changes with the next step. Both are called by the saver's thread, with source.arg, which is
 * the saver's until saver_result; no copy of the whole is made. */
struct saver_parts {
	struct checkpoint_source source;
	void (*copy)(void *arg);
};
tr_status saver_start_parts(struct saver *saver, const struct saver_parts *parts,
    const struct manifest *manifest, struct tr_error *error);
/* What else is to be written: by `write`, after `copy`. path stays "" but where it is a checkpoint that is whole now. Both as of saver_parts, with `arg`. */
struct saver_work {
	void (*copy)(void *arg);
	tr_status (*write)(void *arg, const struct progress *progress,
	    char path[CHECKPOINT_PATH_MAX], struct tr_error *error);
	void *arg;
};
tr_status saver_start_work(struct saver *saver, const struct saver_work *work,
    const struct manifest *manifest, struct tr_error *error);
/* Waits until the state is copied, if a save is under way: not at all, where a gradient was computed since it began. Tells `progress` meanwhile, while the save is not older than bound_ms. */
void saver_settle(struct saver *saver, const struct progress *progress, unsigned bound_ms);
/* The same until it has ended: while the last thing that got to the disk is not older than bound_ms. */
void saver_wait(struct saver *saver, const struct progress *progress, unsigned bound_ms);
/* True once for each started save, when it has ended. `wait`: until it has, if there is one. */
bool saver_result(struct saver *saver, bool wait, struct saver_result *result);

#endif
