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
	uint32_t rtt_us, losses; /* a look */
	bool idle;
	struct stripe_sample now;
};

static unsigned look(struct stripe *stripe, struct path *path)
{
	double rate = path->stream * stripe->lanes;
	path->now.bytes_out += (uint64_t)((rate < path->whole ? rate : path->whole) * LOOK_US / 1e6);
	path->now.now_us += LOOK_US;
	path->now.busy = !path->idle;
	path->now.rtt_us = path->rtt_us;
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

static void near_by_one_is_enough(void **state)
{
	struct path loopback = { .stream = 4e9, .whole = 4e9, .rtt_us = 60, .losses = 3 };
	struct stripe stripe;
	unsigned most;
	(void)state;
	stripe_init(&stripe, 0);
	assert_int_equal(after(&stripe, &loopback, 200, &most), 1);
	assert_int_equal(most, 1);
}

static void a_long_lossy_way_is_filled(void **state)
{
	struct path wan = { .stream = 2.8e6, .whole = 44e6, .rtt_us = 100000, .losses = 2 };
	struct stripe stripe;
	unsigned most;
	(void)state;
	stripe_init(&stripe, 0);
	/* 16 streams make 44 MB/s; 32 make no more and are given back */
	assert_int_equal(after(&stripe, &wan, 60, &most), 16);
	assert_int_equal(most, 32);
}

static void what_gains_nothing_is_given_back_and_not_tried_all_the_time(void **state)
{
	struct path full = { .stream = 12e6, .whole = 12e6, .rtt_us = 20000 };
	struct stripe stripe;
	unsigned most, tries = 0, before = 1;
	(void)state;
	stripe_init(&stripe, 0);
	for (unsigned i = 0; i < 400; i++) { /* 100 s */
		unsigned lanes = look(&stripe, &full);
		tries += lanes > before;
		before = lanes;
	}
	assert_in_range(tries, 2, 4);
	assert_int_equal(after(&stripe, &full, 20, &most), 1);
}

static void an_idle_link_stays_as_it_is(void **state)
{
	struct path idle = { .stream = 1e6, .whole = 1e9, .rtt_us = 50000, .idle = true };
	struct stripe stripe;
	unsigned most;
	(void)state;
	stripe_init(&stripe, 0);
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
		cmocka_unit_test(near_by_one_is_enough),
		cmocka_unit_test(a_long_lossy_way_is_filled),
		cmocka_unit_test(what_gains_nothing_is_given_back_and_not_tried_all_the_time),
		cmocka_unit_test(an_idle_link_stays_as_it_is),
		cmocka_unit_test(forced_is_forced),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
