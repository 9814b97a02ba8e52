/* How a tensor lies on one axis of the mesh, and which collective takes it from one placement to another. Pure.
 *
 *	S(d)   split: each worker of the axis holds one of n equal pieces along dimension d
 *	B      broadcast: each holds all of it
 *	P(op)  partial: each holds a summand (or a candidate for the maximum) of the whole tensor's every element
 *
 *	from \ to   B             S(i)            P(same op)
 *	B           -             local slice     error
 *	S(i)        all-gather    -               error
 *	S(j)        all-gather    all-to-all      error
 *	P           all-reduce    reduce-scatter  -
 *
 * "-": nothing to do. To P there is no way but from the same P: who wants a partial tensor has made a mistake, since a value would be
 * counted n times or stand on one worker only. The words are GSPMD's (arXiv 2105.04663) and OneFlow's (arXiv 2110.15032: S, B, P).
 *
 *	enum collective how;
 *	if (tensor_placement_convert(tensor_placement_partial(PARTIAL_SUM), tensor_placement_broadcast(), &how, &error) == TR_OK)
 *		...   // how == COLLECTIVE_ALL_REDUCE
 */
#ifndef TR_DAEMON_PLAN_TENSOR_PLACEMENT_H
#define TR_DAEMON_PLAN_TENSOR_PLACEMENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/error.h"

#define TENSOR_DIMS_MAX 3

enum tensor_placement_kind { PLACEMENT_BROADCAST, PLACEMENT_SPLIT, PLACEMENT_PARTIAL };

enum partial_op { PARTIAL_SUM, PARTIAL_MAX };

struct tensor_placement {
	uint8_t kind; /* enum tensor_placement_kind */
	uint8_t dim;  /* of a split; else 0 */
	uint8_t op;   /* enum partial_op of a partial; else 0 */
};

enum collective {
	COLLECTIVE_NONE,
	COLLECTIVE_LOCAL_SLICE, /* no bytes move */
	COLLECTIVE_ALL_GATHER,
	COLLECTIVE_ALL_REDUCE,
	COLLECTIVE_REDUCE_SCATTER,
	COLLECTIVE_ALL_TO_ALL,
	/* No conversion's: from each piece's owners to who is none (propagate.h). */
	COLLECTIVE_SEND_RECEIVE,
	COLLECTIVES
};

struct tensor_placement tensor_placement_broadcast(void);
struct tensor_placement tensor_placement_split(unsigned dim);
struct tensor_placement tensor_placement_partial(enum partial_op op);

bool tensor_placement_equal(struct tensor_placement a, struct tensor_placement b);

/* "S(1)", "B", "P(sum)": into `text`, which is returned. */
#define TENSOR_PLACEMENT_TEXT_MAX 8
const char *tensor_placement_text(struct tensor_placement placement,
    char text[TENSOR_PLACEMENT_TEXT_MAX]);

/* The table above. TR_EINVAL: there is no way. */
tr_status tensor_placement_convert(struct tensor_placement from, struct tensor_placement to,
    enum collective *how, struct tr_error *error);

/* What a gradient's placement has to be: the tensor's own; but B for a partial tensor, since a sum's gradient goes to each of its
 * summands whole. (Not "the dual of B is P": that would add an all-reduce behind each row-parallel layer.) */
struct tensor_placement tensor_placement_of_gradient(struct tensor_placement of);

const char *collective_name(enum collective collective); /* "all-reduce" */

/* Bytes that each of n workers sends (and receives) with the best algorithm, for a whole tensor of `bytes`: (n-1)/n of it for
 * all-gather and reduce-scatter, twice that for all-reduce, (n-1)/n of a worker's 1/n for all-to-all. Of send and receive collective_entry_bytes_sent knows it. */
double collective_bytes_sent(enum collective collective, double bytes, uint32_t n);

#endif
