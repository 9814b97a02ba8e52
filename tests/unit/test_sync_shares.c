/* Parts of a batch by speed: they are the whole batch, in each step too, whoever said what; members of any speeds come to take the same time after some merges; and what a lease is reckoned with holds. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "collectives/sync/shares.h"
#include "common/limits.h"
#include "common/rng.h"

enum { PERIOD = 32 };

static uint64_t drawn; /* numbers so far */

static uint64_t below(uint64_t bound)
{
	return rng_below(rng_key(1, 0, 0), 0, drawn++, bound);
}

static double unit(void)
{
	return rng_unit(rng_key(1, 0, 0), 0, drawn++);
}

static struct sync_report said(double samples, double step_s)
{
	return (struct sync_report){ .lr_scale = 1, .samples = samples, .step_s = step_s };
}

static double part(const struct sync_share *s)
{
	return s->to - s->from;
}

/* Side by side, from 0 to the batch, and of each step too. */
static void assert_whole(const struct sync_share *shares, const struct sync_report *reports,
    size_t count, uint64_t batch)
{
	double at = 0;

	for (size_t i = 0; i < count; i++) {
		if (reports[i].lr_scale == 0) {
			assert_true(shares[i].from == 0 && shares[i].to == 0);
			continue;
		}
		assert_true(shares[i].from == at && shares[i].to >= at);
		at = shares[i].to;
	}
	assert_true(at == (double)batch);
	for (uint64_t step = 0; step < 200; step++) {
		uint64_t all = 0;
		for (size_t i = 0; i < count; i++)
			all += shares_of_step(&shares[i], step);
		assert_int_equal(all, batch);
	}
}

static void speeds_of_the_results(void **state)
{
	static const double slowness[] = { 1, 1.3, 2.6, 5.7 };
	struct sync_report reports[4];
	struct sync_share shares[4];

	(void)state;
	for (size_t i = 0; i < 4; i++)
		reports[i] = said(8, 0.1 * slowness[i]);
	shares_deal(reports, 4, 32, PERIOD, shares);
	assert_whole(shares, reports, 4, 32);
	for (size_t i = 0; i < 4; i++)
		assert_true(fabs(part(&shares[i]) * slowness[i] - part(&shares[0])) < 1e-9);
	assert_true(fabs(part(&shares[0]) - 13.73) < 0.01);
	struct sync_share least = shares_least(shares, 4);
	assert_true(fabs(part(&least) - part(&shares[3])) < 1e-9 && least.from == 0);
	struct sync_share fewer = shares_among(shares[1], 4, 5),
	                  same = shares_among(shares[1], 4, 3);
	assert_true(fabs(part(&fewer) - 0.8 * part(&shares[1])) < 1e-9);
	assert_memory_equal(&same, &shares[1], sizeof(same));
}

/* A place is nobody's, somebody did not measure, somebody is a thousand times slower. */
static void who_did_not_measure(void **state)
{
	struct sync_report reports[5] = { said(4, 0.1), { .lr_scale = 0 }, said(0, 0.1),
		said(4, 0.1), said(4, 100) };
	struct sync_share shares[5];

	(void)state;
	shares_deal(reports, 5, 16, PERIOD, shares);
	assert_whole(shares, reports, 5, 16);
	assert_true(fabs(part(&shares[2]) - 4) < 1e-9); /* an equal part */
	assert_true(
	    fabs(part(&shares[4]) - 1.0 / PERIOD) < 1e-9); /* a sample until the next merge */
	assert_true(fabs(part(&shares[0]) - part(&shares[3])) < 1e-9);
	reports[2].share = 1;
	shares_deal(reports, 5, 16, PERIOD, shares);
	assert_true(fabs(part(&shares[2]) - 1) < 1e-9); /* what it had */
	for (size_t i = 0; i < 5; i++)
		reports[i].samples = 0;
	reports[2].share = 0;
	shares_deal(reports, 5, 16, PERIOD, shares);
	for (size_t i = 0; i < 5; i++)
		assert_true(i == 1 || fabs(part(&shares[i]) - 4) < 1e-9);
	memset(reports, 0, sizeof(reports));
	shares_deal(reports, 5, 16, PERIOD, shares);
	struct sync_share nobody = shares_least(shares, 5);
	assert_true(nobody.from == 0 && nobody.to == 0);
}

/* Numbers from peers: whatever they are, all of the batch is dealt. */
static void whatever_peers_say(void **state)
{
	static const double odd[] = { 0, -1, 1, 1e-300, 1e300, INFINITY, NAN, 5e-324, 1e9 };
	enum { ODD = sizeof(odd) / sizeof(odd[0]) };

	(void)state;
	for (unsigned round = 0; round < 20000; round++) {
		struct sync_report reports[8] = { { .lr_scale = 0 } };
		struct sync_share shares[8];
		size_t count = 1 + below(8);
		uint64_t batch = 1 + below(round % 2 ? 40 : 1000000000);
		for (size_t i = 0; i < count; i++)
			reports[i] = (struct sync_report){ .lr_scale = 1,
				.samples = odd[below(ODD)],
				.step_s = odd[below(ODD)],
				.share = odd[below(ODD)] };
		shares_deal(reports, count, batch, below(100), shares);
		assert_whole(shares, reports, count, batch);
		for (size_t i = 0; i < count; i++)
			assert_true(part(&shares[i]) >= 0);
	}
}

/* A step takes a + b x, times the member's slowness, and nothing without samples; a sum over the steps of a round. */
static void all_come_together(void **state)
{

	(void)state;
	for (unsigned world = 0; world < 200; world++) {
		size_t members = 2 + below(7);
		uint64_t batch = members * (2 + below(30)), step = 0;
		double slowness[8], took[8], a = 0.5 * unit();
		struct sync_report reports[8] = { { .lr_scale = 0 } };
		struct sync_share shares[8];
		for (size_t i = 0; i < members; i++) {
			slowness[i] = 1 + 4 * unit();
			reports[i].lr_scale = 1;
		}
		for (unsigned merge = 0; merge < 12; merge++) {
			shares_deal(reports, members, batch, PERIOD, shares);
			assert_whole(shares, reports, members, batch);
			for (size_t i = 0; i < members; i++) {
				double samples = 0;
				took[i] = 0;
				for (uint64_t s = step; s < step + PERIOD; s++) {
					uint64_t x = shares_of_step(&shares[i], s);
					samples += (double)x;
					took[i] += x > 0 ? slowness[i] * (a + (double)x) : 0;
				}
				reports[i] = said(samples / PERIOD, took[i] / PERIOD);
			}
			step += PERIOD;
		}
		double least = took[0], most = took[0];
		for (size_t i = 1; i < members; i++) {
			least = fmin(least, took[i]);
			most = fmax(most, took[i]);
		}
		/* But for a sample or two of a whole round. */
		assert_true(most - least < 2 * 5 * (a + 1) + 0.02 * most);
	}
}

static void no_more_than_a_lease_has(void **state)
{

	(void)state;
	for (unsigned piece = 0; piece < 3000; piece++) {
		struct sync_share share = { .from = 20 * unit() };
		share.to = share.from + (piece % 3 == 0 ? unit() : 5 * unit());
		uint64_t first = below(1000000), given = 0, steps = 0;
		for (; steps < 1500; steps++) {
			assert_true(given <= shares_most(part(&share), steps));
			given += shares_of_step(&share, first + steps);
		}
		assert_true(fabs((double)given - part(&share) * (double)steps) < 15);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(speeds_of_the_results),
		cmocka_unit_test(who_did_not_measure),
		cmocka_unit_test(whatever_peers_say),
		cmocka_unit_test(all_come_together),
		cmocka_unit_test(no_more_than_a_lease_has),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
