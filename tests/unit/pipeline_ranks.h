/* Ranks of a mesh (pp x tp) as threads of one process (pipeline_world.h) against one that has the whole model: what test_pipeline.c and test_pipeline_f32.c run. */
#ifndef TR_TESTS_PIPELINE_RANKS_H
#define TR_TESTS_PIPELINE_RANKS_H

#include "daemon/plan/memory.h"
#include "tests/unit/derived_calls.h"
#include "tests/unit/pipeline_world.h"

static inline void player_final(void *arg, size_t offset)
{
	struct player *p = arg;
	assert_true(offset < p->final);
	memcpy(p->snapshot + offset, p->grads + offset, (p->final - offset) * sizeof(real));
	p->final = offset;
}

static inline void *play(void *arg)
{
	struct player *p = arg;
	struct model_hooks hooks = { NULL, player_final, p };
	p->finished = (p->what->loss_only ? pipeline_loss : pipeline_gradient)(p->pipeline,
	    p->world->schedule, p->batches, &hooks, &p->loss);
	return NULL;
}

/* Numbers of the whole that the shard has; params are real, which shard_take does not know. */
static inline void take_params(const struct layout *whole, const struct player *p,
    const real *params)
{
	struct shard_piece pieces[SHARD_PIECES_MAX];
	for (size_t t = 0; t < p->local.tensor_count; t++) {
		size_t count = shard_pieces(whole, &p->local, &p->shard, t, pieces);
		for (size_t i = 0; i < count; i++)
			for (size_t row = 0; row < pieces[i].rows; row++)
				memcpy(p->params + pieces[i].local + row * pieces[i].local_stride,
				    params + pieces[i].whole + row * pieces[i].whole_stride,
				    pieces[i].columns * sizeof(real));
	}
}

static inline void player_start(struct player *p, const struct layout *whole, const real *params,
    const struct model_batch *batches)
{
	const struct mesh_case *what = p->what;
	struct model_room room = { .recompute = what->recompute,
		.row_parts = what->splits ? what->tp : 0 };
	p->shard = (struct shard){ .rank = p->tp, .size = what->tp };
	layout_depth_of(what->stage_layers, what->shape.ranks, what->shape.chunks, p->pp,
	    &p->shard.depth);
	assert_int_equal(shard_layout(whole, &p->shard, &p->local, NULL), TR_OK);
	assert_int_equal(pool_create(what->threads, &p->pool, NULL), TR_OK);
	pipeline_room(&p->local, p->world->schedule, p->pp, &room);
	assert_int_equal(room.slots, schedule_in_flight(&what->shape, p->pp));
	struct pipeline_options options = { &p->local, p->pp, SEQUENCES, p->pool, &room,
		{ channel_send, channel_receive, channel_wait, channel_idle, channel_memory, p } };
	assert_int_equal(pipeline_create(&options, &p->pipeline, NULL), TR_OK);
	assert_int_equal(model_use_dropout(pipeline_model(p->pipeline), what->dropout, 1, NULL),
	    TR_OK);
	p->params = zeroed(p->local.count);
	p->grads = zeroed(p->local.count);
	p->snapshot = zeroed(p->local.count);
	p->final = p->local.count;
	take_params(whole, p, params);
	model_bind(pipeline_model(p->pipeline), p->params, p->grads);
	size_t numbers = model_exchange_numbers(&p->local, SEQUENCES);
	p->tensor = (struct model_tensor){ .rank = p->tp,
		.size = what->tp,
		.vocab = VOCAB,
		.sum = sum_here,
		.maximum = maximum_here,
		.place = meeting_place(what->tp, p->tp),
		.reduce_scatter = what->splits ? reduce_scatter_here : NULL,
		.all_gather = what->splits ? all_gather_here : NULL,
		.exchange = zeroed(numbers),
		.exchange_too = zeroed(numbers),
		.arg = p };
	if (what->tp > 1)
		model_use_tensor(pipeline_model(p->pipeline), &p->tensor);
	/* Tokens are where they are needed alone. */
	for (uint32_t m = 0; m < what->shape.microbatches; m++) {
		p->batches[m] = batches[m];
		p->batches[m].inputs = p->pp == 0 ? batches[m].inputs : NULL;
		p->batches[m].targets = p->pp + 1 == what->shape.ranks ? batches[m].targets : NULL;
	}
}

static inline void player_stop(struct player *p)
{
	pipeline_destroy(p->pipeline);
	pool_destroy(p->pool);
	layout_finish(&p->local);
	for (size_t i = 0; i < p->memories; i++)
		free(p->memory[i]);
	free(p->params);
	free(p->grads);
	free(p->snapshot);
	free(p->tensor.exchange);
	free(p->tensor.exchange_too);
}

/* What one process makes of it. */
struct alone {
	struct layout layout;
	real *params, *grads;
	double loss;
	int32_t tokens[2][MICRO_MOST][SEQUENCES * LENGTH];
	uint64_t samples[MICRO_MOST][SEQUENCES];
	struct model_batch batches[MICRO_MOST];
};

static inline void alone_start(struct alone *a, const struct mesh_case *what)
{
	struct model_config config = *what->config;
	struct pool *pool;
	struct model *model;
	config.layers = LAYERS;
	config.context = CONTEXT;
	config.vocab = VOCAB;
	*a = (struct alone){ .loss = 0 };
	assert_int_equal(layout_init(&config, &a->layout, NULL), TR_OK);
	assert_int_equal(pool_create(what->threads, &pool, NULL), TR_OK);
	assert_int_equal(model_create(&a->layout, SEQUENCES, pool, &model, NULL), TR_OK);
	assert_int_equal(model_use_dropout(model, what->dropout, 1, NULL), TR_OK);
	a->params = zeroed(a->layout.count);
	a->grads = zeroed(a->layout.count);
	model_init_params(&a->layout, 5, a->params);
	for (size_t t = 0; t < a->layout.tensor_count; t++)
		for (size_t i = 0; i < layout_numbers(&a->layout.tensors[t]); i++)
			a->params[a->layout.tensors[t].offset + i] += (real)(0.2 *
			    sin((double)(i * 7 + t * 13)));
	model_bind(model, a->params, a->grads);
	for (uint32_t m = 0; m < what->shape.microbatches; m++) {
		bool last = m + 1 == what->shape.microbatches; /* a smaller one */
		struct model_batch *b = &a->batches[m];
		double loss;
		for (size_t i = 0; i < SEQUENCES * LENGTH; i++)
			for (size_t k = 0; k < 2; k++)
				a->tokens[k][m][i] = (int32_t)rng_below(rng_key(2, k, m), 0, i,
				    VOCAB);
		/* An even number of rows in all, where they are split: the last one's halves meet between its sequences, the others' within one. */
		size_t length = what->splits ? SPLIT_LENGTH : LENGTH;
		*b = (struct model_batch){ a->tokens[0][m], a->tokens[1][m], SEQUENCES - last,
			length - last, a->samples[m] };
		for (size_t i = 0; i < SEQUENCES; i++)
			a->samples[m][i] = 100 * m + 7 * i;
		assert_true(model_gradient_of(model, b, NULL, &loss));
		a->loss += loss;
	}
	model_destroy(model);
	pool_destroy(pool);
}

static inline void alone_stop(struct alone *a)
{
	layout_finish(&a->layout);
	free(a->params);
	free(a->grads);
}

/* Each number of a tensor of the shard against the whole one's; `table` gets what of a copied table is here. tolerance 0: the same bits. */
static inline void compare_tensor(const struct alone *a, const struct player *p, size_t t,
    double tolerance, real *table)
{
	struct shard_piece pieces[SHARD_PIECES_MAX];
	size_t copied, numbers, count = shard_pieces(&a->layout, &p->local, &p->shard, t, pieces);
	const struct layout_tensor *tensor = &p->local.tensors[t];
	bool copy = layout_copied_table(&p->local, &copied, &numbers) && copied == tensor->offset;
	for (size_t i = 0; i < count; i++)
		for (size_t e = 0; e < pieces[i].rows * pieces[i].columns; e++) {
			size_t row = e / pieces[i].columns, column = e % pieces[i].columns;
			size_t at = pieces[i].whole + row * pieces[i].whole_stride + column;
			real got = p->grads[pieces[i].local + row * pieces[i].local_stride + column];
			real want = a->grads[at];
			if (copy)
				table[at - a->layout.tokens] += got;
			else if (tolerance == 0 ? got != want
			                        : !(fabs((double)(got - want)) <=
			                              tolerance * fmax(1, fabs((double)want))))
				fail_msg("%s[%zu] of rank %u (tp %u): %.17g, one process has %.17g",
				    tensor->name, at - a->layout.tensors[tensor->number].offset,
				    p->pp, p->tp, (double)got, (double)want);
		}
}

/* Of one stage; what was reported, too. */
static inline void sum_shared(const struct alone *a, const struct player *members, uint32_t tp)
{
	real *grads[TP_MOST], *snapshots[TP_MOST];
	for (uint32_t k = 0; k < tp; k++) {
		grads[k] = members[k].grads;
		snapshots[k] = members[k].snapshot;
	}
	meeting_sum_shared(&a->layout, &members[0].local, grads, tp);
	meeting_sum_shared(&a->layout, &members[0].local, snapshots, tp);
}

static inline void compare(const struct alone *a, const struct player *players,
    const struct mesh_case *what, double tolerance, double table_tolerance)
{
	real *table = zeroed((size_t)VOCAB * a->layout.config.width);
	bool tied = !a->layout.config.untied && what->shape.ranks > 1;
	for (uint32_t i = 0; i < what->shape.ranks * what->tp; i++) {
		const struct player *p = &players[i];
		bool last = p->pp + 1 == what->shape.ranks;
		double want = last ? a->loss : 0;
		assert_true(fabs(p->loss - want) <= tolerance * fabs(want));
		/* Inputs and outputs of the microbatches in flight, and a few (memory.h counts as many). */
		size_t flying = schedule_in_flight(&p->world->schedule->shape, p->pp),
		       most = MEMORY_MESSAGES;
		most += what->shape.chunks > 1 ? 3 * flying
		                               : (last || p->pp == 0 ? 1u : 2u) * flying;
		assert_in_range(pipeline_buffers(p->pipeline), 0, most);
		if (what->loss_only)
			continue;
		for (size_t t = 0; t < p->local.tensor_count; t++)
			compare_tensor(a, p, t, tolerance, table);
		/* All of it was reported, and did not change afterwards. */
		assert_int_equal(p->final, 0);
		assert_memory_equal(p->snapshot, p->grads, p->local.count * sizeof(real));
	}
	for (size_t i = 0; tied && !what->loss_only && i < (size_t)VOCAB * a->layout.config.width;
	     i++)
		assert_true(fabs((double)(table[i] - a->grads[a->layout.tokens + i])) <=
		    table_tolerance * fmax(1, fabs((double)a->grads[a->layout.tokens + i])));
	free(table);
}

/* Microbatch `m` at a rank, to derive what it has to send. */
static inline struct derived_work work_of(const struct alone *a, const struct player *p, uint32_t m)
{
	const struct mesh_case *what = p->what;
	struct derived_work work = { .config = &a->layout.config,
		.tp = what->tp,
		.rows = (uint32_t)(a->batches[m].sequences * a->batches[m].length),
		.embeds = p->pp == 0,
		.heads = p->pp + 1 == what->shape.ranks,
		.splits = what->splits,
		.recompute = what->recompute,
		.loss_only = what->loss_only };
	for (uint32_t stage = p->pp; stage < what->shape.ranks * what->shape.chunks;
	     stage += what->shape.ranks)
		work.layers += what->stage_layers[stage];
	return work;
}

static inline int compare_meeting_calls(const void *left, const void *right)
{
	const struct meeting_call *a = left, *b = right;
	if (a->kind != b->kind)
		return a->kind < b->kind ? -1 : 1;
	return (a->numbers > b->numbers) - (a->numbers < b->numbers);
}

/* Each rank has called its group as propagate() says for its layers and all microbatches, in whatever order the schedule has these; and each message is of the size that the planner counts with,
 * once over each boundary in each direction. */
static inline void check_calls(const struct alone *a, struct player *p)
{
	static struct meeting_calls derived;
	const struct schedule_shape *shape = &p->what->shape;
	uint32_t stages = shape->ranks * shape->chunks, sent = 0,
	         directions = p->what->loss_only ? 1 : 2;
	derived.count = 0;
	for (uint32_t m = 0; m < shape->microbatches; m++) {
		struct derived_work work = work_of(a, p, m);
		derive_calls(&work, &derived);
		for (uint32_t boundary = 1; shape->ranks > 1 && boundary < stages; boundary++)
			for (uint32_t back = 0; back < directions; back++) {
				struct pipeline_message message = { .gradient = back == 1,
					.microbatch = m,
					.stage = back == 1 ? boundary - 1 : boundary };
				const struct letter *l = letter_of(p,
				    pipeline_message_number(shape, &message));
				assert_true(l->sent != 0);
				assert_int_equal(l->count, derived_message_numbers(&work));
			}
	}
	/* Nothing else; of forward passes alone words come back, each of one number. */
	for (size_t i = 0; i < NUMBERS_MOST; i++) {
		const struct letter *l = &p->world->wires[p->tp].letters[i];
		bool word = p->what->loss_only && i % 2 == 1;
		assert_true(!word || l->sent == 0 || l->count == 1);
		sent += l->sent != 0 && !word;
	}
	assert_int_equal(sent,
	    shape->ranks > 1 ? (stages - 1) * shape->microbatches * directions : 0);
	qsort(p->calls.at, p->calls.count, sizeof(p->calls.at[0]), compare_meeting_calls);
	qsort(derived.at, derived.count, sizeof(derived.at[0]), compare_meeting_calls);
	assert_same_calls(&p->calls, &derived);
}

/* All ranks together. */
static inline void play_all(struct player *players, uint32_t count)
{
	pthread_t threads[PP_MOST * TP_MOST];
	for (uint32_t i = 0; i < count; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, play, &players[i]), 0);
	for (uint32_t i = 0; i < count; i++)
		assert_int_equal(pthread_join(threads[i], NULL), 0);
}

/* After a stop the round is given up, and begins again. */
static inline void play_again(struct world *world, struct player *players, uint32_t count)
{
	bool all = true;
	for (uint32_t i = 0; i < count; i++)
		all = all && players[i].finished;
	assert_true(world->stopped && !all);
	world->stopped = false;
	world->stops_after = -1;
	memset(world->wires, 0, sizeof(world->wires));
	memset(world->tables, 0, sizeof(world->tables));
	for (uint32_t i = 0; i < count; i++) {
		struct player *p = &players[i];
		pipeline_forget(p->pipeline);
		memset(p->grads, 0, p->local.count * sizeof(real));
		for (size_t k = 0; k < p->memories; k++)
			scribble(p->memory[k], p->memory_numbers);
		p->final = p->local.count;
	}
	play_all(players, count);
}

/* A mesh against one process. Returns how many calls of channels and sums there were. */
static inline int run_mesh(const struct mesh_case *what, double tolerance, double table_tolerance)
{
	struct schedule schedule, forward;
	struct alone alone;
	static struct world world;
	static struct player players[PP_MOST * TP_MOST];
	uint32_t count = what->shape.ranks * what->tp;
	assert_int_equal(schedule_create(&what->shape, &schedule, NULL), TR_OK);
	assert_int_equal(schedule_create_forward(&what->shape, &forward, NULL), TR_OK);
	alone_start(&alone, what);
	world = (struct world){ .stops_after = what->stops_after,
		.schedule = &schedule,
		.tp = what->tp };
	assert_int_equal(pthread_mutex_init(&world.lock, NULL), 0);
	assert_int_equal(pthread_cond_init(&world.changed, NULL), 0);
	for (uint32_t i = 0; i < count; i++) {
		players[i] = (struct player){ .world = &world,
			.what = what,
			.pp = i / what->tp,
			.tp = i % what->tp };
		player_start(&players[i], &alone.layout, alone.params, alone.batches);
	}
	if (what->loss_only)
		world.schedule = &forward;
	play_all(players, count);
	int calls = world.calls;
	if (what->stops_after >= 0)
		play_again(&world, players, count);
	else
		for (uint32_t i = 0; i < count; i++)
			check_calls(&alone, &players[i]);
	for (uint32_t i = 0; i < count; i++)
		assert_true(players[i].finished);
	for (uint32_t i = 0; what->splits && !what->loss_only && i < count; i += what->tp)
		sum_shared(&alone, &players[i], what->tp);
	compare(&alone, players, what, tolerance, table_tolerance);
	for (uint32_t i = 0; i < count; i++)
		player_stop(&players[i]);
	(void)pthread_mutex_destroy(&world.lock);
	(void)pthread_cond_destroy(&world.changed);
	alone_stop(&alone);
	schedule_finish(&schedule);
	schedule_finish(&forward);
	return calls;
}

/* Layers over stages in some way: as even as can be, or by chance, with stages of none. */
static inline void deal_layers(struct mesh_case *what, uint64_t seed)
{
	uint32_t stages = what->shape.ranks * what->shape.chunks;
	memset(what->stage_layers, 0, sizeof(what->stage_layers));
	for (uint32_t layer = 0; layer < LAYERS; layer++)
		what->stage_layers[seed == 0 ? layer % stages
		                             : rng_below(rng_key(seed, 0, 0), 0, layer, stages)]++;
}

#endif
