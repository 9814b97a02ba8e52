/* Pure arithmetic of a ring: n places 0..n-1. A segment's path starts at one place and visits all n; the last of the
 * path seals, and the result goes around once more, from the last to the one before it.
 * Patarasuk & Yuan, "Bandwidth optimal all-reduce algorithms", JPDC 2009, with reduce-scatter and all-gather per segment.
 */
#ifndef TR_COLLECTIVES_CORE_RING_H
#define TR_COLLECTIVES_CORE_RING_H

#include <stdbool.h>
#include <stdint.h>

/* Where segment `segment` starts: the first place from segment % n on that contributes. n: nobody does. */
unsigned ring_start(uint32_t segment, unsigned n, const bool *contributes);
/* How far `place` is from the path's start: 0 begins, n - 1 seals. */
unsigned ring_distance(unsigned place, unsigned start, unsigned n);
unsigned ring_next(unsigned place, unsigned n);
unsigned ring_previous(unsigned place, unsigned n);
/* The result travels from distance n - 1 over 0, 1, ... to n - 2: does the one at `distance` pass it on? */
bool ring_passes_result(unsigned distance, unsigned n);

#endif
