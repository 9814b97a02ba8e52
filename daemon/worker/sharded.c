#include "daemon/worker/sharded.h"

#include <stdlib.h>
#include <string.h>

#include "common/log.h"
#include "daemon/plan/job_mesh.h"
#include "daemon/worker/trainer_inside.h"

static tr_status no_memory(struct tr_error *error)
{
	return tr_error_set(error, TR_ENOMEM, "mesh: no memory for a shard's tables");
}

/* t->layout is the largest one, until there is a rank: there is room for any. */
static tr_status plan_layouts(struct trainer *t, struct tr_error *error)
{
	struct sharded *s = t->sharded;
	uint32_t stages = s->mesh.size[MESH_PP], layers[TR_GROUP_PEERS_MAX];
	tr_status status = job_mesh_stages(&s->whole.config, stages, layers, error);
	for (uint32_t stage = 0; stage < stages && status == TR_OK; stage++) {
		struct layout *layout = &s->layouts[stage];
		if (stages > 1)
			layout_depth_of(layers, stages, 1, stage, &s->shard.depth);
		status = shard_layout(&s->whole, &s->shard, layout, error);
		if (status == TR_OK && layout->count > s->most) {
			s->most = layout->count;
			t->layout = *layout;
		}
	}
	return status;
}

tr_status sharded_create(struct trainer *t, struct tr_error *error)
{
	struct sharded *s = calloc(1, sizeof(*s));
	if (s == NULL)
		return no_memory(error);
	t->sharded = s;
	s->mesh = t->mesh;
	s->whole = t->layout;
	memset(&t->layout, 0, sizeof(t->layout));
	s->loaded = RANKS_NONE;
	s->shard = (struct shard){ .rank = 0, .size = s->mesh.size[MESH_TP] };
	s->staged = calloc(ranks_shards(&s->mesh), sizeof(*s->staged));
	s->back = calloc(1, sizeof(*s->back));
	s->layouts = calloc(s->mesh.size[MESH_PP], sizeof(*s->layouts));
	if (s->staged == NULL || s->back == NULL || s->layouts == NULL)
		return no_memory(error);
	tr_status status = plan_layouts(t, error);
	if (status == TR_OK && s->mesh.size[MESH_PP] > 1)
		status = sharded_pipeline_create(t, error);
	return status;
}

void sharded_destroy(struct trainer *t)
{
	struct sharded *s = t->sharded;
	if (s == NULL)
		return;
	if (s->pipeline != NULL)
		sharded_pipeline_destroy(t);
	layout_finish(&s->whole);
	for (uint32_t stage = 0; s->layouts != NULL && stage < s->mesh.size[MESH_PP]; stage++)
		layout_finish(&s->layouts[stage]);
	memset(&t->layout, 0, sizeof(t->layout)); /* was one of these */
	free(s->layouts);
	free(s->staged);
	free(s->back);
	free(s);
}

tr_status sharded_attach(struct trainer *t, struct tr_error *error)
{
	struct sharded *s = t->sharded;
	size_t numbers = (model_exchange_numbers(&t->layout, t->micro) + 15) / 16 * 16;
	float *exchange = tr_alloc(t->group, 2 * numbers * sizeof(float));
	if (exchange == NULL)
		return no_memory(error);
	s->held = t->arrays;
	s->state = tr_alloc(t->group, sizeof(*s->state));
	s->sums = tr_alloc(t->group, sizeof(*s->sums));
	s->exchange.group = t->group;
	s->tensor = (struct model_tensor){ .size = s->mesh.size[MESH_TP],
		.vocab = s->whole.config.vocab,
		.sum = sharded_sum,
		.maximum = sharded_maximum,
		.exchange = exchange,
		.exchange_too = exchange + numbers,
		.arg = &s->exchange };
	s->told = tr_alloc(t->group, sizeof(*s->told));
	if (s->state == NULL || s->sums == NULL || s->told == NULL)
		return no_memory(error);
	ranks_init(&s->mesh, &s->state->ranks);
	if (t->model != NULL)
		model_use_tensor(t->model, &s->tensor);
	return sharded_make_shared(t, error);
}

tr_status sharded_declare(struct trainer *t, struct tr_error *error)
{
	tr_status status = tr_state_add(t->group, "counters", t->counters, sizeof(*t->counters),
	    error);
	if (status == TR_OK)
		status = tr_state_add(t->group, "samples", t->account, sizeof(*t->account), error);
	if (status == TR_OK)
		status = tr_state_add(t->group, "ranks", t->sharded->state,
		    sizeof(*t->sharded->state), error);
	return status == TR_OK ? TR_OK : tr_error_wrap(error, "declaring what all workers know");
}

tr_status sharded_begin(struct trainer *t, uint64_t *round, struct tr_error *error)
{
	const char *resume = t->spec->checkpoint != NULL ? t->spec->checkpoint->resume : NULL;
	struct manifest *manifest = t->sharded->back;
	*round = 0;
	if (resume == NULL || resume[0] == '\0')
		return TR_OK;
	tr_status status = checkpoint_look(resume, &t->sharded->whole, manifest,
	    t->folder.never_delete, error);
	if (status != TR_OK)
		return tr_error_wrap(error, "checkpoint.resume");
	trainer_resume_counters(t, manifest);
	t->sharded->resumed = manifest->step;
	*round = manifest->round > 0 ? manifest->round : manifest->step;
	t->sharded->state->step_round = *round;
	return TR_OK;
}

const struct layout *sharded_layout(const struct sharded *s, uint32_t shard, struct shard *what)
{
	const struct layout *layout = &s->layouts[shard / s->mesh.size[MESH_TP]];
	*what = (struct shard){ shard % s->mesh.size[MESH_TP], s->mesh.size[MESH_TP],
		layout->depth };
	return layout;
}

tr_status sharded_take_rank(struct trainer *t, uint32_t rank, struct tr_error *error)
{
	struct sharded *s = t->sharded;
	struct mesh_at at = mesh_at(&s->mesh, rank);
	tr_status status = TR_OK;
	s->shard.rank = s->tensor.rank = at.at[MESH_TP];
	if (s->pipeline != NULL)
		status = sharded_take_stage(t, at.at[MESH_PP], error);
	if (status == TR_OK)
		model_bind(t->model, t->arrays.params, t->arrays.grads);
	return status;
}
