/* The learning rates of HDET: what the paper's formulas give, the same on all peers. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "collectives/sync/hdet.h"
#include "common/rng.h"
#include "tests/unit/sync_refused.h"

static struct tr_sync_options hdet(void)
{
	struct tr_sync_options o = TR_SYNC_OPTIONS_INIT;
	struct tr_error error;

	o.mode = TR_SYNC_HDET;
	o.seed = 5;
	assert_int_equal(tr_sync_complete(&o, 4, &error), TR_OK);
	return o;
}

static struct sync_report report(double lr_scale, double loss)
{
	return (struct sync_report){ .lr_scale = lr_scale, .loss = loss };
}

/* arXiv 2604.24708 and its reference code. */
static void defaults_are_the_papers(void **state)
{
	(void)state;
	struct tr_sync_options o = hdet();

	assert_true(o.inner_steps == 1000 && o.outer_lr == 1 && o.outer_momentum == 0);
	assert_true(o.lr_spread == 1.0 / 9 && o.lr_momentum == 0.9 && o.lr_step == 0.5);
	assert_true(o.lr_decay == 0 && o.lr_temperature == 0.002);
}

static void options_that_cannot_be_are_named(void **state)
{
	(void)state;
	struct tr_sync_options base = hdet();
	SYNC_REFUSED(base, lr_spread, 1,
	    "sync.lr_spread: found 1, allowed: more than 0, less than 1");
	SYNC_REFUSED(base, lr_momentum, 1, "sync.lr_momentum: found 1, allowed: 0 to less than 1");
	SYNC_REFUSED(base, lr_step, 11, "sync.lr_step: found 11, allowed: 0 to 10");
	SYNC_REFUSED(base, lr_decay, -0.5, "sync.lr_decay: found -0.5, allowed: 0 to less than 1");
	SYNC_REFUSED(base, lr_temperature, -1,
	    "sync.lr_temperature: found -1, allowed: more than 0");
	SYNC_REFUSED(base, lr_temperature, NAN, "sync.lr_temperature: found nan");
	SYNC_REFUSED(base, overlap, 1, "sync.overlap: found 1, allowed: none in hdet mode");
	SYNC_REFUSED(base, fragments, 2,
	    "sync.fragments: found 2, allowed: 1 unless the mode is streaming");
	base = (struct tr_sync_options)TR_SYNC_OPTIONS_INIT;
	SYNC_REFUSED(base, lr_spread, 0.5,
	    "sync.lr_spread: found 0.5, allowed: nothing unless the mode is hdet");
	SYNC_REFUSED(base, lr_step, 0.5, "sync.lr_step: found 0.5, allowed: nothing unless");
}

/* A peer alone trains with the base; else the factors are the spread, each once, and change hands. */
static void factors_are_the_spread_permuted(void **state)
{
	(void)state;
	struct tr_sync_options o = hdet();
	unsigned moved = 0;

	assert_true(hdet_factor(&o, 1, 0, 1) == 1);
	for (unsigned peers = 2; peers <= 9; peers++)
		for (uint64_t round = 1; round <= 50; round++) {
			double half = (peers - 1) / 2.0;
			unsigned seen = 0;
			for (unsigned r = 0; r < peers; r++) {
				double k = (hdet_factor(&o, round, r, peers) - 1) / o.lr_spread *
				        half +
				    half;
				assert_true(fabs(k - nearbyint(k)) < 1e-9);
				seen |= 1u << (unsigned)nearbyint(k);
				moved += hdet_factor(&o, round, r, peers) !=
				    hdet_factor(&o, round + 1, r, peers);
			}
			assert_int_equal(seen, (1u << peers) - 1);
		}
	assert_true(moved > 1000);
}

static void exp_is_exp(void **state)
{
	(void)state;
	for (uint64_t i = 0; i < 100000; i++) {
		double x = -700 * rng_unit(rng_key(3, 0, 0), 0, i);
		if (i % 2 == 0)
			x /= 700;
		assert_true(fabs(hdet_exp(x) - exp(x)) <= 1e-14 * exp(x));
	}
	assert_true(hdet_exp(0) == 1 && hdet_exp(-1e300) == 0 && hdet_exp(-INFINITY) == 0);
}

/* The paper's words, another way round than the code: by the mean. */
static void reference(const struct tr_sync_options *o, const struct sync_report *r, unsigned n,
    double base[2])
{
	double mean = 0, sum = 0, target = 0, rates = 0;

	for (unsigned i = 0; i < n; i++)
		mean += r[i].loss / n;
	for (unsigned i = 0; i < n; i++)
		sum += exp((mean - r[i].loss) / o->lr_temperature);
	for (unsigned i = 0; i < n; i++) {
		target += exp((mean - r[i].loss) / o->lr_temperature) / sum * r[i].lr_scale;
		rates += r[i].lr_scale / n;
	}
	base[1] = o->lr_momentum * base[1] + (1 - o->lr_momentum) * (target - rates);
	base[0] = base[0] * (1 - o->lr_decay) + o->lr_step * base[1];
}

/* With share_by_speed: it did not diverge, and its rate was not tried. */
static void who_had_no_samples_does_not_count(void **state)
{
	(void)state;
	struct tr_sync_options o = hdet();
	struct sync_report reports[4] = { report(0.9, 2.001), report(1, 2), report(-1.1, 0) };
	double base[2] = { 1, 0 }, expected[2] = { 1, 0 };

	for (unsigned i = 0; i < 3; i++)
		reports[i].share = 0.001;
	reports[0].samples = reports[1].samples = 0.002;
	reference(&o, reports, 2, expected);
	hdet_control(&o, reports, 4, base);
	assert_true(fabs(base[0] - expected[0]) < 1e-12 && fabs(base[1] - expected[1]) < 1e-12);
}

static void control_is_the_papers(void **state)
{
	(void)state;
	struct tr_sync_options o = hdet();
	struct sync_report reports[8] = { 0 };
	double base[2] = { 1, 0 }, expected[2] = { 1, 0 };

	o.lr_temperature = 0.05;
	o.lr_decay = 0.01;
	for (uint64_t round = 1; round <= 60; round++) {
		unsigned peers = 2 + (unsigned)(round % 5);
		memset(reports, 0, sizeof(reports));
		for (unsigned i = 0; i < peers; i++)
			reports[i] = report(base[0] * hdet_factor(&o, round, i, peers),
			    2 + 0.1 * rng_unit(rng_key(1, round, i), 0, 0));
		reference(&o, reports, peers, expected);
		hdet_control(&o, reports, 8, base);
		assert_true(
		    fabs(base[0] - expected[0]) < 1e-12 && fabs(base[1] - expected[1]) < 1e-12);
	}
	assert_true(base[0] != 1 && base[1] != 0);
}

/* The rate with the lowest loss draws the base to itself; what is not finite draws nobody; nobody's losses change nothing. */
static void base_follows_the_best(void **state)
{
	(void)state;
	struct tr_sync_options o = hdet();
	double base[2] = { 1, 0 };

	struct sync_report reports[4] = { report(0.9, 1), report(1.1, 0.5) };
	hdet_control(&o, reports, 4, base);
	assert_true(base[0] > 1.004 && base[0] < 1.006); /* 0.5 * 0.1 * 0.1 */
	base[0] = 1;
	base[1] = 0;
	reports[1].lr_scale = -1.1;
	reports[1].loss = 0;
	hdet_control(&o, reports, 4, base);
	assert_true(base[0] < 0.996 && base[0] > 0.994);
	double before[2] = { base[0], base[1] };
	reports[0].lr_scale = -0.9;
	hdet_control(&o, reports, 4, base);
	hdet_control(&o, reports + 2, 2, base);
	assert_memory_equal(base, before, sizeof(before));
	for (unsigned i = 0; i < 10000; i++) {
		reports[0] = report(base[0] * 0.9, 0);
		reports[1] = report(base[0] * 1.1, 1);
		hdet_control(&o, reports, 2, base);
		assert_true(base[0] >= 1.0 / 64);
	}
}

/* What another peer says is only numbers: the base stays one. */
static void wild_reports_do_no_harm(void **state)
{
	(void)state;
	const double wild[] = { -1, 0, 1e300, -1e300, INFINITY, -INFINITY, NAN, 5e-324 };
	enum { WILD = sizeof(wild) / sizeof(wild[0]) };
	struct tr_sync_options o = hdet();

	for (unsigned i = 0; i < WILD * WILD; i++) {
		struct sync_report reports[2] = { report(1.1, 2),
			report(wild[i % WILD], wild[i / WILD]) };
		double base[2] = { 1, 0 };
		hdet_control(&o, reports, 2, base);
		assert_true(base[0] >= 1.0 / 64 && base[0] <= 64 && isfinite(base[1]));
		hdet_control(&o, reports, 1, base);
		assert_true(base[0] >= 1.0 / 64 && base[0] <= 64 && isfinite(base[1]));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(defaults_are_the_papers),
		cmocka_unit_test(options_that_cannot_be_are_named),
		cmocka_unit_test(factors_are_the_spread_permuted),
		cmocka_unit_test(exp_is_exp),
		cmocka_unit_test(control_is_the_papers),
		cmocka_unit_test(who_had_no_samples_does_not_count),
		cmocka_unit_test(base_follows_the_best),
		cmocka_unit_test(wild_reports_do_no_harm),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
