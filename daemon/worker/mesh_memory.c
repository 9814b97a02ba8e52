#include "daemon/worker/mesh_memory.h"

#include <assert.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

void mesh_memory_init(tr_group *group, struct mesh_memory *memory)
{
	*memory = (struct mesh_memory){ .group = group };
}

void mesh_memory_finish(struct mesh_memory *memory)
{
	free(memory->areas);
	*memory = (struct mesh_memory){ .group = memory->group };
}

/* The smallest that is large enough: a larger one may be asked for later. */
static struct mesh_memory_area *find_free(struct mesh_memory *memory, size_t bytes)
{
	struct mesh_memory_area *best = NULL;
	for (size_t i = 0; i < memory->count; i++) {
		struct mesh_memory_area *area = &memory->areas[i];
		if (!area->taken && area->bytes >= bytes &&
		    (best == NULL || area->bytes < best->bytes))
			best = area;
	}
	return best;
}

static struct mesh_memory_area *add(struct mesh_memory *memory, size_t bytes)
{
	if (memory->count == memory->room) {
		size_t room = 2 * memory->room + 16;
		struct mesh_memory_area *grown = realloc(memory->areas, room * sizeof(*grown));
		if (grown == NULL)
			return NULL;
		memory->areas = grown;
		memory->room = room;
	}
	void *data = tr_alloc_sparse(memory->group, bytes);
	if (data == NULL)
		return NULL;
	memory->areas[memory->count] = (struct mesh_memory_area){ data, bytes, false };
	return &memory->areas[memory->count++];
}

void *mesh_memory_take(struct mesh_memory *memory, size_t bytes)
{
	struct mesh_memory_area *area = find_free(memory, bytes);
	if (area == NULL)
		area = add(memory, bytes);
	if (area == NULL)
		return NULL;
	area->taken = true;
	return area->data;
}

/* Whole pages are the system's again and read as zeros; so do the ends, and all of it where the system cannot take shared memory back. */
void mesh_memory_clear(void *data, size_t bytes)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	char *begin = data, *end = begin + bytes;
	char *first = begin + (page - (uintptr_t)begin % page) % page;
	char *last = end - (uintptr_t)end % page;
	if (first >= last || madvise(first, (size_t)(last - first), MADV_REMOVE) != 0) {
		memset(begin, 0, bytes);
		return;
	}
	memset(begin, 0, (size_t)(first - begin));
	memset(last, 0, (size_t)(end - last));
}

void mesh_memory_give(struct mesh_memory *memory, void *data)
{
	size_t i = 0;
	if (data == NULL)
		return;
	while (i < memory->count && memory->areas[i].data != data)
		i++;
	assert(i < memory->count && memory->areas[i].taken);
	memory->areas[i].taken = false;
	mesh_memory_clear(data, memory->areas[i].bytes);
}

size_t mesh_memory_bytes(const struct mesh_memory *memory)
{
	size_t bytes = 0;
	for (size_t i = 0; i < memory->count; i++)
		bytes += memory->areas[i].bytes;
	return bytes;
}
