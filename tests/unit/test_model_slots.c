/* A model in chunks with several microbatches in flight, against the whole one that takes them one after another, in double: the same bits, recomputed or not,
 * in any order of forward passes, and in exactly the memory that was put aside. A tied table with a copy in another chunk differs in the order of its sum. */
#include "tests/unit/model_in_double.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum {
	LAYERS = 5,
	MICROBATCHES = 4,
	SEQUENCES = 3,
	LENGTH = 9,
	CONTEXT = 10,
	VOCAB = 23,
	RANKS = 3
};

static const struct model_config configs[] = {
	{ .preset = MODEL_GPT2, .width = 12, .heads = 3 },
	{ .preset = MODEL_GPT2, .width = 10, .heads = 1, .head_width = 3, .hidden = 7 },
	{ .preset = MODEL_LLAMA, .width = 12, .heads = 6, .kv_heads = 2, .hidden = 10 },
	{ .preset = MODEL_LLAMA, .width = 16, .heads = 4, .hidden = 5, .untied = true },
};

/* Layers of the stages of so many ranks with so many chunks. */
static const struct split {
	uint32_t ranks, chunks, stage_layers[6];
} splits[] = {
	{ 1, 1, { 5 } },
	{ 2, 1, { 2, 3 } },
	{ 3, 1, { 0, 5, 0 } },
	{ 3, 1, { 4, 0, 1 } },
	{ 2, 3, { 1, 1, 1, 0, 1, 1 } },
};

struct rank {
	struct layout local;
	struct shard shard;
	struct model *model;
	double *params, *grads;
};

struct fixture {
	struct model_config config;
	struct layout whole;
	struct pool *pool;
	struct model *model;
	double *params, *grads, loss;
	const struct split *split;
	struct rank ranks[RANKS];
	struct model_batch batches[MICROBATCHES];
	int32_t tokens[2][MICROBATCHES][SEQUENCES * LENGTH];
	/* Between stages: [stage][microbatch], what it gets and that one's gradient. */
	double *streams[7][MICROBATCHES], *gradients[7][MICROBATCHES];
	struct model_slot *slots[6][MICROBATCHES];
};

static double *zeroed(size_t numbers)
{
	double *made = aligned_alloc(64, (numbers + 7) / 8 * 64);
	assert_non_null(made);
	memset(made, 0, (numbers + 7) / 8 * 64);
	return made;
}

/* Of the last microbatch one sequence and a token less. */
static void fill_batches(struct fixture *f)
{
	for (size_t m = 0; m < MICROBATCHES; m++) {
		for (size_t i = 0; i < SEQUENCES * LENGTH; i++)
			for (size_t k = 0; k < 2; k++)
				f->tokens[k][m][i] = (int32_t)rng_below(rng_key(2, k, m), 0, i,
				    VOCAB);
		bool last = m + 1 == MICROBATCHES;
		f->batches[m] = (struct model_batch){ f->tokens[0][m], f->tokens[1][m],
			SEQUENCES - last, LENGTH - last, NULL };
	}
}

static void start_whole(struct fixture *f, unsigned threads)
{
	f->config.layers = LAYERS;
	f->config.context = CONTEXT;
	f->config.vocab = VOCAB;
	assert_int_equal(layout_init(&f->config, &f->whole, NULL), TR_OK);
	assert_int_equal(pool_create(threads, &f->pool, NULL), TR_OK);
	assert_int_equal(model_create(&f->whole, SEQUENCES, f->pool, &f->model, NULL), TR_OK);
	f->params = zeroed(f->whole.count);
	f->grads = zeroed(f->whole.count);
	model_init_params(&f->whole, 5, f->params);
	for (size_t t = 0; t < f->whole.tensor_count; t++)
		for (size_t i = 0; i < layout_numbers(&f->whole.tensors[t]); i++)
			f->params[f->whole.tensors[t].offset + i] += 0.2 *
			    sin((double)(i * 7 + t * 13));
	model_bind(f->model, f->params, f->grads);
	for (size_t m = 0; m < MICROBATCHES; m++) {
		const struct model_batch *b = &f->batches[m];
		double loss;
		assert_true(model_gradient(f->model, b->inputs, b->targets, b->sequences, b->length,
		    NULL, &loss));
		f->loss += loss;
	}
}

/* Parameters of the whole that are there too, the same number of the tensor. */
static void copy_params(const struct fixture *f, struct rank *r)
{
	for (size_t t = 0; t < r->local.tensor_count; t++) {
		const struct layout_tensor *l = &r->local.tensors[t];
		memcpy(r->params + l->offset, f->params + f->whole.tensors[l->number].offset,
		    layout_numbers(l) * sizeof(double));
	}
}

static void start_rank(struct fixture *f, uint32_t rank, bool recompute)
{
	struct rank *r = &f->ranks[rank];
	struct model_room room = { .recompute = recompute };
	r->shard = (struct shard){ .rank = 0, .size = 1 };
	layout_depth_of(f->split->stage_layers, f->split->ranks, f->split->chunks, rank,
	    &r->shard.depth);
	assert_int_equal(shard_layout(&f->whole, &r->shard, &r->local, NULL), TR_OK);
	for (uint32_t c = 0; c < f->split->chunks; c++)
		model_room_add(&room, &r->local, c, MICROBATCHES);
	assert_int_equal(model_create_room(&r->local, &room, SEQUENCES, f->pool, &r->model, NULL),
	    TR_OK);
	r->params = zeroed(r->local.count);
	r->grads = zeroed(r->local.count);
	copy_params(f, r);
	model_bind(r->model, r->params, r->grads);
}

static void setup(struct fixture *f, const struct model_config *shape, const struct split *split,
    unsigned threads, bool recompute)
{
	memset(f, 0, sizeof(*f));
	f->config = *shape;
	f->split = split;
	fill_batches(f);
	start_whole(f, threads);
	for (uint32_t rank = 0; rank < split->ranks; rank++)
		start_rank(f, rank, recompute);
	for (uint32_t stage = 1; stage < split->ranks * split->chunks; stage++)
		for (size_t m = 0; m < MICROBATCHES; m++) {
			f->streams[stage][m] = zeroed((size_t)SEQUENCES * CONTEXT * f->config.width);
			f->gradients[stage][m] = zeroed(
			    (size_t)SEQUENCES * CONTEXT * f->config.width);
		}
}

static void teardown(struct fixture *f)
{
	for (uint32_t rank = 0; rank < f->split->ranks; rank++) {
		struct rank *r = &f->ranks[rank];
		model_destroy(r->model);
		layout_finish(&r->local);
		free(r->params);
		free(r->grads);
	}
	for (size_t stage = 0; stage < 7; stage++)
		for (size_t m = 0; m < MICROBATCHES; m++) {
			free(f->streams[stage][m]);
			free(f->gradients[stage][m]);
		}
	model_destroy(f->model);
	pool_destroy(f->pool);
	layout_finish(&f->whole);
	free(f->params);
	free(f->grads);
}

static struct model *model_of(const struct fixture *f, size_t stage)
{
	return f->ranks[stage % f->split->ranks].model;
}

static void forward(struct fixture *f, size_t stage, size_t m)
{
	f->slots[stage][m] = model_slot_take(model_of(f, stage), stage / f->split->ranks,
	    &f->batches[m], f->streams[stage][m], f->streams[stage + 1][m]);
	assert_true(model_slot_forward(model_of(f, stage), f->slots[stage][m], NULL));
}

static double backward(struct fixture *f, size_t stage, size_t m)
{
	double loss = 0;
	assert_true(model_slot_backward(model_of(f, stage), f->slots[stage][m],
	    f->gradients[stage + 1][m], f->gradients[stage][m], NULL, &loss));
	model_slot_give(model_of(f, stage), f->slots[stage][m]);
	return loss;
}

/* `sideways`: all microbatches through a stage, from the last one on, before the next stage; then back. The backward passes of each stage are in ascending order. */
static double run(struct fixture *f, bool sideways)
{
	size_t stages = f->split->ranks * f->split->chunks;
	double loss = 0;
	for (size_t i = 0; i < stages * MICROBATCHES; i++)
		if (sideways)
			forward(f, i / MICROBATCHES, MICROBATCHES - 1 - i % MICROBATCHES);
		else
			forward(f, i % stages, i / stages);
	/* What a stage has sent is no longer its own. */
	for (size_t stage = stages; stage-- > 0;)
		for (size_t m = 0; m < MICROBATCHES; m++) {
			for (size_t i = 0; f->streams[stage + 1][m] != NULL &&
			     i < (size_t)SEQUENCES * CONTEXT * f->config.width;
			     i++)
				f->streams[stage + 1][m][i] = NAN;
			loss += backward(f, stage, m);
		}
	return loss;
}

static void compare(const struct fixture *f, double loss)
{
	assert_true(loss == f->loss);
	double *tables = zeroed((size_t)VOCAB * f->config.width);
	bool copied = false;
	for (uint32_t rank = 0; rank < f->split->ranks; rank++) {
		const struct rank *r = &f->ranks[rank];
		size_t table, numbers;
		bool copy = layout_copied_table(&r->local, &table, &numbers);
		for (size_t i = 0; copy && i < numbers; i++)
			tables[i] += r->grads[table + i];
		copied |= copy;
		for (size_t t = 0; t < r->local.tensor_count; t++) {
			const struct layout_tensor *l = &r->local.tensors[t];
			if (!copy || l->offset != table)
				assert_memory_equal(r->grads + l->offset,
				    f->grads + f->whole.tensors[l->number].offset,
				    layout_numbers(l) * sizeof(double));
		}
	}
	for (size_t i = 0; copied && i < (size_t)VOCAB * f->config.width; i++)
		assert_true(fabs(tables[i] - f->grads[f->whole.tokens + i]) < 1e-12);
	free(tables);
}

static void test_the_same_bits(void **state)
{
	struct fixture f;
	for (size_t s = 0; s < sizeof(splits) / sizeof(splits[0]); s++)
		for (unsigned variant = 0; variant < 8; variant++) {
			bool recompute = (variant & 1) != 0, sideways = (variant & 2) != 0;
			setup(&f, *state, &splits[s], variant & 4 ? 3 : 1, recompute);
			compare(&f, run(&f, sideways));
			teardown(&f);
		}
}

/* The loss alone, and that slots are whole again after a stop. */
static void test_loss_and_stop(void **state)
{
	struct fixture f;
	double loss = 0;
	setup(&f, *state, &splits[4], 2, false);
	for (size_t round = 0; round < 2; round++) {
		loss = 0;
		for (size_t m = 0; m < MICROBATCHES; m++) {
			for (size_t stage = 0; stage < 6; stage++)
				forward(&f, stage, m);
			double part;
			assert_true(model_slot_loss(model_of(&f, 5), f.slots[5][m], &part));
			loss += part;
		}
		for (size_t stage = 0; stage < 6; stage++)
			for (size_t m = 0; m < MICROBATCHES; m++)
				model_slot_give(model_of(&f, stage), f.slots[stage][m]);
	}
	assert_true(loss == f.loss);
	teardown(&f);
}

/* Memory of the slots is what they keep: of a layer 12 widths and a few numbers a row (GPT-2 with hidden = 4 width), or one width. */
static void test_bytes(void **state)
{
	const struct model_config *config = *state;
	struct fixture f;
	for (unsigned recompute = 0; recompute < 2; recompute++) {
		setup(&f, config, &splits[1], 1, recompute != 0);
		const struct model_config *c = &f.whole.config;
		size_t rows = (size_t)SEQUENCES * CONTEXT, C = c->width;
		size_t row = 3 * C + model_qkv(c) + model_queries(c) + model_up(c) + 2 * c->heads +
		    4;
		for (uint32_t rank = 0; rank < 2; rank++) {
			/* Streams: inside the chunk, and the embedding or the head's input. */
			size_t layers = splits[1].stage_layers[rank];
			size_t want = MICROBATCHES * rows * layers * (C + (recompute ? 0 : row)) *
			    sizeof(double);
			size_t got = model_bytes(f.ranks[rank].model).slots;
			/* Each array is rounded up to 16 numbers. */
			assert_true(got >= want &&
			    got <= want + MICROBATCHES * layers * 13 * 16 * sizeof(double));
		}
		teardown(&f);
	}
}

#define WITH(test, i)                                                         \
	{                                                                     \
#test " of config " #i, test, NULL, NULL, (void *)&configs[i] \
	}
#define EACH(test) WITH(test, 0), WITH(test, 1), WITH(test, 2), WITH(test, 3)
_Static_assert(sizeof(configs) / sizeof(configs[0]) == 4, "each has its tests");

int main(void)
{
	const struct CMUnitTest tests[] = {
		EACH(test_the_same_bits),
		EACH(test_loss_and_stop),
		EACH(test_bytes),
	};
	gemm_setup();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
