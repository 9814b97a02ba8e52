/* Frames that came before the core could take them: their op is not submitted yet, or they belong to a view that was not
 * installed yet. They are kept aside, so that those behind them on the connection are not held up: what our caller waits for may be
 * one of these. Members see to it that few come (core/ahead.c): TR_AHEAD_BYTES and a frame of each other one. Who sends more
 * than TR_HELD_BYTES_MAX loses its connection. What is left of a view that its sender has left counts no more: nobody needs it.
 */
#include "collectives/engine/engine_internal.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "proto/bytes.h"

/* What is kept of one member's newest view. */
struct held_source {
	struct held_source *next;
	uint64_t from, view;
	size_t bytes;
};

struct held_frame {
	struct held_frame *next;
	struct held_source *source;
	uint64_t view;
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
	frame->source->bytes += frame->bytes;
}

static void held_free(struct held_frame *frame)
{
	shm_import_release(frame->import);
	free(frame);
}

/* NULL: no memory. */
static struct held_source *source_of(struct member *member, uint64_t from)
{
	struct held_source *source = member->held_sources;
	while (source != NULL && source->from != from)
		source = source->next;
	if (source != NULL)
		return source;
	source = calloc(1, sizeof(*source));
	if (source == NULL)
		return NULL;
	source->from = from;
	source->next = member->held_sources;
	member->held_sources = source;
	return source;
}

static void drop(struct member *member, struct held_frame *frame)
{
	if (frame->frame.place != NULL)
		group_buffer_release(member->core, frame->frame.place);
	held_free(frame);
}

/* The source is in a newer view: what it sent in those before is of no use. */
static void forget_views_before(struct member *member, struct held_source *source, uint64_t view)
{
	struct held_frame **at = &member->held;
	if (view <= source->view)
		return;
	while (*at != NULL) {
		struct held_frame *frame = *at;
		if (frame->source == source) {
			*at = frame->next;
			drop(member, frame);
		} else {
			at = &frame->next;
		}
	}
	member->held_tail = at;
	source->view = view;
	source->bytes = 0;
}

tr_status held_keep(struct member *member, uint64_t from, const struct lane *lane,
    const struct lane_frame *frame, struct tr_error *error)
{
	bool whole = frame->body == NULL || frame->place != NULL || frame->stable;
	size_t bytes = frame->head_bytes + frame->body_bytes;
	size_t copied = frame->head_bytes + (whole ? 0 : frame->body_bytes);
	uint64_t view = bytes_get_u64(frame->head);
	struct held_source *source = source_of(member, from);
	struct held_frame *held = source == NULL ? NULL : malloc(sizeof(*held) + copied);
	if (held == NULL)
		return TR_EAGAIN;
	forget_views_before(member, source, view);
	if (view < source->view) { /* it has left that view */
		free(held);
		if (frame->place != NULL)
			group_buffer_release(member->core, frame->place);
		return TR_OK;
	}
	if (bytes > TR_HELD_BYTES_MAX - source->bytes) {
		free(held);
		return tr_error_set(error, TR_EPROTO,
		    "peer %" PRIu64 " sends more than %u bytes of ops that peer %" PRIu64
		    " has not submitted",
		    from, TR_HELD_BYTES_MAX, member->peer);
	}
	held->source = source;
	held->view = view;
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
	return TR_OK;
}

static struct held_frame *take_all(struct member *member)
{
	struct held_frame *all = member->held;
	member->held = NULL;
	member->held_tail = &member->held;
	for (struct held_source *source = member->held_sources; source != NULL;
	     source = source->next)
		source->bytes = 0;
	return all;
}

/* Takes all out and puts back what the core still cannot take, in order. */
static void offer(struct member *member)
{
	struct held_frame *frame = take_all(member);
	while (frame != NULL) {
		struct held_frame *next = frame->next;
		struct tr_error error;
		tr_error_clear(&error);
		tr_status st = inbound_segment(member, frame->source->from, &frame->frame, &error);
		if (st == TR_EAGAIN) {
			held_append(member, frame);
		} else {
			if (st != TR_OK)
				inbound_close_from(member, frame->source->from, error.text);
			else if (frame->import != NULL && !member->over) /* the core may read it */
				member_keep_import(member, frame->source->from,
				    shm_import_hold(frame->import));
			held_free(frame);
		}
		frame = next;
	}
}

static bool too_old(const struct member *member, struct held_frame *frame, uint64_t now_ms,
    uint64_t late_ms)
{
	bool coming = frame->view > member->view;
	frame->looked_ms = frame->looked_ms == 0 ? now_ms : frame->looked_ms + late_ms;
	return coming && now_ms >= frame->looked_ms + TR_HELD_VIEW_MS;
}

/* Whoever has that view sees its link break, and asks for another one. */
void held_judge(struct member *member, uint64_t now_ms, uint64_t late_ms)
{
	struct held_frame *frame = take_all(member);
	while (frame != NULL) {
		struct held_frame *next = frame->next;
		if (!too_old(member, frame, now_ms, late_ms)) {
			held_append(member, frame);
		} else {
			inbound_close_from(member, frame->source->from,
			    "its frames are of a view that has not come");
			drop(member, frame);
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
		drop(member, member->held);
		member->held = next;
	}
	member->held_tail = &member->held;
	while (member->held_sources != NULL) {
		struct held_source *next = member->held_sources->next;
		free(member->held_sources);
		member->held_sources = next;
	}
	uv_close((uv_handle_t *)&member->retry, on_handle_closed);
}
