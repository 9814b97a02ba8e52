#include "collectives/engine/staging.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "collectives/transport/board.h"
#include "collectives/transport/shm_memory.h"

#define ALIGNMENT 64u

struct staging_free {
	struct staging_free *next;
};

void staging_init(struct staging *staging)
{
	void *base;
	*staging = (struct staging){ .fd = -1 };
	if (shm_memory_create_shown("traind-staging", STAGING_BYTES, &staging->fd, &base, NULL) !=
	    TR_OK)
		return;
	staging->base = base;
	staging->used = STAGING_BOARD_AT + sizeof(struct board);
}

struct board *staging_board(const struct staging *staging)
{
	return staging->base == NULL ? NULL
	                             : (struct board *)(void *)(staging->base + STAGING_BOARD_AT);
}

void staging_say_view(struct staging *staging, uint64_t view)
{
	if (staging->base == NULL)
		return;
	atomic_store_explicit((_Atomic uint64_t *)(void *)staging->base, view, memory_order_relaxed);
	atomic_thread_fence(
	    memory_order_seq_cst); /* what is written to lent memory comes after it */
}

bool staging_says_later(const void *head, uint64_t view)
{
	atomic_thread_fence(memory_order_acquire); /* what was read of lent memory comes before it */
	return atomic_load_explicit((const _Atomic uint64_t *)head, memory_order_relaxed) > view;
}

void staging_finish(struct staging *staging)
{
	if (staging->base != NULL)
		(void)munmap(staging->base, STAGING_BYTES);
	if (staging->fd >= 0)
		(void)close(staging->fd);
	*staging = (struct staging){ .fd = -1 };
}

static struct staging_class *class_of(struct staging *staging, size_t bytes)
{
	for (unsigned i = 0; i < staging->class_count; i++)
		if (staging->classes[i].bytes == bytes)
			return &staging->classes[i];
	if (staging->class_count == STAGING_CLASSES_MAX)
		return NULL;
	staging->classes[staging->class_count] = (struct staging_class){ .bytes = bytes };
	return &staging->classes[staging->class_count++];
}

static size_t rounded(size_t bytes)
{
	return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

void *staging_get(void *arg, size_t bytes)
{
	struct staging *staging = arg;
	bytes = rounded(bytes);
	struct staging_class *class = staging->base != NULL ? class_of(staging, bytes) : NULL;
	if (class != NULL && class->free != NULL) {
		struct staging_free *memory = class->free;
		class->free = memory->next;
		return memory;
	}
	if (class == NULL || bytes > STAGING_BYTES - staging->used)
		return aligned_alloc(ALIGNMENT, bytes);
	void *memory = staging->base + staging->used;
	staging->used += bytes;
	return memory;
}

void staging_put(void *arg, void *memory, size_t bytes)
{
	struct staging *staging = arg;
	uintptr_t at = (uintptr_t)memory, base = (uintptr_t)staging->base;
	if (base == 0 || at < base || at - base >= STAGING_BYTES) {
		free(memory);
		return;
	}
	/* The class is there: it was made when this was handed out. */
	struct staging_class *class = class_of(staging, rounded(bytes));
	struct staging_free *freed = memory;
	freed->next = class->free;
	class->free = freed;
}
