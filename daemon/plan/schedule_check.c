#include "daemon/plan/schedule_check.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

/* Of a microbatch at a stage. */
enum {
	RECEIVED_F = 1 << SCHEDULE_RECV_F,
	FORWARD = 1 << SCHEDULE_FWD,
	SENT_F = 1 << SCHEDULE_SEND_F,
	RECEIVED_B = 1 << SCHEDULE_RECV_B,
	BACKWARD = 1 << SCHEDULE_BWD,
	SENT_B = 1 << SCHEDULE_SEND_B,
};

struct message {
	uint32_t microbatch, stage; /* the stage that gets it */
};

struct channel {
	struct message *queue; /* oldest first */
	uint32_t count;
};

struct check {
	const struct schedule *schedule;
	struct schedule_channel kind;
	uint32_t *next;              /* instruction of each rank */
	uint8_t *done;               /* of [stage][microbatch] */
	uint32_t *backwards;         /* of each stage */
	bool *ready;                 /* of each stage: GRAD_READY was there */
	struct channel *channels[2]; /* forward and backward, by sender */
};

static const struct schedule_instruction *current(const struct check *c, uint32_t rank)
{
	const struct schedule_list *list = &c->schedule->lists[rank];

	return c->next[rank] < list->count ? &list->at[c->next[rank]] : NULL;
}

static uint8_t *done_at(const struct check *c, uint32_t rank,
    const struct schedule_instruction *what)
{
	const struct schedule_shape *shape = &c->schedule->shape;

	return &c->done[(size_t)schedule_stage(shape, rank, what->chunk) * shape->microbatches +
	    what->microbatch];
}

static tr_status broken(const struct check *c, uint32_t rank,
    const struct schedule_instruction *what, const char *rule, struct tr_error *error)
{
	return tr_error_set(error, TR_EINVAL,
	    "rank %u, instruction %u: %s of microbatch %u, chunk %u %s", rank, c->next[rank],
	    schedule_op_name((enum schedule_op)what->op), what->microbatch, what->chunk, rule);
}

/* What has to be there before an instruction of a stage. */
static const char *missing(const struct check *c, uint32_t rank,
    const struct schedule_instruction *what, uint8_t done)
{
	const struct schedule_shape *shape = &c->schedule->shape;
	bool first = schedule_is_first(shape, rank, what->chunk),
	     last = schedule_is_last(shape, rank, what->chunk);

	switch (what->op) {
	case SCHEDULE_RECV_F:
	case SCHEDULE_SEND_B:
		if (first)
			return "is of the first stage, which has none before it";
		return what->op == SCHEDULE_SEND_B && (done & BACKWARD) == 0
		    ? "comes before its backward"
		    : NULL;
	case SCHEDULE_SEND_F:
	case SCHEDULE_RECV_B:
		if (last)
			return "is of the last stage, which has none behind it";
		return what->op == SCHEDULE_SEND_F && (done & FORWARD) == 0
		    ? "comes before its forward"
		    : NULL;
	case SCHEDULE_FWD:
		return first || (done & RECEIVED_F) != 0 ? NULL : "comes before its input";
	default:
		if ((done & FORWARD) == 0)
			return "comes before its forward";
		return last || (done & RECEIVED_B) != 0 ? NULL : "comes before its gradient";
	}
}

static tr_status check_rules(const struct check *c, uint32_t rank,
    const struct schedule_instruction *what, struct tr_error *error)
{
	const struct schedule_shape *shape = &c->schedule->shape;
	const char *words;

	if (what->op >= SCHEDULE_OPS || what->chunk >= shape->chunks ||
	    what->microbatch >= shape->microbatches)
		return tr_error_set(error, TR_EINVAL,
		    "rank %u, instruction %u: no such op, chunk or microbatch", rank,
		    c->next[rank]);
	uint32_t stage = schedule_stage(shape, rank, what->chunk);
	if (what->op == SCHEDULE_GRAD_READY) {
		if (c->backwards[stage] != shape->microbatches)
			return broken(c, rank, what, "comes before the chunk's last backward",
			    error);
		return c->ready[stage] ? broken(c, rank, what, "is there twice", error) : TR_OK;
	}
	uint8_t done = *done_at(c, rank, what);
	if ((done >> what->op & 1) != 0)
		return broken(c, rank, what, "is there twice", error);
	words = missing(c, rank, what, done);
	return words == NULL ? TR_OK : broken(c, rank, what, words, error);
}

static bool is_send(const struct schedule_instruction *what)
{
	return what->op == SCHEDULE_SEND_F || what->op == SCHEDULE_SEND_B;
}

static bool is_receive(const struct schedule_instruction *what)
{
	return what->op == SCHEDULE_RECV_F || what->op == SCHEDULE_RECV_B;
}

/* The other end's instruction of the same message: what the peer has to be at, in a rendezvous. */
static bool meets(const struct check *c, uint32_t rank, const struct schedule_instruction *what)
{
	const struct schedule_shape *shape = &c->schedule->shape;
	const struct schedule_instruction *other = current(c, schedule_peer(shape, rank, what));
	unsigned wanted = what->op == SCHEDULE_SEND_F ? SCHEDULE_RECV_F : SCHEDULE_RECV_B;

	return other != NULL && other->op == wanted && other->microbatch == what->microbatch &&
	    other->chunk == schedule_peer_chunk(shape, rank, what);
}

static void finish_instruction(struct check *c, uint32_t rank)
{
	const struct schedule_instruction *what = current(c, rank);
	uint32_t stage = schedule_stage(&c->schedule->shape, rank, what->chunk);

	if (what->op == SCHEDULE_GRAD_READY)
		c->ready[stage] = true;
	else
		*done_at(c, rank, what) |= (uint8_t)(1u << what->op);
	c->backwards[stage] += what->op == SCHEDULE_BWD;
	c->next[rank]++;
}

static bool step_send(struct check *c, uint32_t rank, const struct schedule_instruction *what)
{
	const struct schedule_shape *shape = &c->schedule->shape;
	struct channel *channel = &c->channels[what->op == SCHEDULE_SEND_B][rank];
	uint32_t peer = schedule_peer(shape, rank, what);

	if (c->kind.capacity == 0) {
		if (!meets(c, rank, what))
			return false;
		finish_instruction(c, peer);
		finish_instruction(c, rank);
		return true;
	}
	if (channel->count >= c->kind.capacity)
		return false;
	assert(channel->queue != NULL);
	channel->queue[channel->count++] = (struct message){ what->microbatch,
		schedule_stage(shape, peer, schedule_peer_chunk(shape, rank, what)) };
	finish_instruction(c, rank);
	return true;
}

static bool step_receive(struct check *c, uint32_t rank, const struct schedule_instruction *what)
{
	const struct schedule_shape *shape = &c->schedule->shape;
	struct channel
	    *channel = &c->channels[what->op == SCHEDULE_RECV_B][schedule_peer(shape, rank, what)];
	uint32_t stage = schedule_stage(shape, rank, what->chunk), at = 0;

	while (at < channel->count &&
	    (channel->queue[at].microbatch != what->microbatch || channel->queue[at].stage != stage))
		at++;
	if (at == channel->count || (at > 0 && c->kind.in_order))
		return false;
	for (channel->count--; at < channel->count; at++)
		channel->queue[at] = channel->queue[at + 1];
	finish_instruction(c, rank);
	return true;
}

/* Goes on with a rank until it waits. A receive at a rendezvous is finished by its sender. */
static tr_status run_rank(struct check *c, uint32_t rank, bool *moved, struct tr_error *error)
{
	const struct schedule_instruction *what;

	while ((what = current(c, rank)) != NULL) {
		tr_status st = check_rules(c, rank, what, error);
		if (st != TR_OK)
			return st;
		if (is_send(what) ? !step_send(c, rank, what)
		                  : is_receive(what) &&
		            (c->kind.capacity == 0 || !step_receive(c, rank, what)))
			return TR_OK;
		if (!is_send(what) && !is_receive(what))
			finish_instruction(c, rank);
		*moved = true;
	}
	return TR_OK;
}

static size_t say(char *words, size_t bytes, size_t used, uint32_t rank,
    const struct schedule_instruction *what)
{
	int wrote = snprintf(words + used, bytes - used, "rank %u in %s of microbatch %u, chunk %u",
	    rank, schedule_op_name((enum schedule_op)what->op), what->microbatch, what->chunk);

	used += wrote > 0 ? (size_t)wrote : 0;
	return used < bytes ? used : bytes - 1;
}

/* Who waits for whom: as many steps as there are ranks lead to one that has ended, or into the circle, which is then said. */
static tr_status deadlock(const struct check *c, uint32_t rank, struct tr_error *error)
{
	const struct schedule_shape *shape = &c->schedule->shape;
	char words[TR_ERROR_TEXT_MAX];
	uint32_t peer = rank, first;
	size_t used;

	for (uint32_t i = 0; i < shape->ranks; i++) {
		peer = schedule_peer(shape, rank, current(c, rank));
		if (current(c, peer) == NULL) {
			(void)say(words, sizeof(words), 0, rank, current(c, rank));
			return tr_error_set(error, TR_EINVAL,
			    "deadlock: %s waits for rank %u, which has ended", words, peer);
		}
		rank = peer;
	}
	first = rank;
	used = say(words, sizeof(words), 0, rank, current(c, rank));
	for (rank = schedule_peer(shape, rank, current(c, rank)); rank != first;
	     rank = schedule_peer(shape, rank, current(c, rank))) {
		int wrote = snprintf(words + used, sizeof(words) - used, ", which waits for ");
		used = used + (size_t)wrote < sizeof(words) ? used + (size_t)wrote
		                                            : sizeof(words) - 1;
		used = say(words, sizeof(words), used, rank, current(c, rank));
	}
	return tr_error_set(error, TR_EINVAL, "deadlock: %s, which waits for rank %u", words, first);
}

static tr_status check_end(const struct check *c, struct tr_error *error)
{
	const struct schedule_shape *shape = &c->schedule->shape;

	for (uint32_t rank = 0; rank < shape->ranks; rank++)
		if (current(c, rank) != NULL)
			return deadlock(c, rank, error);
	for (uint32_t stage = 0; stage < shape->ranks * shape->chunks; stage++)
		if (!c->ready[stage]) /* so all backwards were there, hence all forwards and receives */
			return tr_error_set(error, TR_EINVAL, "rank %u: chunk %u has no GRAD_READY",
			    stage % shape->ranks, stage / shape->ranks);
	for (uint32_t rank = 0; rank < shape->ranks; rank++)
		for (int backward = 0; backward < 2; backward++)
			if (c->channels[backward][rank].count > 0)
				return tr_error_set(error, TR_EINVAL,
				    "rank %u: what it sent %s was never received", rank,
				    backward ? "backward" : "forward");
	return TR_OK;
}

static tr_status run_all(struct check *c, struct tr_error *error)
{
	bool moved = true;

	while (moved) {
		moved = false;
		for (uint32_t rank = 0; rank < c->schedule->shape.ranks; rank++) {
			tr_status st = run_rank(c, rank, &moved, error);
			if (st != TR_OK)
				return st;
		}
	}
	return check_end(c, error);
}

static bool check_alloc(struct check *c)
{
	const struct schedule_shape *shape = &c->schedule->shape;
	size_t stages = (size_t)shape->ranks * shape->chunks,
	       units = (size_t)shape->microbatches * shape->chunks;

	c->next = calloc(shape->ranks, sizeof(*c->next));
	c->done = calloc(stages, shape->microbatches);
	c->backwards = calloc(stages, sizeof(*c->backwards));
	c->ready = calloc(stages, sizeof(*c->ready));
	c->channels[0] = calloc(shape->ranks, sizeof(*c->channels[0]));
	c->channels[1] = calloc(shape->ranks, sizeof(*c->channels[1]));
	if (c->next == NULL || c->done == NULL || c->backwards == NULL || c->ready == NULL ||
	    c->channels[0] == NULL || c->channels[1] == NULL)
		return false;
	for (uint32_t i = 0; i < 2 * shape->ranks; i++) {
		struct channel *channel = &c->channels[i % 2][i / 2];
		channel->queue = calloc(units, sizeof(*channel->queue));
		if (channel->queue == NULL)
			return false;
	}
	return true;
}

static void check_free(struct check *c)
{
	for (uint32_t i = 0; i < 2 * c->schedule->shape.ranks; i++)
		if (c->channels[i % 2] != NULL)
			free(c->channels[i % 2][i / 2].queue);
	free(c->channels[0]);
	free(c->channels[1]);
	free(c->next);
	free(c->done);
	free(c->backwards);
	free(c->ready);
}

tr_status schedule_check(const struct schedule *schedule, struct schedule_channel channel,
    struct tr_error *error)
{
	struct check c = { .schedule = schedule, .kind = channel };
	tr_status st = TR_ENOMEM;

	if (check_alloc(&c))
		st = run_all(&c, error);
	else
		(void)tr_error_set(error, st, "no memory to check a schedule");
	check_free(&c);
	return st;
}
