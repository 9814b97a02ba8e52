/* Checkpoints in shards on the disk (daemon/checkpoint/checkpoint_shards.h), which all nodes share: S5. What each writer's thread copies is put together, and is the reference's whole state when the last one has copied; what is
 * written later is what was copied then; and one is made of them when all are written, by one writer, or they are removed. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/checkpoint/checkpoint_shards.h"
#include "tests/sim/sharded/play.h"

/* Of one try. */
struct play_shards {
	struct play_shards *next;
	uint64_t key, step;
	float *arrays[SHARDED_ARRAYS_ALL]; /* of the whole layout */
	uint32_t count;
	bool copied[TR_GROUP_PEERS_MAX], written[TR_GROUP_PEERS_MAX];
	bool dropped;
};

static struct play_shards *find(struct play *play, uint64_t key, uint64_t step)
{
	for (struct play_shards *known = play->shards; known != NULL; known = known->next)
		if (known->key == key)
			return known;
	struct play_shards *made = calloc(1, sizeof(*made));
	if (made == NULL)
		abort();
	*made = (struct play_shards){ .next = play->shards, .key = key, .step = step };
	for (unsigned a = 0; a < SHARDED_ARRAYS_ALL; a++)
		made->arrays[a] = calloc(play->reference.layout.count, sizeof(float));
	play->shards = made;
	return made;
}

void play_shards_finish(struct play *play)
{
	while (play->shards != NULL) {
		struct play_shards *first = play->shards;
		play->shards = first->next;
		for (unsigned a = 0; a < SHARDED_ARRAYS_ALL; a++)
			free(first->arrays[a]);
		free(first);
	}
}

static bool all(const bool *of, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++)
		if (!of[i])
			return false;
	return true;
}

float *play_shards_read(const struct tr_group *g, unsigned which)
{
	const struct play *play = g->play;
	const struct sharded *s = g->trainer->sharded;
	for (const struct play_shards *known = play->shards; known != NULL; known = known->next)
		if (known->key == s->saving_job.key) {
			size_t bytes = play->reference.layout.count * sizeof(float);
			float *copy = malloc(bytes);
			if (copy == NULL)
				abort();
			memcpy(copy, known->arrays[which], bytes);
			return copy;
		}
	return NULL;
}

bool play_shards_copied(struct tr_group *g)
{
	const struct sharded *s = g->trainer->sharded;
	const struct sharded_parts *p = &s->lent;
	struct play_shards *shards = find(g->play, s->saving_job.key, s->saving_job.step);
	struct shard shard;
	const struct layout *local = mesh_shards_layout(&p->shards, p->own, &shard);
	shards->count = mesh_shards_count(&p->shards);
	for (unsigned a = 0; a < SHARDED_ARRAYS_ALL; a++)
		if (sharded_array(&p->arrays[p->own], a) != NULL)
			shard_put(p->shards.whole, local, &shard,
			    sharded_array(&p->arrays[p->own], a), shards->arrays[a]);
	shards->copied[p->own] = true;
	return all(shards->copied, shards->count);
}

/* The numbers that were copied, still. */
tr_status checkpoint_write_shard(const struct checkpoint_folder *folder, uint64_t step,
    uint64_t key, uint32_t number, const struct layout *local, const struct optim_arrays *arrays,
    const struct progress *progress, struct tr_digest *digest, struct tr_error *error)
{
	struct tr_group *g = group_inside();
	const struct sharded_parts *p = &g->trainer->sharded->lent;
	struct play_shards *shards = find(g->play, key, step);
	struct shard shard;
	(void)folder;
	(void)progress;
	if (sim_draw(g->sim, 64) == 0) {
		g->play->full++;
		return tr_error_set(error, TR_EIO, "no space left");
	}
	(void)mesh_shards_layout(&p->shards, number, &shard);
	float *copied = calloc(local->count, sizeof(*copied));
	if (copied == NULL)
		abort();
	for (unsigned a = 0; a < SHARDED_ARRAYS_ALL; a++) {
		const float *ours = sharded_array(arrays, a);
		if (ours == NULL)
			continue;
		shard_take(p->shards.whole, local, &shard, shards->arrays[a], copied);
		if (memcmp(copied, ours, local->count * sizeof(*ours)) != 0)
			sim_violation(g->sim,
			    "S5: n%u writes other numbers of shard %u than were copied", g->number,
			    number);
	}
	free(copied);
	shards->written[number] = true;
	*digest = (struct tr_digest){ key ^ number, step };
	return TR_OK;
}

tr_status checkpoint_publish_shards(const struct checkpoint_folder *folder,
    const struct layout *whole, struct manifest *manifest, uint64_t key,
    char path[CHECKPOINT_PATH_MAX], struct tr_error *error)
{
	struct tr_group *g = group_inside();
	struct play_shards *shards = find(g->play, key, manifest->step);
	char right[TR_DIGEST_HEX_MAX];
	(void)folder;
	(void)whole;
	if (shards->dropped) /* by others, who think that it is lost: it fails */
		return tr_error_set(error, TR_ESTALE, "a shard is not there");
	if (shards->count == 0 || !all(shards->written, shards->count))
		sim_violation(g->sim, "S5: n%u makes a checkpoint of shards that are not written",
		    g->number);
	for (uint32_t k = 0; k < shards->count; k++)
		if (strcmp(manifest->shards.files[k],
		        tr_digest_hex((struct tr_digest){ key ^ k, manifest->step }, right)) != 0)
			sim_violation(g->sim, "S5: n%u says another digest of shard %u", g->number,
			    k);
	manifest_sum_shards(manifest);
	play_publish(g, manifest->step, manifest);
	(void)snprintf(path, CHECKPOINT_PATH_MAX, "disk/step-%08lu", (unsigned long)manifest->step);
	return TR_OK;
}

void play_ended(const struct tr_group *g)
{
	struct play *play = g->play;
	play->ended++;
	if (play->disk[g->trainer->counters->step] == NULL && play->full == 0)
		sim_violation(g->sim, "S5: n%u ends without the last checkpoint", g->number);
}

void checkpoint_drop_shards(const struct checkpoint_folder *folder, uint64_t step, uint64_t key)
{
	(void)folder;
	find(group_inside()->play, key, step)->dropped = true;
}
