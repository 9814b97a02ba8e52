/* Bytes that went over the connections between a member and its peers, by what carried them. A connection counts for itself while it
 * lives (lane_counters); what it counted is added here when it ends. Not thread-safe.
 */
#ifndef TR_COLLECTIVES_ENGINE_TRAFFIC_H
#define TR_COLLECTIVES_ENGINE_TRAFFIC_H

#include <stdint.h>

#include "collectives/coll.h"
#include "collectives/transport/lane.h"

struct conn;

struct traffic {
	uint64_t tcp_sent, tcp_received, shm_sent, shm_received;
};

enum tr_transport traffic_transport(const struct lane *lane);
void traffic_add(struct traffic *sum, const struct traffic *other);
void traffic_add_lane(struct traffic *sum, const struct lane *lane);
void traffic_add_conn(struct traffic *sum, const struct conn *conn);

#endif
