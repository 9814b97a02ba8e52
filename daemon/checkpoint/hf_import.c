#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "collectives/kernels/half.h"
#include "common/json_read.h"
#include "common/limits.h"
#include "daemon/checkpoint/checkpoint_files.h"
#include "daemon/checkpoint/hf_config.h"
#include "daemon/checkpoint/hf_folder.h"
#include "daemon/checkpoint/safetensors.h"

#define INDEX_NAME  MANIFEST_MODEL ".index.json"
#define PIECE_BYTES (4u << 20)

/* The files that hold a model's tensors. */
struct weight_files {
	size_t count;
	char names[TR_HF_FILES_MAX][NAME_MAX + 1];
	struct safetensors files[TR_HF_FILES_MAX]; /* their tables; one at a time is open */
	size_t opened;
	char model[TR_DIGEST_HEX_MAX]; /* of model.safetensors, in a checkpoint of ours; "": it is none */
};

/* Where a tensor of the layout is. */
struct place {
	size_t file;
	const struct safetensors_tensor *tensor;
};

static tr_status name_file(struct weight_files *w, const char *name, struct tr_error *error)
{
	for (size_t i = 0; i < w->count; i++)
		if (strcmp(w->names[i], name) == 0)
			return TR_OK;
	if (strchr(name, '/') != NULL || name[0] == '.' || name[0] == '\0')
		return tr_error_set(error, TR_EINVAL, INDEX_NAME ": '%s' is no file of this folder",
		    name);
	if (w->count == TR_HF_FILES_MAX)
		return tr_error_set(error, TR_ELIMIT, INDEX_NAME ": more than %d files",
		    TR_HF_FILES_MAX);
	(void)snprintf(w->names[w->count++], NAME_MAX + 1, "%s", name);
	return TR_OK;
}

static tr_status name_mapped(struct json_reader *r, struct weight_files *w, struct tr_error *error)
{
	char tensor[SAFETENSORS_NAME_MAX], file[NAME_MAX + 1];
	tr_status status = TR_OK;
	for (json_read_object(r); json_read_key(r, tensor, sizeof(tensor));)
		if (json_read_string(r, file, sizeof(file)) && status == TR_OK)
			status = name_file(w, file, error);
	return status;
}

static tr_status read_index(char *text, size_t length, struct weight_files *w,
    struct tr_error *error)
{
	struct json_reader r;
	char key[64];
	tr_status status = TR_OK;
	json_read_init(&r, text, length);
	for (json_read_object(&r); json_read_key(&r, key, sizeof(key));) {
		if (strcmp(key, "weight_map") == 0 && status == TR_OK)
			status = name_mapped(&r, w, error);
		else
			(void)json_read_skip(&r);
	}
	if (status == TR_OK && !json_read_end(&r))
		status = tr_error_set(error, TR_EPROTO, INDEX_NAME ": it is not well-formed");
	return status;
}

/* TR_ENOTFOUND: there is no index. */
static tr_status open_index(int dir, struct weight_files *w, struct tr_error *error)
{
	int fd = openat(dir, INDEX_NAME, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return TR_ENOTFOUND;
	char *text = malloc(TR_SAFETENSORS_HEADER_MAX);
	size_t length = 0;
	for (ssize_t got = 1; text != NULL && got > 0 && length < TR_SAFETENSORS_HEADER_MAX;) {
		got = read(fd, text + length, TR_SAFETENSORS_HEADER_MAX - length);
		length += got > 0 ? (size_t)got : 0;
	}
	(void)close(fd);
	tr_status status = text == NULL
	    ? tr_error_set(error, TR_ENOMEM, "no memory for " INDEX_NAME)
	    : read_index(text, length, w, error);
	free(text);
	return status;
}

#define FILE_PATH_MAX (CHECKPOINT_PATH_MAX + NAME_MAX)

static void name_path(const char *folder, const struct weight_files *w, size_t i,
    char path[FILE_PATH_MAX])
{
	(void)snprintf(path, FILE_PATH_MAX, "%s/%s", folder, w->names[i]);
}

static tr_status open_files(const char *folder, struct weight_files *w, struct tr_error *error)
{
	int dir = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (dir < 0)
		return tr_error_set(error, TR_ENOTFOUND, "cannot open: %s", strerror(errno));
	/* Of both transformers takes the single file. */
	tr_status status = faccessat(dir, MANIFEST_MODEL, F_OK, 0) == 0 ? TR_ENOTFOUND
	                                                                : open_index(dir, w, error);
	(void)close(dir);
	if (status == TR_ENOTFOUND)
		status = name_file(w, MANIFEST_MODEL, error);
	for (size_t i = 0; i < w->count && status == TR_OK; i++) {
		char path[FILE_PATH_MAX];
		name_path(folder, w, i, path);
		status = safetensors_open(path, &w->files[i], error);
		w->opened += status == TR_OK;
		if (status == TR_OK)
			safetensors_rest(&w->files[i]);
	}
	return status;
}

static void close_files(struct weight_files *w)
{
	while (w->opened > 0)
		safetensors_close(&w->files[--w->opened]);
}

/* The name without "transformer." or "model.", under which the bare model (GPT2Model) is saved; NULL: it has none. */
static const char *bare(const char *name)
{
	static const char *const prefixes[] = { "transformer.", "model." };
	for (size_t i = 0; i < 2; i++)
		if (strncmp(name, prefixes[i], strlen(prefixes[i])) == 0)
			return name + strlen(prefixes[i]);
	return NULL;
}

static struct place find(const struct weight_files *w, const char *name)
{
	struct place place = { 0, NULL };
	for (size_t i = 0; i < w->count && place.tensor == NULL; i++)
		place = (struct place){ i, safetensors_find(&w->files[i], name) };
	return place.tensor == NULL && bare(name) != NULL ? find(w, bare(name)) : place;
}

/* Number `i` of some of a tensor of floats. */
static float number_at(const struct safetensors_tensor *t, const char *data, size_t i)
{
	uint16_t half;
	double wide;
	float single;
	switch (t->dtype) {
	case SAFETENSORS_F64:
		memcpy(&wide, data + i * sizeof(wide), sizeof(wide));
		return (float)wide;
	case SAFETENSORS_BF16:
		memcpy(&half, data + i * sizeof(half), sizeof(half));
		return half_from_bf16(half);
	case SAFETENSORS_F16:
		memcpy(&half, data + i * sizeof(half), sizeof(half));
		return half_from_f16(half);
	default:
		memcpy(&single, data + i * sizeof(single), sizeof(single));
		return single;
	}
}

static tr_status check_tensor(const struct layout_tensor *wanted,
    const struct safetensors_tensor *found, struct tr_error *error)
{
	char shape[96] = "";
	size_t used = 0;
	bool fits = wanted->rows > 0 ? found->dims == 2 && found->shape[0] == wanted->rows &&
	        found->shape[1] == wanted->columns
	                             : found->dims == 1 && found->shape[0] == wanted->columns;
	for (unsigned i = 0; i < found->dims && used + 24 < sizeof(shape); i++)
		used += (size_t)snprintf(shape + used, sizeof(shape) - used, "%s%llu",
		    i > 0 ? ", " : "", (unsigned long long)found->shape[i]);
	if (!fits && wanted->rows > 0)
		return tr_error_set(error, TR_EINVAL,
		    "tensor '%s': found the shape [%s], allowed: [%zu, %zu], as config.json says",
		    wanted->name, shape, wanted->rows, wanted->columns);
	if (!fits)
		return tr_error_set(error, TR_EINVAL,
		    "tensor '%s': found the shape [%s], allowed: [%zu], as config.json says",
		    wanted->name, shape, wanted->columns);
	if (found->dtype != SAFETENSORS_F32 && found->dtype != SAFETENSORS_F64 &&
	    found->dtype != SAFETENSORS_BF16 && found->dtype != SAFETENSORS_F16)
		return tr_error_set(error, TR_EINVAL,
		    "tensor '%s': found numbers of type %s, allowed: F32, F64, BF16 or F16",
		    wanted->name, safetensors_dtype_name(found->dtype));
	return TR_OK;
}

/* Of all of them, before memory is taken for any: files that have the tensors are as large as the model that config.json speaks of. */
static tr_status check_tensors(const struct layout *layout, const struct weight_files *w,
    struct place *places, struct tr_error *error)
{
	for (size_t i = 0; i < layout->tensor_count; i++) {
		const struct layout_tensor *wanted = &layout->tensors[i];
		places[i] = find(w, wanted->name);
		if (places[i].tensor == NULL)
			return tr_error_set(error, TR_ENOTFOUND, "it has no tensor '%s'",
			    wanted->name);
		tr_status status = check_tensor(wanted, places[i].tensor, error);
		if (status != TR_OK)
			return status;
	}
	return TR_OK;
}

/* In pieces, so that beside the parameters a few MiB are held, whatever the tensor has. */
static tr_status load_tensor(const struct safetensors *file, const struct safetensors_tensor *t,
    size_t numbers, char *piece, float *to, struct tr_error *error)
{
	size_t each = numbers > 0 ? t->bytes / numbers : 1, at_once = PIECE_BYTES / each;
	for (size_t from = 0; from < numbers; from += at_once) {
		size_t count = numbers - from < at_once ? numbers - from : at_once;
		tr_status status = safetensors_read(file, t->at + from * each, count * each, piece,
		    error);
		if (status != TR_OK)
			return tr_error_wrap(error, "tensor '%s'", t->name);
		for (size_t k = 0; k < count; k++)
			to[from + k] = number_at(t, piece, k);
	}
	return TR_OK;
}

/* Those that are in file `f`. */
static tr_status load_file(const struct layout *layout, const struct weight_files *w, size_t f,
    const struct place *places, char *piece, float *params, struct tr_error *error)
{
	tr_status status = TR_OK;
	for (size_t i = 0; i < layout->tensor_count && status == TR_OK; i++) {
		const struct layout_tensor *wanted = &layout->tensors[i];
		if (places[i].file == f)
			status = load_tensor(&w->files[f], places[i].tensor, layout_numbers(wanted),
			    piece, params + wanted->offset, error);
	}
	return status == TR_OK ? TR_OK : tr_error_wrap(error, "%s", w->names[f]);
}

#define HEAD "lm_head.weight"

static tr_status compare_head(const struct safetensors *file, const struct safetensors_tensor *head,
    const struct layout *layout, char *piece, const float *params, struct tr_error *error)
{
	struct layout_tensor wanted = layout->tensors[0]; /* the token embedding */
	size_t numbers = layout_numbers(&wanted), at_once = PIECE_BYTES / sizeof(double);
	(void)snprintf(wanted.name, sizeof(wanted.name), HEAD);
	tr_status status = check_tensor(&wanted, head, error);
	for (size_t from = 0; from < numbers && status == TR_OK; from += at_once) {
		size_t count = numbers - from < at_once ? numbers - from : at_once;
		size_t each = head->bytes / numbers;
		status = safetensors_read(file, head->at + from * each, count * each, piece, error);
		for (size_t k = 0; k < count && status == TR_OK; k++)
			if (number_at(head, piece, k) != params[wanted.offset + from + k])
				status = tr_error_set(error, TR_EINVAL,
				    "tensor '" HEAD "': found other numbers than the token "
				    "embedding's, allowed: the same, as config.json says "
				    "(tie_word_embeddings)");
	}
	return status;
}

/* A head that files of a tied model have once more: transformers computes with it if it is another one than the token embedding. */
static tr_status check_head(const char *folder, const struct layout *layout, struct weight_files *w,
    char *piece, const float *params, struct tr_error *error)
{
	struct place head = find(w, HEAD);
	char path[FILE_PATH_MAX];
	if (layout->config.untied || head.tensor == NULL)
		return TR_OK;
	name_path(folder, w, head.file, path);
	tr_status status = safetensors_open_again(path, &w->files[head.file], error);
	if (status == TR_OK)
		status = compare_head(&w->files[head.file], head.tensor, layout, piece, params,
		    error);
	safetensors_rest(&w->files[head.file]);
	return status == TR_OK ? TR_OK : tr_error_wrap(error, "%s", w->names[head.file]);
}

static tr_status load(const char *folder, const struct layout *layout, struct weight_files *w,
    const struct place *places, float *params, struct tr_error *error)
{
	char *piece = malloc(PIECE_BYTES);
	tr_status status = piece != NULL
	    ? TR_OK
	    : tr_error_set(error, TR_ENOMEM, "no memory for a piece of a tensor");
	for (size_t f = 0; f < w->count && status == TR_OK; f++) {
		char path[FILE_PATH_MAX];
		name_path(folder, w, f, path);
		status = safetensors_open_again(path, &w->files[f], error);
		if (status == TR_OK && w->model[0] != '\0' &&
		    strcmp(w->names[f], MANIFEST_MODEL) == 0)
			status = checkpoint_check_file(MANIFEST_MODEL, w->model, NULL, &w->files[f],
			    error);
		if (status == TR_OK)
			status = load_file(layout, w, f, places, piece, params, error);
		safetensors_rest(&w->files[f]);
	}
	if (status == TR_OK)
		status = check_head(folder, layout, w, piece, params, error);
	free(piece);
	return status;
}

static bool ends_with(const char *name, const char *end)
{
	size_t length = strlen(name), tail = strlen(end);
	return length >= tail && strcmp(name + length - tail, end) == 0;
}

/* What older versions saved and nothing reads; the head, where it is the token embedding (check_head). */
static bool is_idle(const struct layout *layout, const char *name)
{
	return ends_with(name, ".attn.bias") || ends_with(name, ".attn.masked_bias") ||
	    ends_with(name, ".rotary_emb.inv_freq") ||
	    (!layout->config.untied && strcmp(name, HEAD) == 0);
}

static bool is_wanted(const struct layout *layout, const char *name)
{
	for (size_t i = 0; i < layout->tensor_count; i++) {
		const char *wanted = layout->tensors[i].name, *short_name = bare(wanted);
		if (strcmp(name, wanted) == 0 ||
		    (short_name != NULL && strcmp(name, short_name) == 0))
			return true;
	}
	return is_idle(layout, name);
}

/* A tensor that nobody takes is a part of the model that would be lost. */
static tr_status check_rest(const struct layout *layout, const struct weight_files *w,
    struct tr_error *error)
{
	for (size_t f = 0; f < w->count; f++)
		for (size_t i = 0; i < w->files[f].count; i++)
			if (!is_wanted(layout, w->files[f].tensors[i].name))
				return tr_error_set(error, TR_EINVAL,
				    "tensor '%s' is no part of such a model",
				    w->files[f].tensors[i].name);
	return TR_OK;
}

static tr_status write_checkpoint(const struct layout *layout, float *params, const char *to,
    struct hf_result *result, struct tr_error *error)
{
	struct checkpoint_folder folder = { .keep = UINT_MAX };
	struct optim_arrays arrays = { .params = params };
	struct manifest manifest = { .step = 0 };
	if ((size_t)snprintf(folder.dir, sizeof(folder.dir), "%s", to) >= sizeof(folder.dir))
		return tr_error_set(error, TR_EINVAL, "%s: the path is too long", to);
	return checkpoint_write(&folder, layout, &arrays, &manifest, NULL, NULL, result->path,
	    error);
}

static tr_status import(const char *folder, const char *to, struct weight_files *w,
    struct hf_result *result, struct tr_error *error)
{
	struct layout layout;
	struct manifest manifest = { .step = 0 };
	tr_status status = checkpoint_manifest(folder, &manifest, error);
	if (status == TR_OK) /* a checkpoint of ours: it has digests */
		memcpy(w->model, manifest.model, sizeof(w->model));
	if (status != TR_EDIGEST && status != TR_EIO &&
	    status != TR_ENOMEM) /* there is none, or it is something else's */
		status = hf_config_read(folder, manifest.config, &result->config, error);
	if (status == TR_OK)
		status = open_files(folder, w, error);
	if (status == TR_OK)
		status = layout_init(&result->config, &layout, error);
	if (status != TR_OK)
		return tr_error_wrap(error, "%s", folder);
	float *params = NULL;
	struct place *places = calloc(layout.tensor_count + 1, sizeof(*places));
	status = places != NULL
	    ? check_rest(&layout, w, error)
	    : tr_error_set(error, TR_ENOMEM, "no memory for a table of tensors");
	if (status == TR_OK)
		status = check_tensors(&layout, w, places, error);
	if (status == TR_OK && (params = calloc(layout.count, sizeof(*params))) == NULL)
		status = tr_error_set(error, TR_ENOMEM, "no memory for %zu parameters",
		    layout.parameters);
	if (status == TR_OK)
		status = load(folder, &layout, w, places, params, error);
	if (status == TR_OK)
		status = write_checkpoint(&layout, params, to, result, error);
	else
		(void)tr_error_wrap(error, "%s", folder);
	free(params);
	free(places);
	layout_finish(&layout);
	return status;
}

tr_status hf_import(const char *folder, const char *to, struct hf_result *out,
    struct tr_error *error)
{
	struct hf_result result = { .step = 0 };
	struct weight_files *w = calloc(1, sizeof(*w));
	if (w == NULL)
		return tr_error_set(error, TR_ENOMEM, "no memory for a table of files");
	tr_status status = import(folder, to, w, &result, error);
	close_files(w);
	free(w);
	if (status != TR_OK)
		return status;
	result.dropout = hf_config_dropout(folder, result.dropout_text);
	*out = result;
	return TR_OK;
}
