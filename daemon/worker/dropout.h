/* Dropout (Srivastava et al., JMLR 15, 2014): which elements of an array a training step leaves out. Whether one is left out is a pure function of the key and of its row and column, so nothing is
 * stored: the backward pass, and a layer that is computed again, draw once more. A key is made by Philox (common/rng.h) of all that the element is of (model_dropout.c); what is here is cheap enough for each
 * row and element: splitmix64's finaliser, and one of 32 bits with two multiplications (C. Wellons, "lowbias32"), between which comes the second half of the row's key. Whole numbers alone, so that all
 * machines draw the same, and in loops that compilers vectorise.
 */
#ifndef TR_DAEMON_WORKER_DROPOUT_H
#define TR_DAEMON_WORKER_DROPOUT_H

#include "daemon/worker/ops.h"

#define DROPOUT_BITS 24 /* of a draw: shares are multiples of 2^-24 */

/* The key of a part: of a head of an array's, of a row of a head's or of an array's. */
static inline uint64_t dropout_key(uint64_t key, uint64_t part)
{
	uint64_t x = key + (part + 1) * 0x9e3779b97f4a7c15u;
	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
	return x ^ (x >> 31);
}

/* Of an element of a row with this key: below 2^DROPOUT_BITS, and left out if it is below dropout->below. */
static inline int32_t dropout_draw(uint64_t row, uint32_t column)
{
	uint32_t x = column + (uint32_t)row;
	x = (x ^ (x >> 16)) * 0x7feb352du;
	x ^= (uint32_t)(row >> 32);
	x = (x ^ (x >> 15)) * 0x846ca68bu;
	return (int32_t)((x ^ (x >> 16)) >> (32 - DROPOUT_BITS));
}

#endif
