/* From each mesh to each other: the numbers that arrive are those that a shard takes of the whole, whoever holds what; and of the bytes none is moved that somebody has. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/rng.h"
#include "daemon/checkpoint/reshard.h"
#include "daemon/plan/ranks.h"

enum { PEERS_MAX = 32 };

static uint32_t draw(uint64_t *counter, uint64_t bound)
{
	return (uint32_t)rng_below(rng_key(12, 0, 0), 0, (*counter)++, bound);
}

/* Seven layers divide by no number of stages, 50 and 10 rows of vocabulary not by 4: the last shard's are padded. */
static const struct model_config configs[] = {
	{ .preset = MODEL_GPT2, .layers = 7, .width = 24, .heads = 12, .context = 7, .vocab = 50 },
	{ .preset = MODEL_GPT2,
	    .layers = 3,
	    .width = 24,
	    .heads = 4,
	    .hidden = 72,
	    .context = 7,
	    .vocab = 48 },
	{ .preset = MODEL_LLAMA,
	    .layers = 7,
	    .width = 24,
	    .heads = 12,
	    .kv_heads = 4,
	    .hidden = 48,
	    .context = 7,
	    .vocab = 10,
	    .untied = true },
	{ .preset = MODEL_LLAMA, .layers = 4, .width = 24, .heads = 4, .context = 7, .vocab = 5 },
};
enum { CONFIGS = sizeof(configs) / sizeof(configs[0]) };

static float *numbers(const struct layout *layout, bool fill)
{
	float *made = calloc(layout->count, sizeof(*made));
	assert_non_null(made);
	for (size_t t = 0; fill && t < layout->tensor_count; t++)
		for (size_t i = 0; i < layout_numbers(&layout->tensors[t]); i++)
			made[layout->tensors[t].offset + i] = (float)(1 + 100000 * t + i);
	return made;
}

static void begin_mesh(const struct layout *whole, uint32_t pp, uint32_t tp,
    struct mesh_shards *shards)
{
	const struct mesh mesh = { .size = { [MESH_DP] = 1, [MESH_PP] = pp, [MESH_TP] = tp } };
	struct tr_error error;
	if (mesh_shards_create(whole, &mesh, 1, NULL, shards, &error) != TR_OK)
		fail_msg("pp %u, tp %u: %s", pp, tp, error.text);
}

static float *shard_numbers(const struct mesh_shards *shards, uint32_t number, const float *all)
{
	struct shard shard;
	const struct layout *layout = mesh_shards_layout(shards, number, &shard);
	float *made = numbers(layout, false);
	shard_take(shards->whole, layout, &shard, all, made);
	return made;
}

/* A peer for each shard that is held, and one for each that is wanted. */
struct peers {
	uint32_t count, held[PEERS_MAX], wanted[PEERS_MAX];
};

static void deliver(const struct reshard *plan, const struct peers *peers, const float *all,
    float **arrays)
{
	for (size_t i = 0; i < plan->message_count; i++) {
		const struct reshard_message *m = &plan->messages[i];
		float *mine = shard_numbers(plan->old, peers->held[m->from], all);
		float *packed = calloc(m->numbers, sizeof(*packed));
		assert_true(m->numbers > 0 && packed != NULL && m->copies > 0);
		if (m->from == m->to) {
			reshard_keep(plan, m, mine, arrays[m->to]);
		} else {
			reshard_pack(plan, m, mine, packed);
			reshard_unpack(plan, m, packed, arrays[m->to]);
		}
		free(mine);
		free(packed);
	}
}

/* All wanted shards, out of the held ones. */
static void arrives(const struct reshard *plan, const struct peers *peers, const float *all)
{
	float *arrays[PEERS_MAX] = { NULL };
	struct shard shard;
	for (uint32_t i = 0; i < peers->count; i++)
		if (peers->wanted[i] != RESHARD_NONE)
			arrays[i] = numbers(mesh_shards_layout(plan->new, peers->wanted[i], &shard),
			    false);
	deliver(plan, peers, all, arrays);
	for (uint32_t i = 0; i < peers->count; i++) {
		if (arrays[i] == NULL)
			continue;
		size_t count = mesh_shards_layout(plan->new, peers->wanted[i], &shard)->count;
		float *expected = shard_numbers(plan->new, peers->wanted[i], all);
		assert_memory_equal(arrays[i], expected, count * sizeof(*expected));
		free(expected);
		free(arrays[i]);
	}
}

/* Each number of a receiver once: so what it gets and keeps is as much as its shard has without padding. */
static void counts_once(const struct reshard *plan, const struct peers *peers)
{
	for (uint32_t i = 0; i < peers->count; i++) {
		size_t comes = 0, needed = 0;
		struct shard shard;
		struct shard_piece pieces[SHARD_PIECES_MAX];
		for (size_t m = 0; m < plan->message_count; m++)
			if (plan->messages[m].to == i)
				comes += plan->messages[m].numbers;
		if (peers->wanted[i] == RESHARD_NONE) {
			assert_int_equal(comes, 0);
			continue;
		}
		const struct layout *layout = mesh_shards_layout(plan->new, peers->wanted[i],
		    &shard);
		for (size_t t = 0; t < layout->tensor_count; t++) {
			size_t count = shard_pieces(plan->new->whole, layout, &shard, t, pieces);
			for (size_t p = 0; p < count; p++)
				needed += pieces[p].rows * pieces[p].columns;
		}
		assert_int_equal(comes, needed);
	}
}

static void from_to(const struct mesh_shards *old, const struct mesh_shards *new, const float *all,
    bool both)
{
	uint32_t had = mesh_shards_count(old), needed = mesh_shards_count(new);
	struct peers peers = { .count = both ? (had > needed ? had : needed) : had + needed };
	struct reshard plan;
	for (uint32_t i = 0; i < peers.count; i++) {
		uint32_t wants = both ? i : i - had;
		peers.held[i] = i < had ? i : RESHARD_NONE;
		peers.wanted[i] = both || i >= had ? (wants < needed ? wants : RESHARD_NONE)
		                                   : RESHARD_NONE;
	}
	assert_int_equal(reshard_plan(old, peers.held, new, peers.wanted, peers.count, &plan, NULL),
	    TR_OK);
	assert_int_equal(plan.lost, RESHARD_NONE);
	counts_once(&plan, &peers);
	arrives(&plan, &peers, all);
	if (both && mesh_equal(&old->mesh, &new->mesh))
		assert_true(reshard_moved(&plan) == 0 && reshard_busiest(&plan) == 0);
	reshard_finish(&plan);
}

static void each_mesh_to_each(void **state)
{
	(void)state;
	static const uint32_t widths[] = { 1, 2, 4 };
	unsigned pairs = 0;
	for (size_t c = 0; c < CONFIGS; c++) {
		struct layout whole;
		struct mesh_shards meshes[9];
		unsigned count = 0;
		assert_int_equal(layout_init(&configs[c], &whole, NULL), TR_OK);
		float *all = numbers(&whole, true);
		for (uint32_t pp = 1; pp <= 3; pp++)
			for (unsigned w = 0; w < 3; w++)
				begin_mesh(&whole, pp, widths[w], &meshes[count++]);
		for (unsigned a = 0; a < count; a++)
			for (unsigned b = 0; b < count; b++, pairs++) {
				from_to(&meshes[a], &meshes[b], all, false);
				from_to(&meshes[a], &meshes[b], all, true);
			}
		for (unsigned a = 0; a < count; a++)
			mesh_shards_finish(&meshes[a]);
		free(all);
		layout_finish(&whole);
	}
	assert_int_equal(pairs, CONFIGS * 81);
}

/* Replicas, spares and peers that hold nothing, drawn: all that can come does, and it is said what cannot. */
static void whoever_holds_what(void **state)
{
	(void)state;
	uint64_t counter = 0;
	unsigned lost = 0, whole_plans = 0;
	for (unsigned round = 0; round < 400; round++) {
		struct layout whole;
		struct mesh_shards old, new;
		struct reshard plan;
		struct peers peers = { .count = 1 + draw(&counter, 12) };
		bool there[16] = { false };
		assert_int_equal(layout_init(&configs[draw(&counter, CONFIGS)], &whole, NULL),
		    TR_OK);
		float *all = numbers(&whole, true);
		begin_mesh(&whole, 1 + draw(&counter, 3), 1u << draw(&counter, 3), &old);
		begin_mesh(&whole, 1 + draw(&counter, 3), 1u << draw(&counter, 3), &new);
		for (uint32_t i = 0; i < peers.count; i++) {
			uint32_t had = draw(&counter, mesh_shards_count(&old) + 1);
			uint32_t wants = draw(&counter, mesh_shards_count(&new) + 1);
			peers.held[i] = had < mesh_shards_count(&old) ? had : RESHARD_NONE;
			peers.wanted[i] = wants < mesh_shards_count(&new) ? wants : RESHARD_NONE;
			if (peers.held[i] != RESHARD_NONE)
				there[peers.held[i]] = true;
		}
		assert_int_equal(reshard_plan(&old, peers.held, &new, peers.wanted, peers.count,
		                     &plan, NULL),
		    TR_OK);
		bool everything = true;
		for (uint32_t k = 0; k < mesh_shards_count(&old); k++)
			everything = everything && there[k];
		if (everything)
			assert_int_equal(plan.lost, RESHARD_NONE);
		if (plan.lost != RESHARD_NONE) {
			assert_false(there[plan.lost]);
			lost++;
		} else {
			counts_once(&plan, &peers);
			arrives(&plan, &peers, all);
			whole_plans++;
		}
		reshard_finish(&plan);
		mesh_shards_finish(&old);
		mesh_shards_finish(&new);
		free(all);
		layout_finish(&whole);
	}
	assert_true(lost > 50 && whole_plans > 50);
}

/* tp 2 to tp 4 of three replicas: each half is three times there and four quarters go to who holds nothing; holders send equally much. */
static void work_is_shared(void **state)
{
	(void)state;
	struct layout whole;
	struct mesh_shards old, new;
	struct reshard plan;
	const uint32_t held[] = { 0, 1, 0, 1, RESHARD_NONE, RESHARD_NONE, RESHARD_NONE,
		RESHARD_NONE };
	const uint32_t wanted[] = { RESHARD_NONE, RESHARD_NONE, RESHARD_NONE, RESHARD_NONE, 0, 1, 2,
		3 };
	size_t sent[4] = { 0 }, got[8] = { 0 }, least = SIZE_MAX, most = 0;
	assert_int_equal(layout_init(&configs[2], &whole, NULL), TR_OK);
	begin_mesh(&whole, 1, 2, &old);
	begin_mesh(&whole, 1, 4, &new);
	assert_int_equal(reshard_plan(&old, held, &new, wanted, 8, &plan, NULL), TR_OK);
	for (size_t i = 0; i < plan.message_count; i++) {
		sent[plan.messages[i].from] += plan.messages[i].numbers;
		got[plan.messages[i].to] += plan.messages[i].numbers;
	}
	size_t busiest = 0;
	for (unsigned i = 0; i < 8; i++)
		busiest = got[i] > busiest ? got[i] : busiest;
	for (unsigned i = 0; i < 4; i++)
		busiest = sent[i] > busiest ? sent[i] : busiest;
	assert_int_equal(reshard_busiest(&plan), busiest);
	for (unsigned i = 0; i < 4; i++) {
		least = sent[i] < least ? sent[i] : least;
		most = sent[i] > most ? sent[i] : most;
	}
	assert_true(least > 0 && (double)most < 1.1 * (double)least);
	assert_int_equal(sent[0] + sent[1] + sent[2] + sent[3], reshard_moved(&plan));
	reshard_finish(&plan);
	mesh_shards_finish(&old);
	mesh_shards_finish(&new);
	layout_finish(&whole);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_mesh_to_each),
		cmocka_unit_test(whoever_holds_what),
		cmocka_unit_test(work_is_shared),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
