/* What a plan takes of memory at its workers: measured bytes of layers (plan_costs.h), as many as the schedule has in flight, messages between stages, and
 * parameters with gradients and moments. Inside the planner, of the plan that was laid out last. Pure.
 *
 * It is what a step of the job's own mesh writes to: a worker puts aside more, since with fewer replicas each has more microbatches, but touches none of that before.
 */
#ifndef TR_DAEMON_PLAN_PLAN_MEMORY_H
#define TR_DAEMON_PLAN_PLAN_MEMORY_H

#include "daemon/plan/plan_layout.h"

/* Of a worker, by what it is for. */
struct plan_rank_memory {
	uint64_t process; /* code, libraries, text */
	uint64_t state;   /* parameters, gradients, moments, and what replicas apart have besides */
	uint64_t activations; /* kept from forward to backward, at the moment when they are most */
	uint64_t working;     /* of the layer in work, and of the head */
	uint64_t messages;    /* between stages */
	uint64_t
	    copy; /* of its shard, for checkpoints in shards: at one replica's workers, which one may change */
};
void plan_rank_memory(const struct plan_layout *layout, const struct plan *plan, uint32_t rank,
    const struct schedule *schedule, struct plan_rank_memory *memory);
/* All of it, of each worker of a pipeline rank. Without a schedule (NULL) what an interleaved one keeps is what it has at the end of its warm-up. */
uint64_t plan_rank_bytes(const struct plan_layout *layout, const struct plan *plan, uint32_t rank,
    const struct schedule *schedule);
/* What who writes checkpoints, a worker of the first stage, takes besides: parameters and moments of a split model's other shards, and at the end the parameters of the whole, for the sample; with
 * `saves` (while training goes on, not only at the end) also of the copy that a thread writes of what it holds itself; and a block of the file that is written. In shards (PLAN_WRITES_SHARDS) nothing: each worker's own copy is in plan_rank_bytes. After plan_layout_place. */
uint64_t plan_writer_bytes(const struct plan_layout *layout, const struct plan *plan, bool saves);
/* Of the first worker, which writes what the input says (plan_layout.h, writes). */
uint64_t plan_first_bytes(const struct plan_layout *layout, const struct plan *plan,
    const struct schedule *schedule);
/* plan->memory_*: of the fullest worker. */
void plan_measure_memory(const struct plan_layout *layout, struct plan *plan,
    const struct schedule *schedule);
/* Layers that the workers of each pipeline rank hold, where a replica has at least `least` microbatches. */
void plan_layers_most(const struct plan_layout *layout, const struct plan *plan, uint32_t least,
    uint32_t *most);

#endif
