/* Element-wise reduction of vectors. The order of operands is fixed and nothing is contracted or reassociated, so the
 * bits are the same on every machine (but for the payload of a NaN, which no standard promises). dispatch.h chooses the
 * form that runs; `reduce_plain_*` are the references: one element at a time.
 *
 * f16 and bf16 are added in f32 and rounded once, to nearest even, at the end of the call; so who adds many calls
 * reduce_combine_many, or keeps an f32 accumulator:
 *
 *	reduce_widen(TR_BF16, acc, first, count);
 *	reduce_combine_wide(TR_BF16, TR_SUM, acc, second, count);  // and so on
 *	reduce_narrow(TR_BF16, result, acc, count);
 *
 * Integers wrap; an integer average is truncated toward zero. TR_MIN and TR_MAX keep `a` unless `b` is less (greater):
 * so a NaN in `a` stays and a NaN in `b` is passed over. Pointers are aligned to the element. Any thread.
 */
#ifndef TR_COLLECTIVES_KERNELS_REDUCE_H
#define TR_COLLECTIVES_KERNELS_REDUCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "collectives/coll.h"

#define REDUCE_INPUTS_MAX 256

size_t reduce_element_bytes(enum tr_dtype dtype); /* 0: no such type */
bool reduce_is_wide(enum tr_dtype dtype);         /* f16 and bf16: accumulated in f32 */

/* out[i] = a[i] op b[i]; TR_AVG adds. `out` may be `a` or `b`, but no other overlap. */
void reduce_combine(enum tr_dtype dtype, enum tr_reduce op, void *out, const void *a, const void *b,
    size_t count);
/* out[i] = ((inputs[0][i] op inputs[1][i]) op inputs[2][i]) ... : the bits of reduce_combine in that order (of f32
 * accumulation, rounded once, for f16 and bf16), in one pass over memory. 1 <= n <= REDUCE_INPUTS_MAX. `out` may be any of
 * the inputs. */
void reduce_combine_many(enum tr_dtype dtype, enum tr_reduce op, void *out,
    const void *const *inputs, unsigned n, size_t count);
/* data[i] /= divisor, for TR_AVG. divisor > 0. */
void reduce_divide(enum tr_dtype dtype, void *data, size_t count, unsigned divisor);
/* Each NaN becomes the quiet one without sign and payload: where several members add the same numbers in the same order, but in other
 * passes or on other processors, only NaNs may have other bits. Integers stay. */
void reduce_settle_nans(enum tr_dtype dtype, void *data, size_t count);

/* For TR_F16 and TR_BF16 alone. No overlap. Narrowing is to nearest even; a NaN stays one (quiet); what is too large for an
 * f16 becomes infinity. */
void reduce_widen(enum tr_dtype dtype, float *out, const void *in, size_t count);
void reduce_narrow(enum tr_dtype dtype, void *out, const float *in, size_t count);
/* acc[i] = acc[i] op widen(b[i]) */
void reduce_combine_wide(enum tr_dtype dtype, enum tr_reduce op, float *acc, const void *b,
    size_t count);

void reduce_plain_combine(enum tr_dtype dtype, enum tr_reduce op, void *out, const void *a,
    const void *b, size_t count);
void reduce_plain_divide(enum tr_dtype dtype, void *data, size_t count, unsigned divisor);

#endif
