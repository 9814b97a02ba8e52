#include "daemon/worker/sharded.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/log.h"
#include "daemon/checkpoint/checkpoint_dir.h"
#include "daemon/plan/job_strict.h"
#include "daemon/plan/job_sync.h"
#include "daemon/worker/trainer_inside.h"

static tr_status no_memory(struct tr_error *error)
{
	return tr_error_set(error, TR_ENOMEM, "mesh: no memory for a shard's tables");
}

tr_status sharded_lay(struct trainer *t, const struct dealing *dealing, struct mesh_shards *shards,
    struct tr_error *error)
{
	const struct layout *whole = &t->sharded->whole;
	struct job_batch batch = { t->batch, t->micro };
	batch = job_strict_batch(t->spec, &dealing->mesh, &batch);
	uint32_t chunks = t->mesh_spec != NULL && t->mesh_spec->chunks > 0 ? t->mesh_spec->chunks
	                                                                   : 1;
	chunks = dealing->chunks > 0 ? dealing->chunks
	                             : job_mesh_chunks(&whole->config, dealing, chunks, &batch);
	return mesh_shards_create(whole, &dealing->mesh, chunks, dealing_layers(dealing), shards,
	    error);
}

tr_status sharded_create(struct trainer *t, struct tr_error *error)
{
	struct sharded *s = calloc(1, sizeof(*s));
	if (s == NULL)
		return no_memory(error);
	t->sharded = s;
	s->whole = t->layout;
	memset(&t->layout, 0, sizeof(t->layout));
	s->loaded = s->tidied.shard = RANKS_NONE;
	s->owners = t->zero_owners;
	s->in_shards = t->spec->checkpoint != NULL && t->spec->checkpoint->sharded &&
	    t->folder.dir[0] != '\0';
	s->newcomer_parts = NEWCOMERS_PARTS;
	s->newcomer_least = NEWCOMERS_LEAST;
	s->fetch_bytes = SHARDED_FETCH_BYTES;
	s->trial_steps = t->balances ? TRIAL_BALANCED_STEPS : TRIAL_STEPS;
	s->moments.lost = s->gathered.lost = RANKS_NONE;
	/* Who writes a checkpoint may be lost before the others know of it: then they go back to the one before. */
	if (t->folder.keep < 2)
		t->folder.keep = 2;
	mesh_memory_init(t->group, &s->memory);
	tr_status status = t->strict ? sharded_strict_create(t, error) : TR_OK;
	if (status == TR_OK && job_sync_is_rare(t->spec->sync))
		status = sharded_apart_create(t, error);
	if (status == TR_OK && t->balances && !t->strict && s->apart == NULL)
		status = replanner_create(t->job, &s->whole.config, t->batch, t->micro,
		    &s->replanner, error);
	if (status == TR_OK)
		status = sharded_lay(t, &t->dealing, &s->shards, error);
	if (status == TR_OK)
		t->layout = s->shards.stages[s->shards.largest]; /* until there is a rank */
	return status;
}

void sharded_destroy(struct trainer *t)
{
	struct sharded *s = t->sharded;
	if (s == NULL)
		return;
	sharded_drop_coming(t);
	sharded_drop_parts(t);
	sharded_unmake_mesh(t);
	sharded_strict_destroy(t);
	sharded_apart_destroy(t);
	replanner_destroy(s->replanner);
	owners_plan_finish(&s->moments);
	owners_plan_finish(&s->pieces_moments);
	owners_plan_finish(&s->gathered);
	mesh_memory_finish(&s->memory);
	layout_finish(&s->whole);
	free(s);
}

tr_status sharded_attach(struct trainer *t, struct tr_error *error)
{
	struct sharded *s = t->sharded;
	s->state = tr_alloc(t->group, sizeof(*s->state));
	s->sums = tr_alloc(t->group, sizeof(*s->sums));
	s->told = tr_alloc(t->group, sizeof(*s->told));
	s->back = tr_alloc(t->group, sizeof(*s->back));
	if (s->state == NULL || s->sums == NULL || s->told == NULL || s->back == NULL)
		return no_memory(error);
	if (s->in_shards)
		s->words = tr_alloc(t->group, TR_GROUP_PEERS_MAX * sizeof(*s->words));
	if (s->in_shards && s->words == NULL)
		return no_memory(error);
	if (s->apart != NULL && sharded_apart_attach(t, error) != TR_OK)
		return TR_ENOMEM;
	if (s->replanner != NULL)
		s->replan_words = tr_alloc(t->group, SHARDED_REPLAN_WORDS * sizeof(int64_t));
	if (s->replanner != NULL && s->replan_words == NULL)
		return no_memory(error);
	s->exchange.group = t->group;
	s->exchange.sharded = s;
	ranks_init(&s->shards.mesh, &s->state->ranks);
	s->state->ranks.copies = t->copies;
	s->state->asked = s->dealing = t->dealing;
	s->dealing.chunks = s->shards.chunks;
	s->state->dealing = s->dealing;
	sharded_begin_replan(t);
	return sharded_make_mesh(t, error);
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

static tr_status look(struct trainer *t, const char *path, struct manifest *manifest,
    struct tr_error *error)
{
	return checkpoint_look(path, &t->sharded->whole, manifest, t->folder.never_delete, error);
}

static size_t without_slashes(const char *path, size_t length)
{
	while (length > 1 && path[length - 1] == '/')
		length--;
	return length;
}

/* Without slashes at its end, and without `latest`; *step: it names one's folder, not that of several. */
static int split_resume(const char *resume, bool *step)
{
	size_t length = without_slashes(resume, strlen(resume));
	const char *slash = memrchr(resume, '/', length),
	           *name = slash != NULL ? slash + 1 : resume;
	size_t bytes = (size_t)(resume + length - name);
	*step = slash != NULL && bytes > 5 && strncmp(name, "step-", 5) == 0 &&
	    strspn(name + 5, "0123456789") == bytes - 5;
	bool latest = slash != NULL && bytes == strlen(CHECKPOINT_LATEST) &&
	    strncmp(name, CHECKPOINT_LATEST, bytes) == 0;
	return (int)(latest ? without_slashes(resume, (size_t)(slash - resume)) : length);
}

/* Others may have one: the group says of which step that is, and it comes to where this worker looked for it (sharded_fetch.c). */
static tr_status begin_with_nothing(struct trainer *t, const char *resume,
    const struct tr_error *why)
{
	bool step;
	int length = split_resume(resume, &step);
	(void)snprintf(t->folder.never_delete, sizeof(t->folder.never_delete), "%.*s%s", length,
	    resume, step ? "" : "/step-00000000");
	t->sharded->resumed = UINT64_MAX;
	t->nothing_read = *why;
	return TR_OK;
}

tr_status sharded_begin(struct trainer *t, uint64_t *round, struct tr_error *error)
{
	const char *resume = t->spec->checkpoint != NULL ? t->spec->checkpoint->resume : NULL;
	struct manifest *manifest = t->sharded->back;
	*round = 0;
	if (resume == NULL || resume[0] == '\0')
		return TR_OK;
	tr_status status = trainer_resume(t, resume, look, manifest, error);
	if (status != TR_OK && status != TR_ENOMEM)
		return begin_with_nothing(t, resume, error);
	if (status != TR_OK)
		return status;
	trainer_resume_counters(t, manifest);
	t->sharded->resumed = manifest->step;
	t->sharded->state->costs = manifest->costs;
	memcpy(t->sharded->state->lr_base, manifest->lr_base, sizeof(manifest->lr_base));
	*round = manifest->round > 0 ? manifest->round : manifest->step;
	t->sharded->state->step_round = *round;
	return TR_OK;
}

tr_status sharded_take_rank(struct trainer *t, uint32_t rank, struct tr_error *error)
{
	struct sharded *s = t->sharded;
	tr_status status = TR_OK;
	(void)mesh_shards_layout(&s->shards, ranks_shard(&s->shards.mesh, rank), &s->shard);
	s->tensor.rank = s->shard.rank;
	for (s->tensor.place = 0; s->tp.members[s->tensor.place] != s->self;)
		s->tensor.place++;
	/* Which rows a worker has is no accident of ids, since gradients are those of its rows. */
	if (t->strict)
		s->tensor.place = s->shard.rank;
	if (s->pipeline != NULL)
		status = sharded_take_stage(t, mesh_at(&s->shards.mesh, rank).at[MESH_PP], error);
	if (status == TR_OK)
		model_bind(t->model, t->arrays.params, t->arrays.grads);
	return status;
}
