/* Floats to codes in 256-bit registers: read by codec_loops.h where AVX2 is compiled for. What the vectoriser makes of
 * narrowing to bytes takes three times as long.
 */
#ifndef TR_COLLECTIVES_KERNELS_CODEC_AVX2_H
#define TR_COLLECTIVES_KERNELS_CODEC_AVX2_H

#ifdef __AVX2__

#include <immintrin.h>

#include "collectives/kernels/codec_format.h"

static inline __m256i size_bits(__m256 x)
{
	return _mm256_and_si256(_mm256_castps_si256(x), _mm256_set1_epi32(0x7fffffff));
}

/* 32 small numbers to bytes, in order. */
static inline __m256i bytes_of(const __m256i n[4])
{
	__m256i low = _mm256_packs_epi32(n[0], n[1]), high = _mm256_packs_epi32(n[2], n[3]);
	return _mm256_permutevar8x32_epi32(_mm256_packs_epi16(low, high),
	    _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
}

/* The largest sizes of the block's eight columns. */
static inline __m256i column_sizes(const float *in)
{
	__m256i size[4] = { 0 };

	for (int i = 0; i < CODEC_BLOCK; i += 32)
		for (int k = 0; k < 4; k++)
			size[k] = _mm256_max_epi32(size[k],
			    size_bits(_mm256_loadu_ps(in + i + 8 * k)));
	return _mm256_max_epi32(_mm256_max_epi32(size[0], size[1]),
	    _mm256_max_epi32(size[2], size[3]));
}

static uint32_t block_size(const float *in)
{
	__m256i size = column_sizes(in);
	__m128i four = _mm_max_epi32(_mm256_castsi256_si128(size),
	    _mm256_extracti128_si256(size, 1));
	__m128i two = _mm_max_epi32(four, _mm_shuffle_epi32(four, 0x4e));
	__m128i one = _mm_max_epi32(two, _mm_shuffle_epi32(two, 0xb1));
	return (uint32_t)_mm_cvtsi128_si32(one);
}

/* Packing keeps what is beyond a byte at its ends, so the limits can be held among bytes. */
static void convert_int(uint8_t *code, const float *in, float inverse, int low, int high)
{
	__m256 by = _mm256_set1_ps(inverse);
	__m256i least_code = _mm256_set1_epi8((char)low), most_code = _mm256_set1_epi8((char)high);

	for (int i = 0; i < CODEC_BLOCK; i += 32) {
		__m256i n[4];
		for (int k = 0; k < 4; k++)
			n[k] = _mm256_cvtps_epi32(
			    _mm256_mul_ps(_mm256_loadu_ps(in + i + 8 * k), by));
		__m256i bytes = _mm256_min_epi8(_mm256_max_epi8(bytes_of(n), least_code), most_code);
		_mm256_storeu_si256((void *)(code + i), bytes);
	}
}

/* Largest of each pair's lanes, in turn, of each half. */
static inline __m256i max_pairs(__m256i a, __m256i b)
{
	return _mm256_max_epi32(_mm256_unpacklo_epi32(a, b), _mm256_unpackhi_epi32(a, b));
}

static inline __m256i max_quads(__m256i a, __m256i b)
{
	return _mm256_max_epi32(_mm256_unpacklo_epi64(a, b), _mm256_unpackhi_epi64(a, b));
}

#define CODEC_GROUP 8

/* Eight whole blocks of int8 at once: what follows from one block's size is a chain of two divisions, which stands still for longer
 * than its codes take. False: nothing is written; one of them is all zeros or not finite. */
static bool encode_group_int8(uint8_t *out, const float *in)
{
	const size_t stride = SCALE_BYTES + CODEC_BLOCK;
	__m256i column[CODEC_GROUP];
	_Alignas(32) uint32_t scale[CODEC_GROUP];
	_Alignas(32) float inverse[CODEC_GROUP];

	for (int b = 0; b < CODEC_GROUP; b++)
		column[b] = column_sizes(in + b * CODEC_BLOCK);
	__m256i low = max_quads(max_pairs(column[0], column[1]), max_pairs(column[2], column[3]));
	__m256i high = max_quads(max_pairs(column[4], column[5]), max_pairs(column[6], column[7]));
	__m256i size = _mm256_max_epi32(_mm256_permute2x128_si256(low, high, 0x20),
	    _mm256_permute2x128_si256(low, high, 0x31));
	__m256i odd = _mm256_or_si256(_mm256_cmpgt_epi32(size, _mm256_set1_epi32(SIZE_INFINITE - 1)),
	    _mm256_cmpgt_epi32(_mm256_set1_epi32(SIZE_MIN), size));
	if (!_mm256_testz_si256(odd, odd))
		return false;
	/* codec_scale and half_to_bf16: to nearest, ties to even; the least is normal, the largest finite. */
	__m256i largest = _mm256_min_epi32(size, _mm256_set1_epi32(SIZE_MAX_BF16));
	__m256i bits = _mm256_castps_si256(
	    _mm256_div_ps(_mm256_castsi256_ps(largest), _mm256_set1_ps(127.0f)));
	__m256i even = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
	bits = _mm256_add_epi32(bits, _mm256_add_epi32(even, _mm256_set1_epi32(0x7fff)));
	bits = _mm256_srli_epi32(bits, 16);
	_mm256_store_si256((void *)scale, bits);
	__m256 value = _mm256_castsi256_ps(_mm256_slli_epi32(bits, 16));
	_mm256_store_ps(inverse, _mm256_div_ps(_mm256_set1_ps(1.0f), value));
	for (int b = 0; b < CODEC_GROUP; b++) {
		codec_scale_put(out + (size_t)b * stride, (uint16_t)scale[b]);
		convert_int(out + (size_t)b * stride + SCALE_BYTES, in + b * CODEC_BLOCK,
		    inverse[b], -127, 127);
	}
	return true;
}

static void convert_e3m0(uint8_t *code, const float *in, float inverse)
{
	__m256 by = _mm256_set1_ps(inverse);

	for (int i = 0; i < CODEC_BLOCK; i += 32) {
		__m256i n[4];
		for (int k = 0; k < 4; k++) {
			__m256 x = _mm256_mul_ps(_mm256_loadu_ps(in + i + 8 * k), by);
			__m256i size = size_bits(x);
			/* Half a power more carries into the exponent from 1.5 times one on. */
			__m256i power = _mm256_sub_epi32(_mm256_srli_epi32(_mm256_add_epi32(size,
			                                                       _mm256_set1_epi32(
			                                                           0x400000)),
			                                     23),
			    _mm256_set1_epi32(126));
			power = _mm256_max_epi32(power, _mm256_set1_epi32(1));
			power = _mm256_min_epi32(power, _mm256_set1_epi32(7));
			__m256i sign = _mm256_and_si256(_mm256_srli_epi32(_mm256_castps_si256(x),
			                                    28),
			    _mm256_set1_epi32(8));
			__m256i half = _mm256_cmpgt_epi32(size, _mm256_set1_epi32(0x3effffff));
			n[k] = _mm256_and_si256(_mm256_or_si256(power, sign), half);
		}
		_mm256_storeu_si256((void *)(code + i), bytes_of(n));
	}
}

static void convert_int2(uint8_t *code, const float *in, float part)
{
	for (int i = 0; i < CODEC_BLOCK; i += 32) {
		__m256i n[4];
		for (int k = 0; k < 4; k++) {
			__m256 x = _mm256_loadu_ps(in + i + 8 * k);
			__m256 high = _mm256_cmp_ps(_mm256_castsi256_ps(size_bits(x)),
			    _mm256_set1_ps(part), _CMP_GT_OQ);
			__m256i sign = _mm256_srli_epi32(_mm256_castps_si256(x), 31);
			/* high is 0 or -1: 2 sign + high */
			n[k] = _mm256_sub_epi32(_mm256_add_epi32(sign, sign),
			    _mm256_castps_si256(high));
		}
		_mm256_storeu_si256((void *)(code + i), bytes_of(n));
	}
}

/* Lanes 0..7 and 8..15, folded pairwise. */
static inline float sum_lanes(__m256 low, __m256 high)
{
	__m256 eight = _mm256_add_ps(low, high);
	__m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
	__m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
	return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

static uint16_t block_fit_int2(const float *in, size_t elements)
{
	__m256 shrink = _mm256_set1_ps(INT2_SHRINK), lane[2] = { 0 }, high_lane[2] = { 0 };
	__m256i high = _mm256_setzero_si256();

	for (int i = 0; i < CODEC_BLOCK; i += 16)
		for (int k = 0; k < 2; k++) {
			__m256 size = _mm256_castsi256_ps(
			    size_bits(_mm256_loadu_ps(in + i + 8 * k)));
			lane[k] = _mm256_add_ps(lane[k], _mm256_mul_ps(size, shrink));
		}
	float sum = sum_lanes(lane[0], lane[1]);
	__m256 part = _mm256_set1_ps(codec_part_int2(sum, elements));
	for (int i = 0; i < CODEC_BLOCK; i += 16)
		for (int k = 0; k < 2; k++) {
			__m256 size = _mm256_castsi256_ps(
			    size_bits(_mm256_loadu_ps(in + i + 8 * k)));
			__m256 is_high = _mm256_cmp_ps(size, part, _CMP_GT_OQ);
			__m256 add = _mm256_and_ps(is_high, _mm256_mul_ps(size, shrink));
			high_lane[k] = _mm256_add_ps(high_lane[k], add);
			high = _mm256_sub_epi32(high, _mm256_castps_si256(is_high));
		}
	__m128i four = _mm_add_epi32(_mm256_castsi256_si128(high),
	    _mm256_extracti128_si256(high, 1));
	__m128i two = _mm_add_epi32(four, _mm_shuffle_epi32(four, 0x4e));
	__m128i one = _mm_add_epi32(two, _mm_shuffle_epi32(two, 0xb1));
	return codec_scale_int2(sum, sum_lanes(high_lane[0], high_lane[1]),
	    (unsigned)_mm_cvtsi128_si32(one), elements);
}

#endif
#endif
