/* How many connections a link gets, on links that are only arithmetic. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "collectives/engine/stripe.h"
#include "common/limits.h"

#define LOOK_US 250000u

/* A path on which one stream carries `stream` bytes/s and all together at most `whole`. */
struct path {
	double stream, whole;
	double ramp; /* times as much at each look, until a new stream has its rate; 0: at once */
	double sawtooth;         /* up to such a part more or less, from look to look */
	unsigned op, pause;      /* looks of an op, and of the pause behind it; 0: none */
	uint32_t rtt_us, losses; /* a look */
	bool idle, shallow;      /* shallow: nothing queues, what is too much is lost */
	double rate;
	unsigned looks;
	struct stripe_sample now;
};

/* On a way that has become long since it began: with one. */
static void init_with_one(struct stripe *stripe)
{
	stripe_init(stripe, 0);
	stripe->begun = true;
}

static unsigned look(struct stripe *stripe, struct path *path)
{
	static const double swing[] = { 0, 1, -0.5, 0.25, -1, 0.75, -0.25, -0.75, 0.5 };
	bool pause = path->pause > 0 && path->looks % (path->op + path->pause) >= path->op;
	double most = path->stream * stripe->lanes;
	most = most < path->whole ? most : path->whole;
	if (path->ramp > 0 && path->rate < most)
		most = path->rate == 0               ? most / 1000
		    : path->rate * path->ramp < most ? path->rate * path->ramp
		                                     : most;
	path->rate = most;
	most *= 1 + path->sawtooth * swing[path->looks++ % 9];
	path->now.acked_bytes += pause ? 0 : (uint64_t)(most * LOOK_US / 1e6);
	path->now.now_us += LOOK_US;
	path->now.busy = !path->idle && !pause;
	path->now.rtt_us = path->rtt_us;
	path->now.now_rtt_us = path->rate >= path->whole && !path->shallow ? 2 * path->rtt_us
	                                                                   : path->rtt_us + 3000;
	path->now.retransmits += path->losses;
	return stripe_look(stripe, &path->now);
}

static unsigned after(struct stripe *stripe, struct path *path, unsigned looks, unsigned *most)
{
	unsigned lanes = stripe->lanes;
	*most = lanes;
	for (unsigned i = 0; i < looks; i++) {
		lanes = look(stripe, path);
		assert_in_range(lanes, 1, TR_LANES_MAX);
		*most = lanes > *most ? lanes : *most;
	}
	return lanes;
}

static void a_long_way_begins_with_eight(void **state)
{
	struct path way = { .stream = 12e6, .whole = 12e6, .rtt_us = 20000, .idle = true };
	struct stripe stripe;
	unsigned most;
	(void)state;
	stripe_init(&stripe, 0);
	assert_int_equal(look(&stripe, &(struct path){ .idle = true }), 1); /* not known yet */
	assert_int_equal(look(&stripe, &way), 8);
	way.idle = false;
	assert_int_equal(after(&stripe, &way, 200, &most), 8); /* something queues: it is full */
	assert_int_equal(most, 8);
	way.whole = 600e6;
	assert_int_equal(after(&stripe, &way, 100, &most), 32);
	way = (struct path){ .stream = 12e6, .whole = 12e6, .rtt_us = 19000 };
	stripe_init(&stripe, 0);
	assert_int_equal(look(&stripe, &way), 1);
}

/* They would all begin at once, over what one process has. */
static void many_links_begin_with_fewer_each(void **state)
{
	static const unsigned wanted[][2] = { { 0, 8 }, { 1, 8 }, { 2, 2 }, { 3, 1 }, { 7, 1 },
		{ 255, 1 } };
	struct path way = { .stream = 12e6, .whole = 12e6, .rtt_us = 200000, .idle = true };
	struct stripe stripe;
	(void)state;
	for (size_t i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++) {
		stripe_init(&stripe, 0);
		way.now.links = wanted[i][0];
		assert_int_equal(look(&stripe, &way), wanted[i][1]);
	}
}

static void near_by_one_is_enough(void **state)
{
	struct path loopback = { .stream = 4e9, .whole = 4e9, .rtt_us = 60, .losses = 3 };
	struct stripe stripe;
	unsigned most;
	(void)state;
	init_with_one(&stripe);
	assert_int_equal(after(&stripe, &loopback, 200, &most), 1);
	assert_int_equal(most, 1);
}

static void a_long_lossy_way_is_filled(void **state)
{
	struct path wan = { .stream = 2.8e6, .whole = 44e6, .rtt_us = 100000, .losses = 2 };
	struct stripe stripe;
	unsigned most;
	(void)state;
	init_with_one(&stripe);
	/* 16 streams make 44 MB/s; 32 make no more and are given back. 4 looks settle, 6 measure */
	assert_int_equal(after(&stripe, &wan, 70, &most), 16);
	assert_int_equal(most, 16);
}

/* Four tries settle also if each interval is off by a third, and if ops have pauses between them. */
static void a_sawtooth_and_pauses_do_not_mislead(void **state)
{
	struct path wan = { .stream = 2.8e6,
		.whole = 22.4e6,
		.rtt_us = 100000,
		.losses = 2,
		.sawtooth = 0.3,
		.op = 7,
		.pause = 2 };
	struct stripe stripe;
	unsigned most;
	(void)state;
	for (unsigned start = 0; start < 9; start++) {
		wan.looks = start;
		init_with_one(&stripe);
		assert_in_range(after(&stripe, &wan, 80, &most), 8, 16); /* never too few */
	}
}

/* The first stream is still growing when it is first looked at; that is not what a second one would bring. */
static void slow_start_is_no_gain(void **state)
{
	struct path wan = { .stream = 12e6, .whole = 12e6, .rtt_us = 100000, .ramp = 6 };
	struct stripe stripe;
	unsigned most;
	(void)state;
	init_with_one(&stripe);
	assert_int_equal(after(&stripe, &wan, 40, &most), 1);
	assert_int_equal(most, 2);
}

/* 12 MB/s for the first seconds, from which losses leave a tenth. */
static void a_rate_that_did_not_last_is_no_reason_to_wait(void **state)
{
	struct path wan = { .stream = 12e6, .whole = 12e6, .rtt_us = 100000, .losses = 2 };
	struct stripe stripe;
	unsigned most;
	(void)state;
	init_with_one(&stripe);
	assert_int_equal(after(&stripe, &wan, 24, &most), 1);
	assert_int_equal(most, 2);
	wan.stream = 1.2e6;
	assert_int_equal(after(&stripe, &wan, 60, &most), 16); /* 15 s */

	/* The same in the middle of a try: it seems to bring less than nothing, but nothing queues. */
	wan = (struct path){ .stream = 12e6, .whole = 12e6, .rtt_us = 100000, .losses = 2 };
	init_with_one(&stripe);
	assert_int_equal(after(&stripe, &wan, 13, &most), 2);
	wan.stream = 1.2e6;
	assert_int_equal(after(&stripe, &wan, 50, &most), 16);
}

/* Something queues, and a tenth of it is dropped: more would only drop more. Losses alone are none of that. */
static void a_crowded_path_gets_no_more(void **state)
{
	struct path full = { .stream = 12e6,
		.whole = 12e6,
		.rtt_us = 100000,
		.losses = 12000000 / 4 / 1448 / 10 };
	struct stripe stripe;
	unsigned most;
	(void)state;
	init_with_one(&stripe);
	assert_int_equal(after(&stripe, &full, 400, &most), 1);
	assert_int_equal(most, 1);
	full = (struct path){ .stream = 1e6,
		.whole = 12e6,
		.rtt_us = 100000,
		.losses = 1000000 / 4 / 1448 / 10 };
	init_with_one(&stripe);
	assert_int_equal(after(&stripe, &full, 80, &most), 16);
}

/* A path that is full without a queue: one more try than elsewhere, then all is given back. */
static void a_path_without_a_queue_is_not_tried_for_ever(void **state)
{
	struct path full = { .stream = 12e6,
		.whole = 12e6,
		.rtt_us = 100000,
		.losses = 2,
		.shallow = true };
	struct stripe stripe;
	unsigned most;
	(void)state;
	init_with_one(&stripe);
	assert_int_equal(after(&stripe, &full, 100, &most), 1);
	assert_int_equal(most, 4);
}

static void what_cannot_be_had_is_asked_for_again_later(void **state)
{
	struct path wan = { .stream = 2.8e6, .whole = 44e6, .rtt_us = 100000, .losses = 2 };
	struct stripe stripe;
	unsigned most;
	(void)state;
	init_with_one(&stripe);
	assert_int_equal(after(&stripe, &wan, 25, &most), 4);
	stripe_refused(&stripe, 3, wan.now.now_us);
	assert_int_equal(after(&stripe, &wan, 100, &most), 3);
	assert_int_equal(after(&stripe, &wan, 100, &most), 24);
	stripe_init(&stripe, 2);
	stripe_refused(&stripe, 1, wan.now.now_us);
	assert_int_equal(after(&stripe, &wan, 200, &most), 1);
}

static void what_gains_nothing_is_given_back_and_not_tried_all_the_time(void **state)
{
	struct path full = { .stream = 12e6, .whole = 12e6, .rtt_us = 20000 };
	struct stripe stripe;
	unsigned most, tries = 0, before = 1;
	(void)state;
	init_with_one(&stripe);
	for (unsigned i = 0; i < 400; i++) { /* 100 s */
		unsigned lanes = look(&stripe, &full);
		tries += lanes > before;
		before = lanes;
	}
	assert_in_range(tries, 2, 3); /* after 1, 33 and 95 seconds */
	assert_int_equal(after(&stripe, &full, 20, &most), 1);
}

static void an_idle_link_stays_as_it_is(void **state)
{
	struct path idle = { .stream = 1e6, .whole = 1e9, .rtt_us = 50000, .idle = true };
	struct stripe stripe;
	unsigned most;
	(void)state;
	init_with_one(&stripe);
	assert_int_equal(after(&stripe, &idle, 100, &most), 1);
	assert_int_equal(most, 1);
}

static void forced_is_forced(void **state)
{
	struct path wan = { .stream = 1e6, .whole = 1e9, .rtt_us = 50000 };
	struct stripe stripe;
	unsigned most;
	(void)state;
	stripe_init(&stripe, 3);
	assert_int_equal(after(&stripe, &wan, 100, &most), 3);
	stripe_init(&stripe, 1000);
	assert_int_equal(stripe.lanes, TR_LANES_MAX);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_long_way_begins_with_eight),
		cmocka_unit_test(many_links_begin_with_fewer_each),
		cmocka_unit_test(near_by_one_is_enough),
		cmocka_unit_test(a_long_lossy_way_is_filled),
		cmocka_unit_test(a_sawtooth_and_pauses_do_not_mislead),
		cmocka_unit_test(slow_start_is_no_gain),
		cmocka_unit_test(a_rate_that_did_not_last_is_no_reason_to_wait),
		cmocka_unit_test(a_crowded_path_gets_no_more),
		cmocka_unit_test(a_path_without_a_queue_is_not_tried_for_ever),
		cmocka_unit_test(what_cannot_be_had_is_asked_for_again_later),
		cmocka_unit_test(what_gains_nothing_is_given_back_and_not_tried_all_the_time),
		cmocka_unit_test(an_idle_link_stays_as_it_is),
		cmocka_unit_test(forced_is_forced),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
