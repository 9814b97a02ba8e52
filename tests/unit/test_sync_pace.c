/* Peers of different speed, simulated on a clock of the test's own: they come to the merges together by time and by speed, a straggler is not waited for
 * beyond its grace, all draw the same conclusions, and training ends at the last step. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "collectives/sync/pace.h"
#include "common/rng.h"
#include "tests/unit/sync_refused.h"

enum { PEERS = 4 };

static struct tr_sync_options options(enum tr_sync_mode mode)
{
	struct tr_sync_options o = TR_SYNC_OPTIONS_INIT;

	o.mode = mode;
	o.steps = 1000;
	return o;
}

static struct tr_sync_options completed(struct tr_sync_options o)
{
	struct tr_error error;

	assert_int_equal(tr_sync_complete(&o, 8, &error), TR_OK);
	return o;
}

struct world {
	struct tr_sync_options o;
	struct pace_agreed agreed;
	uint64_t round;
	double speed_s[PEERS]; /* of a step */
	double at_s[PEERS];    /* each one's clock, working time only */
	double waited_s;       /* of the whole last merge: the first one's wait for the last */
	struct pace_progress peers[PEERS];
	struct sync_report reports[PEERS];
	uint64_t own[PEERS]; /* steps in the last round */
};

static void work(struct world *w, unsigned i)
{
	struct pace_progress *p = &w->peers[i];

	p->step++;
	p->since_take++;
	p->worked_s += w->speed_s[i];
	w->at_s[i] += w->speed_s[i];
	w->own[i]++;
	assert_true(p->step <= w->o.steps);
}

static void take(struct world *w, unsigned i)
{
	struct pace_progress *p = &w->peers[i];

	if (p->since_take > 0)
		p->step_s = p->worked_s / (double)p->since_take;
	w->reports[i] = (struct sync_report){ .lr_scale = 1,
		.step = (double)p->step,
		.step_s = p->step_s };
	p->since_take = 0;
	p->worked_s = 0;
}

/* All that happens in one round: each works to its take and to its merge, then all go on from the last one's time. */
static void one_round(struct world *w)
{
	double first_s = 1e300, last_s = 0;

	memset(w->own, 0, sizeof(w->own));
	w->round++;
	for (unsigned i = 0; i < PEERS; i++) {
		while (!pace_takes(&w->o, &w->agreed, &w->peers[i], w->round))
			work(w, i);
		take(w, i);
		while (!pace_merges(&w->o, &w->agreed, &w->peers[i], w->round))
			work(w, i);
		first_s = w->at_s[i] < first_s ? w->at_s[i] : first_s;
		last_s = w->at_s[i] > last_s ? w->at_s[i] : last_s;
	}
	w->waited_s = last_s - first_s;
	pace_agree(&w->o, w->reports, PEERS, w->round, &w->agreed);
	for (unsigned i = 0; i < PEERS; i++) {
		w->at_s[i] = last_s;
		w->peers[i].step = w->agreed.step + w->peers[i].since_take;
		if (w->peers[i].step > w->o.steps)
			w->peers[i].step = w->o.steps;
	}
}

static struct world drawn(struct tr_sync_options o, uint64_t number)
{
	struct world w = { .o = completed(o) };

	for (unsigned i = 0; i < PEERS; i++)
		w.speed_s[i] = 0.01 + rng_unit(rng_key(number, i, 0), 0, 0);
	return w;
}

static double slowest(const struct world *w)
{
	double most = 0;

	for (unsigned i = 0; i < PEERS; i++)
		most = w->speed_s[i] > most ? w->speed_s[i] : most;
	return most;
}

/* In every mode, for drawn speeds: rounds end, all finish at the last step, no fragment is left out after it, and nobody says before how many rounds there will be. */
static void training_ends_at_the_last_step(void **state)
{
	(void)state;
	for (uint64_t number = 0; number < 400; number++) {
		struct tr_sync_options o = options((enum tr_sync_mode)(1 + number % 5));
		if (number / 5 % 3 == 0)
			o.inner_seconds = 5 + (double)(number % 7);
		else if (number / 5 % 3 == 1)
			o.by_speed = true;
		else
			o.grace_seconds = 1;
		if (o.inner_seconds <= 0)
			o.inner_steps = 20 + number % 11;
		if (o.mode == TR_SYNC_STREAMING) {
			o.fragments = 3;
			o.overlap = (int64_t)(number % 5);
		}
		struct world w = drawn(o, number);
		uint64_t past = 0;
		while (!pace_is_past(&w.o, &w.agreed, w.round + 1)) {
			uint64_t before = w.agreed.step;
			one_round(&w);
			assert_true(w.agreed.step >= before);
			past += pace_is_final(&w.agreed, w.round);
			assert_true(w.round < 4000);
		}
		assert_true(w.agreed.step == w.o.steps && w.agreed.last > 0);
		bool left = w.o.fragments > 1 || w.o.overlap > 0 || o.mode == TR_SYNC_EAGER;
		assert_int_equal(past, left ? w.o.fragments : 0);
		assert_true(tr_sync_merges(&w.o) == 0 || tr_sync_merges(&w.o) == w.round);
		for (unsigned i = 0; i < PEERS; i++)
			assert_int_equal(w.peers[i].step, w.o.steps);
	}
}

/* By time nobody waits for longer than somebody's inner step. */
static void by_time_all_come_together(void **state)
{
	(void)state;
	for (uint64_t number = 0; number < 200; number++) {
		struct tr_sync_options o = options(number % 2 ? TR_SYNC_DILOCO : TR_SYNC_STREAMING);
		o.steps = 10000000;
		o.inner_seconds = 30;
		o.fragments = number % 2 ? 1 : 4;
		o.overlap = 0;
		struct world w = drawn(o, number);
		for (unsigned round = 0; round < 40; round++) {
			one_round(&w);
			assert_true(w.waited_s <= slowest(&w) + 1e-9);
			for (unsigned i = 0; i < PEERS; i++)
				assert_true(w.own[i] >= 1);
		}
	}
}

/* One that was held up for long moves the others once, and not at every merge after. */
static void a_hiccup_is_waited_for_once(void **state)
{
	(void)state;
	struct tr_sync_options o = options(TR_SYNC_STREAMING);

	o.steps = 10000000;
	o.inner_seconds = 40;
	o.fragments = 4;
	o.overlap = 2;
	struct world w = drawn(o, 3);
	one_round(&w);
	w.at_s[1] += 100;
	one_round(&w);
	assert_true(w.waited_s > 90);
	for (unsigned round = 0; round < 20; round++) {
		one_round(&w);
		assert_true(w.waited_s <= (double)(o.overlap + 1) * slowest(&w) + 1e-9);
	}
}

/* By speed, from the second round on: the fastest takes H, nobody is waited for longer than a step of its own. */
static void by_speed_the_fastest_takes_h(void **state)
{
	(void)state;
	for (uint64_t number = 0; number < 200; number++) {
		struct tr_sync_options o = options(TR_SYNC_DILOCO);
		o.steps = 10000000;
		o.inner_steps = 500;
		o.by_speed = true;
		struct world w = drawn(o, number);
		one_round(&w);
		for (unsigned i = 0; i < PEERS; i++)
			assert_int_equal(w.own[i], 500); /* nothing is known yet */
		for (unsigned round = 0; round < 10; round++) {
			uint64_t most = 0;
			one_round(&w);
			for (unsigned i = 0; i < PEERS; i++)
				most = w.own[i] > most ? w.own[i] : most;
			assert_int_equal(most, 500);
			assert_true(w.waited_s <= slowest(&w) + 1e-6);
		}
		assert_int_equal(w.agreed.step, 11 * 500);
		/* One that comes is taken for the slowest. */
		assert_int_equal(pace_quota(&w.o, &w.agreed, 0),
		    pace_quota(&w.o, &w.agreed, w.agreed.slowest_s));
	}
}

/* Three do their 100 steps in 10 s, the fourth would need 1000: after the first round it gives what it has 2 s after they are done. */
static void a_straggler_gives_what_it_has(void **state)
{
	(void)state;
	struct tr_sync_options o = options(TR_SYNC_DILOCO);

	o.inner_steps = 100;
	o.grace_seconds = 2;
	for (unsigned quorum = 0; quorum <= 4; quorum++) {
		o.quorum = quorum;
		struct world w = { .o = completed(o), .speed_s = { 0.1, 0.1, 0.1, 10 } };
		one_round(&w);
		assert_true(w.own[3] == 100 && w.waited_s > 900);
		for (unsigned round = 0; round < 5; round++) {
			one_round(&w);
			assert_true(w.own[0] == 100 && w.own[1] == 100 && w.own[2] == 100);
			/* A step that ends at 10 s, and one more that has begun before 12 s; all four: nobody is late. */
			assert_int_equal(w.own[3], quorum == 4 ? 100 : 2);
		}
	}
}

/* What another peer says is only numbers. */
static void wild_reports_do_no_harm(void **state)
{
	(void)state;
	const double wild[] = { -1, 0, 1e300, INFINITY, -INFINITY, NAN, 5e-324 };
	enum { WILD = sizeof(wild) / sizeof(wild[0]) };
	struct tr_sync_options o = options(TR_SYNC_DILOCO);

	o.by_speed = true;
	o.grace_seconds = 1;
	o = completed(o);
	for (unsigned i = 0; i < WILD * WILD; i++) {
		struct sync_report reports[2] = { { .lr_scale = 1, .step = 7, .step_s = 0.5 },
			{ .lr_scale = 1, .step = wild[i % WILD], .step_s = wild[i / WILD] } };
		struct pace_agreed agreed = { .step = 3 };
		pace_agree(&o, reports, 2, 1, &agreed);
		assert_int_equal(agreed.step, 7);
		for (unsigned j = 0; j < WILD; j++) {
			uint64_t quota = pace_quota(&o, &agreed, wild[j]);
			assert_true(quota >= 1 && quota <= o.inner_steps);
		}
	}
}

static void options_that_cannot_be_are_named(void **state)
{
	(void)state;
	struct tr_sync_options base = options(TR_SYNC_DILOCO), o;

	base.inner_seconds = 30;
	o = completed(base);
	assert_true(o.inner_steps == 0 && o.inner_seconds == 30 && o.overlap == 0);
	o = completed(o); /* again */
	base.mode = TR_SYNC_EAGER;
	o = completed(completed(base));
	SYNC_REFUSED(base, inner_steps, 5,
	    "inner_seconds: found 30, allowed: nothing beside inner_steps");
	SYNC_REFUSED(base, inner_seconds, -1, "inner_seconds: found -1, allowed: 0 to 1e6");
	SYNC_REFUSED(base, inner_seconds, 0.0 / 0.0, "inner_seconds: found");
	SYNC_REFUSED(base, weights, (enum tr_sync_weights)2,
	    "weights: found 2, allowed: a value of enum tr_sync_weights");
	SYNC_REFUSED(base, share_by_speed, true,
	    "share_by_speed: found 1, allowed: 0 (false) beside inner_seconds: one of the two");
	SYNC_REFUSED(base, by_speed, true,
	    "by_speed: found 1, allowed: 0 (false) beside inner_seconds");
	SYNC_REFUSED(base, grace_seconds, 1,
	    "grace_seconds: found 1, allowed: nothing beside inner_seconds");
	SYNC_REFUSED(base, overlap, 3, "overlap: found 3, allowed: inner_steps in eager mode");
}

static void a_quorum_needs_time_for_stragglers(void **state)
{
	(void)state;
	struct tr_sync_options base = options(TR_SYNC_STREAMING);

	SYNC_REFUSED(base, quorum, 2, "quorum: found 2, allowed: nothing without grace_seconds");
	SYNC_REFUSED(base, grace_seconds, 2e6, "grace_seconds: found 2e+06, allowed: 0 to 1e6");
	base.grace_seconds = 1;
	SYNC_REFUSED(base, quorum, 257, "quorum: found 257, allowed: at most 256 peers");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(training_ends_at_the_last_step),
		cmocka_unit_test(by_time_all_come_together),
		cmocka_unit_test(a_hiccup_is_waited_for_once),
		cmocka_unit_test(by_speed_the_fastest_takes_h),
		cmocka_unit_test(a_straggler_gives_what_it_has),
		cmocka_unit_test(wild_reports_do_no_harm),
		cmocka_unit_test(options_that_cannot_be_are_named),
		cmocka_unit_test(a_quorum_needs_time_for_stragglers),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
