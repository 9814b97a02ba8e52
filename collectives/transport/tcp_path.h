/* What the kernel knows of a connection's path. */
#ifndef TR_COLLECTIVES_TRANSPORT_TCP_PATH_H
#define TR_COLLECTIVES_TRANSPORT_TCP_PATH_H

#include <stdbool.h>
#include <stdint.h>

struct tcp_path {
	uint32_t rtt_us;     /* least one seen: what queues add is not the path's */
	uint32_t now_rtt_us; /* lately */
	uint32_t retransmits;
	bool mends_loss;   /* now: its window is a smaller one */
	bool waits;        /* something that was sent has no answer yet */
	uint32_t resent;   /* in a row, as there was no answer to it */
	uint32_t quiet_ms; /* since an answer of any kind */
	uint32_t rto_us;   /* after which it is sent again for the first time */
	uint64_t acked_bytes;
	uint64_t bytes_per_s; /* delivered lately; 0: unknown */
	bool full; /* bytes_per_s is what the path carries: all the time there was more to send */
	/* Data that the other end has, out of order too, and that came from it; of a full packet the bytes. */
	uint32_t packets_out, packets_in, packet_bytes_out, packet_bytes_in;
};

/* false: no TCP socket. */
bool tcp_path_get(int fd, struct tcp_path *path);

#endif
