/* The references for 16-bit floats: one element, written out. Of a NaN the upper ten (f16) or seven (bf16) bits of the payload
 * are kept and the quiet bit is set, as the processors' own conversions do; but a bf16 is widened by moving its bits.
 */
#ifndef TR_COLLECTIVES_KERNELS_HALF_H
#define TR_COLLECTIVES_KERNELS_HALF_H

#include <stdint.h>
#include <string.h>

static inline float half_float(uint32_t bits)
{
	float value;
	memcpy(&value, &bits, sizeof(value));
	return value;
}

static inline uint32_t half_bits(float value)
{
	uint32_t bits;
	memcpy(&bits, &value, sizeof(bits));
	return bits;
}

static inline float half_from_bf16(uint16_t half)
{
	return half_float((uint32_t)half << 16);
}

/* To nearest, ties to even. */
static inline uint16_t half_to_bf16(float value)
{
	uint32_t bits = half_bits(value);
	if ((bits & 0x7fffffff) > 0x7f800000)
		return (uint16_t)(bits >> 16 | 0x0040);
	return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static inline float half_from_f16(uint16_t half)
{
	uint32_t sign = (uint32_t)(half & 0x8000) << 16, exponent = half >> 10 & 31;
	uint32_t fraction = half & 0x3ff;
	if (exponent == 31)
		return half_float(sign | 0x7f800000 | (fraction ? 0x00400000 : 0) | fraction << 13);
	if (exponent == 0) /* fraction * 2^-24 is exact */
		return half_float(sign | half_bits((float)fraction * 0x1p-24f));
	return half_float(sign | (exponent + 112) << 23 | fraction << 13);
}

/* To nearest, ties to even; beyond 65504 and a half step: infinity. */
static inline uint16_t half_to_f16(float value)
{
	uint32_t bits = half_bits(value), sign = bits >> 16 & 0x8000, size = bits & 0x7fffffff;
	if (size > 0x7f800000)
		return (uint16_t)(sign | 0x7e00 | (size >> 13 & 0x3ff));
	if (size >= 0x47800000) /* 2^16 */
		return (uint16_t)(sign | 0x7c00);
	if (size >= 0x38800000) { /* 2^-14: a carry out of the fraction raises the exponent */
		size += 0xfff + (size >> 13 & 1);
		return (uint16_t)(sign | ((size >> 13) - (112 << 10)));
	}
	if (size < 0x33000000) /* under half of 2^-24 */
		return (uint16_t)sign;
	uint32_t fraction = (size & 0x7fffff) | 0x800000, shift = 126 - (size >> 23);
	uint32_t kept = fraction >> shift, rest = fraction & ((1u << shift) - 1);
	uint32_t middle = 1u << (shift - 1);
	kept += rest > middle || (rest == middle && (kept & 1));
	return (uint16_t)(sign | kept);
}

#endif
