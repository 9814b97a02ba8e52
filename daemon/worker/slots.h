/* A model in parts: several microbatches in flight, each in a slot, through the layers of one chunk of the layout (daemon/checkpoint/layout.h: what a
 * rank of a pipeline holds; a whole model is one chunk). Parameters, gradients and the scratch of threads are the model's; what the backward pass of a microbatch
 * needs of its forward pass is the slot's: 12 to 16 numbers of a layer's width a row, taken from what model_create_room has put aside.
 *
 *	struct model_room room = { .recompute = false };
 *	model_room_add(&room, &layout, 0, 4);                  // chunk 0, four microbatches in flight
 *	model_create_room(&layout, &room, 8, pool, &model, &error);
 *	model_bind(model, params, grads);
 *	struct model_slot *slot = model_slot_take(model, 0, &batch, input, output);
 *	model_slot_forward(model, slot, &hooks);               // input -> output
 *	... other microbatches
 *	model_slot_backward(model, slot, doutput, dinput, &hooks, &loss_sum); // doutput -> dinput; adds to grads
 *	model_slot_give(model, slot);
 *
 * Inputs, outputs and their gradients are [rows, width], the caller's: what another rank has sent and what it gets, with no copy in between. The first chunk of a
 * model has tokens for an input, the last one the loss for an output; the head is a part of the backward pass, so that one array of logits is enough for
 * all slots.
 *
 * With `recompute` a slot keeps each layer's input alone, and the backward pass runs the layer again up to where it needs it (Chen et al., arXiv 1604.06174): all but the last
 * product, so of a tensor-parallel layer one sum again of two. The bits are the same.
 *
 * With `row_parts` inputs, outputs and their gradients are [rows / row_parts, width], the block of model_tensor.place; so is what a slot keeps of the stream. What norms make was
 * gathered, and is kept so, all rows of it: gathered again it would cost half as many bytes more on the way between the members, of which there are as many without
 * it as sums need (a worker that lacks memory has `recompute`, which gathers again as it computes again). Gradients of norms, positions and biases behind a sum are then those of
 * our rows: to be summed over all members.
 *
 * Microbatches' gradients are summed in the order in which they go backward.
 */
#ifndef TR_DAEMON_WORKER_SLOTS_H
#define TR_DAEMON_WORKER_SLOTS_H

#include "daemon/worker/model.h"

/* What is in flight at one time at most. */
struct model_room {
	size_t slots;
	size_t layers;  /* of the chunks of these slots together */
	size_t streams; /* arrays [rows, width] between a chunk's layers */
	bool recompute;
	/* Sequence parallelism: a batch's rows are so many equal blocks, of which each member of the tensor-parallel group has one between its products (model_tensor.place). It divides
	 * the rows of every batch. 0 or 1: all rows at each. */
	size_t row_parts;
	/* So many members of a tensor-parallel group are played here (virtual.h), with as many for each of row_parts. 0: the model is no such. */
	size_t members;
};

/* `inputs` of the first stage, `targets` of the last: [sequences, length], NULL elsewhere. */
struct model_batch {
	const int32_t *inputs, *targets;
	size_t sequences, length;
	/* Of each sequence the number of its sample in the whole job, for dropout, at all stages; NULL: nothing is left out. Borrowed as the others are. */
	const uint64_t *samples;
};

/* As model_gradient, with dropout. */
bool model_gradient_of(struct model *model, const struct model_batch *batch,
    const struct model_hooks *hooks, double *loss_sum);

struct model_slot;

/* `slots` more microbatches in chunk `chunk`. */
void model_room_add(struct model_room *room, const struct layout *layout, size_t chunk,
    size_t slots);

/* Offset from which on the gradients of this chunk and those behind it lie. */
size_t model_chunk_begin(const struct layout *layout, size_t chunk);

/* Numbers of a microbatch's stream at one member: of what chunks get and hand on. */
size_t model_stream_numbers(const struct layout *layout, const struct model_room *room,
    size_t sequences, size_t length);

/* As model_create, with what `how` says besides counts. */
tr_status model_create_whole(const struct layout *layout, const struct model_room *how,
    size_t max_sequences, struct pool *pool, struct model **model, struct tr_error *error);

/* As model_create, which has room for one microbatch of a whole model. */
tr_status model_create_room(const struct layout *layout, const struct model_room *room,
    size_t max_sequences, struct pool *pool, struct model **model, struct tr_error *error);

/* Bytes of the arrays that are written to: those of slots, and what is there once: for one layer at a time, the head, the threads (theirs are counted among the latter, with what
 * model_use_bf16 takes besides rounded parameters; threads beyond the sequences of a microbatch have little). */
struct model_bytes {
	size_t slots, working, threads;
};
struct model_bytes model_bytes(const struct model *model);

/* A slot for a microbatch; there must be room. `batch` is copied, the arrays that it names are borrowed until model_slot_give; so is `input`, NULL where the chunk has
 * the embedding. `output` is written in the forward pass and not read afterwards; NULL where the chunk has the head. */
struct model_slot *model_slot_take(struct model *model, size_t chunk,
    const struct model_batch *batch, const real *input, real *output);
void model_slot_give(struct model *model, struct model_slot *slot);

/* False: hooks->progress or the tensor-parallel group said stop. */
bool model_slot_forward(struct model *model, struct model_slot *slot,
    const struct model_hooks *hooks);
/* Once, after the forward pass. `doutput` is read, `dinput` written (NULL as output and input are). hooks->gradients_final is called as if this were the last
 * microbatch of its chunk. *loss_sum is written where the chunk has the head. */
bool model_slot_backward(struct model *model, struct model_slot *slot, const real *doutput,
    real *dinput, const struct model_hooks *hooks, double *loss_sum);
/* The loss alone, of a chunk that has the head. */
bool model_slot_loss(struct model *model, struct model_slot *slot, double *loss_sum);

#endif
