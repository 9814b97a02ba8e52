#include "collectives/engine/state_plan.h"

#include <stdlib.h>

#include "collectives/core/bits.h"

/* Less is not worth another request, and the chunks that are on their way and come twice. */
#define STEAL_BYTES ((uint64_t)2 << 20)

/* ---- the cut ---- */

bool state_map_make(struct state_map *map, const uint64_t *bytes, unsigned tensors)
{
	uint64_t all = 0;
	*map = (struct state_map){ .tensors = tensors };
	map->first = calloc(tensors + 1u, sizeof(*map->first));
	map->bytes = calloc(tensors + 1u, sizeof(*map->bytes));
	if (map->first == NULL || map->bytes == NULL) {
		state_map_finish(map);
		return false;
	}
	for (unsigned i = 0; i < tensors; i++) {
		map->bytes[i] = bytes[i];
		map->first[i + 1] = map->first[i] + bytes[i] / TR_STATE_CHUNK_BYTES +
		    (bytes[i] % TR_STATE_CHUNK_BYTES > 0);
		all += bytes[i];
	}
	map->chunk_bytes = all > 0 ? all / map->first[tensors] : 1;
	return true;
}

void state_map_finish(struct state_map *map)
{
	free(map->first);
	free(map->bytes);
	*map = (struct state_map){ 0 };
}

uint64_t state_map_chunks(const struct state_map *map)
{
	return map->first[map->tensors];
}

static struct state_chunk chunk_of(const struct state_map *map, unsigned tensor, uint64_t number)
{
	uint64_t offset = number * TR_STATE_CHUNK_BYTES, left = map->bytes[tensor] - offset;
	return (struct state_chunk){ tensor, offset,
		(uint32_t)(left < TR_STATE_CHUNK_BYTES ? left : TR_STATE_CHUNK_BYTES) };
}

struct state_chunk state_map_at(const struct state_map *map, uint64_t index)
{
	unsigned low = 0, high = map->tensors; /* first[low] <= index < first[high] */
	while (high - low > 1) {
		unsigned middle = low + (high - low) / 2;
		if (map->first[middle] <= index)
			low = middle;
		else
			high = middle;
	}
	return chunk_of(map, low, index - map->first[low]);
}

uint64_t state_map_index(const struct state_map *map, const struct state_chunk *chunk)
{
	if (chunk->tensor >= map->tensors || chunk->offset >= map->bytes[chunk->tensor] ||
	    chunk->offset % TR_STATE_CHUNK_BYTES != 0)
		return STATE_NO_CHUNK;
	uint64_t number = chunk->offset / TR_STATE_CHUNK_BYTES;
	if (chunk->bytes != chunk_of(map, chunk->tensor, number).bytes)
		return STATE_NO_CHUNK;
	return map->first[chunk->tensor] + number;
}

/* ---- who sends what ---- */

bool state_plan_make(struct state_plan *plan, uint64_t chunks, uint64_t chunk_bytes)
{
	*plan = (struct state_plan){ .chunks = chunks,
		.missing = chunks,
		.chunk_bytes = chunk_bytes };
	plan->have = calloc(1, bits_bytes(chunks) + 1);
	return plan->have != NULL;
}

/* A theft of fewer chunks is not worth it. */
static uint64_t steal_min(const struct state_plan *plan)
{
	return (STEAL_BYTES + plan->chunk_bytes - 1) / plan->chunk_bytes;
}

void state_plan_finish(struct state_plan *plan)
{
	free(plan->have);
	*plan = (struct state_plan){ 0 };
}

struct state_source *state_plan_find(struct state_plan *plan, uint64_t peer)
{
	for (unsigned i = 0; i < plan->count; i++)
		if (plan->sources[i].peer == peer)
			return &plan->sources[i];
	return NULL;
}

struct state_source *state_plan_add(struct state_plan *plan, uint64_t peer)
{
	if (plan->count == TR_STATE_DONORS_MAX)
		return NULL;
	plan->sources[plan->count] = (struct state_source){ .peer = peer };
	return &plan->sources[plan->count++];
}

void state_plan_release(struct state_source *source)
{
	source->next = source->end = 0;
}

/* What is here by now need not come. */
static void trim(const struct state_plan *plan, struct state_source *source)
{
	while (source->next < source->end && bits_get(plan->have, source->next))
		source->next++;
	while (source->next < source->end && bits_get(plan->have, source->end - 1))
		source->end--;
}

/* Of the range that holds it; `chunk` if none does. */
static uint64_t asked_until(const struct state_plan *plan, uint64_t chunk)
{
	for (unsigned i = 0; i < plan->count; i++)
		if (chunk >= plan->sources[i].next && chunk < plan->sources[i].end)
			return plan->sources[i].end;
	return chunk;
}

/* The run that is to come next of those that are missing and asked of nobody: from the first chunk on if that is one, as the joiner may need what was declared first
 * before anything else (state_gradual.c), or the longest. */
static struct state_source next_free(const struct state_plan *plan)
{
	struct state_source best = { 0 };
	uint64_t at = 0;
	while (at < plan->chunks) {
		uint64_t until = asked_until(plan, at);
		if (until > at || bits_get(plan->have, at)) {
			at = until > at ? until : at + 1;
			continue;
		}
		uint64_t first = at;
		while (at < plan->chunks && !bits_get(plan->have, at) && asked_until(plan, at) == at)
			at++;
		if (at - first > best.end - best.next) {
			best.next = first;
			best.end = at;
		}
		if (first == 0)
			break;
	}
	return best;
}

/* The longest; of those of whom nothing came, if `unheard`. NULL: nobody has any. */
static struct state_source *longest_rest(struct state_plan *plan, bool unheard)
{
	struct state_source *best = NULL;
	uint64_t most = 0;
	for (unsigned i = 0; i < plan->count; i++) {
		struct state_source *source = &plan->sources[i];
		trim(plan, source);
		uint64_t rest = source->end - source->next;
		if (rest <= most || (unheard && source->heard))
			continue;
		best = source;
		most = rest;
	}
	return best;
}

bool state_plan_assign(struct state_plan *plan, struct state_source *source,
    struct state_source **robbed)
{
	*robbed = NULL;
	state_plan_release(source);
	struct state_source range = next_free(plan);
	if (range.next < range.end) {
		uint64_t share = (plan->missing + plan->count - 1) / plan->count;
		source->next = range.next;
		source->end = range.end - range.next > share ? range.next + share : range.end;
		return true;
	}
	struct state_source *victim = longest_rest(plan, false);
	if (victim != NULL && victim->end - victim->next < steal_min(plan))
		victim = source->heard ? longest_rest(plan, true) : NULL;
	if (victim == NULL)
		return false;
	uint64_t rest = victim->end - victim->next;
	source->end = victim->end;
	source->next = victim->end = victim->next + (rest < steal_min(plan) ? 0 : (rest + 1) / 2);
	*robbed = victim;
	return true;
}

bool state_plan_got(struct state_plan *plan, struct state_source *source, uint64_t chunk)
{
	source->heard = true;
	if (chunk >= source->next && chunk < source->end)
		source->next = chunk + 1;
	if (bits_get(plan->have, chunk))
		return false;
	bits_set(plan->have, chunk);
	plan->missing--;
	return true;
}

void state_plan_spoilt(struct state_plan *plan, uint64_t first, uint64_t end)
{
	for (uint64_t chunk = first; chunk < end; chunk++) {
		plan->missing += bits_get(plan->have, chunk);
		plan->have[chunk / 8] = (uint8_t)(plan->have[chunk / 8] & ~(1u << chunk % 8));
	}
}
