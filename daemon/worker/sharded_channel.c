#include "daemon/worker/sharded_channel.h"

#include <stdlib.h>

#include "daemon/worker/trainer_inside.h"

/* Who has the same rows at another stage. */
static uint32_t across(const struct sharded *s, uint32_t stage)
{
	struct mesh_at at = mesh_at(&s->shards.mesh, s->rank);
	if (s->strict == NULL)
		return ranks_across(&s->next, s->self, stage);
	at.at[MESH_PP] = stage;
	return ranks_at(&s->next, mesh_rank(&s->shards.mesh, at));
}

static bool submit(struct sharded_channel *c, const struct pipeline_message *message,
    struct tr_op *op, uint64_t *ticket)
{
	const struct sharded *s = c->t->sharded;
	uint32_t other = across(s, message->peer);
	uint32_t members[2] = { other < s->self ? other : s->self,
		other < s->self ? s->self : other };
	if (c->status != TR_OK ||
	    !messages_add(&c->messages, message, op->collective == TR_SEND, ticket))
		return false;
	op->tag = c->messages.at[*ticket].tag;
	op->root = other < s->self ? 0 : 1;
	op->scope = (struct tr_scope){ members, 2 };
	c->status = tr_submit(c->t->group, op, &c->error);
	op->scope.members = NULL;
	return c->status == TR_OK;
}

static bool channel_send(void *arg, const struct pipeline_message *message, const float *data,
    size_t count, uint64_t *ticket)
{
	struct tr_op op = TR_OP_INIT;
	op.collective = TR_SEND;
	op.input = data;
	op.count = count;
	return submit(arg, message, &op, ticket);
}

static bool channel_receive(void *arg, const struct pipeline_message *message, float *data,
    size_t count, uint64_t *ticket)
{
	struct tr_op op = TR_OP_INIT;
	op.collective = TR_RECV;
	op.output = data;
	op.count = count;
	return submit(arg, message, &op, ticket);
}

static bool channel_wait(void *arg, uint64_t ticket)
{
	struct sharded_channel *c = arg;
	double since_s = trainer_monotonic_s();
	if (c->status == TR_OK)
		c->status = tr_wait(c->t->group, c->messages.at[ticket].tag, &c->error);
	c->t->sharded->exchange.waited_s += trainer_monotonic_s() - since_s;
	if (c->status == TR_OK)
		messages_waited(&c->messages, ticket);
	return c->status == TR_OK;
}

static bool channel_idle(void *arg, uint64_t ticket)
{
	struct sharded_channel *c = arg;
	struct message *m = &c->messages.at[ticket];
	if (c->status != TR_OK || !messages_idle(&c->messages, ticket))
		return false;
	if (!m->released)
		c->status = tr_release(c->t->group, m->tag, &c->error);
	m->released = c->status == TR_OK;
	return m->released;
}

static float *channel_memory(void *arg, size_t numbers)
{
	struct sharded_channel *c = arg;
	/* Nothing was idle since the round is over, not since more is needed. */
	if (c->status != TR_OK)
		return NULL;
	if (c->handed_out < c->buffer_count)
		return c->buffers[c->handed_out++];
	if (c->buffer_count == c->buffer_room) {
		size_t room = 2 * c->buffer_room + 8;
		float **grown = realloc(c->buffers, room * sizeof(*grown));
		if (grown == NULL)
			return NULL;
		c->buffers = grown;
		c->buffer_room = room;
	}
	float *made = mesh_memory_take(&c->t->sharded->memory, numbers * sizeof(float));
	if (made == NULL) {
		c->status = tr_error_set(&c->error, TR_ENOMEM,
		    "mesh.pp: no shared memory for a message of %zu numbers", numbers);
		return NULL;
	}
	c->handed_out++;
	return c->buffers[c->buffer_count++] = made;
}

struct pipeline_channel sharded_channel_calls(struct sharded_channel *c)
{
	return (struct pipeline_channel){ channel_send, channel_receive, channel_wait, channel_idle,
		channel_memory, c };
}

/* ---- the caller's ---- */

tr_status sharded_channel_init(struct trainer *t, struct sharded_channel *c, struct tr_error *error)
{
	*c = (struct sharded_channel){ .t = t };
	return messages_init(&c->messages, t->sharded->shards.mesh.size[MESH_PP], error);
}

void sharded_channel_finish(struct sharded_channel *c)
{
	schedule_finish(&c->steps);
	schedule_finish(&c->forward);
	messages_finish(&c->messages);
	for (size_t i = 0; i < c->buffer_count; i++)
		mesh_memory_give(&c->t->sharded->memory, c->buffers[i]);
	free(c->buffers);
}

void sharded_channel_begin_round(struct sharded_channel *c)
{
	c->status = TR_OK;
	messages_begin_round(&c->messages, TAG_MESSAGE);
}

tr_status sharded_channel_begin_run(struct sharded_channel *c, const struct schedule_shape *shape,
    bool train, const struct schedule **lists)
{
	struct schedule *schedule = train ? &c->steps : &c->forward;
	if (schedule->lists == NULL || schedule->shape.microbatches != shape->microbatches) {
		schedule_finish(schedule);
		c->status = (train ? schedule_create : schedule_create_forward)(shape, schedule,
		    &c->error);
	}
	if (c->status == TR_OK)
		c->status = messages_begin_run(&c->messages, schedule, &c->error);
	*lists = schedule;
	return c->status;
}
