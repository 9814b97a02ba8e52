/* What the kill matrix (test_group_kills.c) gives to each op, and what a codec makes of a sum: the reference. */
#ifndef TR_TESTS_KILL_REFERENCE_H
#define TR_TESTS_KILL_REFERENCE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "collectives/kernels/codec.h"

#define ELEMENTS      37 /* ten segments, the last one short; or one */
#define SEGMENT_BYTES 16

static inline int32_t input(unsigned peer, unsigned op, size_t element)
{
	return (int32_t)((peer * 7 + op * 3 + element * 5) % 61) - 20;
}

/* What a ring quantises at each hop has bits of its own. But equal numbers of a segment are nearly exact in each codec (the scale is rounded to eight
 * bits), so a contribution that is lost or counted twice, each 1 to 1.35, shows. */
#define NEARLY 0.3f
static inline float near_input(unsigned peer)
{
	return 1 + 0.05f * (float)(peer % 8);
}

static inline void check_nearly(float got, const uint64_t *set, size_t count)
{
	float sum = 0;
	for (size_t i = 0; i < count; i++)
		sum += near_input((unsigned)set[i] - 1);
	assert_true(got > sum - NEARLY && got < sum + NEARLY);
}

/* What a tree of any shape gives: decode(Q(sum of decode(Q(x)) by ascending peer)), of a segment of so many elements. */
static inline float coded_reference(enum tr_codec codec, size_t per_segment, size_t e,
    const uint64_t *set, size_t count)
{
	size_t first = e / per_segment * per_segment;
	size_t n = ELEMENTS - first < per_segment ? ELEMENTS - first : per_segment;
	float x[ELEMENTS], sum[ELEMENTS];
	uint8_t wire[256];
	assert_true(codec_bytes(codec, n) <= sizeof(wire));
	for (size_t i = 0; i < count; i++) {
		for (size_t k = 0; k < n; k++)
			x[k] = (float)input((unsigned)set[i] - 1, 3, first + k) / 3;
		codec_encode(codec, wire, x, n);
		if (i == 0)
			codec_decode(codec, sum, wire, n);
		else
			codec_decode_combine(codec, TR_SUM, sum, wire, n);
	}
	codec_encode(codec, wire, sum, n);
	codec_decode(codec, sum, wire, n);
	return sum[e - first];
}

#endif
