#include "daemon/membership/core/topology.h"

#include <float.h>
#include <string.h>

#define NOBODY UINT32_MAX

struct host {
	uint32_t first;   /* lowest index of a peer there */
	uint32_t in, out; /* those with an edge to the outside; the same if there is but one */
	double bandwidth; /* the slower one of these */
};

static double bandwidth_of(const struct topology_peer *peer)
{
	return peer->bandwidth_bytes_per_s > 0 ? peer->bandwidth_bytes_per_s : DBL_MAX;
}

static bool same_host(const struct topology_peer *a, const struct topology_peer *b)
{
	return a->host != NULL && b->host != NULL && a->host[0] != '\0' &&
	    strcmp(a->host, b->host) == 0;
}

static uint32_t host_of(const struct topology_peer *peers, uint32_t peer)
{
	for (uint32_t i = 0; i < peer; i++)
		if (same_host(&peers[i], &peers[peer]))
			return i;
	return peer;
}

/* Of host `first`, but for `not`: the fastest. */
static uint32_t fastest(const struct topology_peer *peers, unsigned n, const uint32_t *host,
    uint32_t first, uint32_t not )
{
	uint32_t best = NOBODY;
	for (uint32_t i = 0; i < n; i++)
		if (host[i] == first &&
		    i !=
		        not &&(
		            best == NOBODY || bandwidth_of(&peers[i]) > bandwidth_of(&peers[best])))
			best = i;
	return best;
}

/* ... and: the nearest of those that are fast enough; ties: the first one, or the last. */
static uint32_t nearest(const struct topology_peer *peers, unsigned n, const uint32_t *host,
    uint32_t first, uint32_t not, double enough)
{
	uint32_t best = NOBODY;
	for (uint32_t i = 0; i < n; i++) {
		if (host[i] != first || i == not || bandwidth_of(&peers[i]) < enough)
			continue;
		if (best == NOBODY || peers[i].latency_s < peers[best].latency_s ||
		    (not != NOBODY && peers[i].latency_s <= peers[best].latency_s))
			best = i;
	}
	return best;
}

/* The slowest edge that no order avoids: each host's second fastest peer, or its only one. */
static double bottleneck(const struct topology_peer *peers, unsigned n, const uint32_t *host)
{
	double slowest = DBL_MAX;
	for (uint32_t i = 0; i < n; i++) {
		if (host[i] != i)
			continue;
		uint32_t best = fastest(peers, n, host, i, NOBODY);
		uint32_t second = fastest(peers, n, host, i, best);
		double bandwidth = bandwidth_of(&peers[second != NOBODY ? second : best]);
		if (bandwidth < slowest)
			slowest = bandwidth;
	}
	return slowest;
}

/* The fast ones first, so that slow ones are neighbours and share an edge. */
static void insert(struct host *hosts, unsigned count, struct host host)
{
	unsigned at = count;
	while (at > 0 && hosts[at - 1].bandwidth < host.bandwidth) {
		hosts[at] = hosts[at - 1];
		at--;
	}
	hosts[at] = host;
}

void topology_ring(const struct topology_peer *peers, unsigned n, uint32_t *ring)
{
	uint32_t host[TR_GROUP_PEERS_MAX];
	struct host hosts[TR_GROUP_PEERS_MAX];
	unsigned count = 0, place = 0;

	for (uint32_t i = 0; i < n; i++)
		host[i] = host_of(peers, i);
	double enough = bottleneck(peers, n, host);
	for (uint32_t i = 0; i < n; i++) {
		if (host[i] != i)
			continue;
		uint32_t in = nearest(peers, n, host, i, NOBODY, enough);
		uint32_t out = nearest(peers, n, host, i, in, enough);
		if (out == NOBODY)
			out = in;
		double a = bandwidth_of(&peers[in]), b = bandwidth_of(&peers[out]);
		insert(hosts, count++,
		    (struct host){ .first = i, .in = in, .out = out, .bandwidth = a < b ? a : b });
	}
	for (unsigned h = 0; h < count; h++) {
		ring[place++] = hosts[h].in;
		for (uint32_t i = 0; i < n; i++)
			if (host[i] == hosts[h].first && i != hosts[h].in && i != hosts[h].out)
				ring[place++] = i;
		if (hosts[h].out != hosts[h].in)
			ring[place++] = hosts[h].out;
	}
}

static uint64_t round_trip_ms(const struct topology_peer *peer)
{
	return (uint64_t)(2000.0 * peer->latency_s);
}

uint32_t topology_hub(const struct topology_peer *peers, unsigned n)
{
	uint32_t best = NOBODY;
	for (uint32_t i = 0; i < n; i++)
		if (peers[i].may_be_hub &&
		    (best == NOBODY || round_trip_ms(&peers[i]) < round_trip_ms(&peers[best])))
			best = i;
	return best != NOBODY ? best : 0;
}
