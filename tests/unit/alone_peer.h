/* A member of a stand-in group of one, whose merges may be late (collectives/sync/alone.h). */
#ifndef TR_TESTS_UNIT_ALONE_PEER_H
#define TR_TESTS_UNIT_ALONE_PEER_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "collectives/sync.h"
#include "collectives/sync/lease.h"
#include "collectives/sync/sync_internal.h"
#include "tests/unit/fake_coll.h"

enum { NUMBERS = 6, TENSORS = 2, H = 4, BATCH = 8, ALONE = 3, TOKENS = 16 };

struct peer {
	struct fake_world world;
	tr_group *group;
	struct tr_sync_options options;
	float w[TENSORS][NUMBERS];
	tr_sync *sync;
	struct tr_sync_now now;
	uint64_t steps;
};

struct numbers {
	double at[TENSORS][NUMBERS];
};

static inline struct numbers numbers_of(const struct peer *p)
{
	struct numbers n;
	for (unsigned t = 0; t < TENSORS; t++)
		for (unsigned i = 0; i < NUMBERS; i++)
			n.at[t][i] = (double)p->w[t][i];
	return n;
}

static inline void assert_near(const struct peer *p, const struct numbers *expected)
{
	for (unsigned t = 0; t < TENSORS; t++)
		for (unsigned i = 0; i < NUMBERS; i++)
			assert_true(fabs((double)p->w[t][i] - expected->at[t][i]) < 2e-6);
}

static struct tr_sync_options options_of(enum tr_sync_mode mode)
{
	struct tr_sync_options o = TR_SYNC_OPTIONS_INIT;
	o.mode = mode;
	o.steps = 1000;
	o.inner_steps = H;
	o.batch = BATCH;
	o.alone_steps = ALONE;
	return o;
}

static void peer_create(struct peer *p, tr_group *group, float first)
{
	struct tr_sync_tensor tensors[TENSORS] = { 0 };
	struct tr_error error;
	p->group = group;
	for (unsigned t = 0; t < TENSORS; t++) {
		for (unsigned i = 0; i < NUMBERS; i++)
			p->w[t][i] = first + (float)(t + i) / 8;
		tensors[t] = (struct tr_sync_tensor){ .name = "w",
			.data = p->w[t],
			.count = NUMBERS,
			.layer = t };
	}
	assert_int_equal(tr_sync_create(p->group, &p->options, tensors, TENSORS, &p->sync, &error),
	    TR_OK);
}

static inline struct peer *peer_with(const struct tr_sync_options *options, uint64_t id, float first)
{
	struct peer *p = calloc(1, sizeof(*p));
	fake_world_init(&p->world, 1);
	p->world.groups[0].id = id;
	p->options = *options;
	peer_create(p, &p->world.groups[0], first);
	return p;
}

static inline struct peer *peer_new(enum tr_sync_mode mode, uint64_t id, float first)
{
	struct tr_sync_options options = options_of(mode);
	return peer_with(&options, id, first);
}

static void peer_start(struct peer *p)
{
	struct tr_error error;
	assert_int_equal(tr_state_ready(p->group, 0, &error), TR_OK);
	assert_int_equal(tr_sync_start(p->sync, &p->now, &error), TR_OK);
}

static inline void peer_end(struct peer *p)
{
	tr_sync_destroy(p->sync);
	fake_world_finish(&p->world);
	free(p);
}

static inline void train(struct peer *p)
{
	struct tr_error error;
	p->steps++;
	for (unsigned t = 0; t < TENSORS; t++)
		for (unsigned i = 0; i < NUMBERS; i++)
			p->w[t][i] -= (float)((p->steps * 7 + t * 3 + i) % 11) / 64;
	assert_int_equal(p->now.samples, BATCH);
	struct tr_sync_work did = { .tokens = TOKENS, .samples = BATCH, .loss = 2 };
	assert_int_equal(tr_sync_step(p->sync, &did, &p->now, &error), TR_OK);
}

/* Up to the first merge, which is late. */
static inline void train_until_alone(struct peer *p, struct numbers *taken)
{
	p->world.late = 1000;
	while (!p->now.alone) {
		assert_true(p->steps < 4 * H);
		train(p);
		if (p->steps ==
		    H) /* but for eager mode, where it is taken then and merged H steps later */
			*taken = numbers_of(p);
	}
	assert_true(p->world.patience_ms > 4000 && p->world.patience_ms <= 5000);
}

#endif
