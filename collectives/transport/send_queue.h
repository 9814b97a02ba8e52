/* Frames that wait to be written to a socket, in order. Bodies are copied or borrowed. Not thread-safe. */
#ifndef TR_COLLECTIVES_TRANSPORT_SEND_QUEUE_H
#define TR_COLLECTIVES_TRANSPORT_SEND_QUEUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include "common/status.h"

#define SEND_HEAD_MAX (8 + 128) /* frame header and the sender's own */

typedef void send_released_fn(void *arg, bool sent); /* as lane_released_fn */

struct send_frame;

struct send_queue {
	struct send_frame *first, **tail;
	size_t unsent;        /* bytes, borrowed ones included */
	size_t unsent_copied; /* bytes of memory that the queue itself holds */
};

void send_queue_init(struct send_queue *queue);
/* Releases everything. */
void send_queue_finish(struct send_queue *queue);

/* TR_ENOMEM: nothing was queued and `released` never runs. */
tr_status send_queue_copy(struct send_queue *queue, const void *head, size_t head_bytes,
    const void *body, size_t body_bytes);
/* head_bytes <= SEND_HEAD_MAX. `released` runs exactly once. */
tr_status send_queue_borrow(struct send_queue *queue, const void *head, size_t head_bytes,
    const void *body, size_t body_bytes, send_released_fn *released, void *arg);

/* Describes the next bytes to write; returns how many pieces. */
int send_queue_pieces(const struct send_queue *queue, struct iovec *pieces, int max);
/* `bytes` of what send_queue_pieces gave were written; frames that are done are released. */
void send_queue_written(struct send_queue *queue, size_t bytes);

/* Drops borrowed frames that have not begun; the rest of one that has is copied. TR_ENOMEM: that copy could not be
 * made; the queue's stream is broken, all borrowed memory is released all the same. */
tr_status send_queue_drop_borrowed(struct send_queue *queue);

#endif
