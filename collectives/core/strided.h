/* Where the elements of an op lie in a caller's memory: one after the other, or strided (struct tr_block). Pure.
 *
 * Segments are pieces of the op's order (last index fastest); those of a contiguous layout are used where they are, those of a strided
 * one are gathered into staging and scattered back, a row at a time.
 */
#ifndef TR_COLLECTIVES_CORE_STRIDED_H
#define TR_COLLECTIVES_CORE_STRIDED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "collectives/coll.h"

/* Normal form: no extent is 1, no two neighbours could be one. */
struct strided {
	unsigned rank; /* 0: nothing, or one element */
	uint64_t extents[TR_BLOCK_RANK_MAX], strides[TR_BLOCK_RANK_MAX];
	uint64_t elements;
	uint64_t span; /* elements from the first to behind the last, in memory */
};

/* `block` NULL: `count` elements in a row. TR_EINVAL: it has another number of elements, some of them share memory, or it is larger than
 * any memory; elements of `element_bytes`. `what` begins the reason. */
tr_status strided_init(struct strided *layout, const struct tr_block *block, uint64_t count,
    size_t element_bytes, const char *what, struct tr_error *error);

/* In the op's order: columns without gaps between them are not. */
static inline bool strided_contiguous(const struct strided *layout)
{
	return layout->rank == 0 || (layout->rank == 1 && layout->strides[0] == 1);
}

/* Elements [first, first + elements) of the op's order, to or from a row of them. `base`: element (0, 0, ...). */
void strided_gather(const struct strided *layout, size_t element_bytes, const void *base,
    uint64_t first, uint64_t elements, void *row);
void strided_scatter(const struct strided *layout, size_t element_bytes, void *base, uint64_t first,
    uint64_t elements, const void *row);

/* Do two of them touch the same byte? Takes as long as they have rows, if they interleave. */
struct strided_place {
	const struct strided *layout;
	uintptr_t base;
	size_t element_bytes;
};
bool strided_overlap(const struct strided_place *a, const struct strided_place *b);

#endif
