/* Routes of segments: for every algorithm, every small group, every set of contributors and many splits into hosts, all
 * participants' own views of a route fit together, each contributor's data gets to the sealer once and the result to everybody once.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "collectives/core/bits.h"
#include "collectives/core/route.h"
#include "common/rng.h"

struct case_of {
	unsigned n;
	bool live[TR_GROUP_PEERS_MAX], live_at[TR_GROUP_PEERS_MAX];
	uint32_t bit[TR_GROUP_PEERS_MAX];
	unsigned order[TR_GROUP_PEERS_MAX], place[TR_GROUP_PEERS_MAX], host[TR_GROUP_PEERS_MAX],
	    by_host[TR_GROUP_PEERS_MAX], host_first[TR_GROUP_PEERS_MAX + 1];
	struct roster roster;
	struct route routes[TR_GROUP_PEERS_MAX];
};

/* Host of i: i * spread % hosts, so that members of a host are not neighbours. */
static void case_init(struct case_of *c, unsigned n, unsigned hosts, unsigned hub,
    bool deterministic)
{
	uint64_t weight[TR_GROUP_PEERS_MAX];
	unsigned number[TR_GROUP_PEERS_MAX], host_count = 0, at = 0;

	c->n = n;
	for (unsigned i = 0; i < n; i++) {
		number[i] = ROSTER_NONE;
		weight[i] = 1 + i % 3;
		c->order[i] = deterministic ? i : (i * (n > 2 ? n - 1 : 1) + 1) % n;
		c->place[c->order[i]] = i;
	}
	for (unsigned i = 0; i < n; i++) {
		unsigned h = (i * 7 + i / 3) % hosts;
		if (number[h] == ROSTER_NONE)
			number[h] = host_count++;
		c->host[i] = number[h];
	}
	for (unsigned h = 0; h < host_count; h++) {
		c->host_first[h] = at;
		for (unsigned i = 0; i < n; i++)
			if (c->host[i] == h)
				c->by_host[at++] = i;
	}
	c->host_first[host_count] = at;
	c->roster = (struct roster){ .n = n,
		.live = c->live,
		.bit = c->bit,
		.order = c->order,
		.place = c->place,
		.live_at = c->live_at,
		.deterministic = deterministic,
		.host_count = host_count,
		.host = c->host,
		.by_host = c->by_host,
		.host_first = c->host_first,
		.hub = hub };
	shares_table(weight, n, c->roster.owners);
}

static void case_live(struct case_of *c, const bool *live)
{
	c->roster.live_count = c->roster.contributor_count = 0;
	for (unsigned i = 0; i < c->n; i++) {
		c->live[i] = live[i];
		c->live_at[c->place[i]] = live[i];
		c->bit[i] = live[i] ? c->roster.contributor_count++ : ROSTER_NONE;
		c->roster.live_count += live[i];
	}
}

/* Adds what is in the sum that `who` gives to `set`, which must not have any of it yet. */
static void gather(struct case_of *c, const struct route_of *of, unsigned who, uint8_t *set,
    unsigned depth)
{
	const struct route *route = &c->routes[who];
	uint8_t mine[ROUTE_SET_BYTES] = { 0 }, said[ROUTE_SET_BYTES];

	assert_true(depth <= c->n);
	if (c->live[who])
		bits_set(mine, c->bit[who]);
	for (unsigned i = 0; i < c->n; i++) {
		if (!bits_get(route->children, i))
			continue;
		assert_int_equal(c->routes[i].up, who);
		gather(c, of, i, mine, depth + 1);
	}
	if (!route->seals) {
		route_set(of, who, said);
		assert_memory_equal(said, mine, sizeof(mine));
		assert_true(bits_count(mine, sizeof(mine)) > 0);
	}
	for (unsigned b = 0; b < c->roster.contributor_count; b++)
		if (bits_get(mine, b)) {
			assert_false(bits_get(set, b));
			bits_set(set, b);
		}
}

static void one_shot(struct case_of *c)
{
	for (unsigned who = 0; who < c->n; who++) {
		const struct route *route = &c->routes[who];
		assert_true(route->seals);
		assert_int_equal(route->up, ROSTER_NONE);
		assert_int_equal(route->down_from, ROSTER_NONE);
		assert_int_equal(route->down_count, 0);
		assert_int_equal(route->spreads, c->live[who] && c->n > 1);
		for (unsigned i = 0; i < c->n; i++)
			assert_int_equal(bits_get(route->children, i), i != who && c->live[i]);
	}
}

static void one_route(struct case_of *c, enum tr_algorithm algorithm, uint32_t tag, uint32_t segment)
{
	struct route_of of = { .roster = &c->roster,
		.algorithm = algorithm,
		.tag = tag,
		.segment = segment };
	unsigned sealers = 0, sealer = 0, waited = 0, sent = 0, got[TR_GROUP_PEERS_MAX] = { 0 };

	for (unsigned who = 0; who < c->n; who++) {
		struct route *route = &c->routes[who];
		route_find(&of, who, route);
		assert_int_equal(bits_count(route->children, sizeof(route->children)),
		    route->child_count);
		assert_int_equal(route->seals, route->down_from == ROSTER_NONE);
		if (route->seals) {
			sealers++;
			sealer = who;
			assert_int_equal(route->up, ROSTER_NONE);
		}
		waited += route->child_count;
		sent += route->up != ROSTER_NONE;
		assert_true(route->up != who && route->down_from != who);
	}
	if (algorithm == TR_ONE_SHOT) {
		one_shot(c);
		return;
	}
	/* Whatever is sent is waited for, and nothing else (gather compares the ends). */
	assert_int_equal(sealers, 1);
	assert_int_equal(waited, sent);
	uint8_t all[ROUTE_SET_BYTES] = { 0 };
	gather(c, &of, sealer, all, 0);
	assert_int_equal(bits_count(all, sizeof(all)), c->roster.live_count);
	for (unsigned who = 0; who < c->n; who++)
		for (unsigned i = 0; i < c->routes[who].down_count; i++) {
			unsigned to = c->routes[who].down_to[i];
			assert_int_equal(c->routes[to].down_from, who);
			got[to]++;
		}
	for (unsigned who = 0; who < c->n; who++)
		assert_int_equal(got[who], who != sealer);
	/* Nobody waits for the result from below itself: following it up ends at the sealer. */
	for (unsigned who = 0; who < c->n; who++) {
		unsigned at = who, steps = 0;
		while (at != sealer && steps++ < c->n)
			at = c->routes[at].down_from;
		assert_int_equal(at, sealer);
	}
}

static void all_algorithms(struct case_of *c, uint32_t tag, uint32_t segment)
{
	for (int algorithm = TR_RING; algorithm <= TR_ONE_SHOT; algorithm++)
		one_route(c, (enum tr_algorithm)algorithm, tag, segment);
}

static void small_groups(void **state)
{
	static struct case_of c;
	(void)state;
	for (unsigned n = 1; n <= 9; n++)
		for (unsigned hosts = 1; hosts <= n; hosts++) {
			case_init(&c, n, hosts, hosts - 1, hosts % 3 == 0);
			for (unsigned mask = 1; mask < 1u << n; mask++) {
				bool live[9];
				for (unsigned i = 0; i < n; i++)
					live[i] = mask >> i & 1;
				case_live(&c, live);
				for (uint32_t segment = 0; segment <= n; segment++)
					all_algorithms(&c, hosts, segment);
			}
			all_algorithms(&c, UINT32_MAX, UINT32_MAX);
		}
}

static void large_groups(void **state)
{
	static const unsigned sizes[] = { 17, 64, 255, 256 };
	static struct case_of c;
	struct rng_key key = rng_key(1, 2, 3);
	uint64_t draw = 0;
	(void)state;
	for (unsigned k = 0; k < sizeof(sizes) / sizeof(sizes[0]); k++)
		for (unsigned trial = 0; trial < 40; trial++) {
			unsigned n = sizes[k];
			bool live[TR_GROUP_PEERS_MAX];
			unsigned hosts = 1 + (unsigned)rng_below(key, 0, draw++, n);
			case_init(&c, n, hosts, (unsigned)rng_below(key, 0, draw++, n),
			    trial % 4 == 3);
			for (unsigned i = 0; i < n; i++)
				live[i] = rng_below(key, 0, draw++, 4) > trial % 4;
			live[rng_below(key, 0, draw++, n)] = true;
			case_live(&c, live);
			all_algorithms(&c, trial, (uint32_t)rng_u64(key, 0, draw++));
		}
}

/* What an algorithm is for: how many hops a segment makes, and how evenly its work is spread. */
static void shapes(void **state)
{
	static struct case_of c;
	bool live[8] = { true, true, true, true, true, true, true, true };
	unsigned sealed[8] = { 0 }, led[8] = { 0 };
	(void)state;
	case_init(&c, 8, 2, 3, false);
	case_live(&c, live);
	for (uint32_t segment = 0; segment < SHARES_OWNERS; segment++) {
		one_route(&c, TR_STAR, 0, segment);
		assert_true(c.routes[3].seals);
		one_route(&c, TR_RING, 0, segment);
		for (unsigned i = 0; i < 8; i++) /* only to the next on the ring */
			for (unsigned d = 0; d < c.routes[i].down_count; d++)
				assert_int_equal(c.place[c.routes[i].down_to[d]],
				    (c.place[i] + 1) % 8);
		one_route(&c, TR_DIRECT, 0, segment);
		for (unsigned i = 0; i < 8; i++)
			sealed[i] += c.routes[i].seals;
		one_route(&c, TR_HIERARCHICAL, 0, segment);
		unsigned between = 0;
		for (unsigned i = 0; i < 8; i++) {
			unsigned up = c.routes[i].up;
			between += up != ROSTER_NONE && c.host[up] != c.host[i];
			led[i] += c.routes[i].child_count > 0;
		}
		assert_int_equal(between, 1); /* one sum for each other host */
	}
	/* case_init's weights: 1 2 3 1 2 3 1 2, of 15 */
	for (unsigned i = 0; i < 8; i++) {
		assert_in_range(sealed[i], SHARES_OWNERS * (1 + i % 3) / 15 - 1,
		    SHARES_OWNERS * (1 + i % 3) / 15 + 1);
		assert_true(led[i] > 0);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(small_groups),
		cmocka_unit_test(large_groups),
		cmocka_unit_test(shapes),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
