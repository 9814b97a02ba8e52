/* Counter-based random numbers: a pure function of a key and a counter, so that no draw depends on
 * how many workers there are or on what was drawn before. Philox4x32-10 (Salmon et al., "Parallel
 * random numbers: as easy as 1, 2, 3", SC'11). Any thread.
 *
 *	struct rng_key key = rng_key(seed, epoch, sample);
 *	uint32_t out[4];
 *	rng_block(key, RANDOM_SHIFT, number, out);   // a stream for each use, so that no two draw the same (daemon/worker/random.h)
 */
#ifndef TR_COMMON_RNG_H
#define TR_COMMON_RNG_H

#include <stdint.h>

struct rng_key {
	uint32_t word[2];
};

struct rng_key rng_key(uint64_t seed, uint64_t a, uint64_t b);
void rng_block(struct rng_key key, uint64_t stream, uint64_t counter, uint32_t out[4]);
uint64_t rng_u64(struct rng_key key, uint64_t stream, uint64_t counter);
double rng_unit(struct rng_key key, uint64_t stream, uint64_t counter);   /* [0, 1) */
double rng_normal(struct rng_key key, uint64_t stream, uint64_t counter); /* mean 0, variance 1 */
/* Uniform in [0, bound); bound > 0. Unbiased to 2^-64. */
uint64_t rng_below(struct rng_key key, uint64_t stream, uint64_t counter, uint64_t bound);
/* The image of `index` under a pseudo-random permutation of [0, size): a 4-round Feistel network
 * with cycle walking. Sample order within an epoch is this. */
uint64_t rng_permute(struct rng_key key, uint64_t size, uint64_t index);

#endif
