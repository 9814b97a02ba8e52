#include "collectives/core/cut.h"

#include <inttypes.h>

#include "common/error.h"
#include "common/limits.h"

/* Blocks have two sizes: the first `larger` of them have one element more. */
struct cut_blocks {
	uint64_t small;     /* elements of a smaller block */
	unsigned larger;    /* how many larger ones there are */
	uint64_t in_larger; /* segments of one */
	uint64_t in_small;
};

static struct cut_blocks cut_blocks(const struct cut *cut)
{
	struct cut_blocks b = { .small = cut->count / cut->blocks,
		.larger = (unsigned)(cut->count % cut->blocks) };

	b.in_larger = b.small / cut->segment_elements + 1;
	b.in_small = b.small / cut->segment_elements + (b.small % cut->segment_elements != 0);
	return b;
}

void tr_block_range(size_t count, unsigned contributors, unsigned index, size_t *first,
    size_t *elements)
{
	*first = *elements = 0;
	if (index >= contributors)
		return;
	size_t small = count / contributors, larger = count % contributors;
	*first = index * small + (index < larger ? index : larger);
	*elements = small + (index < larger);
}

tr_status cut_init(struct cut *cut, uint64_t count, uint32_t segment_elements, unsigned blocks,
    struct tr_error *error)
{
	*cut = (struct cut){ .count = count,
		.segment_elements = segment_elements,
		.blocks = count > 0 ? blocks : 0 };
	uint64_t segments = count / segment_elements +
	    (count % segment_elements != 0 || count == 0);
	if (cut->blocks > 0) {
		struct cut_blocks b = cut_blocks(cut);
		segments = b.larger * b.in_larger + (cut->blocks - b.larger) * b.in_small;
	}
	if (segments > TR_OP_SEGMENTS_MAX)
		return tr_error_set(error, TR_ELIMIT,
		    "%" PRIu64 " elements, at most %" PRIu64 " in one op", count,
		    (uint64_t)TR_OP_SEGMENTS_MAX * segment_elements);
	cut->segments = (uint32_t)segments;
	return TR_OK;
}

uint32_t cut_block(const struct cut *cut, uint32_t segment)
{
	if (cut->blocks == 0)
		return UINT32_MAX;
	struct cut_blocks b = cut_blocks(cut);
	if (segment < b.larger * b.in_larger)
		return (uint32_t)(segment / b.in_larger);
	return (uint32_t)(b.larger + (segment - b.larger * b.in_larger) / b.in_small);
}

static uint32_t cut_in_block(const struct cut *cut, uint32_t segment)
{
	if (cut->blocks == 0)
		return segment;
	struct cut_blocks b = cut_blocks(cut);
	if (segment < b.larger * b.in_larger)
		return (uint32_t)(segment % b.in_larger);
	return (uint32_t)((segment - b.larger * b.in_larger) % b.in_small);
}

uint32_t cut_rows(const struct cut *cut)
{
	struct cut_blocks b = cut_blocks(cut);

	return (uint32_t)(b.larger > 0 ? b.in_larger : b.in_small);
}

bool cut_at(const struct cut *cut, unsigned block, uint32_t row, uint32_t *segment)
{
	struct cut_blocks b = cut_blocks(cut);

	if (row >= (block < b.larger ? b.in_larger : b.in_small))
		return false;
	*segment = row +
	    (uint32_t)(block < b.larger ? block * b.in_larger
	                                : b.larger * b.in_larger + (block - b.larger) * b.in_small);
	return true;
}

static void cut_range(const struct cut *cut, uint32_t segment, size_t *first, size_t *elements)
{
	*first = 0;
	*elements = cut->count;
	if (cut->blocks > 0)
		tr_block_range(cut->count, cut->blocks, cut_block(cut, segment), first, elements);
}

uint64_t cut_first(const struct cut *cut, uint32_t segment)
{
	size_t first, elements;

	cut_range(cut, segment, &first, &elements);
	return first + (uint64_t)cut_in_block(cut, segment) * cut->segment_elements;
}

uint32_t cut_elements(const struct cut *cut, uint32_t segment)
{
	size_t first, elements;

	if (cut->segments == 1)
		return (uint32_t)cut->count;
	cut_range(cut, segment, &first, &elements);
	uint64_t left = elements - (uint64_t)cut_in_block(cut, segment) * cut->segment_elements;
	return left < cut->segment_elements ? (uint32_t)left : cut->segment_elements;
}

uint32_t cut_segment(const struct cut *cut, uint64_t element)
{
	if (cut->blocks == 0)
		return (uint32_t)(element / cut->segment_elements);
	struct cut_blocks b = cut_blocks(cut);
	uint64_t in_larger_ones = b.larger * (b.small + 1);
	if (element < in_larger_ones)
		return (uint32_t)(element / (b.small + 1) * b.in_larger +
		    element % (b.small + 1) / cut->segment_elements);
	element -= in_larger_ones;
	return (uint32_t)(b.larger * b.in_larger + element / b.small * b.in_small +
	    element % b.small / cut->segment_elements);
}
