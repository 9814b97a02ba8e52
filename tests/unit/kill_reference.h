/* What the kill matrix (test_group_kills.c) gives to each op, and what a codec makes of a sum along each way: the reference, by the plain
 * kernels. */
#ifndef TR_TESTS_KILL_REFERENCE_H
#define TR_TESTS_KILL_REFERENCE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "collectives/kernels/codec.h"
#include "collectives/kernels/plain.h"

#define ELEMENTS      37 /* ten segments, the last one short; or one */
#define SEGMENT_BYTES 16

static inline int32_t input(unsigned peer, unsigned op, size_t element)
{
	return (int32_t)((peer * 7 + op * 3 + element * 5) % 61) - 20;
}

#define REFERENCE_PEERS 8
#define REFERENCE_BYTES 256 /* of a segment, encoded or not */

/* A ring adds up a segment along a chain: `ring` (peers by place, all of which contribute) from the segment's own place on. */
static inline void reference_chain(const uint64_t *ring, size_t count, size_t segment,
    uint64_t *chain)
{
	for (size_t i = 0; i < count; i++)
		chain[i] = ring[(segment + i) % count];
}

/* The sum of rows of `n` encoded numbers, taken in this order by the plain kernels, as everybody decodes it. `hops`: each member of a chain
 * encodes what it passes on; else the whole sum alone is encoded. Of one row nothing is made. */
static inline void reference_sum(enum tr_codec codec, bool hops,
    const uint8_t (*rows)[REFERENCE_BYTES], size_t count, size_t n, float *sum)
{
	uint8_t encoded[REFERENCE_BYTES];

	plain_decode(codec, sum, rows[0], n);
	for (size_t i = 1; i < count; i++) {
		plain_decode_combine(codec, TR_SUM, sum, rows[i], n);
		if (!hops && i < count - 1)
			continue;
		plain_encode(codec, encoded, sum, n);
		plain_decode(codec, sum, encoded, n);
	}
}

static inline float coded_input(unsigned peer, size_t element)
{
	return (float)input(peer, 3, element) / 3;
}

/* A segment of the coded op, its elements from `first` on. `order`: peer ids. */
static inline void coded_reference(enum tr_codec codec, bool hops, size_t first, size_t n,
    const uint64_t *order, size_t count, float *sum)
{
	uint8_t rows[REFERENCE_PEERS][REFERENCE_BYTES];
	float x[ELEMENTS];

	assert_true(codec_bytes(codec, n) <= REFERENCE_BYTES && count <= REFERENCE_PEERS);
	for (size_t i = 0; i < count; i++) {
		for (size_t k = 0; k < n; k++)
			x[k] = coded_input((unsigned)order[i] - 1, first + k);
		plain_encode(codec, rows[i], x, n);
	}
	reference_sum(codec, hops, (const uint8_t(*)[REFERENCE_BYTES])rows, count, n, sum);
}

#endif
