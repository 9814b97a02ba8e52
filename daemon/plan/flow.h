/* Transfers that share links, in continuous time: all that are under way on a link have equal parts of its bandwidth, at every moment
 * (max-min fairness of one link; several TCP or InfiniBand streams come close to it). A transfer takes several links at the same time: the one between two nodes, the card that it
 * leaves by and the one that it comes in by, the cables of two sites. It is as fast as its part of the slowest of them lets it; what it then leaves of the others nobody gets, so that
 * one that shares a card with another on a slower link is taken to be slower than it is. Pure.
 *
 *	flow_init(&flow, links, count);
 *	st = flow_start(&flow, &way, bytes, tag, &error);   // way: { .count = 1, .links = { 0 }, .parts = { 1 } }
 *	next_s = flow_next_s(&flow);             // INFINITY: none is under way
 *	flow_advance(&flow, next_s);
 *	while (flow_take(&flow, &tag))           // whose last byte has left by then
 *		...
 *	flow_finish(&flow);
 */
#ifndef TR_DAEMON_PLAN_FLOW_H
#define TR_DAEMON_PLAN_FLOW_H

#include <stdbool.h>
#include <stdint.h>

#include "common/error.h"

struct flow_link {
	double latency_s;             /* that the last byte needs; it holds no bandwidth */
	double bandwidth_bytes_per_s; /* INFINITY: free */
};

enum { FLOW_WAY_LINKS = 5 };

/* Links that a transfer takes together, and how many bytes each carries for one of its. */
struct flow_way {
	uint32_t count;
	uint32_t links[FLOW_WAY_LINKS];
	double parts[FLOW_WAY_LINKS];
};

struct flow_transfer {
	uint64_t tag;
	struct flow_way way;
	double left_bytes;
	double byte_s; /* what one takes now */
};

struct flow {
	const struct flow_link *links; /* borrowed */
	uint32_t link_count;
	uint32_t *sharing;     /* transfers on each link */
	double *part_s;        /* what one of them takes for a byte there */
	double *carried_bytes; /* by each link so far */
	double *busy_s;        /* time that each link carried something */
	double now_s;
	struct flow_transfer *transfers;
	uint32_t count, room;
};

/* TR_ENOMEM. `links` stays borrowed until flow_finish. */
tr_status flow_init(struct flow *flow, const struct flow_link *links, uint32_t count,
    struct tr_error *error);
void flow_finish(struct flow *flow); /* accepts a zeroed one */

/* At the time that flow_advance last went to. TR_ENOMEM. */
tr_status flow_start(struct flow *flow, const struct flow_way *way, double bytes, uint64_t tag,
    struct tr_error *error);

/* When the next transfer's last byte leaves, if none is started until then. */
double flow_next_s(const struct flow *flow);

/* To a time not after flow_next_s. */
void flow_advance(struct flow *flow, double to_s);

/* A transfer whose bytes have all left. False: there is none. */
bool flow_take(struct flow *flow, uint64_t *tag);

#endif
