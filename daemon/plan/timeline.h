/* What a step takes: the lists of a schedule (schedule.h), run in time over links that transfers share (flow.h). Pure.
 *
 * One replica is simulated, of dp that do the same at the same time: a link that replicas or tensor-parallel workers share has the part
 * of its bandwidth that is left to this one. A pipeline rank stands for its tp workers; the caller puts their collectives into the
 * times of a stage.
 *
 *	- A forward or backward takes its stage's time; a rank does one thing at a time.
 *	- A send puts its message on the way to that rank, behind those that it has sent there before (frames to a peer wait in one queue: collectives/engine/peer_link.h). All
 *	  that is under way on a link, a card or a cable of it has equal parts of it. With `overlap` the rank goes on at once; without, it waits until the last byte has left. A message is there a
 *	  latency after its last byte has left.
 *	- A receive waits until its message is there. Receives are posted early: nothing waits for them.
 *	- Gradients are reduced in buckets, one at a time on each rank, over the rank's own link for that. A stage's last backward
 *	  finishes them at equal distances, the last one at its end. Without `overlap_reduction` all wait for the end of the rank's list.
 *	- The update begins when all ranks' gradients are reduced, since the norm for clipping and the commit need all of them; then
 *	  what ZeRO-1 gathers goes over the same links. The step ends when the last rank has done.
 *
 *	struct timeline_result result;
 *	st = timeline_run(&input, &result, &error);
 *	... result.step_s, result.bubble, result.ranks[r].idle_s, result.link_bytes[l]
 *	timeline_finish(&result);
 */
#ifndef TR_DAEMON_PLAN_TIMELINE_H
#define TR_DAEMON_PLAN_TIMELINE_H

#include "daemon/plan/flow.h"
#include "daemon/plan/schedule.h"

#define TIMELINE_NO_LINK UINT32_MAX /* what would go over it is there at once */

struct timeline_stage {
	double forward_s,
	    backward_s;          /* of one microbatch; recomputation counts with the backward */
	double boundary_bytes;   /* its output, and the gradient of that, which comes back */
	double activation_bytes; /* kept from a microbatch's forward to the end of its backward */
	double reduce_bytes; /* that one worker sends to reduce its gradients (collective_bytes_sent) */
	double reduce_latency_s; /* of each bucket besides */
	uint32_t buckets;        /* 0 as 1 */
};

struct timeline_rank {
	uint32_t reduce_link;
	double optimizer_s;
	double gather_bytes; /* sent after the update */
};

struct timeline_input {
	const struct schedule *schedule;
	const struct timeline_stage *stages; /* [p * v], by stage */
	const struct timeline_rank *ranks;   /* [p] */
	const struct flow_link *links;
	uint32_t link_count;
	const uint32_t *link_of; /* [p * p], of what `from` sends to `to`: at from * p + to */
	bool overlap, overlap_reduction;
	/* NULL: link_of and reduce_link are numbers of links, else of these; the first link of a way has its latency. */
	const struct flow_way *ways;
	uint32_t way_count;
};

struct timeline_rank_result {
	double busy_s;           /* forwards and backwards */
	double idle_s;           /* the rest until the last rank's list has ended */
	double end_s;            /* of its list */
	double reduced_s;        /* its last bucket */
	uint32_t in_flight;      /* at most, in chunks */
	double activation_bytes; /* at most */
};

struct timeline_result {
	double step_s;
	double pipeline_s; /* until the last rank's list has ended */
	double reduced_s;  /* until all gradients are reduced */
	double bubble;     /* idle time of all ranks, of their busy time: as in schedule_bubble */
	uint32_t rank_count, link_count;
	struct timeline_rank_result *ranks;
	double *link_bytes, *link_busy_s;
};

/* The schedule must be one that schedule_check passes. TR_EINVAL: a time, a number of bytes or a link is none; TR_ENOMEM. */
tr_status timeline_run(const struct timeline_input *input, struct timeline_result *result,
    struct tr_error *error);
void timeline_finish(struct timeline_result *result); /* accepts a zeroed one */

#endif
