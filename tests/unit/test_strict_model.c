/* A model cut into parts whatever the layout (daemon/worker/virtual.h): loss and gradients of one worker that plays all eight members against those of two, four and eight that share them, in threads that
 * meet at each sum, and against two stages; with one thread and with three; all to the bit. And the whole model's, to rounding.
 */
#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/rng.h"
#include "daemon/checkpoint/shard_cut.h"
#include "daemon/plan/strict.h"
#include "daemon/worker/virtual.h"

enum { SEQUENCES = 3, MICROBATCHES = 2, LENGTH = 16, PARTS = 8, VOCAB = 40 };

static const struct model_config configs[] = {
	{ .preset = MODEL_GPT2, .layers = 3, .width = 40, .heads = 8, .hidden = 48 },
	{ .preset = MODEL_LLAMA, .layers = 3, .width = 32, .heads = 16, .kv_heads = 8, .hidden = 24 },
	{ .preset = MODEL_LLAMA, .layers = 3, .width = 32, .heads = 8, .hidden = 56, .untied = true },
};

/* One of a tensor-parallel group. */
struct worker {
	struct group *group;
	struct shard shard;
	struct layout layout;
	struct pool *pool;
	struct model *model;
	struct model_tensor tensor;
	float *params, *grads;
	double loss;
	bool finished;
};

struct group {
	unsigned size;
	pthread_barrier_t barrier;
	float *arrays[PARTS];
	struct worker workers[PARTS];
	bool recompute;
	unsigned calls, stops; /* with this call; 0: none */
};

static int32_t inputs[MICROBATCHES][SEQUENCES * LENGTH], targets[MICROBATCHES][SEQUENCES * LENGTH];

static double dropout; /* of all models */
static const uint64_t samples[MICROBATCHES][SEQUENCES] = { { 1, 2, 3 }, { 4, 6, 5 } };

static void *zeroed(size_t numbers)
{
	size_t bytes = (numbers * sizeof(float) + 63) / 64 * 64;
	void *made = aligned_alloc(64, bytes);
	assert_non_null(made);
	memset(made, 0, bytes);
	return made;
}

/* The tree of workers' numbers: pairs, then pairs of pairs. */
static float tree(float *const *arrays, unsigned first, unsigned count, size_t i)
{
	if (count == 1)
		return arrays[first][i];
	return tree(arrays, first, count / 2, i) + tree(arrays, first + count / 2, count / 2, i);
}

enum kind { SUM, MAXIMUM, SCATTER, GATHER };

static float number(const struct group *g, enum kind kind, size_t i, size_t count, unsigned rank)
{
	float most = g->arrays[0][i];
	if (kind == SCATTER && i * g->size / count != rank)
		return NAN; /* nothing to read */
	if (kind == SUM || kind == SCATTER)
		return tree(g->arrays, 0, g->size, i);
	if (kind == GATHER)
		return g->arrays[i * g->size / count][i];
	for (unsigned k = 1; k < g->size; k++)
		most = g->arrays[k][i] > most ? g->arrays[k][i] : most;
	return most;
}

static bool meet(struct worker *w, float *data, size_t count, enum kind kind)
{
	struct group *g = w->group;
	float *made = malloc(count * sizeof(*made));
	g->arrays[w->shard.rank] = data;
	pthread_barrier_wait(&g->barrier);
	for (size_t i = 0; i < count; i++)
		made[i] = number(g, kind, i, count, w->shard.rank);
	if (w->shard.rank == 0)
		g->calls++;
	pthread_barrier_wait(&g->barrier);
	memcpy(data, made, count * sizeof(*made));
	free(made);
	bool goes_on = g->stops == 0 || g->calls != g->stops;
	pthread_barrier_wait(&g->barrier);
	return goes_on;
}

static bool sum_here(void *arg, float *data, size_t count)
{
	return meet(arg, data, count, SUM);
}

static bool maximum_here(void *arg, float *data, size_t count)
{
	return meet(arg, data, count, MAXIMUM);
}

static bool reduce_scatter_here(void *arg, float *data, size_t count)
{
	assert_int_equal(count % PARTS, 0);
	return meet(arg, data, count, SCATTER);
}

static bool all_gather_here(void *arg, float *data, size_t count)
{
	assert_int_equal(count % PARTS, 0);
	return meet(arg, data, count, GATHER);
}

static void *play(void *arg)
{
	struct worker *w = arg;
	w->finished = false;
	w->loss = 0;
	model_part_begin(w->model);
	for (unsigned i = 0; i < MICROBATCHES; i++) {
		struct model_batch batch = { inputs[i], targets[i], SEQUENCES, LENGTH, samples[i] };
		double loss;
		if (!model_gradient_of(w->model, &batch, NULL, &loss))
			return NULL;
		w->loss += loss;
	}
	w->finished = model_part_end(w->model);
	return NULL;
}

static void worker_start(struct worker *w, const struct layout *whole, const float *params,
    unsigned threads)
{
	unsigned size = w->group->size;
	struct model_room how = { .recompute = w->group->recompute,
		.row_parts = size,
		.members = PARTS / size };
	assert_int_equal(shard_layout(whole, &w->shard, &w->layout, NULL), TR_OK);
	assert_int_equal(pool_create_parts(threads, STRICT_THREADS, &w->pool, NULL), TR_OK);
	assert_int_equal(model_create_whole(&w->layout, &how, SEQUENCES, w->pool, &w->model, NULL),
	    TR_OK);
	assert_int_equal(model_use_dropout(w->model, dropout, 9, NULL), TR_OK);
	w->params = zeroed(w->layout.count);
	w->grads = zeroed(w->layout.count + shard_cut_table_numbers(&w->layout));
	shard_take(whole, &w->layout, &w->shard, params, w->params);
	size_t numbers = model_exchange_numbers(&w->layout, SEQUENCES);
	w->tensor = (struct model_tensor){ .rank = w->shard.rank,
		.place = w->shard.rank,
		.size = size,
		.vocab = whole->config.vocab,
		.sum = sum_here,
		.maximum = maximum_here,
		.reduce_scatter = reduce_scatter_here,
		.all_gather = all_gather_here,
		.exchange = zeroed(numbers),
		.exchange_too = zeroed(numbers),
		.arg = w };
	model_bind(w->model, w->params, w->grads);
	if (size > 1)
		model_use_tensor(w->model, &w->tensor);
}

static void worker_stop(struct worker *w)
{
	model_destroy(w->model);
	pool_destroy(w->pool);
	layout_finish(&w->layout);
	free(w->params);
	free(w->grads);
	free(w->tensor.exchange);
	free(w->tensor.exchange_too);
}

/* Gradients of the whole, with the head's of a tied table behind them, as `size` workers make them. Returns the loss. */
static double gradient_of(const struct layout *whole, const float *params, unsigned size,
    unsigned threads, bool recompute, float *grads)
{
	struct group *g = calloc(1, sizeof(*g));
	pthread_t players[PARTS];
	*g = (struct group){ .size = size, .recompute = recompute };
	assert_int_equal(pthread_barrier_init(&g->barrier, NULL, size), 0);
	for (unsigned k = 0; k < size; k++) {
		g->workers[k].group = g;
		g->workers[k].shard = (struct shard){ .rank = k, .size = size };
		worker_start(&g->workers[k], whole, params, threads);
	}
	for (unsigned k = 0; k < size; k++)
		assert_int_equal(pthread_create(&players[k], NULL, play, &g->workers[k]), 0);
	for (unsigned k = 0; k < size; k++)
		assert_int_equal(pthread_join(players[k], NULL), 0);
	double loss = g->workers[0].loss;
	for (unsigned k = 0; k < size; k++) {
		struct worker *w = &g->workers[k];
		size_t table = whole->config.untied
		    ? 0
		    : whole->config.vocab / size * whole->config.width;
		assert_true(w->finished);
		assert_memory_equal(&w->loss, &loss, sizeof(loss));
		shard_put(whole, &w->layout, &w->shard, w->grads, grads);
		memcpy(grads + whole->count + k * table, w->grads + w->layout.count,
		    table * sizeof(*grads));
		worker_stop(w);
	}
	pthread_barrier_destroy(&g->barrier);
	free(g);
	return loss;
}

static void prepare(const void *state, struct layout *whole, float **params)
{
	struct model_config config = *(const struct model_config *)state;
	config.context = LENGTH;
	config.vocab = VOCAB;
	assert_int_equal(layout_init(&config, whole, NULL), TR_OK);
	assert_int_equal(strict_width_parts(&whole->config), PARTS);
	*params = zeroed(whole->count);
	model_init_params(whole, 5, *params);
	for (size_t t = 0; t < whole->tensor_count; t++)
		for (size_t i = 0; i < layout_numbers(&whole->tensors[t]); i++)
			(*params)[whole->tensors[t].offset + i] += 0.2f *
			    sinf((float)(i * 7 + t * 13)); /* away from the start's symmetries */
	for (size_t m = 0; m < MICROBATCHES; m++)
		for (size_t i = 0; i < SEQUENCES * LENGTH; i++) {
			inputs[m][i] = (int32_t)rng_below(rng_key(2, m, 0), 0, i, VOCAB);
			targets[m][i] = (int32_t)rng_below(rng_key(3, m, 0), 0, i, VOCAB);
		}
}

static void assert_same_bits(const struct layout *whole, const float *one, const float *other,
    unsigned size)
{
	size_t count = whole->count + shard_cut_table_numbers(whole);
	for (size_t i = 0; i < count; i++)
		if (memcmp(&one[i], &other[i], sizeof(one[i])) != 0)
			fail_msg("number %zu of %zu: %.9g of one worker, %.9g of %u", i,
			    whole->count, (double)one[i], (double)other[i], size);
}

static void test_layouts_have_the_same_bits(void **state)
{
	struct layout whole;
	float *params;
	prepare(*state, &whole, &params);
	size_t count = whole.count + shard_cut_table_numbers(&whole);
	float *one = zeroed(count), *other = zeroed(count);
	double loss = gradient_of(&whole, params, 1, 1, false, one);
	for (unsigned size = 1; size <= PARTS; size *= 2)
		for (unsigned threads = 1; threads <= 3; threads += 2)
			for (int recompute = 0; recompute < 2; recompute++) {
				memset(other, 0, count * sizeof(*other));
				double its = gradient_of(&whole, params, size, threads,
				    recompute != 0, other);
				assert_memory_equal(&its, &loss, sizeof(loss));
				assert_same_bits(&whole, one, other, size);
			}
	free(one);
	free(other);
	free(params);
	layout_finish(&whole);
}

/* Of the model as it is without parts, whose sums are made in another order. */
static void test_as_the_whole_model(void **state)
{
	struct layout whole;
	struct pool *pool;
	struct model *model;
	float *params;
	prepare(*state, &whole, &params);
	size_t table = shard_cut_table_numbers(&whole);
	float *parts = zeroed(whole.count + table), *plain = zeroed(whole.count);
	double loss = gradient_of(&whole, params, 1, 1, false, parts), sum = 0;
	for (size_t i = 0; i < table; i++)
		parts[whole.tokens + i] += parts[whole.count + i];
	assert_int_equal(pool_create(1, &pool, NULL), TR_OK);
	assert_int_equal(model_create(&whole, SEQUENCES, pool, &model, NULL), TR_OK);
	model_bind(model, params, plain);
	assert_int_equal(model_use_dropout(model, dropout, 9, NULL), TR_OK);
	for (unsigned m = 0; m < MICROBATCHES; m++) {
		struct model_batch batch = { inputs[m], targets[m], SEQUENCES, LENGTH, samples[m] };
		double its;
		assert_true(model_gradient_of(model, &batch, NULL, &its));
		sum += its;
	}
	assert_true(fabs(sum - loss) < 1e-5 * sum);
	float largest = 0;
	for (size_t i = 0; i < whole.count; i++)
		largest = fmaxf(largest, fabsf(plain[i]));
	for (size_t i = 0; i < whole.count; i++)
		if (!(fabsf(plain[i] - parts[i]) < 1e-5f * largest))
			fail_msg("number %zu: %.9g, in parts %.9g; the largest is %.9g", i,
			    (double)plain[i], (double)parts[i], (double)largest);
	model_destroy(model);
	pool_destroy(pool);
	free(params);
	free(parts);
	free(plain);
	layout_finish(&whole);
}

/* ---- the norm ---- */

/* It is added up piece by piece (sharded_strict.c): those of a part are the same whoever has it. */
static void test_pieces_are_the_same(void **state)
{
	struct layout whole;
	float *params;
	prepare(*state, &whole, &params);
	struct shard_cut expected, cut;
	assert_int_equal(shard_cut_init(&whole, PARTS, &expected, NULL), TR_OK);
	for (uint32_t size = 2; size <= PARTS; size *= 2)
		for (uint32_t part = 0; part < PARTS; part++) {
			struct shard shard = { .rank = part / (PARTS / size), .size = size };
			struct layout local;
			assert_int_equal(shard_layout(&whole, &shard, &local, NULL), TR_OK);
			assert_int_equal(shard_cut_init(&local, PARTS / size, &cut, NULL), TR_OK);
			for (size_t t = 0; t < shard_cut_tensors(&cut); t++) {
				struct shard_piece its[SHARD_PIECES_MAX], those[SHARD_PIECES_MAX];
				size_t count = shard_cut_pieces(&expected, part, t, true, those);
				assert_int_equal(shard_cut_pieces(&cut, part % (PARTS / size), t,
				                     true, its),
				    count);
				for (size_t i = 0; i < count; i++) {
					assert_int_equal(its[i].rows, those[i].rows);
					assert_int_equal(its[i].columns, those[i].columns);
					assert_int_equal(its[i].local, those[i].local);
				}
			}
			shard_cut_finish(&cut);
			layout_finish(&local);
		}
	shard_cut_finish(&expected);
	free(params);
	layout_finish(&whole);
}

/* ---- stages ---- */

/* Layers [0, 1) and [1, 3), of all parts; microbatches one after the other. */
static void run_stages(struct model *first, struct model *last, size_t width, double *loss)
{
	size_t numbers = SEQUENCES * LENGTH * width;
	float *stream = zeroed(numbers), *gradient = zeroed(numbers);
	*loss = 0;
	model_part_begin(first);
	model_part_begin(last);
	for (unsigned m = 0; m < MICROBATCHES; m++) {
		struct model_batch batch = { inputs[m], targets[m], SEQUENCES, LENGTH, samples[m] };
		double its;
		struct model_slot *front = model_slot_take(first, 0, &batch, NULL, stream);
		assert_true(model_slot_forward(first, front, NULL));
		struct model_slot *back = model_slot_take(last, 0, &batch, stream, NULL);
		assert_true(model_slot_forward(last, back, NULL));
		assert_true(model_slot_backward(last, back, NULL, gradient, NULL, &its));
		assert_true(model_slot_backward(first, front, gradient, NULL, NULL, NULL));
		model_slot_give(first, front);
		model_slot_give(last, back);
		*loss += its;
	}
	assert_true(model_part_end(first) && model_part_end(last));
	free(stream);
	free(gradient);
}

static void test_stages_have_the_same_bits(void **state)
{
	const uint32_t layers[2] = { 1, 2 };
	struct layout whole, layouts[2];
	struct model *models[2];
	struct pool *pool;
	float *params, *mine[2], *grads[2];
	double loss;
	prepare(*state, &whole, &params);
	size_t table = shard_cut_table_numbers(&whole), count = whole.count + table;
	float *one = zeroed(count), *both = zeroed(count);
	double expected = gradient_of(&whole, params, 1, 1, false, one);
	assert_int_equal(pool_create_parts(2, STRICT_THREADS, &pool, NULL), TR_OK);
	for (uint32_t k = 0; k < 2; k++) {
		struct shard shard = { .size = 1 };
		struct model_room room = { .members = PARTS };
		layout_depth_of(layers, 2, 1, k, &shard.depth);
		assert_int_equal(shard_layout(&whole, &shard, &layouts[k], NULL), TR_OK);
		model_room_add(&room, &layouts[k], 0, 1);
		assert_int_equal(model_create_room(&layouts[k], &room, SEQUENCES, pool, &models[k],
		                     NULL),
		    TR_OK);
		assert_int_equal(model_use_dropout(models[k], dropout, 9, NULL), TR_OK);
		mine[k] = zeroed(layouts[k].count);
		grads[k] = zeroed(layouts[k].count);
		shard_take(&whole, &layouts[k], &shard, params, mine[k]);
		model_bind(models[k], mine[k], grads[k]);
	}
	run_stages(models[0], models[1], whole.config.width, &loss);
	assert_memory_equal(&loss, &expected, sizeof(loss));
	for (uint32_t k = 2; k-- > 0;) { /* the first stage's table last */
		struct shard shard = { .size = 1, .depth = layouts[k].depth };
		shard_put(&whole, &layouts[k], &shard, grads[k], both);
	}
	if (table > 0)
		memcpy(both + whole.count, grads[1] + layouts[1].head,
		    (size_t)VOCAB * whole.config.width * sizeof(*both));
	assert_same_bits(&whole, one, both, 2);
	for (uint32_t k = 0; k < 2; k++) {
		model_destroy(models[k]);
		layout_finish(&layouts[k]);
		free(mine[k]);
		free(grads[k]);
	}
	pool_destroy(pool);
	free(one);
	free(both);
	free(params);
	layout_finish(&whole);
}

static void test_dropout(void **state)
{
	dropout = 0.3;
	test_layouts_have_the_same_bits(state);
	test_as_the_whole_model(state);
	test_stages_have_the_same_bits(state);
	dropout = 0;
}

/* Where the group stops, all members do, and the next batch is none the worse for it. */
static void test_stops(void **state)
{
	struct layout whole;
	struct group *g = calloc(1, sizeof(*g));
	struct worker *w = &g->workers[0];
	float *params;
	prepare(*state, &whole, &params);
	float *one = zeroed(whole.count + shard_cut_table_numbers(&whole));
	(void)gradient_of(&whole, params, 1, 1, false, one);
	/* A group of one, with the calls of one that there are others in. */
	*g = (struct group){ .size = 1 };
	assert_int_equal(pthread_barrier_init(&g->barrier, NULL, 1), 0);
	w->group = g;
	w->shard = (struct shard){ .size = 1 };
	worker_start(w, &whole, params, 1);
	model_use_tensor(w->model, &w->tensor);
	play(w);
	assert_true(w->finished);
	unsigned calls = g->calls;
	assert_true(calls > 8 * whole.config.layers * MICROBATCHES);
	for (unsigned at = 1; at <= calls; at++) {
		g->calls = 0;
		g->stops = at;
		play(w);
		assert_false(w->finished);
		assert_int_equal(g->calls, at);
	}
	g->stops = 0;
	play(w);
	assert_true(w->finished);
	assert_memory_equal(w->grads, one, whole.count * sizeof(*one));
	worker_stop(w);
	pthread_barrier_destroy(&g->barrier);
	free(g);
	free(one);
	free(params);
	layout_finish(&whole);
}

#define WITH(test, i)                                                         \
	{                                                                     \
#test " of config " #i, test, NULL, NULL, (void *)&configs[i] \
	}
#define EACH(test) WITH(test, 0), WITH(test, 1), WITH(test, 2)

int main(void)
{
	const struct CMUnitTest tests[] = {
		EACH(test_layouts_have_the_same_bits),
		EACH(test_as_the_whole_model),
		EACH(test_pieces_are_the_same),
		EACH(test_stages_have_the_same_bits),
		EACH(test_dropout),
		EACH(test_stops),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
