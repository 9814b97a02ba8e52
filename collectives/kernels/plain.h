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
void plain_encode(enum tr_codec codec, void *out, const float *in, size_t elements);
void plain_decode(enum tr_codec codec, float *out, const void *in, size_t elements);
void plain_decode_combine(enum tr_codec codec, enum tr_reduce op, float *acc, const void *in,
    size_t elements);
void plain_encode_feedback(enum tr_codec codec, float beta, void *out, const float *in,
    const float *residual, float *residual_next, size_t elements);

#endif
