#include "collectives/transport/shm_ring.h"

#include <assert.h>
#include <inttypes.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "collectives/transport/shm_memory.h"
#include "common/limits.h"
#include "proto/segment.h"

#define MAGIC      UINT64_C(0x31676e6952727454) /* "TtrRing1" */
#define SLOTS_AT   4096u
#define DATA_AT    (SLOTS_AT + SHM_RING_SLOTS * sizeof(struct shm_ring_slot))
#define RING_BYTES (DATA_AT + SHM_RING_DATA)
#define CACHE_LINE 64u

_Static_assert(sizeof(struct shm_ring_control) <= SLOTS_AT, "the control block has a page");
_Static_assert(SEGMENT_HEADER_BYTES <= SHM_RING_HEAD_MAX, "a segment's header fits a slot");
_Static_assert(2 * SHM_RING_BODY_MAX <= SHM_RING_DATA, "the largest body fits an empty ring");

static void ring_at(struct shm_ring *ring, void *base)
{
	ring->control = base;
	ring->slots = (void *)((uint8_t *)base + SLOTS_AT);
	ring->data = (uint8_t *)base + DATA_AT;
}

tr_status shm_ring_create(struct shm_ring *ring, int *fd, struct tr_error *error)
{
	void *base;
	tr_status st = shm_memory_create("traind-ring", RING_BYTES, fd, &base, error);
	if (st != TR_OK)
		return st;
	ring_at(ring, base);
	ring->control->magic = MAGIC;
	return TR_OK;
}

tr_status shm_ring_open(struct shm_ring *ring, int fd, struct tr_error *error)
{
	void *base;
	tr_status st = shm_memory_map(fd, RING_BYTES, true, &base, error);
	if (st != TR_OK)
		return st;
	ring_at(ring, base);
	if (ring->control->magic == MAGIC)
		return TR_OK;
	shm_ring_unmap(ring);
	return tr_error_set(error, TR_EPROTO, "its ring is of another version");
}

void shm_ring_unmap(struct shm_ring *ring)
{
	if (ring->control != NULL)
		(void)munmap(ring->control, RING_BYTES);
	*ring = (struct shm_ring){ 0 };
}

/* ---- the sender ---- */

void shm_sender_init(struct shm_sender *sender, const struct shm_ring *ring)
{
	*sender = (struct shm_sender){ .ring = *ring };
}

/* Where a body of `bytes` may go, without a break; SHM_RING_DATA: nowhere now. */
static uint64_t data_place(struct shm_sender *sender, uint32_t bytes)
{
	if (sender->produced == sender->collected) /* all is free: the first bytes are in cache */
		sender->data_head = sender->data_tail = 0;
	uint64_t head = sender->data_head;
	if (head % SHM_RING_DATA + bytes > SHM_RING_DATA)
		head += SHM_RING_DATA - head % SHM_RING_DATA;
	if (head + bytes - sender->data_tail > SHM_RING_DATA)
		return SHM_RING_DATA;
	sender->data_head = (head + bytes + CACHE_LINE - 1) / CACHE_LINE * CACHE_LINE;
	return head % SHM_RING_DATA;
}

static bool slot_free(struct shm_sender *sender)
{
	return sender->produced - sender->collected < SHM_RING_SLOTS;
}

tr_status shm_ring_put(struct shm_sender *sender, const struct shm_put *put)
{
	assert(put->head_bytes <= SHM_RING_HEAD_MAX && put->body_bytes <= SHM_RING_BODY_MAX);
	bool behind = sender->produced - sender->collected >= SHM_RING_UNCOLLECTED ||
	    sender->lent_bytes >= SHM_RING_UNCOLLECTED_BYTES;
	if (behind && (shm_ring_collect(sender) != TR_OK || !slot_free(sender)))
		return TR_EAGAIN;
	uint64_t offset = put->offset;
	if (put->body != NULL) {
		offset = data_place(sender, put->body_bytes);
		if (offset == SHM_RING_DATA && shm_ring_collect(sender) == TR_OK &&
		    slot_free(sender))
			offset = data_place(sender, put->body_bytes);
		if (offset == SHM_RING_DATA)
			return TR_EAGAIN;
		memcpy(sender->ring.data + offset, put->body, put->body_bytes);
	}
	/* Not before: `released` of what was collected may have put frames of its own. */
	struct shm_ring_slot *slot = &sender->ring.slots[sender->produced % SHM_RING_SLOTS];
	slot->type = put->type;
	slot->head_bytes = put->head_bytes;
	slot->memory = put->body != NULL ? SHM_RING_INSIDE : put->memory;
	slot->body_bytes = put->body_bytes;
	slot->offset = offset;
	if (put->head_bytes > 0)
		memcpy(slot->head, put->head, put->head_bytes);
	sender->sent[sender->produced % SHM_RING_SLOTS] = (struct shm_sent){
		.data_end = sender->data_head,
		.lent_bytes = put->body != NULL ? 0 : put->body_bytes,
		.released = put->released,
		.arg = put->arg
	};
	sender->lent_bytes += put->body != NULL ? 0 : put->body_bytes;
	atomic_store(&sender->ring.control->produced, ++sender->produced);
	return TR_OK;
}

bool shm_ring_must_wake(struct shm_sender *sender)
{
	struct shm_ring_control *control = sender->ring.control;
	return atomic_load(&control->receiver_sleeps) != 0 &&
	    atomic_exchange(&control->receiver_sleeps, 0) != 0;
}

/* `released` may collect further than that. */
static void collect_to(struct shm_sender *sender, uint64_t until)
{
	while ((int64_t)(until - sender->collected) > 0) {
		struct shm_sent *sent = &sender->sent[sender->collected % SHM_RING_SLOTS];
		shm_released_fn *released = sent->released;
		sender->data_tail = sent->data_end;
		sender->lent_bytes -= sent->lent_bytes;
		sent->released = NULL;
		sender->collected++;
		if (released != NULL)
			released(sent->arg, true);
	}
}

tr_status shm_ring_collect(struct shm_sender *sender)
{
	uint64_t consumed = atomic_load_explicit(&sender->ring.control->consumed,
	    memory_order_acquire);
	if (consumed - sender->collected > sender->produced - sender->collected)
		return TR_EPROTO;
	collect_to(sender, consumed);
	return TR_OK;
}

bool shm_ring_wait_room(struct shm_sender *sender)
{
	struct shm_ring_control *control = sender->ring.control;
	atomic_store(&control->sender_waits, 1);
	if (atomic_load(&control->consumed) == sender->collected)
		return true;
	atomic_store(&control->sender_waits, 0);
	return false;
}

void shm_ring_let_go(struct shm_sender *sender)
{
	uint64_t until = sender->produced; /* `released` may put again */
	for (uint64_t i = sender->collected; i < until; i++) {
		if (i < sender->collected)
			continue; /* `released` has collected it, and its place may be another's */
		struct shm_sent *sent = &sender->sent[i % SHM_RING_SLOTS];
		shm_released_fn *released = sent->released;
		sent->released = NULL;
		if (released != NULL)
			released(sent->arg, true);
	}
}

/* ---- the receiver ---- */

void shm_receiver_init(struct shm_receiver *receiver, const struct shm_ring *ring)
{
	*receiver = (struct shm_receiver){ .ring = *ring };
}

tr_status shm_ring_next(const struct shm_receiver *receiver, struct shm_frame *frame,
    struct tr_error *error)
{
	struct shm_ring_slot slot;
	uint64_t waiting = atomic_load_explicit(&receiver->ring.control->produced,
	                       memory_order_acquire) -
	    receiver->consumed;
	if (waiting == 0)
		return TR_EAGAIN;
	if (waiting > SHM_RING_SLOTS)
		return tr_error_set(error, TR_EPROTO,
		    "its ring holds %" PRIu64 " frames, at most %u", waiting, SHM_RING_SLOTS);
	/* Once: what is checked is what is used. */
	memcpy(&slot, &receiver->ring.slots[receiver->consumed % SHM_RING_SLOTS], sizeof(slot));
	atomic_signal_fence(memory_order_seq_cst); /* the compiler may not read it again */
	if (slot.head_bytes > SHM_RING_HEAD_MAX || slot.body_bytes > SHM_RING_BODY_MAX)
		return tr_error_set(error, TR_EPROTO,
		    "a frame in its ring has a head of %u and a body of %u bytes", slot.head_bytes,
		    slot.body_bytes);
	if (slot.memory == SHM_RING_INSIDE &&
	    (slot.offset > SHM_RING_DATA || slot.body_bytes > SHM_RING_DATA - slot.offset ||
	        slot.offset % CACHE_LINE != 0))
		return tr_error_set(error, TR_EPROTO, "a frame outside of its ring");
	frame->type = slot.type;
	frame->head_bytes = slot.head_bytes;
	frame->memory = slot.memory;
	frame->body_bytes = slot.body_bytes;
	frame->offset = slot.offset;
	frame->inside = slot.memory == SHM_RING_INSIDE ? receiver->ring.data + slot.offset : NULL;
	memcpy(frame->head, slot.head, slot.head_bytes);
	return TR_OK;
}

bool shm_ring_advance(struct shm_receiver *receiver)
{
	struct shm_ring_control *control = receiver->ring.control;
	atomic_store(&control->consumed, ++receiver->consumed);
	return atomic_load(&control->sender_waits) != 0 &&
	    atomic_exchange(&control->sender_waits, 0) != 0;
}

bool shm_ring_sleep(struct shm_receiver *receiver)
{
	atomic_store(&receiver->ring.control->receiver_sleeps, 1);
	if (atomic_load(&receiver->ring.control->produced) == receiver->consumed)
		return true;
	shm_ring_awake(receiver);
	return false;
}

void shm_ring_awake(struct shm_receiver *receiver)
{
	if (atomic_load_explicit(&receiver->ring.control->receiver_sleeps, memory_order_relaxed) !=
	    0)
		atomic_store_explicit(&receiver->ring.control->receiver_sleeps, 0,
		    memory_order_relaxed);
}
