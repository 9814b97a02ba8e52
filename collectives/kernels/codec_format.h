/* The numbers of codec.h's formats, shared by the references and the loops. */
#ifndef TR_COLLECTIVES_KERNELS_CODEC_FORMAT_H
#define TR_COLLECTIVES_KERNELS_CODEC_FORMAT_H

#include <stdbool.h>
#include <stdint.h>

#include "collectives/kernels/codec.h"
#include "collectives/kernels/half.h"

#define SCALE_BYTES 2
#define SCALE_NAN   0x7fc0

#define SIZE_INFINITE 0x7f800000u /* bits of a size (an absolute value) that is not finite */
#define SIZE_MIN      0x0d800000u /* 2^-100: below, a block is zeros */
#define SIZE_MAX_BF16 0x7f7f0000u /* sizes beyond count as this one when a scale is made */

/* int2: the grid, times s; what parts the sizes before the fit, times their mean; the scale's limit, so that 7 s is finite.
 * Sums are of sizes times 2^-10 and cannot overflow; LANES of them run side by side and are folded pairwise. */
#define INT2_LOW      2
#define INT2_HIGH     7
#define INT2_PART     1.25f
#define INT2_SCALE    0x1p125f
#define INT2_SHRINK   0x1p-10f
#define INT2_UNSHRINK 0x1p10f
#define INT2_LANES    16

static inline unsigned codec_bits(enum tr_codec codec)
{
	return codec == TR_CODEC_INT8 ? 8 : codec == TR_CODEC_INT2 ? 2 : 4;
}

static inline size_t codec_block_bytes(enum tr_codec codec, size_t elements)
{
	return SCALE_BYTES + (elements * codec_bits(codec) + 7) / 8;
}

static inline bool codec_in_blocks(enum tr_codec codec)
{
	return codec >= TR_CODEC_INT8;
}

/* The scale of int8, int4 and e3m0 for a block whose largest size has these bits. */
static inline uint16_t codec_scale(enum tr_codec codec, uint32_t size, bool has_negative)
{
	float largest = half_float(size < SIZE_MAX_BF16 ? size : SIZE_MAX_BF16);
	if (codec == TR_CODEC_INT8)
		return half_to_bf16(largest / 127.0f);
	if (codec == TR_CODEC_E3M0)
		return half_to_bf16(largest / 64.0f);
	return half_to_bf16(has_negative ? largest / 8.0f : largest / -8.0f);
}

/* The scale of int2: `sum` of the sizes, `high_sum` of the `high` large ones, both shrunk. */
static inline uint16_t codec_scale_int2(float sum, float high_sum, unsigned high, size_t elements)
{
	float along = INT2_LOW * (sum - high_sum) + INT2_HIGH * high_sum;
	float square = (float)(INT2_LOW * INT2_LOW * ((unsigned)elements - high) +
	    INT2_HIGH * INT2_HIGH * high);
	float scale = along / square * INT2_UNSHRINK;
	return half_to_bf16(scale < INT2_SCALE ? scale : INT2_SCALE);
}

/* What parts the sizes of an int2 block for the fit. */
static inline float codec_part_int2(float sum, size_t elements)
{
	return sum / (float)elements * (INT2_UNSHRINK * INT2_PART);
}

static inline void codec_scale_put(uint8_t *out, uint16_t scale)
{
	out[0] = (uint8_t)scale;
	out[1] = (uint8_t)(scale >> 8);
}

static inline uint16_t codec_scale_get(const uint8_t *in)
{
	return (uint16_t)(in[0] | in[1] << 8);
}

static inline bool codec_scale_finite(uint16_t scale)
{
	return (scale & 0x7f80) != 0x7f80;
}

static inline float codec_scale_value(uint16_t scale)
{
	return half_from_bf16(codec_scale_finite(scale) ? scale : SCALE_NAN);
}

#endif
