#include "collectives/core/strided.h"
#include "common/error.h"

#include <inttypes.h>
#include <string.h>

/* Ascending strides; then every element is behind all that the smaller strides reach, or two are the same memory. The condition is
 * stricter than it must be only where no tensor is: rows that interleave with others of the same block. */
static bool strided_apart(const struct strided *layout)
{
	unsigned order[TR_BLOCK_RANK_MAX] = { 0 };
	uint64_t reach = 0; /* of the smaller strides: the last element they get to */

	for (unsigned i = 0; i < layout->rank; i++) {
		unsigned at = i;
		while (at > 0 && layout->strides[order[at - 1]] > layout->strides[i]) {
			order[at] = order[at - 1];
			at--;
		}
		order[at] = i;
	}
	for (unsigned i = 0; i < layout->rank; i++) {
		if (layout->strides[order[i]] <= reach)
			return false;
		reach += (layout->extents[order[i]] - 1) * layout->strides[order[i]];
	}
	return true;
}

static void strided_append(struct strided *layout, uint64_t extent, uint64_t stride)
{
	unsigned last = layout->rank -
	    1; /* of the rank that there is; not used when there is none */

	if (extent == 1)
		return;
	if (layout->rank > 0 && layout->strides[last] == extent * stride) {
		layout->extents[last] *= extent;
		layout->strides[last] = stride;
		return;
	}
	layout->extents[layout->rank] = extent;
	layout->strides[layout->rank] = stride;
	layout->rank++;
}

/* Products that do not fit are no block of any memory. */
static bool strided_measure(const struct tr_block *block, size_t element_bytes, uint64_t *elements,
    uint64_t *span)
{
	uint64_t bytes;

	*elements = *span = 1;
	for (unsigned i = 0; i < block->rank; i++)
		if (block->extents[i] == 0) {
			*elements = *span = 0;
			return true;
		}
	for (unsigned i = 0; i < block->rank; i++) {
		uint64_t reach;
		if (__builtin_mul_overflow(*elements, block->extents[i], elements) ||
		    __builtin_mul_overflow(block->extents[i] - 1, block->strides[i], &reach) ||
		    __builtin_add_overflow(*span, reach, span))
			return false;
	}
	return !__builtin_mul_overflow(*span, element_bytes, &bytes) && bytes <= SIZE_MAX / 2 &&
	    !__builtin_mul_overflow(*elements, element_bytes, &bytes) && bytes <= SIZE_MAX / 2;
}

/* As nearly all memory is. `layout` is zeroed. */
static bool strided_row(struct strided *layout, uint64_t count, size_t element_bytes)
{
	uint64_t bytes;

	if (__builtin_mul_overflow(count, element_bytes, &bytes) || bytes > SIZE_MAX / 2)
		return false;
	layout->elements = layout->span = count;
	if (count > 1)
		strided_append(layout, count, 1);
	return true;
}

tr_status strided_init(struct strided *layout, const struct tr_block *block, uint64_t count,
    size_t element_bytes, const char *what, struct tr_error *error)
{
	*layout = (struct strided){ 0 };
	if (!block && strided_row(layout, count, element_bytes))
		return TR_OK;
	if (!block)
		return tr_error_set(error, TR_EINVAL, "%s: a row that is larger than any memory",
		    what);
	if (block->rank > TR_BLOCK_RANK_MAX)
		return tr_error_set(error, TR_EINVAL, "%s: a block of rank %u, at most %d", what,
		    block->rank, TR_BLOCK_RANK_MAX);
	if (!strided_measure(block, element_bytes, &layout->elements, &layout->span))
		return tr_error_set(error, TR_EINVAL, "%s: a block that is larger than any memory",
		    what);
	if (layout->elements != count)
		return tr_error_set(error, TR_EINVAL,
		    "%s: a block of %" PRIu64 " elements where there are %" PRIu64, what,
		    layout->elements, count);
	for (unsigned i = 0; layout->elements > 0 && i < block->rank; i++)
		strided_append(layout, block->extents[i], block->strides[i]);
	if (!strided_apart(layout))
		return tr_error_set(error, TR_EINVAL,
		    "%s: elements of its block share memory or interleave", what);
	return TR_OK;
}

/* ---- rows ---- */

struct strided_walk {
	const struct strided *layout;
	uint64_t index[TR_BLOCK_RANK_MAX];
	uint64_t at; /* of the element that index names, in elements from the base */
};

static void strided_walk_to(struct strided_walk *walk, const struct strided *layout,
    uint64_t element)
{
	*walk = (struct strided_walk){ .layout = layout };
	for (unsigned i = layout->rank; i-- > 0;) {
		walk->index[i] = element % layout->extents[i];
		element /= layout->extents[i];
		walk->at += walk->index[i] * layout->strides[i];
	}
}

/* Goes on by `steps` elements, which end at or before the end of the row. */
static void strided_walk_on(struct strided_walk *walk, uint64_t steps)
{
	const struct strided *layout = walk->layout;

	for (unsigned i = layout->rank; i-- > 0;) {
		walk->index[i] += steps;
		walk->at += steps * layout->strides[i];
		if (walk->index[i] < layout->extents[i])
			return;
		walk->at -= layout->extents[i] * layout->strides[i];
		walk->index[i] = 0;
		steps = 1;
	}
}

static void strided_copy_row(uint8_t *to, size_t to_step, const uint8_t *from, size_t from_step,
    uint64_t elements, size_t element_bytes)
{
	if (to_step == element_bytes && from_step == element_bytes) {
		memcpy(to, from, elements * element_bytes);
		return;
	}
	for (uint64_t i = 0; i < elements; i++, to += to_step, from += from_step) {
		switch (element_bytes) {
		case 8:
			memcpy(to, from, 8);
			break;
		case 4:
			memcpy(to, from, 4);
			break;
		case 2:
			memcpy(to, from, 2);
			break;
		default:
			*to = *from;
		}
	}
}

static void strided_move(const struct strided *layout, size_t element_bytes, uint8_t *base,
    uint64_t first, uint64_t elements, uint8_t *row, bool gather)
{
	struct strided_walk walk;
	uint64_t row_elements = layout->rank > 0 ? layout->extents[layout->rank - 1] : 1;
	uint64_t step = layout->rank > 0 ? layout->strides[layout->rank - 1] : 1;

	strided_walk_to(&walk, layout, first);
	while (elements > 0) {
		uint64_t in_row = layout->rank > 0 ? walk.index[layout->rank - 1] : 0;
		uint64_t n = row_elements - in_row;
		if (n > elements)
			n = elements;
		uint8_t *place = base + walk.at * element_bytes;
		if (gather)
			strided_copy_row(row, element_bytes, place, step * element_bytes, n,
			    element_bytes);
		else
			strided_copy_row(place, step * element_bytes, row, element_bytes, n,
			    element_bytes);
		row += n * element_bytes;
		elements -= n;
		strided_walk_on(&walk, n);
	}
}

void strided_gather(const struct strided *layout, size_t element_bytes, const void *base,
    uint64_t first, uint64_t elements, void *row)
{
	strided_move(layout, element_bytes, (uint8_t *)(uintptr_t)base, first, elements, row, true);
}

void strided_scatter(const struct strided *layout, size_t element_bytes, void *base, uint64_t first,
    uint64_t elements, const void *row)
{
	strided_move(layout, element_bytes, base, first, elements, (uint8_t *)(uintptr_t)row, false);
}

/* ---- overlap ---- */

/* The same elements in the order of memory: larger strides first. strided_apart holds, so addresses only grow. */
static struct strided strided_sorted(const struct strided *layout)
{
	struct strided sorted = *layout;

	for (unsigned i = 1; i < sorted.rank; i++)
		for (unsigned k = i; k > 0 && sorted.strides[k] > sorted.strides[k - 1]; k--) {
			uint64_t extent = sorted.extents[k], stride = sorted.strides[k];
			sorted.extents[k] = sorted.extents[k - 1];
			sorted.strides[k] = sorted.strides[k - 1];
			sorted.extents[k - 1] = extent;
			sorted.strides[k - 1] = stride;
		}
	return sorted;
}

/* Elements that follow each other in memory from where the walk stands. */
static uint64_t strided_run(const struct strided *sorted)
{
	return sorted->rank > 0 && sorted->strides[sorted->rank - 1] == 1
	    ? sorted->extents[sorted->rank - 1]
	    : 1;
}

bool strided_overlap(const struct strided_place *a, const struct strided_place *b)
{
	if (a->layout->elements == 0 || b->layout->elements == 0 ||
	    a->base >= b->base + b->layout->span * b->element_bytes ||
	    b->base >= a->base + a->layout->span * a->element_bytes)
		return false;
	struct strided sorted[2] = { strided_sorted(a->layout), strided_sorted(b->layout) };
	const struct strided_place *place[2] = { a, b };
	uint64_t left[2] = { a->layout->elements, b->layout->elements };
	struct strided_walk walk[2];
	strided_walk_to(&walk[0], &sorted[0], 0);
	strided_walk_to(&walk[1], &sorted[1], 0);
	while (left[0] > 0 && left[1] > 0) {
		uintptr_t begin[2], end[2];
		uint64_t run[2];
		for (unsigned i = 0; i < 2; i++) {
			run[i] = strided_run(&sorted[i]);
			begin[i] = place[i]->base + walk[i].at * place[i]->element_bytes;
			end[i] = begin[i] + run[i] * place[i]->element_bytes;
		}
		if (begin[0] < end[1] && begin[1] < end[0])
			return true;
		unsigned behind = end[0] <= begin[1] ? 0 : 1;
		left[behind] -= run[behind];
		strided_walk_on(&walk[behind], run[behind]);
	}
	return false;
}
