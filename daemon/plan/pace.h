/* How long steps take in the mesh in force, and what a change of mesh took: what prices are made of (worthwhile.h). Pure, in whole numbers of what a commit made common.
 *
 *	pace_step(&pace, nanoseconds);                 // of a round that was a step and nothing else
 *	pace_restart(&pace, replicas);                 // other workers, or other work
 *	pace_change(&pace, nanoseconds);               // the mesh was changed
 *	pace_fill(&pace, nanoseconds);                 // of a step in which somebody got a shard
 */
#ifndef TR_DAEMON_PLAN_PACE_H
#define TR_DAEMON_PLAN_PACE_H

#include <stdint.h>

#define PACE_LEFT_OUT \
	2u /* steps after a restart: memory is touched for the first time, connections are new */
#define PACE_STEPS 16u /* that the mean is of, and up to twice as many */
/* Until one was measured a change, or a step that somebody gets a shard in, is taken to take two steps and so long for each byte that moves: 100 MB/s. */
#define PACE_NS_A_BYTE 10u

/* Common state of a group. */
struct pace {
	uint64_t left_out, steps, ns;
	uint64_t
	    before_ns; /* of a step, before the restart: the best that is known until there are others */
	uint64_t before_replicas; /* that took so long */
	uint64_t change_ns;       /* the last change of mesh; 0: there was none */
	uint64_t fill_ns;         /* the last step in which somebody got a shard; the same */
};

/* Until now there were so many replicas. */
void pace_restart(struct pace *pace, uint64_t replicas);
void pace_step(struct pace *pace, uint64_t ns);
void pace_change(struct pace *pace, uint64_t ns);
void pace_fill(struct pace *pace, uint64_t ns);

uint64_t pace_step_ns(const struct pace *pace); /* 0: not known */
/* Of a change that moves so many bytes. */
uint64_t pace_cost_ns(const struct pace *pace, uint64_t bytes);
/* The same where a byte is known to take so long from host to host, and no peer has more to send or to get than `busiest`. */
uint64_t pace_link_cost_ns(const struct pace *pace, uint64_t bytes, uint64_t busiest,
    uint64_t ns_a_byte);
uint64_t pace_fill_cost_ns(const struct pace *pace, uint64_t bytes);

#endif
