/* What one core sends to another, on its way between two cores of a test: made from the action, handed over as the event.
 * Free of cmocka, so that programs use it too.
 */
#ifndef TR_TESTS_CORE_MESSAGE_H
#define TR_TESTS_CORE_MESSAGE_H

#include <assert.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "collectives/core/group.h"

struct core_message {
	struct core_message *next; /* its keeper's */
	unsigned from, to;         /* members: peer id - 1 */
	enum group_action_kind kind;
	struct segment_header header;
	void *payload; /* a copy */
	size_t payload_bytes;
	Traind__Peer__Vote vote;
	Traind__Peer__Commit commit;
	Traind__Peer__Submitted *submitted;
	char *reason; /* the commit's */
	uint64_t *bandwidth;
};

static inline bool core_message_is(const struct group_action *action)
{
	return action->kind == GROUP_DO_SEND_SEGMENT || action->kind == GROUP_DO_SEND_VOTE ||
	    action->kind == GROUP_DO_SEND_COMMIT || action->kind == GROUP_DO_SEND_SUBMITTED;
}

/* Of one of these actions of `core`, member `from`: its buffer goes back to the core. */
static inline struct core_message *core_message_take(struct group_core *core, unsigned from,
    struct group_action *action)
{
	struct core_message *message = calloc(1, sizeof(*message));
	assert(message != NULL);
	*message = (struct core_message){ .from = from,
		.to = (unsigned)action->to - 1,
		.kind = action->kind,
		.header = action->header,
		.vote = action->vote,
		.commit = action->commit,
		.submitted = action->submitted };
	action->submitted = NULL;
	if (action->kind == GROUP_DO_SEND_COMMIT) {
		message->reason = strdup(action->text);
		assert(message->reason != NULL);
		size_t bytes = action->commit.n_bandwidth_bytes_per_s * sizeof(uint64_t);
		message->bandwidth = malloc(bytes + 1);
		assert(message->bandwidth != NULL);
		if (bytes > 0)
			memcpy(message->bandwidth, action->commit.bandwidth_bytes_per_s, bytes);
		message->commit.bandwidth_bytes_per_s = message->bandwidth;
	}
	if (action->kind == GROUP_DO_SEND_SEGMENT && action->payload_bytes > 0) {
		message->payload = malloc(action->payload_bytes);
		assert(message->payload != NULL);
		memcpy(message->payload, action->payload, action->payload_bytes);
		message->payload_bytes = action->payload_bytes;
	}
	if (action->kind == GROUP_DO_SEND_SEGMENT && action->buffer != NULL)
		group_buffer_release(core, action->buffer);
	return message;
}

/* For the core of member `to`; borrows from `message`. */
static inline struct group_event core_message_event(struct core_message *message)
{
	struct group_event event = { .from = message->from + 1 };
	switch (message->kind) {
	case GROUP_DO_SEND_SEGMENT:
		event.kind = GROUP_SEGMENT;
		event.segment.header = &message->header;
		event.segment.payload = message->payload;
		break;
	case GROUP_DO_SEND_VOTE:
		event.kind = GROUP_VOTE;
		event.vote = &message->vote;
		break;
	case GROUP_DO_SEND_SUBMITTED:
		event.kind = GROUP_SUBMITTED;
		event.submitted = message->submitted;
		break;
	default:
		event.kind = GROUP_COMMIT;
		message->commit.reason = message->reason;
		event.commit = &message->commit;
		break;
	}
	return event;
}

static inline void core_message_free(struct core_message *message)
{
	if (message == NULL)
		return;
	if (message->submitted != NULL)
		traind__peer__submitted__free_unpacked(message->submitted, NULL);
	free(message->payload);
	free(message->reason);
	free(message->bandwidth);
	free(message);
}

#endif
