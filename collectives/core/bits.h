/* Bitmaps in byte arrays, bit i in byte i / 8: as the wire has them. */
#ifndef TR_COLLECTIVES_CORE_BITS_H
#define TR_COLLECTIVES_CORE_BITS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

static inline size_t bits_bytes(size_t bits)
{
	return (bits + 7) / 8;
}

static inline bool bits_get(const uint8_t *map, size_t bit)
{
	return map[bit / 8] >> bit % 8 & 1;
}

static inline void bits_set(uint8_t *map, size_t bit)
{
	map[bit / 8] = (uint8_t)(map[bit / 8] | 1u << bit % 8);
}

static inline unsigned bits_count(const uint8_t *map, size_t bytes)
{
	unsigned count = 0;
	size_t i = 0;
	for (; i + sizeof(uint64_t) <= bytes; i += sizeof(uint64_t)) {
		uint64_t word;
		memcpy(&word, map + i, sizeof(word));
		for (; word != 0; word &= word - 1) /* few are set, mostly */
			count++;
	}
	for (; i < bytes; i++)
		for (unsigned rest = map[i]; rest != 0; rest &= rest - 1)
			count++;
	return count;
}

/* Is one set from bit `first` on? */
static inline bool bits_any_from(const uint8_t *map, size_t bytes, size_t first)
{
	size_t at = first / 8;
	if (at >= bytes)
		return false;
	unsigned any = map[at] >> first % 8;
	for (at++; at < bytes && at % sizeof(uint64_t) != 0; at++)
		any |= map[at];
	for (; at + sizeof(uint64_t) <= bytes; at += sizeof(uint64_t)) {
		uint64_t word;
		memcpy(&word, map + at, sizeof(word));
		any |= word != 0;
	}
	for (; at < bytes; at++)
		any |= map[at];
	return any != 0;
}

#endif
