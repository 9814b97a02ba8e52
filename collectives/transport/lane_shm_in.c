/* Frames that come through a ring. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "collectives/transport/shm_internal.h"
#include "proto/frame.h"

/* Frames of one turn; then others have theirs. */
#define FRAMES_PER_POLL 256

/* Messages are unpacked, so they are copied first: no byte may change under a parser. Only segments are read in place,
 * once, by kernels that take any bits. */
static tr_status give(struct lane_shm *lane, const struct shm_frame *from, const uint8_t *body,
    bool stable, struct tr_error *error)
{
	struct lane_frame frame = { .type = (uint16_t)from->type,
		.head = from->head,
		.head_bytes = from->head_bytes,
		.body = body,
		.body_bytes = from->body_bytes,
		.stable = stable };
	if (from->type == FRAME_SEGMENT || from->body_bytes == 0)
		return lane->lane.callbacks.frame(lane->lane.arg, &lane->lane, &frame, error);
	uint8_t *copy = malloc(from->head_bytes + from->body_bytes);
	if (copy == NULL)
		return tr_error_set(error, TR_ENOMEM, "no memory for a frame");
	memcpy(copy, from->head, from->head_bytes);
	memcpy(copy + from->head_bytes, body, from->body_bytes);
	frame = (struct lane_frame){ .type = frame.type,
		.head = copy,
		.head_bytes = from->head_bytes + from->body_bytes };
	tr_status st = lane->lane.callbacks.frame(lane->lane.arg, &lane->lane, &frame, error);
	free(copy);
	return st;
}

static tr_status body_of(struct lane_shm *lane, const struct shm_frame *frame, const uint8_t **body,
    bool *stable, struct tr_error *error)
{
	*stable = false;
	*body = frame->inside;
	if (frame->memory == SHM_RING_INSIDE)
		return TR_OK;
	/* It was announced before the frame was put: the message is there. */
	if (frame->memory >= shm_import_count(lane->import))
		lane_shm_read_socket(lane);
	*body = shm_import_at(lane->import, frame->memory, frame->offset, frame->body_bytes, stable);
	if (*body == NULL)
		return tr_error_set(error, TR_EPROTO,
		    "a frame of %u bytes at %" PRIu64 " of its memory %u, which is not there",
		    frame->body_bytes, frame->offset, frame->memory);
	return TR_OK;
}

static tr_status take_frame(struct lane_shm *lane, const struct shm_frame *frame,
    struct tr_error *error)
{
	const uint8_t *body;
	bool stable;
	if (lane->finishing)
		return TR_OK;
	if (frame->type < FRAME_TO_MEMBER || frame->type > FRAME_STATE)
		return tr_error_set(error, TR_EPROTO, "a frame of unknown type %u", frame->type);
	tr_status st = body_of(lane, frame, &body, &stable, error);
	return st == TR_OK ? give(lane, frame, body, stable, error) : st;
}

bool lane_shm_read_ring(struct lane_shm *lane)
{
	bool moved = false;
	for (int i = 0; i < FRAMES_PER_POLL && !lane->parked && !lane->closing; i++) {
		struct shm_frame frame;
		struct tr_error error;
		if (!shm_ring_pending(&lane->in))
			return moved;
		tr_error_clear(&error);
		tr_status st = shm_ring_next(&lane->in, &frame, &error);
		if (st == TR_OK)
			st = take_frame(lane, &frame, &error);
		if (lane->closing)
			return true;
		if (st == TR_EAGAIN) {
			lane->parked = !lane->resumed;
			lane->resumed = false;
			return moved;
		}
		if (st != TR_OK) {
			lane_shm_close(lane, error.text);
			return true;
		}
		moved = true;
		lane->counters.bytes_in += frame.head_bytes + frame.body_bytes;
		if (shm_ring_advance(&lane->in))
			shm_socket_ring(lane->peer_bell);
	}
	return moved;
}
