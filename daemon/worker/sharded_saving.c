#include "daemon/worker/sharded_saving.h"

#include <stdio.h>
#include <string.h>

#include "daemon/checkpoint/checkpoint_shards.h"
#include "daemon/worker/trainer_inside.h"

/* ---- what is to be written, and by whom ---- */

static uint64_t own_id(const struct sharded *s)
{
	return s->next.peers[s->self].peer;
}

/* The shard that this worker writes; count: none. */
static uint64_t own_shard(const struct sharded *s, const struct saving *saving)
{
	uint64_t shard = 0;
	if (s->self == RANKS_NONE)
		return saving->count;
	while (shard < saving->count && saving->writers[shard] != own_id(s))
		shard++;
	return shard;
}

bool sharded_saves_last(const struct trainer *t)
{
	const struct sharded_state *state = t->sharded->state;
	uint64_t step = t->counters->step;
	return t->sharded->in_shards &&
	    (state->saving.key != 0 || (state->saved < step && state->gathered != step));
}

void sharded_derive_saving(struct trainer *t, const struct tr_round *round)
{
	struct sharded *s = t->sharded;
	struct saving *begins = &s->begins;
	s->leaves_out = false;
	begins->key = 0;
	if (!s->in_shards || !s->gathers)
		return;
	if (s->state->saving.key != 0) {
		s->gathers = false;
		s->leaves_out = !sharded_is_last(t);
		return;
	}
	*begins = (struct saving){ .step = t->counters->step,
		.count = mesh_shards_count(&s->shards) };
	for (uint32_t k = 0; k < begins->count; k++)
		begins->writers[k] = s->next.peers[sharded_writer_of(t, k)].peer;
	/* Where moments fit each other in one attempt and not in the next one, with the same writers, those of both would be mixed. */
	const uint64_t what[] = { begins->step, round->round, sharded_moments_fit(s) };
	struct tr_digest all = tr_digest_fold(tr_digest_of(what, sizeof(what)),
	    tr_digest_of(begins->writers, begins->count * sizeof(*begins->writers)));
	begins->key = all.low | 1;
}

/* ---- this worker's ---- */

/* By the saver's thread. */
static tr_status write_shard(void *arg, const struct progress *progress,
    char path[CHECKPOINT_PATH_MAX], struct tr_error *error)
{
	struct trainer *t = arg;
	struct sharded *s = t->sharded;
	struct shard shard;
	const struct sharded_parts *p = &s->lent;
	(void)path;
	return checkpoint_write_shard(&t->folder, s->saving_job.step, s->saving_job.key, p->own,
	    mesh_shards_layout(&p->shards, p->own, &shard), &p->arrays[p->own], progress,
	    &s->saving_job.digest, error);
}

static void copy_shard(void *arg)
{
	struct trainer *t = arg;
	sharded_copy_own(&t->sharded->lent);
}

static struct manifest manifest_of(const struct trainer *t)
{
	const struct sharded *s = t->sharded;
	struct manifest manifest = trainer_manifest(t);
	manifest.shards.count = mesh_shards_count(&s->shards);
	manifest.shards.pp = s->shards.mesh.size[MESH_PP];
	manifest.shards.tp = s->shards.mesh.size[MESH_TP];
	manifest.shards.chunks = s->shards.chunks;
	memcpy(manifest.shards.layers, s->dealing.layers, sizeof(manifest.shards.layers));
	return manifest;
}

/* The saver is idle. */
static tr_status begin_job(struct trainer *t, const struct saver_work *work, bool publishes,
    struct tr_error *error)
{
	struct sharded *s = t->sharded;
	s->saving_job = (struct saving_job){ .key = s->saving.key,
		.step = s->saving.step,
		.publishes = publishes,
		.manifest = s->saving.manifest };
	s->saving.stage = SAVING_UNDER_WAY;
	return saver_start_work(t->saver, work, &s->saving.manifest, error);
}

static tr_status start(struct trainer *t, struct tr_error *error)
{
	struct sharded *s = t->sharded;
	struct saver_parts parts;
	const struct saver_work work = { copy_shard, write_shard, t };
	tr_status status = saver_check(t->saver, &s->saving.manifest, error);
	if (status != TR_OK)
		return status;
	status = sharded_stage_own(t, error);
	if (status == TR_OK)
		status = sharded_lend_parts(t, &parts, error);
	if (status == TR_OK)
		status = begin_job(t, &work, false, error);
	if (status != TR_OK)
		sharded_take_back_parts(t);
	return status;
}

tr_status sharded_start_shard(struct trainer *t, struct tr_error *error)
{
	struct sharded *s = t->sharded;
	struct tr_error own;
	tr_status status = sharded_wait_gathered(t, error);
	if (status != TR_OK || s->saving.key == s->begins.key)
		return status;
	/* With the writers that there were before this round began again. */
	if (s->saving.key != 0 && s->saving.stage == SAVING_UNDER_WAY)
		return TR_OK;
	s->saving = (struct saving_own){ .key = s->begins.key,
		.step = s->begins.step,
		.manifest = manifest_of(t) };
	if (start(t, &own) == TR_OK)
		return TR_OK;
	s->saving.stage = own.status == TR_EAGAIN ? SAVING_MISSED : SAVING_FAILED;
	trainer_report_event(t, own.text);
	return TR_OK;
}

static void drop(struct trainer *t)
{
	struct sharded *s = t->sharded;
	if (s->saving.key == 0)
		return;
	if (s->saving.stage == SAVING_UNDER_WAY) {
		s->saving.dropped = true;
		return;
	}
	checkpoint_drop_shards(&t->folder, s->saving.step, s->saving.key);
	s->saving.key = 0;
}

bool sharded_shard_ended(struct trainer *t, const struct saver_result *result)
{
	struct sharded *s = t->sharded;
	const struct saving_job *job = &s->saving_job;
	struct saving_own *own = &s->saving;
	bool ok = result->status == TR_OK, stale = own->key != job->key;
	if (!s->in_shards)
		return false;
	if (!ok && !stale && !own->dropped)
		trainer_report_event(t, result->error.text);
	if (!stale) {
		own->stage = ok                   ? SAVING_WRITTEN
		    : result->status == TR_ESTALE ? SAVING_MISSED
		                                  : SAVING_FAILED;
		own->digest = job->digest;
		if (own->dropped)
			drop(t);
	}
	return !ok || !job->publishes;
}

void sharded_await_saving(struct trainer *t)
{
	struct sharded *s = t->sharded;
	if (!s->in_shards || s->kind != SHARDED_SAVE || !sharded_is_last(t))
		return;
	uint64_t saved = trainer_end_save(t);
	if (saved > 0)
		s->saved_here = saved;
}

/* ---- what all say ---- */

tr_status sharded_submit_saving(struct trainer *t, const struct tr_round *round,
    struct tr_error *error)
{
	struct sharded *s = t->sharded;
	const struct saving *saving = &s->state->saving;
	if (!s->in_shards || saving->key == 0)
		return TR_OK;
	memset(s->words, 0, saving->count * sizeof(*s->words));
	uint64_t shard = own_shard(s, saving);
	if (shard < saving->count)
		s->words[shard] = (struct saving_word){ s->saving.key == saving->key
			    ? s->saving.stage
			    : SAVING_MISSED,
			(int64_t)s->saving.digest.low, (int64_t)s->saving.digest.high };
	return tr_allreduce(t->group, TAG_SAVING, s->words,
	    saving->count * sizeof(*s->words) / sizeof(int64_t), TR_I64, TR_SUM,
	    trainer_contributes(round) ? TR_CONTRIBUTE : 0, error);
}

/* ---- and what comes of it ---- */

static void copy_nothing(void *arg)
{
	(void)arg;
}

static tr_status publish(void *arg, const struct progress *progress, char path[CHECKPOINT_PATH_MAX],
    struct tr_error *error)
{
	struct trainer *t = arg;
	struct sharded *s = t->sharded;
	progress_tell(progress);
	return checkpoint_publish_shards(&t->folder, &s->whole, &s->saving_job.manifest,
	    s->saving_job.key, path, error);
}

static void start_publishing(struct trainer *t)
{
	struct sharded *s = t->sharded;
	const struct saver_work work = { copy_nothing, publish, t };
	struct manifest *manifest = &s->saving.manifest;
	struct tr_error own;
	for (uint32_t k = 0; k < manifest->shards.count; k++)
		(void)tr_digest_hex((struct tr_digest){ (uint64_t)s->words[k].low,
		                        (uint64_t)s->words[k].high },
		    manifest->shards.files[k]);
	if (begin_job(t, &work, true, &own) == TR_OK)
		return;
	s->saving.stage = SAVING_FAILED;
	trainer_report_event(t, own.text);
}

static unsigned count_of(const struct sharded *s, enum saving_stage stage)
{
	unsigned count = 0;
	for (uint64_t k = 0; k < s->state->saving.count; k++)
		count += s->words[k].stage == (int64_t)stage;
	return count;
}

static bool is_there(const struct sharded *s, uint64_t shard)
{
	return ranks_find(&s->next, s->state->saving.writers[shard]) != RANKS_NONE;
}

/* why: as workers have changed, and it may begin again; NULL: somebody could not write, and has said why. `publishes`: the first writer may have done so: then it is whole, or the next writer clears it away. */
static void give_up(struct trainer *t, const struct tr_round *round, const char *why, bool publishes)
{
	struct sharded *s = t->sharded;
	struct saving *saving = &s->state->saving;
	char event[160];
	if (why != NULL && round->index == 0) {
		(void)snprintf(event, sizeof(event), "checkpoint of step %llu is given up: %s",
		    (unsigned long long)saving->step, why);
		trainer_report_event(t, event);
	}
	if (why != NULL && s->state->gathered == saving->step)
		s->state->gathered = 0;
	if (publishes)
		s->saving.key = 0;
	else
		drop(t);
	saving->key = 0;
}

static void settle(struct trainer *t, const struct tr_round *round)
{
	struct sharded *s = t->sharded;
	struct saving *saving = &s->state->saving;
	static const char lost[] = "a worker is lost while its shards are written";
	static const char
	    other[] = "some of its shards were begun with other writers, or not at all";
	bool all_there = true, failed = count_of(s, SAVING_FAILED) > 0;
	for (uint64_t k = 0; k < saving->count; k++)
		all_there = all_there && is_there(s, k);
	if (s->state->saved >= saving->step) {
		saving->key = 0;
	} else if (failed || s->kind == SHARDED_BACK) {
		give_up(t, round, NULL, saving->whole != 0 && !failed);
	} else if (saving->whole != 0) {
		bool missed = count_of(s, SAVING_MISSED) > 0; /* what was written is gone */
		if (missed || !is_there(s, 0))
			give_up(t, round, missed ? other : lost, !missed);
	} else if (!all_there || count_of(s, SAVING_MISSED) > 0) {
		give_up(t, round, all_there ? other : lost, false);
	} else if (count_of(s, SAVING_WRITTEN) == saving->count) {
		saving->whole = 1;
		if (own_shard(s, saving) == 0)
			start_publishing(t);
	}
}

void sharded_end_saving(struct trainer *t, const struct tr_round *round)
{
	struct sharded *s = t->sharded;
	char event[160];
	bool saves = s->kind == SHARDED_STEP || s->kind == SHARDED_SAVE;
	if (!s->in_shards)
		return;
	if (s->state->saving.key != 0)
		settle(t, round);
	if (s->leaves_out && saves) {
		(void)snprintf(event, sizeof(event),
		    "checkpoint of step %llu left out: the one of step %llu is still being "
		    "written",
		    (unsigned long long)t->counters->step,
		    (unsigned long long)s->state->saving.step);
		s->state->gathered = t->counters->step;
		if (round->index == 0)
			trainer_report_event(t, event);
	}
	if (s->gathers && saves)
		s->state->saving = s->begins;
	/* Of a try that no commit knows. */
	if (s->saving.key != s->state->saving.key)
		drop(t);
}
