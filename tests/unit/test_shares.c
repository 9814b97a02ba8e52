/* Shares of owners against a search that knows nothing of the formula, and the tables made of them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <math.h>
#include <cmocka.h>

#include "collectives/core/shares.h"
#include "common/rng.h"

#define N_MAX 9

/* Time of the slowest for one byte, when peer i owns share w[i]. */
static double slowest(const uint64_t *bandwidth, const double *w, unsigned n)
{
	double worst = 0;
	for (unsigned i = 0; i < n; i++)
		worst = fmax(worst, (1 + (n - 2.0) * w[i]) / (double)bandwidth[i]);
	return worst;
}

/* The least time for which shares exist, by bisection on "the shares that fit into t sum to 1". */
static double best(const uint64_t *bandwidth, unsigned n)
{
	double low = 0, high = 1e6;
	for (unsigned step = 0; step < 200; step++) {
		double t = (low + high) / 2, sum = 0;
		for (unsigned i = 0; i < n; i++)
			sum += fmax(0, (t * (double)bandwidth[i] - 1) / (n - 2.0));
		if (sum >= 1)
			high = t;
		else
			low = t;
	}
	return high;
}

static void fractions(const uint64_t *weight, unsigned n, double *w)
{
	double sum = 0;
	for (unsigned i = 0; i < n; i++)
		sum += (double)weight[i];
	assert_true(sum > 0);
	for (unsigned i = 0; i < n; i++)
		w[i] = (double)weight[i] / sum;
}

static void water_finds_its_level(void **state)
{
	struct rng_key key = rng_key(5, 0, 0);
	uint64_t draw = 0;
	unsigned left_out = 0;
	(void)state;
	for (unsigned trial = 0; trial < 2000; trial++) {
		unsigned n = 3 + trial % (N_MAX - 2);
		uint64_t bandwidth[N_MAX], weight[N_MAX];
		double w[N_MAX];
		for (unsigned i = 0; i < n; i++)
			bandwidth[i] = 1 + rng_below(key, 0, draw++, trial % 2 ? 20 : 1000000);
		shares_weigh(bandwidth, n, weight);
		fractions(weight, n, w);
		double least = best(bandwidth, n), ours = 0;
		/* Who owns nothing still moves S: no share helps a link that is too slow for that. */
		for (unsigned i = 0; i < n; i++)
			if (w[i] > 0)
				ours = fmax(ours, (1 + (n - 2.0) * w[i]) / (double)bandwidth[i]);
			else
				left_out++;
		assert_true(fabs(ours - least) < 1e-6 * least);
		double moved[N_MAX];
		for (unsigned k = 0; k < n; k++) { /* no small shift between two makes it better */
			unsigned a = k, b = (k + 1) % n;
			double shift = fmin(0.01, w[a]);
			for (unsigned i = 0; i < n; i++)
				moved[i] = w[i] + (i == b ? shift : 0) - (i == a ? shift : 0);
			assert_true(
			    slowest(bandwidth, moved, n) >= slowest(bandwidth, w, n) - 1e-12);
		}
	}
	assert_true(left_out > 0);
}

static void equal_shares(void **state)
{
	uint64_t weight[4];
	(void)state;
	shares_weigh((uint64_t[]){ 0, 0, 0, 0 }, 4, weight);
	for (unsigned i = 0; i < 4; i++)
		assert_int_equal(weight[i], weight[0]);
	shares_weigh((uint64_t[]){ 10, 1000 }, 2, weight); /* both move S, whoever owns */
	assert_int_equal(weight[0], weight[1]);
	/* Not measured: the mean of the others. */
	shares_weigh((uint64_t[]){ 30, 0, 30, 30 }, 4, weight);
	for (unsigned i = 0; i < 4; i++)
		assert_int_equal(weight[i], weight[0]);
	uint64_t most[256], weights[256];
	for (unsigned i = 0; i < 256; i++)
		most[i] = (uint64_t)1 << 40;
	shares_weigh(most, 256, weights);
	uint64_t sum = 0;
	for (unsigned i = 0; i < 256; i++)
		sum += weights[i];
	assert_true(weights[0] > 0 && sum < (uint64_t)1 << 62);
}

/* Any first k entries hold each peer as often as its weight says, but for two. */
static void tables_are_smooth(void **state)
{
	struct rng_key key = rng_key(6, 0, 0);
	uint64_t draw = 0;
	(void)state;
	for (unsigned trial = 0; trial < 200; trial++) {
		unsigned n = 1 + trial % N_MAX, count[N_MAX] = { 0 };
		uint64_t weight[N_MAX], total = 0;
		uint8_t owners[SHARES_OWNERS];
		for (unsigned i = 0; i < n; i++) {
			weight[i] = rng_below(key, 0, draw++, 10) + (i == 0);
			total += weight[i];
		}
		shares_table(weight, n, owners);
		for (unsigned k = 0; k < SHARES_OWNERS; k++) {
			assert_true(owners[k] < n);
			count[owners[k]]++;
			for (unsigned i = 0; i < n; i++) {
				double wanted = (double)weight[i] * (k + 1) / (double)total;
				assert_true(fabs(count[i] - wanted) < 2);
				assert_true(weight[i] > 0 || count[i] == 0);
			}
		}
	}
	uint8_t owners[SHARES_OWNERS];
	shares_table((uint64_t[]){ 1, 1, 1, 1 }, 4, owners);
	for (unsigned k = 0; k < SHARES_OWNERS; k++)
		assert_int_equal(owners[k], k % 4);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(water_finds_its_level),
		cmocka_unit_test(equal_shares),
		cmocka_unit_test(tables_are_smooth),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
