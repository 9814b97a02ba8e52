/* Shards from where training begins: initial numbers, a checkpoint, or an earlier one that it goes back to. */
#include <stdio.h>
#include <string.h>

#include "common/log.h"
#include "daemon/worker/trainer_inside.h"

/* What differs each time is no accident: going back again would lead nowhere. */
enum { MENDED_MOST = 3 };

/* The folder of the checkpoint that the job began with. `latest` may be another one by now, and have been when this worker looked: but the others have its step, and
 * a checkpoint of another step stands beside it. "": there is none. */
static void beginning(const struct trainer *t, char path[CHECKPOINT_PATH_MAX])
{
	const char *found = t->folder.never_delete, *name = strrchr(found, '/');
	if (found[0] == '\0' || name == NULL || t->sharded->resumed == t->counters->start)
		(void)snprintf(path, CHECKPOINT_PATH_MAX, "%s", found);
	else
		(void)snprintf(path, CHECKPOINT_PATH_MAX, "%.*s/step-%08llu", (int)(name - found),
		    found, (unsigned long long)t->counters->start);
}

/* Of a step of the job's own; 0: where it began. "": none, numbers are the initial ones. */
static void origin_of(const struct trainer *t, uint64_t step, char path[CHECKPOINT_PATH_MAX])
{
	if (step > 0)
		(void)snprintf(path, CHECKPOINT_PATH_MAX, "%s/step-%08llu", t->folder.dir,
		    (unsigned long long)step);
	else
		beginning(t, path);
}

/* A folder may have got another checkpoint meanwhile. */
static tr_status check_step(const struct trainer *t, uint64_t origin, const char *path,
    struct tr_error *error)
{
	uint64_t step = t->sharded->back->step, wanted = origin > 0 ? origin : t->counters->start;
	if (step == wanted)
		return TR_OK;
	return tr_error_set(error, TR_ESTALE,
	    "%s is a checkpoint of step %llu now, but this job goes on from step %llu: name the "
	    "folder of that step in checkpoint.resume",
	    path, (unsigned long long)step, (unsigned long long)wanted);
}

static void begin_fresh(struct trainer *t, const struct progress *progress)
{
	struct sharded *s = t->sharded;
	model_init_shard(&s->whole, &t->layout, &s->shard, t->spec->optimizer->seed, progress,
	    t->arrays.params);
}

tr_status sharded_load(struct trainer *t, struct tr_error *error)
{
	struct sharded *s = t->sharded;
	uint32_t shard = ranks_shard(&s->shards.mesh, s->rank);
	struct progress progress = trainer_progress(t);
	char path[CHECKPOINT_PATH_MAX], found[CHECKPOINT_PATH_MAX];
	if (s->loaded == shard)
		return TR_OK;
	origin_of(t, s->state->origin, path);
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
			status = check_step(t, s->state->origin, path, error);
		if (status != TR_OK)
			return tr_error_wrap(error, "reading this worker's shard");
	}
	s->loaded = shard;
	if (s->apart != NULL)
		sharded_apart_loaded(t, path[0] != '\0' ? s->back : NULL);
	return TR_OK;
}

/* ---- back ---- */

static const char *which_moments_are_lost(const struct trainer *t, char *text, size_t bytes)
{
	const struct sharded *s = t->sharded;
	struct shard shard;
	const struct layout *layout = mesh_shards_layout(&s->shards, s->lost, &shard);
	size_t i = layout->tensor_count - 1;
	while (i > 0 && layout->tensors[i].offset > s->moments.lost_at)
		i--;
	if (shard.size > 1)
		(void)snprintf(text, bytes, "the moments of %s of tp %u, among others",
		    layout->tensors[i].name, shard.rank);
	else
		(void)snprintf(text, bytes, "the moments of %s, among others",
		    layout->tensors[i].name);
	return text;
}

/* "h.0.attn.c_attn.weight of tp 1, among others": of the lost shard every tensor that nobody else has is an example. */
static const char *what_is_lost(const struct trainer *t, char *text, size_t bytes)
{
	if (t->sharded->lost_moments)
		return which_moments_are_lost(t, text, bytes);
	const struct sharded *s = t->sharded;
	struct shard shard;
	const struct layout *layout = mesh_shards_layout(&s->shards, s->lost, &shard);
	size_t i = 0, copied, numbers;
	if (shard.size > 1)
		while (i + 1 < layout->tensor_count && shard_whole(&s->whole, layout, i))
			i++;
	else if (layout_copied_table(layout, &copied, &numbers) &&
	    copied == layout->tensors[0].offset)
		i = 1;
	if (shard.size > 1)
		(void)snprintf(text, bytes, "%s of tp %u, among others", layout->tensors[i].name,
		    shard.rank);
	else
		(void)snprintf(text, bytes, "%s, among others", layout->tensors[i].name);
	return text;
}

static tr_status nobody_holds(const struct trainer *t, const char *why, struct tr_error *error)
{
	char what[128];
	return tr_error_set(error, TR_EPEERLOST,
	    "no worker is left that holds %s, and there is no checkpoint to go back to: %s",
	    what_is_lost(t, what, sizeof(what)), why);
}

/* Who wrote it may have died before it told, and have removed the newest that is known by then. What `latest` names is of this job, since one was before; a writer is never ahead of the
 * step that all have. */
uint64_t sharded_found_saved(struct trainer *t)
{
	const struct sharded *s = t->sharded;
	char found[CHECKPOINT_PATH_MAX];
	if (s->state->saved == 0 ||
	    checkpoint_look(t->folder.dir, &s->whole, s->back, found, NULL) != TR_OK)
		return 0;
	return s->back->step > s->state->saved && s->back->step <= t->counters->step ? s->back->step
	                                                                             : 0;
}

tr_status sharded_submit_back(struct trainer *t, const struct tr_round *round,
    struct tr_error *error)
{
	struct sharded *s = t->sharded;
	char path[CHECKPOINT_PATH_MAX], found[CHECKPOINT_PATH_MAX];
	struct tr_error own = { .text = "none was written yet; set checkpoint.every to have some" };
	tr_status status = tr_wait(t->group, TAG_TOLD, error);
	if (status != TR_OK)
		return status;
	uint64_t newest = (uint64_t)s->told->saved > s->state->saved ? (uint64_t)s->told->saved
	                                                             : s->state->saved;
	origin_of(t, newest, path);
	bool failed = path[0] == '\0' ||
	    checkpoint_look(path, &s->whole, s->back, found, &own) != TR_OK ||
	    check_step(t, newest, path, &own) != TR_OK;
	if (!failed && s->state->mended > MENDED_MOST)
		failed = tr_error_set(&own, TR_EDIGEST,
		             "since the newest, of step %llu, workers have held different numbers "
		             "%llu "
		             "times",
		             (unsigned long long)s->back->step,
		             (unsigned long long)s->state->mended) != TR_OK;
	t->sums->final_failed = failed ? 1 : 0;
	t->sums->final_written = 0;
	status = tr_allreduce(t->group, TAG_FINAL, &t->sums->final_written, 2, TR_F64, TR_SUM,
	    trainer_contributes(round) ? TR_CONTRIBUTE : 0, error);
	if (status == TR_OK)
		status = tr_wait(t->group, TAG_FINAL, error);
	if (status != TR_OK)
		return status;
	if (failed)
		return nobody_holds(t, own.text, error);
	return t->sums->final_failed > 0 ? nobody_holds(t, "another worker cannot read it", error)
	                                 : TR_OK;
}

void sharded_go_back(struct trainer *t, const struct tr_round *round)
{
	struct sharded *s = t->sharded;
	char event[320], what[128];
	(void)snprintf(event, sizeof(event),
	    "no worker is left that holds %s: training goes back from step %llu to the checkpoint "
	    "of step %llu",
	    what_is_lost(t, what, sizeof(what)), (unsigned long long)t->counters->step,
	    (unsigned long long)s->back->step);
	if (round->index == 0)
		trainer_report_event(t, event);
	uint64_t start = t->counters->start, skipped = t->counters->skipped;
	trainer_resume_counters(t, s->back);
	t->counters->start = start;
	t->counters->skipped = skipped;
	t->account->round = round->round;
	s->state->born = 0;
	s->state->origin = s->state->saved;
	s->state->gathered = s->back->step;
	s->put_by = 0;
	t->final_written = t->final_failed = false;
	s->loaded = RANKS_NONE;
	ranks_forget(&s->next);
}
