/* A decoder transformer of one of two architectures (daemon/plan/model_config.h): GPT-2's, with learned positions, LayerNorm with bias
 * before each part, causal attention and tanh-GELU (Radford et al. 2019); or Llama's, with rotary positions, RMSNorm, grouped-query
 * attention, SwiGLU and no bias (Touvron et al., 2302.13971). Forward and backward by hand; shapes are in forward.c.
 *
 * Work is shared out by sequences: each thread takes its sequences through a whole layer while they
 * are in its cache, then all threads share the weight gradients of that layer by rows. So there are
 * two meetings a layer, one set of gradients, and no more threads at work in the first part than
 * there are sequences.
 *
 *	struct model *model;
 *	model_create(&layout, 8, pool, &model, &error);
 *	model_bind(model, params, grads);
 *	model_init_params(&layout, seed, params);
 *	model_gradient(model, inputs, targets, sequences, length, &hooks, &loss_sum);   // added to grads
 *	model_destroy(model);
 *
 * This is a whole model, or a shard of each of its layers, one batch at a time; a range of layers, and several microbatches in flight, are in slots.h.
 *
 * One caller thread.
 */
#ifndef TR_DAEMON_WORKER_MODEL_H
#define TR_DAEMON_WORKER_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/progress.h"
#include "daemon/checkpoint/layout.h"
#include "daemon/checkpoint/shard.h"
#include "daemon/worker/ops.h"
#include "daemon/worker/pool.h"
#include "daemon/worker/real.h"

struct model;

/* The others of a tensor-parallel group, each with a shard of every layer (daemon/checkpoint/shard.h): four sums of [rows, C] a layer, two forward and two
 * backward, one each for embedding and head, and the two small ones of the loss (placements: daemon/plan/propagate.h). With sequence parallelism (Korthikanti et al., arXiv
 * 2205.05198) each of the large ones is a reduce-scatter, and later an all-gather: sequence.c. All members call the same in the same
 * order, from model_gradient's caller. What all hold stays the same at all to the bit only if all have pools of as many threads: sums over rows are made by threads. */
struct model_tensor {
	unsigned rank, size;
	size_t vocab; /* of the whole model */
	/* In place, over all members, with the same bits at each. False: the work stops. */
	bool (*sum)(void *arg, real *data, size_t count);
	bool (*maximum)(void *arg, real *data, size_t count);
	real *exchange; /* model_exchange_numbers of them, which `sum` and `maximum` are called with */
	void *arg;
	/* As many more: then the calls use them in turn, and neither reads nor writes what the call before this one had. NULL: what was summed may be
	 * written again as soon as `sum` has returned. */
	real *exchange_too;
	/* Both or none: `sum` (with `scatter` `reduce_scatter`) in two calls, so that the caller computes while it is made. Nothing of the group is called in between, and `data` is not touched. */
	bool (*begin)(void *arg, real *data, size_t count, bool scatter);
	bool (*end)(void *arg);
	/* Of a model with row_parts (slots.h), which also needs both halves: `data` is `size` equal blocks, rows of all members one behind the other. Of the sum over all
	 * members each gets its own block `place` (the rest is left as it was, and others may read it still); or each gives its own block, and has all of them then. In place as
	 * `sum`, with the same bits as it. `place` is the same at all stages of a pipeline for those who send each other messages; it need not be `rank`. */
	unsigned place;
	bool (*reduce_scatter)(void *arg, real *data, size_t count);
	bool (*all_gather)(void *arg, real *data, size_t count);
};

struct model_hooks {
	/* Called a few times a layer; false stops the work. NULL: none. */
	bool (*progress)(void *arg);
	/* The gradients from `offset` to the end of the array are final. NULL: none. */
	void (*gradients_final)(void *arg, size_t offset);
	void *arg;
};

/* `max_sequences` of the context's length at once. `layout` and `pool` stay borrowed until
 * model_destroy. */
tr_status model_create(const struct layout *layout, size_t max_sequences, struct pool *pool,
    struct model **model, struct tr_error *error);
void model_destroy(struct model *model); /* accepts NULL */

/* Arrays of layout->count numbers, 64-byte aligned; borrowed until the next bind or model_destroy.
 * `grads` may be NULL if model_gradient is not called. */
void model_bind(struct model *model, const real *params, real *grads);

/* The model is one of several that make up a whole; its layout is a shard's. `tensor` stays borrowed. Before the first batch. */
size_t model_exchange_numbers(const struct layout *layout, size_t max_sequences);
void model_use_tensor(struct model *model, const struct model_tensor *tensor);

/* Products with parameters, forward and backward, are of operands rounded to bf16, with f32 sums (daemon/worker/gemm_bf16.h); parameters, gradients, the residual stream and all that is no such product
 * stay in f32, as does generation. Parameters are rounded at the beginning of each model_gradient and model_loss; of slots.h, when a microbatch goes forward while no other is in flight.
 * `plain`: without oneDNN, for tests. Before the first batch. TR_ENOMEM. */
tr_status model_use_bf16(struct model *model, bool plain, struct tr_error *error);
/* Why that is not faster than f32 here; NULL: it is. After model_use_bf16. */
const char *model_bf16_slow(const struct model *model);

/* Products with parameters, in f32, are oneDNN's where there is one that is known to be faster than OpenBLAS on this processor (onednn.h). Sums are then of another order, which need not be the same where a product is
 * of fewer rows or columns. False: there is none. Before the first batch; members of a strict model have none. */
bool model_use_onednn(struct model *model);

/* Of batches with numbers of samples (slots.h) a share, less than 1, is left out (Srivastava et al. 2014) of the embedding's output, of attention probabilities and of what attention and MLP add to the
 * stream, as GPT-2 was trained; the rest is multiplied by 1 / (1 - share). Which, is a pure function of seed, number, layer, head, and place in the sequence: model_dropout.c. 0: nothing is. Before the
 * first batch. TR_ENOMEM. */
tr_status model_use_dropout(struct model *model, double share, uint64_t seed,
    struct tr_error *error);

/* The plain C ops instead of the fastest ones: for tests. */
void model_use_ops(struct model *model, const struct ops *ops);

/* N(0, 0.02); projections onto the residual stream / sqrt(2 layers); biases 0, norms 1, as the layout says. A pure
 * function of seed, tensor and element: the same bits on every machine. Gaps are zeroed. */
void model_init_params(const struct layout *layout, uint64_t seed, real *params);
/* The same numbers, those that a shard has. `progress` is told (NULL: nobody) after each row. */
void model_init_shard(const struct layout *whole, const struct layout *local,
    const struct shard *shard, uint64_t seed, const struct progress *progress, real *params);

/* Without dropout: model_gradient_of (slots.h) is with it. inputs, targets [sequences, length]; length <= context, sequences <= max_sequences. Adds the
 * gradient of the *sum* of all tokens' losses (nats) to grads and returns that sum in *loss_sum.
 * False: hooks->progress or the tensor-parallel group said stop; grads are then garbage. `hooks` may be NULL. In a
 * group every member gets the same sum, and gradients of what it holds: those of what all hold are equal. */
bool model_gradient(struct model *model, const int32_t *inputs, const int32_t *targets,
    size_t sequences, size_t length, const struct model_hooks *hooks, double *loss_sum);

/* The loss alone. */
bool model_loss(struct model *model, const int32_t *inputs, const int32_t *targets,
    size_t sequences, size_t length, const struct model_hooks *hooks, double *loss_sum);

/* logits [sequences, length, vocab]. Not of a shard. */
void model_logits(struct model *model, const int32_t *inputs, size_t sequences, size_t length,
    real *logits);

/* For generation, not of a shard: logits [vocab] of the last of `length` tokens of one sequence. What the call before this one left of the first `first`
 * tokens (the same tokens, same parameters) is used again, so a further token costs one row, not the whole sequence. */
void model_extend(struct model *model, const int32_t *tokens, size_t first, size_t length,
    real *logits);

#endif
