/* How fast a process sends over its long ways: rates seen through heaps, and a loop closed over a way with a queue that is only arithmetic. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "collectives/engine/pacer.h"

#define LOOK_US 4000u
#define MBYTE   1e6
#define PACKET  1448.0

static void near_to(double got, double wanted, double part)
{
	if (got < (1 - part) * wanted || got > (1 + part) * wanted)
		fail_msg("%.0f, not %.0f", got, wanted);
}

/* ---- arrival.h ---- */

/* What comes at a steady rate, but is held up so that a heap of it comes at the end of each period. */
static double heaped(double bytes_per_s, uint64_t period_us, uint64_t held_us, uint64_t lasts_us,
    uint64_t window_us)
{
	struct arrival arrival = { 0 };
	for (uint64_t us = LOOK_US; us <= lasts_us; us += LOOK_US) {
		uint64_t in = us % period_us, open = period_us - held_us;
		uint64_t seen_us = in < open ? us : us - in + open;
		arrival_look(&arrival, us, (uint64_t)(bytes_per_s * (double)seen_us / 1e6),
		    window_us);
	}
	return arrival_end(&arrival);
}

static void a_rate_is_seen_through_heaps(void **state)
{
	(void)state;
	near_to(heaped(12 * MBYTE, 100000, 0, 1000000, 50000), 12 * MBYTE, 0.001);
	near_to(heaped(12 * MBYTE, 20000, 12000, 1000000, 50000), 12 * MBYTE, 0.15);
	near_to(heaped(12 * MBYTE, 300000, 40000, 2000000, 50000), 12 * MBYTE, 0.05);
	assert_true(heaped(12 * MBYTE, 900000, 200000, 3000000, 50000) == 0); /* it hides the rest */
	near_to(heaped(0.6 * MBYTE, 300000, 40000, 2000000, 50000), 0.6 * MBYTE, 0.05);
	assert_true(heaped(0.1 * MBYTE, 300000, 40000, 2000000, 50000) == 0); /* a few messages */
	/* Windows that are longer than all looks that are kept reach only so far. */
	near_to(heaped(12 * MBYTE, 100000, 0, 4000000, 400000), 12 * MBYTE, 0.001);
	assert_true(heaped(12 * MBYTE, 100000, 0, 9000000, 2000000) == 0);
}

static void what_comes_with_pauses_tells_nothing(void **state)
{
	(void)state;
	struct arrival arrival = { 0 };
	uint64_t us = 0, total = 0;
	assert_true(arrival_end(&arrival) == 0);
	for (unsigned op = 0; op < 10; op++) /* 40 ms of sending in 400 */
		for (unsigned i = 0; i < 100; i++) {
			total += i < 10 ? 48000 : 0;
			arrival_look(&arrival, us += LOOK_US, total, 50000);
		}
	assert_true(arrival_end(&arrival) == 0);
	/* And the next is begun anew. */
	for (unsigned i = 0; i < 100; i++)
		arrival_look(&arrival, us += LOOK_US, total += 20000, 10000);
	near_to(arrival_end(&arrival), 5 * MBYTE, 0.01);
}

static void a_total_that_falls_is_of_another_way(void **state)
{
	(void)state;
	struct arrival arrival = { 0 };
	uint64_t us = 0, total = 1u << 30;
	for (unsigned i = 0; i < 100; i++)
		arrival_look(&arrival, us += LOOK_US, total += 20000, 50000);
	total = 0;
	for (unsigned i = 0; i < 100; i++)
		arrival_look(&arrival, us += LOOK_US, total += 20000, 50000);
	arrival_look(&arrival, us, total + 1000000, 50000); /* at the same time */
	near_to(arrival_end(&arrival), 5 * MBYTE, 0.01);
}

/* ---- pacer.h ---- */

/* A way on which something queues, and the process that sends over it as TCP would, or as it is told. */
struct way {
	double bytes_per_s, queue_bytes;
	double loses;  /* a part of all, whatever queues */
	double stands; /* bytes of others in the queue, always */
	uint32_t rtt_us;
	unsigned peers;
	double wants; /* bytes/s, without a pace; more than the way has: it overflows */
	double in;    /* of what goes out comes in as well */
	uint64_t sends_us, pauses_us; /* in turns; 0: all the time */
	double queued, sent, resent, came, came_in;
	struct pacer pacer;
	uint64_t now_us;
};

static void look(struct way *way)
{
	double queued = way->queued + way->stands;
	pacer_look(&way->pacer,
	    &(struct pacer_look){ .now_us = way->now_us,
	        .up_bytes = (uint64_t)way->came,
	        .down_bytes = (uint64_t)way->came_in,
	        .sent_packets = (uint64_t)(way->sent / PACKET),
	        .resent_packets = (uint64_t)(way->resent / PACKET),
	        .rtt_us = way->rtt_us,
	        .trips = 1 + 1e6 * queued / way->bytes_per_s / way->rtt_us,
	        .peers = way->peers });
}

static void pass(struct way *way, uint64_t us)
{
	for (uint64_t until_us = way->now_us + us; way->now_us < until_us; way->now_us += LOOK_US) {
		double pace = pacer_rate(&way->pacer), dt = LOOK_US * 1e-6;
		double rate = pace > 0 && pace < way->wants ? pace : way->wants;
		if (way->sends_us > 0 &&
		    way->now_us % (way->sends_us + way->pauses_us) >= way->sends_us)
			rate = 0;
		double in = rate * dt, out = way->bytes_per_s * dt;
		double lost = way->queued + in - out - way->queue_bytes;
		lost = (lost > 0 ? lost : 0) + way->loses * in;
		out = way->queued + in < out ? way->queued + in : out;
		way->queued += in - out - lost;
		way->queued = way->queued > 0 ? way->queued : 0;
		way->sent += in;
		way->resent += lost;
		way->came += out;
		way->came_in += way->in * out;
		look(way);
	}
}

static struct way of(double mbyte)
{
	return (struct way){ .bytes_per_s = mbyte * MBYTE,
		.queue_bytes = 0.1 * mbyte * MBYTE,
		.rtt_us = 200000,
		.peers = 3,
		.wants = 2 * mbyte * MBYTE,
		.in = 1,
		.now_us = 1000 };
}

static void a_queue_that_overflows_is_left_alone_from_then_on(void **state)
{
	(void)state;
	struct way way = of(12);
	pass(&way, 3100000);
	near_to(pacer_way(&way.pacer), 12 * MBYTE, 0.02);
	double resent = way.resent, came = way.came;
	pass(&way, 60000000);
	near_to(pacer_way(&way.pacer), 12 * MBYTE, 0.1);
	assert_true(way.resent - resent < 0.005 * (way.came - came));
	assert_true(way.came - came > 0.97 * 60 * 12 * MBYTE);
}

static void it_is_not_paced_without_need(void **state)
{
	(void)state;
	struct way near = of(12), one = of(12), calm = of(12), lossy = of(12);
	near.rtt_us = 20000;
	one.peers = 1;
	calm.wants = 0.9 * calm.bytes_per_s;
	lossy.wants = 0.9 * lossy.bytes_per_s;
	lossy.loses = 0.03;
	struct way *ways[] = { &near, &one, &calm, &lossy };
	for (unsigned i = 0; i < 4; i++) {
		pass(ways[i], 20000000);
		assert_true(pacer_rate(&ways[i]->pacer) == 0 && pacer_way(&ways[i]->pacer) == 0);
	}
	assert_true(near.resent > 0 && one.resent > 0 && lossy.resent > 0);
}

/* A few messages, and one of them again: that is no crowd, and no rate. */
static void a_trickle_does_not_begin_it(void **state)
{
	(void)state;
	struct way way = of(12);
	way.wants = 0.1 * MBYTE;
	way.loses = 0.03;
	way.stands = way.queue_bytes;
	pass(&way, 20000000);
	assert_true(way.resent > 0 && pacer_rate(&way.pacer) == 0);
	way.wants = 1 * MBYTE; /* 700 packets a second, 20 of them again */
	pass(&way, 20000000);
	assert_true(pacer_rate(&way.pacer) == 0);
}

/* Losses, and a look in each fifth of a second at a queue that was nobody's; or a crowd in the first second, when nobody has found the rate yet. */
static void one_odd_moment_does_not_begin_it(void **state)
{
	(void)state;
	struct way way = of(12);
	way.wants = 0.9 * way.bytes_per_s;
	way.loses = 0.03;
	for (unsigned i = 0; i < 100; i++) {
		pass(&way, 200000);
		way.stands = way.queue_bytes;
		pass(&way, LOOK_US);
		way.stands = 0;
	}
	assert_true(pacer_rate(&way.pacer) == 0);
	struct way first = of(12);
	pass(&first, PACER_BURST_US);
	assert_true(first.resent > 0);
	first.wants = 0.5 * first.bytes_per_s;
	pass(&first, 10000000);
	assert_true(pacer_rate(&first.pacer) == 0);
}

static void it_grows_with_the_way(void **state)
{
	(void)state;
	struct way way = of(6);
	pass(&way, 3100000);
	near_to(pacer_way(&way.pacer), 6 * MBYTE, 0.02);
	way.bytes_per_s = 12 * MBYTE;
	way.wants = 24 * MBYTE;
	pass(&way, 15000000);
	near_to(pacer_way(&way.pacer), 12 * MBYTE, 0.1);
}

static void it_follows_a_way_that_gets_slower(void **state)
{
	(void)state;
	for (unsigned i = 0; i < 2; i++) {
		struct way way = of(12);
		pass(&way, 5000000);
		way.bytes_per_s = (i == 0 ? 9 : 3) *
		    MBYTE; /* a little, and so much that it is forgotten */
		pass(&way, 10000000);
		near_to(pacer_way(&way.pacer), way.bytes_per_s, 0.1);
		double resent = way.resent;
		pass(&way, 10000000);
		assert_true(way.resent - resent < 0.01 * 10 * way.bytes_per_s);
	}
}

/* Small ops show less than the way carries, and that others queue there is no reason to believe them: it is not paced below 0.7 of the way, and later is as fast as ever. */
static void little_to_send_is_no_slow_way(void **state)
{
	(void)state;
	for (unsigned i = 0; i < 2; i++) {
		struct way way = of(12);
		pass(&way, 5000000);
		way.wants = 1 * MBYTE;
		way.stands = i == 0 ? 0 : way.queue_bytes;
		for (unsigned second = 0; second < 600; second++) {
			pass(&way, 1000000);
			double pace = pacer_rate(&way.pacer);
			assert_true(pace == 0 || pace > 0.6 * 12 * MBYTE);
		}
		way.wants = 24 * MBYTE;
		way.stands = 0;
		pass(&way, 5000000);
		double came = way.came;
		pass(&way, 10000000);
		assert_true(way.came - came > 0.95 * 10 * 12 * MBYTE);
	}
}

/* What comes in tells nothing of a way that is faster, and paced it would never be seen; nor where little comes in, and with losses. */
static void ways_out_that_are_faster_are_used(void **state)
{
	const struct {
		double in, loses;
	} cases[] = { { 0.25, 0 }, { 0.6, 0 }, { 0.6, 0.001 }, { 0, 0 }, { 0, 0.001 },
		{ 0.01, 0.01 } };
	(void)state;
	for (unsigned i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		struct way way = of(12);
		way.in = cases[i].in;
		way.loses = cases[i].loses;
		pass(&way, 20000000);
		assert_true(pacer_rate(&way.pacer) > 0);
		double came = way.came;
		pass(&way, 20000000);
		assert_true(way.came - came > 0.93 * 20 * 12 * MBYTE);
		/* A pace that is too low, wherever it is from. */
		way.pacer.on = true;
		way.pacer.bytes_per_s = way.pacer.most = 2 * MBYTE;
		memset(way.pacer.said, 0, sizeof(way.pacer.said));
		pass(&way, 40000000);
		assert_true(
		    pacer_rate(&way.pacer) == 0 || pacer_rate(&way.pacer) > 0.85 * 12 * MBYTE);
	}
}

/* Ops of a fifth of a second, in which nothing can be measured, and a pace of a tenth of the way. */
static void small_ops_are_not_held_up_for_ever(void **state)
{
	(void)state;
	struct way way = of(12);
	pass(&way, 4100000);
	way.pacer.bytes_per_s = way.pacer.most = 1.2 * MBYTE;
	memset(way.pacer.said, 0, sizeof(way.pacer.said));
	way.sends_us = 5000000; /* they take as long as they must, at that pace */
	way.pauses_us = 100000;
	pass(&way, 60000000);
	assert_true(pacer_rate(&way.pacer) == 0 || pacer_rate(&way.pacer) > 0.85 * 12 * MBYTE);
}

static void what_was_closed_and_long_ago_does_not_count(void **state)
{
	(void)state;
	struct way way = of(12);
	pass(&way, 5000000);
	assert_true(pacer_rate(&way.pacer) > 0);
	way.came_in = way.came = way.sent = way.resent = 0; /* other connections */
	pass(&way, 5000000);
	near_to(pacer_way(&way.pacer), 12 * MBYTE, 0.1);
	way.now_us += 2u * PACER_KEEPS_US;
	way.wants = 1 * MBYTE;
	pass(&way, 100000);
	assert_true(pacer_rate(&way.pacer) == 0 && pacer_way(&way.pacer) == 0);
}

/* ---- its parts ---- */

static void each_link_has_its_part(void **state)
{
	(void)state;
	struct pacer_link links[4];
	memset(links, 0, sizeof(links));
	pacer_share(12, links, 0);
	pacer_share(12, links, 1);
	near_to(links[0].bytes_per_s, 12, 1e-9);
	pacer_share(12, links, 4);
	for (unsigned i = 0; i < 4; i++)
		near_to(links[i].bytes_per_s, 3, 1e-9);
	/* One takes a twelfth, so the others have more; it may still take as much as they had. */
	links[2] = (struct pacer_link){ .takes = 1, .settled = true };
	links[3] = (struct pacer_link){ .takes = 3, .settled = true };
	pacer_share(12, links, 4);
	near_to(links[0].bytes_per_s, 3.5, 1e-9);
	near_to(links[1].bytes_per_s, 3.5, 1e-9);
	near_to(links[2].bytes_per_s, 3, 1e-9);
	near_to(links[3].bytes_per_s, 3.5, 1e-9);
	/* What one leaves makes the part of the others larger than what another takes. */
	links[3].takes = 2.2;
	pacer_share(12, links, 4);
	near_to(links[0].bytes_per_s, 3.6, 1e-9);
	near_to(links[3].bytes_per_s, 3, 1e-9);
	/* It has only begun: what it took is of before. */
	links[2].settled = links[3].settled = false;
	pacer_share(12, links, 4);
	near_to(links[0].bytes_per_s, 3, 1e-9);
	/* None takes its part: the last has what is left, and nobody nothing. */
	for (unsigned i = 0; i < 4; i++)
		links[i] = (struct pacer_link){ .takes = 0, .settled = true };
	pacer_share(12, links, 4);
	for (unsigned i = 0; i < 4; i++)
		assert_true(links[i].bytes_per_s >= 3);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_rate_is_seen_through_heaps),
		cmocka_unit_test(what_comes_with_pauses_tells_nothing),
		cmocka_unit_test(a_total_that_falls_is_of_another_way),
		cmocka_unit_test(a_queue_that_overflows_is_left_alone_from_then_on),
		cmocka_unit_test(it_is_not_paced_without_need),
		cmocka_unit_test(it_grows_with_the_way),
		cmocka_unit_test(it_follows_a_way_that_gets_slower),
		cmocka_unit_test(little_to_send_is_no_slow_way),
		cmocka_unit_test(a_trickle_does_not_begin_it),
		cmocka_unit_test(one_odd_moment_does_not_begin_it),
		cmocka_unit_test(ways_out_that_are_faster_are_used),
		cmocka_unit_test(small_ops_are_not_held_up_for_ever),
		cmocka_unit_test(what_was_closed_and_long_ago_does_not_count),
		cmocka_unit_test(each_link_has_its_part),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
