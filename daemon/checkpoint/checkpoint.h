/* Checkpoints on disk: DIR/step-00000200/{model.safetensors, optimizer.safetensors, config.json, sample.txt, manifest.json} and DIR/latest.
 * model.safetensors with config.json is what Hugging Face loads.
 *
 * Written into a hidden folder, synced, then renamed: a folder named step-... is complete or not there. After a failure the earlier checkpoints are
 * as they were and nothing is left of the new one. A second writer at the same time, which was given up
 * and does not know it, may fail or be failed; it damages nothing.
 */
#ifndef TR_DAEMON_CHECKPOINT_CHECKPOINT_H
#define TR_DAEMON_CHECKPOINT_CHECKPOINT_H

#include <stdbool.h>

#include "common/error.h"
#include "common/progress.h"
#include "daemon/checkpoint/layout.h"
#include "daemon/checkpoint/manifest.h"
#include "daemon/checkpoint/shard.h"

#define CHECKPOINT_PATH_MAX 4096

struct checkpoint_folder {
	char dir[CHECKPOINT_PATH_MAX - 64];
	unsigned keep;                          /* newest ones that stay, at least 1 */
	char never_delete[CHECKPOINT_PATH_MAX]; /* the one that training was resumed from; may be "" */
};

/* Makes it, if it is not there. TR_EINVAL: it cannot be made, or not be written to; in words for who wrote the job file. */
tr_status checkpoint_make_folder(const struct checkpoint_folder *folder, struct tr_error *error);

/* arrays->params, first and second (NULL: no optimizer's file) are read; manifest->model and ->optimizer are filled. `sample` may be NULL. path gets the folder's name. */
tr_status checkpoint_write(const struct checkpoint_folder *folder, const struct layout *layout,
    const struct optim_arrays *arrays, struct manifest *manifest, const char *sample,
    const struct progress *progress, char path[CHECKPOINT_PATH_MAX], struct tr_error *error);

/* Arrays that are nowhere in one piece: of array `which` (0: parameters, 1 and 2: the moments, 3: outer momentum, if there is one) numbers [first, end) of the layout, which are of tensor `tensor`. */
struct checkpoint_source {
	void (*read)(void *arg, unsigned which, size_t tensor, size_t first, size_t end, float *to);
	void *arg;
	bool outer;
};
/* The same of these. Memory for a piece of some MiB is taken. */
tr_status checkpoint_write_from(const struct checkpoint_folder *folder, const struct layout *layout,
    const struct checkpoint_source *source, struct manifest *manifest, const char *sample,
    const struct progress *progress, char path[CHECKPOINT_PATH_MAX], struct tr_error *error);

/* `path` is a step's folder or one that holds `latest`; found gets the step's folder (absolute, links resolved). */
tr_status checkpoint_find(const char *path, char found[CHECKPOINT_PATH_MAX], struct tr_error *error);

/* The manifest in a step's folder. TR_ENOTFOUND: there is none; TR_EIO: the disk does not give it up. */
tr_status checkpoint_manifest(const char *folder, struct manifest *manifest, struct tr_error *error);
/* Of which model it is, as its config.json says: the digest is checked, where the manifest has one (older ones have not). `path` and found as above. */
tr_status checkpoint_config(const char *path, struct model_config *config,
    struct manifest *manifest, char found[CHECKPOINT_PATH_MAX], struct tr_error *error);

/* `path` and found as above. Digests, shapes and the model's config are checked before anything is believed; on an error the arrays may be
 * partly written. arrays->first NULL: only params are read. Moments of a checkpoint that has none are not touched. */
tr_status checkpoint_read(const char *path, const struct layout *layout,
    const struct optim_arrays *arrays, struct manifest *manifest, char found[CHECKPOINT_PATH_MAX],
    struct tr_error *error);
/* The same of a shard of `whole`, which nobody needs to hold as a whole: arrays have room for local->count numbers. `progress` is told (NULL: nobody) after 4 MiB
 * and after a tensor. */
tr_status checkpoint_read_shard(const char *path, const struct layout *whole,
    const struct layout *local, const struct shard *shard, const struct optim_arrays *arrays,
    const struct progress *progress, struct manifest *manifest, char found[CHECKPOINT_PATH_MAX],
    struct tr_error *error);
/* What it says of itself, if it is one of such a model; its files are not looked at. */
tr_status checkpoint_look(const char *path, const struct layout *whole, struct manifest *manifest,
    char found[CHECKPOINT_PATH_MAX], struct tr_error *error);

/* ---- checkpoint_older.c: where the newest one cannot be used ---- */

/* Steps of the newest checkpoint (by time of writing) in `dir` that has fewer than `below`. False: there is none. It was not looked at. */
bool checkpoint_before(const char *dir, uint64_t below, uint64_t *step);
/* The same of the one at `path` (as for checkpoint_find, or a step's folder that is gone), in its folder: *steps fewer. */
bool checkpoint_older(const char *path, char older[CHECKPOINT_PATH_MAX], uint64_t *steps);
/* Where the one at `path` (a step's folder) is gone: that which its folder's `latest` names, if it has more steps, *steps more. A writer that keeps one of them puts the next in its place, and dies
 * perhaps before anybody hears of that. False: it is there, or there is none such. */
bool checkpoint_newer(const char *path, char newer[CHECKPOINT_PATH_MAX], uint64_t *steps);
/* Where reading the one at `path` failed: should its bytes be to blame, its folder gets another name, step-00000200.damaged. It stays, for who wants to look, but is no checkpoint any more;
 * `latest`, if it named this one, names the one before it. */
void checkpoint_set_aside(const char *path, tr_status why);

#endif
