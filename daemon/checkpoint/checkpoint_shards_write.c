#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/checkpoint/checkpoint_dir.h"
#include "daemon/checkpoint/checkpoint_files.h"
#include "daemon/checkpoint/checkpoint_shards.h"
#include "daemon/checkpoint/hf_config.h"

static tr_status sync_folder(int dir, struct tr_error *error)
{
	return fsync(dir) == 0 ? TR_OK
	                       : tr_error_set(error, TR_EIO, "cannot sync: %s", strerror(errno));
}

static tr_status say_where(const struct checkpoint_folder *folder, uint64_t step,
    struct tr_error *error)
{
	return tr_error_wrap(error, "checkpoint of step %llu in %s", (unsigned long long)step,
	    folder->dir);
}

tr_status checkpoint_write_shard(const struct checkpoint_folder *folder, uint64_t step,
    uint64_t key, uint32_t number, const struct layout *local, const struct optim_arrays *arrays,
    const struct progress *progress, struct tr_digest *digest, struct tr_error *error)
{
	struct checkpoint_dir dir;
	char name[MANIFEST_SHARD_MAX];
	struct checkpoint_arrays all = { .layout = local,
		.count = arrays->outer != NULL ? 4 : 3,
		.suffixes = { "", ".exp_avg", ".exp_avg_sq", ".outer_momentum" },
		.values = { arrays->params, arrays->first, arrays->second, arrays->outer } };
	tr_status status = checkpoint_dir_join(folder->dir, step, key, true, &dir, error);
	if (status == TR_OK) {
		status = checkpoint_put_arrays(dir.hidden, manifest_shard_name(number, name), &all,
		    progress, digest, error);
		if (status == TR_OK)
			status = sync_folder(dir.hidden, error);
		checkpoint_dir_leave(&dir);
	}
	return status == TR_OK ? TR_OK : say_where(folder, step, error);
}

/* Each as its writer left it: who wrote it said that it is on the disk. */
static tr_status look_for_all(int dir, const struct manifest *manifest, struct tr_error *error)
{
	char name[MANIFEST_SHARD_MAX];
	for (uint32_t i = 0; i < manifest->shards.count; i++) {
		int fd = openat(dir, manifest_shard_name(i, name), O_RDONLY | O_CLOEXEC);
		if (fd < 0 && i == 0) /* which who publishes has written */
			return tr_error_set(error, TR_ESTALE,
			    "%s is gone: a worker that was late with an older try has removed it",
			    name);
		if (fd < 0)
			return tr_error_set(error, TR_EINVAL,
			    "%s is not in it, though it was written: checkpoint.sharded needs a "
			    "checkpoint.dir that all nodes share; without it one worker writes all",
			    name);
		(void)close(fd);
	}
	return TR_OK;
}

static tr_status put_manifest(int dir, const struct layout *whole, struct manifest *manifest,
    struct tr_error *error)
{
	char *text = hf_config_text(&whole->config, manifest->dropout);
	tr_status status = checkpoint_put_text(dir, MANIFEST_CONFIG, text, error);
	if (status == TR_OK)
		(void)tr_digest_hex(tr_digest_of(text, strlen(text)), manifest->config);
	free(text);
	if (status != TR_OK)
		return status;
	manifest_sum_shards(manifest);
	text = manifest_text(manifest);
	status = checkpoint_put_text(dir, MANIFEST_NAME, text, error);
	free(text);
	return status == TR_OK ? sync_folder(dir, error) : status;
}

tr_status checkpoint_publish_shards(const struct checkpoint_folder *folder,
    const struct layout *whole, struct manifest *manifest, uint64_t key,
    char path[CHECKPOINT_PATH_MAX], struct tr_error *error)
{
	struct checkpoint_dir dir;
	/* Who is late with it leaves alone what others write by now. */
	tr_status status = checkpoint_dir_join(folder->dir, manifest->step, key, false, &dir, error);
	if (status == TR_OK) {
		status = look_for_all(dir.hidden, manifest, error);
		if (status == TR_OK)
			status = put_manifest(dir.hidden, whole, manifest, error);
		if (status == TR_OK)
			status = checkpoint_dir_publish(&dir, error);
		else
			checkpoint_dir_abandon(&dir);
	}
	if (status != TR_OK)
		return say_where(folder, manifest->step, error);
	checkpoint_dir_prune(folder->dir, folder->keep, dir.name, folder->never_delete);
	(void)snprintf(path, CHECKPOINT_PATH_MAX, "%s/%s", folder->dir, dir.name);
	return TR_OK;
}

void checkpoint_drop_shards(const struct checkpoint_folder *folder, uint64_t step, uint64_t key)
{
	checkpoint_dir_drop(folder->dir, step, key);
}
