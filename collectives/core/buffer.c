#include "collectives/core/buffer.h"

#include <assert.h>
#include <stdlib.h>

#define ALIGNMENT        64
#define POOL_SMALL_BYTES (64u << 10)

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

/* An op may have buffers of several sizes, as what was gathered and what that is encoded to: the newest that fits, and is not of the next size. Staging is kept by sizes (engine/staging.h), so what is held in a larger one would be
 * there twice. */
static struct group_buffer *pool_take(struct buffer_pool *pool, size_t bytes)
{
	size_t most = bytes + bytes / 2 + POOL_SMALL_BYTES;

	for (struct group_buffer **at = &pool->free; *at; at = &(*at)->next_free) {
		struct group_buffer *buffer = *at;
		if (buffer->capacity < bytes || buffer->capacity > most)
			continue;
		*at = buffer->next_free;
		pool->free_count--;
		pool->free_bytes -= buffer->capacity;
		return buffer;
	}
	return NULL;
}

struct group_buffer *buffer_get(struct buffer_pool *pool, size_t bytes)
{
	struct group_buffer *buffer = pool_take(pool, bytes);

	if (!buffer) {
		size_t capacity = (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
		buffer = pool_memory(pool, sizeof(*buffer) + capacity);
		if (!buffer)
			return NULL;
		buffer->capacity = capacity;
	}
	buffer->next_free = NULL;
	buffer->references = 1;
	buffer->at = buffer->data;
	buffer->outlet = NULL;
	buffer->landing = NULL;
	buffer->landed = buffer->revoked = false;
	pool->live++;
	return buffer;
}

void buffer_outlet_put(struct buffer_outlet *outlet)
{
	if (outlet && --outlet->references == 0)
		free(outlet);
}

void buffer_outlet_starve(struct buffer_outlet *outlet, bool starved)
{
	if (outlet->starved && !starved)
		outlet->pool->starved--;
	else if (starved && !outlet->starved)
		outlet->pool->starved++;
	outlet->starved = starved;
}

void buffer_outlet_add(struct buffer_outlet *outlet, struct group_buffer *buffer)
{
	if (buffer->outlet)
		return;
	buffer->outlet = outlet;
	outlet->references++;
	outlet->bytes += buffer->capacity;
}

static void pool_outlet_less(struct buffer_pool *pool, struct group_buffer *buffer)
{
	struct buffer_outlet *outlet = buffer->outlet;

	if (!outlet)
		return;
	outlet->bytes -= buffer->capacity;
	/* Half of it at once: a step for each buffer would look at all ops as often. */
	if (outlet->starved && outlet->bytes <= outlet->most / 2)
		pool->outlet_due = true;
	buffer->outlet = NULL;
	buffer_outlet_put(outlet);
}

/* So what no op has a use for any more does not stay. */
static void pool_drop_oldest(struct buffer_pool *pool)
{
	struct group_buffer **last = &pool->free, *oldest;

	while ((*last)->next_free)
		last = &(*last)->next_free;
	oldest = *last;
	*last = NULL;
	pool->free_count--;
	pool->free_bytes -= oldest->capacity;
	pool_free(pool, oldest);
}

void buffer_put(struct buffer_pool *pool, struct group_buffer *buffer)
{
	if (!buffer)
		return;
	assert(buffer->references > 0);
	if (--buffer->references > 0)
		return;
	pool->live--;
	pool_outlet_less(pool, buffer);
	if (buffer->capacity > BUFFER_POOL_BYTES_MAX) {
		pool_free(pool, buffer);
		return;
	}
	while (pool->free_count >= BUFFER_POOL_MAX ||
	    pool->free_bytes + buffer->capacity > BUFFER_POOL_BYTES_MAX)
		pool_drop_oldest(pool);
	buffer->next_free = pool->free;
	pool->free = buffer;
	pool->free_count++;
	pool->free_bytes += buffer->capacity;
}

void buffer_pool_finish(struct buffer_pool *pool)
{
	while (pool->free) {
		struct group_buffer *next = pool->free->next_free;
		pool_free(pool, pool->free);
		pool->free = next;
	}
	pool->free_count = 0;
	pool->free_bytes = 0;
}
