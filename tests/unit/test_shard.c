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
				struct shard shard = { rank, sizes[s] };
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

/* Of head h of the queries, keys and values of GPT-2's first layer. */
static void heads_stay_together(void **state)
{
	(void)state;
	struct layout whole, local;
	const struct shard shard = { 1, 3 };
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
	refused(&configs[0], (struct shard){ 0, 5 },
	    "model.heads: found 12, allowed: a multiple of mesh.tp, which is 5");
	refused(&llama, (struct shard){ 0, 4 },
	    "model.kv_heads: found 2, allowed: a multiple of mesh.tp, which is 4");
	llama.kv_heads = 12;
	refused(&llama, (struct shard){ 0, 4 },
	    "model.hidden: found 50, allowed: a multiple of mesh.tp, which is 4");
	refused(&llama, (struct shard){ 4, 4 }, "mesh.tp: found 4, rank 4");
	refused(&llama, (struct shard){ 0, 0 }, "mesh.tp: found 0, rank 0");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(together_they_are_the_whole),
		cmocka_unit_test(heads_stay_together),
		cmocka_unit_test(what_cannot_be_split),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
