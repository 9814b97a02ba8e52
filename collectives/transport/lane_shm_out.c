/* Frames that go into a ring, or wait for room in it. */
#include <stdlib.h>
#include <string.h>

#include "collectives/transport/shm_internal.h"
#include "common/limits.h"

/* Bodies of up to so many bytes are copied into the ring: cheaper than a look at memory that is in nobody's cache. */
#define INSIDE_BYTES_MAX 4096u
/* So many slots stay free for what is not bulk. */
#define SLOTS_KEPT 64u

bool lane_shm_show(struct lane_shm *lane)
{
	const struct shm_export *item = &lane->exports->items[lane->announced];
	struct shm_message message = { .kind = SHM_MEMORY,
		.version = SHM_SOCKET_VERSION,
		.bytes = item->bytes,
		.stable = item->stable };
	if (shm_socket_send(lane->socket, &message, &item->fd, 1) != TR_OK)
		return false;
	lane->announced++;
	return true;
}

/* Which piece of shown memory holds this body, shown to the peer by now; UINT32_MAX: none. */
static uint32_t shown(struct lane_shm *lane, const struct lane_send *frame, uint64_t *offset)
{
	if (lane->exports == NULL || frame->released == NULL ||
	    frame->body_bytes <= INSIDE_BYTES_MAX)
		return UINT32_MAX;
	uint32_t number = shm_exports_find(lane->exports, frame->body, frame->body_bytes, offset);
	while (number != UINT32_MAX && lane->announced <= number)
		if (!lane_shm_show(lane))
			return UINT32_MAX;
	return number;
}

void lane_shm_wake(struct lane_shm *lane)
{
	if (!shm_ring_must_wake(lane->out))
		return;
	lane->counters.calls++;
	shm_socket_ring(lane->peer_bell);
}

static tr_status put(struct lane_shm *lane, const struct lane_send *frame)
{
	uint64_t offset = 0;
	uint32_t memory = shown(lane, frame, &offset);
	struct shm_put put = { .type = frame->type,
		.head = frame->head,
		.head_bytes = (uint32_t)frame->head_bytes,
		.body_bytes = (uint32_t)frame->body_bytes,
		.offset = offset,
		.memory = memory };
	if (memory == UINT32_MAX) {
		static const uint8_t nothing;
		put.body = frame->body != NULL ? frame->body : &nothing;
	} else {
		put.released = frame->released;
		put.arg = frame->arg;
	}
	tr_status st = shm_ring_put(lane->out, &put);
	if (st != TR_OK)
		return st;
	lane->counters.bytes_out += frame->head_bytes + frame->body_bytes;
	if (put.body != NULL)
		lane->counters.copied_bytes += frame->body_bytes;
	lane_shm_wake(lane);
	if (put.body != NULL && frame->released != NULL)
		frame->released(frame->arg, true);
	if (lane->closing) /* by a `released` while this one was put: it was let go without it */
		lane_shm_let_go(lane);
	return TR_OK;
}

static tr_status wait_for_room(struct lane_shm *lane, const struct lane_send *frame)
{
	size_t copied = frame->released == NULL ? frame->body_bytes : 0;
	if (copied > TR_CONN_QUEUE_BYTES_MAX - lane->waiting_copied)
		return TR_ELIMIT;
	struct shm_waiting *waiting = malloc(sizeof(*waiting) + frame->head_bytes + copied);
	if (waiting == NULL)
		return TR_ENOMEM;
	waiting->next = NULL;
	waiting->frame = *frame;
	waiting->frame.head = waiting->memory;
	if (frame->head_bytes > 0)
		memcpy(waiting->memory, frame->head, frame->head_bytes);
	if (copied > 0)
		waiting->frame.body = memcpy(waiting->memory + frame->head_bytes, frame->body,
		    copied);
	*lane->waiting_tail = waiting;
	lane->waiting_tail = &waiting->next;
	lane->waiting_bytes += frame->body_bytes;
	lane->waiting_copied += copied;
	return TR_OK;
}

tr_status lane_shm_send(struct lane_shm *lane, const struct lane_send *frame)
{
	if (!lane->open || lane->finishing)
		return TR_EUNAVAILABLE;
	if (frame->head_bytes > SHM_RING_HEAD_MAX || frame->body_bytes > SHM_RING_BODY_MAX)
		return TR_ELIMIT;
	tr_status st = lane->waiting == NULL ? put(lane, frame) : TR_EAGAIN;
	if (st != TR_EAGAIN)
		return st;
	return lane->closing ? TR_EUNAVAILABLE : wait_for_room(lane, frame);
}

static void forget_first(struct lane_shm *lane)
{
	struct shm_waiting *first = lane->waiting;
	lane->waiting = first->next;
	if (lane->waiting == NULL)
		lane->waiting_tail = &lane->waiting;
	lane->waiting_bytes -= first->frame.body_bytes;
	if (first->frame.released == NULL)
		lane->waiting_copied -= first->frame.body_bytes;
	free(first);
}

bool lane_shm_send_waiting(struct lane_shm *lane)
{
	bool moved = false;
	while (lane->waiting != NULL && !lane->closing) {
		struct shm_waiting *waiting = lane->waiting;
		struct lane_send frame = waiting->frame;
		/* It stays the first meanwhile: what a `released` sends goes behind it, and what closes the lane leaves it to us. */
		lane->going = waiting;
		tr_status st = put(lane, &frame);
		lane->going = NULL;
		if (st == TR_EAGAIN && !lane->closing)
			return moved;
		forget_first(lane);
		if (st == TR_EAGAIN && frame.released != NULL)
			frame.released(frame.arg, false);
		moved = true;
	}
	return moved;
}

bool lane_shm_has_room(const struct lane_shm *lane)
{
	return lane->waiting == NULL &&
	    lane->out->produced - lane->out->collected < SHM_RING_SLOTS - SLOTS_KEPT;
}

void lane_shm_drop_waiting(struct lane_shm *lane, bool borrowed_only)
{
	struct shm_waiting **at = &lane->waiting, *dropped = NULL, **last = &dropped;
	while (*at != NULL) {
		struct shm_waiting *waiting = *at;
		if (waiting == lane->going || (borrowed_only && waiting->frame.released == NULL)) {
			at = &waiting->next;
			continue;
		}
		*at = waiting->next;
		lane->waiting_bytes -= waiting->frame.body_bytes;
		if (waiting->frame.released == NULL)
			lane->waiting_copied -= waiting->frame.body_bytes;
		*last = waiting;
		last = &waiting->next;
	}
	*last = NULL;
	lane->waiting_tail = at; /* before: `released` may send again */
	while (dropped != NULL) {
		struct shm_waiting *waiting = dropped;
		dropped = waiting->next;
		if (waiting->frame.released != NULL)
			waiting->frame.released(waiting->frame.arg, false);
		free(waiting);
	}
}
