#include "collectives/transport/shm_export.h"

#include <assert.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "collectives/transport/shm_memory.h"
#include "common/limits.h"

#define ALIGNMENT 8u

tr_status shm_exports_add(struct shm_exports *exports, int fd, const void *base, size_t bytes,
    bool stable)
{
	if (exports->count == TR_SHM_PIECES_MAX)
		return TR_ELIMIT;
	if (exports->count == exports->capacity) {
		uint32_t capacity = exports->capacity == 0 ? 8 : 2 * exports->capacity;
		struct shm_export *items = realloc(exports->items, capacity * sizeof(*items));
		if (items == NULL)
			return TR_ENOMEM;
		exports->items = items;
		exports->capacity = capacity;
	}
	exports->items[exports->count++] = (struct shm_export){ .fd = fd,
		.base = base,
		.bytes = bytes,
		.stable = stable };
	return TR_OK;
}

void shm_exports_finish(struct shm_exports *exports)
{
	free(exports->items);
	*exports = (struct shm_exports){ 0 };
}

static bool holds(const struct shm_export *item, const void *data, size_t bytes, uint64_t *offset)
{
	uintptr_t at = (uintptr_t)data, base = (uintptr_t)item->base;
	if (at < base || at - base > item->bytes || bytes > item->bytes - (at - base))
		return false;
	*offset = at - base;
	return *offset % ALIGNMENT == 0;
}

uint32_t shm_exports_find(struct shm_exports *exports, const void *data, size_t bytes,
    uint64_t *offset)
{
	if (exports->last < exports->count &&
	    holds(&exports->items[exports->last], data, bytes, offset))
		return exports->last;
	for (uint32_t i = 0; i < exports->count; i++)
		if (holds(&exports->items[i], data, bytes, offset))
			return exports->last = i;
	return UINT32_MAX;
}

/* ---- what a peer shows ---- */

struct shm_import {
	unsigned references;
	uint32_t count, capacity;
	uint64_t bytes; /* of address space */
	struct shm_piece {
		void *base;
		size_t bytes;
		bool stable;
	} * pieces;
};

struct shm_import *shm_import_create(void)
{
	struct shm_import *import = calloc(1, sizeof(*import));
	if (import != NULL)
		import->references = 1;
	return import;
}

struct shm_import *shm_import_hold(struct shm_import *import)
{
	import->references++;
	return import;
}

void shm_import_release(struct shm_import *import)
{
	if (import == NULL)
		return;
	assert(import->references > 0);
	if (--import->references > 0)
		return;
	for (uint32_t i = 0; i < import->count; i++)
		(void)munmap(import->pieces[i].base, import->pieces[i].bytes);
	free(import->pieces);
	free(import);
}

static tr_status import_room(struct shm_import *import, uint64_t bytes, struct tr_error *error)
{
	if (import->count == TR_SHM_PIECES_MAX)
		return tr_error_set(error, TR_EPROTO, "more than %u pieces of memory",
		    TR_SHM_PIECES_MAX);
	if (bytes > TR_SHM_BYTES_MAX - import->bytes)
		return tr_error_set(error, TR_EPROTO, "more than %llu bytes of memory",
		    (unsigned long long)TR_SHM_BYTES_MAX);
	if (import->count < import->capacity)
		return TR_OK;
	uint32_t capacity = import->capacity == 0 ? 8 : 2 * import->capacity;
	struct shm_piece *pieces = realloc(import->pieces, capacity * sizeof(*pieces));
	if (pieces == NULL)
		return tr_error_set(error, TR_ENOMEM, "no memory");
	import->pieces = pieces;
	import->capacity = capacity;
	return TR_OK;
}

tr_status shm_import_add(struct shm_import *import, int fd, uint64_t bytes, bool stable,
    struct tr_error *error)
{
	void *base;
	tr_status st = import_room(import, bytes, error);
	if (st == TR_OK)
		st = shm_memory_map(fd, bytes, false, &base, error);
	if (st != TR_OK)
		return st;
	import->pieces[import->count++] = (struct shm_piece){ .base = base,
		.bytes = bytes,
		.stable = stable };
	import->bytes += bytes;
	return TR_OK;
}

uint32_t shm_import_count(const struct shm_import *import)
{
	return import->count;
}

const void *shm_import_at(const struct shm_import *import, uint32_t number, uint64_t offset,
    size_t bytes, bool *stable)
{
	if (number >= import->count)
		return NULL;
	const struct shm_piece *piece = &import->pieces[number];
	if (offset > piece->bytes || bytes > piece->bytes - offset || offset % ALIGNMENT != 0)
		return NULL;
	*stable = piece->stable;
	return (const uint8_t *)piece->base + offset;
}
