/* Where workers go. Pure: nodes in, counts out. */
#ifndef TR_DAEMON_MEMBERSHIP_CORE_PLACEMENT_H
#define TR_DAEMON_MEMBERSHIP_CORE_PLACEMENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct placement_node {
	uint64_t id;
	uint32_t slots, used; /* used: by workers of any job */
	uint32_t mine;        /* workers of this job there already */
	bool left;            /* a worker of this job died there and left its state */
	bool failed;          /* the last worker of this job there died before it had trained */
	uint32_t planned;     /* workers that the job's plan has there */
	uint32_t placed;      /* out: how many are to start there */
};

/* Native job: `nodes` nodes with `per_node` free slots each; those with more free slots first, then
 * the lower id. Returns how many nodes can be had; the placement is complete if that is `nodes`. */
uint32_t placement_native(struct placement_node *table, size_t count, uint32_t nodes,
    uint32_t per_node);

/* One more worker of a native job: a free slot on a node that has fewer than `per_node` of its
 * workers; the one where the state was left first, then those where the last one did not fail, then those with the fewest, then by free slots, then by id. False: there is none. */
bool placement_replacement(struct placement_node *table, size_t count, uint32_t per_node);

/* Of a plan of which nodes are gone: as many of `workers` as there are free slots for, on at least `least_nodes` nodes if these have any; those that the plan has on nodes that are there on these, the others where
 * slots are free, on few nodes. Returns how many nodes can be had. */
uint32_t placement_elsewhere(struct placement_node *table, size_t count, uint32_t workers,
    uint32_t least_nodes);

/* Command job: `workers` workers spread evenly over nodes with slots, free ones first and beyond
 * them if there are not enough, up to TR_NODE_WORKERS_MAX on each; on exactly `nodes` nodes if that is
 * not 0. Returns how many nodes can be had; 0: they have no room for so many. */
uint32_t placement_command(struct placement_node *table, size_t count, uint32_t nodes,
    uint32_t workers);

#endif
