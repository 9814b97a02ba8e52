/* Element-wise reduction of vectors. The order of operands is fixed and nothing is contracted or reassociated, so the
 * bits are the same on every machine. `reduce_plain_*` are the references: one element at a time, for the tests.
 *
 * Integers wrap; an integer average is truncated toward zero. TR_MIN and TR_MAX keep `a` unless `b` is less (greater):
 * so a NaN in `a` stays and a NaN in `b` is passed over.
 */
#ifndef TR_COLLECTIVES_KERNELS_REDUCE_H
#define TR_COLLECTIVES_KERNELS_REDUCE_H

#include <stddef.h>
#include <stdint.h>

#include "collectives/coll.h"

size_t reduce_element_bytes(enum tr_dtype dtype); /* 0: no such type */

/* out[i] = a[i] op b[i]; TR_AVG adds. `out` may be `a` or `b`, but no other overlap. Aligned to the element. */
void reduce_combine(enum tr_dtype dtype, enum tr_reduce op, void *out, const void *a, const void *b,
    size_t count);
/* data[i] /= divisor, for TR_AVG. divisor > 0. */
void reduce_divide(enum tr_dtype dtype, void *data, size_t count, unsigned divisor);

void reduce_plain_combine(enum tr_dtype dtype, enum tr_reduce op, void *out, const void *a,
    const void *b, size_t count);
void reduce_plain_divide(enum tr_dtype dtype, void *data, size_t count, unsigned divisor);

#endif
