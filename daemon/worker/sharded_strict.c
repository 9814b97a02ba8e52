#include "daemon/worker/sharded_strict.h"

#include <stdlib.h>
#include <string.h>

#include "daemon/checkpoint/shard_cut.h"
#include "daemon/worker/add_arrays.h"
#include "daemon/worker/trainer_inside.h"
#include "daemon/worker/virtual.h"

static unsigned level_count(uint32_t parts)
{
	unsigned levels = 0;
	while (1u << levels < parts)
		levels++;
	return levels;
}

/* ---- made and unmade ---- */

tr_status sharded_strict_create(struct trainer *t, struct tr_error *error)
{
	struct sharded *s = t->sharded;
	struct sharded_strict *strict = calloc(1, sizeof(*strict));
	if (strict == NULL)
		return tr_error_set(error, TR_ENOMEM, "train.strict: out of memory");
	s->strict = strict;
	strict->width_parts = strict_width_parts(&s->whole.config);
	strict->batch_parts = strict_batch_parts(t->batch);
	strict->squares = s->whole.tensor_count * strict->width_parts;
	return TR_OK;
}

void sharded_strict_destroy(struct trainer *t)
{
	free(t->sharded->strict);
	t->sharded->strict = NULL;
}

size_t sharded_strict_numbers(const struct trainer *t)
{
	const struct mesh_shards *shards = &t->sharded->shards;
	return mesh_shards_most(shards) + shard_cut_table_numbers(&shards->stages[shards->largest]);
}

tr_status sharded_strict_make(struct trainer *t, struct tr_error *error)
{
	struct sharded *s = t->sharded;
	struct sharded_strict *strict = s->strict;
	const struct layout *largest = &s->shards.stages[s->shards.largest];
	size_t stream = model_exchange_numbers(largest, t->micro) * sizeof(float);
	size_t told = (STRICT_PARTS_MAX + strict->squares) * sizeof(double);
	bool good = true;
	strict->sums = mesh_memory_take(&s->memory, told);
	strict->validated = mesh_memory_take(&s->memory, STRICT_PARTS_MAX * sizeof(double));
	for (unsigned i = 0; i < level_count(strict->batch_parts); i++) {
		strict->levels[i] = mesh_memory_take(&s->memory,
		    sharded_strict_numbers(t) * sizeof(float));
		good = good && strict->levels[i] != NULL;
	}
	for (unsigned i = 0; i < 2 * level_count(s->shards.mesh.size[MESH_TP]); i++) {
		strict->pairs[i / 2][i % 2] = mesh_memory_take(&s->memory, stream);
		good = good && strict->pairs[i / 2][i % 2] != NULL;
	}
	return good && strict->sums != NULL && strict->validated != NULL
	    ? TR_OK
	    : tr_error_set(error, TR_ENOMEM,
	          "train.strict: no shared memory for %u more arrays of gradients (%zu MiB each)",
	          level_count(strict->batch_parts),
	          sharded_strict_numbers(t) * sizeof(float) >> 20);
}

void sharded_strict_unmake(struct trainer *t)
{
	struct sharded *s = t->sharded;
	struct sharded_strict *strict = s->strict;
	mesh_memory_give(&s->memory, strict->sums);
	mesh_memory_give(&s->memory, strict->validated);
	strict->sums = strict->validated = NULL;
	for (unsigned i = 0; i < STRICT_LEVELS_MAX; i++) {
		mesh_memory_give(&s->memory, strict->levels[i]);
		mesh_memory_give(&s->memory, strict->pairs[i][0]);
		mesh_memory_give(&s->memory, strict->pairs[i][1]);
		strict->levels[i] = strict->pairs[i][0] = strict->pairs[i][1] = NULL;
	}
}

/* ---- the tree ---- */

/* Numbers of this stage's gradients, with its second table. */
static size_t numbers_of(const struct trainer *t)
{
	bool both = t->layout.depth.embedding && t->layout.depth.head;
	return t->layout.count + (both ? shard_cut_table_numbers(&t->layout) : 0);
}

/* Part `number` of `count` is in t->arrays.grads: it is added to the subtrees that it ends; what is left is a subtree for a later part, or all. */
static void fold(struct trainer *t, uint32_t number, uint32_t count)
{
	struct sharded_strict *strict = t->sharded->strict;
	unsigned level = 0;
	for (; (number >> level & 1) != 0; level++)
		add_arrays(t->pool, t->arrays.grads, strict->levels[level], numbers_of(t));
	if (number + 1 < count)
		memcpy(strict->levels[level], t->arrays.grads, numbers_of(t) * sizeof(float));
}

/* ---- between replicas, and stages ---- */

static tr_status sum_pair(struct trainer *t, uint32_t tag, uint32_t other, float *data,
    size_t count, struct tr_error *error)
{
	const struct sharded *s = t->sharded;
	uint32_t members[2] = { other < s->self ? other : s->self,
		other < s->self ? s->self : other };
	struct tr_op op = TR_OP_INIT;
	op.tag = tag;
	op.output = data;
	op.count = count;
	op.reduce = TR_SUM;
	op.scope = (struct tr_scope){ members, 2 };
	tr_status status = tr_submit(t->group, &op, error);
	return status == TR_OK ? tr_wait(t->group, tag, error) : status;
}

static uint32_t index_of_replica(const struct sharded *s, uint32_t replica)
{
	for (uint32_t i = 0; i < s->dp.count; i++)
		if (ranks_replica(&s->next, s->dp.members[i]) == replica)
			return s->dp.members[i];
	return RANKS_NONE;
}

static tr_status sum_replicas(struct trainer *t, struct tr_error *error)
{
	const struct sharded *s = t->sharded;
	uint32_t replica = ranks_replica(&s->next, s->self), replicas = ranks_replicas(&s->next);
	float **free_levels = s->strict->levels + level_count(s->strict->batch_parts / replicas);
	tr_status status = TR_OK;
	for (unsigned level = 0; 1u << level < replicas && status == TR_OK; level++) {
		uint32_t other = index_of_replica(s, replica ^ 1u << level);
		memcpy(free_levels[level], t->arrays.grads, numbers_of(t) * sizeof(float));
		status = sum_pair(t, level, other, free_levels[level], numbers_of(t), error);
		if (status == TR_OK)
			memcpy(t->arrays.grads, free_levels[level], numbers_of(t) * sizeof(float));
	}
	return status;
}

/* The two gradients of a tied table: both are here, or the other is at the pipeline's other end. */
static tr_status sum_table(struct trainer *t, struct tr_error *error)
{
	const struct sharded *s = t->sharded;
	const struct layout *layout = &t->layout;
	struct mesh_at at = mesh_at(&s->shards.mesh, s->rank);
	float *second = t->arrays.grads + layout->count;
	size_t offset, numbers = (size_t)layout->config.vocab * layout->config.width;
	if (numbers_of(t) > layout->count) {
		add_arrays(t->pool, t->arrays.grads + layout->tokens, second, numbers);
		return TR_OK;
	}
	if (!layout_copied_table(layout, &offset, &numbers))
		return TR_OK;
	at.at[MESH_PP] = s->shards.mesh.size[MESH_PP] - 1 - at.at[MESH_PP];
	memcpy(second, t->arrays.grads + offset, numbers * sizeof(float));
	tr_status status = sum_pair(t, TAG_TABLE,
	    ranks_at(&s->next, mesh_rank(&s->shards.mesh, at)), second, numbers, error);
	if (status == TR_OK)
		memcpy(t->arrays.grads + offset, second, numbers * sizeof(float));
	return status;
}

/* ---- a step ---- */

static void number_samples(struct trainer *t, uint64_t first, uint64_t count)
{
	for (uint64_t i = 0; i < count; i++)
		t->numbers[i] = t->account->cursor + first + i;
}

static bool compute_part(struct trainer *t, uint32_t part, const struct model_hooks *hooks)
{
	struct sharded *s = t->sharded;
	uint64_t sequences = t->batch / s->strict->batch_parts;
	number_samples(t, part * sequences, sequences);
	t->sums->loss = 0;
	model_part_begin(t->model);
	if (!(s->pipeline != NULL ? sharded_pipeline_gradient : trainer_gradient)(t,
	        (size_t)sequences, hooks) ||
	    !model_part_end(t->model))
		return false;
	s->strict->sums[part] = t->sums->loss;
	return true;
}

bool sharded_strict_gradient(struct trainer *t, const struct model_hooks *hooks, tr_status *status,
    struct tr_error *error)
{
	struct sharded *s = t->sharded;
	uint32_t mine = s->strict->batch_parts / ranks_replicas(&s->next);
	uint32_t first = ranks_replica(&s->next, s->self) * mine;
	uint64_t sequences = t->batch / s->strict->batch_parts;
	memset(s->strict->sums, 0, (STRICT_PARTS_MAX + s->strict->squares) * sizeof(double));
	sharded_begin_work(t);
	for (uint32_t i = 0; i < mine; i++) {
		if (!compute_part(t, first + i, hooks))
			return false;
		fold(t, i, mine);
	}
	sharded_end_work(t);
	s->share = mine * sequences;
	number_samples(t, first * sequences, s->share);
	t->sums->loss_tokens = (double)(s->share * t->layout.config.context);
	*status = sum_replicas(t, error);
	if (*status == TR_OK)
		*status = sum_table(t, error);
	return *status == TR_OK;
}

/* ---- norm and losses ---- */

struct squares_job {
	const struct trainer *t;
	struct shard_cut cut;
	uint32_t first; /* part of the width, that is the first here */
};

/* Tensor `item` / parts, part `item` % parts of what is here: row by row. */
static void square_item(const struct squares_job *job, size_t item)
{
	const struct trainer *t = job->t;
	const struct sharded_strict *strict = t->sharded->strict;
	struct shard_piece pieces[SHARD_PIECES_MAX];
	uint32_t part = (uint32_t)(item % job->cut.parts);
	size_t tensor = item / job->cut.parts;
	double sum = 0;
	bool shared = strict->width_parts > 1 && shard_cut_shared(&t->layout, tensor);
	size_t offset, numbers;
	bool copied = t->layout.depth.head && layout_copied_table(&t->layout, &offset, &numbers) &&
	    t->layout.tensors[tensor].offset == offset;
	/* What all hold is told once, a table by the first stage. */
	if (copied || (shared && job->first + part > 0))
		return;
	size_t count = shard_cut_pieces(&job->cut, part, tensor, true, pieces);
	for (size_t i = 0; i < count; i++)
		for (size_t row = 0; row < pieces[i].rows; row++)
			sum += t->ops->sum_squares(t->arrays.grads + pieces[i].whole +
			        row * pieces[i].whole_stride,
			    pieces[i].columns);
	strict->sums[STRICT_PARTS_MAX + t->layout.tensors[tensor].number * strict->width_parts +
	    job->first + part] = sum;
}

static void squares_part(void *arg, unsigned thread, unsigned threads)
{
	const struct squares_job *job = arg;
	size_t first, last;
	pool_share(job->t->layout.tensor_count * job->cut.parts, 1, thread, threads, &first, &last);
	for (size_t item = first; item < last; item++)
		square_item(job, item);
}

static tr_status tell_squares(struct trainer *t, struct tr_error *error)
{
	const struct sharded *s = t->sharded;
	uint32_t parts = s->strict->width_parts / s->shards.mesh.size[MESH_TP];
	struct squares_job job = { .t = t, .first = s->shard.rank * parts };
	tr_status status = shard_cut_init(&t->layout, parts, &job.cut, error);
	if (status != TR_OK)
		return status;
	pool_run(t->pool, squares_part, &job);
	shard_cut_finish(&job.cut);
	return TR_OK;
}

tr_status sharded_strict_submit_sums(struct trainer *t, bool speaks, unsigned flags,
    struct tr_error *error)
{
	const struct sharded *s = t->sharded;
	struct sharded_strict *strict = s->strict;
	tr_status status = TR_OK;
	if (!speaks)
		memset(strict->sums, 0, STRICT_PARTS_MAX * sizeof(*strict->sums));
	if (s->rank == RANKS_NONE)
		memset(strict->sums, 0, (STRICT_PARTS_MAX + strict->squares) * sizeof(double));
	else if (ranks_replica(&s->next, s->self) == 0)
		status = tell_squares(t, error);
	return status == TR_OK
	    ? tr_allreduce(t->group, TAG_PARTS, strict->sums, STRICT_PARTS_MAX + strict->squares,
	          TR_F64, TR_SUM, flags, error)
	    : status;
}

bool sharded_strict_validate(struct trainer *t, const struct model_hooks *hooks,
    bool (*part)(struct trainer *t, uint32_t part, const struct model_hooks *hooks))
{
	const struct sharded *s = t->sharded;
	uint32_t mine = STRICT_PARTS_MAX / ranks_replicas(&s->next);
	uint32_t first = ranks_replica(&s->next, s->self) * mine;
	double tokens = 0;
	memset(s->strict->validated, 0, STRICT_PARTS_MAX * sizeof(double));
	for (uint32_t i = first; i < first + mine; i++) {
		t->sums->validation = t->sums->validation_tokens = 0;
		if (!part(t, i, hooks))
			return false;
		s->strict->validated[i] = t->sums->validation;
		tokens += t->sums->validation_tokens;
	}
	t->sums->validation_tokens = tokens;
	return true;
}

tr_status sharded_strict_submit_validation(struct trainer *t, bool speaks, unsigned flags,
    struct tr_error *error)
{
	double *validated = t->sharded->strict->validated;
	if (!speaks)
		memset(validated, 0, STRICT_PARTS_MAX * sizeof(*validated));
	return tr_allreduce(t->group, TAG_PARTS_VALIDATION, validated, STRICT_PARTS_MAX, TR_F64,
	    TR_SUM, flags, error);
}

/* ---- committed ---- */

static double sum_in_order(const double *numbers, size_t count)
{
	double sum = 0;
	for (size_t i = 0; i < count; i++)
		sum += numbers[i];
	return sum;
}

double sharded_strict_squares(const struct trainer *t)
{
	const struct sharded_strict *strict = t->sharded->strict;
	return sum_in_order(strict->sums + STRICT_PARTS_MAX, strict->squares);
}

void sharded_strict_settle(struct trainer *t)
{
	struct sharded *s = t->sharded;
	const struct sharded_strict *strict = s->strict;
	bool validated = s->kind == SHARDED_FINAL ||
	    (s->kind == SHARDED_STEP && trainer_validates(t, t->counters->step + 1));
	if (validated)
		t->sums->validation = sum_in_order(strict->validated, STRICT_PARTS_MAX);
	if (s->kind == SHARDED_STEP)
		s->sums->loss = sum_in_order(strict->sums, STRICT_PARTS_MAX);
}
