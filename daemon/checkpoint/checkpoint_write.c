#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/checkpoint/checkpoint.h"
#include "daemon/checkpoint/checkpoint_dir.h"
#include "daemon/checkpoint/checkpoint_files.h"
#include "daemon/checkpoint/hf_config.h"

/* All of a checkpoint's writing. */
struct writing {
	int dir; /* the hidden folder */
	const struct layout *layout;
	const struct optim_arrays *arrays; /* NULL: */
	const struct checkpoint_source *source;
	const struct progress *progress;
};

static tr_status put_arrays(const struct writing *w, const char *name,
    const struct checkpoint_arrays *arrays, char hex[TR_DIGEST_HEX_MAX], struct tr_error *error)
{
	struct tr_digest digest;
	tr_status status = checkpoint_put_arrays(w->dir, name, arrays, w->progress, &digest, error);
	if (status == TR_OK)
		(void)tr_digest_hex(digest, hex);
	return status;
}

static tr_status put_model(const struct writing *w, struct manifest *manifest,
    struct tr_error *error)
{
	struct checkpoint_arrays model = { .layout = w->layout,
		.count = 1,
		.suffixes = { "" },
		.values = { w->arrays != NULL ? w->arrays->params : NULL },
		.source = w->source };
	return put_arrays(w, MANIFEST_MODEL, &model, manifest->model, error);
}

/* Without moments (weights that nobody has trained here) there is no such file. */
static tr_status put_optimizer(const struct writing *w, struct manifest *manifest,
    struct tr_error *error)
{
	const struct optim_arrays none = { 0 };
	const struct optim_arrays *arrays = w->arrays != NULL ? w->arrays : &none;
	bool outer = w->source != NULL ? w->source->outer : arrays->outer != NULL;
	struct checkpoint_arrays moments = { .layout = w->layout,
		.count = outer ? 3 : 2,
		.suffixes = { ".exp_avg", ".exp_avg_sq", ".outer_momentum" },
		.values = { arrays->first, arrays->second, arrays->outer },
		.source = w->source,
		.first = 1 };
	manifest->optimizer[0] = '\0';
	return w->source == NULL && arrays->first == NULL
	    ? TR_OK
	    : put_arrays(w, MANIFEST_OPTIMIZER, &moments, manifest->optimizer, error);
}

/* What Hugging Face needs to load model.safetensors. */
static tr_status put_config(const struct writing *w, struct manifest *manifest,
    struct tr_error *error)
{
	char *text = hf_config_text(&w->layout->config, manifest->dropout);
	tr_status status = checkpoint_put_text(w->dir, HF_CONFIG_NAME, text, error);
	if (status == TR_OK)
		(void)tr_digest_hex(tr_digest_of(text, strlen(text)), manifest->config);
	free(text);
	return status;
}

static tr_status put_all(const struct writing *w, struct manifest *manifest, const char *sample,
    struct tr_error *error)
{
	tr_status status = put_model(w, manifest, error);
	if (status == TR_OK)
		status = put_optimizer(w, manifest, error);
	if (status == TR_OK)
		status = put_config(w, manifest, error);
	if (status == TR_OK && sample != NULL)
		status = checkpoint_put_text(w->dir, MANIFEST_SAMPLE, sample, error);
	if (status != TR_OK)
		return status;
	char *text = manifest_text(manifest);
	status = checkpoint_put_text(w->dir, MANIFEST_NAME, text, error);
	free(text);
	if (status == TR_OK && fsync(w->dir) != 0)
		status = tr_error_set(error, TR_EIO, "cannot sync: %s", strerror(errno));
	return status;
}

/* what: all but its folder. */
static tr_status write_folder(const struct checkpoint_folder *folder, const struct writing *what,
    struct manifest *manifest, const char *sample, char path[CHECKPOINT_PATH_MAX],
    struct tr_error *error)
{
	struct checkpoint_dir dir;
	tr_status status = checkpoint_dir_begin(folder->dir, manifest->step, &dir, error);
	if (status == TR_OK) {
		struct writing w = *what;
		w.dir = dir.hidden;
		status = put_all(&w, manifest, sample, error);
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

tr_status checkpoint_make_folder(const struct checkpoint_folder *folder, struct tr_error *error)
{
	struct tr_error why;
	if (checkpoint_dir_make(folder->dir, &why) == TR_OK)
		return TR_OK;
	return tr_error_set(error, TR_EINVAL,
	    "checkpoint.dir: %s; allowed: a folder that this machine can make and write to",
	    why.text);
}

tr_status checkpoint_write(const struct checkpoint_folder *folder, const struct layout *layout,
    const struct optim_arrays *arrays, struct manifest *manifest, const char *sample,
    const struct progress *progress, char path[CHECKPOINT_PATH_MAX], struct tr_error *error)
{
	const struct writing w = { -1, layout, arrays, NULL, progress };
	return write_folder(folder, &w, manifest, sample, path, error);
}

tr_status checkpoint_write_from(const struct checkpoint_folder *folder, const struct layout *layout,
    const struct checkpoint_source *source, struct manifest *manifest, const char *sample,
    const struct progress *progress, char path[CHECKPOINT_PATH_MAX], struct tr_error *error)
{
	const struct writing w = { -1, layout, NULL, source, progress };
	return write_folder(folder, &w, manifest, sample, path, error);
}
