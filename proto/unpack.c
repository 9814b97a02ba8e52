#include "proto/unpack.h"

#include <stdlib.h>

/* Honest messages need about three times their size, and a little for themselves. */
#define BUDGET_FACTOR 16
#define BUDGET_LEAST  (64u << 10)

static void *allocate(void *data, size_t size)
{
	struct unpack_budget *budget = data;
	if (size > budget->left)
		return NULL;
	budget->left -= size;
	return malloc(size);
}

static void release(void *data, void *memory)
{
	(void)data;
	free(memory);
}

ProtobufCAllocator *unpack_budget(struct unpack_budget *budget, size_t bytes)
{
	budget->left = BUDGET_LEAST + bytes * BUDGET_FACTOR;
	budget->allocator = (ProtobufCAllocator){ .alloc = allocate,
		.free = release,
		.allocator_data = budget };
	return &budget->allocator;
}
