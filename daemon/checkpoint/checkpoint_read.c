#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/checkpoint/checkpoint.h"
#include "daemon/checkpoint/checkpoint_dir.h"
#include "daemon/checkpoint/checkpoint_files.h"
#include "daemon/checkpoint/checkpoint_shards.h"
#include "daemon/checkpoint/hf_config.h"
#include "daemon/checkpoint/weights.h"

tr_status checkpoint_find(const char *path, char found[CHECKPOINT_PATH_MAX], struct tr_error *error)
{
	static const char *const places[] = { ".", CHECKPOINT_LATEST };
	for (size_t i = 0; i < 2; i++) {
		char name[CHECKPOINT_PATH_MAX + 64];
		(void)snprintf(name, sizeof(name), "%s/%s/%s", path, places[i], MANIFEST_NAME);
		char *real_name = realpath(name, NULL);
		if (real_name == NULL)
			continue;
		*strrchr(real_name, '/') = '\0';
		(void)snprintf(found, CHECKPOINT_PATH_MAX, "%s", real_name);
		free(real_name);
		return TR_OK;
	}
	return tr_error_set(error, TR_ENOTFOUND,
	    "found no %s in it, allowed: the folder of a checkpoint, or one with `%s`",
	    MANIFEST_NAME, CHECKPOINT_LATEST);
}

tr_status checkpoint_manifest(const char *folder, struct manifest *manifest, struct tr_error *error)
{
	char name[CHECKPOINT_PATH_MAX + 64], *text = malloc(MANIFEST_BYTES_MAX);
	if (text == NULL)
		return tr_error_set(error, TR_ENOMEM, "no memory for a manifest");
	(void)snprintf(name, sizeof(name), "%s/%s", folder, MANIFEST_NAME);
	int fd = open(name, O_RDONLY | O_CLOEXEC);
	ssize_t got = fd >= 0 ? read(fd, text, MANIFEST_BYTES_MAX) : -1;
	bool absent = fd < 0 && (errno == ENOENT || errno == ENOTDIR);
	tr_status status = got >= 0 ? manifest_parse(text, (size_t)got, manifest, error)
	                            : tr_error_set(error, absent ? TR_ENOTFOUND : TR_EIO,
	                                  "cannot read: %s", strerror(errno));
	if (fd >= 0)
		(void)close(fd);
	free(text);
	return status == TR_OK ? TR_OK : tr_error_wrap(error, "%s", MANIFEST_NAME);
}

tr_status checkpoint_open_file(const char *folder, const char *name, struct safetensors *file,
    struct tr_error *error)
{
	char path[CHECKPOINT_PATH_MAX + 64];
	(void)snprintf(path, sizeof(path), "%s/%s", folder, name);
	return safetensors_open(path, file, error);
}

tr_status checkpoint_compare_digest(const char *name, const char *digest, struct tr_digest found,
    struct tr_error *error)
{
	char hex[TR_DIGEST_HEX_MAX];
	if (strcmp(tr_digest_hex(found, hex), digest) == 0)
		return TR_OK;
	return tr_error_set(error, TR_EDIGEST,
	    "%s is damaged: its digest is %s, the manifest says %s", name, hex, digest);
}

tr_status checkpoint_check_file(const char *name, const char *digest,
    const struct progress *progress, const struct safetensors *file, struct tr_error *error)
{
	struct tr_digest found;
	tr_status status = safetensors_digest(file, progress, &found, error);
	if (status != TR_OK)
		return tr_error_wrap(error, "%s", name);
	return checkpoint_compare_digest(name, digest, found, error);
}

static tr_status load_array(const struct checkpoint_wanted *w, const char *suffix,
    const struct safetensors *file, float *values, struct tr_error *error)
{
	if (w->local == NULL)
		return weights_load(w->whole, suffix, file, values, error);
	return weights_load_shard(w->whole, w->local, w->shard, suffix, file, w->progress, values,
	    error);
}

static tr_status load_moments(const struct checkpoint_wanted *w, const struct safetensors *file,
    struct tr_error *error)
{
	const struct optim_arrays *arrays = w->arrays;
	tr_status status = load_array(w, ".exp_avg", file, arrays->first, error);
	if (status == TR_OK)
		status = load_array(w, ".exp_avg_sq", file, arrays->second, error);
	if (status == TR_OK && arrays->outer != NULL) {
		status = load_array(w, ".outer_momentum", file, arrays->outer, error);
		if (status == TR_ENOTFOUND) /* of a job without: it begins with none */
			status = TR_OK;
	}
	return status == TR_OK ? TR_OK : tr_error_wrap(error, "%s", MANIFEST_OPTIMIZER);
}

static tr_status load_model(const struct checkpoint_wanted *w, const struct safetensors *file,
    struct tr_error *error)
{
	tr_status status = load_array(w, "", file, w->arrays->params, error);
	return status == TR_OK ? TR_OK : tr_error_wrap(error, "%s", MANIFEST_MODEL);
}

/* Both files are opened before either is read: a writer that removes the checkpoint meanwhile takes its names, not its bytes. */
static tr_status load(const char *folder, const struct checkpoint_wanted *w,
    const struct manifest *manifest, struct tr_error *error)
{
	struct safetensors model = { .fd = -1 }, optimizer = { .fd = -1 };
	bool moments = w->arrays->first != NULL && manifest->optimizer[0] != '\0';
	tr_status status = checkpoint_open_file(folder, MANIFEST_MODEL, &model, error);
	if (status == TR_OK && moments)
		status = checkpoint_open_file(folder, MANIFEST_OPTIMIZER, &optimizer, error);
	if (status == TR_OK)
		status = checkpoint_check_file(MANIFEST_MODEL, manifest->model, w->progress, &model,
		    error);
	if (status == TR_OK)
		status = load_model(w, &model, error);
	if (status == TR_OK && moments)
		status = checkpoint_check_file(MANIFEST_OPTIMIZER, manifest->optimizer, w->progress,
		    &optimizer, error);
	if (status == TR_OK && moments)
		status = load_moments(w, &optimizer, error);
	safetensors_close(&model);
	safetensors_close(&optimizer);
	return status;
}

tr_status checkpoint_config(const char *path, struct model_config *config,
    struct manifest *manifest, char found[CHECKPOINT_PATH_MAX], struct tr_error *error)
{
	tr_status status = checkpoint_find(path, found, error);
	if (status == TR_OK)
		status = checkpoint_manifest(found, manifest, error);
	return status == TR_OK ? hf_config_read(found, manifest->config, config, error) : status;
}

/* The config says what shapes do not tell. */
static tr_status look(const char *path, const struct layout *whole, struct manifest *manifest,
    char found[CHECKPOINT_PATH_MAX], struct tr_error *error)
{
	struct model_config config;
	tr_status status = checkpoint_config(path, &config, manifest, found, error);
	return status == TR_OK ? model_config_same(&config, &whole->config, error) : status;
}

static tr_status read_wanted(const char *path, const struct checkpoint_wanted *wanted,
    struct manifest *manifest, char found[CHECKPOINT_PATH_MAX], struct tr_error *error)
{
	tr_status status = look(path, wanted->whole, manifest, found, error);
	if (status == TR_OK)
		status = (manifest->shards.count > 0 ? checkpoint_load_shards : load)(found, wanted,
		    manifest, error);
	return status == TR_OK ? TR_OK : tr_error_wrap(error, "%s", path);
}

tr_status checkpoint_read(const char *path, const struct layout *layout,
    const struct optim_arrays *arrays, struct manifest *manifest, char found[CHECKPOINT_PATH_MAX],
    struct tr_error *error)
{
	const struct checkpoint_wanted wanted = { layout, NULL, NULL, arrays, NULL };
	return read_wanted(path, &wanted, manifest, found, error);
}

tr_status checkpoint_read_shard(const char *path, const struct layout *whole,
    const struct layout *local, const struct shard *shard, const struct optim_arrays *arrays,
    const struct progress *progress, struct manifest *manifest, char found[CHECKPOINT_PATH_MAX],
    struct tr_error *error)
{
	const struct checkpoint_wanted wanted = { whole, local, shard, arrays, progress };
	return read_wanted(path, &wanted, manifest, found, error);
}

tr_status checkpoint_look(const char *path, const struct layout *whole, struct manifest *manifest,
    char found[CHECKPOINT_PATH_MAX], struct tr_error *error)
{
	tr_status status = look(path, whole, manifest, found, error);
	return status == TR_OK ? TR_OK : tr_error_wrap(error, "%s", path);
}
