/* A joiner whose state comes over several rounds of tr_sync, at the moments that are easily forgotten. */
#include <pthread.h>
#include "tests/unit/alone_peer.h"

struct member {
	struct peer *peer;
	pthread_t thread;
	tr_status status;
	struct tr_error error;
	bool sound; /* when it began to train */
};

static void *live(void *arg)
{
	struct member *m = arg;
	struct peer *p = m->peer;
	m->status = tr_state_ready(p->group, 0, &m->error);
	if (m->status == TR_OK)
		m->status = tr_sync_start(p->sync, &p->now, &m->error);
	m->sound = m->status == TR_OK && tr_sync_sound(p->sync);
	while (m->status == TR_OK && !p->now.finished) {
		struct tr_sync_work did = { .tokens = TOKENS,
			.samples = (double)p->now.samples,
			.loss = 2 };
		m->status = tr_sync_step(p->sync, &did, &p->now, &m->error);
	}
	if (m->status == TR_OK)
		return NULL;
	(void)pthread_mutex_lock(&p->group->world->lock);
	p->group->dead = true;
	(void)pthread_cond_broadcast(&p->group->world->changed);
	(void)pthread_mutex_unlock(&p->group->world->lock);
	return NULL;
}

/* Three train, and a fourth one comes in round 2. */
static void prepare(struct fake_world *world, struct member *members)
{
	fake_world_init(world, 4);
	world->groups[3].joins_at = 2;
	world->groups[3].whole_at = 3;
	for (unsigned i = 0; i < 4; i++) {
		struct peer *p = members[i].peer = calloc(1, sizeof(*p));
		assert_non_null(p);
		p->options = options_of(TR_SYNC_DILOCO);
		p->options.steps = 8 * H;
		p->options.batch = 0;
		p->options.alone_steps = 0;
		peer_create(p, &world->groups[i], 1);
	}
}

/* All train to the end. */
static void play(struct fake_world *world, struct member *members)
{
	for (unsigned i = 0; i < 4; i++)
		assert_int_equal(pthread_create(&members[i].thread, NULL, live, &members[i]), 0);
	for (unsigned i = 0; i < 4; i++)
		(void)pthread_join(members[i].thread, NULL);
	for (unsigned i = 0; i < 4; i++) {
		if (members[i].status != TR_OK)
			fail_msg("peer %u: %s", i, members[i].error.text);
		assert_true(members[i].sound);
		tr_sync_destroy(members[i].peer->sync);
		free(members[i].peer);
	}
	fake_world_finish(world);
}

static void all_came_in_a_try_that_was_given_up(void **state)
{
	(void)state;
	struct fake_world world;
	struct member members[4] = { 0 };
	prepare(&world, members);
	world.restart_at = 3;
	play(&world, members);
}

/* The last piece comes between its last look and its commit: what it holds is as sound as the others'. */
static void all_came_just_before_the_commit(void **state)
{
	(void)state;
	struct fake_world world;
	struct member members[4] = { 0 };
	prepare(&world, members);
	world.groups[3].whole_in_commit = 3;
	play(&world, members);
}

/* Nothing is merged any more in which the rest could come: it has all of it, or its parameters would not be the group's. */
static void who_comes_when_all_is_merged_waits_for_all_of_it(void **state)
{
	(void)state;
	struct fake_world world;
	struct peer *peers[2];
	struct tr_round after;
	struct tr_error error;
	fake_world_init(&world, 2);
	world.groups[1].joins_at = 3;
	world.groups[1].whole_at = 99;
	world.groups[1].head_only = true;
	for (unsigned i = 0; i < 2; i++) {
		struct peer *p = peers[i] = calloc(1, sizeof(*p));
		assert_non_null(p);
		p->options = options_of(TR_SYNC_DILOCO);
		p->options.steps = 2 * H;
		p->options.alone_steps = 0;
		peer_create(p, &world.groups[i], 1 + 50 * (float)i);
	}
	struct member first = { .peer = peers[0] };
	(void)live(&first);
	if (first.status != TR_OK)
		fail_msg("%s", first.error.text);
	/* A round of its caller's own. */
	assert_int_equal(tr_round_begin(&world.groups[0], &after, &error), TR_OK);
	assert_int_equal(after.round, 3);
	assert_int_equal(tr_state_ready(&world.groups[1], 0, &error), TR_OK);
	assert_int_equal(tr_sync_start(peers[1]->sync, &peers[1]->now, &error), TR_OK);
	assert_true(peers[1]->now.finished);
	assert_int_equal(peers[1]->now.after.round, 3);
	assert_false(peers[1]->now.after.receive_state);
	assert_int_equal(world.groups[1].op_count, 0); /* it has the ops that the others have */
	const struct numbers merged = numbers_of(peers[0]);
	assert_near(peers[1], &merged);
	for (unsigned i = 0; i < 2; i++) {
		tr_sync_destroy(peers[i]->sync);
		free(peers[i]);
	}
	fake_world_finish(&world);
}

/* One founder goes on from what had all steps, the other one has less, by steps or by time: it has that too, and nothing is merged any more. */
static void who_had_all_steps_gives_them_to_who_has_less(void **state)
{
	(void)state;
	for (unsigned by_time = 0; by_time < 2; by_time++) {
		const uint64_t all = TR_SYNC_ALL_DONE - by_time * 7; /* and 7 more */
		struct fake_world world;
		struct peer *peers[2];
		struct tr_error error;
		fake_world_init(&world, 2);
		world.groups[1].joins_at = 1;
		for (unsigned i = 0; i < 2; i++) {
			struct peer *p = peers[i] = calloc(1, sizeof(*p));
			assert_non_null(p);
			p->options = options_of(TR_SYNC_DILOCO);
			p->options.steps = i == 0 ? all : 2 * H;
			p->options.alone_steps = 0;
			if (by_time) {
				p->options.inner_steps = 0;
				p->options.inner_seconds = 1;
			}
			peer_create(p, &world.groups[i], 1 + 50 * (float)i);
		}
		const struct numbers saved = numbers_of(peers[0]);
		for (unsigned i = 0; i < 2; i++) {
			struct peer *p = peers[i];
			struct tr_sync_work did = { .tokens = TOKENS };
			assert_int_equal(tr_sync_ready(p->sync, 0, &error), TR_OK);
			assert_int_equal(tr_sync_start(p->sync, &p->now, &error), TR_OK);
			assert_true(p->now.finished);
			assert_int_equal(p->now.after.round, 1);
			assert_false(p->now.after.receive_state);
			assert_true(tr_sync_steps(p->sync) == all);
			assert_int_equal(world.groups[i].op_count, 0);
			assert_int_equal(tr_sync_merges(&p->options), 0);
			assert_near(p, &saved);
			assert_int_equal(tr_sync_step(p->sync, &did, &p->now, &error), TR_EINVAL);
			assert_string_equal(error.text, "sync: step 0: all steps are done");
		}
		for (unsigned i = 0; i < 2; i++) {
			tr_sync_destroy(peers[i]->sync);
			free(peers[i]);
		}
		fake_world_finish(&world);
	}
}

int main(void)
{
	(void)peer_start;
	const struct CMUnitTest tests[] = { cmocka_unit_test(all_came_in_a_try_that_was_given_up),
		cmocka_unit_test(all_came_just_before_the_commit),
		cmocka_unit_test(who_comes_when_all_is_merged_waits_for_all_of_it),
		cmocka_unit_test(who_had_all_steps_gives_them_to_who_has_less) };
	return cmocka_run_group_tests(tests, NULL, NULL);
}
