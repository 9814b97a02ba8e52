/* The order of a group's ring and its hub, from what is known of the members' links. Pure.
 *
 * An edge between two peers is as fast as the slower of them and as late as both together; between peers of one host it costs
 * nothing. A ring is as fast as its slowest edge, so that comes first, then the sum of latencies. Hosts are contiguous: of each
 * that holds several peers two have an edge to the outside. (Figures of pairs would make this a search; there are none yet.)
 */
#ifndef TR_MEMBERSHIP_CORE_TOPOLOGY_H
#define TR_MEMBERSHIP_CORE_TOPOLOGY_H

#include <stdbool.h>
#include <stdint.h>

#include "common/limits.h"

struct topology_peer {
	double latency_s;             /* one way to its network; 0: not measured */
	double bandwidth_bytes_per_s; /* of its slower direction; 0: not measured, no reason to avoid it */
	const char *host;             /* NULL or empty: unknown, nobody shares it */
	bool may_be_hub;
};

/* ring[place] = index into peers. n <= TR_GROUP_PEERS_MAX. In ascending order where nothing is known. */
void topology_ring(const struct topology_peer *peers, unsigned n, uint32_t *ring);

/* The least latency in whole milliseconds of a round trip among those that may be; ties: the first. 0 if none may. */
uint32_t topology_hub(const struct topology_peer *peers, unsigned n);

#endif
