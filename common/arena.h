/* How large a worker's pieces of shared memory are: for the channel that makes them (collectives/engine/channel_worker.c), and for plans, which predict what a worker has. Pure. */
#ifndef TR_COMMON_ARENA_H
#define TR_COMMON_ARENA_H

#include <stdint.h>

#include "common/limits.h"

#define ARENA_HUGE_PAGE UINT64_C(0x200000) /* of x86 and of ARM with pages of 4 KiB */

/* The next one's, behind others of so many bytes together, for `need`. Each as large as all before it, so that a model has a few of them and not hundreds. */
static inline uint64_t arena_bytes(uint64_t before, uint64_t need)
{
	const uint64_t page = 4096, room = TR_CHANNEL_ARENA_BYTES_MOST - TR_CHANNEL_ARENA_BYTES;
	uint64_t size = TR_CHANNEL_ARENA_BYTES + (before < room ? before : room);
	return need > size ? (need + page - 1) & ~(page - 1) : size;
}

/* Where what ends at `used` of an arena of `size` is filled to: the end of its last huge page, which what comes next will use. */
static inline uint64_t arena_filled(uint64_t used, uint64_t size)
{
	uint64_t end = (used + ARENA_HUGE_PAGE - 1) & ~(ARENA_HUGE_PAGE - 1);
	return end < size ? end : size;
}

#endif
