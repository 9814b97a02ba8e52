/* Frames that came before the core could take them: their op is not submitted yet, or they belong to a view that was not
 * installed yet. They are kept aside, up to TR_HELD_BYTES_MAX, so that those behind them on the connection are not held up;
 * beyond that the connection waits.
 */
#include "collectives/engine/engine_internal.h"

#include <stdlib.h>
#include <string.h>

struct held_frame {
	struct held_frame *next;
	uint64_t from;
	size_t bytes;
	_Alignas(8) uint8_t payload[];
};

static void on_retry(uv_idle_t *retry);

static void held_append(struct member *member, struct held_frame *frame)
{
	frame->next = NULL;
	*member->held_tail = frame;
	member->held_tail = &frame->next;
	member->held_bytes += frame->bytes;
}

bool held_keep(struct member *member, uint64_t from, const uint8_t *payload, size_t bytes)
{
	if (bytes > TR_HELD_BYTES_MAX - member->held_bytes)
		return false;
	struct held_frame *frame = malloc(sizeof(*frame) + bytes);
	if (frame == NULL)
		return false;
	frame->from = from;
	frame->bytes = bytes;
	memcpy(frame->payload, payload, bytes);
	held_append(member, frame);
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
		struct tr_error error = { 0 };
		tr_status st = member->over
		    ? TR_ESTALE
		    : inbound_segment(member, frame->from, frame->payload, frame->bytes, &error);
		if (st == TR_EAGAIN) {
			held_append(member, frame);
		} else {
			if (st != TR_OK)
				inbound_close_from(member, frame->from, error.text);
			free(frame);
		}
		frame = next;
	}
}

static void on_retry(uv_idle_t *retry)
{
	(void)uv_idle_stop(retry);
	offer(retry->data);
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
		free(member->held);
		member->held = next;
	}
	member->held_tail = &member->held;
	member->held_bytes = 0;
	uv_close((uv_handle_t *)&member->retry, on_handle_closed);
}
