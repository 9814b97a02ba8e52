/* Which tokens are trained on when. Sample g (from 0, counted over the whole job) is a pure function of (seed, g): the global batch of
 * step s is samples [(s-1) B, s B) for B sequences, whoever computes them. So what is consumed does not depend on how many workers there
 * are, nor on restarts.
 *
 * An epoch is the training text cut into windows of `context` tokens, taken in an order that is a permutation keyed by (seed, epoch); the
 * cuts are shifted by a number of tokens drawn for the epoch, so that windows of different epochs differ.
 */
#ifndef TR_DAEMON_WORKER_SAMPLES_H
#define TR_DAEMON_WORKER_SAMPLES_H

#include <stddef.h>
#include <stdint.h>

#include "common/error.h"
#include "daemon/worker/text.h"

struct samples {
	const struct text *text;
	size_t context;
	uint64_t seed;
	uint64_t per_epoch;  /* windows */
	uint64_t validation; /* windows of the held-out tail that an evaluation reads */
};

/* At most `validation_windows` windows are validated on. `text` stays borrowed. TR_EINVAL: too little of it. */
tr_status samples_init(const struct text *text, size_t context, uint64_t seed,
    uint64_t validation_windows, struct samples *samples, struct tr_error *error);

/* Tokens of sample `index`, and those that follow each: [context] both. */
void samples_get(const struct samples *samples, uint64_t index, int32_t *inputs, int32_t *targets);

/* Window `index` of samples->validation, evenly spread over the tail: the same in every evaluation. */
void samples_get_validation(const struct samples *samples, uint64_t index, int32_t *inputs,
    int32_t *targets);

/* Part `index` of `count` of a batch of `size`: [*first, *last). All parts together are the batch. */
static inline void samples_share(uint64_t size, unsigned index, unsigned count, uint64_t *first,
    uint64_t *last)
{
	*first = size * index / count;
	*last = size * (index + 1) / count;
}

#endif
