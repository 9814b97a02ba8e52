/* to += what, as fast as this processor adds vectors: what the floors add with. */
#ifndef TR_TESTS_BENCH_PEERS_ADD_H
#define TR_TESTS_BENCH_PEERS_ADD_H

#include <stddef.h>

__attribute__((target_clones("avx512f", "avx2", "default"), optimize("O3"))) static void add(float
                                                                                                 *restrict to,
    const float *restrict what, size_t count)
{
	for (size_t i = 0; i < count; i++)
		to[i] += what[i];
}

#endif
