/* 16-bit floats in 256-bit registers, sixteen at a time: read by half_loops.h where AVX2 and F16C are compiled for. */
#ifndef TR_COLLECTIVES_KERNELS_HALF_AVX2_H
#define TR_COLLECTIVES_KERNELS_HALF_AVX2_H

#ifdef __AVX2__

#include <immintrin.h>
#include <stdint.h>

struct floats16 {
	__m256 low, high;
};

static inline struct floats16 floats16_load(const float *in)
{
	return (struct floats16){ _mm256_loadu_ps(in), _mm256_loadu_ps(in + 8) };
}

static inline void floats16_store(float *out, struct floats16 x)
{
	_mm256_storeu_ps(out, x.low);
	_mm256_storeu_ps(out + 8, x.high);
}

static inline struct floats16 f16_load16(const uint16_t *in)
{
	return (struct floats16){ _mm256_cvtph_ps(_mm_loadu_si128((const void *)in)),
		_mm256_cvtph_ps(_mm_loadu_si128((const void *)(in + 8))) };
}

static inline void f16_store16(uint16_t *out, struct floats16 x)
{
	_mm_storeu_si128((void *)out, _mm256_cvtps_ph(x.low, _MM_FROUND_TO_NEAREST_INT));
	_mm_storeu_si128((void *)(out + 8), _mm256_cvtps_ph(x.high, _MM_FROUND_TO_NEAREST_INT));
}

static inline __m256 bf16_load8(const uint16_t *in)
{
	__m256i half = _mm256_cvtepu16_epi32(_mm_loadu_si128((const void *)in));
	return _mm256_castsi256_ps(_mm256_slli_epi32(half, 16));
}

static inline struct floats16 bf16_load16(const uint16_t *in)
{
	return (struct floats16){ bf16_load8(in), bf16_load8(in + 8) };
}

/* As half_to_bf16, in the lower halves. */
static inline __m256i bf16_round8(__m256 x)
{
	__m256i bits = _mm256_castps_si256(x), upper = _mm256_srli_epi32(bits, 16);
	__m256i odd = _mm256_and_si256(upper, _mm256_set1_epi32(1));
	__m256i more = _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff));
	__m256i near = _mm256_srli_epi32(_mm256_add_epi32(bits, more), 16);
	__m256i nan = _mm256_or_si256(upper, _mm256_set1_epi32(0x0040));
	__m256i is_nan = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
	return _mm256_blendv_epi8(near, nan, is_nan);
}

static inline void bf16_store16(uint16_t *out, struct floats16 x)
{
	__m256i packed = _mm256_packus_epi32(bf16_round8(x.low), bf16_round8(x.high));
	_mm256_storeu_si256((void *)out, _mm256_permute4x64_epi64(packed, 0xd8));
}

/* x op y, as reduce.h has it: x unless y is less (greater). */
#define FLOATS16(op, call)                                                                \
	static inline struct floats16 floats16_##op(struct floats16 x, struct floats16 y) \
	{                                                                                 \
		return (struct floats16){ call(y.low, x.low), call(y.high, x.high) };     \
	}
FLOATS16(sum, _mm256_add_ps)
FLOATS16(prod, _mm256_mul_ps)
FLOATS16(min, _mm256_min_ps)
FLOATS16(max, _mm256_max_ps)

#endif
#endif
