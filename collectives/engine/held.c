/* Frames that came before the core could take them: their op is not submitted yet, or they belong to a view that was not
 * installed yet. They are kept aside, so that those behind them on the connection are not held up: what our caller waits for may be
 * one of these. Members see to it that few come (core/ahead.c): TR_AHEAD_BYTES and a frame of each other one. Who sends more
 * than TR_HELD_BYTES_MAX loses its connection. What is left of a view that its sender has left counts no more: nobody needs it.
 *
 * They lie by their op's tag, so that an op that is submitted costs what came of it, however much came of others: a caller may submit
 * thousands of small ones, one after the other.
 */
#include "collectives/engine/engine_internal.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "proto/segment.h"

/* What is kept of one member's newest view. */
struct held_source {
	struct held_source *next;
	uint64_t from, view;
	size_t bytes;
};

struct held_frame {
	struct held_frame *next;
	struct held_source *source;
	uint64_t view, round;
	uint32_t tag;
	bool counted; /* as in group_event */
	struct lane_frame
	    frame; /* staging and what is stable are kept as they are; the rest is copied into `head` */
	struct shm_import *import; /* in which a stable body lies */
	size_t bytes;
	uint64_t looked_ms; /* when it was first looked at (held_judge); 0: not yet */
	_Alignas(8) uint8_t head[];
};

static void on_retry(uv_idle_t *retry);

static void list_append(struct held_list *list, struct held_frame *frame)
{
	frame->next = NULL;
	*(list->last != NULL ? &list->last->next : &list->first) = frame;
	list->last = frame;
}

static struct held_frame *list_take(struct held_list *list)
{
	struct held_frame *frame = list->first;
	list->first = frame->next;
	if (list->first == NULL)
		list->last = NULL;
	return frame;
}

static struct held_list *list_of(struct member *member, uint32_t tag)
{
	return &member->held[tag % HELD_LISTS];
}

static void held_append(struct member *member, struct held_frame *frame)
{
	list_append(list_of(member, frame->tag), frame);
	frame->source->bytes += frame->bytes;
	member->held_count++;
}

/* Out of its list already. */
static void held_taken(struct member *member, struct held_frame *frame)
{
	frame->source->bytes -= frame->bytes;
	member->held_count--;
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

static void forget_of(struct member *member, struct held_list *list,
    const struct held_source *source)
{
	struct held_list kept = { NULL, NULL };
	while (list->first != NULL) {
		struct held_frame *frame = list_take(list);
		if (frame->source != source) {
			list_append(&kept, frame);
			continue;
		}
		held_taken(member, frame);
		drop(member, frame);
	}
	*list = kept;
}

/* The source is in a newer view: what it sent in those before is of no use. */
static void forget_views_before(struct member *member, struct held_source *source, uint64_t view)
{
	if (view <= source->view)
		return;
	for (size_t i = 0; source->bytes > 0 && i < HELD_LISTS; i++)
		forget_of(member, &member->held[i], source);
	forget_of(member, &member->held_due, source);
	source->view = view;
}

tr_status held_keep(struct member *member, uint64_t from, const struct lane *lane,
    const struct lane_frame *frame, bool counted, struct tr_error *error)
{
	bool whole = frame->body == NULL || frame->place != NULL || frame->stable;
	size_t bytes = frame->head_bytes + frame->body_bytes;
	size_t copied = frame->head_bytes + (whole ? 0 : frame->body_bytes);
	struct segment_header header;
	tr_status st = segment_header_get(frame->head, bytes, &header, error);
	if (st != TR_OK)
		return st;
	struct held_source *source = source_of(member, from);
	struct held_frame *held = source == NULL ? NULL : malloc(sizeof(*held) + copied);
	if (held == NULL)
		return TR_EAGAIN;
	forget_views_before(member, source, header.view);
	if (header.view < source->view) { /* it has left that view */
		free(held);
		if (frame->place != NULL)
			group_buffer_release(member->core, frame->place);
		return TR_OK;
	}
	if (bytes > TR_HELD_BYTES_MAX - source->bytes) {
		free(held);
		if (frame->place != NULL)
			group_buffer_release(member->core, frame->place);
		return tr_error_set(error, TR_EPROTO,
		    "peer %" PRIu64 " sends more than %u bytes of ops that peer %" PRIu64
		    " has not submitted",
		    from, TR_HELD_BYTES_MAX, member->peer);
	}
	held->source = source;
	held->view = header.view;
	held->round = header.round;
	held->tag = header.tag;
	held->counted = counted;
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

static struct held_list take_all(struct member *member)
{
	struct held_list all = { NULL, NULL };
	for (size_t i = 0; member->held_count > 0 && i < HELD_LISTS; i++)
		while (member->held[i].first != NULL) {
			struct held_frame *frame = list_take(&member->held[i]);
			held_taken(member, frame);
			list_append(&all, frame);
		}
	return all;
}

/* Puts back what the core still cannot take, in order. Its steps may hold others meanwhile. */
static void offer(struct member *member, struct held_list list)
{
	while (list.first != NULL) {
		struct held_frame *frame = list_take(&list);
		struct tr_error error;
		tr_error_clear(&error);
		tr_status st = inbound_segment(member, frame->source->from, &frame->frame,
		    &frame->counted, &error);
		if (st == TR_EAGAIN) {
			held_append(member, frame);
			continue;
		}
		if (st != TR_OK)
			inbound_close_from(member, frame->source->from, error.text);
		else if (frame->import != NULL && !member->over) /* the core may read it */
			member_keep_import(member, frame->source->from,
			    shm_import_hold(frame->import));
		held_free(frame);
	}
}

/* Moves those of that op to those that are due. */
static void find_due(struct member *member, uint64_t round, uint32_t tag)
{
	struct held_list *list = list_of(member, tag), kept = { NULL, NULL };
	while (list->first != NULL) {
		struct held_frame *frame = list_take(list);
		bool due = frame->tag == tag && frame->round == round;
		list_append(due ? &member->held_due : &kept, frame);
	}
	*list = kept;
}

static struct held_list take_due(struct member *member)
{
	struct held_list due = member->held_due;
	member->held_due = (struct held_list){ NULL, NULL };
	for (struct held_frame *frame = due.first; frame != NULL; frame = frame->next)
		held_taken(member, frame);
	return due;
}

static bool too_old(const struct member *member, struct held_frame *frame, uint64_t now_ms,
    uint64_t late_ms)
{
	bool coming = frame->view > member->view;
	frame->looked_ms = frame->looked_ms == 0 ? now_ms : frame->looked_ms + late_ms;
	return coming && now_ms >= frame->looked_ms + TR_HELD_VIEW_MS;
}

/* Of whom nothing is held nothing need be known. */
static void forget_sources(struct member *member)
{
	struct held_source **at = &member->held_sources;
	while (*at != NULL) {
		struct held_source *source = *at;
		if (source->bytes > 0) {
			at = &source->next;
			continue;
		}
		*at = source->next;
		free(source);
	}
}

/* Whoever has that view sees its link break, and asks for another one. */
void held_judge(struct member *member, uint64_t now_ms, uint64_t late_ms)
{
	struct held_list all = take_all(member);
	while (all.first != NULL) {
		struct held_frame *frame = list_take(&all);
		if (!too_old(member, frame, now_ms, late_ms)) {
			held_append(member, frame);
		} else {
			inbound_close_from(member, frame->source->from,
			    "its frames are of a view that has not come");
			drop(member, frame);
		}
	}
	forget_sources(member);
}

bool held_offer(struct member *member)
{
	if (!uv_is_active((uv_handle_t *)&member->retry))
		return false;
	(void)uv_idle_stop(&member->retry);
	bool all = member->held_retry_all;
	member->held_retry_all = false;
	offer(member, take_due(member));
	if (all)
		offer(member, take_all(member));
	return true;
}

static void on_retry(uv_idle_t *retry)
{
	(void)held_offer(retry->data);
}

void held_retry(struct member *member, const struct group_action *retry)
{
	if (member->held_count == 0)
		return;
	if (retry->one_op)
		find_due(member, retry->round, retry->tag);
	else
		member->held_retry_all = true;
	if (member->held_retry_all || member->held_due.first != NULL)
		(void)uv_idle_start(&member->retry, on_retry);
}

static void on_handle_closed(uv_handle_t *handle)
{
	member_unhold(handle->data);
}

void held_start(struct member *member)
{
	(void)uv_idle_init(&member->engine->loop, &member->retry);
	member->retry.data = member;
	member->holds++;
}

static void drop_all(struct member *member, struct held_list list)
{
	while (list.first != NULL)
		drop(member, list_take(&list));
}

void held_stop(struct member *member)
{
	drop_all(member, take_due(member));
	drop_all(member, take_all(member));
	while (member->held_sources != NULL) {
		struct held_source *next = member->held_sources->next;
		free(member->held_sources);
		member->held_sources = next;
	}
	uv_close((uv_handle_t *)&member->retry, on_handle_closed);
}
