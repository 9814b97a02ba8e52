/* What f32 becomes on the wire, and back. Pure and deterministic: every form of every machine gives the bits of the plain
 * one (dispatch.h), so peers that encode the same numbers send the same bytes, and peers that decode the same bytes hold
 * the same numbers. All decoded values are exact products of a bf16 and a small integer.
 *
 *	uint8_t wire[codec_bytes(TR_CODEC_INT8, n)];
 *	codec_encode(TR_CODEC_INT8, wire, gradient, n);              // ... to the owner of the segment, who
 *	codec_decode_combine(TR_CODEC_INT8, TR_SUM, sum, wire, n);   // adds it up
 *
 * | codec | bytes / element | values | error of an element | MSE, Gaussian data |
 * |---|---|---|---|---|
 * | none | 4      | f32 | 0 | 0 |
 * | bf16 | 2      | nearest bf16 | 2^-9 of itself | 2.8e-6 |
 * | int8 | 1.016  | -127..127 times s, s = largest / 127 | s / 2 | 4.2e-5 |
 * | int4 | 0.516  | -8..7 times s, s = largest / -8 with its sign | s / 2; s for what lies opposite to the largest | 0.0107 |
 * | e3m0 | 0.516  | 0 and +-1, 2, 4 .. 64 times s, s = largest / 64 | a third of itself, or s / 2 | 0.0370 |
 * | int2 | 0.266  | +-2 and +-7 times s, s fitted | | 0.116 |
 *
 * MSE is relative to the mean square, measured by tests/unit/test_kernel_codec.c. int4 gives the largest number of a block the
 * value -8 of the grid whatever its sign (a negative s turns the grid around), so that all sixteen codes are used: MSE 0.0138
 * with -7..7. e3m0 is the format of Streaming DiLoCo (arXiv 2501.18512): a sign, three bits of exponent of which the least
 * stands for zero, no fraction; rounded to the nearest value (not the nearest exponent: 0.0405), halfway away from zero.
 * int2: {-1, 0, 1} fitted in the same way has an MSE of 0.188, so there are four levels. s is the least-squares fit for the
 * halves that 1.25 times the mean size parts; a zero among other numbers becomes +-2 s, so this one wants error feedback.
 *
 * Blocks have 128 elements (the last one fewer): half the bytes of their scales would buy 0.06 bits an element, and the largest
 * of more numbers is larger, which makes all steps coarser (int4, Gaussian: MSE +15 % from 128 to 256); 128 codes are whole
 * registers and whole cache lines. A block is its scale, a bf16 in two bytes (little endian), then its codes; so codes of bytes
 * that have come can be decoded while the others are under way. The scale is a bf16 and not an f32: half the bytes for 0.4 %
 * of a step, and products with codes are exact. Codes of less than a byte: the block is cut into 2 (4) runs of equal
 * length, the first of which takes the lowest bits.
 *
 * int8, int4, e3m0 round to nearest, ties to even on the grid (e3m0: see above). A block whose largest size is below 2^-100
 * becomes zeros. A block with a NaN or an infinity has a NaN for its scale and decodes to NaN whole: an overflow is never
 * hidden. Finite numbers stay finite (bf16 alone rounds beyond 3.39e38 to infinity, as everywhere).
 *
 * Decoding accepts any bytes: a scale that is not finite gives the quiet NaN 7fc00000; reserved codes count as what their
 * bits say. Encoded bytes are aligned to 4 for none, to 2 for bf16, else to nothing. No overlap but where said. Any thread.
 */
#ifndef TR_COLLECTIVES_KERNELS_CODEC_H
#define TR_COLLECTIVES_KERNELS_CODEC_H

#include <stdbool.h>
#include <stddef.h>

#include "collectives/coll.h"

#define CODEC_BLOCK 128

bool codec_known(unsigned codec); /* a value of enum tr_codec */

/* Of `elements` encoded. Never more than 4 * elements. Of whole blocks and a rest: the sum of theirs. */
size_t codec_bytes(enum tr_codec codec, size_t elements);

void codec_encode(enum tr_codec codec, void *out, const float *in, size_t elements);
void codec_decode(enum tr_codec codec, float *out, const void *in, size_t elements);

/* acc[i] = acc[i] op decoded[i]: the bits of codec_decode and then reduce_combine. */
void codec_decode_combine(enum tr_codec codec, enum tr_reduce op, float *acc, const void *in,
    size_t elements);

/* Error feedback: with a = in + beta * residual (two roundings, no contraction), out = encoded a, and
 * residual_next = a - decoded out; 0 where `out` decodes to what is not finite, so that a NaN goes out once and not for
 * ever. The residual starts as zeros. residual_next may be residual. */
void codec_encode_feedback(enum tr_codec codec, float beta, void *out, const float *in,
    const float *residual, float *residual_next, size_t elements);

#endif
