/* Hosts told apart into sites by their links, and what their cables carry by what streams have alone and together. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdlib.h>

#include "common/rng.h"
#include "daemon/membership/core/sites.h"

#define MBIT                    125e3
#define assert_near(a, b, part) assert_true(fabs((a) - (b)) <= (part)*fabs(b))

/* A world: hosts of sites with cables of so much each way, cards, and what a stream between sites has at most. */
struct world {
	uint32_t hosts, at[TR_PROBE_HOSTS_MAX];
	double cable_out[8], cable_in[8], card[TR_PROBE_HOSTS_MAX], stream;
};

static double one_alone(const struct world *w, uint32_t from, uint32_t to)
{
	double least = fmin(w->card[from], w->card[to]);

	return w->at[from] == w->at[to]
	    ? least
	    : fmin(fmin(least, w->stream), fmin(w->cable_out[w->at[from]], w->cable_in[w->at[to]]));
}

/* As turns of pairs find it: each link over cables with a part of what it has alone, by chance, half at least. */
static struct sites *measured(const struct world *w, uint64_t seed)
{
	struct sites *s = calloc(1, sizeof(*s) + w->hosts * w->hosts * sizeof(s->links[0]));
	struct rng_key key = rng_key(seed, 0, 0);

	assert_non_null(s);
	s->hosts = w->hosts;
	for (uint32_t i = 0; i < w->hosts * w->hosts; i++) {
		uint32_t from = i / w->hosts, to = i % w->hosts;
		bool crosses = w->at[from] != w->at[to];
		s->links[i] = (struct flow_link){ crosses ? 2e-3 : 1e-4,
			one_alone(w, from, to) * (crosses ? 0.5 + 0.5 * rng_unit(key, 0, i) : 1) };
	}
	sites_find(s);
	return s;
}

/* Streams that share cables in equal parts: what these pairs carry together, each way. */
static void together(const struct world *w, const struct tournament_pair *pairs, uint32_t count,
    double *out, double *in)
{
	double *sums[] = { out, in };

	for (unsigned back = 0; back < 2; back++) {
		double rate[TR_PROBE_HOSTS_MAX], of_out[8] = { 0 }, of_in[8] = { 0 };
		for (uint32_t i = 0; i < count; i++) {
			uint32_t from = back ? pairs[i].high : pairs[i].low,
			         to = back ? pairs[i].low : pairs[i].high;
			rate[i] = one_alone(w, from, to);
			of_out[w->at[from]] += rate[i];
			of_in[w->at[to]] += rate[i];
		}
		*sums[back] = 0;
		for (uint32_t i = 0; i < count; i++) {
			uint32_t from = w->at[back ? pairs[i].high : pairs[i].low],
			         to = w->at[back ? pairs[i].low : pairs[i].high];
			*sums[back] += rate[i] *
			    fmin(1,
			        fmin(w->cable_out[from] / of_out[from],
			            w->cable_in[to] / of_in[to]));
		}
	}
}

/* All further turns. Returns how many there were in which something was measured. */
static uint32_t measure(const struct world *w, struct sites *s)
{
	struct tournament_pair pairs[TR_PROBE_HOSTS_MAX];
	uint32_t turns = 0;

	for (uint32_t turn = 0; s->count > 1 && turn < tournament_turns(s->count); turn++) {
		uint32_t count = sites_alone(s, turn, pairs);
		for (uint32_t i = 0; i < count; i++) {
			uint32_t a = pairs[i].low, b = pairs[i].high;
			sites_relink(s, a, b, one_alone(w, a, b));
			sites_relink(s, b, a, one_alone(w, b, a));
		}
		turns += count > 0;
	}
	for (uint32_t site = 0; site < s->count; site++) {
		double out, in;
		uint32_t count = sites_together(s, site, pairs);
		together(w, pairs, count, &out, &in);
		if (count > 0)
			sites_take(s, site, out, in);
		turns += count > 0;
	}
	return turns;
}

static struct world world_of(uint32_t hosts, const uint32_t *at, double cable)
{
	struct world w = { .hosts = hosts, .stream = INFINITY };

	for (uint32_t i = 0; i < hosts; i++) {
		w.at[i] = at[i];
		w.card[i] = 1000 * MBIT;
	}
	for (uint32_t i = 0; i < 8; i++)
		w.cable_out[i] = w.cable_in[i] = cable;
	return w;
}

static void check_sites(const struct world *w, const struct sites *s)
{
	for (uint32_t a = 0; a < w->hosts; a++)
		for (uint32_t b = 0; b < w->hosts; b++)
			assert_int_equal(s->of[a] == s->of[b], w->at[a] == w->at[b]);
}

static void a_cable_each_way(void **state)
{
	const uint32_t at[] = { 0, 1, 0, 1, 1 };

	(void)state;
	for (uint64_t seed = 0; seed < 20; seed++) {
		struct world w = world_of(5, at, INFINITY);
		w.cable_out[0] = 100 * MBIT; /* one that sends little and gets more */
		w.cable_in[0] = 300 * MBIT;
		struct sites *s = measured(&w, seed);
		check_sites(&w, s);
		assert_int_equal(measure(&w, s), 2);
		assert_near(s->cable_out[s->of[0]], 100 * MBIT, 1e-9);
		assert_near(s->cable_in[s->of[0]], 300 * MBIT, 1e-9);
		assert_near(s->cable_in[s->of[1]], 100 * MBIT, 1e-9);
		for (uint32_t i = 0; i < 25; i++)
			assert_near(sites_lone(s, i / 5, i % 5), one_alone(&w, i / 5, i % 5), 1e-9);
		assert_true(sites_crosses(s, 0, 1) && !sites_crosses(s, 0, 2));
		free(s);
	}
}

/* What a stream has over a long way is less than the cable; a slow card is not taken to be as fast as another's. */
static void streams_and_cards_that_are_slower(void **state)
{
	const uint32_t at[] = { 0, 0, 0, 1, 1, 1 };

	(void)state;
	struct world w = world_of(6, at, 100 * MBIT);
	w.stream = 40 * MBIT;
	w.card[1] = w.card[4] = 30 * MBIT;
	w.card[0] = w.card[2] = w.card[3] = w.card[5] = 200 * MBIT;
	struct sites *s = measured(&w, 1);
	assert_int_equal(s->count,
	    4); /* who has a card of 30 is as far from its neighbours as from all */
	(void)measure(&w, s);
	for (uint32_t i = 0; i < 36; i++)
		assert_false(
		    sites_crosses(s, i / 6, i % 6)); /* two streams of 40 fill no cable of 100 */
	free(s);
	w.card[1] = w.card[4] = 1000 * MBIT;
	s = measured(&w, 1);
	check_sites(&w, s);
	assert_int_equal(measure(&w, s), 2);
	assert_near(s->cable_out[0], 100 * MBIT, 1e-9);
	assert_near(sites_lone(s, 1, 4), 40 * MBIT, 1e-9);
	free(s);
}

static void nothing_is_shared(void **state)
{
	const uint32_t at[] = { 0, 0, 1, 1 };

	(void)state;
	for (unsigned almost = 0; almost < 3; almost++) {
		struct world w = world_of(4, at,
		    almost == 0       ? INFINITY
		        : almost == 1 ? 180 * MBIT
		                      : 160 * MBIT);
		w.stream = 100 * MBIT;
		struct sites *s = measured(&w, 3);
		check_sites(&w, s);
		assert_int_equal(measure(&w, s), 2);
		assert_near(s->cable_out[0], almost == 2 ? 160 * MBIT : 0, 1e-9);
		assert_int_equal(sites_crosses(s, 0, 2), almost == 2);
		free(s);
	}
}

/* A server's site among homes: each home's cable is slower than its, which one home does not show. */
static void three_sites(void **state)
{
	const uint32_t at[] = { 0, 0, 1, 1, 2, 2 };

	(void)state;
	struct world w = world_of(6, at, 50 * MBIT);
	w.cable_out[0] = w.cable_in[0] = 80 * MBIT;
	struct sites *s = measured(&w, 2);
	check_sites(&w, s);
	assert_int_equal(measure(&w, s), 3 + 3);
	assert_near(s->cable_out[0], 80 * MBIT, 1e-9);
	for (uint32_t home = 1; home < 3; home++)
		assert_near(s->cable_in[home], 50 * MBIT, 1e-9);
	free(s);
}

/* Hosts that are all alike, one whose card is slow, one that nobody reaches, homes of one host each: no site. */
static void who_cannot_be_told_apart(void **state)
{
	const uint32_t one[] = { 0, 0, 0, 0, 0 }, each[] = { 0, 1, 2, 3, 4 }, few[] = { 0, 0, 1 };

	(void)state;
	struct world w = world_of(5, one, INFINITY);
	struct sites *s = measured(&w, 1);
	assert_int_equal(s->count, 1);
	assert_int_equal(measure(&w, s), 0);
	s->links[3].bandwidth_bytes_per_s = s->links[15].bandwidth_bytes_per_s = 0;
	sites_find(s);
	assert_int_equal(s->count, 1);
	free(s);
	w.card[2] = 10 * MBIT;
	s = measured(&w, 1);
	assert_int_equal(measure(&w, s), 0);
	free(s);
	w = world_of(5, each, 100 * MBIT);
	s = measured(&w, 1);
	assert_int_equal(measure(&w, s), 0);
	free(s);
	w = world_of(3, few, 100 * MBIT);
	s = measured(&w, 1);
	assert_int_equal(measure(&w, s), 0);
	free(s);
}

/* As many as are measured at all: turns grow with sites, not with hosts. */
static void many_hosts(void **state)
{
	uint32_t at[TR_PROBE_HOSTS_MAX];

	(void)state;
	for (uint32_t i = 0; i < TR_PROBE_HOSTS_MAX; i++)
		at[i] = i % 8;
	struct world w = world_of(TR_PROBE_HOSTS_MAX, at, 100 * MBIT);
	struct sites *s = measured(&w, 1);
	check_sites(&w, s);
	assert_int_equal(measure(&w, s), 7 + 8);
	for (uint32_t site = 0; site < 8; site++)
		assert_near(s->cable_out[site], 100 * MBIT, 1e-9);
	free(s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_cable_each_way),
		cmocka_unit_test(streams_and_cards_that_are_slower),
		cmocka_unit_test(nothing_is_shared),
		cmocka_unit_test(three_sites),
		cmocka_unit_test(who_cannot_be_told_apart),
		cmocka_unit_test(many_hosts),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
