#include "collectives/transport/send_queue.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

struct send_frame {
	struct send_frame *next;
	const uint8_t *body; /* borrowed, or `copy` */
	uint8_t *copy;       /* owned; NULL if borrowed */
	bool borrowed;
	size_t body_bytes;
	size_t written; /* over head and body */
	send_released_fn *released;
	void *arg;
	size_t head_bytes;
	uint8_t head[SEND_HEAD_MAX];
};

void send_queue_init(struct send_queue *queue)
{
	*queue = (struct send_queue){ .tail = &queue->first };
}

static size_t frame_left(const struct send_frame *frame)
{
	return frame->head_bytes + frame->body_bytes - frame->written;
}

static size_t frame_left_copied(const struct send_frame *frame)
{
	return frame->borrowed ? 0 : frame_left(frame);
}

/* The callback may queue again, so it comes last. */
static void frame_release(struct send_frame *frame, bool sent)
{
	send_released_fn *released = frame->released;
	void *arg = frame->arg;
	free(frame->copy);
	free(frame);
	if (released != NULL)
		released(arg, sent);
}

static void queue_append(struct send_queue *queue, struct send_frame *frame)
{
	*queue->tail = frame;
	queue->tail = &frame->next;
	queue->unsent += frame_left(frame);
	queue->unsent_copied += frame_left_copied(frame);
}

static struct send_frame *queue_take_first(struct send_queue *queue)
{
	struct send_frame *frame = queue->first;
	queue->first = frame->next;
	if (queue->first == NULL)
		queue->tail = &queue->first;
	queue->unsent -= frame_left(frame);
	queue->unsent_copied -= frame_left_copied(frame);
	return frame;
}

void send_queue_finish(struct send_queue *queue)
{
	while (queue->first != NULL)
		frame_release(queue_take_first(queue), true); /* as far as anybody knows */
}

static struct send_frame *frame_create(const void *head, size_t head_bytes)
{
	assert(head_bytes <= SEND_HEAD_MAX);
	struct send_frame *frame = calloc(1, sizeof(*frame));
	if (frame == NULL)
		return NULL;
	memcpy(frame->head, head, head_bytes);
	frame->head_bytes = head_bytes;
	return frame;
}

tr_status send_queue_copy(struct send_queue *queue, const void *head, size_t head_bytes,
    const void *body, size_t body_bytes)
{
	struct send_frame *frame = frame_create(head, head_bytes);
	if (frame == NULL)
		return TR_ENOMEM;
	if (body_bytes > 0) {
		frame->copy = malloc(body_bytes);
		if (frame->copy == NULL) {
			free(frame);
			return TR_ENOMEM;
		}
		memcpy(frame->copy, body, body_bytes);
	}
	frame->body = frame->copy;
	frame->body_bytes = body_bytes;
	queue_append(queue, frame);
	return TR_OK;
}

tr_status send_queue_borrow(struct send_queue *queue, const void *head, size_t head_bytes,
    const void *body, size_t body_bytes, send_released_fn *released, void *arg)
{
	struct send_frame *frame = frame_create(head, head_bytes);
	if (frame == NULL)
		return TR_ENOMEM;
	frame->body = body;
	frame->body_bytes = body_bytes;
	frame->released = released;
	frame->arg = arg;
	frame->borrowed = true;
	queue_append(queue, frame);
	return TR_OK;
}

int send_queue_pieces(const struct send_queue *queue, struct iovec *pieces, int max)
{
	int count = 0;
	for (struct send_frame *f = queue->first; f != NULL && count + 2 <= max; f = f->next) {
		size_t in_body = 0;
		if (f->written < f->head_bytes)
			pieces[count++] = (struct iovec){ f->head + f->written,
				f->head_bytes - f->written };
		else
			in_body = f->written - f->head_bytes;
		if (f->body_bytes > in_body)
			pieces[count++] = (struct iovec){ (void *)(uintptr_t)(f->body + in_body),
				f->body_bytes - in_body };
	}
	return count;
}

/* Releases a list of frames that left the queue. */
static void release_all(struct send_frame *frame, bool sent)
{
	while (frame != NULL) {
		struct send_frame *next = frame->next;
		frame_release(frame, sent);
		frame = next;
	}
}

void send_queue_written(struct send_queue *queue, size_t bytes)
{
	struct send_frame *done = NULL, **done_tail = &done;
	while (bytes > 0) {
		struct send_frame *first = queue->first;
		assert(first != NULL);
		size_t left = frame_left(first);
		if (bytes < left) {
			queue->unsent -= bytes;
			if (!first->borrowed)
				queue->unsent_copied -= bytes;
			first->written += bytes;
			break;
		}
		bytes -= left;
		*done_tail = queue_take_first(queue);
		done_tail = &(*done_tail)->next;
		*done_tail = NULL;
	}
	release_all(done,
	    true); /* callbacks come when the queue's state is settled: they may use it */
}

/* What is left of a half-written frame becomes our own memory. */
static tr_status frame_own_rest(struct send_frame *frame)
{
	size_t in_body = frame->written > frame->head_bytes ? frame->written - frame->head_bytes
	                                                    : 0;
	size_t left = frame->body_bytes - in_body;
	uint8_t *copy = malloc(left == 0 ? 1 : left);
	if (copy == NULL)
		return TR_ENOMEM;
	memcpy(copy, frame->body + in_body, left);
	frame->copy = copy;
	frame->body = copy;
	frame->body_bytes = left;
	if (frame->written > frame->head_bytes)
		frame->written = frame->head_bytes;
	frame->borrowed = false;
	return TR_OK;
}

/* Takes the frames that are to be dropped out of the queue, in order. */
static struct send_frame *take_unbegun_borrowed(struct send_queue *queue)
{
	struct send_frame *dropped = NULL, **dropped_tail = &dropped;
	struct send_frame **link = &queue->first;
	while (*link != NULL) {
		struct send_frame *frame = *link;
		if (!frame->borrowed || frame->written > 0) {
			link = &frame->next;
			continue;
		}
		*link = frame->next;
		frame->next = NULL;
		queue->unsent -= frame_left(frame);
		*dropped_tail = frame;
		dropped_tail = &frame->next;
	}
	queue->tail = link;
	return dropped;
}

tr_status send_queue_drop_borrowed(struct send_queue *queue)
{
	tr_status st = TR_OK;
	struct send_frame *dropped = take_unbegun_borrowed(queue);
	struct send_frame *begun = queue->first;
	send_released_fn *released = NULL;
	void *arg = NULL;
	if (begun != NULL && begun->borrowed) {
		st = frame_own_rest(begun);
		if (st == TR_OK) {
			queue->unsent_copied += frame_left(begun);
			released = begun->released;
			arg = begun->arg;
			begun->released = NULL;
		} else {
			frame_release(queue_take_first(queue), true);
		}
	}
	if (released != NULL)
		released(arg, true);
	release_all(dropped, false);
	return st;
}
