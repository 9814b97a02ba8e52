/* A worker's tensors: memory that its engine sees too. */
#include <sys/mman.h>
#include <unistd.h>

#include "collectives/engine/channel_worker_internal.h"
#include "collectives/transport/shm_memory.h"
#include "common/arena.h"

#define ALIGNMENT 64u

/* A new arena: sealed, so that the engine need not fear that it shrinks under it. */
static struct arena *arena_add(struct channel_worker *worker, size_t bytes)
{
	void *base;
	int fd;
	if (worker->arena_count == TR_CHANNEL_ARENAS_MAX ||
	    shm_memory_create("traind-tensors", bytes, &fd, &base, NULL) != TR_OK)
		return NULL;
	uint64_t size = bytes;
	if (channel_worker_say(worker, CHANNEL_ARENA, &size, sizeof(size), NULL, 0, &fd, 1) !=
	    TR_OK) {
		(void)munmap(base, bytes);
		(void)close(fd);
		return NULL;
	}
	struct arena *arena = &worker->arenas[worker->arena_count++];
	*arena = (struct arena){ .base = base, .bytes = bytes, .fd = fd };
	return arena;
}

/* Few of them: each is a descriptor here, in the engine and on its way to every peer of this host. Sparse: what is not used costs nothing. */
static size_t arena_size(const struct channel_worker *worker, size_t need)
{
	uint64_t before = 0;
	for (unsigned i = 0; i < worker->arena_count; i++)
		before += worker->arenas[i].bytes;
	return (size_t)arena_bytes(before, need);
}

void channel_worker_part(struct channel_worker *worker)
{
	if (worker->private)
		return;
	worker->private = true;
	for (unsigned i = 0; i < worker->arena_count; i++)
		(void)mmap(worker->arenas[i].base, worker->arenas[i].bytes, PROT_READ | PROT_WRITE,
		    MAP_PRIVATE | MAP_FIXED | MAP_NORESERVE, worker->arenas[i].fd, 0);
}

/* In the last arena. */
static void *take(struct channel_worker *worker, size_t need)
{
	struct arena *arena = worker->arena_count > 0 ? &worker->arenas[worker->arena_count - 1]
	                                              : NULL;
	if (arena == NULL || arena->bytes - arena->used < need)
		arena = arena_add(worker, arena_size(worker, need));
	if (arena == NULL)
		return NULL;
	arena->used += need;
	return arena->base + arena->used - need;
}

void *channel_worker_alloc_sparse(struct channel_worker *worker, size_t bytes)
{
	if (bytes > SIZE_MAX / 4 || worker->private)
		return NULL;
	return take(worker,
	    bytes == 0 ? ALIGNMENT : (bytes + ALIGNMENT - 1) & ~(size_t)(ALIGNMENT - 1));
}

/* To the end of the last huge page, which what comes next will use. */
void *channel_worker_alloc(struct channel_worker *worker, size_t bytes)
{
	uint8_t *data = channel_worker_alloc_sparse(worker, bytes);
	if (data == NULL || bytes < SHM_HUGE_BYTES || worker->no_huge_pages)
		return data;
	const struct arena *arena = &worker->arenas[worker->arena_count - 1];
	size_t end = (size_t)arena_filled(arena->used, arena->bytes);
	worker->no_huge_pages = !shm_memory_fill(data, end - (size_t)(data - arena->base));
	return data;
}

tr_status channel_worker_locate(const struct channel_worker *worker, const void *data, size_t bytes,
    uint32_t *arena, uint64_t *offset)
{
	uintptr_t at = (uintptr_t)data;
	for (uint32_t i = 0; i < worker->arena_count; i++) {
		uintptr_t base = (uintptr_t)worker->arenas[i].base;
		size_t used = worker->arenas[i].used;
		if (at < base || at - base > used || bytes > used - (at - base))
			continue;
		*arena = i;
		*offset = at - base;
		return TR_OK;
	}
	return TR_EINVAL;
}
