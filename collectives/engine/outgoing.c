/* Frames that wait for a lane, for being written, or for being known to have come. */
#include <stdlib.h>

#include "collectives/engine/peer_link.h"

void outgoing_list_init(struct outgoing_list *list)
{
	*list = (struct outgoing_list){ NULL, &list->first };
}

void outgoing_append(struct outgoing_list *list, struct outgoing *out)
{
	out->next = NULL;
	*list->tail = out;
	list->tail = &out->next;
}

void outgoing_put_back(struct outgoing_list *list, struct outgoing_list *front)
{
	if (front->first == NULL)
		return;
	*front->tail = list->first;
	if (list->first == NULL)
		list->tail = front->tail;
	list->first = front->first;
	outgoing_list_init(front);
}

struct outgoing *outgoing_take(struct outgoing_list *list)
{
	struct outgoing *out = list->first;
	if (out == NULL)
		return NULL;
	list->first = out->next;
	if (list->first == NULL)
		list->tail = &list->first;
	out->next = NULL;
	return out;
}

struct outgoing *outgoing_take_segment(struct peer_link *link)
{
	struct outgoing_list *hot = &link->queue[OUTGOING_HOT], *own = &link->queue[OUTGOING_OWN];
	bool full = link->kept_bytes >= TR_LINK_KEPT_BYTES_MAX;
	if (hot->first == NULL || (full && hot->first->buffer != NULL))
		return outgoing_take(own);
	bool waited = link->distant && own->first != NULL &&
	    own->first->number < hot->first->number;
	return outgoing_take(waited ? own : hot);
}

struct outgoing *outgoing_segment(struct peer_link *link, const struct group_action *action)
{
	struct outgoing *out = malloc(sizeof(*out));
	if (out == NULL)
		return NULL;
	*out = (struct outgoing){ .link = link,
		.member = link->member,
		.body = action->payload,
		.body_bytes = action->payload_bytes,
		.buffer = action->buffer,
		.encoded = action->header.encoding == SEGMENT_ENCODED,
		.class = action->buffer == NULL && action->header.kind == SEGMENT_PARTIAL
		    ? OUTGOING_OWN
		    : OUTGOING_HOT };
	segment_header_put(&action->header, out->head);
	return out;
}

struct outgoing *outgoing_message(struct peer_link *link, const Traind__Peer__PeerMessage *message)
{
	size_t bytes = traind__peer__peer_message__get_packed_size(message);
	struct outgoing *out = calloc(1, sizeof(*out));
	uint8_t *copy = out == NULL ? NULL : malloc(bytes + 1);
	if (copy == NULL) {
		free(out);
		return NULL;
	}
	(void)traind__peer__peer_message__pack(message, copy);
	out->link = link;
	out->member = link->member;
	out->body = out->copy = copy;
	out->body_bytes = bytes;
	out->class = OUTGOING_CONTROL;
	return out;
}

void outgoing_let_go(struct outgoing *out)
{
	if (out->buffer != NULL) {
		if (out->kept)
			out->link->kept_bytes -= out->body_bytes;
		group_buffer_release(out->member->core, out->buffer);
		member_look_due(out->member);
	}
	out->buffer = NULL;
	out->gone = true;
}

void outgoing_retire(struct outgoing *out)
{
	out->next = out->member->retired;
	out->member->retired = out;
}

void outgoing_free(struct outgoing *out)
{
	outgoing_let_go(out);
	free(out->copy);
	free(out);
}

void outgoing_drop_all(struct outgoing_list *list)
{
	for (struct outgoing *out = outgoing_take(list); out != NULL; out = outgoing_take(list))
		outgoing_free(out);
}
