/* What parts of a model cost, as it is split over tp: measured times and sizes of each (tp, microbatch), and what follows from the
 * placements besides: bytes that tensor-parallel workers exchange (propagate.h), and parameters. Pure.
 *
 *	struct plan_costs costs = { .at = measured, .count = n, .update_s = 1e-9 };
 *	st = plan_costs_derive(&model, sequence_length, &costs, &derived, &error);
 *	if (derived[i].possible) ... derived[i].exchange[SECTION_LAYER][PHASE_FORWARD].bytes
 */
#ifndef TR_DAEMON_PLAN_PLAN_COSTS_H
#define TR_DAEMON_PLAN_PLAN_COSTS_H

#include "daemon/plan/propagate.h"

#define PLAN_COSTS_MAX 128
/* Of its time, what a thread that measures has of a core where nothing disturbs it. */
#define PLAN_COSTS_ON_CORE 0.9

struct plan_section_time {
	double forward_s, backward_s;
};

/* Of one microbatch, at one of tp workers of speed 1, without what it exchanges with the others. */
struct plan_cost {
	uint32_t tp, sequences;
	struct plan_section_time time[SECTIONS]; /* SECTION_LAYER: of one */
	uint64_t kept_bytes[SECTIONS];           /* from forward to backward, as allocated */
	uint64_t working_bytes;                  /* allocated once, whatever is in flight */
};

struct plan_costs {
	const struct plan_cost *at; /* borrowed */
	uint32_t count;
	double update_s; /* of one parameter, at a worker of speed 1 */
	double add_s; /* of adding one number to another: strict jobs add up gradients of parts */
	double sum_s,
	    sum_byte_s; /* of an op that workers of one node make by themselves, and of each byte that one of them copies or reads in it, at speed 1; the latter 0: not known, taken to be as between their engines */
	double round_s; /* of a step besides: beginning and commit of its round */
	uint64_t process_bytes;   /* of a worker before it has a model */
	uint32_t parameter_bytes; /* with gradient and moments; 0: 16 */
	/* Times and sizes of every split over tp were measured with sequence parallelism (strategy.h): what does not divide so is not possible. */
	bool sequence_parallel;
	bool dropout; /* and with dropout: there are two more arrays of the stream */
};

/* What such costs are of, so that they are not taken for another model's: "gpt2 width 768 ... f32 threads 1", of a strict job with " strict" behind, of one with dropout " dropout". Not how many layers there are: that does not change
 * them. */
#define PLAN_COSTS_OF_MAX 176
const char *plan_costs_of(const struct model_config *model, const char *dtype, unsigned threads,
    bool strict, bool dropout, char text[PLAN_COSTS_OF_MAX]);

struct plan_exchange {
	uint32_t
	    latencies; /* of a microbatch's collectives: two of an all-reduce, one of each of its halves */
	double bytes; /* sent by one worker in all of them, for one sequence */
	/* Where workers of one node make them by themselves: collectives, what one worker copies and reads in them for one sequence, and the most that one of them is of. */
	uint32_t ops;
	double touched, largest;
};

/* A sum of a layer's backward pass that is made while gradients of weights are computed (daemon/worker/backward.c). */
struct plan_behind {
	struct plan_exchange sum;
	double share; /* of the layer's backward time what those take */
};

enum { PLAN_BEHIND = 2 }; /* what the MLP leaves, and attention */

struct plan_derived {
	bool possible;
	struct plan_exchange exchange[SECTIONS][2]; /* PHASE_FORWARD, PHASE_BACKWARD */
	struct plan_behind behind[PLAN_BEHIND];     /* of exchange[SECTION_LAYER][PHASE_BACKWARD] */
	struct plan_exchange
	    again; /* of a layer's forward in the backward pass, if it is computed again: all but the sum of its result */
	double again_share; /* of the forward time of a layer what computing it again takes: it stops before the product that makes its result */
	uint64_t parameters[SECTIONS]; /* at one worker; SECTION_HEAD: with the table */
	uint64_t table;                /* of them in a tied table, else 0 */
	uint64_t shared[SECTIONS];     /* of the parameters those that all of tp hold */
	double kept_bytes[SECTIONS]; /* of one sequence, from forward to backward, as placements say */
	double boundary_bytes;       /* of one sequence: of the residual stream */
	double head_bytes; /* of one sequence: what the head has for one microbatch at a time, besides its input */
};

/* Of each of costs->at; those whose tp cannot split the model are not `possible`, and `error` (where none is) says why. TR_EINVAL: none
 * is, a cost is none, or there are two of one split; TR_ELIMIT: more than PLAN_COSTS_MAX. */
tr_status plan_costs_derive(const struct model_config *model, uint32_t sequence_length,
    const struct plan_costs *costs, struct plan_derived *derived, struct tr_error *error);

/* What was measured without sequence parallelism, with it: sizes less what placements say, times as they are (they are a little shorter: norms are computed once instead of tp times).
 * own[i] is not `possible` where rows do not divide, and where there is no tp to share them with. */
void plan_costs_split_rows(const struct model_config *model, uint32_t sequence_length,
    const struct plan_costs *costs, const struct plan_derived *derived, struct plan_cost *split,
    struct plan_derived *own);

#endif
