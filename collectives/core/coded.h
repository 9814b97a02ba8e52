/* An op's codec over its dtype: f16 and bf16 are widened before and rounded after it, a stack's block at a time. Pure. */
#ifndef TR_COLLECTIVES_CORE_CODED_H
#define TR_COLLECTIVES_CORE_CODED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "collectives/core/op.h"

#define CODED_BLOCK 1024 /* elements of f32 on the stack: whole blocks of every codec */

/* Bytes of so many elements in a form on the wire. */
size_t coded_bytes(const struct op *op, enum segment_encoding form, size_t elements);

/* `elements` of our input in a row, of which the first is `first` of the op; with error feedback if the op has it. feed: what is left of it is written. */
void coded_encode_input(const struct op *op, uint64_t first, const void *row, size_t elements,
    bool feed, void *out);
/* The same elements where nothing of them was given: all of the input, with what was left before, is left for the next round. */
void coded_keep_input(const struct op *op, uint64_t first, const void *row, size_t elements);
/* A result that everybody decoded, encoded once more. false: that would not be decoded to the same bytes, and `out` holds nothing. */
bool coded_encode_result(const struct op *op, const void *row, size_t elements, void *out);
/* A result, as it lies in memory. */
void coded_decode(const struct op *op, void *out, const void *encoded, size_t elements);

/* One block of a sum, in f32: what the part holds from element `first` on, a multiple of CODED_BLOCK. */
void coded_load(const struct op *op, float *sum, const struct fold_part *part, size_t first,
    size_t count);
void coded_combine(const struct op *op, float *sum, const struct fold_part *part, size_t first,
    size_t count);
/* Puts a block of a sum into a row of that form. */
void coded_store(const struct op *op, void *row, enum segment_encoding form, const float *sum,
    size_t first, size_t count);

#endif
