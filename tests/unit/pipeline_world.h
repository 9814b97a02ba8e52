/* What is between the ranks of a mesh (pp x tp) that are threads of one process: channels in memory and sums of tensor-parallel groups. For pipeline_ranks.h.
 *
 * The channel keeps what it is given as long as collectives/coll.h allows a group to (tr_release): bytes are copied out of the sender's memory when the receiver waits for
 * them, the latest moment there is. Memory comes back when its user knows that the other end has the message: of a receive when it was waited for, of a send when something has come that the
 * other end has sent after that. What is idle is filled with NaN, and so is
 * what a receive has not filled yet. So a buffer used too early or too late gives a wrong gradient. */
#ifndef TR_TESTS_PIPELINE_WORLD_H
#define TR_TESTS_PIPELINE_WORLD_H

#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/rng.h"
#include "daemon/checkpoint/shard.h"
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
	struct meeting_calls calls;
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
	meeting_called(&p->calls, kind, count);
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

#endif
