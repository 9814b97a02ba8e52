/* A checkpoint is written from the shards as they came, without putting the whole model together: who writes lends them to the saver's thread, which reads each tensor's numbers out of them, some MiB
 * at a time. Its own shard changes with the next step, so the thread copies that first, beside those that came. What was lent is used by nobody else until the checkpoint is written, whatever
 * becomes of the round, or of the mesh: so it has layouts of its own, and shards that come meanwhile come into other arrays. */
#include <stdlib.h>
#include <string.h>

#include "daemon/worker/trainer_inside.h"

static const struct optim_arrays *arrays_of(const struct sharded_parts *p, uint32_t shard,
    unsigned which)
{
	bool still = shard == p->own && (p->to_copy >> which & 1) != 0;
	return still ? &p->from : &p->arrays[shard];
}

static void read_numbers(void *arg, unsigned which, size_t tensor, size_t first, size_t end,
    float *to)
{
	const struct sharded_parts *p = arg;
	for (uint32_t k = 0; k < mesh_shards_count(&p->shards); k++) {
		struct shard shard;
		size_t local = mesh_shards_tensor(&p->shards, k, tensor);
		if (local == LAYOUT_NONE)
			continue;
		const struct layout *layout = mesh_shards_layout(&p->shards, k, &shard);
		shard_put_part(p->shards.whole, layout, &shard, local,
		    sharded_array(arrays_of(p, k, which), which), first, end, to);
	}
}

void sharded_copy_own(struct sharded_parts *p)
{
	struct shard shard;
	size_t bytes = mesh_shards_layout(&p->shards, p->own, &shard)->count * sizeof(float);
	for (unsigned a = 0; a < SHARDED_ARRAYS_ALL; a++)
		if ((p->to_copy >> a & 1) != 0)
			memcpy(sharded_array(&p->arrays[p->own], a), sharded_array(&p->from, a),
			    bytes);
	p->to_copy = 0;
}

static void copy_own(void *arg)
{
	sharded_copy_own(arg);
}

tr_status sharded_lend_parts(struct trainer *t, struct saver_parts *parts, struct tr_error *error)
{
	struct sharded *s = t->sharded;
	struct sharded_parts *p = &s->lent;
	uint32_t count = mesh_shards_count(&s->shards);
	struct optim_arrays *others = calloc(count, sizeof(*others));
	tr_status status = others != NULL
	    ? sharded_lay(t, &s->dealing, &p->shards, error)
	    : tr_error_set(error, TR_ENOMEM, "mesh: no memory for a table of shards");
	if (status != TR_OK) {
		free(others);
		return status;
	}
	p->dealing = s->dealing;
	p->arrays = s->staged;
	p->from = t->arrays;
	p->own = ranks_shard(&s->shards.mesh, s->rank);
	p->to_copy = sharded_arrays_gathered(s);
	s->staged = others;
	*parts = (struct saver_parts){ .source = { read_numbers, p, t->arrays.outer != NULL },
		.copy = copy_own };
	return TR_OK;
}

static bool is_empty(const struct sharded *s)
{
	for (uint32_t k = 0; k < mesh_shards_count(&s->shards); k++)
		if (s->staged[k].params != NULL)
			return false;
	return true;
}

/* They are kept for the next time, unless the mesh is another one, or memory is what a job with ZeRO-1 lacks. */
void sharded_take_back_parts(struct trainer *t)
{
	struct sharded *s = t->sharded;
	struct sharded_parts *p = &s->lent;
	if (p->arrays == NULL)
		return;
	bool again = s->owners == 0 && s->staged != NULL &&
	    dealing_equal(&p->dealing, &s->dealing) && is_empty(s);
	for (uint32_t k = 0; !again && k < mesh_shards_count(&p->shards); k++)
		sharded_give_arrays(t, &p->arrays[k]);
	struct optim_arrays *table = again ? s->staged : p->arrays;
	if (again)
		s->staged = p->arrays;
	free(table);
	mesh_shards_finish(&p->shards);
	memset(p, 0, sizeof(*p));
}

void sharded_drop_parts(struct trainer *t)
{
	free(t->sharded->lent.arrays);
	mesh_shards_finish(&t->sharded->lent.shards);
}

/* Whether or not this round will be committed: it is the state before it. */
tr_status sharded_start_checkpoint(struct trainer *t, struct tr_error *error)
{
	struct tr_error own;
	struct saver_parts parts;
	struct manifest manifest = trainer_manifest(t);
	tr_status status = sharded_wait_gathered(t, error);
	if (status != TR_OK || t->sharded->put_by == manifest.step)
		return status;
	t->sharded->put_by = manifest.step; /* once, also if the round begins again */
	status = t->sharded->lent.arrays == NULL
	    ? sharded_stage_own(t, &own)
	    : tr_error_set(&own, TR_EAGAIN,
	          "checkpoint of step %llu left out: the one before is still being written",
	          (unsigned long long)manifest.step);
	if (status == TR_OK)
		status = sharded_lend_parts(t, &parts, &own);
	if (status == TR_OK)
		status = saver_start_parts(t->saver, &parts, &manifest, &own);
	if (status == TR_OK)
		return TR_OK;
	if (status != TR_EAGAIN) /* else they are the saver's */
		sharded_take_back_parts(t);
	trainer_report_event(t, own.text);
	return TR_OK;
}
