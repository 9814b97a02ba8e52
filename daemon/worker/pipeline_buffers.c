#include "daemon/worker/pipeline_buffers.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

static const struct buffers_list empty = { BUFFERS_NONE, BUFFERS_NONE };

static void append(struct buffers_of_messages *b, struct buffers_list *list, uint32_t buffer)
{
	b->at[buffer].next = BUFFERS_NONE;
	if (list->last == BUFFERS_NONE)
		list->first = buffer;
	else
		b->at[list->last].next = buffer;
	list->last = buffer;
}

static uint32_t take_first(const struct buffers_of_messages *b, struct buffers_list *list)
{
	uint32_t first = list->first;
	list->first = b->at[first].next;
	if (list->first == BUFFERS_NONE)
		list->last = BUFFERS_NONE;
	return first;
}

void buffers_init(struct buffers_of_messages *b, const struct pipeline_channel *channel,
    size_t numbers)
{
	*b = (struct buffers_of_messages){ .channel = channel, .numbers = numbers, .free = empty };
	for (size_t i = 0; i < BUFFERS_KINDS; i++)
		b->waiting[i] = empty;
}

void buffers_finish(struct buffers_of_messages *b)
{
	free(b->at);
}

void buffers_forget(struct buffers_of_messages *b)
{
	b->free = empty;
	for (size_t i = 0; i < BUFFERS_KINDS; i++)
		b->waiting[i] = empty;
	for (uint32_t i = 0; i < b->count; i++) {
		b->at[i].ours = b->at[i].lent = false;
		append(b, &b->free, i);
	}
}

static bool add(struct buffers_of_messages *b, uint32_t *buffer)
{
	if (b->count == b->room) {
		uint32_t room = 2 * b->room + 8;
		struct message_buffer *grown = realloc(b->at, room * sizeof(*grown));
		if (grown == NULL)
			return false;
		b->at = grown;
		b->room = room;
	}
	real *data = b->channel->memory(b->channel->arg, b->numbers);
	if (data == NULL)
		return false;
	*buffer = b->count++;
	b->at[*buffer] = (struct message_buffer){ .data = data };
	return true;
}

/* One that the channel has done with meanwhile: the oldest of a kind, since of each kind they come back in their order. */
static bool take_back(struct buffers_of_messages *b, uint32_t *buffer)
{
	for (size_t kind = 0; kind < BUFFERS_KINDS; kind++) {
		uint32_t oldest = b->waiting[kind].first;
		if (oldest == BUFFERS_NONE ||
		    !b->channel->idle(b->channel->arg, b->at[oldest].ticket))
			continue;
		*buffer = take_first(b, &b->waiting[kind]);
		b->at[*buffer].lent = false;
		return true;
	}
	return false;
}

bool buffers_take(struct buffers_of_messages *b, uint32_t *buffer)
{
	assert(*buffer == BUFFERS_NONE);
	if (b->free.first != BUFFERS_NONE)
		*buffer = take_first(b, &b->free);
	else if (!take_back(b, buffer) && !add(b, buffer))
		return false;
	b->at[*buffer].ours = true;
	return true;
}

void buffers_give(struct buffers_of_messages *b, uint32_t *buffer)
{
	if (*buffer == BUFFERS_NONE)
		return;
	struct message_buffer *given = &b->at[*buffer];
	assert(given->ours);
	given->ours = false;
	append(b, given->lent ? &b->waiting[given->kind] : &b->free, *buffer);
	*buffer = BUFFERS_NONE;
}

real *buffers_data(const struct buffers_of_messages *b, uint32_t buffer)
{
	return buffer == BUFFERS_NONE ? NULL : b->at[buffer].data;
}

bool buffers_send(struct buffers_of_messages *b, uint32_t buffer,
    const struct pipeline_message *message, size_t count)
{
	struct message_buffer *from = &b->at[buffer];
	assert(from->ours && !from->lent && count <= b->numbers);
	from->lent = true;
	from->kind = message->gradient ? BUFFERS_SENT_B : BUFFERS_SENT_F;
	return b->channel->send(b->channel->arg, message, from->data, count, &from->ticket);
}

bool buffers_receive(struct buffers_of_messages *b, uint32_t buffer,
    const struct pipeline_message *message, size_t count)
{
	struct message_buffer *to = &b->at[buffer];
	assert(to->ours && !to->lent && count <= b->numbers);
	to->lent = true;
	to->kind = message->gradient ? BUFFERS_RECEIVED_B : BUFFERS_RECEIVED_F;
	return b->channel->receive(b->channel->arg, message, to->data, count, &to->ticket);
}

bool buffers_wait(const struct buffers_of_messages *b, uint32_t buffer)
{
	return b->channel->wait(b->channel->arg, b->at[buffer].ticket);
}
