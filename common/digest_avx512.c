/* Nearly twice as fast as the library's own AVX-512, whose additions to the one accumulator wait for each other: within a block the
 * products and the data themselves are added up in two chains each, and the data's neighbours are exchanged once, of the sum.
 */
#include "common/digest_blocks.h"

#ifdef __AVX512F__
#include <immintrin.h>

#define STRIPES     (DIGEST_BLOCK_BYTES / XXH_STRIPE_LEN)
#define AHEAD_BYTES 2048 /* are asked of memory before they are read */

/* Of each 64 bits the lower half times the upper one. */
static inline __m512i halves_product(__m512i x)
{
	return _mm512_mul_epu32(x, _mm512_srli_epi64(x, 32));
}

/* XXH3_scrambleAcc. */
static inline __m512i scramble(__m512i lanes, __m512i key)
{
	const __m512i prime = _mm512_set1_epi32((int)XXH_PRIME32_1);
	__m512i x = _mm512_xor_si512(_mm512_xor_si512(lanes, _mm512_srli_epi64(lanes, 47)), key);
	__m512i upper = _mm512_mul_epu32(_mm512_srli_epi64(x, 32), prime);
	return _mm512_add_epi64(_mm512_mul_epu32(x, prime), _mm512_slli_epi64(upper, 32));
}

static __m512i add_block(__m512i lanes, const uint8_t *data, const __m512i keys[STRIPES])
{
	__m512i products[2] = { lanes, _mm512_setzero_si512() };
	__m512i sums[2] = { _mm512_setzero_si512(), _mm512_setzero_si512() };
#pragma GCC unroll 16
	for (unsigned i = 0; i < STRIPES; i++) {
		__m512i stripe = _mm512_loadu_si512(data + (size_t)i * XXH_STRIPE_LEN);
		_mm_prefetch((const char *)data + (size_t)i * XXH_STRIPE_LEN + AHEAD_BYTES,
		    _MM_HINT_T0);
		__m512i product = halves_product(_mm512_xor_si512(stripe, keys[i]));
		products[i % 2] = _mm512_add_epi64(products[i % 2], product);
		sums[i % 2] = _mm512_add_epi64(sums[i % 2], stripe);
	}
	__m512i sum = _mm512_shuffle_epi32(_mm512_add_epi64(sums[0], sums[1]), _MM_PERM_BADC);
	return _mm512_add_epi64(_mm512_add_epi64(products[0], products[1]), sum);
}
#endif

bool digest_avx512(uint64_t lanes[DIGEST_LANES], const void *data, size_t blocks)
{
#ifdef __AVX512F__
	if (!__builtin_cpu_supports("avx512f"))
		return false;
	const uint8_t *at = data;
	__m512i state = _mm512_load_si512(lanes);
	__m512i last = _mm512_loadu_si512(XXH3_kSecret + sizeof(XXH3_kSecret) - XXH_STRIPE_LEN);
	__m512i keys[STRIPES];
	for (unsigned i = 0; i < STRIPES; i++)
		keys[i] = _mm512_loadu_si512(XXH3_kSecret + (size_t)i * XXH_SECRET_CONSUME_RATE);
	for (; blocks > 0; blocks--, at += DIGEST_BLOCK_BYTES)
		state = scramble(add_block(state, at, keys), last);
	_mm512_store_si512(lanes, state);
	return true;
#else
	(void)lanes, (void)data, (void)blocks;
	return false;
#endif
}
