/* Shards of a layout: all of them together are the whole, and what cannot be split is said by the key of the job file. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "daemon/checkpoint/shard.h"

static const struct model_config configs[] = {
	{ .preset = MODEL_GPT2, .layers = 2, .width = 24, .heads = 12, .context = 7, .vocab = 50 },
	/* As many columns in the MLP as queries, keys and values have: only the latter are three side by side. */
	{ .preset = MODEL_GPT2,
	    .layers = 1,
	    .width = 24,
	    .heads = 12,
	    .hidden = 72,
	    .context = 7,
	    .vocab = 48 },
	{ .preset = MODEL_LLAMA,
	    .layers = 2,
	    .width = 24,
	    .heads = 12,
	    .kv_heads = 12,
	    .hidden = 48,
	    .context = 7,
	    .vocab = 10,
	    .untied = true },
};

static float *numbers(const struct layout *layout, bool fill)
{
	float *made = calloc(layout->count, sizeof(*made));
	assert_non_null(made);
	for (size_t t = 0; fill && t < layout->tensor_count; t++)
		for (size_t i = 0; i < layout_numbers(&layout->tensors[t]); i++)
			made[layout->tensors[t].offset + i] = (float)(1 + 1000 * t + i);
	return made;
}

static void together_they_are_the_whole(void **state)
{
	(void)state;
	static const uint32_t sizes[] = { 1, 2, 3, 4, 6, 12 };
	for (size_t c = 0; c < sizeof(configs) / sizeof(configs[0]); c++)
		for (size_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++) {
			struct layout whole, local;
			assert_int_equal(layout_init(&configs[c], &whole, NULL), TR_OK);
			float *all = numbers(&whole, true), *back = numbers(&whole, false);
			size_t split = 0;
			for (uint32_t rank = 0; rank < sizes[s]; rank++) {
				struct shard shard = { .rank = rank, .size = sizes[s] };
				assert_int_equal(shard_layout(&whole, &shard, &local, NULL), TR_OK);
				assert_int_equal(local.tensor_count, whole.tensor_count);
				float *mine = numbers(&local, false);
				shard_take(&whole, &local, &shard, all, mine);
				shard_put(&whole, &local, &shard, mine, back);
				for (size_t t = 0; t < whole.tensor_count; t++)
					split += !shard_whole(&whole, &local, t);
				free(mine);
				layout_finish(&local);
			}
			assert_memory_equal(all, back, whole.count * sizeof(*all));
			assert_true((split > 0) == (sizes[s] > 1));
			free(all);
			free(back);
			layout_finish(&whole);
		}
}

/* Seven layers over a pipeline, some stages without one. */
enum { LAYERS = 7 };
static const struct pipeline {
	uint32_t ranks, chunks, stage_layers[8];
} pipelines[] = {
	{ 1, 1, { 7 } },
	{ 2, 1, { 3, 4 } },
	{ 3, 1, { 3, 3, 1 } },
	{ 4, 1, { 0, 4, 3, 0 } },
	{ 2, 2, { 2, 2, 2, 1 } },
	{ 2, 3, { 1, 2, 0, 2, 1, 1 } },
	{ 4, 2, { 1, 1, 1, 1, 1, 1, 1, 0 } },
};

static size_t number_of(const struct layout *layout, const char *name)
{
	for (size_t t = 0; t < layout->tensor_count; t++)
		if (strcmp(layout->tensors[t].name, name) == 0)
			return t;
	fail_msg("no tensor %s", name);
	return 0;
}

/* Adds 1 to `seen` for each number of the whole that the shard has; it must be the right one, and all else in the shard 0. */
static void count_numbers(const struct layout *whole, const struct layout *local,
    const struct shard *shard, const float *all, unsigned *seen)
{
	struct shard_piece pieces[SHARD_PIECES_MAX];
	float *mine = numbers(local, true);
	shard_take(whole, local, shard, all, mine);
	for (size_t t = 0; t < local->tensor_count; t++) {
		const struct layout_tensor *l = &local->tensors[t];
		assert_int_equal(l->number, number_of(whole, l->name));
		assert_true(l->offset % 16 == 0 || t == 0 ||
		    l->offset == l[-1].offset + layout_numbers(&l[-1]));
		size_t count = shard_pieces(whole, local, shard, t, pieces);
		for (size_t i = 0; i < count; i++)
			for (size_t e = 0; e < pieces[i].rows * pieces[i].columns; e++) {
				size_t row = e / pieces[i].columns, column = e % pieces[i].columns;
				size_t at = pieces[i].whole + row * pieces[i].whole_stride + column;
				float *my = mine + pieces[i].local + row * pieces[i].local_stride +
				    column;
				assert_true(*my == all[at] && *my != 0);
				*my = 0;
				seen[at]++;
			}
	}
	for (size_t i = 0; i < local->count; i++)
		assert_true(mine[i] == 0);
	free(mine);
}

/* Layers are where layout_layer says, in the order of the chunks. */
static void check_layers(const struct layout *whole, const struct layout *local,
    const struct layout_depth *depth)
{
	size_t here = 0;
	for (uint32_t c = 0; c < depth->chunks; c++)
		for (uint32_t i = 0; i < depth->layers[c].count; i++, here++)
			for (unsigned part = 0; part < LAYOUT_PARTS; part++) {
				size_t at = layout_layer(local, here, (enum layout_part)part);
				size_t from = layout_layer(whole, depth->layers[c].first + i,
				    (enum layout_part)part);
				size_t t = 0, w = 0;
				assert_true((at == LAYOUT_NONE) == (from == LAYOUT_NONE));
				if (at == LAYOUT_NONE)
					continue;
				while (local->tensors[t].offset != at)
					assert_true(++t < local->tensor_count);
				while (whole->tensors[w].offset != from)
					assert_true(++w < whole->tensor_count);
				assert_int_equal(local->tensors[t].number, w);
			}
	assert_int_equal(local->config.layers, here);
}

static void check_ends(const struct layout *local, const struct shard *shard, uint32_t ranks)
{
	size_t offset, count;
	bool untied = local->config.untied, ends = shard->depth.embedding || shard->depth.head;
	assert_true((local->tokens != LAYOUT_NONE) == shard->depth.embedding);
	assert_true((local->last_norm_w != LAYOUT_NONE) == shard->depth.head);
	assert_true((local->head != LAYOUT_NONE) == shard->depth.head);
	assert_true(layout_copied_table(local, &offset, &count) == (!untied && ranks > 1 && ends));
	if (untied || ranks == 1 || !ends)
		return;
	assert_int_equal(offset, shard->depth.embedding ? local->tokens : local->head);
	assert_int_equal(count, (size_t)local->config.vocab * local->config.width);
}

static void a_mesh_has_everything(const struct model_config *shape, const struct pipeline *p,
    uint32_t tp)
{
	struct model_config config = *shape;
	struct layout whole, local;
	size_t parameters = 0;
	config.layers = LAYERS;
	assert_int_equal(layout_init(&config, &whole, NULL), TR_OK);
	float *all = numbers(&whole, true), *back = numbers(&whole, false);
	unsigned *seen = calloc(whole.count, sizeof(*seen));
	for (uint32_t rank = 0; rank < p->ranks * tp; rank++) {
		struct shard shard = { .rank = rank % tp, .size = tp };
		layout_depth_of(p->stage_layers, p->ranks, p->chunks, rank / tp, &shard.depth);
		assert_int_equal(shard_layout(&whole, &shard, &local, NULL), TR_OK);
		count_numbers(&whole, &local, &shard, all, seen);
		check_layers(&whole, &local, &shard.depth);
		check_ends(&local, &shard, p->ranks);
		float *mine = numbers(&local, false);
		shard_take(&whole, &local, &shard, all, mine);
		shard_put(&whole, &local, &shard, mine, back);
		parameters += local.parameters;
		free(mine);
		layout_finish(&local);
	}
	assert_memory_equal(all, back, whole.count * sizeof(*all));
	struct shard first = { .rank = 0, .size = tp };
	assert_int_equal(shard_layout(&whole, &first, &local, NULL), TR_OK);
	for (size_t t = 0; t < whole.tensor_count; t++) {
		bool copied = !config.untied && p->ranks > 1 && t == 0;
		unsigned times = (shard_whole(&whole, &local, t) ? tp : 1) * (copied ? 2 : 1);
		for (size_t i = 0; i < layout_numbers(&whole.tensors[t]); i++)
			assert_int_equal(seen[whole.tensors[t].offset + i], times);
	}
	size_t table = (size_t)local.config.vocab * local.config.width * tp;
	assert_int_equal(parameters,
	    local.parameters * tp + (config.untied || p->ranks == 1 ? 0 : table));
	free(all);
	free(back);
	free(seen);
	layout_finish(&local);
	layout_finish(&whole);
}

static void meshes_are_the_whole(void **state)
{
	(void)state;
	for (size_t c = 0; c < sizeof(configs) / sizeof(configs[0]); c++)
		for (size_t p = 0; p < sizeof(pipelines) / sizeof(pipelines[0]); p++)
			for (uint32_t tp = 1; tp <= 3; tp++)
				a_mesh_has_everything(&configs[c], &pipelines[p], tp);
}

/* Of head h of the queries, keys and values of GPT-2's first layer. */
static void heads_stay_together(void **state)
{
	(void)state;
	struct layout whole, local;
	const struct shard shard = { .rank = 1, .size = 3 };
	assert_int_equal(layout_init(&configs[0], &whole, NULL), TR_OK);
	assert_int_equal(shard_layout(&whole, &shard, &local, NULL), TR_OK);
	float *all = numbers(&whole, true), *mine = numbers(&local, false);
	shard_take(&whole, &local, &shard, all, mine);
	size_t from = layout_layer(&whole, 0, LAYOUT_QKV_W),
	       to = layout_layer(&local, 0, LAYOUT_QKV_W);
	/* 12 heads of 2 channels: this one has heads 4 to 7, so 8 columns of each third. */
	for (size_t row = 0; row < 24; row++)
		for (size_t third = 0; third < 3; third++)
			for (size_t i = 0; i < 8; i++)
				assert_true(mine[to + row * 24 + third * 8 + i] ==
				    all[from + row * 72 + third * 24 + 8 + i]);
	free(all);
	free(mine);
	layout_finish(&local);
	layout_finish(&whole);
}

static void refused(const struct model_config *config, struct shard shard, const char *words)
{
	struct layout whole, local;
	struct tr_error error = { 0 };
	assert_int_equal(layout_init(config, &whole, NULL), TR_OK);
	assert_int_equal(shard_layout(&whole, &shard, &local, &error), TR_EINVAL);
	assert_string_equal(error.text, words);
	layout_finish(&whole);
}

static void what_cannot_be_split(void **state)
{
	(void)state;
	struct model_config llama = { .preset = MODEL_LLAMA,
		.layers = 1,
		.width = 24,
		.heads = 12,
		.kv_heads = 2,
		.hidden = 50,
		.context = 7,
		.vocab = 10 };
	refused(&configs[0], (struct shard){ .rank = 0, .size = 5 },
	    "model.heads: found 12, allowed: a multiple of mesh.tp, which is 5");
	refused(&llama, (struct shard){ .rank = 0, .size = 4 },
	    "model.kv_heads: found 2, allowed: a multiple of mesh.tp, which is 4");
	llama.kv_heads = 12;
	refused(&llama, (struct shard){ .rank = 0, .size = 4 },
	    "model.hidden: found 50, allowed: a multiple of mesh.tp, which is 4");
	refused(&llama, (struct shard){ .rank = 4, .size = 4 }, "mesh.tp: found 4, rank 4");
	refused(&llama, (struct shard){ .rank = 0, .size = 0 }, "mesh.tp: found 0, rank 0");
	struct shard shard = { .size = 1, .depth = { 2, { { 0, 1 }, { 1, 2 } }, true, true } };
	refused(&configs[0], shard,
	    "chunk 1 has 2 layers from 1 on; there are 2, and 1 are before it");
	shard.depth.layers[1] = (struct layout_range){ 0, 1 };
	refused(&configs[0], shard,
	    "chunk 1 has 1 layers from 0 on; there are 2, and 1 are before it");
}

/* Counts that wrap around 2^64 are a small array with large tensors. The first is found in config.json: it is 10,836,064 modulo 2^64, and the embedding alone
 * has 94,054,656. */
static void what_is_too_large(void **state)
{
	(void)state;
	static const struct model_config large[] = {
		{ .preset = MODEL_GPT2,
		    .layers = 65536,
		    .width = 11756832,
		    .heads = 1,
		    .hidden = 427728,
		    .context = 1,
		    .vocab = 8 },
		{ .preset = MODEL_LLAMA,
		    .layers = UINT32_MAX,
		    .width = 8,
		    .heads = 1,
		    .context = 1,
		    .vocab = 8 },
		{ .preset = MODEL_LLAMA,
		    .layers = 1,
		    .width = UINT32_MAX,
		    .heads = UINT32_MAX,
		    .head_width = UINT32_MAX - 1,
		    .context = 1,
		    .vocab = UINT32_MAX },
		{ .preset = MODEL_GPT2,
		    .layers = 1,
		    .width = 1u << 20,
		    .heads = 1,
		    .hidden = 4,
		    .context = 1,
		    .vocab = 1u << 20 },
	};
	for (size_t i = 0; i < sizeof(large) / sizeof(large[0]); i++) {
		struct layout layout;
		struct tr_error error = { 0 };
		assert_int_equal(layout_init(&large[i], &layout, &error), TR_ELIMIT);
		assert_non_null(strstr(error.text,
		    i == 1 ? "4294967295 layers are more than this program's 65536"
		           : "make more than 1099511627776 parameters, allowed: at most so many"));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(together_they_are_the_whole),
		cmocka_unit_test(meshes_are_the_whole),
		cmocka_unit_test(heads_stay_together),
		cmocka_unit_test(what_cannot_be_split),
		cmocka_unit_test(what_is_too_large),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
