#include "collectives/core/buffer.h"

#include <assert.h>
#include <stdlib.h>

#define ALIGNMENT 64

static struct group_buffer *pool_memory(const struct buffer_pool *pool, size_t bytes)
{
	return pool->memory.get ? pool->memory.get(pool->memory.arg, bytes)
	                        : aligned_alloc(ALIGNMENT, bytes);
}

static void pool_free(const struct buffer_pool *pool, struct group_buffer *buffer)
{
	if (pool->memory.put)
		pool->memory.put(pool->memory.arg, buffer, sizeof(*buffer) + buffer->capacity);
	else
		free(buffer);
}

struct group_buffer *buffer_get(struct buffer_pool *pool, size_t bytes)
{
	struct group_buffer *buffer = pool->free;

	if (buffer && buffer->capacity >= bytes) {
		pool->free = buffer->next_free;
		pool->free_count--;
	} else {
		size_t capacity = (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
		buffer = pool_memory(pool, sizeof(*buffer) + capacity);
		if (!buffer)
			return NULL;
		buffer->capacity = capacity;
	}
	buffer->next_free = NULL;
	buffer->references = 1;
	buffer->at = buffer->data;
	buffer->landing = NULL;
	buffer->landed = buffer->revoked = false;
	pool->live++;
	return buffer;
}

void buffer_put(struct buffer_pool *pool, struct group_buffer *buffer)
{
	if (!buffer)
		return;
	assert(buffer->references > 0);
	if (--buffer->references > 0)
		return;
	pool->live--;
	if (pool->free_count >= BUFFER_POOL_MAX) {
		pool_free(pool, buffer);
		return;
	}
	buffer->next_free = pool->free;
	pool->free = buffer;
	pool->free_count++;
}

void buffer_pool_finish(struct buffer_pool *pool)
{
	while (pool->free) {
		struct group_buffer *next = pool->free->next_free;
		pool_free(pool, pool->free);
		pool->free = next;
	}
	pool->free_count = 0;
}
