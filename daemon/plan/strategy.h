/* A strategy: the mesh, where each parameter lies over tp, and what is held to which placement besides. Pure. From it propagate.h
 * derives every collective.
 *
 *	struct strategy strategy;
 *	strategy_megatron(&shape, &mesh, &strategy);   // columns and rows by head, vocabulary split
 *	strategy.sequences = 8;                        // of a microbatch, all replicas together
 *	strategy.sequence_length = 1024;
 *	st = strategy_check(&shape, &strategy, &error);
 *	// error: "layer.attention.k.weight: 2 kv heads cannot be split over tp 4; tp may be 1 or 2"
 */
#ifndef TR_DAEMON_PLAN_STRATEGY_H
#define TR_DAEMON_PLAN_STRATEGY_H

#include "daemon/plan/layer_graph.h"
#include "daemon/plan/mesh.h"

struct strategy {
	struct mesh mesh;
	uint32_t sequences;       /* of one microbatch over all of dp */
	uint32_t sequence_length; /* at most the context */
	uint32_t value_bytes;     /* of a number of activations and parameters: 4 or 2 */
	uint32_t gradient_bytes; /* of a number of gradients, which are summed in f32 as a rule: 4 */
	/* The residual stream and norms are split by sequence over tp (Korthikanti et al., arXiv 2205.05198). */
	bool sequence_parallel;
	/* What was gathered in the forward pass is not kept for the backward one but gathered again: less memory, more bytes. */
	bool gather_again;
	/* ZeRO-1 (owners.h): of each of dp's pieces of the moments so many workers hold it, make its new parameters, and give them to the others. 0 or dp: each has all. */
	uint32_t zero_owners;
	struct tensor_placement over_tp[MODEL_PARAMETERS];
};

/* q, k, v, up and gate by columns, o and down by rows, tables by vocabulary, norms and what is added behind rows whole
 * (Megatron-LM, arXiv 1909.08053). f32; one sequence of the model's context for each replica. */
void strategy_megatron(const struct model_config *shape, const struct mesh *mesh,
    struct strategy *strategy);

/* By its name (layer_graph_parameter_name). TR_EINVAL: no such parameter in this model, or a partial one. */
tr_status strategy_place(const struct model_config *shape, struct strategy *strategy,
    const char *parameter, struct tensor_placement placement, struct tr_error *error);

/* Whether each split divides what is split. One clear error: which tensor, which axis, what is allowed. */
tr_status strategy_check(const struct model_config *shape, const struct strategy *strategy,
    struct tr_error *error);

/* `vocab` rounded up so that tp divides it (padded rows get logits of minus infinity and no gradient). */
uint32_t strategy_padded_vocab(uint32_t vocab, uint32_t tp);

/* What `pin` demands on an axis. False: nothing (PIN_NONE). */
bool strategy_pinned(const struct strategy *strategy, enum tensor_pin pin, enum mesh_axis axis,
    struct tensor_placement *placement);

/* Of a dimension, with the strategy's batch and sequence. */
uint64_t strategy_dim(const struct model_config *shape, const struct strategy *strategy,
    enum model_dim dim);

/* Of the residual stream at one worker: what a stage sends to the next for each microbatch, and gets back. */
uint64_t strategy_boundary_bytes(const struct model_config *shape, const struct strategy *strategy);

#endif
