/* What the planner says that a worker needs (daemon/plan/memory.h) against what the trainer's model really allocates for each rank of a pipeline (slots.h, pipeline.h): within
 * 5 %, for schedules, uneven layers, tensor and sequence parallelism, both presets, recomputed or not. */
#include <malloc.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "daemon/checkpoint/shard.h"
#include "daemon/plan/memory.h"
#include "daemon/worker/pipeline.h"

enum { SEQUENCES = 2 };

static const struct model_config models[] = {
	{ .preset = MODEL_GPT2,
	    .layers = 12,
	    .width = 256,
	    .heads = 4,
	    .context = 128,
	    .vocab = 1000 },
	{ .preset = MODEL_LLAMA,
	    .layers = 12,
	    .width = 256,
	    .heads = 4,
	    .kv_heads = 2,
	    .hidden = 704,
	    .context = 128,
	    .vocab = 512,
	    .untied = true },
};

static const struct shape_of_memory {
	struct schedule_shape shape;
	uint32_t stage_layers[8];
} shapes[] = {
	{ { SCHEDULE_1F1B, 1, 4, 1 }, { 12 } },
	{ { SCHEDULE_GPIPE, 2, 4, 1 }, { 7, 5 } },
	{ { SCHEDULE_1F1B, 3, 8, 1 }, { 5, 4, 3 } },
	{ { SCHEDULE_1F1B, 4, 8, 1 }, { 3, 4, 4, 1 } },
	{ { SCHEDULE_INTERLEAVED, 2, 4, 2 }, { 3, 3, 3, 3 } },
	{ { SCHEDULE_INTERLEAVED, 2, 6, 3 }, { 2, 2, 2, 3, 2, 1 } },
	{ { SCHEDULE_INTERLEAVED, 4, 8, 2 }, { 1, 2, 2, 2, 2, 1, 1, 1 } },
};

static void near(const char *what, size_t shape, uint32_t rank, double got, double formula)
{
	if (!(got > 0.95 * formula && got < 1.05 * formula))
		fail_msg("%s of rank %u, shape %zu: %.0f bytes, the formula says %.0f (%.3f)", what,
		    rank, shape, got, formula, got / formula);
}

/* Inputs of chunks are messages, in buffers of their own: the most that are kept at once. */
static size_t most_inputs(const struct schedule *schedule, uint32_t rank)
{
	size_t now = 0, most = 0;
	for (uint32_t i = 0; i < schedule->lists[rank].count; i++) {
		const struct schedule_instruction *at = &schedule->lists[rank].at[i];
		bool counts = !schedule_is_first(&schedule->shape, rank, at->chunk);
		now += counts && at->op == SCHEDULE_FWD;
		now -= counts && at->op == SCHEDULE_BWD;
		most = now > most ? now : most;
	}
	return most;
}

static void check_rank(const struct memory_input *in, const struct layout *whole, size_t shape,
    uint32_t rank, uint32_t tp)
{
	struct shard shard = { .rank = 0, .size = tp };
	struct model_room room = { .recompute = in->recompute,
		.row_parts = in->strategy->sequence_parallel ? tp : 0 };
	struct memory_bytes formula;
	struct layout local;
	struct pool *pool;
	struct model *model;
	const struct schedule_shape *s = &in->schedule->shape;
	layout_depth_of(in->stage_layers, s->ranks, s->chunks, rank, &shard.depth);
	assert_int_equal(shard_layout(whole, &shard, &local, NULL), TR_OK);
	assert_int_equal(pool_create(1, &pool, NULL), TR_OK);
	pipeline_room(&local, in->schedule, rank, &room);
	assert_int_equal(model_create_room(&local, &room, SEQUENCES, pool, &model, NULL), TR_OK);
	assert_int_equal(memory_of_rank(in, rank, &formula, NULL), TR_OK);
	struct model_bytes bytes = model_bytes(model);
	size_t inputs = most_inputs(in->schedule, rank) *
	    strategy_boundary_bytes(in->shape, in->strategy);
	/* A message's buffer is an input's or another's, whichever is needed. */
	near("activations", shape, rank, (double)(bytes.slots + inputs + formula.messages),
	    (double)(formula.activations + formula.messages));
	near("working memory", shape, rank, (double)(bytes.working - bytes.threads),
	    (double)formula.working);
	near("parameters", shape, rank, (double)local.count * sizeof(float),
	    (double)formula.parameters);
	model_destroy(model);
	pool_destroy(pool);
	layout_finish(&local);
}

static void the_formula_is_what_is_allocated(void **state)
{
	const struct model_config *model = *state;
	struct layout whole;
	assert_int_equal(layout_init(model, &whole, NULL), TR_OK);
	for (size_t s = 0; s < sizeof(shapes) / sizeof(shapes[0]); s++)
		for (unsigned variant = 0; variant < 6; variant++) {
			bool splits = variant >= 4; /* the last one recomputed too */
			uint32_t most = model->kv_heads > 0 ? model->kv_heads : model->heads;
			uint32_t tp = splits ? most : 1 + (variant & 1), pp = shapes[s].shape.ranks;
			struct mesh mesh = { { [MESH_DP] = 1, [MESH_PP] = pp, [MESH_TP] = tp } };
			struct strategy strategy;
			struct schedule schedule;
			strategy_megatron(&whole.config, &mesh, &strategy);
			strategy.sequences = SEQUENCES;
			strategy.sequence_length = whole.config.context;
			strategy.sequence_parallel = splits;
			assert_int_equal(schedule_create(&shapes[s].shape, &schedule, NULL), TR_OK);
			struct memory_input in = { &whole.config, &strategy, &schedule,
				shapes[s].stage_layers, variant == 5 || (variant & 2) != 0 };
			for (uint32_t rank = 0; rank < pp; rank++)
				check_rank(&in, &whole, s, rank, tp);
			schedule_finish(&schedule);
		}
	layout_finish(&whole);
}

/* As a worker does whose mesh changes: each with something small behind it that stays. */
static void take_no_more_in_turn(double dropout)
{
	/* Such that a model is neither small nor so large that the system takes it back at once. */
	const struct model_config config = { .preset = MODEL_GPT2,
		.layers = 4,
		.width = 256,
		.heads = 4,
		.context = 64,
		.vocab = 256 };
	struct layout whole, half;
	struct pool *pool;
	void *stays[20];
	size_t after_one = 0;
	assert_int_equal(layout_init(&config, &whole, NULL), TR_OK);
	assert_int_equal(shard_layout(&whole, &(struct shard){ .size = 2 }, &half, NULL), TR_OK);
	assert_int_equal(pool_create(1, &pool, NULL), TR_OK);
	for (unsigned i = 0; i < 20; i++) {
		struct model *model;
		const struct layout *layout = i % 2 == 0 ? &whole : &half;
		assert_int_equal(model_create(layout, 8, pool, &model, NULL), TR_OK);
		assert_int_equal(model_use_dropout(model, dropout, 1, NULL), TR_OK);
		/* Small enough for what a rounded size leaves. */
		stays[i] = malloc(i % 2 == 0 ? 100 : 24);
		model_destroy(model);
		struct mallinfo2 now = mallinfo2();
		if (i == 0)
			after_one = now.arena + now.hblkhd;
		else
			assert_true(now.arena + now.hblkhd <= after_one + (1 << 20));
	}
	for (unsigned i = 0; i < 20; i++)
		free(stays[i]);
	pool_destroy(pool);
	layout_finish(&half);
	layout_finish(&whole);
}

static void models_in_turn_take_no_more(void **state)
{
	(void)state;
	take_no_more_in_turn(0);
	take_no_more_in_turn(0.1);
}

static size_t thread_bytes(const struct layout *layout, unsigned threads, size_t sequences,
    uint32_t row_parts)
{
	const struct model_room room = { .streams = 1,
		.layers = 1,
		.slots = 1,
		.row_parts = row_parts };
	struct pool *pool;
	struct model *model;
	assert_int_equal(pool_create(threads, &pool, NULL), TR_OK);
	assert_int_equal(model_create_room(layout, &room, sequences, pool, &model, NULL), TR_OK);
	struct model_bytes bytes = model_bytes(model);
	assert_in_range(bytes.threads, 1, bytes.working);
	model_destroy(model);
	pool_destroy(pool);
	return bytes.threads;
}

/* All but the sums of vectors, which each thread has. */
static void threads_without_a_sequence_are_not_counted(void **state)
{
	(void)state;
	struct layout whole;
	assert_int_equal(layout_init(&models[0], &whole, NULL), TR_OK);
	size_t one = thread_bytes(&whole, 1, 1, 0), four = thread_bytes(&whole, 4, 4, 0);
	assert_in_range(four, 4 * one - 256, 4 * one + 256);
	assert_in_range(thread_bytes(&whole, 4, 1, 0), one, one + one / 4);
	assert_in_range(thread_bytes(&whole, 4, 3, 0), 3 * one, 3 * one + one / 4);
	assert_int_equal(thread_bytes(&whole, 4, 9, 0), four);
	assert_int_equal(thread_bytes(&whole, 4, 1, 2), thread_bytes(&whole, 4, 1, 0));
	layout_finish(&whole);
}

/* Of one microbatch, in a stage of so many layers. */
static size_t stage_bytes(const struct layout *whole, struct layout_depth depth,
    const struct model_room *how, uint32_t tp)
{
	struct shard shard = { .size = tp, .depth = depth };
	struct model_room room = *how;
	struct layout local;
	struct pool *pool;
	struct model *model;
	assert_int_equal(shard_layout(whole, &shard, &local, NULL), TR_OK);
	assert_int_equal(pool_create(1, &pool, NULL), TR_OK);
	model_room_add(&room, &local, 0, 1);
	assert_int_equal(model_create_room(&local, &room, SEQUENCES, pool, &model, NULL), TR_OK);
	size_t bytes = model_bytes(model).slots;
	model_destroy(model);
	pool_destroy(pool);
	layout_finish(&local);
	return bytes;
}

/* As costs say it (measure.c): a layer keeps what a second one adds, the rest is the head's; so it is in each stage, with what has come to it from the one before. */
static void nothing_is_kept_of_the_embedding(void **state)
{
	const struct model_config *model = *state;
	struct layout whole;
	assert_int_equal(layout_init(model, &whole, NULL), TR_OK);
	for (uint32_t variant = 0; variant < 4; variant++) {
		uint32_t tp = variant == 0 ? 1 : 2;
		struct model_room how = { .row_parts = variant == 2 ? tp : 0,
			.recompute = variant == 3 };
		struct layout_depth ends = { .chunks = 1, .embedding = true, .head = true };
		size_t input = sizeof(real) *
		    model_stream_numbers(&whole, &how, SEQUENCES, model->context),
		       of[3] = { 0 };
		for (uint32_t layers = 1; layers <= 2; layers++) {
			ends.layers[0] = (struct layout_range){ 0, layers };
			of[layers] = stage_bytes(&whole, ends, &how, tp);
		}
		size_t layer = of[2] - of[1], head = of[1] - layer;
		assert_true(head >= input && head < layer + input);
		for (uint32_t layers = 1; layers <= 5; layers++) {
			struct layout_depth depth = { .chunks = 1, .embedding = true };
			depth.layers[0] = (struct layout_range){ 0, layers };
			assert_int_equal(stage_bytes(&whole, depth, &how, tp), layers * layer);
			depth.embedding = false;
			depth.layers[0].first = 3;
			assert_int_equal(stage_bytes(&whole, depth, &how, tp) + input,
			    layers * layer);
			depth.head = true;
			depth.layers[0].first = model->layers - layers;
			assert_int_equal(stage_bytes(&whole, depth, &how, tp) + input,
			    layers * layer + head);
		}
	}
	layout_finish(&whole);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		{ "GPT-2", the_formula_is_what_is_allocated, NULL, NULL, (void *)&models[0] },
		{ "Llama", the_formula_is_what_is_allocated, NULL, NULL, (void *)&models[1] },
		{ "ends of GPT-2", nothing_is_kept_of_the_embedding, NULL, NULL,
		    (void *)&models[0] },
		{ "ends of Llama", nothing_is_kept_of_the_embedding, NULL, NULL,
		    (void *)&models[1] },
		cmocka_unit_test(models_in_turn_take_no_more),
		cmocka_unit_test(threads_without_a_sequence_are_not_counted),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
