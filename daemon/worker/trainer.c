#include "daemon/worker/trainer.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/log.h"
#include "daemon/plan/job_mesh.h"
#include "daemon/plan/job_options.h"
#include "daemon/plan/job_strict.h"
#include "daemon/plan/job_sync.h"
#include "daemon/worker/trainer_inside.h"

static const char *text_or(const char *text, const char *otherwise)
{
	return text != NULL ? text : otherwise;
}

static tr_status digest_part(const Traind__V1__TrainSpec *part, char hex[TR_DIGEST_HEX_MAX],
    struct tr_error *error)
{
	size_t bytes = traind__v1__train_spec__get_packed_size(part);
	uint8_t *packed = malloc(bytes + 1);
	if (packed == NULL)
		return tr_error_set(error, TR_ENOMEM, "no memory to digest the job");
	(void)traind__v1__train_spec__pack(part, packed);
	(void)tr_digest_hex(tr_digest_of(packed, bytes), hex);
	free(packed);
	return TR_OK;
}

/* Digests of what determines the samples and the model: two jobs that agree can go on from each other's checkpoints; and of what determines their order alone, which a
 * batch does not. */
static tr_status digest_spec(struct trainer *t, struct tr_error *error)
{
	Traind__V1__Optimizer order = TRAIND__V1__OPTIMIZER__INIT;
	Traind__V1__TrainSpec part = TRAIND__V1__TRAIN_SPEC__INIT;
	Traind__V1__Model model = TRAIND__V1__MODEL__INIT;
	model.context = t->spec->model->context;
	order.seed = t->spec->optimizer->seed;
	part.model = &model;
	part.data = t->spec->data;
	part.optimizer = &order;
	tr_status status = digest_part(&part, t->order_digest, error);
	if (status != TR_OK)
		return status;
	order.batch_tokens = t->spec->optimizer->batch_tokens;
	/* Without what older versions did not have, if it is as they were. */
	model = *t->spec->model;
	if (model.tied != NULL && strcmp(model.tied, "true") == 0)
		model.tied = (char *)protobuf_c_empty_string;
	return digest_part(&part, t->spec_digest, error);
}

static tr_status read_settings(struct trainer *t, struct tr_error *error)
{
	const Traind__V1__TrainSpec *spec = t->spec;
	if (spec == NULL || spec->model == NULL || spec->data == NULL || spec->optimizer == NULL)
		return tr_error_set(error, TR_EINVAL, "the job has no model, data or train section");
	const Traind__V1__Optimizer *o = spec->optimizer;
	if (spec->model->context == 0 || o->batch_tokens < spec->model->context)
		return tr_error_set(error, TR_EINVAL,
		    "train.batch_tokens: found %llu, allowed: at least model.context = %u",
		    (unsigned long long)o->batch_tokens, spec->model->context);
	t->steps = o->steps;
	t->batch = o->batch_tokens / spec->model->context;
	t->micro = o->micro_sequences > 0 ? o->micro_sequences : 1;
	if (t->micro > t->batch)
		t->micro = (size_t)t->batch;
	t->drop = spec->sync != NULL && spec->sync->on_loss != NULL &&
	    strcmp(spec->sync->on_loss, "drop") == 0;
	t->settings = (struct optim_settings){ .lr = o->lr,
		.min_lr = o->min_lr,
		.clip = o->clip,
		.weight_decay = o->weight_decay,
		.beta1 = o->beta1,
		.beta2 = o->beta2,
		.eps = o->eps,
		.steps = o->steps,
		.warmup = o->warmup };
	const Traind__V1__Checkpoint *c = spec->checkpoint;
	if (c == NULL)
		return digest_spec(t, error);
	const char *dir = text_or(c->dir, "");
	if (strlen(dir) >= sizeof(t->folder.dir))
		return tr_error_set(error, TR_EINVAL,
		    "checkpoint.dir: found a path of %zu bytes, allowed: %zu", strlen(dir),
		    sizeof(t->folder.dir) - 1);
	(void)snprintf(t->folder.dir, sizeof(t->folder.dir), "%s", dir);
	t->folder.keep = c->keep > 0 ? c->keep : 1;
	return digest_spec(t, error);
}

static tr_status load_tokenizer(struct trainer *t, uint32_t vocab, struct tr_error *error)
{
	tr_status status = bpe_load(t->spec->data->tokenizer, &t->bpe, error);
	if (status != TR_OK)
		return tr_error_wrap(error, "data.tokenizer");
	if (bpe_vocab(t->bpe) > vocab)
		return tr_error_set(error, TR_EINVAL,
		    "model.vocab: found %u, allowed: at least %u, as data.tokenizer has", vocab,
		    bpe_vocab(t->bpe));
	return TR_OK;
}

static tr_status load_data(struct trainer *t, struct tr_error *error)
{
	const Traind__V1__Data *data = t->spec->data;
	const Traind__V1__Optimizer *o = t->spec->optimizer;
	struct model_config config;
	tr_status status = job_model_config(t->spec->model, &config, error);
	if (status == TR_OK && text_or(data->tokenizer, "")[0] != '\0')
		status = load_tokenizer(t, config.vocab, error);
	if (status == TR_OK && data->n_tokens > 0)
		status = text_load_tokens((const char *const *)data->tokens, data->n_tokens,
		    config.vocab, data->validation, &t->text, error);
	else if (status == TR_OK)
		status = text_load((const char *const *)data->text, data->n_text, data->validation,
		    &t->text, error);
	if (status == TR_OK && t->bpe != NULL && t->text.width == 1)
		status = text_tokenize(&t->text, t->bpe, data->validation, error);
	if (status != TR_OK)
		return status;
	return samples_init(&t->text, t->spec->model->context, o->seed, o->eval_sequences,
	    &t->samples, error);
}

tr_status trainer_choose_arithmetic(struct trainer *t, struct tr_error *error)
{
	const Traind__V1__Optimizer *o = t->spec->optimizer;
	tr_status status = model_use_dropout(t->model, o->dropout, o->seed, error);
	if (status != TR_OK)
		return status;
	if (strcmp(text_or(o->dtype, ""), "bf16") != 0) {
		if (!t->strict && model_use_onednn(t->model))
			log_info("trainer", "products of f32 are oneDNN's");
		return TR_OK;
	}
	status = model_use_bf16(t->model, false, error);
	if (status == TR_OK && model_bf16_slow(t->model) != NULL)
		log_warn("trainer", "train.dtype bf16 is slower than f32 here: %s",
		    model_bf16_slow(t->model));
	return status;
}

static tr_status build_model(struct trainer *t, struct tr_error *error)
{
	struct model_config config;
	tr_status status = job_model_config(t->spec->model, &config, error);
	if (status == TR_OK)
		status = layout_init(&config, &t->layout, error);
	if (status == TR_OK && (job_mesh_is_sharded(t->job) || t->strict))
		status = sharded_create(t, error);
	if (status == TR_OK)
		status = pool_create_parts(t->threads, t->strict ? STRICT_THREADS : t->threads,
		    &t->pool, error);
	/* A shard's model is made for a mesh (sharded_mesh.c). */
	if (status == TR_OK && t->sharded == NULL)
		status = model_create_whole(&t->layout,
		    &(struct model_room){ .recompute = t->recompute }, t->micro, t->pool, &t->model,
		    error);
	if (status == TR_OK && t->sharded == NULL)
		status = trainer_choose_arithmetic(t, error);
	if (status != TR_OK)
		return tr_error_wrap(error, "model");
	t->ops = ops_choose();
	buckets_plan(&t->layout, BUCKETS_BYTES, &t->buckets);
	size_t tokens = t->micro * config.context;
	t->inputs = calloc(tokens, sizeof(*t->inputs));
	t->targets = calloc(tokens, sizeof(*t->targets));
	if (t->inputs == NULL || t->targets == NULL)
		return tr_error_set(error, TR_ENOMEM, "no memory for a batch of %zu tokens", tokens);
	log_info("trainer", "%zu parameters, %u threads, %s loops, %zu gradient buckets",
	    t->layout.parameters, t->threads, t->ops->name, t->buckets.count);
	return TR_OK;
}

static tr_status allocate_arrays(struct trainer *t, struct tr_error *error)
{
	size_t bytes = t->layout.count * sizeof(float);
	t->arrays.params = tr_alloc(t->group, bytes);
	t->arrays.grads = tr_alloc(t->group, bytes);
	t->arrays.first = tr_alloc(t->group, bytes);
	t->arrays.second = tr_alloc(t->group, bytes);
	if (t->arrays.params == NULL || t->arrays.grads == NULL || t->arrays.first == NULL ||
	    t->arrays.second == NULL)
		return tr_error_set(error, TR_ENOMEM,
		    "model: no shared memory for parameters, gradients and moments (4 x %zu MiB)",
		    bytes >> 20);
	model_bind(t->model, t->arrays.params, t->arrays.grads);
	return job_sync_is_rare(t->spec->sync) ? outer_allocate(t, error) : TR_OK;
}

static tr_status allocate_state(struct trainer *t, struct tr_error *error)
{
	t->counters = tr_alloc(t->group, sizeof(*t->counters));
	t->sums = tr_alloc(t->group, sizeof(*t->sums));
	t->account = tr_alloc(t->group, sizeof(*t->account));
	t->numbers = calloc((size_t)t->batch + 1, sizeof(*t->numbers));
	if (t->counters == NULL || t->sums == NULL || t->account == NULL || t->numbers == NULL)
		return tr_error_set(error, TR_ENOMEM, "model: no shared memory for its counters");
	memset(t->account, 0, sizeof(*t->account));
	return t->sharded != NULL ? sharded_attach(t, error) : allocate_arrays(t, error);
}

/* What a joiner needs; with an outer optimizer that is what tr_sync has declared, and the rest is each worker's own. */
static tr_status declare_state(struct trainer *t, struct tr_error *error)
{
	size_t bytes = t->layout.count * sizeof(float);
	const struct {
		const char *name;
		void *data;
		size_t bytes;
	} states[] = { { "parameters", t->arrays.params, bytes },
		{ "first moments", t->arrays.first, bytes },
		{ "second moments", t->arrays.second, bytes },
		{ "counters", t->counters, sizeof(*t->counters) },
		{ "samples", t->account, sizeof(*t->account) } };
	size_t count = t->outer.sync != NULL ? 0 : sizeof(states) / sizeof(states[0]);
	for (size_t i = 0; i < count; i++) {
		tr_status status = tr_state_add(t->group, states[i].name, states[i].data,
		    states[i].bytes, error);
		if (status != TR_OK)
			return tr_error_wrap(error, "declaring %s", states[i].name);
	}
	return TR_OK;
}

void trainer_resume_counters(struct trainer *t, const struct manifest *manifest)
{
	if (manifest->spec[0] == '\0')
		log_info("trainer", "starts from weights that were imported");
	else if (trainer_account_differs(t, manifest))
		log_warn("trainer",
		    "the checkpoint is of a job with another %s: samples are counted from step "
		    "%llu of this one",
		    manifest->seed != t->spec->optimizer->seed ? "train.seed"
		        : manifest->order[0] != '\0'           ? "text"
		                                               : "text or batch",
		    (unsigned long long)manifest->step);
	*t->counters = (struct trainer_counters){ .start = manifest->step,
		.step = manifest->step,
		.samples = manifest->samples,
		.tokens = manifest->tokens };
	trainer_account_resume(t, manifest);
}

static void clear_moments(struct trainer *t)
{
	memset(t->arrays.first, 0, t->layout.count * sizeof(float));
	memset(t->arrays.second, 0, t->layout.count * sizeof(float));
	if (t->arrays.outer != NULL)
		memset(t->arrays.outer, 0, t->layout.count * sizeof(float));
}

/* Of a checkpoint without moments they are zeros, whatever one that was left out had. */
static tr_status read_whole(struct trainer *t, const char *path, struct manifest *manifest,
    struct tr_error *error)
{
	clear_moments(t);
	return checkpoint_read(path, &t->layout, &t->arrays, manifest, t->folder.never_delete,
	    error);
}

/* Another worker's disk may have one: whoever has the newest gives its state to the others. */
static tr_status begin_with_nothing(struct trainer *t, const struct tr_error *why)
{
	clear_moments(t); /* of one that turned out to be damaged */
	model_init_params(&t->layout, t->spec->optimizer->seed, t->arrays.params);
	t->nothing_read = *why;
	return TR_OK;
}

/* *round: that the state is of. */
static tr_status begin_or_resume(struct trainer *t, uint64_t *round, struct tr_error *error)
{
	const char *resume = t->spec->checkpoint != NULL ? t->spec->checkpoint->resume : NULL;
	*round = 0;
	if (t->sharded != NULL)
		return sharded_begin(t, round, error);
	if (resume == NULL || resume[0] == '\0') {
		model_init_params(&t->layout, t->spec->optimizer->seed, t->arrays.params);
		return TR_OK;
	}
	struct manifest manifest;
	tr_status status = trainer_resume(t, resume, read_whole, &manifest, error);
	if (status != TR_OK && status != TR_ENOMEM)
		return begin_with_nothing(t, error);
	if (status != TR_OK)
		return status;
	t->outer.age = manifest.age;
	memcpy(t->outer.lr_base, manifest.lr_base, sizeof(t->outer.lr_base));
	t->outer.costs = manifest.costs;
	trainer_resume_counters(t, &manifest);
	*round = manifest.step;
	t->outer.round = manifest.round > 0 ? manifest.round : manifest.step;
	/* Another job's rounds may have been longer than those of what another founder has, or were steps. */
	if (trainer_is_another_job_s(t, &manifest) && t->outer.round < manifest.step)
		t->outer.round = manifest.step;
	if (t->outer.round == 0) /* weights that were imported: more than nothing */
		t->outer.round = 1;
	log_info("trainer", "resumes at step %llu from %s", (unsigned long long)manifest.step,
	    t->folder.never_delete);
	return TR_OK;
}

static tr_status prepare(struct trainer *t, struct tr_error *error)
{
	uint64_t round = 0;
	tr_status status = read_settings(t, error);
	if (status == TR_OK)
		status = load_data(t, error);
	if (status == TR_OK)
		status = build_model(t, error);
	if (status == TR_OK)
		status = allocate_state(t, error);
	if (status == TR_OK)
		status = begin_or_resume(t, &round, error);
	if (status == TR_OK && t->sharded == NULL && job_sync_is_rare(t->spec->sync))
		status = outer_create(t, error);
	if (status == TR_OK && t->sharded == NULL)
		status = alike_create(t, error);
	if (status == TR_OK)
		status = t->sharded != NULL ? sharded_declare(t, error) : declare_state(t, error);
	if (status == TR_OK)
		status = saver_create(&t->folder,
		    t->sharded != NULL ? &t->sharded->whole : &t->layout, &t->saver, error);
	if (status == TR_OK)
		status = t->outer.sync != NULL ? tr_sync_ready(t->outer.sync, t->outer.round, error)
		                               : tr_state_ready(t->group, round, error);
	return status;
}

/* Before a checkpoint is read: in its place there may be another job's. */
static void take_owner(struct trainer *t, uint64_t submitted_unix_ms)
{
	struct tr_assignment assignment = { 0 };
	if (tr_assignment_get(t->group, &assignment) != TR_OK)
		return;
	t->restarts = assignment.restarts;
	t->owner.id = assignment.job;
	t->owner.submitted_unix_ms = submitted_unix_ms;
	(void)snprintf(t->owner.name, sizeof(t->owner.name), "%s", t->job->name);
}

tr_status trainer_create(tr_group *group, const Traind__V1__JobSpec *spec, unsigned threads,
    uint64_t submitted_unix_ms, struct trainer **out, struct tr_error *error)
{
	struct trainer *t = calloc(1, sizeof(*t));
	if (t == NULL)
		return tr_error_set(error, TR_ENOMEM, "no memory for a trainer");
	t->group = group;
	t->job = spec;
	t->spec = spec->train;
	t->drift_steps = DRIFT_STEPS;
	dealing_of_job(spec->mesh, &t->dealing);
	t->mesh_spec = spec->mesh;
	t->recompute = spec->mesh != NULL && spec->mesh->recompute;
	t->strict = job_is_strict(spec->train);
	t->mesh_waits = job_mesh_waits(spec);
	t->balances = job_mesh_balances(spec);
	t->copies = job_mesh_copies(spec->mesh);
	t->zero_owners = spec->mesh != NULL ? spec->mesh->zero_owners : 0;
	t->sequence_parallel = spec->mesh != NULL && spec->mesh->sequence_parallel;
	if (spec->mesh != NULL && spec->mesh->workers < TR_GROUP_PEERS_MAX)
		t->peers_most = spec->mesh->workers;
	if (spec->plan != NULL)
		t->planned_step_s = spec->plan->step_s;
	t->threads = threads > 0 ? threads : 1;
	t->samples_log = -1;
	take_owner(t, submitted_unix_ms);
	tr_status status = prepare(t, error);
	if (status != TR_OK) {
		trainer_destroy(t);
		return status;
	}
	*out = t;
	return TR_OK;
}

void trainer_destroy(struct trainer *t)
{
	if (t == NULL)
		return;
	saver_destroy(t->saver);
	if (t->sharded != NULL) /* the group's memory */
		t->arrays = (struct optim_arrays){ 0 };
	outer_destroy(t);
	alike_destroy(t);
	sharded_destroy(t);
	model_destroy(t->model);
	pool_destroy(t->pool);
	layout_finish(&t->layout);
	text_finish(&t->text);
	bpe_destroy(t->bpe);
	if (t->samples_log >= 0)
		(void)close(t->samples_log);
	free(t->numbers);
	free(t->inputs);
	free(t->targets);
	free(t);
}
