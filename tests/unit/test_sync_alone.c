/* A member that is cut off, and whose merge comes after all (collectives/sync/alone.h): what becomes of what it learned alone, by the formulas in double
 * precision, and that tokens and samples go with it, once.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "collectives/sync/alone.h"
#include "tests/unit/alone_peer.h"

/* After one more step, in which the merge of a first movement from `first` to `taken` comes. */
static struct numbers after_late_merge(const struct peer *p, const struct numbers *first,
    const struct numbers *taken)
{
	struct numbers expected = numbers_of(p);
	for (unsigned t = 0; t < TENSORS; t++)
		for (unsigned i = 0; i < NUMBERS; i++) {
			double d = first->at[t][i] - taken->at[t][i];
			expected.at[t][i] += first->at[t][i] - 0.7 * (d + 0.9 * d) -
			    taken->at[t][i] -
			    (double)((uint64_t)((p->steps + 1) * 7 + t * 3 + i) % 11) / 64;
		}
	return expected;
}

static void a_late_merge_keeps_what_was_learned_since(void **state)
{
	(void)state;
	struct peer *p = peer_new(TR_SYNC_DILOCO, 0, 1);
	struct numbers taken, first = numbers_of(p);
	peer_start(p);
	train_until_alone(p, &taken);
	assert_false(p->now.merged);
	train(p);
	train(p);
	assert_int_equal(p->world.patience_ms, 0); /* it looks, and goes on */
	assert_true(p->now.alone && p->now.step == H);
	struct numbers expected = after_late_merge(p, &first, &taken);
	p->world.late = 0;
	train(p);
	assert_true(p->now.merged && !p->now.alone && p->now.merged_step == H && p->now.step == H);
	assert_true(p->now.tokens == H * TOKENS);
	assert_near(p, &expected);
	/* What was done alone is in the next movement, with its tokens and its samples. */
	for (unsigned i = 0; i < H; i++)
		train(p);
	assert_true(p->now.merged && p->now.step == 2 * H);
	assert_true(p->now.tokens == (H + ALONE) * TOKENS);
	assert_int_equal(lease_counted(tr_sync_leases(p->sync)), (2 * H + ALONE) * BATCH);
	peer_end(p);
}

/* Cut off while the commit is decided: nothing of the round may be read or written, and the parameters move when it is. */
static void a_late_commit_too(void **state)
{
	(void)state;
	struct peer *p = peer_new(TR_SYNC_DILOCO, 0, 1);
	struct numbers first = numbers_of(p), taken = first;
	peer_start(p);
	p->world.late_commits = 2;
	for (unsigned i = 0; i < H + 1; i++) {
		train(p);
		if (i + 1 == H)
			taken = numbers_of(p);
	}
	assert_true(p->now.alone && !p->now.merged);
	struct numbers expected = after_late_merge(p, &first, &taken);
	train(p);
	assert_true(p->now.merged && p->now.tokens == H * TOKENS && p->now.step == H);
	assert_near(p, &expected);
	peer_end(p);
}

static void alpha_is_of_what_was_there_at_the_take(void **state)
{
	(void)state;
	struct peer *p = peer_new(TR_SYNC_STREAMING, 0, 1);
	struct numbers first = numbers_of(p);
	peer_start(p);
	/* Two fragments: that of the first tensor is taken after step 2 and merged after 3. */
	train(p);
	train(p);
	struct numbers taken = numbers_of(p);
	p->world.late = 2;
	train(p);
	assert_true(p->now.alone);
	train(p);
	struct numbers before = numbers_of(p);
	train(p);
	assert_true(p->now.merged && p->now.fragment == 0 && p->now.step == 3);
	for (unsigned i = 0; i < NUMBERS; i++) {
		double moved = (double)((uint64_t)(p->steps * 7 + i) % 11) / 64;
		double d = first.at[0][i] - taken.at[0][i];
		double outer = first.at[0][i] - 0.4 * (d + 0.9 * d);
		double expected = before.at[0][i] - moved + 0.5 * (outer - taken.at[0][i]);
		assert_true(fabs((double)p->w[0][i] - expected) < 2e-6);
	}
	assert_true(tr_sync_kept_bytes(p->sync) > 2 * NUMBERS * sizeof(float));
	peer_end(p);
}

/* Of the first fragment what was done since its take; what was on its way goes with it until it is committed. */
static void keeps(const struct peer *p, const struct numbers *first, const struct numbers *base,
    bool on_way)
{
	float kept[512];
	struct numbers now = numbers_of(p);
	const float *movement = kept + sizeof(struct sync_kept) / sizeof(float),
	            *sent = movement + TENSORS * NUMBERS;
	assert_int_equal(tr_sync_keep(p->sync, kept),
	    sizeof(struct sync_kept) + ((size_t)TENSORS + on_way) * NUMBERS * sizeof(float));
	for (unsigned i = 0; i < NUMBERS; i++) {
		double done = base->at[0][i] - now.at[0][i], before = 0;
		for (uint64_t step = 1; step <= 2; step++)
			before += (double)((step * 7 + i) % 11) / 64;
		assert_true(fabs((double)movement[i] - done) < 2e-6);
		assert_true(
		    fabs((double)movement[NUMBERS + i] - (first->at[1][i] - now.at[1][i])) < 2e-6);
		assert_true(!on_way || fabs((double)sent[i] - before) < 2e-6);
	}
}

/* What changed in memory would be in what it reckons from that, and go into a merge when it is back: then it keeps nothing. */
static void keeps_nothing_of_what_is_spoilt(const struct peer *p)
{
	float kept[512], *momentum = tr_sync_momentum(p->sync, 0), right = *momentum;
	float *outer = (float *)(uintptr_t)tr_sync_outer(p->sync, 1);
	*momentum += 1;
	assert_int_equal(tr_sync_keep(p->sync, kept), 0);
	*momentum = right;
	momentum = tr_sync_momentum(p->sync, 1);
	*momentum += 1; /* of another fragment, which it does not read */
	assert_int_not_equal(tr_sync_keep(p->sync, kept), 0);
	*momentum -= 1;
	right = *outer;
	*outer += 1;
	assert_int_equal(tr_sync_keep(p->sync, kept), 0);
	*outer = right;
}

/* With carry training goes on from where this peer alone would bring the group, and all that was done since the take stays, whether the merge is late or not; who is put out before
 * the commit, or between it and the merge, keeps what that would carry over. */
static void with_carry_all_that_was_done_since_the_take_stays(void **state)
{
	(void)state;
	struct tr_sync_options options = options_of(TR_SYNC_STREAMING);
	options.overlap = 2;
	options.carry = true;
	struct peer *p = peer_with(&options, 0, 1);
	struct numbers first = numbers_of(p);
	peer_start(p);
	/* Two fragments: that of the first tensor is taken after step 2, committed in 3 and merged after 4. */
	train(p);
	train(p);
	struct numbers base = numbers_of(p);
	keeps(p, &first, &base, true);
	keeps_nothing_of_what_is_spoilt(p);
	train(p);
	assert_false(p->now.merged);
	keeps(p, &first, &base, false);
	train(p);
	assert_true(p->now.merged && p->now.fragment == 0 && p->now.step == 4);
	for (unsigned i = 0; i < NUMBERS; i++) {
		double since = 0, d = 0;
		for (uint64_t step = 1; step <= 4; step++)
			*(step <= 2 ? &d : &since) += (double)((step * 7 + i) % 11) / 64;
		double outer = first.at[0][i] - 0.4 * (d + 0.9 * d);
		assert_true(fabs(base.at[0][i] - outer) < 2e-6);
		assert_true(fabs((double)p->w[0][i] - (outer - since)) < 2e-6);
	}
	peer_end(p);
}

/* (What was spoilt went into the base at the departure, and not at the merge, when it was put right: the next movement brought it to all.) */
static void with_carry_spoilt_momentum_is_not_trained_from(void **state)
{
	(void)state;
	struct tr_sync_options options = options_of(TR_SYNC_DILOCO);
	options.overlap = 2;
	options.carry = true;
	options.alone_steps = 0;
	struct peer *p = peer_with(&options, 0, 1);
	peer_start(p);
	for (unsigned i = 0; i < H + 2; i++)
		train(p);
	assert_true(p->now.merged && p->now.step == H + 2);
	float *spoilt = &tr_sync_momentum(p->sync, 1)[0], right = *spoilt;
	struct numbers before = numbers_of(p);
	*spoilt = 1000;
	train(p);
	train(p); /* taken */
	assert_true(p->sync->taken);
	for (unsigned t = 0; t < TENSORS; t++)
		for (unsigned i = 0; i < NUMBERS; i++)
			for (uint64_t step = H + 3; step <= 2 * H; step++)
				before.at[t][i] -= (double)((step * 7 + t * 3 + i) % 11) / 64;
	assert_near(p, &before);
	*spoilt = right; /* as others put it */
	train(p);
	train(p);
	assert_true(p->now.merged && p->now.step == 2 * H + 2);
	for (unsigned t = 0; t < TENSORS; t++)
		for (unsigned i = 0; i < NUMBERS; i++) {
			double since = 0;
			for (uint64_t step = 2 * H + 1; step <= 2 * H + 2; step++)
				since += (double)((step * 7 + t * 3 + i) % 11) / 64;
			before.at[t][i] = (double)tr_sync_outer(p->sync, t)[i] - since;
		}
	assert_near(p, &before);
	peer_end(p);
}

/* In eager mode parameters do not move by a merge; the next movement's guess of the others' starts from this peer's own one of the merge, which is not
 * what it was when delta holds something else. */
static void a_late_merge_in_eager_mode_leaves_the_movement(void **state)
{
	(void)state;
	struct peer *p = peer_new(TR_SYNC_EAGER, 0, 1);
	struct numbers first = numbers_of(p), taken = first;
	peer_start(p);
	p->world.late = H - 1 + 2; /* it looks after each step */
	for (unsigned i = 0; i < 2 * H + 2; i++) {
		if (i == H)
			taken = first;
		train(p);
	}
	assert_true(p->now.merged && p->now.merged_round == 1);
	for (unsigned t = 0; t < TENSORS; t++)
		for (unsigned i = 0; i < NUMBERS; i++) {
			double d1 = 0, d2 = 0, eta = 0.7, mu = 0.9;
			for (uint64_t step = 1; step <= p->steps; step++)
				*(step <= H ? &d1 : &d2) += (double)((step * 7 + t * 3 + i) % 11) /
				    64;
			double outer = first.at[t][i] - eta * (1 + mu) * d1;
			double momentum = mu * d1 + d2 - d1;
			double lead = -eta * (1 + mu) * d1 - eta * (d2 - d1 + mu * momentum);
			taken.at[t][i] = outer + lead;
		}
	assert_near(p, &taken);
	peer_end(p);
}

/* The group gave the round up while its commit was waited for: that is what the commit says when it is called again. */
static void a_round_may_be_given_up_in_a_late_commit(void **state)
{
	(void)state;
	struct peer *p = peer_new(TR_SYNC_DILOCO, 0, 1);
	peer_start(p);
	p->world.late_commits = 1;
	for (unsigned i = 0; i < H; i++)
		train(p);
	assert_true(p->now.alone);
	p->world.restart_in_progress = true;
	p->world.restart_at = 1;
	train(p);
	assert_true(p->now.merged && p->now.tokens == H * TOKENS && p->now.step == H);
	peer_end(p);
}

static void *founder(void *arg)
{
	struct peer *p = arg;
	peer_start(p);
	for (unsigned i = 0; i < H; i++) {
		struct tr_sync_work did = { .tokens = TOKENS };
		struct tr_error error;
		assert_int_equal(tr_sync_step(p->sync, &did, &p->now, &error), TR_OK);
	}
	return NULL;
}

static void who_joins_waits_as_long_as_it_takes(void **state)
{
	(void)state;
	struct fake_world world;
	struct peer one = { .options = options_of(TR_SYNC_DILOCO) }, joiner = one;
	pthread_t thread;
	fake_world_init(&world, 2);
	world.late = 1000;
	world.groups[1].joins_at = 1;
	one.options.batch = joiner.options.batch = 0;
	one.options.alone_steps = 0; /* it waits */
	peer_create(&one, &world.groups[0], 1);
	peer_create(&joiner, &world.groups[1], 3);
	assert_int_equal(pthread_create(&thread, NULL, founder, &one), 0);
	peer_start(&joiner);
	assert_int_equal(pthread_join(thread, NULL), 0);
	assert_int_equal(joiner.now.round, 2);
	tr_sync_destroy(one.sync);
	tr_sync_destroy(joiner.sync);
	fake_world_finish(&world);
}

/* Steps beyond the schedule went by a learning rate that is no longer this peer's: neither their loss nor their tokens are in what it tells of it. */
static void steps_alone_say_nothing_about_the_learning_rate(void **state)
{
	(void)state;
	struct peer *p = peer_new(TR_SYNC_HDET, 0, 1);
	struct numbers taken;
	peer_start(p);
	train_until_alone(p, &taken);
	train(p);
	p->world.late = 0;
	train(p);
	assert_true(p->now.merged && p->sync->report.loss == 2);
	for (unsigned i = 0; i < H; i++)
		train(p);
	assert_true(p->now.merged && p->now.tokens > H * TOKENS);
	assert_true(p->sync->report.loss == 2);
	peer_end(p);
}

static void it_waits_when_it_has_taken_its_steps(void **state)
{
	(void)state;
	struct peer *p = peer_new(TR_SYNC_DILOCO, 0, 1);
	struct numbers taken;
	peer_start(p);
	train_until_alone(p, &taken);
	for (unsigned i = 0; i + 1 < ALONE; i++) {
		train(p);
		assert_true(p->now.alone);
	}
	train(p); /* does not look any more: the stand-in's tr_wait comes back at once */
	assert_true(p->now.merged && !p->now.alone);
	peer_end(p);
}

/* The others merge while the fastest takes H steps, ten times as often as one that is ten times slower. */
static void samples_wait_as_long_as_who_is_missing_may_take(void **state)
{
	(void)state;
	struct tr_sync_options o = options_of(TR_SYNC_DILOCO);
	struct pace_agreed agreed = { .fastest_s = 0.01, .slowest_s = 0.01, .quorum_s = 2 };
	o.inner_steps = 100;
	o.fragments = 1;
	o.alone_steps = 1000;
	assert_int_equal(alone_keep_rounds(&o, &agreed, 0.1), 8 + 2 * 10);
	o.by_speed = true;
	assert_int_equal(alone_keep_rounds(&o, &agreed, 0.1), 8 + 2 * 100);
	assert_int_equal(alone_keep_rounds(&o, &agreed, 0), 8 + 2 * 10);
	o.grace_seconds = 1;
	assert_int_equal(alone_keep_rounds(&o, &agreed, 0.1), 8 + 2 * 50);
	o.by_speed = false;
	o.grace_seconds = 0;
	o.inner_steps = 0;
	o.inner_seconds = 4;
	assert_int_equal(alone_keep_rounds(&o, &agreed, 0.1), 8 + 2 * 25);
}

/* Where members tell their speeds, who was far slower in the last merge with it; by steps alone nobody knows. */
static void who_is_missing_is_still_known_to_be_slow(void **state)
{
	(void)state;
	for (unsigned slow = 0; slow < 2; slow++) {
		struct tr_sync_options o = options_of(TR_SYNC_DILOCO);
		o.by_speed = slow;
		struct peer *p = peer_with(&o, 0, 1);
		struct lease_account *account = tr_sync_leases(p->sync);
		account->held[0] = (struct lease_held){ .peer = 5, .from = 0, .to = BATCH };
		account->held_count = 1;
		account->cursor = BATCH;
		p->sync->counters->slowest_s = 1e6;
		peer_start(p);
		for (unsigned merges = 0; merges < 30; merges += p->now.merged)
			train(p);
		assert_int_equal(lease_have(account, 5), slow ? BATCH : 0);
		peer_end(p);
	}
}

static void options_of_it_are_checked(void **state)
{
	(void)state;
	struct tr_sync_options o = TR_SYNC_OPTIONS_INIT;
	struct tr_error error;
	o.alone_after_seconds = 2;
	assert_int_equal(tr_sync_complete(&o, 4, &error), TR_EINVAL);
	assert_non_null(
	    strstr(error.text, "alone_after_seconds: found 2, allowed: nothing without"));
	o.alone_steps = 10;
	assert_int_equal(tr_sync_complete(&o, 4, &error), TR_OK);
	o.alone_steps = 2000000;
	assert_int_equal(tr_sync_complete(&o, 4, &error), TR_EINVAL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_late_merge_keeps_what_was_learned_since),
		cmocka_unit_test(a_late_commit_too),
		cmocka_unit_test(alpha_is_of_what_was_there_at_the_take),
		cmocka_unit_test(with_carry_all_that_was_done_since_the_take_stays),
		cmocka_unit_test(with_carry_spoilt_momentum_is_not_trained_from),
		cmocka_unit_test(a_late_merge_in_eager_mode_leaves_the_movement),
		cmocka_unit_test(a_round_may_be_given_up_in_a_late_commit),
		cmocka_unit_test(who_joins_waits_as_long_as_it_takes),
		cmocka_unit_test(steps_alone_say_nothing_about_the_learning_rate),
		cmocka_unit_test(it_waits_when_it_has_taken_its_steps),
		cmocka_unit_test(samples_wait_as_long_as_who_is_missing_may_take),
		cmocka_unit_test(who_is_missing_is_still_known_to_be_slow),
		cmocka_unit_test(options_of_it_are_checked),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
