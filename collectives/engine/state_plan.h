/* Which piece of a state comes from whom. Pure: no I/O, no clock; one thread.
 *
 * A state is cut into chunks of TR_STATE_CHUNK_BYTES, tensor by tensor, the last of each as long as it is. All members that hold the
 * state after a round hold the same bits, so a joiner asks several of them for ranges of chunks. Each sends its range in order. Who is done gets
 * what nobody was asked for, else the latter half of the longest rest of another one, which is told to end earlier: so all end at about the
 * same time however unequal their links are (the segments of download managers, aria2 for one). A few chunks are not worth that, unless nothing
 * ever came of who was asked for them: who has sent gets them all. What has come is kept whoever it came from: a donor that dies costs its rest,
 * not the transfer.
 *
 *	struct state_map map;
 *	struct state_plan plan;
 *	if (state_map_make(&map, tensors, count) && state_plan_make(&plan, state_map_chunks(&map), map.chunk_bytes)) {
 *		struct state_source *source = state_plan_add(&plan, peer), *robbed;
 *		if (state_plan_assign(&plan, source, &robbed)) // ask `peer` for source->next to source->end; tell robbed->end
 *			...
 *		state_plan_got(&plan, source, state_map_index(&map, tensor, offset, bytes));
 *	}
 */
#ifndef TR_COLLECTIVES_ENGINE_STATE_PLAN_H
#define TR_COLLECTIVES_ENGINE_STATE_PLAN_H

#include <stdbool.h>
#include <stdint.h>

#include "common/limits.h"

#define STATE_NO_CHUNK UINT64_MAX

struct state_map {
	unsigned tensors;
	uint64_t *first;      /* chunk of each tensor; [tensors]: how many there are */
	uint64_t *bytes;      /* of each tensor */
	uint64_t chunk_bytes; /* of one in the mean: many are short where tensors are small */
};

struct state_chunk {
	unsigned tensor;
	uint64_t offset;
	uint32_t bytes;
};

/* false: no memory. */
bool state_map_make(struct state_map *map, const uint64_t *bytes, unsigned tensors);
void state_map_finish(struct state_map *map);
uint64_t state_map_chunks(const struct state_map *map);
/* index < state_map_chunks. */
struct state_chunk state_map_at(const struct state_map *map, uint64_t index);
/* STATE_NO_CHUNK: it is none. */
uint64_t state_map_index(const struct state_map *map, const struct state_chunk *chunk);

struct state_source {
	uint64_t peer;
	uint64_t next, end; /* asked of it and not come yet; equal: nothing */
	bool heard;         /* something came of it, ever */
};

struct state_plan {
	uint64_t chunks, missing;
	uint64_t chunk_bytes; /* state_map */
	uint8_t *have;        /* a bit for each */
	struct state_source sources[TR_STATE_DONORS_MAX];
	unsigned count;
};

/* false: no memory. */
bool state_plan_make(struct state_plan *plan, uint64_t chunks, uint64_t chunk_bytes);
void state_plan_finish(struct state_plan *plan);
/* NULL: not one of them. */
struct state_source *state_plan_find(struct state_plan *plan, uint64_t peer);
/* NULL: there are TR_STATE_DONORS_MAX. Pointers to others stay. */
struct state_source *state_plan_add(struct state_plan *plan, uint64_t peer);
/* It has a range now: one that is nobody's, or of `robbed` (else NULL), whose end is less than it was, maybe its `next`: nothing is left to it.
 * false: nothing to give. What it had before is nobody's. */
bool state_plan_assign(struct state_plan *plan, struct state_source *source,
    struct state_source **robbed);
/* What it was asked for and has not come is nobody's. */
void state_plan_release(struct state_source *source);
/* false: it was here already. `source`: from whom. */
bool state_plan_got(struct state_plan *plan, struct state_source *source, uint64_t chunk);
/* Those from `first` to before `end` are of no use: they are missing again. */
void state_plan_spoilt(struct state_plan *plan, uint64_t first, uint64_t end);

#endif
