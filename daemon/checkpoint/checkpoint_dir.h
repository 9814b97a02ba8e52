/* Folders of checkpoints: a hidden one while it is written, then its name, `latest`, and the removal of old ones. Inside checkpoint_*.c.
 *
 * There should be one writer at a time, but one that was stopped or cut off from memberd does not know that it has a successor. So a
 * hidden name is never used twice, and whoever clears one away renames it first: its writer, if it lives, can then publish nothing.
 */
#ifndef TR_DAEMON_CHECKPOINT_CHECKPOINT_DIR_H
#define TR_DAEMON_CHECKPOINT_CHECKPOINT_DIR_H

#include <stdbool.h>
#include <stdint.h>

#include "common/error.h"

#define CHECKPOINT_LATEST     "latest"
#define CHECKPOINT_NAME_MAX   32
#define CHECKPOINT_HIDDEN_MAX 64

struct checkpoint_dir {
	int parent, hidden;
	char name[CHECKPOINT_NAME_MAX];            /* step-00000200 */
	char hidden_name[CHECKPOINT_HIDDEN_MAX];   /* .step-00000200.5f0c9e21d3b84a76 */
	char hidden_latest[CHECKPOINT_HIDDEN_MAX]; /* .latest.5f0c9e21d3b84a76 */
	bool leaves_latest;                        /* it names another one, and is to do so */
};

/* Like mkdir -p. TR_EIO: it cannot be made, or nothing can be made in it. */
tr_status checkpoint_dir_make(const char *path, struct tr_error *error);
/* Makes `path` if it is not there, removes what an interrupted writer left, makes the hidden folder. */
tr_status checkpoint_dir_begin(const char *path, uint64_t step, struct checkpoint_dir *dir,
    struct tr_error *error);
/* The same where several write into one hidden folder, which has the name that they all make of `key`: who comes first makes it. clears: what others left is removed, too. */
tr_status checkpoint_dir_join(const char *path, uint64_t step, uint64_t key, bool clears,
    struct checkpoint_dir *dir, struct tr_error *error);
/* What they wrote is removed, if it is there. */
void checkpoint_dir_drop(const char *path, uint64_t step, uint64_t key);
/* Ends dir; the hidden folder stays, for the others. */
void checkpoint_dir_leave(struct checkpoint_dir *dir);
/* The hidden folder gets its name (in place of one that had it), `latest` points to it. Ends dir, on failure too. */
tr_status checkpoint_dir_publish(struct checkpoint_dir *dir, struct tr_error *error);
/* Before it is published, for who must not remove what has its name: that becomes NAME.other. */
void checkpoint_dir_make_way(const struct checkpoint_dir *dir);
/* Whether `latest` names a checkpoint of more steps. */
bool checkpoint_dir_has_later(const struct checkpoint_dir *dir, uint64_t step);
/* Removes the hidden folder. Ends dir. */
void checkpoint_dir_abandon(struct checkpoint_dir *dir);
/* Removes parent/name and the files in it. */
void checkpoint_dir_remove(int parent, const char *name);
/* Removes all but the `keep` newest (by time of writing, since a new run may count its steps from 1 again) and the two named. */
void checkpoint_dir_prune(const char *path, unsigned keep, const char *newest,
    const char *never_delete);
/* Name of the newest one (by time of writing) of fewer than `below` steps; false: there is none. */
bool checkpoint_dir_newest(const char *path, uint64_t below, char name[CHECKPOINT_NAME_MAX]);
/* path/name becomes path/name.damaged; `latest`, if it named that, names the newest one of fewer steps. */
void checkpoint_dir_set_aside(const char *path, const char *name);

#endif
