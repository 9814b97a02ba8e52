/* A disk with checkpoints: S5. They are whole or not there; but damage may come later, to all copies or to one node's. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/checkpoint/checkpoint_copy.h"
#include "daemon/worker/patience.h"
#include "tests/sim/sharded/play.h"

struct manifest trainer_manifest(const struct trainer *t)
{
	struct manifest manifest = { .step = t->counters->step,
		.round = t->sharded->state->step_round,
		.samples = t->counters->samples,
		.tokens = t->counters->tokens,
		.age = t->sharded->apart != NULL ? t->sharded->apart->moments.age
		                                 : t->counters->step,
		.costs = costs_to_save(&t->sharded->state->costs),
		.account = *t->account };
	(void)sharded_lr_base(t, manifest.lr_base);
	return manifest;
}

void trainer_resume_counters(struct trainer *t, const struct manifest *manifest)
{
	*t->counters = (struct trainer_counters){ .start = manifest->step,
		.step = manifest->step,
		.samples = manifest->samples,
		.tokens = manifest->tokens };
	*t->account = manifest->account;
	if (t->sharded->apart == NULL)
		lease_drop_free(t->account);
	t->account->round = 0;
}

static float *numbers(size_t count)
{
	float *made = calloc(count, sizeof(*made));
	if (made == NULL)
		abort();
	return made;
}

static void check_whole(struct tr_group *g, uint64_t step, const char *what, const float *ours,
    const float *theirs)
{
	for (size_t i = 0; i < g->play->reference.layout.count; i++)
		if (ours[i] != theirs[i]) {
			sim_violation(g->sim,
			    "S5: n%u writes a checkpoint of step %lu, %s: number %zu "
			    "is %g, not %g",
			    g->number, (unsigned long)step, what, i, (double)ours[i],
			    (double)theirs[i]);
			return;
		}
}

float *play_read_parts(const struct tr_group *g, unsigned which)
{
	if (g->work.write != NULL)
		return play_shards_read(g, which);
	const struct layout *layout = &g->play->reference.layout;
	const struct checkpoint_source *source = &g->parts.source;
	float *whole = numbers(layout->count);
	for (size_t i = 0; i < layout->tensor_count; i++) {
		size_t first = layout->tensors[i].offset,
		       end = first + layout_numbers(&layout->tensors[i]),
		       middle = (first + end) / 2;
		source->read(source->arg, which, i, first, middle, whole + first);
		source->read(source->arg, which, i, middle, end, whole + middle);
	}
	return whole;
}

/* When it is written at last: what it is written from is still what it was. */
static void check_written(struct tr_group *g, uint64_t step)
{
	static const char *const names[] = { "parameters", "first moments", "second moments" };
	const struct play_state *state = reference_at(g->play, step);
	const float *theirs[] = { state->params, state->first, state->second };
	for (unsigned a = 0; a < 3; a++) {
		float *ours = play_read_parts(g, a);
		check_whole(g, step, names[a], ours, theirs[a]);
		free(ours);
	}
}

tr_status saver_check(const struct saver *saver, const struct manifest *manifest,
    struct tr_error *error)
{
	(void)saver;
	(void)manifest;
	return group_inside()->saves == 0 ? TR_OK : tr_error_set(error, TR_EAGAIN, "not yet");
}

static void start(struct tr_group *g, const struct manifest *manifest)
{
	g->saves = manifest->step;
	uint64_t slow_us = g->play->what.slow_us, most = slow_us > 0 ? MS : 100 * MS;
	bool slow = slow_us > 0 && manifest->step == g->play->what.slow_save;
	g->saves_at_us = g->sim->now_us + (slow ? slow_us : sim_between(g->sim, 0, most));
	if (slow)
		g->play->what.slow_save = 0;
	g->copied = false;
	free(g->manifest);
	g->manifest = malloc(sizeof(*g->manifest));
	*g->manifest = *manifest;
	(void)snprintf(g->manifest->optimizer, sizeof(g->manifest->optimizer), "%lu",
	    (unsigned long)++g->play->written);
}

tr_status saver_start_parts(struct saver *saver, const struct saver_parts *parts,
    const struct manifest *manifest, struct tr_error *error)
{
	struct tr_group *g = group_inside();
	if (saver_check(saver, manifest, error) != TR_OK)
		return TR_EAGAIN;
	g->parts = *parts;
	g->work.write = NULL;
	start(g, manifest);
	return TR_OK;
}

tr_status saver_start_work(struct saver *saver, const struct saver_work *work,
    const struct manifest *manifest, struct tr_error *error)
{
	struct tr_group *g = group_inside();
	if (saver_check(saver, manifest, error) != TR_OK)
		return TR_EAGAIN;
	g->work = *work;
	start(g, manifest);
	return TR_OK;
}

/* The last of a try's copies: all of them are one state. */
static void settle_work(struct tr_group *g)
{
	g->work.copy(g->work.arg);
	if (g->trainer->sharded->saving_job.publishes || !play_shards_copied(g))
		return;
	if (g->play->apart != NULL)
		apart_save(g, g->saves);
	else
		check_written(g, g->saves);
}

/* As late as may be. */
void trainer_settle_save(struct trainer *t)
{
	struct tr_group *g = t->group;
	if (g->saves == 0 || g->copied)
		return;
	if (g->play->apart != NULL &&
	    !group_is_member(g)) { /* the others may have gone back, and on otherwise */
		g->saves = 0;
		sharded_take_back_parts(g->trainer);
		return;
	}
	g->copied = true;
	if (g->work.write != NULL) {
		settle_work(g);
		return;
	}
	g->parts.copy(g->parts.source.arg);
	if (g->play->apart != NULL)
		apart_save(g, g->saves);
}

/* At all nodes, which share a disk, or at one that has its own. The one before is whole, so training can go on from that. */
static struct play_damage draw_damage(struct tr_group *g, uint64_t step)
{
	struct play *play = g->play;
	uint64_t every = g->trainer->spec->checkpoint->every, before = step - every;
	if (play->what.stream != PLAY_STREAM_NONE && step >= 2 * every)
		(void)checkpoint_before("", step, &before);
	struct play_damage damage = { 0 };
	if (play->what.damaged_manifests != 0 && step >= 2 * every)
		return (
		    struct play_damage){ .nodes = play->what.damaged_manifests, .manifest = true };
	if (!play->what.damages || step < 2 * every || play->disk[before] == NULL ||
	    play->damage[before].nodes != 0 || sim_draw(g->sim, 2) == 0)
		return damage;
	damage.nodes = sim_draw(g->sim, 2) == 0 ? UINT32_MAX : 1u << sim_draw(g->sim, 6);
	if (play->what.own_disks)
		damage.nodes = 1u << g->number;
	damage.manifest = sim_draw(g->sim, 3) == 0;
	play->damaged++;
	return damage;
}

/* On whose disk: all nodes', or its own. */
static uint32_t disk_of(const struct tr_group *g)
{
	return g->play->what.own_disks ? 1u << g->number : UINT32_MAX;
}

/* What checkpoint_dir_prune leaves on one disk: the newest `keep`, however many steps lie between them. */
static void prune(struct play *play, uint32_t disk, unsigned keep)
{
	for (uint64_t i = 0; i < PLAY_STEPS_MAX; i++) {
		unsigned newer = 0;
		for (uint64_t j = 0; j < PLAY_STEPS_MAX; j++)
			newer += (play->has[j] & disk) != 0 &&
			    play->published[j] > play->published[i];
		if ((play->has[i] & disk) == 0 || newer < keep)
			continue;
		play->has[i] &= ~disk;
		if (play->has[i] != 0)
			continue;
		free(play->disk[i]);
		play->disk[i] = NULL;
	}
}

void play_publish(struct tr_group *g, uint64_t step, const struct manifest *manifest)
{
	struct play *play = g->play;
	struct manifest *kept = malloc(sizeof(*kept));
	if (kept == NULL)
		abort();
	*kept = *manifest;
	free(play->disk[step]);
	play->damage[step] = draw_damage(g, step);
	play->disk[step] = kept;
	play->published[step] = ++play->publications;
	play->has[step] |= disk_of(g);
	if (play->what.own_disks && play->what.damages) /* somebody copies them */
		play->has[step] |= 1u << sim_draw(g->sim, 6);
	prune(play, disk_of(g), g->trainer->folder.keep);
}

/* By the saver's thread. */
static uint64_t end_work(struct tr_group *g, uint64_t step)
{
	const struct progress nobody = { NULL, NULL, NULL };
	struct saver_result result = { .step = step };
	result.status = g->work.write(g->work.arg, &nobody, result.path, &result.error);
	sharded_take_back_parts(g->trainer);
	return sharded_shard_ended(g->trainer, &result) || result.status != TR_OK ? 0 : step;
}

uint64_t trainer_finish_checkpoint(struct trainer *t)
{
	struct tr_group *g = t->group;
	uint64_t step = g->saves;
	if (step == 0 || g->dead || g->sim->now_us < g->saves_at_us)
		return 0;
	g->saves = 0;
	if (g->work.write != NULL)
		return end_work(g, step);
	if (g->play->apart == NULL)
		check_written(g, step);
	sharded_take_back_parts(t);
	play_publish(g, step, g->manifest);
	return step;
}

static bool is_damaged(const struct tr_group *g, uint64_t step)
{
	return (g->play->damage[step].nodes >> g->number & 1) != 0;
}

/* As this node sees its disk. */
static bool is_there(const struct tr_group *g, uint64_t step)
{
	return step < PLAY_STEPS_MAX && g->play->disk[step] != NULL &&
	    (g->play->has[step] & disk_of(g)) != 0 &&
	    (g->play->damage[step].aside >> g->number & 1) == 0;
}

/* Of a step's folder; of the disk: the newest one. PLAY_STEPS_MAX: there is none. */
static uint64_t step_at(const struct tr_group *g, const char *path)
{
	const char *at = strstr(path, "step-");
	uint64_t step = PLAY_STEPS_MAX;
	if (at != NULL)
		step = strtoull(at + 5, NULL, 10);
	for (uint64_t i = 0; at == NULL && i < PLAY_STEPS_MAX; i++)
		if (is_there(g, i))
			step = i;
	return is_there(g, step) ? step : PLAY_STEPS_MAX;
}

tr_status checkpoint_find(const char *path, char found[CHECKPOINT_PATH_MAX], struct tr_error *error)
{
	(void)path;
	(void)found;
	return tr_error_set(error, TR_ENOTFOUND, "no job begins with one");
}

bool checkpoint_older(const char *path, char older[CHECKPOINT_PATH_MAX], uint64_t *steps)
{
	(void)path;
	(void)older;
	(void)steps;
	return false;
}

bool checkpoint_newer(const char *path, char newer[CHECKPOINT_PATH_MAX], uint64_t *steps)
{
	(void)path;
	(void)newer;
	(void)steps;
	return false;
}

tr_status checkpoint_manifest(const char *folder, struct manifest *manifest, struct tr_error *error)
{
	(void)manifest;
	return tr_error_set(error, TR_ENOTFOUND, "%s: no job begins with one", folder);
}

bool checkpoint_before(const char *dir, uint64_t below, uint64_t *step)
{
	bool found = false;
	(void)dir;
	for (uint64_t i = 0; i < below && i < PLAY_STEPS_MAX; i++)
		if (is_there(group_inside(), i)) {
			*step = i;
			found = true;
		}
	return found;
}

void checkpoint_set_aside(const char *path, tr_status why)
{
	struct tr_group *g = group_inside();
	uint64_t step = step_at(g, path);
	if (why != TR_EDIGEST || step == PLAY_STEPS_MAX)
		return;
	if (!is_damaged(g, step))
		sim_violation(g->sim, "S5: n%u sets a whole checkpoint aside, of step %lu",
		    g->number, (unsigned long)step);
	g->play->damage[step].aside |= 1u << g->number;
	g->play->refused++;
}

tr_status checkpoint_look(const char *path, const struct layout *whole, struct manifest *manifest,
    char found[CHECKPOINT_PATH_MAX], struct tr_error *error)
{
	const struct tr_group *g = group_inside();
	uint64_t step = step_at(g, path);
	(void)whole;
	if (step == PLAY_STEPS_MAX)
		return tr_error_set(error, TR_ENOTFOUND, "%s is not there", path);
	if (is_damaged(g, step) && g->play->damage[step].manifest)
		return tr_error_set(error, TR_EDIGEST, "%s: its manifest is damaged", path);
	*manifest = *g->play->disk[step];
	(void)snprintf(found, CHECKPOINT_PATH_MAX, "%s", path);
	return TR_OK;
}

/* Of a worker that says that it could read it. */
static void plant_damage(struct tr_group *g, float *params, size_t count)
{
	for (size_t i = 0; i < count; i++)
		params[i] += 1;
	g->play->planted = true;
}

tr_status checkpoint_read_shard(const char *path, const struct layout *whole,
    const struct layout *local, const struct shard *shard, const struct optim_arrays *arrays,
    const struct progress *progress, struct manifest *manifest, char found[CHECKPOINT_PATH_MAX],
    struct tr_error *error)
{
	struct tr_group *g = group_inside();
	bool plants = g->play->what.plant == PLAY_PLANT_DAMAGE;
	(void)progress;
	tr_status status = checkpoint_look(path, whole, manifest, found, error);
	if (status != TR_OK)
		return status;
	if (g->play->starved < g->play->what.starves) {
		g->play->starved++;
		g->starved = true;
		return tr_error_set(error, TR_ENOMEM, "no memory for a shard");
	}
	bool damaged = is_damaged(g, manifest->step);
	if (damaged && !plants)
		return tr_error_set(error, TR_EDIGEST, "%s: a tensor is damaged", path);
	if (g->play->what.plant == PLAY_PLANT_FORGET) {
		g->play->planted = true;
		return TR_OK;
	}
	if (g->play->apart != NULL) {
		apart_read(g->play, manifest->step, whole, local, shard, arrays);
		return TR_OK;
	}
	const struct play_state *state = reference_at(g->play, manifest->step);
	shard_take(whole, local, shard, state->params, arrays->params);
	shard_take(whole, local, shard, state->first, arrays->first);
	shard_take(whole, local, shard, state->second, arrays->second);
	if (damaged)
		plant_damage(g, arrays->params, local->count);
	return TR_OK;
}

/* ---- copies: of two files, whose bytes say of which step they are ---- */

enum { MODEL_BYTES = 300, MANIFEST_BYTES = 50 };

static uint8_t byte_of(uint64_t step, int64_t at)
{
	return (uint8_t)(step * 31 + (uint64_t)at * 7);
}

uint64_t checkpoint_copy_bytes(const int64_t sizes[CHECKPOINT_COPY_FILES])
{
	return sizes[0] == MODEL_BYTES && sizes[CHECKPOINT_COPY_FILES - 1] == MANIFEST_BYTES
	    ? MODEL_BYTES + MANIFEST_BYTES
	    : UINT64_MAX;
}

tr_status checkpoint_copy_open(const char *path, const struct manifest *manifest,
    struct checkpoint_copy *copy, int64_t sizes[CHECKPOINT_COPY_FILES], struct tr_error *error)
{
	uint64_t step = step_at(group_inside(), path);
	if (step == PLAY_STEPS_MAX)
		return tr_error_set(error, TR_EIO, "%s is not there", path);
	*copy = (struct checkpoint_copy){ .next = (unsigned)step, .manifest = manifest };
	for (unsigned i = 0; i < CHECKPOINT_COPY_FILES; i++)
		copy->sizes[i] = -1;
	copy->sizes[0] = MODEL_BYTES;
	copy->sizes[CHECKPOINT_COPY_FILES - 1] = MANIFEST_BYTES;
	memcpy(sizes, copy->sizes, sizeof(copy->sizes));
	return TR_OK;
}

tr_status checkpoint_copy_read(struct checkpoint_copy *copy, void *to, size_t bytes,
    struct tr_error *error)
{
	for (size_t i = 0; i < bytes; i++)
		((uint8_t *)to)[i] = byte_of(copy->next, copy->left++);
	if (is_damaged(group_inside(), copy->next) && copy->left >= MODEL_BYTES)
		return tr_error_set(error, TR_EDIGEST, "its model is damaged");
	return TR_OK;
}

void checkpoint_copy_close(struct checkpoint_copy *copy)
{
	(void)copy;
}

tr_status checkpoint_copy_begin(const char *path, const int64_t sizes[CHECKPOINT_COPY_FILES],
    struct checkpoint_copy *copy, struct tr_error *error)
{
	const char *at = strstr(path, "step-");
	(void)sizes;
	*copy = (struct checkpoint_copy){ .next = at == NULL ? 0 : (unsigned)atoi(at + 5) };
	return at != NULL ? TR_OK : tr_error_set(error, TR_EINVAL, "%s is no step's folder", path);
}

tr_status checkpoint_copy_write(struct checkpoint_copy *copy, const void *from, size_t bytes,
    struct tr_error *error)
{
	struct tr_group *g = group_inside();
	if ((g->play->what.bad_disks >> g->number & 1) != 0)
		return tr_error_set(error, TR_EIO, "no space left");
	for (size_t i = 0; i < bytes; i++)
		if (((const uint8_t *)from)[i] != byte_of(copy->next, copy->left++))
			sim_violation(g->sim,
			    "S5: n%u gets byte %ld of a copy of step %u, and it is another one",
			    g->number, (long)copy->left - 1, copy->next);
	return TR_OK;
}

/* What comes in the place of a damaged one is whole, unless the disk is bad. */
static void renew(struct tr_group *g, uint64_t step)
{
	struct play_damage *damage = &g->play->damage[step];
	uint32_t here = 1u << g->number;
	bool replaces = (damage->nodes & (g->play->has[step] | damage->aside) & here) != 0;
	g->play->renewed += replaces;
	if (replaces && sim_draw(g->sim, 4) > 0)
		damage->nodes &= ~here;
	else if (replaces)
		g->play->what.bad_disks |= here;
	damage->aside &= ~here;
}

/* Its writer may have removed the step meanwhile: the files that were open are whole all the same, but there is nothing to note it by. */
tr_status checkpoint_copy_end(struct checkpoint_copy *copy, bool whole, struct tr_error *error)
{
	struct tr_group *g = group_inside();
	uint64_t step = copy->next;
	(void)error;
	if (!whole)
		return TR_OK;
	if (copy->left != MODEL_BYTES + MANIFEST_BYTES)
		sim_violation(g->sim, "S5: n%u has %ld bytes of a copy", g->number,
		    (long)copy->left);
	renew(g, step);
	if (g->play->disk[step] != NULL)
		g->play->has[step] |= disk_of(g);
	g->play->copied++;
	return TR_OK;
}

void checkpoint_copy_prune(const struct checkpoint_folder *folder, const char *path)
{
	(void)folder;
	(void)path;
}

/* This disk takes no time. */
void patience_begin(struct patience *p, struct progress to, unsigned bound_ms)
{
	*p = (struct patience){ .to = to, .bound_ms = bound_ms };
}

void patience_end(struct patience *p)
{
	p->over = true;
}

bool play_disks_are_lost(const struct tr_group *g)
{
	const struct play *play = g->play;
	uint64_t tried = g->trainer->sharded->tried;
	if (play->what.bad_disks != 0)
		return true;
	for (unsigned i = 0; i < g->sim->node_count; i++) {
		const struct tr_group *other = play->groups[i];
		if (other == NULL || other->dead || !group_is_member(other))
			continue;
		if (other->round.round != g->round.round || !trainer_contributes(&other->round))
			continue; /* it comes too late to have a say */
		for (uint64_t step = 0; step <= tried; step++)
			if ((play->has[step] & ~play->damage[step].nodes) >> i & 1)
				return false;
	}
	return play->what.own_disks;
}

void play_disk_finish(struct play *play)
{
	play_shards_finish(play);
	for (uint64_t step = 0; step < PLAY_STEPS_MAX; step++)
		free(play->disk[step]);
}
