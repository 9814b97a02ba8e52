/* export, import: checkpoints and folders of Hugging Face's transformers. */
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "client/trainctl/interrupt.h"
#include "client/trainctl/job_folder.h"
#include "client/trainctl/path.h"
#include "client/trainctl/print.h"
#include "client/trainctl/verbs.h"
#include "common/json.h"
#include "daemon/checkpoint/checkpoint_dir.h"
#include "daemon/checkpoint/hf_folder.h"
#include "daemon/plan/job_options.h"

#define FORMAT "hf"
#define BYTES  256 /* tokens of texts, see model.vocab */

const struct args_row verb_export_options[] = {
	{ "--output", "-o", "FOLDER", "where to write it", false },
	{ "--format", NULL, "FORMAT", "hf, which is also the default: Hugging Face's transformers",
	    false },
	{ "--tokenizer", NULL, "FOLDER",
	    "vocab.json and merges.txt to go with it; if not given, a job's data.tokenizer", false },
	{ NULL, NULL, NULL, NULL, false },
};

const struct args_row verb_import_options[] = {
	{ "--output", "-o", "CHECKPOINT", "the folder that gets step-00000000/ and `latest`",
	    false },
	{ NULL, NULL, NULL, NULL, false },
};

static int complain(const struct tr_error *error)
{
	bool input = error->status == TR_EINVAL || error->status == TR_ENOTFOUND ||
	    error->status == TR_EPROTO;
	return verbs_complain(input ? EXIT_USAGE : EXIT_JOB_FAILED, "%s", error->text);
}

static int wanted_output(const struct args *args, const char **output)
{
	*output = args_value(args, "--output");
	if (*output != NULL)
		return EXIT_OK;
	return verbs_complain(EXIT_USAGE, "--output: found nothing, allowed: a folder to write");
}

/* Whether the checkpoint at `path` is of this job; of which it is, if it says so. */
static bool is_of(const Traind__V1__Job *job, const char *path, struct manifest_job *owner)
{
	char found[CHECKPOINT_PATH_MAX];
	struct manifest manifest;
	owner->id = 0;
	if (checkpoint_find(path, found, NULL) != TR_OK ||
	    checkpoint_manifest(found, &manifest, NULL) != TR_OK)
		return false;
	*owner = manifest.job;
	return job_folder_is_of(job, owner->id, owner->submitted_unix_ms);
}

/* The newest one in the job's folder, or, where a later job used that, its own newest, if it is still there. */
static int choose(struct verb_call *call, const Traind__V1__Job *job, char path[CHECKPOINT_PATH_MAX])
{
	struct manifest_job owner, other;
	char words[JOB_FOLDER_WORDS_MAX];
	const char *own = job->progress->checkpoint;
	if (is_of(job, path, &owner))
		return EXIT_OK;
	if (owner.id == 0)
		return job_folder_check(call, job, true);
	if (is_of(job, own, &other)) {
		(void)snprintf(path, CHECKPOINT_PATH_MAX, "%s", own);
		return EXIT_OK;
	}
	return verbs_complain(EXIT_JOB_FAILED,
	    "job %llu: its newest checkpoint, %s, is not there any more: %s has written in its "
	    "folder since; `trainctl export %s -o FOLDER` takes what is there now",
	    (unsigned long long)job->id, own, job_folder_words(job, owner.id, owner.name, words),
	    job_folder(job));
}

/* Where the newest checkpoint of a job is, and its tokenizer; "": it has none. */
static int find_job(struct verb_call *call, const char *word, char path[CHECKPOINT_PATH_MAX],
    char tokenizer[CHECKPOINT_PATH_MAX])
{
	char found[CHECKPOINT_PATH_MAX];
	int code = EXIT_OK;
	struct tr_error error;
	Traind__V1__Job *job = verbs_training_job(call, word, &code);
	if (job == NULL)
		return code;
	const char *given = job_option_text(job->spec, "data.tokenizer", 0);
	(void)snprintf(path, CHECKPOINT_PATH_MAX, "%s", job_folder(job));
	(void)snprintf(tokenizer, CHECKPOINT_PATH_MAX, "%s", given != NULL ? given : "");
	if (job->progress == NULL || job->progress->checkpoint[0] == '\0')
		code = verbs_complain(EXIT_JOB_FAILED, "job %s has written no checkpoint yet", word);
	else if (checkpoint_find(path, found, &error) != TR_OK)
		code = verbs_complain(EXIT_JOB_FAILED,
		    "job %s: %s: %s; the node of the job's first worker writes it: run this there, "
		    "or give a copy of the checkpoint",
		    word, path, error.text);
	else
		code = choose(call, job, path);
	traind__v1__job__free_unpacked(job, NULL);
	return code;
}

static void json_texts(struct json *json, const char *key, const char *value)
{
	json_key(json, key);
	json_string(json, value);
}

int verb_export(struct verb_call *call)
{
	const struct args *args = call->args;
	const char *format = args_value(args, "--format"), *folder;
	const char *tokenizer = args_value(args, "--tokenizer");
	char path[CHECKPOINT_PATH_MAX], of_job[CHECKPOINT_PATH_MAX] = "";
	struct hf_result result;
	struct tr_error error;
	int code = wanted_output(args, &folder);
	if (code == EXIT_OK && format != NULL && strcmp(format, FORMAT) != 0)
		code = verbs_complain(EXIT_USAGE, "--format: found '%.60s', allowed: " FORMAT,
		    format);
	if (code == EXIT_OK && verbs_is_number(args->words[0]))
		code = find_job(call, args->words[0], path, of_job);
	else
		(void)snprintf(path, sizeof(path), "%s", args->words[0]);
	if (code != EXIT_OK)
		return code;
	if (tokenizer == NULL && of_job[0] != '\0')
		tokenizer = of_job;
	interrupt_leaves("trainctl: ended at once: what was written of it is left beside the "
	                 "folder, as FOLDER.NUMBER.new\n");
	interrupt_begin();
	tr_status status = hf_export(path, folder, tokenizer, interrupt_flag(), &result, &error);
	int number = interrupt_take();
	if (status != TR_OK && number != 0)
		return verbs_complain(interrupt_exit_code(number),
		    "%s before %s was written: nothing of it is left", interrupt_words(number),
		    folder);
	if (status != TR_OK) {
		if (tokenizer == of_job &&
		    strncmp(error.text, "tokenizer", strlen("tokenizer")) == 0)
			return verbs_complain(EXIT_USAGE,
			    "%s; it is the job's data.tokenizer: --tokenizer FOLDER says where a "
			    "copy is",
			    error.text);
		return complain(&error);
	}
	if (!call->config->json) {
		(void)printf("wrote %s: %s of %llu parameters, step %llu, from %s\n", folder,
		    model_architecture(result.config.preset)->name,
		    (unsigned long long)model_config_parameters(&result.config),
		    (unsigned long long)result.step, result.path);
		return EXIT_OK;
	}
	struct json json = { 0 };
	json_object(&json);
	json_texts(&json, "folder", folder);
	json_texts(&json, "checkpoint", result.path);
	json_key_uint(&json, "step", result.step);
	json_key_uint(&json, "parameters", model_config_parameters(&result.config));
	json_end(&json);
	print_json_text(&json);
	return EXIT_OK;
}

/* A key of a job file's section `model`. */
struct model_key {
	const char *key, *text; /* text NULL: the number */
	double number;
};
#define MODEL_KEYS 11

static void job_file_keys(const struct model_config *c, struct model_key keys[MODEL_KEYS])
{
	const struct model_key all[MODEL_KEYS] = {
		{ "preset", model_architecture(c->preset)->name, 0 },
		{ "layers", NULL, c->layers },
		{ "width", NULL, c->width },
		{ "heads", NULL, c->heads },
		{ "kv_heads", NULL, c->kv_heads },
		{ "hidden", NULL, c->hidden },
		{ "context", NULL, c->context },
		{ "vocab", c->vocab == BYTES ? "bytes" : NULL, c->vocab },
		{ "tied", c->untied ? "false" : "true", 0 },
		{ "rope_theta", NULL, c->rope_theta }, /* 0: it has none, and that is the default */
		{ "norm_eps", NULL, c->norm_eps },
	};
	memcpy(keys, all, sizeof(all));
}

static void print_json(const struct hf_result *result, const struct model_key keys[MODEL_KEYS])
{
	struct json json = { 0 };
	json_object(&json);
	json_texts(&json, "checkpoint", result->path);
	json_key(&json, "model");
	json_object(&json);
	for (size_t i = 0; i < MODEL_KEYS; i++) {
		json_key(&json, keys[i].key);
		if (strcmp(keys[i].key, "tied") == 0)
			json_bool(&json, !result->config.untied);
		else if (keys[i].text != NULL)
			json_string(&json, keys[i].text);
		else
			json_double(&json, keys[i].number);
	}
	json_end(&json);
	if (result->dropout > 0) {
		json_key(&json, "dropout");
		json_double(&json, result->dropout);
	}
	json_end(&json);
	print_json_text(&json);
}

/* What its training left out, and what of that a job can. */
static void print_dropout(const struct hf_result *result)
{
	double most = job_option_find("train.dropout")->most;
	if (!(result->dropout > 0))
		return;
	(void)printf("\nIts config.json has %s: a job leaves nothing out, or with "
	             "train.dropout: %.4g that share%s of the embedding's output, of attention "
	             "probabilities and of what layers add.\n",
	    result->dropout_text, result->dropout < most ? result->dropout : most,
	    result->dropout > most ? ", the largest there is," : "");
}

/* As the value of a key in a job file, wherever that is. */
static void print_path(const char *path)
{
	char current[PATH_MAX], full[PATH_MAX];
	struct json json = { 0 };
	if (getcwd(current, sizeof(current)) != NULL &&
	    path_absolute(current, path, full, sizeof(full)))
		path = full;
	json_string(&json, path); /* is YAML, too */
	bool plain = path[strspn(path,
	                 "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._-")] ==
	    '\0';
	(void)fputs(plain || json_text(&json) == NULL ? path : json_text(&json), stdout);
	json_finish(&json);
}

/* What a job file says to begin from the checkpoint. */
static void print_lines(const struct hf_result *result, const struct model_key keys[MODEL_KEYS],
    const char *to)
{
	(void)printf("wrote %s\n\nA job that begins from it says:\n\nmodel: {", result->path);
	for (size_t i = 0; i < MODEL_KEYS; i++) {
		(void)printf("%s%s: ", i > 0 ? ", " : "", keys[i].key);
		if (keys[i].text != NULL)
			(void)printf("%s", keys[i].text);
		else
			(void)printf("%.9g", keys[i].number);
	}
	(void)printf("}\ncheckpoint: {resume: ");
	print_path(to);
	(void)printf("}\n");
	print_dropout(result);
}

int verb_import(struct verb_call *call)
{
	const char *to;
	struct hf_result result;
	struct model_key keys[MODEL_KEYS];
	struct tr_error error;
	char there[CHECKPOINT_NAME_MAX];
	int code = wanted_output(call->args, &to);
	if (code != EXIT_OK)
		return code;
	if (checkpoint_dir_newest(to, UINT64_MAX, there) && strcmp(there, "step-00000000") != 0)
		return verbs_complain(EXIT_USAGE,
		    "--output: %s has checkpoints of a job (%s), and would begin again at step 0: "
		    "name another folder",
		    to, there);
	if (hf_import(call->args->words[0], to, &result, &error) != TR_OK)
		return complain(&error);
	job_file_keys(&result.config, keys);
	if (call->config->json)
		print_json(&result, keys);
	else
		print_lines(&result, keys, to);
	return EXIT_OK;
}
