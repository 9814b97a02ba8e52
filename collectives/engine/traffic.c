#include "collectives/engine/traffic.h"

#include "collectives/transport/conn.h"
#include "collectives/transport/shm_hub.h"

enum tr_transport traffic_transport(const struct lane *lane)
{
	return shm_hub_made(lane) ? TR_TRANSPORT_SHM : TR_TRANSPORT_TCP;
}

void traffic_add(struct traffic *sum, const struct traffic *other)
{
	sum->tcp_sent += other->tcp_sent;
	sum->tcp_received += other->tcp_received;
	sum->shm_sent += other->shm_sent;
	sum->shm_received += other->shm_received;
}

void traffic_add_lane(struct traffic *sum, const struct lane *lane)
{
	struct lane_counters counters;
	lane_counters(lane, &counters);
	if (traffic_transport(lane) == TR_TRANSPORT_SHM) {
		sum->shm_sent += counters.bytes_out;
		sum->shm_received += counters.bytes_in;
	} else {
		sum->tcp_sent += counters.bytes_out;
		sum->tcp_received += counters.bytes_in;
	}
}

void traffic_add_conn(struct traffic *sum, const struct conn *conn)
{
	struct lane_counters counters;
	conn_counters(conn, &counters);
	sum->tcp_sent += counters.bytes_out;
	sum->tcp_received += counters.bytes_in;
}
