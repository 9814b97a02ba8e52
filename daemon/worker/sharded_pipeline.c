/* The pipeline of a replica (mesh.pp): stages by rank, microbatches of the replica's share. */
#include <stdlib.h>

#include "daemon/plan/job_mesh.h"
#include "daemon/worker/sharded_channel.h"
#include "daemon/worker/trainer_inside.h"

struct sharded_pipeline {
	struct pipeline *pipeline;
	uint32_t stage;
	struct sharded_channel channel;
	int32_t *inputs, *targets; /* of all microbatches of a run */
	struct model_batch *batches;
};

static tr_status no_memory(struct tr_error *error)
{
	return tr_error_set(error, TR_ENOMEM, "mesh.pp: no memory for a pipeline's tables");
}

static struct schedule_shape shape_of(const struct trainer *t, size_t microbatches)
{
	const struct mesh_shards *shards = &t->sharded->shards;
	return (struct schedule_shape){ job_mesh_schedule(t->mesh_spec, shards->chunks),
		shards->mesh.size[MESH_PP], (uint32_t)microbatches, shards->chunks };
}

/* Room for so many microbatches. */
static tr_status add_room(struct trainer *t, uint32_t stage, uint64_t microbatches,
    struct model_room *room, struct tr_error *error)
{
	struct schedule_shape shape = shape_of(t, (size_t)microbatches);
	struct schedule schedule;
	tr_status status = schedule_create(&shape, &schedule, error);
	if (status != TR_OK)
		return status;
	pipeline_room(&t->sharded->shards.stages[stage], &schedule, stage, room);
	schedule_finish(&schedule);
	return TR_OK;
}

static uint64_t microbatches_of(const struct trainer *t, uint64_t share)
{
	return (share + t->micro - 1) / t->micro;
}

/* Any share, of those that there may be: interleaved stages have the most in flight with one group of microbatches, which are fewer than twice the stages. */
static tr_status find_uneven_room(struct trainer *t, uint32_t stage, struct model_room *room,
    struct tr_error *error)
{
	const struct mesh_shards *shards = &t->sharded->shards;
	uint64_t pp = shards->mesh.size[MESH_PP], most = microbatches_of(t, t->batch);
	tr_status status = add_room(t, stage, most, room, error);
	for (uint64_t m = pp; shards->chunks > 1 && m < 2 * pp && m < most && status == TR_OK; m++)
		status = add_room(t, stage, m, room, error);
	return status;
}

/* Whatever the number of replicas: of interleaved stages fewer microbatches may have more in flight. */
static tr_status find_room(struct trainer *t, uint32_t stage, struct model_room *room,
    struct tr_error *error)
{
	uint32_t dp = t->sharded->shards.mesh.size[MESH_DP];
	tr_status status = TR_OK;
	if (t->strict)
		return add_room(t, stage,
		    microbatches_of(t, t->batch / t->sharded->strict->batch_parts), room, error);
	if (t->balances || !dealing_is_even(&t->sharded->dealing))
		return find_uneven_room(t, stage, room, error);
	for (uint32_t replicas = 1; replicas <= dp && replicas <= t->batch && status == TR_OK;
	     replicas++) {
		uint64_t share = t->batch / replicas;
		status = add_room(t, stage, microbatches_of(t, share), room, error);
		if (status == TR_OK && t->batch % replicas != 0)
			status = add_room(t, stage, microbatches_of(t, share + 1), room, error);
	}
	return status;
}

static void drop_pipeline(struct trainer *t)
{
	struct sharded_pipeline *p = t->sharded->pipeline;
	pipeline_destroy(p->pipeline);
	p->pipeline = NULL;
	t->model = NULL;
}

static tr_status build(struct trainer *t, uint32_t stage, struct tr_error *error)
{
	struct sharded *s = t->sharded;
	struct sharded_pipeline *p = s->pipeline;
	struct model_room room = { .recompute = t->recompute,
		.row_parts = s->row_parts,
		.members = sharded_members(t) };
	tr_status status = find_room(t, stage, &room, error);
	if (status != TR_OK)
		return status;
	sharded_channel_forget(&p->channel);
	struct pipeline_options options = { &s->shards.stages[stage], stage, t->micro, t->pool,
		&room, sharded_channel_calls(&p->channel) };
	status = pipeline_create(&options, &p->pipeline, error);
	if (status != TR_OK)
		return status;
	p->stage = stage;
	t->model = pipeline_model(p->pipeline);
	if (s->shards.mesh.size[MESH_TP] > 1)
		model_use_tensor(t->model, &s->tensor);
	return trainer_choose_arithmetic(t, error);
}

/* Without the table that another stage has a copy of: that is reduced with the copies. */
static void plan_buckets(struct trainer *t)
{
	size_t offset, numbers;
	struct buckets *b = &t->buckets;
	buckets_plan(&t->layout, BUCKETS_BYTES, b);
	if (!layout_copied_table(&t->layout, &offset, &numbers))
		return;
	if (t->layout.depth.head) {
		b->end = offset;
		return;
	}
	b->first[b->count - 1] = numbers;
	if (buckets_end(b, b->count - 1) <= numbers)
		b->count--;
}

tr_status sharded_take_stage(struct trainer *t, uint32_t stage, struct tr_error *error)
{
	struct sharded *s = t->sharded;
	struct sharded_pipeline *p = s->pipeline;
	tr_status status = TR_OK;
	if (p->pipeline == NULL || p->stage != stage) {
		drop_pipeline(t);
		t->layout = s->shards.stages[stage];
		plan_buckets(t);
		status = build(t, stage, error);
	}
	if (status != TR_OK)
		return status;
	/* A new round. */
	pipeline_forget(p->pipeline);
	sharded_channel_begin_round(&p->channel);
	return TR_OK;
}

tr_status sharded_pipeline_create(struct trainer *t, struct tr_error *error)
{
	struct sharded *s = t->sharded;
	struct sharded_pipeline *p = calloc(1, sizeof(*p));
	if (p == NULL)
		return no_memory(error);
	s->pipeline = p;
	size_t most = (size_t)(t->batch > t->samples.validation ? t->batch : t->samples.validation);
	size_t tokens = most * s->whole.config.context;
	p->inputs = calloc(tokens, sizeof(*p->inputs));
	p->targets = calloc(tokens, sizeof(*p->targets));
	p->batches = calloc(most / t->micro + 1, sizeof(*p->batches));
	if (p->inputs == NULL || p->targets == NULL || p->batches == NULL)
		return no_memory(error);
	return sharded_channel_init(t, &p->channel, error);
}

void sharded_pipeline_destroy(struct trainer *t)
{
	struct sharded_pipeline *p = t->sharded->pipeline;
	if (p == NULL)
		return;
	drop_pipeline(t);
	sharded_channel_finish(&p->channel);
	free(p->inputs);
	free(p->targets);
	free(p->batches);
	free(p);
	t->sharded->pipeline = NULL;
}

const struct tr_error *sharded_pipeline_failed(const struct trainer *t, tr_status *status)
{
	const struct sharded_channel *c = &t->sharded->pipeline->channel;
	*status = c->status;
	return &c->error;
}

/* The sequences [count] of p->inputs and p->targets in microbatches. */
static bool run(struct trainer *t, size_t count, const struct model_hooks *hooks, bool train,
    double *loss)
{
	struct sharded_pipeline *p = t->sharded->pipeline;
	struct sharded_channel *c = &p->channel;
	const struct schedule *lists;
	size_t context = t->layout.config.context, m = 0;
	*loss = 0;
	if (count == 0)
		return true;
	for (size_t at = 0; at < count; at += t->micro)
		p->batches[m++] = (struct model_batch){ p->inputs + at * context,
			p->targets + at * context, count - at < t->micro ? count - at : t->micro,
			context, train ? t->numbers + at : NULL };
	struct schedule_shape shape = shape_of(t, m);
	if (sharded_channel_begin_run(c, &shape, train, &lists) != TR_OK)
		return false;
	bool good = (train ? pipeline_gradient : pipeline_loss)(p->pipeline, lists, p->batches,
	    hooks, loss);
	messages_end_run(&c->messages);
	return good;
}

bool sharded_pipeline_gradient(struct trainer *t, size_t count, const struct model_hooks *hooks)
{
	struct sharded_pipeline *p = t->sharded->pipeline;
	size_t context = t->layout.config.context;
	double loss;
	for (size_t i = 0; i < count; i++)
		samples_get(&t->samples, t->numbers[i], p->inputs + i * context,
		    p->targets + i * context);
	if (!run(t, count, hooks, true, &loss))
		return false;
	t->sums->loss += loss;
	t->sums->loss_tokens = (double)(count * context);
	return true;
}

bool sharded_pipeline_validate(struct trainer *t, uint32_t replica, uint32_t replicas,
    const struct model_hooks *hooks)
{
	struct sharded_pipeline *p = t->sharded->pipeline;
	size_t context = t->layout.config.context, count = 0;
	for (uint64_t next = replica; next < t->samples.validation; next += replicas, count++)
		samples_get_validation(&t->samples, next, p->inputs + count * context,
		    p->targets + count * context);
	if (!run(t, count, hooks, false, &t->sums->validation))
		return false;
	t->sums->validation_tokens = (double)(count * context);
	return true;
}

/* ---- the tied table ---- */

bool sharded_has_copy(const struct trainer *t, size_t *offset, size_t *numbers)
{
	return (t->sharded->rank != RANKS_NONE || sharded_is_newcomer(t)) &&
	    layout_copied_table(&t->layout, offset, numbers);
}

unsigned sharded_ends(const struct trainer *t, struct sharded_scope *ends)
{
	const struct sharded *s = t->sharded;
	const struct mesh *mesh = &s->shards.mesh;
	struct mesh_at at = mesh_at(mesh, s->rank);
	at.at[MESH_PP] = 0;
	uint32_t first = ranks_at(&s->next, mesh_rank(mesh, at));
	at.at[MESH_PP] = mesh->size[MESH_PP] - 1;
	uint32_t last = ranks_at(&s->next, mesh_rank(mesh, at));
	ends->count = 2;
	ends->members[0] = first < last ? first : last;
	ends->members[1] = first < last ? last : first;
	return first < last ? 0 : 1;
}

/* Newcomers that have some of their table. */
static void add_newcomers(const struct sharded *s, struct sharded_scope *scope)
{
	for (uint64_t i = 0; i < s->newcomers.count; i++) {
		const struct newcomer *newcomer = &s->newcomers.of[i];
		uint32_t number = (uint32_t)newcomer->shard;
		struct shard shard;
		size_t offset, numbers;
		const struct layout *layout = mesh_shards_layout(&s->shards, number, &shard);
		if (shard.rank == s->shard.rank && layout_copied_table(layout, &offset, &numbers) &&
		    newcomer_sums(newcomer, number, offset))
			sharded_add_newcomer(s, newcomer, scope);
	}
}

/* Those with the first stage, or the last, of all replicas. */
static void set_scope(const struct trainer *t, struct sharded_scope *scope)
{
	const struct sharded *s = t->sharded;
	uint32_t last = s->shards.mesh.size[MESH_PP] - 1;
	scope->count = 0;
	for (uint32_t i = 0; i < s->next.count; i++) {
		if (s->next.peers[i].rank == RANKS_NONE)
			continue;
		struct mesh_at at = mesh_at(&s->shards.mesh, s->next.peers[i].rank);
		if (at.at[MESH_TP] == s->shard.rank &&
		    (at.at[MESH_PP] == 0 || at.at[MESH_PP] == last))
			scope->members[scope->count++] = i;
	}
	add_newcomers(s, scope);
}

static bool is_in(const struct sharded_scope *scope, uint32_t member)
{
	for (uint32_t i = 0; i < scope->count; i++)
		if (scope->members[i] == member)
			return true;
	return false;
}

bool sharded_sums_table(const struct trainer *t)
{
	struct sharded_scope scope;
	size_t offset, numbers;
	if (!sharded_has_copy(t, &offset, &numbers))
		return false;
	set_scope(t, &scope);
	return is_in(&scope, t->sharded->self);
}

tr_status sharded_submit_table(struct trainer *t, struct tr_error *error)
{
	struct sharded_scope scope;
	size_t offset, numbers;
	struct tr_op op = TR_OP_INIT;
	if (!sharded_has_copy(t, &offset, &numbers))
		return TR_OK;
	set_scope(t, &scope);
	op.tag = TAG_TABLE;
	op.output = t->arrays.grads + offset;
	op.count = numbers;
	op.reduce = TR_SUM;
	op.scope = (struct tr_scope){ scope.members, scope.count };
	return is_in(&scope, t->sharded->self) ? tr_submit(t->group, &op, error) : TR_OK;
}
