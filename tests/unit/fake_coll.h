/* A stand-in for libtraincoll in one process: each peer is a thread, a round is a meeting of all of them, sums are taken in the order of peers. Peers join and die at rounds that
 * the test names. Defines the tr_* functions that the trainer calls, so that the linker takes these instead of the library's. */
#ifndef TR_TESTS_UNIT_FAKE_COLL_H
#define TR_TESTS_UNIT_FAKE_COLL_H

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "collectives/coll.h"
#include "common/error.h"
#include "common/limits.h"

#define FAKE_PEERS_MAX  4
#define FAKE_OPS_MAX    64
#define FAKE_STATES_MAX 64
/* Elements that share a set of contributors; other than the library's, since who asks it need not know. */
#define FAKE_SEGMENT_BYTES (24u << 10)

struct fake_op {
	uint32_t tag;
	char *data;
	size_t count, element_bytes;
	bool contributes, reduced; /* reduced: by a wait in the middle of the round */
	bool largest;              /* of int64_t; else the sum */
};

struct fake_state {
	void *data;
	size_t bytes;
	bool gradual;
};

struct fake_world;

struct tr_group {
	struct fake_world *world;
	unsigned peer;
	uint64_t id;       /* 0: peer + 10 */
	uint64_t joins_at; /* 0: founder; else its first round, in which it does not contribute */
	uint64_t dies_at;  /* 0: never; else in this round, before its commit */
	bool dead;
	uint64_t committed, begun;
	bool reduced; /* the ops of the round under way */
	bool closing; /* its commit came too early, and is to be called again */
	struct tr_commit commit;
	struct fake_op ops[FAKE_OPS_MAX];
	size_t op_count, state_count, memory_count;
	struct fake_state states[FAKE_STATES_MAX];
	void *memory[32];
	size_t memory_bytes[32];
	/* What it reported. */
	double first_loss, loss, val_loss;
	unsigned events, checkpoints, steps_reported;
	char event[512], checkpoint[4096], sample[4096];
	uint64_t samples;
	uint64_t
	    whole_at; /* 0: not gradual; else all of its state is here when that round's first try is given up */
	bool whole;
	bool head_only; /* what may come gradually comes to who waits for all of it alone */
	uint64_t whole_in_commit; /* all is here between the last look and the commit of that round */
};

struct fake_world {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	unsigned peers;
	struct tr_group groups[FAKE_PEERS_MAX];
	bool keep;                /* policy; else replay */
	uint64_t restart_at;      /* this round's first attempt is abandoned although nobody died */
	bool restart_in_progress; /* it is: tr_progress says so */
	void (*progressed)(void *arg); /* tr_progress was called */
	unsigned late, late_commits;   /* so many more tr_wait_for, commits come too early */
	unsigned waits_to_eviction;    /* 0: none; else that tr_wait_for says so */
	uint32_t patience_ms;          /* of the newest */
	unsigned attempts;
	/* The meeting. */
	unsigned arrived, meeting;
	tr_status verdict;
	bool partial;
	uint64_t contributor_mask, whole_mask; /* of odd segments, and of even ones */
	char verdict_text[128];
};

static bool fake_takes_part(const struct tr_group *g, uint64_t round)
{
	return !g->dead && g->joins_at <= round;
}

static bool fake_contributes(const struct tr_group *g, uint64_t round)
{
	return !g->dead &&
	    (g->joins_at == 0 ||
	        (g->whole_at > 0 ? g->whole && g->whole_at < round : g->joins_at < round));
}

void *tr_alloc(tr_group *g, size_t bytes)
{
	void *memory = aligned_alloc(64, (bytes + 63) / 64 * 64);
	memset(memory, 0, bytes);
	g->memory_bytes[g->memory_count] = bytes;
	g->memory[g->memory_count++] = memory;
	return memory;
}

void *tr_alloc_sparse(tr_group *g, size_t bytes)
{
	return tr_alloc(g, bytes);
}

tr_status tr_state_add(tr_group *g, const char *name, void *data, size_t bytes,
    struct tr_error *error)
{
	if (g->state_count == FAKE_STATES_MAX)
		return tr_error_set(error, TR_ELIMIT, "%s: one state too many for a fake", name);
	g->states[g->state_count++] = (struct fake_state){ data, bytes, false };
	return TR_OK;
}

tr_status tr_state_add_gradual(tr_group *g, const char *name, void *data, size_t bytes,
    uint32_t unit, struct tr_error *error)
{
	(void)unit;
	tr_status st = tr_state_add(g, name, data, bytes, error);
	if (st == TR_OK)
		g->states[g->state_count - 1].gradual = true;
	return st;
}

tr_status tr_state_ready(tr_group *g, uint64_t round, struct tr_error *error)
{
	(void)error;
	g->committed = g->joins_at == 0 ? round : g->joins_at - 1;
	return TR_OK;
}

uint64_t tr_peer_id(const tr_group *g)
{
	return g->id > 0 ? g->id : g->peer + 10;
}

bool tr_progress(tr_group *g)
{
	struct fake_world *w = g->world;
	(void)pthread_mutex_lock(&w->lock);
	bool go_on = !(w->restart_in_progress && w->restart_at == g->begun);
	if (w->progressed != NULL)
		w->progressed(NULL);
	(void)pthread_mutex_unlock(&w->lock);
	return go_on;
}

tr_status tr_round_begin(tr_group *g, struct tr_round *round, struct tr_error *error)
{
	struct fake_world *w = g->world;
	*round = (struct tr_round){ .round = g->committed + 1, .view = 1, .policy = TR_UNIFORM };
	(void)pthread_mutex_lock(&w->lock);
	if (g->dead || g->closing) {
		(void)pthread_mutex_unlock(&w->lock);
		return g->dead ? tr_error_set(error, TR_EEVICTED, "dead")
		               : tr_error_set(error, TR_EINVAL, "commit it first");
	}
	if (w->restart_in_progress && w->restart_at == g->begun) {
		/* The abandoned attempt ends when all have noticed. */
		unsigned meeting = w->meeting;
		if (++w->arrived == w->peers) {
			w->restart_at = 0;
			w->restart_in_progress = false;
			w->arrived = 0;
			w->meeting++;
			(void)pthread_cond_broadcast(&w->changed);
		}
		while (w->meeting == meeting)
			(void)pthread_cond_wait(&w->changed, &w->lock);
	}
	for (unsigned i = 0; i < w->peers; i++) {
		const struct tr_group *other = &w->groups[i];
		round->peers += fake_takes_part(other, round->round);
		if (fake_contributes(other, round->round)) {
			round->index += i < g->peer;
			round->contributors++;
		}
	}
	if (!fake_contributes(g, round->round))
		round->index = round->contributors;
	round->receive_state = g->whole_at > 0 ? !g->whole : g->joins_at == round->round;
	g->begun = round->round;
	g->op_count = 0;
	g->reduced = false;
	(void)pthread_cond_broadcast(&w->changed);
	/* A joiner comes in when the others are there. */
	while (round->receive_state && w->groups[0].begun != g->begun && g->joins_at == g->begun)
		(void)pthread_cond_wait(&w->changed, &w->lock);
	(void)pthread_mutex_unlock(&w->lock);
	return TR_OK;
}

tr_status tr_round_contributors(tr_group *g, uint64_t *peers, size_t max, size_t *count,
    struct tr_error *error)
{
	(void)error;
	*count = 0;
	for (unsigned p = 0; p < g->world->peers; p++) {
		if (!fake_contributes(&g->world->groups[p], g->begun))
			continue;
		if (*count < max)
			peers[*count] = tr_peer_id(&g->world->groups[p]);
		++*count;
	}
	return TR_OK;
}

tr_status tr_allreduce(tr_group *g, uint32_t tag, void *data, size_t count, enum tr_dtype dtype,
    enum tr_reduce reduce, unsigned flags, struct tr_error *error)
{
	(void)error;
	if (reduce != (dtype == TR_I64 ? TR_MAX : TR_SUM) || g->op_count == FAKE_OPS_MAX)
		abort();
	(void)pthread_mutex_lock(&g->world->lock);
	g->ops[g->op_count++] = (struct fake_op){ tag, data, count,
		dtype == TR_F32 ? sizeof(float) : sizeof(double), (flags & TR_CONTRIBUTE) != 0,
		false, dtype == TR_I64 };
	(void)pthread_cond_broadcast(&g->world->changed);
	(void)pthread_mutex_unlock(&g->world->lock);
	return TR_OK;
}

/* All-reduces out of place, as tr_sync wants them. */
tr_status tr_submit(tr_group *g, const struct tr_op *op, struct tr_error *error)
{
	if (op->collective != TR_ALL_REDUCE || op->codec != TR_CODEC_NONE || op->input == NULL)
		abort();
	memcpy(op->output, op->input, op->count * sizeof(float));
	return tr_allreduce(g, op->tag, op->output, op->count, op->dtype, op->reduce, op->flags,
	    error);
}

/* For peers whose state differs: here nobody's does. */
tr_status tr_allgather(tr_group *g, uint32_t tag, const void *input, void *output, size_t count,
    enum tr_dtype dtype, struct tr_error *error)
{
	(void)g, (void)tag, (void)input, (void)output, (void)count, (void)dtype, (void)error;
	abort();
}

/* The donor's state does not change before the commit of this round, which needs us. */
static void fake_copy_state(tr_group *g, bool gradual)
{
	const struct tr_group *donor = &g->world->groups[0];
	for (size_t i = 0; i < g->state_count; i++)
		if (gradual || !g->states[i].gradual)
			memcpy(g->states[i].data, donor->states[i].data, g->states[i].bytes);
}

tr_status tr_state_receive(tr_group *g, struct tr_error *error)
{
	(void)error;
	fake_copy_state(g, true);
	return TR_OK;
}

tr_status tr_state_receive_for(tr_group *g, uint32_t milliseconds,
    struct tr_state_progress *progress, struct tr_error *error)
{
	(void)milliseconds;
	*progress = (struct tr_state_progress){ .whole = true };
	if (g->whole_at > 0 && !g->whole) {
		*progress = (struct tr_state_progress){ .bytes = 1100000000,
			.missing = 1000000000,
			.came = 100000000,
			.kept = 100000000,
			.may_defer = true };
		fake_copy_state(g, !g->head_only);
		struct timespec t = { 0, 50000000 };
		(void)nanosleep(&t, NULL);
		return TR_ETIMEDOUT;
	}
	return tr_state_receive(g, error);
}

static struct fake_op *fake_op(struct tr_group *g, uint32_t tag)
{
	for (size_t i = 0; i < g->op_count; i++)
		if (g->ops[i].tag == tag)
			return &g->ops[i];
	return NULL;
}

/* Its memory is the caller's: nothing may be done with it any more. */
tr_status tr_release(tr_group *g, uint32_t tag, struct tr_error *error)
{
	struct fake_op *op = fake_op(g, tag);
	if (op == NULL || !op->reduced)
		return tr_error_set(error, TR_EINVAL, "release: op %u has no result", tag);
	*op = g->ops[--g->op_count];
	return TR_OK;
}

/* Sums bytes [from, to) of one op over the peers of `mask` and hands the result to all. */
static void fake_reduce(struct fake_world *w, uint32_t tag, size_t from, size_t to, uint64_t mask,
    uint64_t round)
{
	double *sum = calloc(to - from, sizeof(double));
	for (unsigned pass = 0; pass < 2; pass++) {
		for (unsigned p = 0; p < w->peers; p++) {
			struct tr_group *g = &w->groups[p];
			struct fake_op *op = fake_takes_part(g, round) ? fake_op(g, tag) : NULL;
			if (op == NULL || (pass == 0 && (!op->contributes || !(mask >> p & 1))))
				continue;
			for (size_t i = from; i < to; i++) {
				float *f = (float *)op->data + i;
				double *d = (double *)op->data + i;
				bool wide = op->element_bytes == sizeof(double);
				if (pass == 0)
					sum[i - from] += wide ? *d : (double)*f;
				else if (wide)
					*d = sum[i - from];
				else
					*f = (float)sum[i - from];
			}
		}
	}
	free(sum);
}

static void fake_largest(struct fake_world *w, uint32_t tag, size_t count, uint64_t round)
{
	for (size_t i = 0; i < count; i++) {
		int64_t largest = INT64_MIN;
		for (unsigned pass = 0; pass < 2; pass++)
			for (unsigned p = 0; p < w->peers; p++) {
				struct tr_group *g = &w->groups[p];
				struct fake_op *op = fake_takes_part(g, round) ? fake_op(g, tag)
				                                               : NULL;
				int64_t *here = op != NULL ? (int64_t *)op->data + i : NULL;
				if (here != NULL && pass == 1)
					*here = largest;
				else if (here != NULL && op->contributes && *here > largest)
					largest = *here;
			}
	}
}

static void fake_reduce_all(struct fake_world *w, struct tr_group *any, uint64_t round)
{
	for (size_t o = 0; o < any->op_count; o++) {
		struct fake_op op = any->ops[o];
		if (op.reduced)
			continue;
		for (unsigned p = 0; p < w->peers; p++) {
			struct fake_op *other = fake_takes_part(&w->groups[p], round)
			    ? fake_op(&w->groups[p], op.tag)
			    : &op;
			if (other == NULL || other->count != op.count)
				abort(); /* peers disagree about an op */
		}
		if (op.largest) {
			fake_largest(w, op.tag, op.count, round);
			continue;
		}
		size_t piece = FAKE_SEGMENT_BYTES / op.element_bytes;
		for (size_t at = 0, s = 0; at < op.count; at += piece, s++)
			fake_reduce(w, op.tag, at, at + piece < op.count ? at + piece : op.count,
			    s % 2 == 0 ? w->whole_mask : w->contributor_mask, round);
	}
}

/* All are here: decide the round. The dead of this round count in even segments only (policy keep). */
static void fake_decide(struct fake_world *w, struct tr_group *any)
{
	uint64_t round = any->begun, dying = 0;
	w->whole_mask = w->contributor_mask = 0;
	w->attempts++;
	for (unsigned p = 0; p < w->peers; p++) {
		struct tr_group *g = &w->groups[p];
		if (!fake_takes_part(g, round))
			continue;
		if (g->dies_at == round)
			dying |= 1u << p;
		if (fake_contributes(g, round))
			w->whole_mask |= 1u << p;
	}
	w->contributor_mask = w->whole_mask & ~dying;
	w->partial = dying != 0;
	w->verdict = TR_OK;
	if (round == w->restart_at || (dying != 0 && !w->keep)) {
		for (unsigned p = 0; p < w->peers; p++)
			w->groups[p].whole = w->groups[p].whole || w->groups[p].whole_at == round;
		w->verdict = TR_ERESTART;
		w->restart_at = 0;
		w->restart_in_progress = false;
		(void)snprintf(w->verdict_text, sizeof(w->verdict_text), "a peer was lost");
	} else {
		fake_reduce_all(w, any, round);
	}
	for (unsigned p = 0; p < w->peers; p++)
		if (dying >> p & 1)
			w->groups[p].dead = true;
}

/* Waits for all members of the round; the last to come runs `last`, which sets the verdict. Returns it, with the lock held. */
static tr_status fake_meet(struct tr_group *g, void (*last)(struct fake_world *, struct tr_group *))
{
	struct fake_world *w = g->world;
	unsigned needed = 0, meeting = w->meeting;
	for (unsigned p = 0; p < w->peers; p++)
		needed += fake_takes_part(&w->groups[p], g->begun);
	if (++w->arrived == needed) {
		w->arrived = 0;
		last(w, g);
		w->meeting++;
		(void)pthread_cond_broadcast(&w->changed);
	}
	while (w->meeting == meeting)
		(void)pthread_cond_wait(&w->changed, &w->lock);
	return g->dead ? TR_EEVICTED : w->verdict;
}

/* Whether everybody has submitted the op, which is their first. */
static bool fake_first_is_there(const struct fake_world *w, const struct tr_group *g, uint32_t tag)
{
	for (unsigned p = 0; p < w->peers; p++) {
		const struct tr_group *other = &w->groups[p];
		if (fake_takes_part(other, g->begun) &&
		    (other->begun != g->begun || other->op_count == 0 || other->ops[0].tag != tag))
			return false;
	}
	return true;
}

/* Who has submitted one op only waits for that one alone, in the middle of its round: the others go on. */
static tr_status fake_wait_first(struct tr_group *g, uint32_t tag)
{
	struct fake_world *w = g->world;
	while (!fake_first_is_there(w, g, tag))
		(void)pthread_cond_wait(&w->changed, &w->lock);
	if (g->ops[0].reduced)
		return TR_OK;
	w->whole_mask = 0;
	for (unsigned p = 0; p < w->peers; p++)
		w->whole_mask |= (uint64_t)fake_contributes(&w->groups[p], g->begun) << p;
	w->contributor_mask = w->whole_mask;
	fake_reduce_all(w, g, g->begun);
	for (unsigned p = 0; p < w->peers; p++)
		if (fake_takes_part(&w->groups[p], g->begun))
			w->groups[p].ops[0].reduced = true;
	return TR_OK;
}

/* The op that is waited for first is the last of its round: so all are reduced here, and the commit only compares salts. */
tr_status tr_wait(tr_group *g, uint32_t tag, struct tr_error *error)
{
	(void)pthread_mutex_lock(&g->world->lock);
	if (g->reduced && fake_op(g, tag) != NULL) {
		(void)pthread_mutex_unlock(&g->world->lock);
		return TR_OK;
	}
	if (g->op_count == 1 && g->ops[0].tag == tag) {
		tr_status first = fake_wait_first(g, tag);
		(void)pthread_mutex_unlock(&g->world->lock);
		return first;
	}
	if (g->op_count == 0 || g->ops[g->op_count - 1].tag != tag)
		abort();
	tr_status verdict = fake_meet(g, fake_decide);
	g->reduced = verdict == TR_OK;
	(void)tr_error_set(error, verdict, "%s", g->world->verdict_text);
	(void)pthread_mutex_unlock(&g->world->lock);
	return verdict;
}

/* Only looks: what is there is reduced by whoever waits for it. */
tr_status tr_wait_for(tr_group *g, uint32_t tag, uint32_t milliseconds, struct tr_error *error)
{
	struct fake_world *w = g->world;
	(void)tag;
	(void)pthread_mutex_lock(&w->lock);
	tr_status status = w->late > 0 ? TR_ETIMEDOUT : TR_OK;
	w->late -= w->late > 0;
	w->patience_ms = milliseconds;
	if (w->waits_to_eviction > 0 && --w->waits_to_eviction == 0)
		status = TR_EEVICTED;
	(void)pthread_mutex_unlock(&w->lock);
	return tr_error_set(error, status, "it is not there yet");
}

static void fake_compare(struct fake_world *w, struct tr_group *any)
{
	w->verdict = TR_OK;
	for (unsigned p = 0; p < w->peers; p++) {
		const struct tr_group *g = &w->groups[p];
		if (fake_takes_part(g, any->begun) &&
		    (g->commit.salt != any->commit.salt ||
		        g->commit.samples != any->commit.samples)) {
			w->verdict = TR_EDIGEST;
			(void)snprintf(w->verdict_text, sizeof(w->verdict_text),
			    "salts or samples differ in round %u", (unsigned)any->begun);
		}
	}
}

static void fake_decide_and_compare(struct fake_world *w, struct tr_group *any)
{
	fake_decide(w, any);
	if (w->verdict == TR_OK)
		fake_compare(w, any);
}

tr_status tr_round_commit(tr_group *g, const struct tr_commit *commit, struct tr_round *round,
    struct tr_error *error)
{
	struct fake_world *w = g->world;
	(void)pthread_mutex_lock(&w->lock);
	g->commit = *commit;
	g->closing = false;
	if (g->whole_in_commit > 0 && g->whole_in_commit == g->begun)
		g->whole = true;
	tr_status verdict = fake_meet(g, g->reduced ? fake_compare : fake_decide_and_compare);
	round->partial = w->partial;
	round->receive_state = g->whole_at > 0 && !g->whole;
	if (verdict == TR_OK) {
		g->committed++;
		g->samples += commit->samples;
	}
	(void)tr_error_set(error, verdict, "%s", w->verdict_text);
	(void)pthread_mutex_unlock(&w->lock);
	return verdict;
}

tr_status tr_round_commit_for(tr_group *g, const struct tr_commit *commit, struct tr_round *round,
    uint32_t milliseconds, struct tr_error *error)
{
	struct fake_world *w = g->world;
	(void)milliseconds;
	g->closing = w->late_commits > 0;
	if (g->closing) {
		w->late_commits--;
		return TR_ETIMEDOUT;
	}
	if (w->restart_in_progress && w->restart_at == g->begun)
		return tr_error_set(error, TR_ERESTART, "a peer was lost");
	return tr_round_commit(g, commit, round, error);
}

tr_status tr_run_elements(tr_group *g, uint32_t tag, size_t *elements)
{
	const struct fake_op *op = fake_op(g, tag);
	*elements = op != NULL ? FAKE_SEGMENT_BYTES / op->element_bytes : 0;
	return op != NULL ? TR_OK : TR_ENOTFOUND;
}

tr_status tr_contributors(tr_group *g, uint32_t tag, size_t element, uint64_t *peers, size_t max,
    size_t *count)
{
	struct fake_op *op = fake_op(g, tag);
	if (op == NULL || element >= op->count)
		return TR_ENOTFOUND;
	size_t segment = element * op->element_bytes / FAKE_SEGMENT_BYTES;
	uint64_t mask = segment % 2 == 0 ? g->world->whole_mask : g->world->contributor_mask;
	*count = 0;
	for (unsigned p = 0; p < g->world->peers && *count < max; p++)
		if (mask >> p & 1)
			peers[(*count)++] = p + 10;
	return TR_OK;
}

static void fake_world_init(struct fake_world *w, unsigned peers)
{
	memset(w, 0, sizeof(*w));
	(void)pthread_mutex_init(&w->lock, NULL);
	(void)pthread_cond_init(&w->changed, NULL);
	w->peers = peers;
	for (unsigned p = 0; p < peers; p++) {
		w->groups[p].world = w;
		w->groups[p].peer = p;
		w->groups[p].val_loss = NAN;
	}
}

static void fake_world_finish(struct fake_world *w)
{
	for (unsigned p = 0; p < w->peers; p++)
		for (size_t i = 0; i < w->groups[p].memory_count; i++)
			free(w->groups[p].memory[i]);
	(void)pthread_mutex_destroy(&w->lock);
	(void)pthread_cond_destroy(&w->changed);
}

#include "tests/unit/fake_coll_told.h"

#endif
