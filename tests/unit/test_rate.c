/* Rates learned from traffic that is not always there. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "collectives/engine/gauge.h"
#include "collectives/engine/rate.h"

#define LOOK_US 4000u

struct clock {
	struct rate rate;
	uint64_t now_us, total;
};

/* So many bytes at that rate, looked at all the while. */
static void carry(struct clock *c, double bytes_per_s, uint64_t bytes)
{
	uint64_t end = c->total + bytes, start_us = c->now_us, start = c->total;
	while (c->total < end) {
		c->now_us += LOOK_US;
		uint64_t there = start +
		    (uint64_t)((double)(c->now_us - start_us) * bytes_per_s / 1e6);
		c->total = there < end ? there : end;
		(void)rate_look(&c->rate, c->now_us, c->total);
	}
}

static void wait_for(struct clock *c, uint64_t us)
{
	for (uint64_t until_us = c->now_us + us; c->now_us < until_us;) {
		c->now_us += LOOK_US;
		(void)rate_look(&c->rate, c->now_us, c->total);
	}
}

static void rest(struct clock *c, uint64_t us)
{
	(void)rate_rest(&c->rate, c->now_us);
	c->now_us += us;
}

static void near_to(double got, double wanted)
{
	if (got < 0.95 * wanted || got > 1.05 * wanted)
		fail_msg("%.0f, not %.0f", got, wanted);
}

/* An op of a mebibyte in pieces, with waits in between: of 100 Mbit/s it is seen what they are. */
static void gaps_do_not_count(void **state)
{
	(void)state;
	struct clock c = { .now_us = 1000 };
	for (unsigned op = 0; op < 3; op++) {
		wait_for(&c, 50000);
		carry(&c, 12.5e6, 786432);
		wait_for(&c, 100000);
		carry(&c, 12.5e6, 786432);
		wait_for(&c, 30000);
		rest(&c, 1000000);
	}
	near_to(c.rate.bytes_per_s, 12.5e6);
}

/* What a slow receiver still takes when the others have theirs is not what we can send. */
static void a_slow_end_of_a_burst_does_not_count(void **state)
{
	(void)state;
	struct clock c = { .now_us = 1000 };
	for (unsigned op = 0; op < 3; op++) {
		carry(&c, 12.5e6, 786432);
		carry(&c, 1.25e6, 262144);
		rest(&c, 1000);
	}
	near_to(c.rate.bytes_per_s, 12.5e6);
}

/* Half a megabyte that was held up and comes within 10 ms, in every burst, makes a way of 2.5 MB/s look like one of 50 for so long; neither of a burst that goes on, nor of a whole one. */
static void heaps_do_not_change_the_mean(void **state)
{
	(void)state;
	struct clock c = { .now_us = 1000 };
	for (unsigned op = 0; op < 6; op++) {
		carry(&c, 2.5e6, 1000000);
		wait_for(&c, 200000);
		carry(&c, 50e6, 500000);
		wait_for(&c, 100000);
		rest(&c, 1000000);
	}
	near_to(c.rate.bytes_per_s, 2.5e6);
	near_to(c.rate.mean_bytes_per_s, 2.45e6);
}

/* A relay that stands still for 40 ms and then brings what waited as fast as it can, again and again. */
static void heaps_do_not_change_a_burst_that_goes_on(void **state)
{
	(void)state;
	struct clock c = { .now_us = 1000 };
	for (unsigned op = 0; op < 3; op++) {
		for (unsigned heap = 0; heap < 4; heap++) {
			carry(&c, 12e6, 3600000); /* 300 ms */
			wait_for(&c, 40000);
			carry(&c, 30e6, 800000);
		}
		rest(&c, 1000000);
	}
	near_to(c.rate.bytes_per_s, 12e6);
}

static void a_slow_link_is_seen_too(void **state)
{
	(void)state;
	struct clock c = { .now_us = 1000 };
	carry(&c, 100e3, 300000); /* 3 s: several bursts */
	rest(&c, 1000);
	near_to(c.rate.bytes_per_s, 100e3);
}

static void little_tells_nothing(void **state)
{
	(void)state;
	struct clock c = { .now_us = 1000 };
	for (unsigned op = 0; op < 100; op++) {
		carry(&c, 12.5e6, 40000);
		rest(&c, 20000);
	}
	assert_true(c.rate.bytes_per_s == 0);
}

/* Ops that are too small to fill the way: what they send at a time goes at its rate, and pauses are pauses. */
static void small_ops_show_the_way_and_not_their_pauses(void **state)
{
	(void)state;
	struct clock c = { .now_us = 1000 };
	for (unsigned op = 0; op < 20; op++) {
		carry(&c, 12.5e6, 131072);
		wait_for(&c, 20000);
	}
	rest(&c, 1000);
	assert_in_range((uint64_t)c.rate.bytes_per_s, 10000000, 13000000);
}

static void one_heap_is_not_believed(void **state)
{
	(void)state;
	struct clock c = { .now_us = 1000 };
	for (unsigned op = 0; op < 9; op++) {
		carry(&c, op == 4 ? 100e6 : 12.5e6, 1 << 20);
		rest(&c, 1000);
	}
	near_to(c.rate.bytes_per_s, 12.5e6);
}

/* What a relay that stood still for a second brings after it. */
static void two_heaps_in_a_row_are_not_believed(void **state)
{
	(void)state;
	struct clock c = { .now_us = 1000 };
	for (unsigned op = 0; op < 12; op++) {
		carry(&c, op == 7 || op == 8 ? 25e6 : 12.5e6, 1 << 20);
		rest(&c, 1000);
		near_to(c.rate.bytes_per_s, 12.5e6);
	}
}

/* A machine that stood still now and then for seconds; then bursts that go on say what is so. And one that has something else to wait for, not. */
static void bursts_that_go_on_take_heaps_back(void **state)
{
	(void)state;
	struct clock c = { .now_us = 1000 };
	for (unsigned op = 0; op < 4; op++) {
		for (unsigned heap = 0; heap < 5; heap++) {
			carry(&c, 12.5e6, 500000);
			wait_for(&c, 40000);
			carry(&c, 30e6, 800000);
		}
		rest(&c, 1000);
	}
	assert_true(c.rate.bytes_per_s > 25e6);
	for (unsigned op = 0; op < 6; op++) {
		carry(&c, 12.5e6, 8 << 20);
		rest(&c, 1000);
	}
	assert_in_range((uint64_t)c.rate.bytes_per_s, 12000000, 15600000);
	for (unsigned op = 0; op < 6; op++) {
		carry(&c, 1e6, 400000);
		rest(&c, 1000);
	}
	assert_true(c.rate.bytes_per_s > 11e6);
}

/* Of a ring's member whose neighbour is half as fast: what it is sure of stays. */
static void bursts_that_wait_for_a_slower_one_take_little_back(void **state)
{
	(void)state;
	struct clock c = { .now_us = 1000 };
	for (unsigned op = 0; op < 20; op++) {
		carry(&c, op < 10 ? 12.5e6 : 6e6, 8 << 20);
		rest(&c, 1000);
	}
	assert_in_range((uint64_t)c.rate.bytes_per_s, 11000000, 12600000);
}

/* A megabyte 100 ms away: slow start, and then some of it at the way's rate; one round after another. */
static void short_rounds_say_what_their_fastest_part_says(void **state)
{
	(void)state;
	struct clock c = { .now_us = 1000 };
	for (unsigned op = 0; op < 6; op++) {
		carry(&c, 3e6, 150000);
		carry(&c, 6e6, 300000);
		carry(&c, 12e6, 1800000);
		rest(&c, 4000);
	}
	near_to(c.rate.bytes_per_s, 12e6);
}

/* The first rounds over a way of 200 ms: TCP doubles its window each time, for more than a second. */
static void slow_start_over_a_long_way_says_what_it_came_to(void **state)
{
	(void)state;
	struct clock c = { .rate = { .rtt_us = 200000 }, .now_us = 1000 };
	for (unsigned op = 0; op < 2; op++) {
		for (double bytes_per_s = 0.4e6; bytes_per_s < 12e6; bytes_per_s *= 2)
			carry(&c, bytes_per_s, (uint64_t)(bytes_per_s / 5));
		carry(&c, 12e6, 600000);
		rest(&c, 4000);
	}
	near_to(c.rate.bytes_per_s, 12e6);
}

/* A loop that has other things to do. */
static void looks_that_come_late_are_no_pauses(void **state)
{
	(void)state;
	struct clock c = { .now_us = 1000 };
	for (unsigned op = 0; op < 6; op++) {
		for (unsigned look = 0; look < 60; look++) {
			c.now_us += 3 * LOOK_US;
			c.total += look % 30 == 5 ? 360000 : 144000;
			(void)rate_look(&c.rate, c.now_us, c.total);
		}
		rest(&c, 1000);
	}
	near_to(c.rate.bytes_per_s, 12e6);
}

/* What fills less than two windows has no end that could be taken from them: a heap in it would be taken from what came before. */
static void short_stretches_do_not_change_what_long_ones_say(void **state)
{
	(void)state;
	struct clock c = { .now_us = 1000 };
	for (unsigned op = 0; op < 3; op++) {
		carry(&c, 12e6, 7200000);
		wait_for(&c, 40000);
		carry(&c, 12e6, 600000);
		carry(&c, 24e6, 480000);
		carry(&c, 12e6, 480000);
		wait_for(&c, 40000);
		rest(&c, 1000);
	}
	near_to(c.rate.bytes_per_s, 12e6);
}

static void a_way_that_got_faster_is_seen_with_the_third_burst(void **state)
{
	(void)state;
	struct clock c = { .now_us = 1000 };
	for (unsigned op = 0; op < 10; op++) {
		carry(&c, op < 7 ? 1.25e6 : 12.5e6, 4 << 20);
		rest(&c, 1000);
		near_to(c.rate.bytes_per_s, op < 9 ? 1.25e6 : 12.5e6);
	}
}

static void up_soon_down_slowly(void **state)
{
	(void)state;
	struct clock c = { .now_us = 1000 };
	carry(&c, 2e6, 1 << 20); /* slow start */
	rest(&c, 1000);
	near_to(c.rate.bytes_per_s, 2e6);
	for (unsigned op = 0; op < 2; op++) {
		carry(&c, 12.5e6, 1 << 20);
		rest(&c, 1000);
	}
	near_to(c.rate.bytes_per_s, 12.5e6);
	for (unsigned op = 0; op < 5; op++) {
		carry(&c, 4e6, 1 << 20);
		rest(&c, 200000);
	}
	assert_in_range((uint64_t)c.rate.bytes_per_s, 11000000, 12500000);
	for (unsigned op = 0; op < 300; op++) {
		carry(&c, 4e6, 1 << 20);
		rest(&c, 1000000);
	}
	near_to(c.rate.bytes_per_s, 4e6);
}

/* Connections come and go, and the total with them. */
static void a_total_that_falls_ends_the_burst(void **state)
{
	(void)state;
	struct clock c = { .now_us = 1000, .total = 1 << 30 };
	carry(&c, 12.5e6, 1 << 20);
	c.total = 0;
	carry(&c, 12.5e6, 1 << 20);
	rest(&c, 1000);
	assert_int_equal(c.rate.newest.count, 2);
	near_to(c.rate.bytes_per_s, 12.5e6);
}

/* A link that becomes slow, or quick again, is seen so with its second burst; one that was held up is not believed. */
static void the_second_burst_of_a_link_that_changed_is_believed(void **state)
{
	const struct {
		double burst, says;
	} seen[] = { { 120e6, 120e6 }, { 110e6, 110e6 }, { 2e6, 110e6 }, { 115e6, 110e6 },
		{ 2e6, 2e6 }, { 2.1e6, 2.1e6 }, { 2e6, 2e6 }, { 120e6, 2.1e6 }, { 120e6, 120e6 } };
	struct rate_newest newest = { 0 };
	(void)state;
	near_to(rate_newest_middle(&newest, RATE_FEW) + 1, 1);
	for (size_t i = 0; i < sizeof(seen) / sizeof(*seen); i++) {
		rate_newest_add(&newest, seen[i].burst);
		near_to(rate_newest_middle(&newest, RATE_FEW), seen[i].says);
	}
}

/* A connection that was busy for long, and whose way has just got long: that is no burst. */
static void what_went_before_the_first_look_is_not_counted(void **state)
{
	struct gauge_lane lane = { 0 };
	(void)state;
	assert_int_equal(gauge_count(&lane, UINT32_MAX - 9, 1000), 0);
	assert_int_equal(gauge_count(&lane, UINT32_MAX, 1000), 9000);
	assert_int_equal(gauge_count(&lane, 4, 1000), 14000);
	struct gauge_lane fresh = { 0 };
	assert_int_equal(gauge_count(&fresh, 0, 1000), 0);
	assert_int_equal(gauge_count(&fresh, 100, 1000), 100000);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_second_burst_of_a_link_that_changed_is_believed),
		cmocka_unit_test(what_went_before_the_first_look_is_not_counted),
		cmocka_unit_test(gaps_do_not_count),
		cmocka_unit_test(a_slow_end_of_a_burst_does_not_count),
		cmocka_unit_test(heaps_do_not_change_the_mean),
		cmocka_unit_test(heaps_do_not_change_a_burst_that_goes_on),
		cmocka_unit_test(a_slow_link_is_seen_too),
		cmocka_unit_test(little_tells_nothing),
		cmocka_unit_test(small_ops_show_the_way_and_not_their_pauses),
		cmocka_unit_test(one_heap_is_not_believed),
		cmocka_unit_test(two_heaps_in_a_row_are_not_believed),
		cmocka_unit_test(bursts_that_go_on_take_heaps_back),
		cmocka_unit_test(bursts_that_wait_for_a_slower_one_take_little_back),
		cmocka_unit_test(short_rounds_say_what_their_fastest_part_says),
		cmocka_unit_test(slow_start_over_a_long_way_says_what_it_came_to),
		cmocka_unit_test(looks_that_come_late_are_no_pauses),
		cmocka_unit_test(short_stretches_do_not_change_what_long_ones_say),
		cmocka_unit_test(a_way_that_got_faster_is_seen_with_the_third_burst),
		cmocka_unit_test(up_soon_down_slowly),
		cmocka_unit_test(a_total_that_falls_ends_the_burst),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
