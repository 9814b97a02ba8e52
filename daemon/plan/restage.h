/* Layers of a pipeline's stages that follow the speeds of their workers: whether those that are found while a job runs are worth other layers, and which. Pure, in whole numbers: all contributors of
 * a round know the same, and so decide the same on any machine.
 *
 *	struct restage_rules rules = { .stages = 2, .layers = now, .most = room, .least = 1, .head = 512, .microbatches = 8 };
 *	if (restage_note(&restage, &rules, nanoseconds, &wish))      // each step that is committed
 *		...                                                  // wish.layers, if what they save is more than what the change takes (worthwhile.h)
 *	restage_tried(&restage);                                     // it is made, or declined
 *	restage_restart(&restage);                                   // whoever came or went, whatever else was dealt anew
 *
 * All layers take as long as one another, the head as long as the layers that its matrix is as large as (job_mesh_stages). A look is at a window of steps, and two in a row have to find the same; after
 * each try twice as many, up to 8 times, so that a worker that is slow now and then does not move all state each time.
 */
#ifndef TR_DAEMON_PLAN_RESTAGE_H
#define TR_DAEMON_PLAN_RESTAGE_H

#include <stdbool.h>
#include <stdint.h>

#include "common/limits.h"

#define RESTAGE_STEPS     10 /* of a look */
#define RESTAGE_LOOKS     2
#define RESTAGE_LAYER     1024u /* what a layer costs */
#define RESTAGE_ROOM_MOST 4096u

/* Common state of a group. */
struct restage {
	uint64_t steps;   /* of this look, so far */
	uint64_t settled; /* looks since the restart; what the first one found is left out */
	uint64_t looks;   /* in a row that found better layers */
	uint64_t tried;
	uint64_t nanoseconds[TR_GROUP_PEERS_MAX]; /* of these steps together, by stage */
};

struct restage_rules {
	uint32_t stages;
	const uint32_t *layers,
	    *most;             /* [stages]: as they are dealt; as many as there is memory for */
	uint32_t least;        /* of each stage */
	uint64_t head;         /* what the last stage's head costs, in RESTAGE_LAYER a layer */
	uint64_t microbatches; /* of the replica that has the most */
};

/* Of a whole step, computing alone, as it is and as it would be. */
struct restage_wish {
	uint32_t layers[TR_GROUP_PEERS_MAX];
	uint64_t stage_ns[TR_GROUP_PEERS_MAX]; /* as they are */
	uint64_t now_ns, next_ns;
};

/* nanoseconds[stages]: that each computed in this step, without waiting for others. True: *wish, and it begins anew; false: *wish is not to be read. */
bool restage_note(struct restage *restage, const struct restage_rules *rules,
    const uint64_t *nanoseconds, struct restage_wish *wish);
/* Whether this step ends a look: then it is of use to know what there is memory for. */
bool restage_looks(const struct restage *restage);
/* For so many layers more each of the job's `workers` on a host has memory there: half of what is free is for others. At most RESTAGE_ROOM_MOST. */
uint32_t restage_room(double free_bytes, uint32_t workers, double layer_bytes);
void restage_restart(struct restage *restage);
void restage_tried(struct restage *restage);

#endif
