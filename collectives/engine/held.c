/* Frames that came before the core could take them: their op is not submitted yet, or they belong to a view that was not
 * installed yet. They are kept aside, up to TR_HELD_BYTES_MAX, so that those behind them on the connection are not held up;
 * beyond that the connection waits: the caller will submit more, or wait for what it has submitted. If it waits, what it waits for
 * may be behind them, and nobody would ever go on: so from then on more are kept, up to TR_HELD_WAITING_BYTES_MAX, and beyond that
 * its wait fails, if that peer still has to send something for it. What a peer shows in shared memory costs nothing here but its header.
 */
#include "collectives/engine/engine_internal.h"

#include <stdlib.h>
#include <string.h>

#include "proto/bytes.h"

struct held_frame {
	struct held_frame *next;
	uint64_t from;
	struct lane_frame
	    frame; /* staging and what is stable are kept as they are; the rest is copied into `head` */
	struct shm_import *import; /* in which a stable body lies */
	size_t bytes;
	uint64_t looked_ms; /* when it was first looked at (held_judge); 0: not yet */
	_Alignas(8) uint8_t head[];
};

static void on_retry(uv_idle_t *retry);

static void held_append(struct member *member, struct held_frame *frame)
{
	frame->next = NULL;
	*member->held_tail = frame;
	member->held_tail = &frame->next;
	member->held_bytes += frame->bytes;
}

static void held_free(struct held_frame *frame)
{
	shm_import_release(frame->import);
	free(frame);
}

static bool has_room(const struct member *member, size_t bytes)
{
	size_t most = member_calls_wait_for_op(member) ? TR_HELD_WAITING_BYTES_MAX
	                                               : TR_HELD_BYTES_MAX;
	return member->held_bytes <= most && bytes <= most - member->held_bytes;
}

/* Frames of a view to come are no fault of the caller's: the view comes without its doing. */
static void refuse(struct member *member, uint64_t from, const struct lane_frame *frame)
{
	struct segment_header header;
	if (segment_header_get(frame->head, frame->head_bytes + frame->body_bytes, &header, NULL) ==
	        TR_OK &&
	    header.view == member->view)
		member_calls_too_much_held(member, from, header.tag);
}

bool held_keep(struct member *member, uint64_t from, const struct lane *lane,
    const struct lane_frame *frame)
{
	bool whole = frame->body == NULL || frame->place != NULL || frame->stable;
	size_t copied = frame->head_bytes + (whole ? 0 : frame->body_bytes);
	size_t bytes = sizeof(struct held_frame) + frame->head_bytes +
	    (frame->stable ? 0 : frame->body_bytes);
	if (!has_room(member, bytes)) {
		refuse(member, from, frame);
		return false;
	}
	struct held_frame *held = malloc(sizeof(*held) + copied);
	if (held == NULL)
		return false;
	held->from = from;
	held->bytes = bytes;
	held->looked_ms = 0;
	held->import = frame->stable ? shm_hub_import(lane) : NULL;
	held->frame = *frame;
	held->frame.head = held->head;
	memcpy(held->head, frame->head, frame->head_bytes);
	if (!whole) {
		memcpy(held->head + frame->head_bytes, frame->body, frame->body_bytes);
		held->frame.head_bytes = copied;
		held->frame.body = NULL;
		held->frame.body_bytes = 0;
	}
	held_append(member, held);
	return true;
}

/* Takes all out and puts back what the core still cannot take, in order. */
static void offer(struct member *member)
{
	struct held_frame *frame = member->held;
	member->held = NULL;
	member->held_tail = &member->held;
	member->held_bytes = 0;
	while (frame != NULL) {
		struct held_frame *next = frame->next;
		struct tr_error error;
		tr_error_clear(&error);
		tr_status st = inbound_segment(member, frame->from, &frame->frame, &error);
		if (st == TR_EAGAIN) {
			held_append(member, frame);
		} else {
			if (st != TR_OK)
				inbound_close_from(member, frame->from, error.text);
			else if (frame->import != NULL && !member->over) /* the core may read it */
				member_keep_import(member, frame->from,
				    shm_import_hold(frame->import));
			held_free(frame);
		}
		frame = next;
	}
}

static bool too_old(const struct member *member, struct held_frame *frame, uint64_t now_ms,
    uint64_t late_ms)
{
	bool coming = bytes_get_u64(frame->frame.head) > member->view;
	frame->looked_ms = frame->looked_ms == 0 ? now_ms : frame->looked_ms + late_ms;
	return coming && now_ms >= frame->looked_ms + TR_HELD_VIEW_MS;
}

/* Whoever has that view sees its link break, and asks for another one. */
void held_judge(struct member *member, uint64_t now_ms, uint64_t late_ms)
{
	struct held_frame *frame = member->held;
	member->held = NULL;
	member->held_tail = &member->held;
	member->held_bytes = 0;
	while (frame != NULL) {
		struct held_frame *next = frame->next;
		if (!too_old(member, frame, now_ms, late_ms)) {
			held_append(member, frame);
		} else {
			inbound_close_from(member, frame->from,
			    "its frames are of a view that has not come");
			if (frame->frame.place != NULL)
				group_buffer_release(member->core, frame->frame.place);
			held_free(frame);
		}
		frame = next;
	}
}

bool held_offer(struct member *member)
{
	if (!uv_is_active((uv_handle_t *)&member->retry))
		return false;
	(void)uv_idle_stop(&member->retry);
	offer(member);
	return true;
}

static void on_retry(uv_idle_t *retry)
{
	(void)held_offer(retry->data);
}

void held_retry(struct member *member)
{
	if (member->held != NULL)
		(void)uv_idle_start(&member->retry, on_retry);
}

static void on_handle_closed(uv_handle_t *handle)
{
	member_unhold(handle->data);
}

void held_start(struct member *member)
{
	member->held_tail = &member->held;
	(void)uv_idle_init(&member->engine->loop, &member->retry);
	member->retry.data = member;
	member->holds++;
}

void held_stop(struct member *member)
{
	while (member->held != NULL) {
		struct held_frame *next = member->held->next;
		if (member->held->frame.place != NULL)
			group_buffer_release(member->core, member->held->frame.place);
		held_free(member->held);
		member->held = next;
	}
	member->held_tail = &member->held;
	member->held_bytes = 0;
	uv_close((uv_handle_t *)&member->retry, on_handle_closed);
}
