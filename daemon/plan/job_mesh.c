#include "daemon/plan/job_mesh.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/limits.h"
#include "daemon/plan/job_mesh_sync.h"
#include "daemon/plan/job_options.h"
#include "daemon/plan/job_strict.h"
#include "daemon/plan/job_sync.h"
#include "daemon/plan/plan_basis.h"
#include "daemon/plan/replan.h"
#include "daemon/plan/split.h"
#include "daemon/plan/strategy.h"

#define STEP_S_MOST 1e6 /* of a plan: workers count it in nanoseconds */

static uint32_t at_least_one(uint32_t number)
{
	return number > 0 ? number : 1;
}

struct mesh job_mesh(const Traind__V1__Mesh *m)
{
	struct mesh mesh = { .size = { [MESH_DP] = 1, [MESH_PP] = 1, [MESH_TP] = 1 } };

	if (m == NULL)
		return mesh;
	mesh.size[MESH_TP] = at_least_one(m->tp);
	mesh.size[MESH_PP] = at_least_one(m->pp);
	mesh.size[MESH_DP] = at_least_one(m->workers / (mesh.size[MESH_TP] * mesh.size[MESH_PP]));
	return mesh;
}

uint32_t job_mesh_copies(const Traind__V1__Mesh *m)
{
	return m != NULL ? at_least_one(m->copies) : 1;
}

static bool has_ranks(const Traind__V1__Mesh *m)
{
	return m->tp > 1 || m->pp > 1 || m->n_shares > 0 || m->copies > 1;
}

bool job_mesh_is_sharded(const Traind__V1__JobSpec *spec)
{
	const Traind__V1__Mesh *m = spec->mesh;

	return m != NULL && (has_ranks(m) || m->zero_owners > 0 || job_mesh_balances(spec));
}

static bool drops(const Traind__V1__Sync *sync)
{
	return sync != NULL && sync->on_loss != NULL && strcmp(sync->on_loss, "drop") == 0;
}

/* What follows speeds has other bits each time, and needs ranks. */
static bool may_balance(const Traind__V1__TrainSpec *train)
{
	const Traind__V1__Sync *sync = train != NULL ? train->sync : NULL;

	return train != NULL && !job_is_strict(train) && !job_sync_is_rare(sync) && !drops(sync) &&
	    !(sync != NULL && sync->deterministic);
}

/* Of whole models it may become another plan, out of what it was planned with. */
static bool is_planned_anew(const Traind__V1__JobSpec *spec)
{
	uint32_t workers = spec->mesh->workers;

	return spec->plan != NULL && spec->plan->basis != NULL &&
	    (workers > 1 || spec->mesh->grow) && workers <= REPLAN_PEERS_MAX;
}

bool job_mesh_balances(const Traind__V1__JobSpec *spec)
{
	const Traind__V1__Mesh *m = spec->mesh;
	const char *balance = m != NULL && m->balance != NULL ? m->balance : "";

	if (strcmp(balance, "on") == 0 || strcmp(balance, "off") == 0)
		return strcmp(balance, "on") == 0;
	return m != NULL && m->auto_ && may_balance(spec->train) &&
	    (has_ranks(m) || is_planned_anew(spec));
}

bool job_mesh_waits(const Traind__V1__JobSpec *spec)
{
	const Traind__V1__Mesh *m = spec->mesh;

	return m != NULL && m->too_few != NULL && strcmp(m->too_few, "wait") == 0;
}

static tr_status check_split(const struct model_config *model, const struct mesh *mesh,
    struct tr_error *error)
{
	struct model_config config = *model;
	struct strategy strategy;

	config.vocab = strategy_padded_vocab(config.vocab, mesh->size[MESH_TP]);
	strategy_megatron(&config, mesh, &strategy);
	strategy.sequences = mesh->size[MESH_DP];
	strategy.sequence_length = config.context;
	tr_status status = strategy_check(&config, &strategy, error);
	return status == TR_OK ? TR_OK : tr_error_wrap(error, "mesh.tp");
}

enum schedule_kind job_mesh_schedule(const Traind__V1__Mesh *m, uint32_t chunks)
{
	if (chunks > 1)
		return SCHEDULE_INTERLEAVED;
	return m != NULL && m->schedule != NULL && strcmp(m->schedule, "gpipe") == 0
	    ? SCHEDULE_GPIPE
	    : SCHEDULE_1F1B;
}

/* Of the replica with the fewest. */
static uint64_t microbatches_of(const struct dealing *dealing, const struct job_batch *batch)
{
	uint64_t share = dealing_least(dealing, batch->sequences);

	return (share + batch->micro - 1) / batch->micro;
}

uint32_t job_mesh_chunks(const struct model_config *config, const struct dealing *dealing,
    uint32_t chunks, const struct job_batch *batch)
{
	uint32_t pp = dealing->mesh.size[MESH_PP];

	return pp > 1 && (uint64_t)pp * chunks <= config->layers &&
	        microbatches_of(dealing, batch) >= pp
	    ? chunks
	    : 1;
}

/* What is over goes to chunks without embedding and head: the first ones, of the first rank the last ones. */
static void share_chunks(uint32_t ranks, uint32_t chunks, const uint32_t *layers_of_rank,
    uint32_t *layers_of)
{
	for (uint32_t rank = 0; rank < ranks; rank++)
		for (uint32_t chunk = 0; chunk < chunks; chunk++) {
			uint32_t at = rank == 0 ? chunks - 1 - chunk : chunk,
			         layers = layers_of_rank[rank];
			layers_of[at * ranks + rank] = layers / chunks + (chunk < layers % chunks);
		}
}

tr_status job_mesh_stages(const struct model_config *config, uint32_t ranks, uint32_t chunks,
    const uint32_t *given, uint32_t *layers_of, struct tr_error *error)
{
	uint32_t layers_of_rank[TR_GROUP_PEERS_MAX];
	uint64_t width = config->width;
	uint64_t layer = width *
	    (model_qkv(config) + model_queries(config) + model_up(config) + config->hidden);
	struct split_input input = { .layers = config->layers,
		.stages = ranks,
		.layer_s = (double)layer,
		.head_s = (double)(width * config->vocab),
		.least = chunks };
	double worst;

	if (config->layers < ranks)
		return tr_error_set(error, TR_EINVAL,
		    "mesh.pp: found %u, allowed: at most model.layers, which is %u", ranks,
		    config->layers);
	if (config->layers / ranks < chunks)
		return tr_error_set(error, TR_EINVAL,
		    "mesh.chunks: found %u, allowed: at most %u, since model.layers is %u and "
		    "mesh.pp %u",
		    chunks, config->layers / ranks, config->layers, ranks);
	tr_status status = given == NULL ? split_layers(&input, layers_of_rank, &worst, error)
	                                 : TR_OK;
	if (status == TR_OK)
		share_chunks(ranks, chunks, given != NULL ? given : layers_of_rank, layers_of);
	return status;
}

/* Nodes of a plan, and the most workers on one of them, are the mesh's. */
static tr_status count_planned(Traind__V1__Mesh *m, const Traind__V1__JobPlan *plan,
    struct tr_error *error)
{
	m->nodes = m->workers_per_node = 0;
	bool takes_time = plan->step_s > 0 && plan->step_s <= STEP_S_MOST;
	if (plan->n_nodes == 0 || plan->n_nodes > TR_GROUP_PEERS_MAX || !takes_time)
		return tr_error_set(error, TR_EINVAL,
		    "mesh.auto: found a plan of %zu workers and a step of %g s, allowed: 1 to %d, "
		    "and a "
		    "step that takes time, up to %g s",
		    plan->n_nodes, plan->step_s, TR_GROUP_PEERS_MAX, STEP_S_MOST);
	tr_status status = plan->basis != NULL ? plan_basis_check(plan->basis, error) : TR_OK;
	if (status != TR_OK)
		return status;
	for (size_t i = 0; i < plan->n_nodes; i++) {
		uint32_t before = 0, all = 0;
		for (size_t k = 0; k < plan->n_nodes; k++) {
			before += k < i && plan->nodes[k] == plan->nodes[i];
			all += plan->nodes[k] == plan->nodes[i];
		}
		m->nodes += before == 0;
		m->workers_per_node = all > m->workers_per_node ? all : m->workers_per_node;
	}
	m->workers = (uint32_t)plan->n_nodes;
	return TR_OK;
}

/* Keys that auto chooses are left out. */
static tr_status check_unplanned(const Traind__V1__Mesh *m, struct tr_error *error)
{
	const struct {
		const char *key;
		size_t found, unset;
	} chosen[] = { { "nodes", m->nodes, 1 }, { "workers_per_node", m->workers_per_node, 1 },
		{ "tp", m->tp, 1 }, { "pp", m->pp, 1 }, { "shares", m->n_shares, 0 },
		{ "layers", m->n_layers, 0 } };
	for (size_t i = 0; i < sizeof(chosen) / sizeof(chosen[0]); i++)
		if (chosen[i].found > chosen[i].unset)
			return tr_error_set(error, TR_EINVAL,
			    "mesh.%s: found %zu, allowed: nothing, since mesh.auto chooses it",
			    chosen[i].key, chosen[i].found);
	return TR_OK;
}

tr_status job_mesh_count(Traind__V1__JobSpec *spec, struct tr_error *error)
{
	Traind__V1__Mesh *mesh = spec->mesh;
	uint64_t workers = (uint64_t)mesh->nodes * mesh->workers_per_node;
	tr_status status = TR_OK;

	if (spec->plan != NULL)
		status = count_planned(mesh, spec->plan, error);
	else if (mesh->auto_)
		status = check_unplanned(mesh, error);
	if (status != TR_OK)
		return status;
	if (workers > TR_GROUP_PEERS_MAX && spec->plan == NULL)
		return tr_error_set(error, TR_EINVAL,
		    "mesh.workers_per_node: found %u, which on %u nodes makes %llu "
		    "workers, allowed: at most %d workers",
		    mesh->workers_per_node, mesh->nodes, (unsigned long long)workers,
		    TR_GROUP_PEERS_MAX);
	bool open = mesh->auto_ && spec->plan == NULL; /* how many nodes there will be */
	if (mesh->min_nodes > mesh->nodes && !open)
		return tr_error_set(error, TR_EINVAL,
		    "mesh.min_nodes: found %u, allowed: at most mesh.nodes, which is %u",
		    mesh->min_nodes, mesh->nodes);
	if (spec->plan != NULL)
		return TR_OK;
	if (mesh->workers != 0 && mesh->workers != workers)
		return tr_error_set(error, TR_EINVAL,
		    "mesh.workers: found %u, allowed: nodes times workers_per_node, which is %llu",
		    mesh->workers, (unsigned long long)workers);
	mesh->workers = (uint32_t)workers;
	return TR_OK;
}

/* "mesh.tp is 2", or that mesh.pp, mesh.zero_owners or mesh.copies is, or what else makes a job one that runs as sharded. */
static const char *split_of(const Traind__V1__JobSpec *spec, char *text, size_t bytes)
{
	const Traind__V1__Mesh *m = spec->mesh;

	if (m->tp < 2 && m->pp < 2 && m->zero_owners == 0 && m->copies < 2) {
		(void)snprintf(text, bytes,
		    m->n_shares > 0               ? "mesh.shares is given"
		        : job_mesh_balances(spec) ? "mesh.balance is on"
		                                  : "train.strict is true");
		return text;
	}
	const struct {
		const char *key;
		uint32_t found, least;
	} keys[] = { { "tp", m->tp, 2 }, { "pp", m->pp, 2 }, { "zero_owners", m->zero_owners, 1 },
		{ "copies", m->copies, 2 } };
	size_t k = 0;
	while (keys[k].found < keys[k].least)
		k++;
	(void)snprintf(text, bytes, "mesh.%s is %u", keys[k].key, keys[k].found);
	return text;
}

/* Of how many replicas there will be with mesh.auto, its plan decides. */
static tr_status check_owners(const Traind__V1__JobSpec *spec, struct tr_error *error)
{
	const Traind__V1__Mesh *m = spec->mesh;
	uint32_t copies = job_mesh_copies(m),
	         replicas = copies > 1 ? copies : job_mesh(m).size[MESH_DP];

	if (m->zero_owners == 0 || (m->auto_ && spec->plan == NULL))
		return TR_OK;
	if (replicas == 1)
		return tr_error_set(error, TR_EINVAL,
		    "mesh.zero_owners: found %u, allowed: 0, since there is one replica: nobody to "
		    "share moments with",
		    m->zero_owners);
	uint32_t least = copies > 1
	    ? 1
	    : 2; /* a replica that loses a copy begins with fresh moments anyway */
	if (m->zero_owners < least || m->zero_owners > replicas)
		return tr_error_set(error, TR_EINVAL,
		    "mesh.zero_owners: found %u, allowed: 0, or %u to %u, the %s", m->zero_owners,
		    least, replicas,
		    copies > 1 ? "copies of a replica" : "replicas that there are");
	return TR_OK;
}

static tr_status check_workers(const Traind__V1__Mesh *m, struct tr_error *error)
{
	uint32_t tp = at_least_one(m->tp), pp = at_least_one(m->pp);

	if (m->workers % tp != 0)
		return tr_error_set(error, TR_EINVAL,
		    "mesh.tp: found %u, allowed: a divisor of the mesh's %u workers", tp,
		    m->workers);
	if (m->workers >= TR_GROUP_PEERS_MAX) /* one less than all: a scope */
		return tr_error_set(error, TR_EINVAL,
		    "mesh.workers: found %u, allowed: at most %d with mesh.tp, mesh.pp, "
		    "mesh.shares, mesh.copies or mesh.zero_owners",
		    m->workers, TR_GROUP_PEERS_MAX - 1);
	if (m->workers / tp % pp != 0)
		return tr_error_set(error, TR_EINVAL,
		    "mesh.pp: found %u, allowed: a divisor of the mesh's %u workers%s", pp,
		    m->workers / tp, tp > 1 ? " for each of mesh.tp" : "");
	return TR_OK;
}

tr_status job_mesh_allows(const struct model_config *config, const struct mesh *mesh,
    struct tr_error *error)
{
	uint32_t layers[TR_GROUP_PEERS_MAX], pp = mesh->size[MESH_PP];
	tr_status status = pp > 1 ? job_mesh_stages(config, pp, 1, NULL, layers, error) : TR_OK;

	return status == TR_OK ? check_split(config, mesh, error) : status;
}

/* Has each replica a microbatch for each stage, and each stage a layer for each chunk? */
static tr_status check_chunks(const Traind__V1__JobSpec *spec, const struct model_config *config,
    const struct dealing *dealing, struct tr_error *error)
{
	uint32_t *layers, chunks = at_least_one(spec->mesh->chunks),
	                  pp = dealing->mesh.size[MESH_PP];
	const Traind__V1__Optimizer *train = spec->train->optimizer;
	struct job_batch batch = { train->batch_tokens / config->context,
		at_least_one(train->micro_sequences) };

	if (chunks == 1)
		return TR_OK;
	batch = job_strict_batch(spec->train, &dealing->mesh, &batch);
	layers = calloc((size_t)pp * chunks, sizeof(*layers));
	if (layers == NULL)
		return tr_error_set(error, TR_ENOMEM,
		    "mesh.chunks: no memory for a table of stages");
	tr_status status = job_mesh_stages(config, pp, chunks, NULL, layers, error);
	free(layers);
	if (status == TR_OK && microbatches_of(dealing, &batch) < pp)
		return tr_error_set(error, TR_EINVAL,
		    "mesh.chunks: found %u, allowed: 1, since a replica has %u microbatches%s and "
		    "mesh.pp is "
		    "%u: interleaved stages need as many; set a smaller train.micro_sequences or a "
		    "larger "
		    "train.batch_tokens",
		    chunks, (unsigned)microbatches_of(dealing, &batch),
		    job_is_strict(spec->train) ? " for each part of the batch (train.strict)" : "",
		    pp);
	return status;
}

static tr_status check_shares(const Traind__V1__JobSpec *spec, const struct dealing *dealing,
    struct tr_error *error)
{
	const Traind__V1__Mesh *m = spec->mesh;
	uint32_t dp = dealing->mesh.size[MESH_DP];
	uint64_t batch = spec->train->optimizer->batch_tokens / spec->train->model->context;

	if (m->n_shares > 0 && m->n_shares != dp)
		return tr_error_set(error, TR_EINVAL,
		    "mesh.shares: found %zu of them, allowed: one of each of the mesh's %u "
		    "replicas",
		    m->n_shares, dp);
	if (m->n_shares > 0 && dealing_least(dealing, batch) == 0)
		return tr_error_set(error, TR_EINVAL,
		    "mesh.shares: found one that is less than a sequence of the %llu of a batch, "
		    "allowed: at least one of them for each replica",
		    (unsigned long long)batch);
	return TR_OK;
}

static tr_status check_layers(const Traind__V1__Mesh *m, const struct model_config *config,
    const struct mesh *mesh, struct tr_error *error)
{
	uint32_t pp = mesh->size[MESH_PP], chunks = at_least_one(m->chunks);
	uint64_t all = 0;

	if (m->n_layers == 0)
		return TR_OK;
	if (m->n_layers != pp)
		return tr_error_set(error, TR_EINVAL,
		    "mesh.layers: found %zu of them, allowed: one of each of mesh.pp = %u",
		    m->n_layers, pp);
	for (uint32_t rank = 0; rank < pp; rank++) {
		if (m->layers[rank] < chunks)
			return tr_error_set(error, TR_EINVAL,
			    "mesh.layers: found %u, allowed: at least %u, as mesh.chunks says",
			    m->layers[rank], chunks);
		all += m->layers[rank];
	}
	return all == config->layers ? TR_OK
	                             : tr_error_set(error, TR_EINVAL,
	                                   "mesh.layers: found %llu together, allowed: "
	                                   "model.layers, which is %u",
	                                   (unsigned long long)all, config->layers);
}

/* A replica that is alone computes the whole batch. */
static tr_status check_microbatches(const Traind__V1__JobSpec *spec, struct tr_error *error)
{
	const Traind__V1__Optimizer *train = spec->train->optimizer;
	uint64_t tokens = (uint64_t)train->micro_sequences * spec->train->model->context;
	uint64_t most = tokens * TR_SCHEDULE_MICROBATCHES_MAX;

	if (spec->mesh->pp < 2 || train->batch_tokens <= most)
		return TR_OK;
	return tr_error_set(error, TR_EINVAL,
	    "train.batch_tokens: found %llu, allowed: at most %llu, %u microbatches of %llu "
	    "tokens, "
	    "since mesh.pp is %u; a larger train.micro_sequences allows more",
	    (unsigned long long)train->batch_tokens, (unsigned long long)most,
	    TR_SCHEDULE_MICROBATCHES_MAX, (unsigned long long)tokens, spec->mesh->pp);
}

static tr_status check_model(const Traind__V1__JobSpec *spec, struct tr_error *error)
{
	struct dealing dealing;
	struct model_config config;
	tr_status status = job_model_config(spec->train->model, &config, error);

	dealing_of_job(spec->mesh, &dealing);
	if (status == TR_OK)
		status = job_mesh_allows(&config, &dealing.mesh, error);
	if (status == TR_OK)
		status = check_shares(spec, &dealing, error);
	if (status == TR_OK)
		status = check_layers(spec->mesh, &config, &dealing.mesh, error);
	if (status == TR_OK)
		status = check_microbatches(spec, error);
	return status == TR_OK ? check_chunks(spec, &config, &dealing, error) : status;
}

/* mesh.schedule and mesh.chunks beside mesh.pp. */
static tr_status check_schedule(const Traind__V1__Mesh *m, struct tr_error *error)
{
	const char *schedule = m->schedule != NULL && m->schedule[0] != '\0' ? m->schedule : "auto";
	uint32_t chunks = at_least_one(m->chunks);
	bool automatic = strcmp(schedule, "auto") == 0,
	     interleaved = strcmp(schedule, "interleaved") == 0;

	if (at_least_one(m->pp) == 1 && (chunks > 1 || !automatic))
		return chunks > 1
		    ? tr_error_set(error, TR_EINVAL,
		          "mesh.chunks: found %u, allowed: 1, since mesh.pp is 1", chunks)
		    : tr_error_set(error, TR_EINVAL,
		          "mesh.schedule: found %s, allowed: auto, since mesh.pp is 1", schedule);
	if (at_least_one(m->pp) == 1 && m->n_layers > 0 && !m->auto_)
		return tr_error_set(error, TR_EINVAL,
		    "mesh.layers: found %zu of them, allowed: none, since mesh.pp is 1",
		    m->n_layers);
	if (interleaved && chunks == 1)
		return tr_error_set(error, TR_EINVAL,
		    "mesh.chunks: found 1, allowed: 2 to %d, since mesh.schedule is interleaved",
		    TR_SCHEDULE_CHUNKS_MAX);
	if (!interleaved && !automatic && chunks > 1)
		return tr_error_set(error, TR_EINVAL,
		    "mesh.chunks: found %u, allowed: 1, since mesh.schedule is %s", chunks,
		    schedule);
	return TR_OK;
}

static tr_status check_rows(const Traind__V1__JobSpec *spec, struct tr_error *error)
{
	const Traind__V1__Mesh *m = spec->mesh;
	struct model_config config;

	bool open = m != NULL && m->auto_ && spec->plan == NULL; /* what tp there will be */

	if (m == NULL || !m->sequence_parallel || open)
		return TR_OK;
	if (m->tp < 2)
		return tr_error_set(error, TR_EINVAL,
		    "mesh.sequence_parallel: found true, allowed: false, since mesh.tp is 1: there "
		    "is nobody to share the rows with");
	tr_status status = job_model_config(spec->train->model, &config, error);
	if (status != TR_OK || config.context % m->tp == 0)
		return status;
	return tr_error_set(error, TR_EINVAL,
	    "mesh.sequence_parallel: found true, allowed: false, since model.context, which is %u, "
	    "does not divide into mesh.tp = %u equal parts",
	    config.context, m->tp);
}

/* Of a job in which each worker has the whole model; what a plan makes of mesh.auto is not known yet. */
static tr_status check_whole(const Traind__V1__JobSpec *spec, struct tr_error *error)
{
	const Traind__V1__Checkpoint *c = spec->train->checkpoint;
	bool open = spec->mesh != NULL && spec->mesh->auto_;
	if (c != NULL && c->sharded && !open)
		return tr_error_set(error, TR_EINVAL,
		    "checkpoint.sharded: found true, allowed: false, since each worker has the "
		    "whole model (mesh.tp and mesh.pp are 1)");
	return check_rows(spec, error);
}

/* Who comes has work only in another plan than the one that the job came with. */
static tr_status check_grow(const Traind__V1__JobSpec *spec, struct tr_error *error)
{
	const Traind__V1__Mesh *m = spec->mesh;
	const char *why = NULL;

	if (!m->grow)
		return TR_OK;
	if (!m->auto_)
		why = "it is for jobs of mesh.auto; others have mesh.nodes at most";
	else if (m->balance != NULL && strcmp(m->balance, "off") == 0)
		why = "with mesh.balance: off the job is not planned anew";
	else if (!may_balance(spec->train))
		why = "jobs of train.strict, sync.deterministic, sync.on_loss: drop and of modes "
		      "that talk rarely are not planned anew";
	else if (spec->plan != NULL && !is_planned_anew(spec))
		why = "its plan says no costs to be planned anew with, or has more than 64 workers";
	return why == NULL ? TR_OK
	                   : tr_error_set(error, TR_EINVAL,
	                         "mesh.grow: found true, allowed: false, since %s", why);
}

tr_status job_mesh_check(const Traind__V1__JobSpec *spec, struct tr_error *error)
{
	const Traind__V1__Mesh *m = spec->mesh;
	const Traind__V1__Sync *sync = spec->train->sync;
	char split[32];
	tr_status status = m != NULL ? check_schedule(m, error) : TR_OK;

	if (status == TR_OK && m != NULL)
		status = check_grow(spec, error);

	if (status != TR_OK || m == NULL ||
	    !(job_mesh_is_sharded(spec) || job_is_strict(spec->train)))
		return status == TR_OK ? check_whole(spec, error) : status;
	const char *why = split_of(spec, split, sizeof(split));
	status = check_workers(m, error);
	if (status == TR_OK)
		status = check_owners(spec, error);
	if (status != TR_OK)
		return status;
	status = job_sync_is_rare(sync) ? job_mesh_sync_check(spec, why, error)
	                                : job_mesh_sync_check_none(spec, error);
	if (status != TR_OK)
		return status;
	if (drops(sync))
		return tr_error_set(error, TR_EINVAL,
		    "sync.on_loss: found drop, allowed: replay, since %s: without a member its "
		    "whole replica's gradient is missing",
		    why);
	status = check_model(spec, error);
	if (status == TR_OK && m->threads == 0 && m->tp > 1)
		return tr_error_set(error, TR_EINVAL,
		    "mesh.threads: found 0, allowed: at least 1, since %s: workers that share a "
		    "layer compute with equally many threads",
		    why);
	if (status == TR_OK)
		status = job_strict_check(spec, error);
	return status == TR_OK ? check_rows(spec, error) : status;
}
