#include "daemon/api/grpc_outbox.h"

#include <stdlib.h>
#include <string.h>

#include "daemon/api/grpc_frame.h"

struct grpc_outbox_message {
	struct grpc_outbox_message *next;
	size_t length, sent;
	uint8_t bytes[];
};

tr_status grpc_outbox_add(struct grpc_outbox *outbox, const void *message, size_t bytes)
{
	if (bytes > UINT32_MAX)
		return TR_ELIMIT;
	struct grpc_outbox_message *item = malloc(sizeof(*item) + GRPC_FRAME_PREFIX_BYTES + bytes);
	if (item == NULL)
		return TR_ENOMEM;
	*item = (struct grpc_outbox_message){ .length = GRPC_FRAME_PREFIX_BYTES + bytes };
	grpc_frame_put_prefix(item->bytes, (uint32_t)bytes);
	if (bytes > 0)
		memcpy(item->bytes + GRPC_FRAME_PREFIX_BYTES, message, bytes);
	if (outbox->last == NULL)
		outbox->first = item;
	else
		outbox->last->next = item;
	outbox->last = item;
	outbox->unsent += item->length;
	return TR_OK;
}

static void outbox_pop(struct grpc_outbox *outbox)
{
	struct grpc_outbox_message *item = outbox->first;
	outbox->first = item->next;
	if (outbox->first == NULL)
		outbox->last = NULL;
	free(item);
}

size_t grpc_outbox_read(struct grpc_outbox *outbox, uint8_t *out, size_t capacity)
{
	size_t done = 0;
	while (outbox->first != NULL && done < capacity) {
		struct grpc_outbox_message *item = outbox->first;
		size_t piece = item->length - item->sent;
		if (piece > capacity - done)
			piece = capacity - done;
		memcpy(out + done, item->bytes + item->sent, piece);
		item->sent += piece;
		done += piece;
		if (item->sent == item->length)
			outbox_pop(outbox);
	}
	outbox->unsent -= done;
	return done;
}

void grpc_outbox_finish(struct grpc_outbox *outbox)
{
	while (outbox->first != NULL)
		outbox_pop(outbox);
	outbox->unsent = 0;
}
