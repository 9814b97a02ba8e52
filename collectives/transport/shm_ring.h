/* One direction of the way between two processes of one host: a ring of frames in shared memory, one sender, one receiver.
 * A frame is a head (the segment's header), and a body that is either copied into the ring's data area or only described:
 * where it lies in memory that the receiver maps (shm_export.h). Neither side trusts a number that the other can write: it
 * is copied, then checked; a peer that breaks the rules loses its link and nothing else.
 *
 * Memory layout: struct shm_ring_control, SHM_RING_SLOTS slots, SHM_RING_DATA bytes. The memfd is sparse: what was never
 * used costs nothing.
 *
 * Waiting. Who is about to sleep says so in the ring, looks once more and then waits for its doorbell, an eventfd that the
 * other side rings when it finds the mark (the stores and loads of both are sequentially
 * consistent, so one of them always sees the other: the store buffering litmus test). While nobody sleeps no system call is made.
 *
 * What a frame describes must stay as it is until the receiver has gone past it (shm_ring_collect says so), or can no
 * longer act on it; see collectives/engine/engine_shm.c for why that holds across view changes.
 *
 * Threads: a sender and a receiver, each used by one thread at a time.
 */
#ifndef TR_COLLECTIVES_TRANSPORT_SHM_RING_H
#define TR_COLLECTIVES_TRANSPORT_SHM_RING_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/error.h"
#include "common/limits.h"

#define SHM_RING_SLOTS    1024u
#define SHM_RING_DATA     (2u << 20)        /* bytes of bodies inside the ring */
#define SHM_RING_BODY_MAX TR_FRAME_DATA_MAX /* of one of them */
#define SHM_RING_HEAD_MAX 104u
/* Beyond so many that it has not collected, or bodies of so many bytes, a sender looks with each frame which of them were read: their owners would keep them for a whole turn of reading. */
#define SHM_RING_UNCOLLECTED       16u
#define SHM_RING_UNCOLLECTED_BYTES (512u << 10)
#define SHM_RING_INSIDE            UINT32_MAX /* instead of a memory's number: the body is in the data area */

struct shm_ring_slot {
	uint32_t type, head_bytes;
	uint32_t memory, body_bytes;
	uint64_t offset; /* of the body: in that memory, or in the data area */
	uint8_t head[SHM_RING_HEAD_MAX];
};
_Static_assert(sizeof(struct shm_ring_slot) == 128, "two cache lines");

struct shm_ring_control {
	uint64_t magic;
	/* The sender's line. */
	_Alignas(64) _Atomic uint64_t produced; /* frames ever put */
	_Atomic uint32_t sender_waits;          /* for room: ring its bell */
	/* The receiver's line. */
	_Alignas(64) _Atomic uint64_t consumed; /* frames ever gone past */
	_Atomic uint32_t receiver_sleeps;       /* ring its bell */
};

/* A frame as the receiver sees it. */
struct shm_frame {
	uint32_t type, head_bytes;
	uint32_t memory; /* SHM_RING_INSIDE: `inside` */
	uint32_t body_bytes;
	uint64_t offset;
	const uint8_t *inside; /* shared memory: valid until shm_ring_advance */
	uint8_t head[SHM_RING_HEAD_MAX];
};

struct shm_ring {
	struct shm_ring_control *control;
	struct shm_ring_slot *slots;
	uint8_t *data;
};

typedef void shm_released_fn(void *arg, bool sent); /* as lane_released_fn; always true */

struct shm_sender {
	struct shm_ring ring;
	uint64_t produced, collected;
	uint64_t data_head, data_tail; /* growing positions in the data area */
	uint64_t lent_bytes;           /* of bodies that were not collected, and are not inside */
	struct shm_sent {
		uint64_t data_end;
		uint32_t lent_bytes;
		shm_released_fn *released; /* may be NULL */
		void *arg;
	} sent[SHM_RING_SLOTS];
};

struct shm_receiver {
	struct shm_ring ring;
	uint64_t consumed;
};

/* Makes the memory of a ring: a sealed memfd, mapped. */
tr_status shm_ring_create(struct shm_ring *ring, int *fd, struct tr_error *error);
/* Maps what the other side made; checks its seals and size. `fd` stays the caller's. */
tr_status shm_ring_open(struct shm_ring *ring, int fd, struct tr_error *error);
void shm_ring_unmap(struct shm_ring *ring); /* accepts one that was never mapped */

/* ---- the sender ---- */

/* What is to be sent. The head and a body that goes inside are copied. */
struct shm_put {
	uint32_t type;
	const void *head;
	uint32_t head_bytes;
	const void *body; /* NULL: described by memory and offset */
	uint32_t body_bytes, memory;
	uint64_t offset;
	shm_released_fn *
	    released; /* from shm_ring_collect, once the receiver has gone past it; may put, collect */
	void *arg;
};

void shm_sender_init(struct shm_sender *sender, const struct shm_ring *ring);
/* TR_OK; TR_EAGAIN: no room, and shm_ring_collect has found none either (nothing was taken). */
tr_status shm_ring_put(struct shm_sender *sender, const struct shm_put *put);
/* After one or several puts: true: the receiver sleeps, ring its bell. */
bool shm_ring_must_wake(struct shm_sender *sender);
/* Runs `released` of all frames that the receiver has gone past. TR_EPROTO: it says what cannot be. */
tr_status shm_ring_collect(struct shm_sender *sender);
/* Cheap: has the receiver gone past something that was not collected? */
static inline bool shm_ring_consumed(const struct shm_sender *sender)
{
	return atomic_load_explicit(&sender->ring.control->consumed, memory_order_acquire) !=
	    sender->collected;
}
static inline bool shm_ring_uncollected(const struct shm_sender *sender)
{
	return sender->produced != sender->collected;
}
/* Will be rung when there is room. false: there is already, do not wait. */
bool shm_ring_wait_room(struct shm_sender *sender);
/* Runs `released` of all frames now. The receiver may still read those that it has not gone past. */
void shm_ring_let_go(struct shm_sender *sender);

/* ---- the receiver ---- */

void shm_receiver_init(struct shm_receiver *receiver, const struct shm_ring *ring);
/* The next frame, copied and checked as far as the ring knows; it stays the next one until shm_ring_advance. TR_EAGAIN:
 * none; TR_EPROTO. */
tr_status shm_ring_next(const struct shm_receiver *receiver, struct shm_frame *frame,
    struct tr_error *error);
/* Goes past it. true: the sender waits for room, ring its bell. */
bool shm_ring_advance(struct shm_receiver *receiver);
/* About to sleep: true: nothing is there, the bell will ring. false: look again first. */
bool shm_ring_sleep(struct shm_receiver *receiver);
void shm_ring_awake(struct shm_receiver *receiver);
/* Cheap: is there a frame? */
static inline bool shm_ring_pending(const struct shm_receiver *receiver)
{
	return atomic_load_explicit(&receiver->ring.control->produced, memory_order_acquire) !=
	    receiver->consumed;
}

#endif
