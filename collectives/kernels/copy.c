#include "collectives/kernels/copy.h"

#include <stdint.h>
#include <string.h>

#if defined(__x86_64__)
#include <immintrin.h>

#define BLOCK     128u
#define ALIGNMENT 32u

__attribute__((target("avx2"))) static void copy_avx2(uint8_t *to, const uint8_t *from, size_t bytes)
{
	for (size_t i = 0; i < bytes; i += BLOCK) {
		__m256i a = _mm256_loadu_si256((const __m256i *)(const void *)(from + i));
		__m256i b = _mm256_loadu_si256((const __m256i *)(const void *)(from + i + 32));
		__m256i c = _mm256_loadu_si256((const __m256i *)(const void *)(from + i + 64));
		__m256i d = _mm256_loadu_si256((const __m256i *)(const void *)(from + i + 96));
		_mm256_stream_si256((__m256i *)(void *)(to + i), a);
		_mm256_stream_si256((__m256i *)(void *)(to + i + 32), b);
		_mm256_stream_si256((__m256i *)(void *)(to + i + 64), c);
		_mm256_stream_si256((__m256i *)(void *)(to + i + 96), d);
	}
	_mm_sfence(); /* such stores are not ordered with those that tell of them */
}

void copy_past_cache(void *to, const void *from, size_t bytes)
{
	size_t whole = (uintptr_t)to % ALIGNMENT == 0 && __builtin_cpu_supports("avx2")
	    ? bytes - bytes % BLOCK
	    : 0;
	if (whole > 0)
		copy_avx2(to, from, whole);
	memcpy((uint8_t *)to + whole, (const uint8_t *)from + whole, bytes - whole);
}
#else
void copy_past_cache(void *to, const void *from, size_t bytes)
{
	memcpy(to, from, bytes);
}
#endif
