/* Collectives derived from placements: what of a strategy is given (parameters, the residual stream) is carried through the ops of each
 * section by the table of legal signatures (op_signature.h), forward and backward, and where an op cannot take what there is, the
 * conversion that costs the least bytes is put before it. Nobody places a collective by hand. Pure.
 *
 *	struct collective_log log;
 *	st = propagate(&shape, &strategy, &log, NULL, &error);
 *	n = collective_log_count(&log, SECTION_LAYER, PHASE_FORWARD, COLLECTIVE_ALL_REDUCE, MESH_TP);   // 2 with tensor parallelism
 *
 * The rules beyond the table:
 *	- Parameters stay where the strategy puts them (a whole one may be read in part).
 *	- A gradient lies as its tensor does, and whole if that is partial (tensor_placement_of_gradient). What several users of a tensor
 *	  give back is added up before it is converted: q, k and v cost one all-reduce, not three.
 *	- Gradients of parameters, and the sum of losses, are converted once a step, after all microbatches (PHASE_STEP).
 *	- No all-to-all is chosen: libtraincoll has none. Where a tensor must come from one split to another, it is gathered and sliced.
 *	- A gradient is summed for all of dp, in buckets behind the backward pass, with ZeRO-1 too. There the new parameters, which each worker has made of its piece alone, come from the
 *	  piece's first owner to who does not own it, when all sums are done: S(0) over dp, with R owners, becomes B by sends and receives.
 * With pp above 1 the table of a tied model has two users on different stages: a partial gradient over pp, hence one all-reduce, which is over dp too.
 *
 * tests/unit/test_step_calls.c holds a real trainer's steps to it, tests/unit/derived_calls.h its microbatches.
 */
#ifndef TR_DAEMON_PLAN_PROPAGATE_H
#define TR_DAEMON_PLAN_PROPAGATE_H

#include "daemon/plan/strategy.h"

enum propagate_phase {
	PHASE_FORWARD,  /* each microbatch */
	PHASE_BACKWARD, /* each microbatch */
	PHASE_STEP,     /* once, when all microbatches are done */
};

struct collective_entry {
	enum graph_section_kind section; /* SECTION_LAYER: in each layer */
	enum propagate_phase phase;
	/* Of the section's ops (layer_graph.h): before its forward or backward; with on_result, what its forward has made. The step, and
	 * the gradient that a section hands to the one before it, have none: GRAPH_NO_OP. */
	uint8_t op;
	bool on_result;
	const char *tensor; /* static; what is converted */
	bool gradient;      /* not the tensor, but its gradient */
	enum mesh_axis axis;
	bool with_dp; /* one sum over this axis and over dp: there is none over dp besides */
	struct tensor_placement from, to;
	enum collective collective; /* local slices are here too: who runs the ops has to make them */
	uint32_t owners;            /* of each piece, of a send and receive */
	uint64_t
	    bytes; /* of the whole tensor on this axis, as one worker would hold it: S of a cost model */
};

#define GRAPH_NO_OP        255
#define COLLECTIVE_LOG_MAX 160

struct collective_log {
	uint32_t count;
	struct collective_entry entries[COLLECTIVE_LOG_MAX];
	/* What one worker keeps of one microbatch from a section's forward to its backward: the tensors that ops of the backward pass
	 * read, each once. (Attention's probabilities are not kept, nor is what an activation function makes: the backward pass makes them again, from q and k
	 * and from what went in.) */
	uint64_t kept_bytes[SECTIONS];
};

/* How a tensor lies, axis by axis. Axes of size 1, and pp, are B. */
struct tensor_lay {
	struct tensor_placement on[MESH_AXES];
};

static inline struct tensor_lay tensor_lay_of_gradient(const struct tensor_lay *of)
{
	struct tensor_lay lay;

	for (int axis = 0; axis < MESH_AXES; axis++)
		lay.on[axis] = tensor_placement_of_gradient(of->on[axis]);
	return lay;
}

/* One op as each worker runs it: what an executor follows. Where an operand does not lie as it is wanted, and no earlier op has
 * wanted it so, the log has the conversions. Results of the backward pass are added up by lay; before the backward of the op that has made
 * a tensor, each sum is brought to how the gradient of the tensor lies as it was kept, and then as it was made. */
struct sharded_op {
	enum graph_section_kind section;
	enum propagate_phase phase;
	uint8_t op;   /* of the section */
	uint8_t grad; /* backward: of its signature's grads */
	enum op_kind kind;
	struct tensor_lay in[OP_INPUTS_MAX], out;
	struct tensor_lay kept; /* forward: what the result is brought to at once */
};

#define SHARDED_OPS_MAX 128

/* In the order of the log. */
struct sharded_program {
	uint32_t count;
	struct sharded_op ops[SHARDED_OPS_MAX];
};

/* Entries in the order in which they happen: embedding, layer and head forward; head, layer and embedding backward; the step. Axes of
 * size 1 have none. `program` may be NULL. TR_EINVAL: strategy_check's, or a parameter lies where no op can take it; the words name both. */
tr_status propagate(const struct model_config *shape, const struct strategy *strategy,
    struct collective_log *log, struct sharded_program *program, struct tr_error *error);

uint32_t collective_log_count(const struct collective_log *log, enum graph_section_kind section,
    enum propagate_phase phase, enum collective collective, enum mesh_axis axis);
/* Sent by one worker of those that take part. Over pp these are the first stage's and the last one's. */
double collective_entry_bytes_sent(const struct collective_entry *entry,
    const struct strategy *strategy);
/* The same of all such; any collective if COLLECTIVES, any section if SECTIONS: layers then count `layers` times. */
double collective_log_bytes_sent(const struct collective_log *log, const struct strategy *strategy,
    enum graph_section_kind section, enum propagate_phase phase, enum collective collective,
    enum mesh_axis axis, uint32_t layers);

/* "layer backward: gradient of layer.norm1 P(sum) -> B over tp: all-reduce of 1048576 bytes": into `text`, which is returned. */
const char *collective_entry_text(const struct collective_entry *entry, char *text, size_t bytes);

#endif
