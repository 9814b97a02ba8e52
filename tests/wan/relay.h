/* Carries IP packets between the TUN devices of a laboratory's sites, each when the wires on its way say so: what its site may
 * send, the pair, what the other site may receive. Whoever is addressed to nobody here is dropped: nothing leaves. One
 * thread, which sleeps until the next packet is due; the owner's epoll tells it when a device has something to read.
 *
 *	relay_init(&relay, &topology, devices, seed);
 *	for (;;) {
 *		epoll_pwait2(..., relay_sleep(&relay, relay_now_ns()));
 *		relay_read(&relay, site)                 for each device that is readable
 *		relay_deliver(&relay, relay_now_ns());
 *	}
 */
#ifndef TR_TESTS_WAN_RELAY_H
#define TR_TESTS_WAN_RELAY_H

#include <stdio.h>

#include "tests/wan/topology.h"

#define RELAY_MTU         1500
#define RELAY_PACKETS_MAX (1u << 17) /* under way at a time, in the whole laboratory */
#define RELAY_TURN        64  /* packets read from one device before others have their turn */
#define RELAY_LATE_DIV    128 /* a packet may come late by so small a part of its time under way, */
#define RELAY_LATE_NS_MAX \
	250000 /* and by no more than this: several are handed over at one waking */
#define RELAY_ADDRESS "10.99.0." /* and the site's place, from 1 */

struct relay_packet {
	struct relay_packet *next; /* when unused */
	uint64_t read_ns, due_ns, order;
	uint8_t from, to, passed; /* wires */
	uint16_t bytes;
	uint8_t data[RELAY_MTU];
};

struct relay_pair {
	struct wire wire;
	uint64_t ported; /* packets swallowed because of their port */
};

struct relay {
	struct topology topology;
	int devices[TOPOLOGY_SITES_MAX];
	struct wire up[TOPOLOGY_SITES_MAX], down[TOPOLOGY_SITES_MAX];
	struct relay_pair pairs[TOPOLOGY_SITES_MAX][TOPOLOGY_SITES_MAX];
	struct relay_packet *unused;
	struct relay_packet **heap; /* least (due, order) first */
	size_t count, made;
	uint64_t orders;
	uint64_t overruns;  /* RELAY_PACKETS_MAX, or no memory */
	uint64_t strangers; /* to nobody here */
};

uint64_t relay_now_ns(void);
/* `devices`: non-blocking, without packet information; stay the caller's. */
tr_status relay_init(struct relay *relay, const struct topology *topology, const int *devices,
    uint64_t seed, struct tr_error *error);
void relay_finish(struct relay *relay);
/* The topology is another one from now on: the same sites. */
void relay_change(struct relay *relay, const struct topology *topology, uint64_t now_ns);
/* Takes what the site's device has, or a turn of it. */
void relay_read(struct relay *relay, unsigned site);
/* Hands over what is due. */
void relay_deliver(struct relay *relay, uint64_t now_ns);
/* Nanoseconds until something has to be handed over; UINT64_MAX: nothing is under way. */
uint64_t relay_sleep(const struct relay *relay, uint64_t now_ns);
/* A line for each pair: how it is now, and counters. */
void relay_show(const struct relay *relay, FILE *to);

#endif
