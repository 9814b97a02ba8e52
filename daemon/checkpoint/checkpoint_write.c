#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/checkpoint/checkpoint.h"
#include "daemon/checkpoint/checkpoint_dir.h"
#include "daemon/checkpoint/hf_config.h"
#include "daemon/checkpoint/weights.h"

/* All of a checkpoint's writing. */
struct writing {
	int dir; /* the hidden folder */
	const struct layout *layout;
	const struct checkpoint_progress *progress;
};

static tr_status sync_close(int fd, tr_status status, struct tr_error *error)
{
	if (status == TR_OK && fsync(fd) != 0)
		status = tr_error_set(error, TR_EIO, "cannot sync: %s", strerror(errno));
	if (close(fd) != 0 && status == TR_OK)
		status = tr_error_set(error, TR_EIO, "cannot close: %s", strerror(errno));
	return status;
}

static tr_status create(const struct writing *w, const char *name, int *fd, struct tr_error *error)
{
	*fd = openat(w->dir, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
	if (*fd < 0)
		return tr_error_set(error, TR_EIO, "cannot create: %s", strerror(errno));
	return TR_OK;
}

static tr_status put_text(const struct writing *w, const char *name, const char *text,
    struct tr_error *error)
{
	int fd;
	if (text == NULL)
		return tr_error_set(error, TR_ENOMEM, "no memory for %s", name);
	tr_status status = create(w, name, &fd, error);
	if (status != TR_OK)
		return tr_error_wrap(error, "%s", name);
	for (size_t left = strlen(text); status == TR_OK && left > 0;) {
		ssize_t wrote = write(fd, text, left);
		if (wrote < 0 && errno == EINTR)
			continue;
		if (wrote <= 0) {
			status = tr_error_set(error, TR_EIO, "cannot write: %s", strerror(errno));
			break;
		}
		text += wrote;
		left -= (size_t)wrote;
	}
	status = sync_close(fd, status, error);
	return status == TR_OK ? TR_OK : tr_error_wrap(error, "%s", name);
}

static tr_status put_tensors(const struct writing *w, const char *name,
    const struct safetensors_item *items, size_t count, char hex[TR_DIGEST_HEX_MAX],
    struct tr_error *error)
{
	int fd;
	struct tr_digest digest;
	tr_status status = create(w, name, &fd, error);
	if (status == TR_OK) {
		status = safetensors_write(fd, items, count, w->progress->call, w->progress->arg,
		    &digest, error);
		status = sync_close(fd, status, error);
	}
	if (status != TR_OK)
		return tr_error_wrap(error, "%s", name);
	(void)tr_digest_hex(digest, hex);
	return TR_OK;
}

/* The layout once for each of `count` arrays, under that array's suffix. */
static tr_status put_arrays(const struct writing *w, const char *name, const char *const *suffixes,
    const float *const *arrays, size_t count, char hex[TR_DIGEST_HEX_MAX], struct tr_error *error)
{
	size_t tensors = w->layout->tensor_count;
	void *names[3] = { NULL, NULL, NULL };
	struct safetensors_item *items = calloc(tensors * count, sizeof(*items));
	tr_status status = items == NULL ? TR_ENOMEM : TR_OK;
	for (size_t i = 0; status == TR_OK && i < count; i++) {
		names[i] = weights_items(w->layout, suffixes[i], arrays[i], items + i * tensors);
		if (names[i] == NULL)
			status = TR_ENOMEM;
	}
	if (status == TR_OK)
		status = put_tensors(w, name, items, tensors * count, hex, error);
	else
		(void)tr_error_set(error, status, "no memory for a table of tensors");
	free(items);
	for (size_t i = 0; i < count; i++)
		free(names[i]);
	return status;
}

/* What Hugging Face needs to load model.safetensors. */
static tr_status put_config(const struct writing *w, struct tr_error *error)
{
	char *text = hf_config_text(&w->layout->config);
	tr_status status = put_text(w, HF_CONFIG_NAME, text, error);
	free(text);
	return status;
}

static tr_status put_all(const struct writing *w, const struct optim_arrays *arrays,
    struct manifest *manifest, const char *sample, struct tr_error *error)
{
	const float *model[] = { arrays->params },
	            *moments[] = { arrays->first, arrays->second, arrays->outer };
	static const char *const plain[] = { "" },
	                         *const named[] = { ".exp_avg", ".exp_avg_sq", ".outer_momentum" };
	tr_status status = put_arrays(w, MANIFEST_MODEL, plain, model, 1, manifest->model, error);
	if (status == TR_OK)
		status = put_arrays(w, MANIFEST_OPTIMIZER, named, moments,
		    arrays->outer != NULL ? 3 : 2, manifest->optimizer, error);
	if (status == TR_OK)
		status = put_config(w, error);
	if (status == TR_OK && sample != NULL)
		status = put_text(w, "sample.txt", sample, error);
	if (status != TR_OK)
		return status;
	char *text = manifest_text(manifest);
	status = put_text(w, MANIFEST_NAME, text, error);
	free(text);
	if (status == TR_OK && fsync(w->dir) != 0)
		status = tr_error_set(error, TR_EIO, "cannot sync: %s", strerror(errno));
	return status;
}

tr_status checkpoint_write(const struct checkpoint_folder *folder, const struct layout *layout,
    const struct optim_arrays *arrays, struct manifest *manifest, const char *sample,
    const struct checkpoint_progress *progress, char path[CHECKPOINT_PATH_MAX],
    struct tr_error *error)
{
	static const struct checkpoint_progress none = { NULL, NULL };
	struct checkpoint_dir dir;
	tr_status status = checkpoint_dir_begin(folder->dir, manifest->step, &dir, error);
	if (status == TR_OK) {
		struct writing w = { dir.hidden, layout, progress != NULL ? progress : &none };
		status = put_all(&w, arrays, manifest, sample, error);
		if (status == TR_OK)
			status = checkpoint_dir_publish(&dir, error);
		else
			checkpoint_dir_abandon(&dir);
	}
	if (status != TR_OK)
		return tr_error_wrap(error, "checkpoint of step %llu in %s",
		    (unsigned long long)manifest->step, folder->dir);
	checkpoint_dir_prune(folder->dir, folder->keep, dir.name, folder->never_delete);
	(void)snprintf(path, CHECKPOINT_PATH_MAX, "%s/%s", folder->dir, dir.name);
	return TR_OK;
}
