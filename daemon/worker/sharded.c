#include "daemon/worker/sharded.h"

#include <stdlib.h>
#include <string.h>

#include "common/log.h"
#include "daemon/worker/trainer_inside.h"

static tr_status no_memory(struct tr_error *error)
{
	return tr_error_set(error, TR_ENOMEM, "mesh.tp: no memory for a shard's tables");
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
	if (s->staged == NULL || s->back == NULL)
		return no_memory(error);
	return shard_layout(&s->whole, &s->shard, &t->layout, error);
}

void sharded_destroy(struct trainer *t)
{
	struct sharded *s = t->sharded;
	if (s == NULL)
		return;
	layout_finish(&s->whole);
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
	if (s->state == NULL || s->sums == NULL)
		return no_memory(error);
	ranks_init(&s->mesh, &s->state->ranks);
	model_use_tensor(t->model, &s->tensor);
	return TR_OK;
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
	*round = manifest->round > 0 ? manifest->round : manifest->step;
	t->sharded->state->step_round = *round;
	return TR_OK;
}

void sharded_take_rank(struct trainer *t, uint32_t rank)
{
	struct sharded *s = t->sharded;
	s->shard.rank = s->tensor.rank = mesh_at(&s->mesh, rank).at[MESH_TP];
	model_bind(t->model, t->arrays.params, t->arrays.grads);
}
