/* How an op is cut into segments, and whose block each of them is. Pure arithmetic.
 *
 * An op in one piece (all-reduce, broadcast, ...) is cut every segment_elements. One of blocks (reduce-scatter, all-gather) is cut at the
 * bounds of its contributors' blocks too, so that each segment belongs to one of them.
 */
#ifndef TR_COLLECTIVES_CORE_CUT_H
#define TR_COLLECTIVES_CORE_CUT_H

#include <stdbool.h>
#include <stdint.h>

#include "collectives/coll.h"

struct cut {
	uint64_t count;
	uint32_t segment_elements, segments;
	unsigned blocks; /* 0: one piece */
};

/* `blocks`: contributors whose blocks it has, 0: one piece. An op without elements has one empty segment, in one piece: its signature is
 * compared like any other's. TR_ELIMIT: more segments than an op may have. */
tr_status cut_init(struct cut *cut, uint64_t count, uint32_t segment_elements, unsigned blocks,
    struct tr_error *error);

uint64_t cut_first(const struct cut *cut, uint32_t segment); /* element of the op */
uint32_t cut_elements(const struct cut *cut, uint32_t segment);
/* Contributor whose block it is; UINT32_MAX: in one piece. */
uint32_t cut_block(const struct cut *cut, uint32_t segment);
/* Segments of the longest block, and the one at a place of a block; false: that block is shorter. Only of an op of blocks. */
uint32_t cut_rows(const struct cut *cut);
bool cut_at(const struct cut *cut, unsigned block, uint32_t row, uint32_t *segment);
/* In which segment is this element (< count)? */
uint32_t cut_segment(const struct cut *cut, uint64_t element);

#endif
