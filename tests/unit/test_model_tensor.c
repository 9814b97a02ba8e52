/* A model that several shards make up against the whole one, in double: loss and every gradient, both architectures, two to four members, in threads that
 * meet at each sum. Also which sums are made, how large and in which order: as the log says that propagate() derives (derived_calls.h), for two microbatches and for a loss alone.
 */
#include "tests/unit/model_in_double.h"

#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/unit/derived_calls.h"

enum { SEQUENCES = 3, LENGTH = 9, CONTEXT = 12, VOCAB = 23, MEMBERS = 4, MICROBATCHES = 2 };
/* 24 rows: blocks of four members begin and end in the middle of a sequence. */
enum { SPLIT_LENGTH = 8 };

static double dropout; /* of all models */
static const uint64_t samples[MICROBATCHES * SEQUENCES] = { 5, 1000000007, 6, 0, 7, 4 };

static const struct model_config configs[] = {
	{ .preset = MODEL_GPT2, .layers = 2, .width = 16, .heads = 4 },
	{ .preset = MODEL_GPT2, .layers = 1, .width = 10, .heads = 4, .head_width = 3, .hidden = 36 },
	{ .preset = MODEL_LLAMA, .layers = 2, .width = 16, .heads = 4, .hidden = 12, .untied = true },
	{ .preset = MODEL_LLAMA, .layers = 2, .width = 24, .heads = 12, .kv_heads = 4, .hidden = 8 },
};

/* A place to meet, and the arrays that are summed there. */
struct group {
	unsigned size;
	pthread_barrier_t barrier;
	double *arrays[MEMBERS];
	struct meeting_calls calls; /* of member 0 */
	size_t stops;               /* with this call; 0: none */
	bool in_turn;               /* the exchange has two halves */
	bool splits;                /* sequence parallel */
	bool behind;                /* sums are made in two calls */
};

struct member {
	struct group *group;
	const struct layout *whole;
	struct shard shard;
	struct layout local;
	struct model *model;
	struct model_tensor tensor;
	double *half; /* of the exchange, that of the call before; with what it had then */
	double *kept;
	struct {
		double *data, *copy; /* and what was there when it began */
		size_t count;
		enum meeting kind;
	} begun; /* data NULL: none is */
	double *params, *grads, loss;
	const int32_t *inputs, *targets;
	unsigned threads;
	bool finished;
};

/* Others may still read what a call had until the next one has returned. */
static void check_turns(struct member *m, const double *data)
{
	size_t numbers = model_exchange_numbers(&m->local, SEQUENCES);
	double *half = data >= m->tensor.exchange && data < m->tensor.exchange + numbers
	    ? m->tensor.exchange
	    : m->tensor.exchange_too;
	assert_true(data >= half && data < half + numbers);
	assert_true(half != m->half);
	if (m->half != NULL)
		assert_memory_equal(m->half, m->kept, numbers * sizeof(*m->kept));
	m->half = half;
}

static bool meet(struct member *member, double *data, size_t count, enum meeting kind)
{
	struct group *group = member->group;
	unsigned rank = member->shard.rank;
	double *made = malloc(count * sizeof(*made));
	assert_null(member->begun.data);
	if (group->in_turn)
		check_turns(member, data);
	assert_true(kind < SCATTER || count % group->size == 0);
	group->arrays[rank] = data;
	pthread_barrier_wait(&group->barrier);
	for (size_t i = 0; i < count; i++)
		made[i] = meeting_number(kind, group->arrays, group->size, i, count, rank);
	if (rank == 0)
		meeting_called(&group->calls, kind, count);
	pthread_barrier_wait(&group->barrier);
	memcpy(data, made, count * sizeof(*made));
	free(made);
	if (group->in_turn)
		memcpy(member->kept, member->half,
		    model_exchange_numbers(&member->local, SEQUENCES) * sizeof(*made));
	size_t calls = group->calls.count;
	pthread_barrier_wait(&group->barrier);
	return group->stops == 0 || calls != group->stops;
}

static bool sum_here(void *arg, double *data, size_t count)
{
	return meet(arg, data, count, SUM);
}

static bool maximum_here(void *arg, double *data, size_t count)
{
	return meet(arg, data, count, MAXIMUM);
}

static bool reduce_scatter_here(void *arg, double *data, size_t count)
{
	return meet(arg, data, count, SCATTER);
}

static bool all_gather_here(void *arg, double *data, size_t count)
{
	return meet(arg, data, count, GATHER);
}

/* Others may come to it at any time from the first call to the second: what they get is what was there at the first. */
static bool begin_here(void *arg, double *data, size_t count, bool scatter)
{
	struct member *m = arg;
	assert_null(m->begun.data);
	m->begun.data = data;
	m->begun.count = count;
	m->begun.kind = scatter ? SCATTER : SUM;
	m->begun.copy = malloc(count * sizeof(*data));
	memcpy(m->begun.copy, data, count * sizeof(*data));
	return true;
}

static bool end_here(void *arg)
{
	struct member *m = arg;
	double *data = m->begun.data;
	assert_non_null(data);
	assert_memory_equal(data, m->begun.copy, m->begun.count * sizeof(*data));
	free(m->begun.copy);
	m->begun.data = NULL;
	return meet(m, data, m->begun.count, m->begun.kind);
}

static void *zeroed(size_t numbers)
{
	double *made = aligned_alloc(64, (numbers + 7) / 8 * 64);
	assert_non_null(made);
	memset(made, 0, (numbers + 7) / 8 * 64);
	return made;
}

/* Of a smaller microbatch behind the others. */
static size_t sequences_of(unsigned microbatch)
{
	return SEQUENCES - (microbatch + 1 == MICROBATCHES);
}

/* All microbatches, one after another, until one is stopped. */
static bool run(struct model *model, const int32_t *inputs, const int32_t *targets, size_t length,
    bool loss_only, double *loss)
{
	*loss = 0;
	for (unsigned m = 0; m < MICROBATCHES; m++) {
		size_t at = m * SEQUENCES * length;
		struct model_batch batch = { inputs + at, targets + at, sequences_of(m), length,
			samples + m * SEQUENCES };
		double part;
		if (!(loss_only ? model_loss(model, batch.inputs, batch.targets, batch.sequences,
		                      length, NULL, &part)
		                : model_gradient_of(model, &batch, NULL, &part)))
			return false;
		*loss += part;
	}
	return true;
}

static void *play(void *arg)
{
	struct member *m = arg;
	size_t length = m->group->splits ? SPLIT_LENGTH : LENGTH;
	m->finished = run(m->model, m->inputs, m->targets, length, false, &m->loss);
	return NULL;
}

static void *play_loss(void *arg)
{
	struct member *m = arg;
	size_t length = m->group->splits ? SPLIT_LENGTH : LENGTH;
	m->finished = run(m->model, m->inputs, m->targets, length, true, &m->loss);
	return NULL;
}

static void member_start(struct member *m, const double *params, struct pool *pool)
{
	struct shard_piece pieces[SHARD_PIECES_MAX];
	assert_int_equal(shard_layout(m->whole, &m->shard, &m->local, NULL), TR_OK);
	struct model_room how = { .row_parts = m->group->splits ? m->shard.size : 0 };
	assert_int_equal(model_create_whole(&m->local, &how, SEQUENCES, pool, &m->model, NULL),
	    TR_OK);
	assert_int_equal(model_use_dropout(m->model, dropout, 3, NULL), TR_OK);
	m->params = zeroed(m->local.count);
	m->grads = zeroed(m->local.count);
	for (size_t t = 0; t < m->local.tensor_count; t++) {
		size_t count = shard_pieces(m->whole, &m->local, &m->shard, t, pieces);
		for (size_t i = 0; i < count; i++)
			for (size_t row = 0; row < pieces[i].rows; row++)
				memcpy(m->params + pieces[i].local + row * pieces[i].local_stride,
				    params + pieces[i].whole + row * pieces[i].whole_stride,
				    pieces[i].columns * sizeof(double));
	}
	m->tensor = (struct model_tensor){ .rank = m->shard.rank,
		.size = m->shard.size,
		.vocab = VOCAB,
		.sum = sum_here,
		.maximum = maximum_here,
		.place = meeting_place(m->shard.size, m->shard.rank),
		.reduce_scatter = m->group->splits ? reduce_scatter_here : NULL,
		.all_gather = m->group->splits ? all_gather_here : NULL,
		.exchange = zeroed(model_exchange_numbers(&m->local, SEQUENCES)),
		.begin = m->group->behind ? begin_here : NULL,
		.end = m->group->behind ? end_here : NULL,
		.arg = m };
	if (m->group->in_turn)
		m->tensor.exchange_too = zeroed(model_exchange_numbers(&m->local, SEQUENCES));
	m->kept = zeroed(model_exchange_numbers(&m->local, SEQUENCES));
	model_bind(m->model, m->params, m->grads);
	model_use_tensor(m->model, &m->tensor);
}

static void member_stop(struct member *m)
{
	model_destroy(m->model);
	layout_finish(&m->local);
	free(m->params);
	free(m->grads);
	free(m->tensor.exchange);
	free(m->tensor.exchange_too);
	free(m->kept);
}

/* Every number of the whole gradient is in some member's, and the same; what no token stands for has none. */
static void compare(const struct member *members, unsigned size, const struct layout *whole,
    const double *grads)
{
	unsigned char *seen = calloc(whole->count, 1);
	for (unsigned k = 0; k < size; k++) {
		const struct member *m = &members[k];
		double rest = 0;
		for (size_t i = 0; i < m->local.count; i++)
			rest += fabs(m->grads[i]);
		for (size_t t = 0; t < whole->tensor_count; t++) {
			struct shard_piece pieces[SHARD_PIECES_MAX];
			size_t count = shard_pieces(whole, &m->local, &m->shard, t, pieces);
			for (size_t i = 0; i < count; i++)
				for (size_t e = 0; e < pieces[i].rows * pieces[i].columns; e++) {
					size_t row = e / pieces[i].columns,
					       column = e % pieces[i].columns;
					size_t at = pieces[i].whole + row * pieces[i].whole_stride +
					    column;
					double got = m->grads[pieces[i].local +
					    row * pieces[i].local_stride + column];
					if (!(fabs(got - grads[at]) <
					        1e-12 * fmax(1, fabs(grads[at]))))
						fail_msg("%s[%zu] of member %u: %.15g, whole %.15g",
						    whole->tensors[t].name,
						    at - whole->tensors[t].offset, k, got,
						    grads[at]);
					bool again = shard_whole(whole, &m->local, t);
					assert_true(seen[at] == 0 || again);
					seen[at] = 1;
					rest -= fabs(got);
				}
		}
		assert_true(fabs(rest) < 1e-9); /* padding and gaps */
	}
	for (size_t t = 0; t < whole->tensor_count; t++)
		for (size_t i = 0; i < layout_numbers(&whole->tensors[t]); i++)
			assert_int_equal(seen[whole->tensors[t].offset + i], 1);
	free(seen);
}

/* What follows from where parameters lie, for all microbatches. A group of one sums too, as one of two. */
static void derive(const struct group *group, const struct layout *whole, bool loss_only,
    struct meeting_calls *calls)
{
	calls->count = 0;
	for (unsigned m = 0; m < MICROBATCHES; m++)
		derive_calls(&(struct derived_work){ .config = &whole->config,
		                 .tp = group->size > 1 ? group->size : 2,
		                 .rows = (uint32_t)(sequences_of(m) *
		                     (group->splits ? SPLIT_LENGTH : LENGTH)),
		                 .layers = whole->config.layers,
		                 .embeds = true,
		                 .heads = true,
		                 .splits = group->splits,
		                 .loss_only = loss_only },
		    calls);
}

static void check_calls(const struct group *group, const struct layout *whole, bool loss_only)
{
	struct meeting_calls derived;

	derive(group, whole, loss_only, &derived);
	assert_same_calls(&group->calls, &derived);
}

/* Gradients that each member has of its rows alone. */
static void check_shared(const struct group *group, const struct layout *whole,
    const struct layout *local)
{
	struct derived_work work = { .config = &whole->config,
		.tp = group->size,
		.rows = SPLIT_LENGTH,
		.layers = whole->config.layers,
		.embeds = true,
		.heads = true,
		.splits = true };
	uint64_t numbers = 0;

	for (size_t t = 0; t < local->tensor_count; t++)
		if (shard_whole(whole, local, t))
			numbers += layout_numbers(&local->tensors[t]);
	assert_int_equal(numbers, derived_step_numbers(&work));
}

static void play_all(struct member *members, unsigned size, void *(*play_one)(void *arg))
{
	pthread_t players[MEMBERS];
	for (unsigned k = 0; k < size; k++)
		assert_int_equal(pthread_create(&players[k], NULL, play_one, &members[k]), 0);
	for (unsigned k = 0; k < size; k++)
		assert_int_equal(pthread_join(players[k], NULL), 0);
}

struct how {
	unsigned size, threads;
	bool in_turn, splits, behind;
	size_t stops;
};

/* As the whole model's. */
static void check_finished(struct member *members, struct group *group, const struct layout *whole,
    const double *grads, double loss, double loss_alone)
{
	real *all[MEMBERS];
	for (unsigned k = 0; k < group->size; k++) {
		assert_true(fabs(members[k].loss - loss) < 1e-11);
		all[k] = members[k].grads;
	}
	if (group->splits) {
		check_shared(group, whole, &members[0].local);
		meeting_sum_shared(whole, &members[0].local, all, group->size);
	}
	compare(members, group->size, whole, grads);
	check_calls(group, whole, false);
	group->calls.count = 0;
	play_all(members, group->size, play_loss);
	check_calls(group, whole, true);
	for (unsigned k = 0; k < group->size; k++)
		assert_true(fabs(members[k].loss - loss_alone) < 1e-11);
}

static void together(const struct model_config *shape, const struct how *how)
{
	struct model_config config = *shape;
	unsigned size = how->size;
	size_t length = how->splits ? SPLIT_LENGTH : LENGTH;
	struct group group = { .size = size,
		.in_turn = how->in_turn,
		.splits = how->splits,
		.behind = how->behind,
		.stops = how->stops };
	struct member members[MEMBERS];
	struct pool *pools[MEMBERS], *pool;
	int32_t inputs[MICROBATCHES * SEQUENCES * LENGTH],
	    targets[MICROBATCHES * SEQUENCES * LENGTH];
	struct layout whole;
	struct model *model;
	double loss, loss_alone;

	config.context = CONTEXT;
	config.vocab = VOCAB;
	assert_int_equal(layout_init(&config, &whole, NULL), TR_OK);
	assert_int_equal(pool_create(1, &pool, NULL), TR_OK);
	assert_int_equal(model_create(&whole, SEQUENCES, pool, &model, NULL), TR_OK);
	double *params = zeroed(whole.count), *grads = zeroed(whole.count);
	model_init_params(&whole, 5, params);
	for (size_t t = 0; t < whole.tensor_count; t++)
		for (size_t i = 0; i < layout_numbers(&whole.tensors[t]); i++)
			params[whole.tensors[t].offset + i] += 0.2 *
			    sin((double)(i * 7 + t * 13)); /* away from the start's symmetries */
	for (size_t i = 0; i < MICROBATCHES * SEQUENCES * LENGTH; i++) {
		inputs[i] = (int32_t)rng_below(rng_key(2, 0, 0), 0, i, VOCAB);
		targets[i] = (int32_t)rng_below(rng_key(3, 0, 0), 0, i, VOCAB);
	}
	model_bind(model, params, grads);
	assert_int_equal(model_use_dropout(model, dropout, 3, NULL), TR_OK);
	assert_true(run(model, inputs, targets, length, false, &loss));
	assert_true(run(model, inputs, targets, length, true, &loss_alone));
	assert_true((fabs(loss - loss_alone) > 1e-3) == (dropout > 0));

	assert_int_equal(pthread_barrier_init(&group.barrier, NULL, size), 0);
	for (unsigned k = 0; k < size; k++) {
		members[k] = (struct member){ .group = &group,
			.whole = &whole,
			.shard = { .rank = k, .size = size },
			.inputs = inputs,
			.targets = targets };
		assert_int_equal(pool_create(how->threads, &pools[k], NULL), TR_OK);
		member_start(&members[k], params, pools[k]);
	}
	play_all(members, size, play);
	for (unsigned k = 0; k < size; k++)
		assert_int_equal(members[k].finished, how->stops == 0);
	if (how->stops == 0)
		check_finished(members, &group, &whole, grads, loss, loss_alone);
	for (unsigned k = 0; k < size; k++) {
		member_stop(&members[k]);
		pool_destroy(pools[k]);
	}
	pthread_barrier_destroy(&group.barrier);
	model_destroy(model);
	pool_destroy(pool);
	layout_finish(&whole);
	free(params);
	free(grads);
}

static void test_shards_make_up_the_whole(void **state)
{
	for (unsigned size = 1; size <= MEMBERS; size++)
		for (unsigned threads = 1; size != 3 && threads <= 3; threads += 2)
			for (unsigned behind = 0; behind < 2; behind++)
				together(*state,
				    &(struct how){ size, threads, behind > 0 || threads == 1, false,
				        behind > 0, 0 });
}

static void test_sequence_parallel(void **state)
{
	for (unsigned size = 2; size <= MEMBERS; size += 2)
		for (unsigned threads = 1; threads <= 3; threads += 2)
			for (unsigned behind = 0; behind < 2; behind++)
				together(*state,
				    &(struct how){ size, threads, true, true, behind > 0, 0 });
}

/* What is left out is the same at all, of the stream's rows and of each member's own heads. */
static void test_dropout(void **state)
{
	dropout = 0.3;
	test_shards_make_up_the_whole(state);
	test_sequence_parallel(state);
	dropout = 0;
}

/* A group that says stop ends the batch at all its members. */
static void test_stops(void **state)
{
	struct layout whole;
	struct model_config config = *(const struct model_config *)*state;
	config.context = CONTEXT;
	config.vocab = VOCAB;
	assert_int_equal(layout_init(&config, &whole, NULL), TR_OK);
	for (unsigned splits = 0; splits < 2; splits++) {
		struct meeting_calls calls;
		derive(&(struct group){ .size = 2, .splits = splits == 1 }, &whole, false, &calls);
		assert_true(calls.count > 0);
		for (size_t at = 1; at <= calls.count; at++)
			together(&config, &(struct how){ 2, 1, true, splits == 1, at % 2 == 0, at });
	}
	layout_finish(&whole);
}

static void count(void *arg)
{
	++*(size_t *)arg;
}

/* A shard begins with the numbers that it would have of the whole. */
static void test_init_does_not_depend_on_the_layout(void **state)
{
	struct model_config config = *(const struct model_config *)*state;
	struct layout whole;
	config.context = CONTEXT;
	config.vocab = VOCAB;
	assert_int_equal(layout_init(&config, &whole, NULL), TR_OK);
	double *params = zeroed(whole.count);
	model_init_params(&whole, 9, params);
	for (unsigned k = 0; k < MEMBERS; k++) {
		struct shard shard = { .rank = k, .size = MEMBERS };
		struct shard_piece pieces[SHARD_PIECES_MAX];
		struct layout local;
		assert_int_equal(shard_layout(&whole, &shard, &local, NULL), TR_OK);
		double *mine = zeroed(local.count);
		size_t words = 0;
		model_init_shard(&whole, &local, &shard, 9,
		    &(struct progress){ count, &words, NULL }, mine);
		assert_true(words >= local.config.layers * local.config.width);
		for (size_t t = 0; t < whole.tensor_count; t++) {
			size_t count = shard_pieces(&whole, &local, &shard, t, pieces);
			for (size_t i = 0; i < count; i++)
				for (size_t row = 0; row < pieces[i].rows; row++)
					assert_memory_equal(mine + pieces[i].local +
					        row * pieces[i].local_stride,
					    params + pieces[i].whole + row * pieces[i].whole_stride,
					    pieces[i].columns * sizeof(double));
		}
		free(mine);
		layout_finish(&local);
	}
	free(params);
	layout_finish(&whole);
}

#define WITH(test, i)                                                         \
	{                                                                     \
#test " of config " #i, test, NULL, NULL, (void *)&configs[i] \
	}
#define EACH(test) WITH(test, 0), WITH(test, 1), WITH(test, 2), WITH(test, 3)

int main(void)
{
	const struct CMUnitTest tests[] = {
		EACH(test_shards_make_up_the_whole),
		EACH(test_sequence_parallel),
		EACH(test_dropout),
		EACH(test_stops),
		EACH(test_init_does_not_depend_on_the_layout),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
