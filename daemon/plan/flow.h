/* Transfers that share links, in continuous time: all that are under way on a link have equal parts of its bandwidth, at every moment
 * (max-min fairness of one link; several TCP or InfiniBand streams come close to it). A transfer is on one link. Pure.
 *
 *	flow_init(&flow, links, count);
 *	st = flow_start(&flow, now_s, link, bytes, tag, &error);
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

struct flow_transfer {
	uint64_t tag;
	uint32_t link;
	double left_bytes;
};

struct flow {
	const struct flow_link *links; /* borrowed */
	uint32_t link_count;
	uint32_t *sharing;     /* transfers on each link */
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
tr_status flow_start(struct flow *flow, uint32_t link, double bytes, uint64_t tag,
    struct tr_error *error);

/* When the next transfer's last byte leaves, if none is started until then. */
double flow_next_s(const struct flow *flow);

/* To a time not after flow_next_s. */
void flow_advance(struct flow *flow, double to_s);

/* A transfer whose bytes have all left. False: there is none. */
bool flow_take(struct flow *flow, uint64_t *tag);

#endif
