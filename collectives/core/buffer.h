/* Staging for sums under way: reference-counted, kept for the next segment when free. One thread. */
#ifndef TR_COLLECTIVES_CORE_BUFFER_H
#define TR_COLLECTIVES_CORE_BUFFER_H

#include <stdbool.h>
#include <stddef.h>

#include "collectives/core/group.h"
#include "common/digest.h"

/* Free buffers that are kept; more go back to where they came from. */
#define BUFFER_POOL_MAX       64
#define BUFFER_POOL_BYTES_MAX (4u << 20)

struct buffer_pool;
struct op;
struct op_segment;

/* Staging of what goes out of one broadcast, all-gather or send, its own and what it passes on (outlet.c). The op holds a reference, and each buffer that has not come back. */
struct buffer_outlet {
	struct buffer_pool *pool;
	size_t bytes; /* of those buffers */
	size_t most;  /* it has room below that; who was starved is told when half of it is back */
	unsigned references;
	bool starved; /* it has more to send, and waits for room */
};

struct group_buffer {
	struct group_buffer *next_free;
	unsigned references;
	size_t capacity;
	struct buffer_outlet *outlet; /* whose it is part of; NULL: nobody counts it */
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
	size_t free_bytes;
	struct group_memory memory; /* zeroed: the allocator's */
	size_t live;      /* handed out and not given back: zero when a core is destroyed */
	unsigned starved; /* outlets */
	bool outlet_due;  /* a source that was starved has room */
	struct op *ops;   /* likewise kept: a round's go all at once (op.c) */
	unsigned op_count;
};

/* One reference; NULL: out of memory. */
struct group_buffer *buffer_get(struct buffer_pool *pool, size_t bytes);
void buffer_put(struct buffer_pool *pool, struct group_buffer *buffer); /* accepts NULL */
void buffer_pool_finish(struct buffer_pool *pool);

/* It counts until its last reference is given back; once. */
void buffer_outlet_add(struct buffer_outlet *outlet, struct group_buffer *buffer);
void buffer_outlet_starve(struct buffer_outlet *outlet, bool starved);
void buffer_outlet_put(struct buffer_outlet *outlet); /* the op's reference; accepts NULL */

#endif
