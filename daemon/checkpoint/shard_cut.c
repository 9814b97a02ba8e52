#include "daemon/checkpoint/shard_cut.h"

#include <string.h>

enum { ALIGN = 16 }; /* numbers, as in a layout */

/* Its layers are those that are here, as if there were no others. */
static struct layout by_itself(const struct layout *whole)
{
	struct layout alone = *whole;
	uint32_t first = 0;

	for (uint32_t c = 0; c < alone.depth.chunks; c++) {
		alone.depth.layers[c].first = first;
		first += alone.depth.layers[c].count;
	}
	return alone;
}

static bool has_both_ends(const struct layout *layout)
{
	return !layout->config.untied && layout->depth.embedding && layout->depth.head;
}

size_t shard_cut_table_numbers(const struct layout *layout)
{
	size_t numbers = (size_t)layout->config.vocab * layout->config.width;

	return layout->config.untied ? 0 : (numbers + ALIGN - 1) / ALIGN * ALIGN;
}

tr_status shard_cut_init(const struct layout *whole, uint32_t parts, struct shard_cut *out,
    struct tr_error *error)
{
	struct layout alone = by_itself(whole);
	struct shard shard = { .size = parts, .depth = alone.depth };
	struct shard_cut cut = { .whole = whole, .parts = parts, .numbers = whole->count };

	if (whole->config.vocab % parts != 0)
		return tr_error_set(error, TR_EINVAL,
		    "model.vocab: found %u, allowed: a multiple of %u", whole->config.vocab, parts);
	tr_status status = shard_layout(&alone, &shard, &cut.part, error);
	if (status != TR_OK)
		return status;
	for (size_t i = 0; i < cut.part.tensor_count; i++)
		cut.part.tensors[i].number = i;
	if (has_both_ends(whole)) {
		cut.numbers += shard_cut_table_numbers(whole);
		cut.part.head = cut.part.count;
		cut.part.count += shard_cut_table_numbers(&cut.part);
	}
	*out = cut;
	return TR_OK;
}

void shard_cut_finish(struct shard_cut *cut)
{
	layout_finish(&cut->part);
	memset(cut, 0, sizeof(*cut));
}

size_t shard_cut_tensors(const struct shard_cut *cut)
{
	return cut->part.tensor_count + has_both_ends(cut->whole);
}

/* Queries, keys and values are three pieces in a cut into one part, too: sums over a part go piece by piece, and have one order then. */
static size_t three_sides(const struct shard_cut *cut, struct shard_piece pieces[SHARD_PIECES_MAX])
{
	const struct model_config *config = &cut->part.config;
	const size_t columns[] = { model_queries(config), model_keys(config), model_keys(config) };
	struct shard_piece all = pieces[0];

	for (size_t i = 0; i < SHARD_PIECES_MAX; i++) {
		pieces[i] = all;
		pieces[i].columns = columns[i];
		all.whole += columns[i];
		all.local += columns[i];
	}
	return SHARD_PIECES_MAX;
}

static size_t pieces_of(const struct shard_cut *cut, const struct shard *shard, size_t tensor,
    struct shard_piece pieces[SHARD_PIECES_MAX])
{
	size_t count = shard_pieces(cut->whole, &cut->part, shard, tensor, pieces);

	return count == 1 && cut->part.tensors[tensor].fused ? three_sides(cut, pieces) : count;
}

size_t shard_cut_pieces(const struct shard_cut *cut, uint32_t number, size_t tensor, bool gradients,
    struct shard_piece pieces[SHARD_PIECES_MAX])
{
	struct shard shard = { number, cut->parts, cut->part.depth };
	const struct model_config *config = &cut->part.config;
	size_t table = gradients ? cut->whole->count : cut->whole->tokens;

	if (tensor < cut->part.tensor_count)
		return pieces_of(cut, &shard, tensor, pieces);
	pieces[0] = (struct shard_piece){ config->vocab, config->width,
		table + (size_t)number * config->vocab * config->width, config->width,
		cut->part.head, config->width };
	return 1;
}

bool shard_cut_shared(const struct layout *layout, size_t tensor)
{
	static const enum layout_part shared[] = { LAYOUT_NORM1_W, LAYOUT_NORM1_B, LAYOUT_PROJ_B,
		LAYOUT_NORM2_W, LAYOUT_NORM2_B, LAYOUT_DOWN_B };
	size_t offset = layout->tensors[tensor].offset;
	size_t behind = layout->first_layer + layout->config.layers * layout->stride;

	if (offset == layout->positions || offset == layout->last_norm_w ||
	    offset == layout->last_norm_b)
		return true;
	if (offset < layout->first_layer || offset >= behind)
		return false;
	for (size_t i = 0; i < sizeof(shared) / sizeof(shared[0]); i++)
		if (layout->parts[shared[i]].offset ==
		    (offset - layout->first_layer) % layout->stride)
			return true;
	return false;
}
