#include "daemon/worker/pipeline_messages.h"

#include <stdlib.h>
#include <string.h>

/* No list has more than six instructions a microbatch, and one. */
enum { INSTRUCTIONS = 6 };

static tr_status no_memory(struct tr_error *error)
{
	return tr_error_set(error, TR_ENOMEM, "mesh.pp: no memory for a pipeline's tables");
}

tr_status messages_init(struct messages *m, uint32_t ranks, struct tr_error *error)
{
	*m = (struct messages){ .ranks = ranks, .seen = calloc(ranks, sizeof(*m->seen)) };
	return m->seen != NULL ? TR_OK : no_memory(error);
}

void messages_finish(struct messages *m)
{
	free(m->places);
	free(m->seen);
	free(m->at);
	*m = (struct messages){ 0 };
}

void messages_begin_round(struct messages *m, uint32_t first_tag)
{
	m->first_tag = first_tag;
	m->first = m->count = 0;
	memset(m->seen, 0, m->ranks * sizeof(*m->seen));
}

static void find_places(struct messages *m, const struct schedule *schedule)
{
	const struct schedule_shape *shape = &schedule->shape;
	for (uint32_t rank = 0; rank < shape->ranks; rank++)
		for (uint32_t i = 0; i < schedule->lists[rank].count; i++) {
			struct pipeline_message message;
			const struct schedule_instruction *what = &schedule->lists[rank].at[i];
			if (!pipeline_message_of(shape, rank, what, &message))
				continue;
			struct message_places
			    *places = &m->places[pipeline_message_number(shape, &message)];
			if (what->op == SCHEDULE_SEND_F || what->op == SCHEDULE_SEND_B)
				places->sent = i;
			else
				places->received = i;
		}
}

tr_status messages_begin_run(struct messages *m, const struct schedule *schedule,
    struct tr_error *error)
{
	const struct schedule_shape *shape = &schedule->shape;
	m->schedule = schedule;
	if (m->forward == schedule->forward && memcmp(&m->shape, shape, sizeof(*shape)) == 0)
		return TR_OK;
	free(m->places);
	m->shape = (struct schedule_shape){ 0 };
	m->places = calloc(2 * (size_t)shape->ranks * shape->chunks * shape->microbatches,
	    sizeof(*m->places));
	if (m->places == NULL)
		return no_memory(error);
	m->shape = *shape;
	m->forward = schedule->forward;
	find_places(m, schedule);
	return TR_OK;
}

void messages_end_run(struct messages *m)
{
	const struct schedule_shape *shape = &m->schedule->shape;
	uint32_t units = shape->chunks * shape->microbatches;
	m->first += INSTRUCTIONS * units + shape->chunks;
	m->first_tag += 2 * shape->ranks * units;
}

static struct message *make_one(struct messages *m)
{
	if (m->count == m->room) {
		uint32_t room = 2 * m->room + 64;
		struct message *grown = realloc(m->at, room * sizeof(*grown));
		if (grown == NULL)
			return NULL;
		m->at = grown;
		m->room = room;
	}
	return &m->at[m->count++];
}

bool messages_add(struct messages *m, const struct pipeline_message *message, bool outgoing,
    uint64_t *ticket)
{
	uint32_t number = pipeline_message_number(&m->schedule->shape, message);
	const struct message_places *places = &m->places[number];
	struct message *made = make_one(m);
	if (made == NULL)
		return false;
	*made = (struct message){ m->first_tag + number, message->peer,
		m->first + (outgoing ? places->received : places->sent), outgoing, false };
	*ticket = (uint64_t)(made - m->at);
	return true;
}

void messages_waited(struct messages *m, uint64_t ticket)
{
	const struct message *message = &m->at[ticket];
	uint32_t *seen = &m->seen[message->peer];
	if (!message->outgoing && message->done >= *seen)
		*seen = message->done + 1;
}

bool messages_idle(const struct messages *m, uint64_t ticket)
{
	const struct message *message = &m->at[ticket];
	return m->seen[message->peer] > message->done;
}
