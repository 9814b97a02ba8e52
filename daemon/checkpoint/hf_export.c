#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/json.h"
#include "daemon/checkpoint/bpe_inside.h"
#include "daemon/checkpoint/checkpoint_dir.h"
#include "daemon/checkpoint/checkpoint_files.h"
#include "daemon/checkpoint/hf_config.h"
#include "daemon/checkpoint/hf_folder.h"

#define BYTES_VOCABULARY 256

static const char readme[] = "# A language model trained by traind\n"
                             "\n"
                             "    from transformers import AutoModelForCausalLM, AutoTokenizer\n"
                             "    model = AutoModelForCausalLM.from_pretrained(\"THIS FOLDER\")\n"
                             "    tokenizer = AutoTokenizer.from_pretrained(\"THIS FOLDER\")\n"
                             "\n";
static const char readme_bytes[] =
    "Its vocabulary is the 256 bytes: a text's UTF-8, byte by byte, each the token of its value.\n"
    "There is no token for the beginning or the end of a text. tokenizer.json says the same.\n";
static const char readme_bpe[] =
    "Its tokenizer is the one that it was trained with: GPT-2's byte-level BPE of vocab.json and\n"
    "merges.txt. Each text has tokens; none stood for the beginning or the end of a text.\n";
static const char readme_other
    [] = "The tokenizer is not here: it is that of the tokens that the model was trained with.\n";

struct export
{
	const struct layout *layout;
	const float *params;
	double dropout;        /* that it was trained with */
	const char *tokenizer; /* NULL: */
	struct bpe *bpe;
	const atomic_bool *cancelled;
};

/* A made or given text into a file; frees it. */
static tr_status put(int dir, const char *name, char *text, struct tr_error *error)
{
	tr_status status = checkpoint_put_text(dir, name, text, error);
	free(text);
	return status;
}

/* Generation ends where the model does: learned positions have an end. */
static char *generation_text(const struct model_config *config)
{
	char text[64];
	(void)snprintf(text, sizeof(text), "{\"max_length\":%u}", config->context);
	return strdup(text);
}

static char *readme_text(const char *tokenizer)
{
	char *text = NULL;
	return asprintf(&text, "%s%s", readme, tokenizer) < 0 ? NULL : text;
}

static tr_status put_copy(int dir, const char *folder, const char *name, struct tr_error *error)
{
	char *text;
	size_t length;
	tr_status status = bpe_read_file(folder, name, &text, &length, error);
	return status == TR_OK ? put(dir, name, text, error) : status;
}

static tr_status put_tokenizer(int dir, const struct export *what, struct tr_error *error)
{
	const struct model_config *config = &what->layout->config;
	tr_status status = TR_OK;
	if (what->bpe != NULL) {
		status = put_copy(dir, what->tokenizer, BPE_VOCAB, error);
		if (status == TR_OK)
			status = put_copy(dir, what->tokenizer, BPE_MERGES, error);
		if (status == TR_OK)
			status = put(dir, "tokenizer_config.json",
			    hf_tokenizer_config_bpe(config, what->bpe), error);
	} else if (config->vocab == BYTES_VOCABULARY) {
		status = put(dir, "tokenizer.json", hf_tokenizer_of_bytes(), error);
		if (status == TR_OK)
			status = put(dir, "tokenizer_config.json", hf_tokenizer_config(config),
			    error);
	}
	return status;
}

static tr_status put_all(int dir, const struct export *what, struct tr_error *error)
{
	const struct model_config *config = &what->layout->config;
	const char *tokenizer = config->vocab == BYTES_VOCABULARY ? readme_bytes : readme_other;
	struct checkpoint_arrays model = { .layout = what->layout,
		.count = 1,
		.suffixes = { "" },
		.values = { what->params } };
	struct tr_digest digest;
	const struct progress progress = { .cancelled = what->cancelled };
	tr_status status = checkpoint_put_arrays(dir, MANIFEST_MODEL, &model, &progress, &digest,
	    error);
	if (status == TR_OK)
		status = put(dir, HF_CONFIG_NAME, hf_config_text(config, what->dropout), error);
	if (status == TR_OK)
		status = put(dir, "generation_config.json", generation_text(config), error);
	if (status == TR_OK)
		status = put_tokenizer(dir, what, error);
	if (status == TR_OK)
		status = put(dir, "README.md",
		    readme_text(what->bpe != NULL ? readme_bpe : tokenizer), error);
	if (status == TR_OK && fsync(dir) != 0)
		status = tr_error_set(error, TR_EIO, "cannot sync: %s", strerror(errno));
	return status;
}

/* Writes beside `folder`; then its name, if that is free or an empty folder's. */
static tr_status write_folder(const char *folder, const struct export *what, struct tr_error *error)
{
	char beside[CHECKPOINT_PATH_MAX];
	size_t length = strlen(folder);
	while (length > 1 && folder[length - 1] == '/')
		length--;
	if ((size_t)snprintf(beside, sizeof(beside), "%.*s.%ld.new", (int)length, folder,
	        (long)getpid()) >= sizeof(beside))
		return tr_error_set(error, TR_EINVAL, "the path is too long");
	if (mkdir(beside, 0777) != 0)
		return tr_error_set(error, TR_EIO, "cannot make %s: %s", beside, strerror(errno));
	int dir = open(beside, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	tr_status status = dir < 0
	    ? tr_error_set(error, TR_EIO, "cannot open %s: %s", beside, strerror(errno))
	    : put_all(dir, what, error);
	if (dir >= 0)
		(void)close(dir);
	if (status == TR_OK && rename(beside, folder) != 0)
		status = errno == ENOTEMPTY || errno == EEXIST
		    ? tr_error_set(error, TR_EINVAL, "it is there and not empty")
		    : tr_error_set(error, TR_EIO, "cannot rename: %s", strerror(errno));
	if (status != TR_OK)
		checkpoint_dir_remove(AT_FDCWD, beside);
	return status;
}

static tr_status read_params(const char *checkpoint, struct export *what, float *params,
    struct hf_result *result, struct tr_error *error)
{
	const struct layout *layout = what->layout;
	struct optim_arrays arrays = { .params = params };
	struct manifest manifest;
	tr_status status = params == NULL
	    ? tr_error_set(error, TR_ENOMEM, "no memory for %zu parameters", layout->parameters)
	    : checkpoint_read(checkpoint, layout, &arrays, &manifest, result->path, error);
	if (status != TR_OK)
		return status;
	result->step = manifest.step;
	what->dropout = manifest.dropout;
	return TR_OK;
}

/* Which one can be exported instead, if this one cannot: nobody wants another step than the newest without being told. */
static tr_status name_older(const char *checkpoint, struct tr_error *error)
{
	char older[CHECKPOINT_PATH_MAX], cause[TR_ERROR_TEXT_MAX];
	uint64_t steps;
	if (error == NULL || !checkpoint_older(checkpoint, older, &steps))
		return error != NULL ? error->status : TR_EINTERNAL;
	memcpy(cause, error->text, sizeof(cause));
	return tr_error_set(error, error->status, "%s; the one before it, %llu steps older, is %s",
	    cause, (unsigned long long)steps, older);
}

static tr_status load_tokenizer(struct export *what, struct tr_error *error)
{
	uint32_t vocab = what->layout->config.vocab;
	if (what->tokenizer == NULL)
		return TR_OK;
	tr_status status = bpe_load(what->tokenizer, &what->bpe, error);
	if (status == TR_OK && bpe_vocab(what->bpe) > vocab)
		status = tr_error_set(error, TR_EINVAL,
		    "found %u tokens, allowed: at most %u, as the model has", bpe_vocab(what->bpe),
		    vocab);
	return status == TR_OK ? TR_OK : tr_error_wrap(error, "tokenizer");
}

static tr_status export_layout(const char *checkpoint, const char *folder, struct export *what,
    struct hf_result *result, struct tr_error *error)
{
	tr_status status = load_tokenizer(what, error);
	if (status != TR_OK)
		return status;
	float *params = calloc(what->layout->count, sizeof(*params));
	what->params = params;
	status = read_params(checkpoint, what, params, result, error);
	if (status != TR_OK)
		status = name_older(checkpoint, error);
	else if ((status = write_folder(folder, what, error)) != TR_OK)
		(void)tr_error_wrap(error, "%s", folder);
	free(params);
	return status;
}

tr_status hf_export(const char *checkpoint, const char *folder, const char *tokenizer,
    const atomic_bool *cancelled, struct hf_result *out, struct tr_error *error)
{
	struct hf_result result = { .step = 0 };
	struct manifest manifest;
	struct layout layout;
	tr_status status = checkpoint_config(checkpoint, &result.config, &manifest, result.path,
	    error);
	if (status == TR_OK)
		status = layout_init(&result.config, &layout, error);
	if (status != TR_OK) {
		(void)tr_error_wrap(error, "%s", checkpoint);
		return name_older(checkpoint, error);
	}
	struct export what = { .layout = &layout, .tokenizer = tokenizer, .cancelled = cancelled };
	status = export_layout(checkpoint, folder, &what, &result, error);
	bpe_destroy(what.bpe);
	layout_finish(&layout);
	if (status == TR_OK)
		*out = result;
	return status;
}
