/* Which checkpoint training goes back to, or begins with: the newest that all workers can use.
 *
 * Each says what it makes of one: in a round SHARDED_BACK of its manifest, and when shards were read, of digests and tensors; and each names the newest before it that it has. If somebody cannot
 * use it the one of most steps among these is tried next, in a round SHARDED_BACK again: who has it not gets it first (sharded_fetch.c), so it is what anybody has that counts. But where it is the files
 * of those who cannot, on their disks, and somebody has it whole, the same is tried again, and they get a copy of that: once each. Otherwise each one that is
 * tried has fewer steps, so there is an end: one that all use, or nobody has one left, and the job stops. Which one is tried is common state, so it does not matter on whose disk which is damaged.
 * Who has no memory to read one says nothing about it: it ends, and the others go on with who comes in its place. */
#include <stdio.h>
#include <string.h>

#include "daemon/worker/trainer_inside.h"

/* What differs each time is no accident: going back again would lead nowhere. */
enum { MENDED_MOST = 3 };

/* ---- which there are ---- */

/* Its folder, with the slash. */
static int folder_bytes(const char *checkpoint)
{
	const char *name = strrchr(checkpoint, '/');
	return name != NULL ? (int)(name + 1 - checkpoint) : 0;
}

/* Of more steps than the job began with: its own. */
static bool is_own(const struct trainer *t, uint64_t step)
{
	return step > t->counters->start;
}

/* `latest`, where the job began, may be another one by now, and have been when this worker looked: the one of that step stands beside it. */
void sharded_checkpoint_path(const struct trainer *t, uint64_t step, char path[CHECKPOINT_PATH_MAX])
{
	const char *began = t->folder.never_delete;
	if (is_own(t, step))
		(void)snprintf(path, CHECKPOINT_PATH_MAX, "%s/step-%08llu", t->folder.dir,
		    (unsigned long long)step);
	else if (began[0] == '\0' || t->sharded->resumed == step)
		(void)snprintf(path, CHECKPOINT_PATH_MAX, "%s", began);
	else
		(void)snprintf(path, CHECKPOINT_PATH_MAX, "%.*sstep-%08llu", folder_bytes(began),
		    began, (unsigned long long)step);
}

/* One more than the step of the newest before it that this worker has; 0: none. */
static int64_t before(const struct trainer *t, uint64_t step)
{
	const char *began = t->folder.never_delete;
	char dir[CHECKPOINT_PATH_MAX];
	uint64_t found;
	if (is_own(t, step)) {
		if (checkpoint_before(t->folder.dir, step, &found) && is_own(t, found))
			return (int64_t)found + 1;
		return began[0] != '\0' ? (int64_t)t->counters->start + 1 : 0;
	}
	(void)snprintf(dir, sizeof(dir), "%.*s.", folder_bytes(began), began);
	return began[0] != '\0' && checkpoint_before(dir, step, &found) ? (int64_t)found + 1 : 0;
}

tr_status sharded_check_checkpoint(const struct trainer *t, uint64_t step, const char *path,
    struct tr_error *error)
{
	const struct manifest *manifest = t->sharded->back;
	if (manifest->step != step) /* a folder may have got another one meanwhile */
		return tr_error_set(error, TR_ESTALE,
		    "%s is a checkpoint of step %llu now, but this job goes on from step %llu: "
		    "name "
		    "the folder of that step in checkpoint.resume",
		    path, (unsigned long long)manifest->step, (unsigned long long)step);
	if (is_own(t, step) && strcmp(manifest->spec, t->spec_digest) != 0)
		return tr_error_set(error, TR_ESTALE,
		    "%s is of a job with another model, text, seed or batch: set another "
		    "checkpoint.dir for each job",
		    path);
	if (is_own(t, step) && trainer_is_another_job_s(t, manifest))
		return tr_error_set(error, TR_ESTALE,
		    "%s is of job %llu: set another checkpoint.dir for each job", path,
		    (unsigned long long)manifest->job.id);
	if (t->sharded->files.which != 0 && sharded_which(manifest) != t->sharded->files.which)
		return tr_error_set(error, TR_ESTALE,
		    "%s is another checkpoint of step %llu than the one that other workers go on "
		    "from",
		    path, (unsigned long long)step);
	return TR_OK;
}

/* ---- the one that all can use ---- */

static tr_status nothing_left(const struct trainer *t, struct tr_error *error)
{
	const char *why = t->sharded->refused.text;
	return tr_error_set(error, TR_EPEERLOST,
	    "no checkpoint is left that all workers can use: %s",
	    why[0] != '\0' ? why : "another worker says why");
}

/* The one that is tried next, if somebody cannot use this one: of the same step, or before it. */
static uint64_t next_of(const struct sharded *s, uint64_t step)
{
	const int64_t *choice = s->sums->choice;
	bool again = choice[2] != 0 && choice[3] < 0;
	return s->refuser == SHARDED_NOBODY || again ? step + 1 : (uint64_t)-choice[0];
}

/* other: one more than the step of the newest before it that this worker has. */
static tr_status agree(struct trainer *t, const struct tr_round *round, uint64_t step,
    int64_t other, const struct tr_error *own, struct tr_error *error)
{
	struct sharded *s = t->sharded;
	int64_t *choice = s->sums->choice;
	if (own != NULL && own->status == TR_ENOMEM) {
		*error = *own;
		return TR_ENOMEM;
	}
	choice[0] = -other; /* the most counts */
	choice[1] = own != NULL ? (int64_t)round->index : SHARDED_NOBODY;
	choice[2] = own == NULL || sharded_could_use_another(t, own->status);
	choice[3] = own == NULL && s->files.has ? -1 : 0;
	tr_status status = tr_allreduce(t->group, TAG_CHOICE, choice, 4, TR_I64, TR_MIN,
	    trainer_contributes(round) ? TR_CONTRIBUTE : 0, error);
	if (status == TR_OK)
		status = tr_wait(t->group, TAG_CHOICE, error);
	if (status != TR_OK)
		return status;
	s->tried = step;
	s->refuser = choice[1];
	s->chosen = next_of(s, step);
	tr_error_clear(&s->refusal);
	if (own != NULL) {
		s->refusal = *own;
		tr_error_add(&s->refused, own);
	}
	return TR_OK;
}

/* The end: what the others have said of newer ones are events as well. */
static void tell_none(struct trainer *t, const struct tr_round *round)
{
	const struct sharded *s = t->sharded;
	char event[TR_ERROR_TEXT_MAX];
	if (s->refuser != (int64_t)round->index)
		return;
	(void)snprintf(event, sizeof(event), "%.330s: there is none before it", s->refusal.text);
	trainer_report_event(t, event);
}

tr_status sharded_agree(struct trainer *t, const struct tr_round *round, uint64_t step,
    const struct tr_error *own, struct tr_error *error)
{
	struct sharded *s = t->sharded;
	tr_status status = agree(t, round, step, before(t, step), own, error);
	if (status != TR_OK || s->chosen > 0)
		return status;
	tell_none(t, round);
	return nothing_left(t, error);
}

/* It is committed that another one is tried: where training was is forgotten. */
static void turn_down(struct trainer *t, const struct tr_round *round)
{
	struct sharded *s = t->sharded;
	char path[CHECKPOINT_PATH_MAX], event[TR_ERROR_TEXT_MAX];
	uint64_t next = s->chosen - 1;
	if (s->refuser == (int64_t)round->index && next == s->tried) {
		(void)snprintf(event, sizeof(event),
		    "%.330s: a copy of the same checkpoint, which another worker has, is taken "
		    "instead",
		    s->refusal.text);
		trainer_report_event(t, event);
	} else if (s->refuser == (int64_t)round->index) {
		(void)snprintf(event, sizeof(event),
		    "%.330s: the checkpoint of step %llu is taken instead, %llu steps before it",
		    s->refusal.text, (unsigned long long)next,
		    (unsigned long long)(s->tried - next));
		trainer_report_event(t, event);
	}
	if (s->refusal.status != TR_OK) {
		sharded_checkpoint_path(t, s->tried, path);
		checkpoint_set_aside(path, s->refusal.status);
	}
	s->state->back_to = s->chosen;
	s->state->born = 0;
	s->loaded = RANKS_NONE;
	ranks_forget(&s->next);
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
	if (t->sharded->state->back_to > 0)
		return nothing_left(t, error);
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
	    checkpoint_look(t->folder.dir, &s->whole, s->back, found, NULL) != TR_OK ||
	    trainer_is_another_job_s(t, s->back))
		return 0;
	return s->back->step > s->state->saved && s->back->step <= t->counters->step ? s->back->step
	                                                                             : 0;
}

/* What is wrong with it; path "": there is none. */
static tr_status look_at(struct trainer *t, uint64_t step, const char *path, struct tr_error *error)
{
	struct sharded *s = t->sharded;
	char found[CHECKPOINT_PATH_MAX];
	if (path[0] == '\0')
		return tr_error_set(error, TR_ENOTFOUND,
		    "none was written yet; set checkpoint.every to have some");
	tr_status status = checkpoint_look(path, &s->whole, s->back, found, error);
	return status == TR_OK ? sharded_check_checkpoint(t, step, path, error) : status;
}

/* The newest that all know to be whole, or that where training began; or the one that is tried instead. */
static uint64_t step_to_try(const struct sharded *s, uint64_t start)
{
	uint64_t told = (uint64_t)s->told->saved,
	         newest = told > s->state->saved ? told : s->state->saved;
	if (s->state->back_to > 0)
		return s->state->back_to - 1;
	return newest > 0 ? newest : start;
}

/* Counters and account are common state, so they are contributor 0's copy of it, which it could read: who comes in this round had no say, and its own may be damaged, or not there. It says so when
 * it is to read its shard. */
static tr_status share_manifest(struct trainer *t, struct tr_error *error)
{
	struct tr_op op = TR_OP_INIT;
	op.tag = TAG_BACK;
	op.collective = TR_BROADCAST;
	op.output = t->sharded->back;
	op.count = sizeof(*t->sharded->back);
	op.dtype = TR_U8;
	tr_status status = tr_submit(t->group, &op, error);
	return status == TR_OK ? tr_wait(t->group, TAG_BACK, error) : status;
}

tr_status sharded_submit_back(struct trainer *t, const struct tr_round *round,
    struct tr_error *error)
{
	struct sharded *s = t->sharded;
	char path[CHECKPOINT_PATH_MAX];
	struct tr_error own;
	tr_status status = tr_wait(t->group, TAG_TOLD, error);
	if (status != TR_OK)
		return status;
	uint64_t step = step_to_try(s, t->counters->start);
	sharded_checkpoint_path(t, step, path);
	status = sharded_fetch(t, round, step, path, error);
	if (status != TR_OK)
		return status;
	own = s->files.cannot_give;
	bool good = own.status == TR_OK && look_at(t, step, path, &own) == TR_OK;
	bool leads_nowhere = s->state->mended > MENDED_MOST;
	int64_t other = leads_nowhere ? 0 : before(t, step);
	if (good && leads_nowhere)
		good = tr_error_set(&own, TR_EDIGEST,
		           "since the newest, of step %llu, workers have held different numbers "
		           "%llu "
		           "times",
		           (unsigned long long)step, (unsigned long long)s->state->mended) == TR_OK;
	status = agree(t, round, step, other, good ? NULL : &own, error);
	if (status == TR_OK && s->refuser == SHARDED_NOBODY)
		return share_manifest(t, error);
	if (status != TR_OK || s->chosen > 0)
		return status;
	if (path[0] != '\0')
		tell_none(t, round);
	return nobody_holds(t, good ? "another worker cannot use it" : own.text, error);
}

static void tell_back(struct trainer *t, const struct tr_round *round)
{
	const struct sharded *s = t->sharded;
	char event[320], what[128], why[192] = "";
	uint64_t from = t->counters->step, to = s->back->step;
	if (s->state->back_to == 0)
		(void)snprintf(why, sizeof(why),
		    "no worker is left that holds %s: ", what_is_lost(t, what, sizeof(what)));
	(void)snprintf(event, sizeof(event),
	    "%straining goes back from step %llu to the checkpoint of step %llu", why,
	    (unsigned long long)from, (unsigned long long)to);
	if (round->index == 0)
		trainer_report_event(t, event);
}

void sharded_go_back(struct trainer *t, const struct tr_round *round)
{
	struct sharded *s = t->sharded;
	uint64_t start = t->counters->start, skipped = t->counters->skipped, to = s->tried;
	if (s->refuser != SHARDED_NOBODY) {
		turn_down(t, round);
		return;
	}
	tell_back(t, round);
	s->state->back_to = 0;
	s->state->origin = s->state->saved = is_own(t, to) ? to : 0;
	trainer_resume_counters(t, s->back);
	t->counters->start = start < to ? start : to;
	t->counters->skipped = skipped;
	t->account->round = round->round;
	memcpy(s->state->lr_base, s->back->lr_base, sizeof(s->back->lr_base));
	/* Of what was undone no merge is left, nor what it cost, as after a restart. */
	s->state->costs = s->back->costs;
	s->state->costs.step = to - t->counters->start;
	s->state->born = 0;
	s->state->gathered = to;
	s->put_by = 0;
	t->final_written = t->final_failed = false;
	if (s->apart != NULL) {
		s->apart->lost.shard = RANKS_NONE;
		s->apart->moments.shard = RANKS_NONE; /* of steps that were undone */
		s->state->merges = s->apart->stream.on ? sharded_stream_merges(t, to) : 0;
		sharded_stream_drop(t);
	}
	s->loaded = RANKS_NONE;
	ranks_forget(&s->next);
}
