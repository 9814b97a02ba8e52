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
	near_to(heaped(0.1 * MBYTE, 300000, 40000, 2000000, 50000), 0.1 * MBYTE, 0.05);
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
	double bytes_per_s, queue_bytes, loses; /* loses: a part of all, whatever queues */
	uint32_t rtt_us;
	unsigned links;
	double wants; /* bytes/s, without a pace; more than the way has: it overflows */
	bool one_way; /* nothing comes in */
	double queued, sent, resent, came, lost;
	struct pacer pacer;
	uint64_t now_us;
};

static void pass(struct way *way, uint64_t us)
{
	for (uint64_t until_us = way->now_us + us; way->now_us < until_us; way->now_us += LOOK_US) {
		double pace = pacer_rate(&way->pacer), dt = LOOK_US * 1e-6;
		double rate = pace > 0 && pace < way->wants ? pace : way->wants;
		double in = rate * dt, out = way->bytes_per_s * dt;
		double lost = way->queued + in - out - way->queue_bytes;
		lost = (lost > 0 ? lost : 0) + way->loses * in;
		out = way->queued + in < out ? way->queued + in : out;
		way->queued += in - out - lost;
		way->queued = way->queued > 0 ? way->queued : 0;
		way->sent += in;
		way->lost = lost;
		way->resent += lost;
		way->came += out;
		pacer_look(&way->pacer,
		    &(struct pacer_look){ .now_us = way->now_us,
		        .up_bytes = (uint64_t)way->came,
		        .down_bytes = way->one_way ? 0 : (uint64_t)way->came,
		        .sent_packets = (uint64_t)(way->sent / PACKET),
		        .resent_packets = (uint64_t)(way->resent / PACKET),
		        .rtt_us = way->rtt_us,
		        .now_rtt_us = way->rtt_us + (uint32_t)(1e6 * way->queued / way->bytes_per_s),
		        .links = way->links });
	}
}

static struct way of(double mbyte)
{
	return (struct way){ .bytes_per_s = mbyte * MBYTE,
		.queue_bytes = 0.1 * mbyte * MBYTE,
		.rtt_us = 200000,
		.links = 3,
		.wants = 2 * mbyte * MBYTE,
		.now_us = 1000 };
}

static void a_queue_that_overflows_is_left_alone_from_then_on(void **state)
{
	(void)state;
	struct way way = of(12);
	pass(&way, 3000000);
	near_to(pacer_way(&way.pacer), 12 * MBYTE, 0.02);
	double resent = way.resent, came = way.came;
	pass(&way, 60000000);
	near_to(pacer_way(&way.pacer), 12 * MBYTE, 0.02);
	assert_true(way.resent - resent < 0.005 * (way.came - came));
	assert_true(way.came - came > 0.97 * 60 * 12 * MBYTE);
}

static void it_is_not_paced_without_need(void **state)
{
	(void)state;
	struct way near = of(12), one = of(12), calm = of(12), lossy = of(12);
	near.rtt_us = 20000;
	one.links = 1;
	calm.wants = 0.9 * calm.bytes_per_s;
	lossy.wants = 0.9 * lossy.bytes_per_s;
	lossy.loses = 0.03;
	struct way *ways[] = { &near, &one, &calm, &lossy };
	for (unsigned i = 0; i < 4; i++) {
		pass(ways[i], 20000000);
		assert_true(pacer_rate(&ways[i]->pacer) == 0);
	}
}

static void it_grows_with_the_way(void **state)
{
	(void)state;
	struct way way = of(6);
	pass(&way, 3000000);
	near_to(pacer_way(&way.pacer), 6 * MBYTE, 0.02);
	way.bytes_per_s = 12 * MBYTE;
	way.wants = 24 * MBYTE;
	pass(&way, 15000000);
	near_to(pacer_way(&way.pacer), 12 * MBYTE, 0.03);
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
		near_to(pacer_way(&way.pacer), way.bytes_per_s, 0.04);
		double resent = way.resent;
		pass(&way, 10000000);
		assert_true(way.resent - resent < 0.01 * 10 * way.bytes_per_s);
	}
}

/* Small ops show less than the way carries; queues that others fill are no reason to believe that. */
static void little_to_send_is_no_slow_way(void **state)
{
	(void)state;
	struct way way = of(12);
	pass(&way, 5000000);
	way.wants = 1 * MBYTE;
	pass(&way, 60000000);
	near_to(pacer_way(&way.pacer), 12 * MBYTE, 0.02);
	way.bytes_per_s = 0.9 * MBYTE; /* what others leave of it */
	pass(&way, 10000000);
	way.bytes_per_s = 12 * MBYTE;
	way.wants = 24 * MBYTE;
	pass(&way, 10000000);
	assert_true(pacer_way(&way.pacer) == 0 || pacer_way(&way.pacer) > 0.9 * 12 * MBYTE ||
	    pacer_rate(&way.pacer) > 1.0 * MBYTE);
	pass(&way, 30000000);
	near_to(pacer_way(&way.pacer), 12 * MBYTE, 0.04);
}

static void what_only_goes_out_tells_too(void **state)
{
	(void)state;
	struct way way = of(12);
	way.one_way = true;
	way.loses = 0;
	pass(&way, 20000000);
	/* Nothing came in, and each second that lost something says nothing: TCP goes on as it likes, unless one lost nothing. */
	assert_true(pacer_rate(&way.pacer) == 0);
	way.wants = 0.9 * way.bytes_per_s;
	pass(&way, 3000000);
	way.wants = 2 * way.bytes_per_s;
	pass(&way, 3000000);
	assert_true(pacer_rate(&way.pacer) == 0 || pacer_rate(&way.pacer) > 0.9 * way.bytes_per_s);
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
		cmocka_unit_test(what_only_goes_out_tells_too),
		cmocka_unit_test(each_link_has_its_part),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
