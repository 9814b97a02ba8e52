#include "daemon/plan/owners.h"

#include <stdlib.h>

enum { LINE = 16 /* numbers of a line of memory */ };

/* Where piece `piece` begins. Quotient and remainder apart: no product wraps around. */
static size_t begin_of(size_t numbers, uint32_t of, uint32_t piece)
{
	size_t lines = (numbers + LINE - 1) / LINE;
	size_t line = lines / of * piece + lines % of * piece / of;

	return line * LINE < numbers ? line * LINE : numbers;
}

struct owners_range owners_piece(size_t numbers, uint32_t of, uint32_t piece)
{
	return (
	    struct owners_range){ begin_of(numbers, of, piece), begin_of(numbers, of, piece + 1) };
}

bool owners_owns(uint32_t owners, uint32_t of, uint32_t place, uint32_t piece)
{
	return (piece + of - place) % of < owners;
}

static unsigned add_range(struct owners_range *ranges, unsigned count, size_t first, size_t end)
{
	if (first < end)
		ranges[count++] = (struct owners_range){ first, end };
	return count;
}

unsigned owners_ranges(size_t numbers, const struct ranks_part *part, uint32_t owners,
    struct owners_range ranges[2])
{
	uint32_t of = part->of, place = part->place;

	if (of == 0)
		return 0;
	if (owners >= of)
		return add_range(ranges, 0, 0, numbers);
	if (place + owners <= of)
		return add_range(ranges, 0, begin_of(numbers, of, place),
		    begin_of(numbers, of, place + owners));
	unsigned count = add_range(ranges, 0, 0, begin_of(numbers, of, place + owners - of));
	return add_range(ranges, count, begin_of(numbers, of, place), numbers);
}

/* ---- moves ---- */

/* Where what peer `who` holds of the shard's moments from `at` on ends; `at` itself: it does not hold that. */
static size_t held_until(const struct ranks *r, uint32_t owners, uint32_t who, uint32_t shard,
    size_t numbers, size_t at)
{
	struct owners_range held[2];

	if (r->peers[who].shard != shard)
		return at;
	unsigned count = owners_ranges(numbers, &r->peers[who].part, owners, held);
	for (unsigned i = 0; i < count; i++)
		if (held[i].first <= at && at < held[i].end)
			return held[i].end;
	return at;
}

/* Where the next of what `who` holds behind `at` begins; at most `end`. */
static size_t held_from(const struct ranks *r, uint32_t owners, uint32_t who, uint32_t shard,
    size_t numbers, struct owners_range range)
{
	struct owners_range held[2];
	unsigned count = r->peers[who].shard == shard
	    ? owners_ranges(numbers, &r->peers[who].part, owners, held)
	    : 0;

	for (unsigned i = 0; i < count; i++)
		if (held[i].first > range.first)
			return held[i].first < range.end ? held[i].first : range.end;
	return range.end;
}

static tr_status add_move(struct owners_plan *plan, const struct owners_move *move,
    struct tr_error *error)
{
	if (plan->count == plan->room) {
		size_t room = 2 * plan->room + 64;
		struct owners_move *grown = realloc(plan->moves, room * sizeof(*grown));
		if (grown == NULL)
			return tr_error_set(error, TR_ENOMEM,
			    "mesh: no memory for a plan of which moments go where");
		plan->moves = grown;
		plan->room = room;
	}
	plan->moves[plan->count++] = *move;
	plan->sends[move->from] += move->range.end - move->range.first;
	return TR_OK;
}

/* Who was a newcomer (newcomers.h) has all of it, where others have parts, and what it made of that is in question until it works: it gives what nobody else has. Else who has to send least so far. */
static bool gives_before(const struct owners_plan *plan, const struct ranks *r, uint32_t a,
    uint32_t b)
{
	bool whole = r->peers[a].part.of == 1, other_whole = r->peers[b].part.of == 1;

	return whole != other_whole ? other_whole : plan->sends[a] < plan->sends[b];
}

/* RANKS_NONE: nobody holds number `at`. */
static uint32_t sender_of(const struct owners_plan *plan, const struct ranks *r, uint32_t owners,
    uint32_t shard, size_t numbers, size_t at)
{
	uint32_t best = RANKS_NONE;

	for (uint32_t i = 0; i < r->count; i++)
		if (held_until(r, owners, i, shard, numbers, at) > at &&
		    (best == RANKS_NONE || gives_before(plan, r, i, best)))
			best = i;
	return best;
}

static size_t smaller(size_t a, size_t b)
{
	return a < b ? a : b;
}

tr_status owners_plan_add(struct owners_plan *plan, const struct ranks *r, uint32_t owners,
    uint32_t to, uint32_t shard, size_t numbers, struct owners_range range, struct tr_error *error)
{
	size_t at = range.first;

	while (at < range.end) {
		size_t own = held_until(r, owners, to, shard, numbers, at);
		if (own > at) {
			at = own;
			continue;
		}
		uint32_t from = sender_of(plan, r, owners, shard, numbers, at);
		if (from == RANKS_NONE) {
			if (shard < plan->lost) {
				plan->lost = shard;
				plan->lost_at = at;
			}
			return TR_OK;
		}
		size_t needed = held_from(r, owners, to, shard, numbers,
		    (struct owners_range){ at, range.end });
		size_t end = smaller(needed, held_until(r, owners, from, shard, numbers, at));
		tr_status status = add_move(plan,
		    &(struct owners_move){ from, to, shard, { at, end } }, error);
		if (status != TR_OK)
			return status;
		at = end;
	}
	return TR_OK;
}

tr_status owners_plan_next(struct owners_plan *plan, const struct ranks *r, uint32_t owners,
    const size_t *numbers, struct tr_error *error)
{
	tr_status status = TR_OK;

	for (uint32_t i = 0; i < r->count; i++) {
		if (r->peers[i].rank == RANKS_NONE)
			continue;
		uint32_t shard = ranks_shard(&r->mesh, r->peers[i].rank);
		struct ranks_part part = ranks_part(r, i);
		/* Piece by piece: so they come from several where several hold all of it. */
		for (uint32_t k = 0; k < owners && k < part.of && status == TR_OK; k++)
			status = owners_plan_add(plan, r, owners, i, shard, numbers[shard],
			    owners_piece(numbers[shard], part.of, (part.place + k) % part.of),
			    error);
	}
	return status;
}

void owners_plan_clear(struct owners_plan *plan)
{
	struct owners_move *moves = plan->moves;
	size_t room = plan->room;

	*plan = (struct owners_plan){ .moves = moves, .room = room, .lost = RANKS_NONE };
}

void owners_plan_finish(struct owners_plan *plan)
{
	free(plan->moves);
	*plan = (struct owners_plan){ .lost = RANKS_NONE };
}
