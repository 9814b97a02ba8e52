/* Staging for sums under way: reference-counted, kept for the next segment when free. One thread. */
#ifndef TR_COLLECTIVES_CORE_BUFFER_H
#define TR_COLLECTIVES_CORE_BUFFER_H

#include <stdbool.h>
#include <stddef.h>

#include "collectives/core/group.h"
#include "common/digest.h"

#define BUFFER_POOL_MAX 64 /* free buffers kept; more go back to where they came from */

struct op;
struct op_segment;

struct group_buffer {
	struct group_buffer *next_free;
	unsigned references;
	size_t capacity;
	/* landing.c: */
	void *at;                    /* where its bytes go: `data`, or the op's memory */
	struct op_segment *landing;  /* whose result goes there; NULL: not, or not any more */
	struct group_buffer *beside; /* the next in group_core.landings */
	bool landed, revoked;
	/* Of what came into the op's memory, as far as the transport says. */
	struct tr_digest_stream hash;
	_Alignas(64) unsigned char data[];
};

struct buffer_pool {
	struct group_buffer *free;
	unsigned free_count;
	struct group_memory memory; /* zeroed: the allocator's */
	size_t live;    /* handed out and not given back: zero when a core is destroyed */
	struct op *ops; /* likewise kept: a round's go all at once (op.c) */
	unsigned op_count;
};

/* One reference; NULL: out of memory. */
struct group_buffer *buffer_get(struct buffer_pool *pool, size_t bytes);
void buffer_put(struct buffer_pool *pool, struct group_buffer *buffer); /* accepts NULL */
void buffer_pool_finish(struct buffer_pool *pool);

#endif
