#include "daemon/plan/schedule.h"

#include <assert.h>
#include <stdlib.h>

#include "common/limits.h"

/* A forward or a backward, in the order in which a rank takes them. */
struct unit {
	uint32_t microbatch, chunk;
};

const char *schedule_kind_name(enum schedule_kind kind)
{
	static const char *const names[SCHEDULE_KINDS] = { "gpipe", "1f1b", "interleaved" };

	return names[kind];
}

const char *schedule_op_name(enum schedule_op op)
{
	static const char *const names[SCHEDULE_OPS] = { "RECV_F", "FWD", "SEND_F", "RECV_B", "BWD",
		"SEND_B", "GRAD_READY" };

	return names[op];
}

/* Of an interleaved rank's microbatches. */
static uint32_t groups_of(const struct schedule_shape *shape)
{
	uint32_t groups = shape->microbatches / shape->ranks;

	return groups > 0 ? groups : 1;
}

static tr_status check(const struct schedule_shape *shape, bool forward, struct tr_error *error)
{
	const char *name = schedule_kind_name(shape->kind);

	if (shape->ranks == 0 || shape->ranks > TR_GROUP_PEERS_MAX)
		return tr_error_set(error, TR_EINVAL,
		    "schedule %s: %u pipeline ranks; 1 to %u are allowed", name, shape->ranks,
		    TR_GROUP_PEERS_MAX);
	if (shape->microbatches == 0 || shape->microbatches > TR_SCHEDULE_MICROBATCHES_MAX)
		return tr_error_set(error, TR_EINVAL,
		    "schedule %s: %u microbatches; 1 to %u are allowed", name, shape->microbatches,
		    TR_SCHEDULE_MICROBATCHES_MAX);
	if (shape->kind != SCHEDULE_INTERLEAVED) {
		if (shape->chunks != 1)
			return tr_error_set(error, TR_EINVAL,
			    "schedule %s: %u chunks a rank; it has 1, interleaved has more", name,
			    shape->chunks);
		return TR_OK;
	}
	if (shape->chunks < 2 || shape->chunks > TR_SCHEDULE_CHUNKS_MAX)
		return tr_error_set(error, TR_EINVAL,
		    "schedule %s: %u chunks a rank; 2 to %u are allowed", name, shape->chunks,
		    TR_SCHEDULE_CHUNKS_MAX);
	if (shape->ranks < 2)
		return tr_error_set(error, TR_EINVAL,
		    "schedule %s: one pipeline rank; it needs 2 at least", name);
	if (shape->microbatches < shape->ranks && !forward)
		return tr_error_set(error, TR_EINVAL,
		    "schedule %s: %u microbatches for %u pipeline ranks; it needs %u at least",
		    name, shape->microbatches, shape->ranks, shape->ranks);
	return TR_OK;
}

tr_status schedule_shape_check(const struct schedule_shape *shape, struct tr_error *error)
{
	return check(shape, false, error);
}

bool schedule_is_first(const struct schedule_shape *shape, uint32_t rank, uint32_t chunk)
{
	return schedule_stage(shape, rank, chunk) == 0;
}

bool schedule_is_last(const struct schedule_shape *shape, uint32_t rank, uint32_t chunk)
{
	return schedule_stage(shape, rank, chunk) == shape->ranks * shape->chunks - 1;
}

/* The stage at the other end. */
static uint32_t other_stage(const struct schedule_shape *shape, uint32_t rank,
    const struct schedule_instruction *what)
{
	uint32_t stage = schedule_stage(shape, rank, what->chunk);

	return what->op == SCHEDULE_RECV_F || what->op == SCHEDULE_SEND_B ? stage - 1 : stage + 1;
}

uint32_t schedule_peer(const struct schedule_shape *shape, uint32_t rank,
    const struct schedule_instruction *what)
{
	return other_stage(shape, rank, what) % shape->ranks;
}

uint32_t schedule_peer_chunk(const struct schedule_shape *shape, uint32_t rank,
    const struct schedule_instruction *what)
{
	return other_stage(shape, rank, what) / shape->ranks;
}

uint32_t schedule_group(const struct schedule_shape *shape)
{
	uint32_t groups = groups_of(shape);

	return shape->kind == SCHEDULE_INTERLEAVED ? (shape->microbatches + groups - 1) / groups
	                                           : 1;
}

uint32_t schedule_warm_up(const struct schedule_shape *shape, uint32_t rank)
{
	uint32_t all = shape->microbatches * shape->chunks, behind = shape->ranks - rank - 1,
	         warm_up = all;

	if (shape->kind == SCHEDULE_1F1B)
		warm_up = behind;
	else if (shape->kind == SCHEDULE_INTERLEAVED)
		warm_up = 2 * behind + (shape->chunks - 1) * schedule_group(shape);
	return warm_up < all ? warm_up : all;
}

uint32_t schedule_in_flight(const struct schedule_shape *shape, uint32_t rank)
{
	uint32_t all = shape->microbatches * shape->chunks,
	         most = schedule_warm_up(shape, rank) + 1;

	return most < all ? most : all;
}

uint32_t schedule_capacity(const struct schedule_shape *shape)
{
	uint32_t group = schedule_group(shape);

	return shape->kind == SCHEDULE_INTERLEAVED ? group - shape->ranks + 1 : 1;
}

double schedule_bubble(const struct schedule_shape *shape)
{
	return (double)(shape->ranks - 1) / ((double)shape->microbatches * shape->chunks);
}

/* Forwards in the order in which every rank takes them: group by group, each through all chunks. Backwards are the same with the chunks
 * from the last. */
static void order_units(const struct schedule_shape *shape, struct unit *units)
{
	bool interleaved = shape->kind == SCHEDULE_INTERLEAVED;
	uint32_t groups = interleaved ? groups_of(shape) : 1, first = 0, at = 0;

	for (uint32_t group = 0; group < groups; group++) {
		uint32_t size = shape->microbatches / groups +
		    (group < shape->microbatches % groups);
		for (uint32_t chunk = 0; chunk < shape->chunks; chunk++)
			for (uint32_t i = 0; i < size; i++)
				units[at++] = (struct unit){ first + i, chunk };
		first += size;
	}
	assert(at == shape->microbatches * shape->chunks);
}

static void put(struct schedule_list *list, enum schedule_op op, struct unit unit)
{
	list->at[list->count++] = (struct schedule_instruction){ .microbatch = unit.microbatch,
		.chunk = (uint16_t)unit.chunk,
		.op = (uint16_t)op };
}

static void put_forward(const struct schedule_shape *shape, uint32_t rank, struct unit unit,
    struct schedule_list *list)
{
	if (!schedule_is_first(shape, rank, unit.chunk))
		put(list, SCHEDULE_RECV_F, unit);
	put(list, SCHEDULE_FWD, unit);
	if (!schedule_is_last(shape, rank, unit.chunk))
		put(list, SCHEDULE_SEND_F, unit);
}

/* Microbatches of a chunk come in ascending order, so the last one ends it. */
static void put_backward(const struct schedule_shape *shape, uint32_t rank, struct unit unit,
    struct schedule_list *list)
{
	unit.chunk = shape->chunks - 1 - unit.chunk;
	if (!schedule_is_last(shape, rank, unit.chunk))
		put(list, SCHEDULE_RECV_B, unit);
	put(list, SCHEDULE_BWD, unit);
	if (!schedule_is_first(shape, rank, unit.chunk))
		put(list, SCHEDULE_SEND_B, unit);
	if (unit.microbatch + 1 == shape->microbatches)
		put(list, SCHEDULE_GRAD_READY, (struct unit){ 0, unit.chunk });
}

static void fill_list(const struct schedule_shape *shape, uint32_t rank, const struct unit *units,
    struct schedule_list *list)
{
	uint32_t all = shape->microbatches * shape->chunks, warm_up = schedule_warm_up(shape, rank);

	for (uint32_t i = 0; i < warm_up; i++)
		put_forward(shape, rank, units[i], list);
	for (uint32_t i = 0; i < all; i++) {
		if (warm_up + i < all)
			put_forward(shape, rank, units[warm_up + i], list);
		put_backward(shape, rank, units[i], list);
	}
}

/* ---- forward passes alone ---- */

/* Messages that one of its words is about: those that rank `sender` sends, all to the rank behind it. */
static uint32_t word_of(const struct schedule_shape *shape, uint32_t sender)
{
	uint32_t most = schedule_in_flight(shape, sender);

	return most < SCHEDULE_WORDS ? most : SCHEDULE_WORDS;
}

/* So many messages may be sent without a word. No circle of ranks waits so: who waits has sent as many as are in flight at least that have not
 * come, and of an interleaved schedule the last rank's are more than a group, which is as far as the first may be before it. */
static uint32_t unheard_most(const struct schedule_shape *shape, uint32_t sender)
{
	return schedule_in_flight(shape, sender) + word_of(shape, sender) - 1;
}

static uint32_t sends_of(const struct schedule_shape *shape, uint32_t rank)
{
	return shape->microbatches * (shape->chunks - (rank + 1 == shape->ranks));
}

/* Is there a word about the message that `count`, of this sender, come up to? Not where no forward would wait for it. */
static bool ends_word(const struct schedule_shape *shape, uint32_t sender, uint32_t count)
{
	uint32_t word = word_of(shape, sender);

	return count % word == 0 &&
	    unheard_most(shape, sender) + count - word < sends_of(shape, sender);
}

/* The next unit after `at` that is sent. */
static uint32_t sent_after(const struct schedule_shape *shape, uint32_t rank,
    const struct unit *units, uint32_t at)
{
	while (schedule_is_last(shape, rank, units[at].chunk))
		at++;
	return at;
}

static void fill_forward_list(const struct schedule_shape *shape, uint32_t rank,
    const struct unit *units, struct schedule_list *list)
{
	uint32_t all = shape->microbatches * shape->chunks, word = word_of(shape, rank);
	uint32_t before = (rank + shape->ranks - 1) % shape->ranks, come = 0, unheard = 0,
	         heard = 0;

	for (uint32_t i = 0; i < all; i++) {
		bool sends = !schedule_is_last(shape, rank, units[i].chunk);
		if (!schedule_is_first(shape, rank, units[i].chunk)) {
			put(list, SCHEDULE_RECV_F, units[i]);
			if (ends_word(shape, before, ++come))
				put(list, SCHEDULE_SEND_B, units[i]);
		}
		if (sends && unheard == unheard_most(shape, rank)) {
			for (uint32_t k = 0; k < word; k++)
				heard = sent_after(shape, rank, units, heard) + 1;
			put(list, SCHEDULE_RECV_B, units[heard - 1]);
			unheard -= word;
		}
		put(list, SCHEDULE_FWD, units[i]);
		if (sends)
			put(list, SCHEDULE_SEND_F, units[i]);
		unheard += sends;
	}
}

static tr_status create(const struct schedule_shape *shape, bool forward, struct schedule *schedule,
    struct tr_error *error)
{
	struct schedule made = { .shape = *shape, .forward = forward };
	tr_status st = check(shape, forward, error);

	if (st != TR_OK)
		return st;
	uint32_t all = shape->microbatches * shape->chunks;
	struct unit *units = calloc(all, sizeof(*units));
	made.lists = calloc(shape->ranks, sizeof(*made.lists));
	st = units == NULL || made.lists == NULL ? TR_ENOMEM : TR_OK;
	for (uint32_t rank = 0; rank < shape->ranks && st == TR_OK; rank++) {
		/* Six of each unit at most, and GRAD_READY of each chunk. */
		made.lists[rank].at = calloc((size_t)all * 6 + shape->chunks,
		    sizeof(*made.lists[rank].at));
		st = made.lists[rank].at == NULL ? TR_ENOMEM : TR_OK;
	}
	if (st == TR_OK) {
		order_units(shape, units);
		for (uint32_t rank = 0; rank < shape->ranks; rank++)
			(forward ? fill_forward_list : fill_list)(shape, rank, units,
			    &made.lists[rank]);
		*schedule = made;
	} else {
		schedule_finish(&made);
		(void)tr_error_set(error, st,
		    "no memory for a schedule of %u instructions on each of %u ranks", all * 6,
		    shape->ranks);
	}
	free(units);
	return st;
}

tr_status schedule_create(const struct schedule_shape *shape, struct schedule *schedule,
    struct tr_error *error)
{
	return create(shape, false, schedule, error);
}

tr_status schedule_create_forward(const struct schedule_shape *shape, struct schedule *schedule,
    struct tr_error *error)
{
	struct schedule_shape as = *shape;

	/* Without backward passes they are the same, and GPipe's would keep all that it sends. */
	if (shape->kind == SCHEDULE_GPIPE)
		as.kind = SCHEDULE_1F1B;
	return create(&as, true, schedule, error);
}

void schedule_finish(struct schedule *schedule)
{
	for (uint32_t rank = 0; rank < schedule->shape.ranks && schedule->lists != NULL; rank++)
		free(schedule->lists[rank].at);
	free(schedule->lists);
	*schedule = (struct schedule){ 0 };
}
