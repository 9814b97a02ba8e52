#include "common/rng.h"

#include <assert.h>
#include <math.h>

static uint64_t mix(uint64_t x)
{
	/* splitmix64 finaliser (Steele et al., OOPSLA'14). */
	x += 0x9e3779b97f4a7c15u;
	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
	return x ^ (x >> 31);
}

struct rng_key rng_key(uint64_t seed, uint64_t a, uint64_t b)
{
	uint64_t h = mix(mix(mix(seed) ^ a) ^ b);
	return (struct rng_key){ { (uint32_t)h, (uint32_t)(h >> 32) } };
}

void rng_block(struct rng_key key, uint64_t stream, uint64_t counter, uint32_t out[4])
{
	uint32_t c[4] = { (uint32_t)counter, (uint32_t)(counter >> 32), (uint32_t)stream,
		(uint32_t)(stream >> 32) };
	uint32_t k0 = key.word[0], k1 = key.word[1];
	for (int round = 0; round < 10; round++) {
		uint64_t p0 = (uint64_t)0xd2511f53u * c[0];
		uint64_t p1 = (uint64_t)0xcd9e8d57u * c[2];
		uint32_t n0 = (uint32_t)(p1 >> 32) ^ c[1] ^ k0;
		uint32_t n2 = (uint32_t)(p0 >> 32) ^ c[3] ^ k1;
		c[1] = (uint32_t)p1;
		c[3] = (uint32_t)p0;
		c[0] = n0;
		c[2] = n2;
		k0 += 0x9e3779b9u;
		k1 += 0xbb67ae85u;
	}
	for (int i = 0; i < 4; i++)
		out[i] = c[i];
}

uint64_t rng_u64(struct rng_key key, uint64_t stream, uint64_t counter)
{
	uint32_t out[4];
	rng_block(key, stream, counter, out);
	return (uint64_t)out[1] << 32 | out[0];
}

double rng_unit(struct rng_key key, uint64_t stream, uint64_t counter)
{
	return (double)(rng_u64(key, stream, counter) >> 11) * 0x1p-53;
}

double rng_normal(struct rng_key key, uint64_t stream, uint64_t counter)
{
	uint32_t out[4];
	rng_block(key, stream, counter, out);
	/* Box-Muller; u1 in (0, 1] keeps the logarithm finite. */
	double u1 = ((double)out[0] + 1.0) * 0x1p-32;
	double u2 = (double)((uint64_t)out[2] << 32 | out[1]) * 0x1p-64;
	return sqrt(-2.0 * log(u1)) * cos(6.283185307179586 * u2);
}

uint64_t rng_below(struct rng_key key, uint64_t stream, uint64_t counter, uint64_t bound)
{
	assert(bound > 0);
	__extension__ typedef unsigned __int128 wide;
	return (uint64_t)(((wide)rng_u64(key, stream, counter) * bound) >> 64);
}

uint64_t rng_permute(struct rng_key key, uint64_t size, uint64_t index)
{
	assert(index < size);
	unsigned half = 1;
	while (half < 32 && ((uint64_t)1 << (2 * half)) < size)
		half++;
	uint64_t mask = ((uint64_t)1 << half) - 1;
	do {
		uint64_t left = index >> half, right = index & mask;
		for (uint64_t round = 0; round < 4; round++) {
			uint64_t next = left ^ (rng_u64(key, round, right) & mask);
			left = right;
			right = next;
		}
		index = left << half | right;
	} while (index >= size);
	return index;
}
