/* Layers of stages that follow the speeds of their workers (daemon/plan/restage.h): in each step each worker says how long it computed without waiting for others, and all decide alike with the step's
 * commit. The round after it makes shards with other layers out of those that workers hold, as a change of mesh does (sharded_remesh.c), if that pays. */
#include <string.h>

#include "daemon/worker/available.h"
#include "daemon/worker/trainer_inside.h"

static bool restages(const struct trainer *t)
{
	return t->balances && t->sharded->shards.mesh.size[MESH_PP] > 1;
}

static uint64_t layer_numbers(const struct model_config *config)
{
	return (uint64_t)config->width *
	    (model_qkv(config) + model_queries(config) + model_up(config) + config->hidden);
}

/* More layers than it has. Each takes parameters, gradient and moments, while they move parameters and moments once more, and activations of the microbatches in flight (docs/sharding.md: 2 + 10 times
 * tokens x width). Of what is free half is for others; of the rest each worker of this host may become one of a stage with more layers. */
static uint32_t room_of(const struct trainer *t)
{
	const struct sharded *s = t->sharded;
	const struct model_config *config = &s->whole.config;
	double tokens = (double)t->micro * config->context;
	double numbers = (7.0 * (double)layer_numbers(config) +
	                     12.0 * tokens * config->width * s->shards.mesh.size[MESH_PP]) /
	    s->shards.mesh.size[MESH_TP];
	uint32_t workers = t->mesh_spec != NULL ? t->mesh_spec->workers_per_node : 1;
	return restage_room(available_bytes(), workers, sizeof(float) * numbers);
}

/* Of room how much it lacks of the most: so the least room counts, and who has no such stage says 0. */
tr_status sharded_submit_stages(struct trainer *t, const struct tr_round *round,
    struct tr_error *error)
{
	struct sharded *s = t->sharded;
	int64_t *said = s->sums->stages;
	if (!restages(t))
		return TR_OK;
	memset(said, 0, sizeof(s->sums->stages));
	if (s->rank != RANKS_NONE) {
		uint32_t stage = mesh_at(&s->shards.mesh, s->rank).at[MESH_PP];
		double own_s = s->work_s - s->exchange.waited_s;
		said[2 * (size_t)stage] = own_s > 1e-9 ? (int64_t)(1e9 * own_s) : 1;
		if (restage_looks(&s->state->restage))
			said[2 * (size_t)stage + 1] = RESTAGE_ROOM_MOST - room_of(t);
	}
	return tr_allreduce(t->group, TAG_STAGES, said, 2 * s->shards.mesh.size[MESH_PP], TR_I64,
	    TR_MAX, trainer_contributes(round) ? TR_CONTRIBUTE : 0, error);
}

/* Microbatches of the replica that has the most. */
static uint64_t most_microbatches(const struct trainer *t)
{
	uint64_t most = 1;
	for (uint32_t i = 0; i < ranks_replicas(&t->sharded->next); i++) {
		uint64_t first, last;
		sharded_share(t, i, &first, &last);
		uint64_t count = (last - first + t->micro - 1) / t->micro;
		most = count > most ? count : most;
	}
	return most;
}

static void note_step(struct trainer *t)
{
	struct sharded *s = t->sharded;
	const struct model_config *config = &s->whole.config;
	uint32_t layers[TR_GROUP_PEERS_MAX], most[TR_GROUP_PEERS_MAX];
	uint64_t takes[TR_GROUP_PEERS_MAX];
	struct restage_rules rules = { .stages = s->shards.mesh.size[MESH_PP],
		.layers = layers,
		.most = most,
		.least = s->shards.chunks,
		.head = RESTAGE_LAYER * (uint64_t)config->width * config->vocab /
		    layer_numbers(config),
		.microbatches = most_microbatches(t) };
	for (uint32_t i = 0; i < rules.stages; i++) {
		layers[i] = s->shards.stages[i].config.layers;
		most[i] = layers[i] +
		    (uint32_t)(RESTAGE_ROOM_MOST - s->sums->stages[2 * (size_t)i + 1]);
		takes[i] = (uint64_t)s->sums->stages[2 * (size_t)i];
	}
	s->state->wishes = restage_note(&s->state->restage, &rules, takes, &s->state->wish);
	if (s->state->wishes == 0)
		memset(&s->state->wish, 0, sizeof(s->state->wish));
}

void sharded_restage(struct trainer *t)
{
	struct sharded *s = t->sharded;
	bool wished = s->state->wishes > 0;
	if (!restages(t))
		return;
	s->state->wishes = 0;
	if (wished)
		restage_tried(&s->state->restage);
	if (wished || !sharded_goes_on(t))
		restage_restart(&s->state->restage);
	else
		note_step(t);
}

static struct dealing dealing_wished(const struct sharded *s)
{
	struct dealing dealing = s->dealing;
	memcpy(dealing.layers, s->state->wish.layers,
	    s->shards.mesh.size[MESH_PP] * sizeof(*dealing.layers));
	return dealing;
}

/* What is saved of the step's computing, of the step as it was measured. */
static bool pays(struct trainer *t)
{
	const struct restage_wish *wish = &t->sharded->state->wish;
	uint64_t step_ns = pace_step_ns(&t->sharded->state->pace),
	         saved_ns = wish->now_ns - wish->next_ns;
	return sharded_pays(t, saved_ns < step_ns ? step_ns - saved_ns : 0, 0);
}

tr_status sharded_derive_restage(struct trainer *t, struct tr_error *error)
{
	struct sharded *s = t->sharded;
	struct ranks next;
	s->restages = false;
	if (s->kind != SHARDED_STEP || s->state->wishes == 0 || s->stays ||
	    !ranks_same(&s->state->ranks, &s->next) || s->transfer_count > 0)
		return TR_OK;
	struct dealing dealing = dealing_wished(s);
	struct remesh_shape shape = remesh_shape_of(&s->next);
	sharded_rank_anew(t, &s->next, &shape, &next);
	for (uint32_t i = 0; i < next.count; i++)
		next.peers[i].rank = s->next.peers[i].rank;
	tr_status status = sharded_plan_change(t, &dealing, &next, error);
	if (status != TR_OK)
		return status;
	if (s->moves.lost == RESHARD_NONE && pays(t))
		status = sharded_change(t, &next, error);
	else
		sharded_drop_coming(t);
	s->restages = s->kind != SHARDED_BACK;
	return status;
}
