#include "collectives/transport/tcp_path.h"

/* Not netinet/tcp.h, whose struct tcp_info is an old one; the two cannot be included together. */
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>

bool tcp_path_get(int fd, struct tcp_path *path)
{
	struct tcp_info info = { 0 };
	socklen_t length = sizeof(info);
	if (fd < 0 || getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &length) != 0)
		return false;
	path->rtt_us = info.tcpi_min_rtt != 0 && info.tcpi_min_rtt != UINT32_MAX ? info.tcpi_min_rtt
	                                                                         : info.tcpi_rtt;
	path->now_rtt_us = info.tcpi_rtt;
	path->retransmits = info.tcpi_total_retrans;
	path->mends_loss = info.tcpi_ca_state > TCP_CA_Disorder;
	path->waits = info.tcpi_unacked > 0 || info.tcpi_notsent_bytes > 0;
	path->resent = info.tcpi_retransmits;
	path->quiet_ms = info.tcpi_last_ack_recv;
	path->rto_us = info.tcpi_rto >> (info.tcpi_backoff % 32);
	path->acked_bytes = info.tcpi_bytes_acked;
	path->bytes_per_s = info.tcpi_delivery_rate;
	path->full = !info.tcpi_delivery_rate_app_limited;
	path->packets_out = info.tcpi_delivered;
	path->packets_in = info.tcpi_data_segs_in;
	path->packet_bytes_out = info.tcpi_snd_mss;
	path->packet_bytes_in = info.tcpi_rcv_mss;
	return true;
}
