/* Ranks of a mesh (pp x tp) as threads of one process, with channels in memory between them: what test_pipeline.c and test_pipeline_f32.c run.
 *
 * The channel keeps what it is given as long as collectives/coll.h allows a group to (tr_release): bytes are copied out of the sender's memory when the receiver waits for
 * them, the latest moment there is. Memory comes back when its user knows that the other end has the message: of a receive when it was waited for, of a send when something has come that the
 * other end has sent after that. What is idle is filled with NaN, and so is
 * what a receive has not filled yet. So a buffer used too early or too late gives a wrong gradient. */
#ifndef TR_TESTS_PIPELINE_RANKS_H
#define TR_TESTS_PIPELINE_RANKS_H

#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/rng.h"
#include "daemon/checkpoint/shard.h"
#include "daemon/plan/memory.h"
#include "daemon/worker/gemm.h"
#include "daemon/worker/pipeline.h"
#include "tests/unit/meetings.h"

enum {
	PP_MOST = 4,
	TP_MOST = 2,
	STAGES_MOST = 8,
	MICRO_MOST = 40,
	SEQUENCES = 3,
	LENGTH = 9,
	SPLIT_LENGTH = 8,
	CONTEXT = 10,
	VOCAB = 23,
	LAYERS = 7,
	NUMBERS_MOST = 2 * STAGES_MOST * MICRO_MOST,
	MEMORY_MOST = 256
};

struct mesh_case {
	const struct model_config *config;
	struct schedule_shape shape;
	uint32_t stage_layers[STAGES_MOST];
	uint32_t tp;
	unsigned threads;
	bool recompute;
	bool splits; /* sequence parallel */
	bool loss_only;
	double dropout;
	int stops_after; /* after so many calls of channels and sums, all together; then it begins again. -1: none stops */
};

/* Clocks: 0 means not yet. */
struct letter {
	const real *from;
	real *to;
	size_t count;
	uint32_t sender, receiver;
	uint64_t sent, posted, waited;
};

/* What is between the ranks of one place of tp, and the sums of one pipeline rank. */
struct wires {
	struct letter letters[NUMBERS_MOST];
};
struct table {
	real *arrays[TP_MOST];
	unsigned there, turn;
	real *sum;
};

struct world {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	bool stopped;
	int calls, stops_after;
	uint64_t clock;
	const struct schedule *schedule; /* that is run */
	uint32_t tp;
	struct wires wires[TP_MOST];
	struct table tables[PP_MOST];
};

struct player {
	struct world *world;
	const struct mesh_case *what;
	uint32_t pp, tp;
	struct shard shard;
	struct layout local;
	struct pool *pool;
	struct pipeline *pipeline;
	struct model_tensor tensor;
	struct model_batch batches[MICRO_MOST];
	real *memory[MEMORY_MOST];
	size_t memories, memory_numbers;
	real *params, *grads, *snapshot;
	size_t final;
	double loss;
	bool finished;
};

static inline void *zeroed(size_t numbers)
{
	size_t bytes = (numbers * sizeof(real) + 63) / 64 * 64;
	void *made = aligned_alloc(64, bytes > 0 ? bytes : 64);
	assert_non_null(made);
	memset(made, 0, bytes);
	return made;
}

static inline void scribble(real *data, size_t count)
{
	for (size_t i = 0; i < count; i++)
		data[i] = NAN;
}

/* Locks. False: the world has stopped, and is not locked. */
static inline bool enter(struct world *w)
{
	(void)pthread_mutex_lock(&w->lock);
	w->calls++;
	if (w->stops_after >= 0 && w->calls > w->stops_after && !w->stopped) {
		w->stopped = true;
		(void)pthread_cond_broadcast(&w->changed);
	}
	if (w->stopped)
		(void)pthread_mutex_unlock(&w->lock);
	return !w->stopped;
}

static inline bool leave(struct world *w)
{
	bool good = !w->stopped;
	(void)pthread_cond_broadcast(&w->changed);
	(void)pthread_mutex_unlock(&w->lock);
	return good;
}

static inline struct letter *letter_of(const struct player *p, uint64_t ticket)
{
	return &p->world->wires[p->tp].letters[ticket];
}

static inline bool channel_send(void *arg, const struct pipeline_message *message, const real *data,
    size_t count, uint64_t *ticket)
{
	struct player *p = arg;
	if (!enter(p->world))
		return false;
	*ticket = pipeline_message_number(&p->what->shape, message);
	assert_true(*ticket <
	    2ull * p->what->shape.ranks * p->what->shape.chunks * p->what->shape.microbatches);
	struct letter *l = letter_of(p, *ticket);
	assert_true(l->sent == 0 && (l->posted == 0 || l->count == count));
	l->from = data;
	l->count = count;
	l->sender = p->pp;
	l->receiver = message->peer;
	l->sent = ++p->world->clock;
	return leave(p->world);
}

static inline bool channel_receive(void *arg, const struct pipeline_message *message, real *data,
    size_t count, uint64_t *ticket)
{
	struct player *p = arg;
	if (!enter(p->world))
		return false;
	*ticket = pipeline_message_number(&p->what->shape, message);
	struct letter *l = letter_of(p, *ticket);
	assert_true(l->posted == 0 && (l->sent == 0 || l->count == count));
	assert_true(l->sent == 0 || (l->receiver == p->pp && l->sender == message->peer));
	l->to = data;
	l->count = count;
	l->posted = ++p->world->clock;
	scribble(data, count);
	return leave(p->world);
}

static inline bool channel_wait(void *arg, uint64_t ticket)
{
	struct player *p = arg;
	struct letter *l = letter_of(p, ticket);
	if (!enter(p->world))
		return false;
	/* Of a send it would say nothing: that ends when the bytes are on their way. */
	assert_true(l->posted != 0 && (l->sent == 0 || l->receiver == p->pp));
	while (l->sent == 0 && !p->world->stopped)
		(void)pthread_cond_wait(&p->world->changed, &p->world->lock);
	if (!p->world->stopped) {
		memcpy(l->to, l->from, l->count * sizeof(real));
		l->waited = ++p->world->clock;
	}
	return leave(p->world);
}

/* Has anything come from the other end of this send that was sent after it had this? */
static inline bool heard(const struct wires *wires, const struct letter *l)
{
	for (size_t i = 0; l->waited != 0 && i < NUMBERS_MOST; i++) {
		const struct letter *o = &wires->letters[i];
		if (o->waited != 0 && o->sender == l->receiver && o->receiver == l->sender &&
		    o->sent > l->waited)
			return true;
	}
	return false;
}

static inline bool channel_idle(void *arg, uint64_t ticket)
{
	struct player *p = arg;
	struct letter *l = letter_of(p, ticket);
	if (!enter(p->world))
		return false;
	bool sends = l->sent != 0 && l->sender == p->pp;
	bool idle = sends ? heard(&p->world->wires[p->tp], l) : l->waited != 0;
	if (idle)
		scribble(sends ? (real *)(uintptr_t)l->from : l->to, l->count);
	(void)leave(p->world);
	return idle;
}

static inline real *channel_memory(void *arg, size_t numbers)
{
	struct player *p = arg;
	assert_true(p->memories < MEMORY_MOST);
	real *made = zeroed(numbers);
	p->memory[p->memories++] = made;
	p->memory_numbers = numbers;
	return made;
}

/* Number i at all; the last one to come does it. */
static inline void join(const struct table *t, uint32_t tp, enum meeting kind, size_t i,
    size_t count)
{
	real made[TP_MOST];
	for (uint32_t k = 0; k < tp; k++)
		made[k] = meeting_number(kind, t->arrays, tp, i, count, k);
	for (uint32_t k = 0; k < tp; k++)
		t->arrays[k][i] = made[k];
}

static inline bool meet(struct player *p, real *data, size_t count, enum meeting kind)
{
	struct world *w = p->world;
	struct table *t = &w->tables[p->pp];
	if (!enter(w))
		return false;
	unsigned turn = t->turn;
	t->arrays[p->tp] = data;
	if (++t->there == w->tp) {
		for (size_t i = 0; i < count; i++)
			join(t, w->tp, kind, i, count);
		t->there = 0;
		t->turn++;
		(void)pthread_cond_broadcast(&w->changed);
	}
	while (t->turn == turn && !w->stopped)
		(void)pthread_cond_wait(&w->changed, &w->lock);
	return leave(w);
}

static inline bool sum_here(void *arg, real *data, size_t count)
{
	return meet(arg, data, count, SUM);
}

static inline bool maximum_here(void *arg, real *data, size_t count)
{
	return meet(arg, data, count, MAXIMUM);
}

static inline bool reduce_scatter_here(void *arg, real *data, size_t count)
{
	return meet(arg, data, count, SCATTER);
}

static inline bool all_gather_here(void *arg, real *data, size_t count)
{
	return meet(arg, data, count, GATHER);
}

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
