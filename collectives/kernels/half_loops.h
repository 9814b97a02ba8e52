/* 16-bit floats to f32 and back, many at once: read by variant_*.c through reduce_loops.h. Bits as in half.h. */
#ifndef TR_COLLECTIVES_KERNELS_HALF_LOOPS_H
#define TR_COLLECTIVES_KERNELS_HALF_LOOPS_H

#include <stddef.h>

#include "collectives/kernels/half.h"
#if defined(__AVX2__) && defined(__F16C__)
#define HALF_IN_REGISTERS
#include "collectives/kernels/half_avx2.h"
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

/* The forms below are without branches, for the vectoriser. half.h's bf16 forms are as good once a compare and a select
 * stand for the branch. */

static inline float lane_from_bf16(uint16_t half)
{
	return half_float((uint32_t)half << 16);
}

static inline uint16_t lane_to_bf16(float value)
{
	uint32_t bits = half_bits(value);
	uint32_t near = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
	uint32_t nan = bits >> 16 | 0x0040;
	return (uint16_t)((bits & 0x7fffffff) > 0x7f800000 ? nan : near);
}

/* F. Giesen's half_to_float_fast5 and float_to_half_fast3_rtne (public domain), with a NaN's payload kept. */
static inline float lane_from_f16(uint16_t half)
{
	uint32_t sign = (uint32_t)(half & 0x8000) << 16, size = (uint32_t)(half & 0x7fff) << 13;
	uint32_t normal = size + (112u << 23);
	uint32_t small = half_bits(half_float(size + (113u << 23)) - half_float(113u << 23));
	uint32_t special = size | 0x7f800000 | (size > 0x0f800000 ? 0x00400000 : 0);
	uint32_t finite = size < 1u << 23 ? small : normal;
	return half_float(sign | (size >= 0x0f800000 ? special : finite));
}

static inline uint16_t lane_to_f16(float value)
{
	uint32_t bits = half_bits(value), sign = bits >> 16 & 0x8000, size = bits & 0x7fffffff;
	uint32_t normal = ((size + 0xfff + (size >> 13 & 1)) >> 13) - (112u << 10);
	uint32_t small = half_bits(half_float(size) + 0.5f) - half_bits(0.5f);
	uint32_t nan = 0x7e00 | (size >> 13 & 0x3ff);
	uint32_t special = size > 0x7f800000 ? nan : 0x7c00;
	uint32_t finite = size < 0x38800000 ? small : normal;
	return (uint16_t)(sign | (size >= 0x47800000 ? special : finite));
}

static void bf16_widen(float *restrict out, const uint16_t *restrict in, size_t count)
{
	for (size_t i = 0; i < count; i++)
		out[i] = lane_from_bf16(in[i]);
}

static void bf16_narrow(uint16_t *restrict out, const float *restrict in, size_t count)
{
	size_t i = 0;
#ifdef HALF_IN_REGISTERS
	for (; i + 16 <= count; i += 16)
		bf16_store16(out + i, floats16_load(in + i));
#endif
	for (; i < count; i++)
		out[i] = lane_to_bf16(in[i]);
}

static void f16_widen(float *restrict out, const uint16_t *restrict in, size_t count)
{
	size_t i = 0;
#if defined(HALF_IN_REGISTERS)
	for (; i + 16 <= count; i += 16)
		floats16_store(out + i, f16_load16(in + i));
#elif defined(__aarch64__)
	for (; i + 4 <= count; i += 4)
		vst1q_f32(out + i, vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(in + i))));
#endif
	for (; i < count; i++)
		out[i] = lane_from_f16(in[i]);
}

static void f16_narrow(uint16_t *restrict out, const float *restrict in, size_t count)
{
	size_t i = 0;
#if defined(HALF_IN_REGISTERS)
	for (; i + 16 <= count; i += 16)
		f16_store16(out + i, floats16_load(in + i));
#elif defined(__aarch64__)
	for (; i + 4 <= count; i += 4)
		vst1_u16(out + i, vreinterpret_u16_f16(vcvt_f16_f32(vld1q_f32(in + i))));
#endif
	for (; i < count; i++)
		out[i] = lane_to_f16(in[i]);
}

#endif
