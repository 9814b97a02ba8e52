/* The references behind the table `variant_plain`, besides reduce_plain_*. */
#ifndef TR_COLLECTIVES_KERNELS_PLAIN_H
#define TR_COLLECTIVES_KERNELS_PLAIN_H

#include <stddef.h>

#include "collectives/coll.h"

void plain_combine_many(enum tr_dtype dtype, enum tr_reduce op, void *out,
    const void *const *inputs, unsigned n, size_t count);
void plain_combine_wide(enum tr_dtype dtype, enum tr_reduce op, float *acc, const void *b,
    size_t count);
void plain_widen(enum tr_dtype dtype, float *out, const void *in, size_t count);
void plain_narrow(enum tr_dtype dtype, void *out, const float *in, size_t count);

#endif
