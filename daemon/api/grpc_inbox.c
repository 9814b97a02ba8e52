#include "daemon/api/grpc_inbox.h"

#include <stdlib.h>
#include <string.h>

#define INBOX_KEPT_BYTES 4096 /* an emptied inbox keeps no more memory than this */

static tr_status inbox_reserve(struct grpc_inbox *inbox, size_t more)
{
	if (inbox->start + inbox->length + more <= inbox->capacity)
		return TR_OK;
	if (inbox->start > 0) {
		memmove(inbox->data, inbox->data + inbox->start, inbox->length);
		inbox->start = 0;
	}
	size_t needed = inbox->length + more, capacity = inbox->capacity;
	if (needed <= capacity)
		return TR_OK;
	capacity = capacity < 256 ? 256 : capacity;
	while (capacity < needed)
		capacity += capacity / 2;
	uint8_t *data = realloc(inbox->data, capacity);
	if (data == NULL)
		return TR_ENOMEM;
	inbox->data = data;
	inbox->capacity = capacity;
	return TR_OK;
}

tr_status grpc_inbox_add(struct grpc_inbox *inbox, const void *data, size_t length)
{
	if (length == 0)
		return TR_OK;
	tr_status status = inbox_reserve(inbox, length);
	if (status != TR_OK)
		return status;
	memcpy(inbox->data + inbox->start + inbox->length, data, length);
	inbox->length += length;
	return TR_OK;
}

enum grpc_frame_state grpc_inbox_look(const struct grpc_inbox *inbox, size_t limit,
    struct grpc_frame *frame)
{
	if (inbox->length == 0) {
		*frame = (struct grpc_frame){ NULL, 0 };
		return GRPC_FRAME_PARTIAL;
	}
	return grpc_frame_look(inbox->data + inbox->start, inbox->length, limit, frame);
}

/* Bytes of the first message that are here. */
static size_t inbox_head(const struct grpc_inbox *inbox, const struct grpc_frame *frame)
{
	size_t whole = GRPC_FRAME_PREFIX_BYTES + frame->bytes;
	return whole < inbox->length ? whole : inbox->length;
}

size_t grpc_inbox_release_head(struct grpc_inbox *inbox, const struct grpc_frame *frame)
{
	size_t head = inbox_head(inbox, frame);
	if (head <= inbox->released)
		return 0;
	size_t back = head - inbox->released;
	inbox->released = head;
	return back;
}

size_t grpc_inbox_take(struct grpc_inbox *inbox, const struct grpc_frame *frame)
{
	size_t head = inbox_head(inbox, frame);
	size_t back = grpc_inbox_release_head(inbox, frame);
	inbox->start += head;
	inbox->length -= head;
	inbox->released -= head;
	if (inbox->length == 0) {
		inbox->start = 0;
		if (inbox->capacity > INBOX_KEPT_BYTES)
			grpc_inbox_finish(inbox);
	}
	return back;
}

size_t grpc_inbox_clear(struct grpc_inbox *inbox)
{
	size_t back = inbox->length - inbox->released;
	grpc_inbox_finish(inbox);
	return back;
}

void grpc_inbox_finish(struct grpc_inbox *inbox)
{
	free(inbox->data);
	*inbox = (struct grpc_inbox){ 0 };
}
