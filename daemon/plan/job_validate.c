/* A whole job: defaults, each value's own limits, then what only the whole can tell. */
#include "daemon/plan/job_options.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/limits.h"
#include "daemon/plan/job_mesh.h"
#include "daemon/plan/job_sync.h"
#include "daemon/plan/job_value.h"

#define BYTES                     "bytes"
#define VOCAB_MAX                 (1 << 24)
#define STATE_BYTES_PER_PARAMETER 16 /* f32: parameter, gradient, two moments */

static bool applies_to_commands(const char *key)
{
	return strcmp(key, "name") == 0;
}

static tr_status fill(Traind__V1__JobSpec *spec, const struct job_option *option,
    struct tr_error *error)
{
	struct job_value value;
	char allowed[160];
	if (job_value_load(spec, option, &value) || job_option_list_most(option) > 0)
		return TR_OK; /* lists: check_data, job_mesh_check */
	/* Where "runs/NAME" is, only the client can tell. */
	if (option->fallback == NULL || (option->kind == OPTION_PATH && option->fallback[0] != '\0'))
		return tr_error_set(error, TR_EINVAL, "%s: found nothing, allowed: %s", option->key,
		    job_option_allowed(option, allowed, sizeof(allowed)));
	tr_status status = job_value_parse(option, option->fallback, &value, error);
	return status == TR_OK ? job_value_store(spec, option, &value, error) : status;
}

static tr_status check_path(const struct job_option *option, const char *path,
    struct tr_error *error)
{
	char quoted[JOB_VALUE_QUOTED_MAX];
	if (path[0] == '/' && strlen(path) < TR_JOB_PATH_MAX)
		return TR_OK;
	if (path[0] == '/')
		return tr_error_set(error, TR_EINVAL,
		    "%s: found a path of %zu bytes, allowed: at most %d", option->key, strlen(path),
		    TR_JOB_PATH_MAX - 1);
	return tr_error_set(error, TR_EINVAL, "%s: found %s, allowed: an absolute path",
	    option->key, job_value_quote(path, quoted));
}

static tr_status check(const Traind__V1__JobSpec *spec, const struct job_option *option,
    struct tr_error *error)
{
	struct job_value value;
	bool set = job_value_load(spec, option, &value);
	tr_status status = TR_OK;
	if (option->kind == OPTION_PATHS) {
		if (value.whole > (uint64_t)option->most)
			return tr_error_set(error, TR_EINVAL,
			    "%s: found %llu paths, allowed: at most %.0f", option->key,
			    (unsigned long long)value.whole, option->most);
		for (size_t i = 0; i < value.whole && status == TR_OK; i++)
			status = check_path(option, job_value_text(spec, option, i), error);
		return status;
	}
	if (option->kind == OPTION_UINTS)
		return job_value_check_list(spec, option, error);
	if (option->kind == OPTION_PATH)
		return set ? check_path(option, value.text, error) : TR_OK;
	return job_value_check(option, &value, error);
}

/* "bytes", or a number of tokens; 0: neither. */
static uint32_t vocab_of(const char *text)
{
	char *end;
	if (text == NULL || text[0] == '\0' || strcmp(text, BYTES) == 0)
		return 256; /* a multiple of every vector width as it is */
	unsigned long number = isdigit((unsigned char)text[0]) ? strtoul(text, &end, 10) : 0;
	return number >= 2 && number <= VOCAB_MAX && *end == '\0' ? (uint32_t)number : 0;
}

tr_status job_model_config(const Traind__V1__Model *model, struct model_config *config,
    struct tr_error *error)
{
	struct model_config c = { .layers = model->layers,
		.width = model->width,
		.heads = model->heads,
		.kv_heads = model->kv_heads,
		.hidden = model->hidden,
		.context = model->context,
		.vocab = vocab_of(model->vocab),
		.untied = model->tied != NULL && strcmp(model->tied, "false") == 0,
		.rope_theta = model->rope_theta,
		.norm_eps = model->norm_eps };
	char quoted[JOB_VALUE_QUOTED_MAX];
	bool given = model->preset != NULL && model->preset[0] != '\0'; /* else the first */
	if (given && !model_preset_find(model->preset, &c.preset))
		return tr_error_set(error, TR_EINVAL,
		    "model.preset: found %s, which this program does not know",
		    job_value_quote(model->preset, quoted));
	if (c.vocab == 0)
		return tr_error_set(error, TR_EINVAL,
		    "model.vocab: found %s, allowed: " BYTES " or a whole number from 2 to %d",
		    job_value_quote(model->vocab, quoted), VOCAB_MAX);
	tr_status status = model_config_check(&c, error);
	if (status != TR_OK)
		return status;
	model_config_fill(&c);
	*config = c;
	return TR_OK;
}

uint64_t job_parameters(const Traind__V1__JobSpec *spec)
{
	struct model_config config;
	return job_model_config(spec->train->model, &config, NULL) == TR_OK
	    ? model_config_parameters(&config)
	    : 0;
}

static tr_status check_model(const Traind__V1__JobSpec *spec, struct tr_error *error)
{
	const Traind__V1__Model *model = spec->train->model;
	struct model_config config;
	tr_status status = job_model_config(model, &config, error);
	if (status != TR_OK)
		return status;
	struct mesh mesh = job_mesh(spec->mesh);
	uint32_t sharers = mesh.size[MESH_TP] * mesh.size[MESH_PP];
	bool open = spec->mesh->auto_ && spec->plan == NULL; /* it is not split yet */
	double parameters = (double)model_config_parameters(&config), each = parameters / sharers;
	if (each > TR_JOB_PARAMETERS_MAX && !open)
		return tr_error_set(error, TR_EINVAL,
		    "model.width: found %u, which with %u layers makes %.1f G parameters: %.1f G "
		    "(%.0f GB of state) for each of the %u that share it (mesh.tp x mesh.pp), "
		    "allowed: at most %.1f G for each",
		    model->width, model->layers, parameters / 1e9, each / 1e9,
		    each * STATE_BYTES_PER_PARAMETER / 1e9, sharers, TR_JOB_PARAMETERS_MAX / 1e9);
	return TR_OK;
}

/* A text, whose tokens are bytes, or files of tokens. */
static tr_status check_data(const Traind__V1__JobSpec *spec, struct tr_error *error)
{
	const Traind__V1__TrainSpec *train = spec->train;
	const char *vocab = train->model->vocab;
	bool bytes = strcmp(vocab, BYTES) == 0;
	bool tokenizer = train->data->tokenizer != NULL && train->data->tokenizer[0] != '\0';
	if (train->data->n_text == 0 && train->data->n_tokens == 0)
		return tr_error_set(error, TR_EINVAL,
		    "data.text: found nothing, allowed: a list of 1 to %d paths", TR_JOB_PATHS_MAX);
	if (train->data->n_text > 0 && train->data->n_tokens > 0)
		return tr_error_set(error, TR_EINVAL,
		    "data.tokens: found data.text as well, allowed: one of them");
	if (train->data->n_text > 0 && !bytes && !tokenizer)
		return tr_error_set(error, TR_EINVAL,
		    "model.vocab: found %s, allowed: " BYTES
		    ", since without data.tokenizer data.text is read byte by byte",
		    vocab);
	if (bytes && (tokenizer || train->data->n_tokens > 0))
		return tr_error_set(error, TR_EINVAL,
		    "model.vocab: found " BYTES
		    ", allowed: how many tokens %s has, as 50257 of GPT-2",
		    tokenizer ? "data.tokenizer" : "data.tokens");
	if (!bytes && !tokenizer && train->sample != NULL && train->sample->tokens > 0)
		return tr_error_set(error, TR_EINVAL,
		    "sample.tokens: found %u, allowed: 0, since without data.tokenizer nothing "
		    "tells "
		    "which text a token is",
		    train->sample->tokens);
	return TR_OK;
}

static tr_status check_sequences(const Traind__V1__JobSpec *spec, struct tr_error *error)
{
	const Traind__V1__Optimizer *train = spec->train->optimizer;
	uint32_t context = spec->train->model->context;
	unsigned long long found = train->batch_tokens, below = found / context * context;
	char near[64];
	if (found == below)
		return TR_OK;
	if (below > 0)
		(void)snprintf(near, sizeof(near), "%llu or %llu", below, below + context);
	else
		(void)snprintf(near, sizeof(near), "at least %u", context);
	return tr_error_set(error, TR_EINVAL,
	    "train.batch_tokens: found %llu, allowed: a multiple of model.context, which is %u "
	    "(%s)",
	    found, context, near);
}

static tr_status check_replicas(const Traind__V1__JobSpec *spec, struct tr_error *error)
{
	const Traind__V1__Optimizer *train = spec->train->optimizer;
	uint32_t context = spec->train->model->context;
	uint32_t replicas = job_mesh(spec->mesh).size[MESH_DP];
	if (train->batch_tokens / context < replicas)
		return tr_error_set(error, TR_EINVAL,
		    "train.batch_tokens: found %llu (sequences: %llu), allowed: at "
		    "least %llu, a sequence for each of the mesh's "
		    "%u %s",
		    (unsigned long long)train->batch_tokens,
		    (unsigned long long)train->batch_tokens / context,
		    (unsigned long long)context * replicas, replicas,
		    job_mesh_is_sharded(spec) ? "replicas" : "workers");
	return TR_OK;
}

static tr_status check_schedule(const Traind__V1__JobSpec *spec, struct tr_error *error)
{
	const Traind__V1__Optimizer *train = spec->train->optimizer;
	if (train->warmup > train->steps)
		return tr_error_set(error, TR_EINVAL,
		    "train.warmup: found %llu, allowed: at most train.steps, which is %llu",
		    (unsigned long long)train->warmup, (unsigned long long)train->steps);
	if (train->min_lr > train->lr)
		return tr_error_set(error, TR_EINVAL,
		    "train.min_lr: found %g, allowed: at most train.lr, which is %g", train->min_lr,
		    train->lr);
	return TR_OK;
}

static bool sync_is_given(const Traind__V1__Sync *sync)
{
	return sync->inner_steps > 0 || sync->outer_lr > 0 || sync->outer_momentum > 0 ||
	    sync->fragments > 0 || sync->overlap > 0 || sync->alpha > 0 || sync->carry ||
	    sync->feedback != 0 || sync->lr_spread > 0 || sync->lr_temperature > 0 ||
	    sync->lr_step > 0 || sync->lr_momentum > 0 || sync->lr_decay > 0 || sync->lr_search ||
	    sync->inner_seconds > 0 || sync->by_speed || sync->share_by_speed ||
	    sync->grace_seconds > 0 || sync->quorum > 0 || sync->alone_steps > 0 ||
	    sync->alone_after_seconds > 0 ||
	    (sync->weights != NULL && strcmp(sync->weights, "root") != 0) ||
	    (sync->codec != NULL && strcmp(sync->codec, "none") != 0);
}

static tr_status check_sync(const Traind__V1__JobSpec *spec, struct tr_error *error)
{
	const Traind__V1__Sync *sync = spec->train->sync;
	struct tr_sync_options options;
	if (job_sync_is_rare(sync))
		return job_sync_options(spec->train, spec->train->optimizer->steps, &options, error);
	if (sync_is_given(sync))
		return tr_error_set(error, TR_EINVAL,
		    "sync.mode: found ddp with settings of the other modes, allowed: local_sgd or "
		    "diloco or streaming or eager or hdet, or none of inner_steps, outer_lr, "
		    "outer_momentum, fragments, overlap, alpha, carry, codec, feedback, "
		    "inner_seconds, "
		    "by_speed, share_by_speed, weights, grace_seconds, quorum, alone_steps, "
		    "alone_after_seconds and those "
		    "that begin with lr_");
	return TR_OK;
}

static tr_status validate_train(Traind__V1__JobSpec *spec, struct tr_error *error)
{
	tr_status status = TR_OK;
	for (const struct job_option *row = job_options(); row->key != NULL && status == TR_OK;
	     row++) {
		status = fill(spec, row, error);
		if (status == TR_OK)
			status = check(spec, row, error);
	}
	if (status == TR_OK)
		status = job_mesh_count(spec, error);
	if (status == TR_OK)
		status = check_data(spec, error);
	if (status == TR_OK)
		status = check_model(spec, error);
	if (status == TR_OK)
		status = check_sequences(spec, error);
	if (status == TR_OK)
		status = job_mesh_check(spec, error);
	if (status == TR_OK)
		status = check_replicas(spec, error);
	if (status == TR_OK)
		status = check_schedule(spec, error);
	if (status == TR_OK)
		status = check_sync(spec, error);
	return status;
}

static bool is_variable(const char *text)
{
	if (!isalpha((unsigned char)text[0]) && text[0] != '_')
		return false;
	while (isalnum((unsigned char)*text) || *text == '_')
		text++;
	return *text == '=';
}

static tr_status check_argv(const Traind__V1__CommandSpec *command, struct tr_error *error)
{
	size_t bytes = 0;
	char quoted[JOB_VALUE_QUOTED_MAX];
	if (command->n_argv == 0 || command->argv[0][0] == '\0')
		return tr_error_set(error, TR_EINVAL,
		    "command.argv: found nothing, allowed: a program and its arguments");
	for (size_t i = 0; i < command->n_argv; i++)
		bytes += strlen(command->argv[i]) + 1;
	for (size_t i = 0; i < command->n_env; i++) {
		bytes += strlen(command->env[i]) + 1;
		if (!is_variable(command->env[i]))
			return tr_error_set(error, TR_EINVAL,
			    "command.env: found %s, allowed: KEY=value",
			    job_value_quote(command->env[i], quoted));
	}
	if (bytes > TR_JOB_COMMAND_BYTES_MAX)
		return tr_error_set(error, TR_EINVAL,
		    "command.argv: found %zu bytes with the environment, allowed: at most %d",
		    bytes, TR_JOB_COMMAND_BYTES_MAX);
	return TR_OK;
}

static tr_status validate_command(Traind__V1__JobSpec *spec, struct tr_error *error)
{
	const Traind__V1__CommandSpec *command = spec->command;
	char quoted[JOB_VALUE_QUOTED_MAX];
	tr_status status = TR_OK;
	for (const struct job_option *row = job_options(); row->key != NULL && status == TR_OK;
	     row++) {
		struct job_value value;
		if (applies_to_commands(row->key) && job_value_load(spec, row, &value))
			status = job_value_check(row, &value, error);
		else if (applies_to_commands(row->key))
			status = job_value_store(spec, row,
			    &(struct job_value){ .text = "command" }, error);
	}
	if (status == TR_OK)
		status = check_argv(command, error);
	if (status != TR_OK)
		return status;
	if (command->directory != NULL && command->directory[0] != '\0' &&
	    command->directory[0] != '/')
		return tr_error_set(error, TR_EINVAL,
		    "command.directory: found %s, allowed: an absolute path",
		    job_value_quote(command->directory, quoted));
	Traind__V1__Mesh *mesh = spec->mesh;
	if (mesh->workers < 1 || mesh->workers > TR_GROUP_PEERS_MAX)
		return tr_error_set(error, TR_EINVAL,
		    "mesh.workers: found %u, allowed: a whole number from 1 to %d", mesh->workers,
		    TR_GROUP_PEERS_MAX);
	if (mesh->nodes > mesh->workers)
		return tr_error_set(error, TR_EINVAL,
		    "mesh.nodes: found %u, allowed: at most mesh.workers, which is %u", mesh->nodes,
		    mesh->workers);
	if (mesh->threads > 1024)
		return tr_error_set(error, TR_EINVAL,
		    "mesh.threads: found %u, allowed: a whole number from 0 to 1024",
		    mesh->threads);
	return TR_OK;
}

tr_status job_validate(Traind__V1__JobSpec *spec, struct tr_error *error)
{
	if ((spec->train == NULL) == (spec->command == NULL))
		return tr_error_set(error, TR_EINVAL,
		    "train: found %s, allowed: exactly one of train and command",
		    spec->train == NULL ? "neither train nor command" : "train and command");
	if (spec->mesh == NULL)
		spec->mesh = job_value_message(&traind__v1__mesh__descriptor);
	if (spec->mesh == NULL)
		return tr_error_set(error, TR_ENOMEM, "mesh: out of memory");
	return spec->train != NULL ? validate_train(spec, error) : validate_command(spec, error);
}

tr_status job_validate_text(const Traind__V1__JobSpec *spec, uint64_t tokens, struct tr_error *error)
{
	const Traind__V1__TrainSpec *train = spec->train;
	const Traind__V1__Data *data = train->data;
	bool of_tokens = data->n_tokens > 0 ||
	    (data->tokenizer != NULL && data->tokenizer[0] != '\0');
	const char *unit = of_tokens ? "tokens" : "bytes";
	/* A sample is `context` tokens and the one that follows, and begins up to context - 1 later from epoch to epoch (daemon/worker/samples.h). */
	uint64_t least = 2 * (uint64_t)train->model->context;
	uint64_t held_out = (uint64_t)((double)tokens * data->validation);
	if (tokens - held_out < least)
		return tr_error_set(error, TR_EINVAL,
		    "data.%s: found %llu %s to train on, allowed: at least %llu, twice "
		    "model.context",
		    data->n_tokens > 0 ? "tokens" : "text", (unsigned long long)(tokens - held_out),
		    unit, (unsigned long long)least);
	least = (uint64_t)train->model->context + 1;
	if (data->validation > 0 && held_out < least)
		return tr_error_set(error, TR_EINVAL,
		    "data.validation: found %g%%, which holds out %llu of %llu "
		    "%s, allowed: 0, or a share of at least %llu "
		    "%s, one more than model.context",
		    data->validation * 100, (unsigned long long)held_out,
		    (unsigned long long)tokens, unit, (unsigned long long)least, unit);
	return TR_OK;
}
