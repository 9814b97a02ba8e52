/* What a worker needs of memory in a sharded step, from the same description that everything else is derived from. Pure.
 *
 *	bytes per parameter held    parameter  gradient  AdamW's moments  f32 master   together
 *	f32                         4          4         8                -            16
 *	bf16, f32 gradients         2          4         8                4            18
 *
 * With ZeRO-1 the last two columns are split over dp and each piece is held by the strategy's owners: f32 8 + 8 R/d, bf16 6 + 12 R/d (R = 1:
 * Rajbhandari et al., arXiv 1910.02054; more, so that a loss leaves somebody who knows). Activations are those that the backward pass
 * reads (propagate.h), of as many microbatches as the schedule's list has in flight; with recomputation of a layer its input alone. Of the head that is its
 * input too: the rest of it is there for one microbatch at a time (daemon/worker/slots.h), as are the gradients of a layer, and the layer that is
 * computed again. Between ranks there are a stage's outputs as long as its microbatches are in flight, and a few more messages (daemon/worker/pipeline.h);
 * its inputs are among the activations.
 *
 * tests/unit/test_slot_memory.c holds that against what the worker's model allocates. Not in here: what an allocator rounds up, two numbers a row of each norm and head of attention,
 * scratch of the threads, buffers of collectives, the code. The planner will measure those.
 *
 *	struct memory_bytes bytes;
 *	st = memory_of_rank(&(struct memory_input){ &shape, &strategy, &schedule, stage_layers, false }, 0, &bytes, &error);
 *	... bytes.total
 */
#ifndef TR_DAEMON_PLAN_MEMORY_H
#define TR_DAEMON_PLAN_MEMORY_H

#include "daemon/plan/propagate.h"
#include "daemon/plan/schedule.h"

/* Buffers of a rank besides those of inputs and outputs in flight: receives that were begun early, gradients each way, and those that the other end may still read.
 * tests/unit/pipeline_ranks.h holds the executor to it. */
#define MEMORY_MESSAGES 10

struct memory_input {
	const struct model_config *shape;
	const struct strategy *strategy;
	const struct schedule *schedule; /* of as many ranks as the strategy's mesh has in pp */
	const uint32_t *stage_layers;    /* [p * v], by stage; together shape->layers */
	bool recompute;                  /* every layer */
};

struct memory_bytes {
	uint64_t parameters, gradients, optimizer;
	uint64_t activations; /* at the moment when they are most */
	uint64_t working;     /* of the layer in work, and of the head */
	uint64_t messages;    /* on their way between ranks, at most */
	uint64_t total;
};

/* Numbers of a section's parameters at one worker, in a layer if it is that; `table_there`: a tied table is held already. */
uint64_t memory_section_parameters(const struct model_config *shape,
    const struct strategy *strategy, enum graph_section_kind section, bool table_there);

/* Of these the ones that all of tp hold. */
uint64_t memory_section_shared(const struct model_config *shape, const struct strategy *strategy,
    enum graph_section_kind section);

/* Messages that a rank has between it and its neighbours, at most, each as large as a microbatch's residual stream. */
uint32_t memory_messages(const struct schedule_shape *shape, uint32_t rank);

/* Of each of the tp x dp workers of a pipeline rank. TR_EINVAL: strategy_check's and propagate's errors; stages do not fit. */
tr_status memory_of_rank(const struct memory_input *input, uint32_t rank,
    struct memory_bytes *bytes, struct tr_error *error);

#endif
