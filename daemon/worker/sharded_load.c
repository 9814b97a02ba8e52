/* Shards from where training begins: initial numbers, a checkpoint, or an earlier one that it goes back to. */
#include <string.h>

#include "daemon/worker/trainer_inside.h"

static void begin_fresh(struct trainer *t, const struct progress *progress)
{
	struct sharded *s = t->sharded;
	model_init_shard(&s->whole, &t->layout, &s->shard, t->spec->optimizer->seed, progress,
	    t->arrays.params);
}

/* Where training begins, and of which checkpoint that is; path "": of none, numbers are the initial ones. */
static uint64_t origin_of(const struct trainer *t, char path[CHECKPOINT_PATH_MAX])
{
	uint64_t own = t->sharded->state->origin, step = own > 0 ? own : t->counters->start;
	sharded_checkpoint_path(t, step, path);
	return step;
}

static tr_status load(struct trainer *t, struct tr_error *error)
{
	struct sharded *s = t->sharded;
	uint32_t shard = ranks_shard(&s->shards.mesh, s->rank);
	struct progress progress = trainer_progress(t);
	char path[CHECKPOINT_PATH_MAX], found[CHECKPOINT_PATH_MAX];
	if (s->loaded == shard && s->loaded_from == s->files.which)
		return TR_OK;
	uint64_t step = origin_of(t, path);
	s->loaded = RANKS_NONE;
	sharded_clear_moments(t);    /* A checkpoint of imported weights has none. */
	if (t->arrays.outer != NULL) /* nor has one of another sync.mode an outer momentum */
		memset(t->arrays.outer, 0, t->layout.count * sizeof(float));
	if (path[0] == '\0') {
		begin_fresh(t, &progress);
	} else {
		s->untidy = true;
		tr_status status = checkpoint_read_shard(path, &s->whole, &t->layout, &s->shard,
		    &t->arrays, &progress, s->back, found, error);
		if (status == TR_OK)
			status = sharded_check_checkpoint(t, step, path, error);
		if (status != TR_OK)
			return status;
	}
	s->loaded = shard;
	s->loaded_from = s->files.which;
	if (s->apart != NULL)
		sharded_apart_loaded(t, path[0] != '\0' ? s->back : NULL);
	return TR_OK;
}

tr_status sharded_load(struct trainer *t, const struct tr_round *round, struct tr_error *error)
{
	struct sharded *s = t->sharded;
	struct tr_error own;
	char path[CHECKPOINT_PATH_MAX];
	uint64_t step = origin_of(t, path);
	tr_status status = sharded_fetch(t, round, step, path, error);
	if (status == TR_OK && path[0] != '\0' && s->files.which == 0) /* nobody has it */
		status = trainer_check_start(t, round->round, round->receive_state, error);
	if (status != TR_OK)
		return status;
	own = s->files.cannot_give;
	status = own.status == TR_OK && s->rank != RANKS_NONE ? load(t, &own) : own.status;
	if (path[0] == '\0')
		return status == TR_OK ? TR_OK : tr_error_set(error, status, "%s", own.text);
	status = sharded_agree(t, round, step, status == TR_OK ? NULL : &own, error);
	if (status == TR_OK && s->refuser != SHARDED_NOBODY)
		s->kind = SHARDED_BACK;
	return status;
}
