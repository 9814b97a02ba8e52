/* What a worker's end of the channel is, for channel_worker.c and channel_memory.c. */
#ifndef TR_COLLECTIVES_ENGINE_CHANNEL_WORKER_INTERNAL_H
#define TR_COLLECTIVES_ENGINE_CHANNEL_WORKER_INTERNAL_H

#include <pthread.h>

#include "collectives/engine/channel_worker.h"

struct arena {
	uint8_t *base;
	size_t bytes, used;
	int fd;
};

struct channel_worker {
	int socket, engine_bell, own_bell, question_bell;
	int commons; /* -1: none */
	struct channel_control *control;
	size_t control_bytes;
	uint64_t submitted, answers_taken, last_id;
	bool unrung; /* the newest entries were put without a doorbell: the engine may sleep beside them */
	struct arena arenas[TR_CHANNEL_ARENAS_MAX];
	unsigned arena_count;
	channel_drive_fn *drive; /* NULL: the engine is in another process */
	void *drive_arg;
	bool no_huge_pages;     /* the system had none, or took long to find some */
	bool private;           /* the arenas are nobody's but ours any more */
	pthread_mutex_t asking; /* held by the thread that has a question; of what follows */
	uint64_t asked;
};

/* channel_send, and the engine is to have heard of it before what is submitted next. */
tr_status channel_worker_say(struct channel_worker *worker, uint32_t kind, const void *head,
    size_t head_bytes, const void *body, size_t body_bytes, const int *descriptors, unsigned count);
/* The member is over, and the caller has its memory back. Peers of this host may still be reading it, for a round that they
 * go on with: what they see must stay as it was when this member contributed it. So from here on our writes are ours alone:
 * the same bytes at the same addresses, copied when they are written. */
void channel_worker_part(struct channel_worker *worker);

#endif
