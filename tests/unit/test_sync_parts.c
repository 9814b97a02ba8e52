/* Parts of a batch by speed in a round's life (struct tr_sync_options, share_by_speed): no member's lease runs dry when parts shrink or others die, and what a member without samples learns later is kept. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "tests/unit/alone_peer.h"

/* ---- members of different speed, each a thread ---- */

struct member {
	struct peer *peer;
	unsigned sample_us;
	tr_status status;
	struct tr_error error;
	pthread_t thread;
};

/* Who fails ends the test: the others would wait for it. */
static void *live(void *arg)
{
	struct member *m = arg;
	struct peer *p = m->peer;
	peer_start(p);
	while (m->status == TR_OK && !p->now.finished) {
		double samples = (double)p->now.samples;
		(void)usleep(m->sample_us * (useconds_t)p->now.samples);
		struct tr_sync_work did = { .tokens = samples, .samples = samples };
		m->status = tr_sync_step(p->sync, &did, &p->now, &m->error);
	}
	if (m->status != TR_OK && m->status != TR_EEVICTED) {
		(void)fprintf(stderr, "member %u: %s\n", p->group->peer, m->error.text);
		_exit(1);
	}
	return NULL;
}

/* All until the end. `slow`: whose sample takes 20 times as long as the others'. */
static void live_together(struct fake_world *world, const struct tr_sync_options *options,
    unsigned slow)
{
	struct member members[FAKE_PEERS_MAX] = { 0 };
	for (unsigned i = 0; i < world->peers; i++) {
		members[i].peer = calloc(1, sizeof(struct peer));
		members[i].peer->options = *options;
		members[i].sample_us = i == slow ? 1000 : 50;
		peer_create(members[i].peer, &world->groups[i], 1);
	}
	for (unsigned i = 0; i < world->peers; i++)
		assert_int_equal(pthread_create(&members[i].thread, NULL, live, &members[i]), 0);
	for (unsigned i = 0; i < world->peers; i++) {
		(void)pthread_join(members[i].thread, NULL);
		assert_true(members[i].status == (world->groups[i].dead ? TR_EEVICTED : TR_OK));
		tr_sync_destroy(members[i].peer->sync);
		free(members[i].peer);
	}
	fake_world_finish(world);
}

/* What it used alone, with its equal part, it has to have left beside its new one. */
static void a_part_that_shrinks_after_steps_alone(void **state)
{
	(void)state;
	struct fake_world world;
	struct tr_sync_options options = options_of(TR_SYNC_DILOCO);
	fake_world_init(&world, 2);
	world.late = 1000000; /* all train alone as long as they may */
	options.steps = 4 * H;
	options.share_by_speed = true;
	options.alone_steps = 60;
	live_together(&world, &options, 1);
}

/* Until the first merge those who are left have equal parts of the batch, which are larger now. */
static void members_that_die_before_the_first_merge(void **state)
{
	(void)state;
	struct fake_world world;
	struct tr_sync_options options = options_of(TR_SYNC_DILOCO);
	fake_world_init(&world, 4);
	world.groups[1].dies_at = world.groups[2].dies_at = 1;
	options.inner_steps = 32;
	options.overlap = 32;
	options.steps = 4 * 32;
	options.batch = 32;
	options.alone_steps = 0;
	options.share_by_speed = true;
	live_together(&world, &options, 3);
}

/* ---- one without samples ---- */

static void stand(struct peer *p)
{
	struct tr_error error;
	struct tr_sync_work did = { .loss = NAN };
	p->steps++;
	assert_int_equal(tr_sync_step(p->sync, &did, &p->now, &error), TR_OK);
}

/* No step lies before its take: what it learns until the merge goes on, with its tokens and samples. */
static void what_is_learned_after_a_take_of_nothing(void **state)
{
	(void)state;
	for (unsigned carries = 0; carries < 2; carries++) {
		struct tr_sync_options options = options_of(TR_SYNC_DILOCO);
		options.share_by_speed = true;
		options.carry = carries;
		options.overlap = carries ? 3 : 0;
		options.alone_steps = carries ? 0 : ALONE;
		struct peer *p = peer_with(&options, 0, 1);
		peer_start(p);
		p->world.late = carries ? 0 : 1000;
		for (unsigned i = 0; i < H; i++)
			stand(p);
		assert_true(p->now.alone == !carries);
		train(p);
		train(p);
		assert_false(p->now.merged);
		struct numbers learned = numbers_of(p);
		p->world.late = 0;
		stand(p);
		assert_true(p->now.merged && p->now.tokens == 0);
		assert_near(p, &learned);
		for (unsigned i = 0; i < H && p->now.tokens == 0; i++)
			stand(p);
		for (unsigned i = 0; i < H && !p->now.merged; i++)
			stand(p);
		assert_true(p->now.tokens == 2 * TOKENS);
		assert_int_equal(lease_counted(tr_sync_leases(p->sync)), 2 * BATCH);
		peer_end(p);
	}
}

static double probe(void *arg, uint64_t batch)
{
	(void)arg, (void)batch;
	return 1;
}

/* It gives what it learned in all of the race. */
static void a_winner_without_samples_in_its_last_round(void **state)
{
	(void)state;
	struct tr_sync_options options = options_of(TR_SYNC_HDET);
	options.share_by_speed = options.lr_search = true;
	options.lr_probe = probe;
	options.alone_steps = 0;
	struct peer *p = peer_with(&options, 0, 1);
	peer_start(p);
	assert_true(tr_sync_races(p->sync));
	while (p->sync->counters->search.winner == 0)
		train(p);
	assert_true(p->now.merged && p->steps < 300);
	uint64_t origin = tr_sync_origin(p->sync);
	struct numbers learned = numbers_of(p);
	for (unsigned i = 0; i < H; i++)
		stand(p);
	assert_false(tr_sync_races(p->sync));
	assert_int_equal(tr_sync_origin(p->sync), origin);
	assert_near(p, &learned);
	peer_end(p);
}

static double counting_probe(void *arg, uint64_t batch)
{
	(void)batch;
	++*(unsigned *)arg;
	return 1;
}

/* It has trained for less time than the others, also if the round that it waited for was the race's first. */
static void who_comes_late_tells_nothing_of_a_race(void **state)
{
	(void)state;
	for (uint64_t joins_at = 1; joins_at < 4; joins_at++) {
		struct fake_world world;
		struct member members[2] = { 0 };
		unsigned told[2] = { 0 };
		fake_world_init(&world, 2);
		world.groups[1].joins_at = joins_at;
		for (unsigned i = 0; i < 2; i++) {
			struct peer *p = members[i].peer = calloc(1, sizeof(*p));
			p->options = options_of(TR_SYNC_HDET);
			p->options.steps = SEARCH_FEWEST_PERIODS * H;
			p->options.alone_steps = 0;
			p->options.lr_search = true;
			p->options.lr_probe = counting_probe;
			p->options.lr_probe_arg = &told[i];
			peer_create(p, &world.groups[i], 1);
		}
		for (unsigned i = 0; i < 2; i++)
			assert_int_equal(pthread_create(&members[i].thread, NULL, live, &members[i]),
			    0);
		for (unsigned i = 0; i < 2; i++) {
			(void)pthread_join(members[i].thread, NULL);
			assert_int_equal(members[i].status, TR_OK);
			assert_false(tr_sync_races(members[i].peer->sync));
			tr_sync_destroy(members[i].peer->sync);
			free(members[i].peer);
		}
		assert_int_equal(told[0], 1); /* it raced alone: once */
		assert_int_equal(told[1], 0);
		fake_world_finish(&world);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_part_that_shrinks_after_steps_alone),
		cmocka_unit_test(members_that_die_before_the_first_merge),
		cmocka_unit_test(what_is_learned_after_a_take_of_nothing),
		cmocka_unit_test(a_winner_without_samples_in_its_last_round),
		cmocka_unit_test(who_comes_late_tells_nothing_of_a_race),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
