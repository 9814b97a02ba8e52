/* A stand-in for libtraincoll in which a whole mesh of trainers trains (fake_coll.h is for replicas alone): each peer is a thread, an op has its result at all its members as soon as the
 * last of them has submitted it, nobody comes or dies. What each peer submits is noted in its order. Defines the tr_* functions that the trainer calls, so that the linker takes
 * these instead of the library's. */
#ifndef TR_TESTS_UNIT_MESH_WORLD_H
#define TR_TESTS_UNIT_MESH_WORLD_H

#include <setjmp.h>
#include <stdarg.h>
#include <assert.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "collectives/kernels/reduce.h"
#include "daemon/worker/trainer.h"
#include "daemon/worker/trainer_inside.h"
#include "tests/unit/fake_coll_same.h"
#include "tests/unit/trainer_job.h"

enum { WORLD_PEERS_MAX = 8, WORLD_OPS_MAX = 2048, WORLD_NOTES_MAX = 8192, WORLD_MEMORY_MAX = 256 };

struct world_op {
	struct tr_op what;
	uint32_t members; /* a bit each */
	bool done;
};

struct world_note {
	uint64_t round;
	uint32_t tag, members;
	enum tr_collective collective;
	enum tr_reduce reduce;
	size_t numbers;
};

struct world;

struct tr_group {
	struct world *world;
	unsigned peer;
	struct job *job;
	struct trainer *trainer;
	uint64_t committed;
	bool begun;
	uint64_t salt;
	struct world_op ops[WORLD_OPS_MAX];
	size_t op_count, note_count, memory_count;
	struct world_note notes[WORLD_NOTES_MAX];
	void *memory[WORLD_MEMORY_MAX];
	size_t memory_bytes[WORLD_MEMORY_MAX];
	tr_status status;
	struct tr_error error;
	/* Of a test's `submitted`. */
	float *before;
	unsigned steps, later_buckets, changed_buckets;
};

struct world {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	unsigned peers, arrived, meeting;
	struct tr_group *groups[WORLD_PEERS_MAX];
	/* In the thread of the peer, before the op is there; NULL: none. */
	void (*submitted)(struct tr_group *g, const struct tr_op *op);
	/* The same, when all is trained and the trainer is still there. */
	void (*trained)(struct tr_group *g);
};

void *tr_alloc(tr_group *g, size_t bytes)
{
	size_t room = (bytes + 63) / 64 * 64 + 64;
	void *memory = aligned_alloc(64, room);
	if (memory == NULL || g->memory_count == WORLD_MEMORY_MAX)
		abort();
	memset(memory, 0, room);
	g->memory_bytes[g->memory_count] = bytes;
	return g->memory[g->memory_count++] = memory;
}

void *tr_alloc_sparse(tr_group *g, size_t bytes)
{
	return tr_alloc(g, bytes);
}

bool coll_is_allocated(const tr_group *g, const void *data, size_t bytes);
bool coll_is_allocated(const tr_group *g, const void *data, size_t bytes)
{
	for (size_t i = 0; i < g->memory_count; i++)
		if (g->memory[i] == data && bytes <= g->memory_bytes[i])
			return true;
	return false;
}

tr_status tr_state_add(tr_group *g, const char *name, void *data, size_t bytes,
    struct tr_error *error)
{
	(void)g, (void)name, (void)data, (void)bytes, (void)error;
	return TR_OK;
}

tr_status tr_state_add_gradual(tr_group *g, const char *name, void *data, size_t bytes,
    uint32_t unit, struct tr_error *error)
{
	(void)unit;
	return tr_state_add(g, name, data, bytes, error);
}

tr_status tr_state_ready(tr_group *g, uint64_t round, struct tr_error *error)
{
	(void)error;
	g->committed = round;
	return TR_OK;
}

tr_status tr_state_receive(tr_group *g, struct tr_error *error)
{
	(void)g, (void)error;
	abort(); /* nobody joins */
}

tr_status tr_state_receive_for(tr_group *g, uint32_t milliseconds,
    struct tr_state_progress *progress, struct tr_error *error)
{
	(void)milliseconds, (void)progress;
	return tr_state_receive(g, error);
}

tr_status tr_report(tr_group *g, const struct tr_report *report)
{
	(void)g, (void)report;
	return TR_OK;
}

uint64_t tr_peer_id(const tr_group *g)
{
	return g->peer + 10;
}

bool tr_progress(tr_group *g)
{
	(void)g;
	return true;
}

tr_status tr_round_begin(tr_group *g, struct tr_round *round, struct tr_error *error)
{
	(void)error;
	*round = (struct tr_round){ .round = g->committed + 1,
		.view = 1,
		.policy = TR_UNIFORM,
		.index = g->peer,
		.contributors = g->world->peers,
		.peers = g->world->peers };
	g->begun = true;
	return TR_OK;
}

tr_status tr_round_contributors(tr_group *g, uint64_t *peers, size_t max, size_t *count,
    struct tr_error *error)
{
	(void)error;
	for (unsigned p = 0; p < g->world->peers && p < max; p++)
		peers[p] = p + 10;
	*count = g->world->peers;
	return TR_OK;
}

static uint32_t world_members(const struct tr_group *g, const struct tr_op *op)
{
	uint32_t members = op->scope.count == 0 ? (1u << g->world->peers) - 1 : 0;
	for (uint32_t i = 0; i < op->scope.count; i++)
		members |= 1u << op->scope.members[i];
	if (op->collective == TR_SEND || op->collective == TR_RECV)
		return 1u << g->peer |
		    1u << (op->scope.count == 0 ? op->root : op->scope.members[op->root]);
	return members;
}

static struct world_op *world_find(struct tr_group *g, uint32_t tag, uint32_t members)
{
	for (size_t i = 0; i < g->op_count; i++)
		if (g->ops[i].what.tag == tag && (members == 0 || g->ops[i].members == members))
			return &g->ops[i];
	return NULL;
}

static double world_number(const void *data, enum tr_dtype dtype, size_t i)
{
	if (dtype == TR_I64)
		return (double)((const int64_t *)data)[i];
	return dtype == TR_F64 ? ((const double *)data)[i] : (double)((const float *)data)[i];
}

static void world_set(void *data, enum tr_dtype dtype, size_t i, double to)
{
	if (dtype == TR_I64)
		((int64_t *)data)[i] = (int64_t)to;
	else if (dtype == TR_F64)
		((double *)data)[i] = to;
	else
		((float *)data)[i] = (float)to;
}

/* Integers are added as what they are: digests are no numbers. */
static void world_reduce(struct world_op *const *ops, unsigned n, size_t i)
{
	enum tr_dtype dtype = ops[0]->what.dtype;
	enum tr_reduce how = ops[0]->what.reduce;
	double made = 0;
	int64_t whole = 0;
	for (unsigned k = 0; k < n; k++) {
		const void *from = ops[k]->what.input != NULL ? ops[k]->what.input
		                                              : ops[k]->what.output;
		double now = world_number(from, dtype, i);
		int64_t of_i64 = dtype == TR_I64 ? ((const int64_t *)from)[i] : 0;
		bool takes = k == 0 || (how == TR_MAX && now > made) ||
		    (how == TR_MIN && now < made);
		whole = how == TR_SUM ? (int64_t)((uint64_t)whole + (uint64_t)of_i64)
		    : takes           ? of_i64
		                      : whole;
		made = how == TR_SUM ? made + now : takes ? now : made;
	}
	for (unsigned k = 0; k < n; k++) {
		size_t first, own;
		tr_block_range(ops[k]->what.count, n, k, &first, &own);
		if (ops[k]->what.collective == TR_REDUCE_SCATTER && (i < first || i >= first + own))
			continue;
		if (dtype == TR_I64)
			((int64_t *)ops[k]->what.output)[i] = whole;
		else
			world_set(ops[k]->what.output, dtype, i, made);
	}
}

static void world_gather(struct world_op *const *ops, unsigned n)
{
	size_t bytes = reduce_element_bytes(ops[0]->what.dtype);
	for (unsigned from = 0; from < n; from++) {
		size_t first, own;
		tr_block_range(ops[0]->what.count, n, from, &first, &own);
		for (unsigned to = 0; to < n; to++)
			if (to != from)
				memcpy((char *)ops[to]->what.output + first * bytes,
				    (const char *)ops[from]->what.output + first * bytes,
				    own * bytes);
	}
}

static void world_pass_on(struct world_op *one, struct world_op *other)
{
	const struct world_op *from = one->what.collective == TR_SEND ? one : other;
	const struct world_op *to = from == one ? other : one;
	if (to->what.collective != TR_RECV || to->what.count != from->what.count)
		abort();
	memcpy(to->what.output, from->what.input,
	    from->what.count * reduce_element_bytes(from->what.dtype));
}

/* If all members have it: makes the result. */
static void world_try(struct tr_group *g, const struct world_op *of)
{
	struct world *w = g->world;
	struct world_op *ops[WORLD_PEERS_MAX] = { NULL };
	unsigned n = 0;
	for (unsigned p = 0; p < w->peers; p++) {
		if ((of->members >> p & 1) == 0)
			continue;
		ops[n] = w->groups[p]->committed == g->committed
		    ? world_find(w->groups[p], of->what.tag, of->members)
		    : NULL;
		if (ops[n++] == NULL)
			return;
	}
	assert(n > 0);
	switch (of->what.collective) {
	case TR_ALL_REDUCE:
	case TR_REDUCE_SCATTER:
		for (size_t i = 0; i < of->what.count; i++)
			world_reduce(ops, n, i);
		break;
	case TR_ALL_GATHER:
		world_gather(ops, n);
		break;
	case TR_SEND:
	case TR_RECV:
		world_pass_on(ops[0], ops[1]);
		break;
	case TR_BARRIER:
		break;
	default:
		abort();
	}
	for (unsigned k = 0; k < n; k++)
		ops[k]->done = true;
	(void)pthread_cond_broadcast(&w->changed);
}

/* In place, and of what the trainer submits while nothing is lost. */
tr_status tr_submit(tr_group *g, const struct tr_op *op, struct tr_error *error)
{
	(void)error;
	bool blocks = op->collective == TR_REDUCE_SCATTER || op->collective == TR_ALL_GATHER;
	if (!g->begun || op->codec != TR_CODEC_NONE || g->op_count == WORLD_OPS_MAX ||
	    g->note_count == WORLD_NOTES_MAX || op->input_block != NULL ||
	    op->output_block != NULL || (blocks && op->input != NULL))
		abort();
	if (g->world->submitted != NULL)
		g->world->submitted(g, op);
	(void)pthread_mutex_lock(&g->world->lock);
	struct world_op *own = &g->ops[g->op_count++];
	*own = (struct world_op){ .what = *op, .members = world_members(g, op) };
	g->notes[g->note_count++] = (struct world_note){ g->committed + 1, op->tag, own->members,
		op->collective, op->reduce, op->count };
	world_try(g, own);
	(void)pthread_mutex_unlock(&g->world->lock);
	return TR_OK;
}

tr_status tr_allreduce(tr_group *g, uint32_t tag, void *data, size_t count, enum tr_dtype dtype,
    enum tr_reduce reduce, unsigned flags, struct tr_error *error)
{
	struct tr_op op = TR_OP_INIT;
	op.tag = tag;
	op.output = data;
	op.count = count;
	op.dtype = dtype;
	op.reduce = reduce;
	op.flags = flags;
	return tr_submit(g, &op, error);
}

/* Waits, with the lock held. */
static struct world_op *world_done(struct tr_group *g, uint32_t tag)
{
	struct world_op *op = world_find(g, tag, 0);
	if (op == NULL)
		abort();
	while (!op->done)
		(void)pthread_cond_wait(&g->world->changed, &g->world->lock);
	return op;
}

tr_status tr_wait(tr_group *g, uint32_t tag, struct tr_error *error)
{
	(void)error;
	(void)pthread_mutex_lock(&g->world->lock);
	(void)world_done(g, tag);
	(void)pthread_mutex_unlock(&g->world->lock);
	return TR_OK;
}

tr_status tr_wait_for(tr_group *g, uint32_t tag, uint32_t milliseconds, struct tr_error *error)
{
	(void)milliseconds;
	return tr_wait(g, tag, error);
}

tr_status tr_release(tr_group *g, uint32_t tag, struct tr_error *error)
{
	(void)error;
	(void)pthread_mutex_lock(&g->world->lock);
	struct world_op *op = world_done(g, tag);
	*op = g->ops[--g->op_count];
	(void)pthread_mutex_unlock(&g->world->lock);
	return TR_OK;
}

/* All meet; whoever comes last ends the round for all. */
tr_status tr_round_commit(tr_group *g, const struct tr_commit *commit, struct tr_round *round,
    struct tr_error *error)
{
	struct world *w = g->world;
	(void)round, (void)error;
	(void)pthread_mutex_lock(&w->lock);
	unsigned meeting = w->meeting;
	g->salt = commit->salt;
	if (++w->arrived == w->peers) {
		for (unsigned p = 0; p < w->peers; p++) {
			struct tr_group *other = w->groups[p];
			for (size_t i = 0; i < other->op_count; i++)
				if (!other->ops[i].done)
					abort();
			if (other->salt != g->salt)
				abort();
			other->op_count = 0;
			other->committed++;
			other->begun = false;
		}
		w->arrived = 0;
		w->meeting++;
		(void)pthread_cond_broadcast(&w->changed);
	}
	while (w->meeting == meeting)
		(void)pthread_cond_wait(&w->changed, &w->lock);
	(void)pthread_mutex_unlock(&w->lock);
	return TR_OK;
}

tr_status tr_round_commit_for(tr_group *g, const struct tr_commit *commit, struct tr_round *round,
    uint32_t milliseconds, struct tr_error *error)
{
	(void)milliseconds;
	return tr_round_commit(g, commit, round, error);
}

/* Of rounds in which somebody is missing, and of replicas that train apart: there are none. */
tr_status tr_run_elements(tr_group *g, uint32_t tag, size_t *elements)
{
	(void)g, (void)tag, (void)elements;
	abort();
}

tr_status tr_contributors(tr_group *g, uint32_t tag, size_t element, uint64_t *peers, size_t max,
    size_t *count)
{
	(void)g, (void)tag, (void)element, (void)peers, (void)max, (void)count;
	abort();
}

tr_status tr_allgather(tr_group *g, uint32_t tag, const void *input, void *output, size_t count,
    enum tr_dtype dtype, struct tr_error *error)
{
	(void)g, (void)tag, (void)input, (void)output, (void)count, (void)dtype, (void)error;
	abort();
}

tr_status tr_broadcast(tr_group *g, uint32_t tag, void *data, size_t count, enum tr_dtype dtype,
    unsigned root, struct tr_error *error)
{
	(void)g, (void)tag, (void)data, (void)count, (void)dtype, (void)root, (void)error;
	abort();
}

static void *world_train(void *arg)
{
	struct tr_group *g = arg;
	g->status = trainer_create(g, &g->job->spec, 1, 0, &g->trainer, &g->error);
	if (g->status != TR_OK)
		return NULL;
	g->status = trainer_run(g->trainer, &g->error);
	if (g->status == TR_OK && g->world->trained != NULL)
		g->world->trained(g);
	trainer_destroy(g->trainer);
	return NULL;
}

/* All peers train the job; each one's notes are there until world_finish. */
static void world_run(struct world *w, struct job *job, unsigned peers)
{
	pthread_t threads[WORLD_PEERS_MAX];
	(void)pthread_mutex_init(&w->lock, NULL);
	(void)pthread_cond_init(&w->changed, NULL);
	assert_in_range(peers, 1, WORLD_PEERS_MAX);
	w->peers = peers;
	for (unsigned p = 0; p < peers; p++) {
		w->groups[p] = calloc(1, sizeof(*w->groups[p]));
		assert_non_null(w->groups[p]);
		*w->groups[p] = (struct tr_group){ .world = w, .peer = p, .job = job };
	}
	for (unsigned p = 0; p < peers; p++)
		assert_int_equal(pthread_create(&threads[p], NULL, world_train, w->groups[p]), 0);
	for (unsigned p = 0; p < peers; p++)
		assert_int_equal(pthread_join(threads[p], NULL), 0);
	for (unsigned p = 0; p < peers; p++)
		if (w->groups[p]->status != TR_OK)
			fail_msg("peer %u: %s", p, w->groups[p]->error.text);
}

static void world_finish(struct world *w)
{
	for (unsigned p = 0; p < w->peers; p++) {
		for (size_t i = 0; i < w->groups[p]->memory_count; i++)
			free(w->groups[p]->memory[i]);
		free(w->groups[p]->before);
		free(w->groups[p]);
	}
	(void)pthread_mutex_destroy(&w->lock);
	(void)pthread_cond_destroy(&w->changed);
}

#endif
