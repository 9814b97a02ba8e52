/* Ring orders against every permutation, and the hub. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <math.h>
#include <cmocka.h>

#include "common/rng.h"
#include "daemon/membership/core/topology.h"

#define N_MAX 7

struct worth {
	double bandwidth, latency_s; /* of the slowest edge; of all edges together */
};

static struct worth worth_of(const struct topology_peer *peers, const uint32_t *ring, unsigned n)
{
	struct worth worth = { INFINITY, 0 };

	for (unsigned i = 0; i < n; i++) {
		const struct topology_peer *a = &peers[ring[i]], *b = &peers[ring[(i + 1) % n]];
		if (a->host && b->host && a->host[0] == b->host[0] && a->host[0] != '\0')
			continue;
		worth.bandwidth = fmin(worth.bandwidth,
		    fmin(a->bandwidth_bytes_per_s > 0 ? a->bandwidth_bytes_per_s : INFINITY,
		        b->bandwidth_bytes_per_s > 0 ? b->bandwidth_bytes_per_s : INFINITY));
		worth.latency_s += a->latency_s + b->latency_s;
	}
	return worth;
}

/* Every order of the places from `at` on. */
static void best_of(const struct topology_peer *peers, uint32_t *ring, unsigned n, unsigned at,
    struct worth *best)
{
	if (at == n) {
		struct worth worth = worth_of(peers, ring, n);
		if (worth.bandwidth > best->bandwidth ||
		    (worth.bandwidth == best->bandwidth && worth.latency_s < best->latency_s))
			*best = worth;
		return;
	}
	for (unsigned i = at; i < n; i++) {
		uint32_t here = ring[at];
		ring[at] = ring[i];
		ring[i] = here;
		best_of(peers, ring, n, at + 1, best);
		ring[i] = ring[at];
		ring[at] = here;
	}
}

static void is_permutation(const uint32_t *ring, unsigned n)
{
	bool seen[TR_GROUP_PEERS_MAX] = { false };
	for (unsigned i = 0; i < n; i++) {
		assert_true(ring[i] < n && !seen[ring[i]]);
		seen[ring[i]] = true;
	}
}

static void no_order_is_better(void **state)
{
	static const char *const names[] = { NULL, "", "a", "b", "c" };
	struct rng_key key = rng_key(8, 0, 0);
	uint64_t draw = 0;
	(void)state;
	for (unsigned trial = 0; trial < 600; trial++) {
		unsigned n = 2 + trial % (N_MAX - 1);
		struct topology_peer peers[N_MAX] = { 0 };
		uint32_t ring[N_MAX], other[N_MAX];
		for (unsigned i = 0; i < n; i++) {
			peers[i].bandwidth_bytes_per_s = (double)rng_below(key, 0, draw++, 6) * 1e8;
			peers[i].latency_s = (double)rng_below(key, 0, draw++, 5) / 1024;
			peers[i].host = names[rng_below(key, 0, draw++, 5)];
			other[i] = i;
		}
		topology_ring(peers, n, ring);
		is_permutation(ring, n);
		struct worth best = { 0, INFINITY }, ours = worth_of(peers, ring, n);
		best_of(peers, other, n, 1, &best); /* it is a ring: the first stays */
		assert_true(ours.bandwidth >= best.bandwidth);
		assert_true(
		    ours.bandwidth > best.bandwidth || ours.latency_s <= best.latency_s + 1e-12);
	}
}

static void plain_rings(void **state)
{
	struct topology_peer peers[TR_GROUP_PEERS_MAX] = { 0 };
	uint32_t ring[TR_GROUP_PEERS_MAX];
	(void)state;
	for (unsigned n = 1; n <= TR_GROUP_PEERS_MAX; n = n < 8 ? n + 1 : 2 * n) {
		topology_ring(peers, n, ring); /* nothing known */
		for (unsigned i = 0; i < n; i++)
			assert_int_equal(ring[i], i);
	}
	/* Two slow ones among six: neighbours, so that three edges are slow and not four. */
	for (unsigned i = 0; i < 6; i++)
		peers[i].bandwidth_bytes_per_s = i == 1 || i == 4 ? 1e8 : 1e9;
	topology_ring(peers, 6, ring);
	unsigned slow = 0;
	for (unsigned i = 0; i < 6; i++)
		slow += peers[ring[i]].bandwidth_bytes_per_s < 1e9 ||
		    peers[ring[(i + 1) % 6]].bandwidth_bytes_per_s < 1e9;
	assert_int_equal(slow, 3);
	for (unsigned i = 0; i < 6; i++) { /* one host */
		peers[i].host = "a";
		peers[i].bandwidth_bytes_per_s = 0;
	}
	topology_ring(peers, 6, ring);
	for (unsigned i = 0; i < 6; i++)
		assert_int_equal(ring[i], i);
}

static void hubs(void **state)
{
	struct topology_peer peers[4] = { { .latency_s = 0.010 },
		{ .latency_s = 0.004, .may_be_hub = true },
		{ .latency_s = 0.0041, .may_be_hub = true }, { .latency_s = 0.001 } };
	(void)state;
	assert_int_equal(topology_hub(peers, 4), 1); /* the same millisecond: the first */
	peers[3].may_be_hub = true;
	assert_int_equal(topology_hub(peers, 4), 3);
	assert_int_equal(topology_hub(peers, 1), 0); /* nobody may */
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(no_order_is_better),
		cmocka_unit_test(plain_rings),
		cmocka_unit_test(hubs),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
