/* One rank of a pipeline: runs its list of a schedule (daemon/plan/schedule.h) with the model's chunks (slots.h) over a channel to its neighbours, and sums up the
 * gradients of all microbatches. The same list is proved by schedule_check.h and timed by timeline.h.
 *
 *	struct model_room room = { .recompute = false };
 *	pipeline_room(&layout, &schedule, rank, &room);
 *	pipeline_create(&(struct pipeline_options){ &layout, rank, 8, pool, &room, channel }, &pipeline, &error);
 *	model_bind(pipeline_model(pipeline), params, grads);
 *	pipeline_gradient(pipeline, &schedule, batches, &hooks, &loss_sum);   // added to grads
 *	...                                                                  // the round is decided
 *	pipeline_forget(pipeline);
 *	pipeline_destroy(pipeline);
 *
 * Messages are [rows, width], of a room with row_parts (slots.h) one part's rows, which go to the same part's member of the other stage. A receive writes what the next layer reads, and a send reads what the last one has written, gradients alike: no copy is made here (but by a
 * chunk without layers, which hands on what it gets). So a buffer is with the channel from its send or receive until the channel says that it is idle. Receives are begun
 * PIPELINE_AHEAD before they are needed, sends as soon as there is something to send, and only receives are waited for: messages travel while the rank computes.
 * There are as many buffers as that takes: of each microbatch in flight its input and output, and a few (memory.h). Forward passes alone (pipeline_loss) would let
 * the first rank run away from the others, and none would know when a message has come: there the next rank says so every few microbatches (schedule_create_forward).
 *
 * One caller thread, as the model has.
 */
#ifndef TR_DAEMON_WORKER_PIPELINE_H
#define TR_DAEMON_WORKER_PIPELINE_H

#include "daemon/plan/schedule.h"
#include "daemon/worker/slots.h"

#define PIPELINE_AHEAD 2 /* receives: as a rule the next of each direction */

/* Both ends call it the same, but for the peer. */
struct pipeline_message {
	bool gradient; /* of what stage `stage` has made; else what it gets */
	uint32_t microbatch, stage;
	uint32_t peer; /* pipeline rank at the other end */
};

/* Of a send or receive in rank `rank`'s list. False: the instruction is neither. */
bool pipeline_message_of(const struct schedule_shape *shape, uint32_t rank,
    const struct schedule_instruction *what, struct pipeline_message *message);

/* A number of its own for each message of a run, below 2 x stages x microbatches. */
uint32_t pipeline_message_number(const struct schedule_shape *shape,
    const struct pipeline_message *message);

/* None waits but `wait`. False: the work stops, everywhere. `data` stays with the channel until it is idle, or pipeline_forget; *ticket names it. */
struct pipeline_channel {
	bool (*send)(void *arg, const struct pipeline_message *message, const real *data,
	    size_t count, uint64_t *ticket);
	bool (*receive)(void *arg, const struct pipeline_message *message, real *data, size_t count,
	    uint64_t *ticket);
	/* Until what is received is there. */
	bool (*wait)(void *arg, uint64_t ticket);
	/* May the memory be written again? False: not yet. Of a group's ops that is when tr_release may be called: of a receive that was waited for; of a send when something was
	 * received that the other end sends after it has waited for this. */
	bool (*idle)(void *arg, uint64_t ticket);
	/* Memory for messages, 64-byte aligned; the channel's, until after pipeline_destroy. NULL: the work stops. */
	real *(*memory)(void *arg, size_t numbers);
	void *arg;
};

struct pipeline_options {
	const struct layout *layout; /* as many chunks as the schedules have */
	uint32_t rank;               /* of the pipeline */
	size_t max_sequences;        /* of a microbatch, of the context's length */
	struct pool *pool;
	const struct model_room *room; /* borrowed until the call returns */
	struct pipeline_channel channel;
};

struct pipeline;

/* Makes `room` large enough for this schedule too. */
void pipeline_room(const struct layout *layout, const struct schedule *schedule, uint32_t rank,
    struct model_room *room);

/* What is named stays borrowed until pipeline_destroy. */
tr_status pipeline_create(const struct pipeline_options *options, struct pipeline **pipeline,
    struct tr_error *error);
void pipeline_destroy(struct pipeline *pipeline); /* accepts NULL */
struct model *pipeline_model(struct pipeline *pipeline);

/* Runs this rank's list with `batches`, one a microbatch: their sizes are needed by all ranks, inputs by the one with the embedding, targets by that with the head. The sum
 * of all losses is at the latter, 0 elsewhere. hooks->gradients_final is called with falling offsets when gradients have those of all microbatches; at GRAD_READY those of the whole
 * chunk have been reported (a tied table's are one stage's part: layout_copied_table).
 * False: hooks->progress, the channel or the tensor-parallel group said stop; grads are then garbage, and pipeline_forget is called before the next run. */
bool pipeline_gradient(struct pipeline *pipeline, const struct schedule *schedule,
    const struct model_batch *batches, const struct model_hooks *hooks, double *loss_sum);
/* The losses alone; of schedule_create_forward. */
bool pipeline_loss(struct pipeline *pipeline, const struct schedule *schedule,
    const struct model_batch *batches, const struct model_hooks *hooks, double *loss_sum);

/* All buffers are ours again: nothing of any run before is with others. */
void pipeline_forget(struct pipeline *pipeline);

/* Arrays [max rows, width] that the channel was asked for so far. */
size_t pipeline_buffers(const struct pipeline *pipeline);

#endif
