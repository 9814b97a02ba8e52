#include "collectives/engine/coll_turn.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "collectives/core/bits.h"
#include "collectives/engine/coll_group.h"
#include "collectives/kernels/reduce.h"
#include "common/digest.h"
#include "common/float_mode.h"
#include "common/relax.h"

#define NAP_MS 5 /* then a sleeper looks whether the round goes on */
#define CHUNK_BYTES \
	((size_t)16 << 10) /* of the result that are made at a time, so that they stay near */

/* ---- the round ---- */

void coll_turn_open(struct tr_group *group)
{
	struct coll_turn *c = &group->turn;
	const struct channel_control *control = channel_worker_control(group->channel);
	int fd = channel_worker_commons(group->channel);
	c->looks = LOOKS_MOST;
	if (fd >= 0)
		(void)commons_open(fd, control->seat, control->peer, &c->own, NULL);
}

void coll_turn_close(struct tr_group *group)
{
	commons_close(&group->turn.own);
}

void coll_turn_begun(struct tr_group *group, uint64_t round, uint64_t attempt)
{
	struct coll_turn *c = &group->turn;
	c->open = c->here = false;
	c->round = round;
	c->attempt = attempt;
	if (!c->told)
		return; /* it has made none so far */
	memset(c->ops, 0, sizeof(c->ops));
	memset(c->bytes, 0, sizeof(c->bytes));
}

void coll_turn_closes(struct tr_group *group, bool closes)
{
	struct coll_turn *c = &group->turn;
	const struct commons_op op = { .round = c->round, .attempt = c->attempt };
	if (c->own.commons != NULL)
		commons_end(&c->own, closes ? &op : NULL); /* who sleeps looks soon */
}

void coll_turn_committed(struct tr_group *group)
{
	if (group->turn.told)
		channel_worker_made(group->channel, group->turn.ops, group->turn.bytes);
}

/* ---- which way ---- */

tr_status coll_turn_check(const struct tr_group *group, const struct tr_op *op,
    struct tr_error *error)
{
	const struct coll_turn *c = &group->turn;
	if (op->scope.count == 0 || op->input_block != NULL || op->output_block != NULL)
		return tr_error_set(error, TR_EINVAL,
		    "op %" PRIu32 ": only contiguous ops in a scope have TR_IN_TURN", op->tag);
	if (c->open)
		return tr_error_set(error, TR_EINVAL,
		    "op %" PRIu32 " has TR_IN_TURN, and op %" PRIu32
		    ", which has it too, was not waited for",
		    op->tag, c->op.tag);
	return TR_OK;
}

static bool has_seats(const struct tr_group *group, struct coll_turn *c, const struct tr_op *op)
{
	if (c->own.commons == NULL || op->scope.count < 2 || op->scope.count > COMMONS_SEATS)
		return false;
	c->readers = 0;
	for (unsigned i = 0; i < op->scope.count; i++) {
		unsigned member = op->scope.members[i];
		unsigned seat = commons_seat_of(&c->own, group->contributor_ids[member]);
		if (seat == COMMONS_NO_SEAT)
			return false;
		c->members[i] = member;
		c->seats[i] = seat;
		if (member == group->index)
			c->index = i;
		else
			c->readers |= UINT64_C(1) << seat;
	}
	return true;
}

/* By what all members agree on. */
static bool is_small(const struct tr_op *op)
{
	bool rounded = op->collective != TR_ALL_GATHER && op->reduce == TR_AVG &&
	    reduce_is_wide(op->dtype); /* once, by the engine */
	return op->codec == TR_CODEC_NONE && op->algorithm == TR_AUTO && !rounded &&
	    (op->collective == TR_ALL_REDUCE || op->collective == TR_REDUCE_SCATTER ||
	        op->collective == TR_ALL_GATHER) &&
	    op->count <= COMMONS_BODY_MAX / (op->scope.count - 1) / reduce_element_bytes(op->dtype);
}

/* Of what they have to agree on. */
static uint64_t sign_of(const struct coll_turn *c, const struct tr_op *op)
{
	struct {
		uint64_t count;
		uint32_t collective, dtype, reduce, codec, algorithm;
		uint8_t scope[TR_GROUP_PEERS_MAX / 8];
	} said;
	memset(&said, 0, sizeof(said));
	said.count = op->count;
	said.collective = (uint32_t)op->collective;
	said.dtype = (uint32_t)op->dtype;
	said.reduce = op->collective == TR_ALL_GATHER ? 0 : (uint32_t)op->reduce;
	said.codec = (uint32_t)op->codec;
	said.algorithm = (uint32_t)op->algorithm;
	for (unsigned i = 0; i < op->scope.count; i++)
		bits_set(said.scope, c->members[i]);
	return tr_digest_of(&said, sizeof(said)).low;
}

/* ---- waiting ---- */

/* Seats, by bit, that something is awaited of; 0: nothing is. */
typedef uint64_t awaited_fn(const struct tr_group *group);

/* What ends a wait beside what is waited for. */
tr_status coll_turn_goes_on(const struct tr_group *group, struct tr_error *error)
{
	tr_status st = channel_worker_alive(group->channel, error);
	if (st == TR_OK && channel_worker_abandons(group->channel) != atomic_load(&group->abandons))
		st = tr_error_set(error, TR_ERESTART, "the round was abandoned");
	return st;
}

static tr_status sleep_until(struct tr_group *group, awaited_fn *awaited, uint64_t milliseconds,
    struct tr_error *error)
{
	struct coll_turn *c = &group->turn;
	uint64_t begun_us = channel_now_us(), waited_ms = 0;
	for (;;) {
		uint32_t bell = commons_drowse(&c->own);
		uint64_t seats = awaited(group);
		uint64_t left_ms = milliseconds - waited_ms;
		if (seats != 0 && left_ms > 0) {
			/* The engine knows for whom, so that somebody who stands still is found. */
			channel_worker_lacks(group->channel,
			    commons_peer(&c->own, (unsigned)__builtin_ctzll(seats)));
			commons_sleep(&c->own, bell, left_ms < NAP_MS ? (unsigned)left_ms : NAP_MS);
		}
		commons_rise(&c->own);
		if (seats == 0)
			return TR_OK;
		tr_status st = channel_worker_look(group->channel, error);
		if (st == TR_OK)
			st = coll_turn_goes_on(group, error);
		if (st != TR_OK)
			return st;
		if (left_ms == 0)
			return TR_ETIMEDOUT;
		waited_ms = (channel_now_us() - begun_us) / 1000;
		if (waited_ms > milliseconds)
			waited_ms = milliseconds;
	}
}

static tr_status await(struct tr_group *group, awaited_fn *awaited, uint64_t milliseconds,
    struct tr_error *error)
{
	struct coll_turn *c = &group->turn;
	if (awaited(group) == 0)
		return TR_OK;
	channel_worker_waits(group->channel, true);
	tr_status st = TR_ETIMEDOUT;
	for (unsigned i = 0; st != TR_OK && i < c->looks; i++) {
		relax();
		st = awaited(group) == 0 ? TR_OK : TR_ETIMEDOUT;
	}
	if (st == TR_OK && c->looks < LOOKS_MOST)
		c->looks *= 2;
	else if (st != TR_OK && c->looks > LOOKS_LEAST)
		c->looks /= 2;
	if (st != TR_OK)
		st = sleep_until(group, awaited, milliseconds, error);
	channel_worker_lacks(group->channel, 0);
	channel_worker_waits(group->channel, false);
	return st;
}

/* ---- submitting ---- */

static size_t bytes_of(const struct tr_op *op, size_t elements)
{
	return elements * reduce_element_bytes(op->dtype);
}

static const uint8_t *input_of(const struct tr_op *op, size_t own_first)
{
	if (op->input != NULL)
		return op->input;
	return (const uint8_t *)op->output +
	    (op->collective == TR_ALL_GATHER ? bytes_of(op, own_first) : 0);
}

static void copy(uint8_t *to, const uint8_t *from, size_t bytes)
{
	if (bytes > 0)
		memcpy(to, from, bytes);
}

/* What others read of it lies where it lies among all inputs; of a reduce-scatter nobody reads our own block of ours. */
static void show(struct coll_turn *c)
{
	const struct tr_op *op = &c->op;
	size_t first, own;
	tr_block_range(op->count, op->scope.count, c->index, &first, &own);
	const uint8_t *input = input_of(op, first);
	uint8_t *body = commons_write(&c->own, &c->name, c->readers);
	size_t before = bytes_of(op, first), until = bytes_of(op, first + own);
	switch (op->collective) {
	case TR_ALL_GATHER:
		copy(body, input, until - before);
		break;
	case TR_REDUCE_SCATTER:
		copy(body, input, before);
		copy(body + until, input + until, bytes_of(op, op->count) - until);
		break;
	default:
		copy(body, input, bytes_of(op, op->count));
		break;
	}
	commons_show(&c->own);
	commons_wake(&c->own, c->readers);
}

static uint64_t unread(const struct tr_group *group)
{
	return commons_unread(&group->turn.own, &group->turn.name);
}

tr_status coll_turn_submit(struct tr_group *group, const struct tr_op *op, struct tr_error *error)
{
	struct coll_turn *c = &group->turn;
	tr_status st = TR_OK;
	bool seats = has_seats(group, c, op);
	c->op = *op;
	c->op.scope.members = c->members;
	c->open = true;
	c->here = false;
	if (!seats)
		return TR_OK;
	c->name = (struct commons_op){ c->round, c->attempt, sign_of(c, op), op->tag };
	if (!is_small(op)) {
		commons_pass(&c->own, &c->name);
		commons_wake(&c->own, c->readers);
		return TR_OK;
	}
	if (!c->told) /* before anybody can depend on it */
		st = channel_worker_scoped(group->channel, error);
	if (st == TR_OK) {
		c->told = true;
		st = await(group, unread, UINT64_MAX, error);
	}
	if (st != TR_OK) {
		c->open = false;
		return st;
	}
	c->here = true;
	(void)channel_worker_progress(group->channel, 0); /* it was not stuck */
	show(c);
	return TR_OK;
}

/* ---- making it ---- */

bool coll_turn_awaits(const struct tr_group *group, uint32_t tag)
{
	const struct coll_turn *c = &group->turn;
	return c->open && c->here && c->op.tag == tag;
}

void coll_turn_waited(struct tr_group *group, uint32_t tag)
{
	struct coll_turn *c = &group->turn;
	if (c->open && c->op.tag == tag)
		c->open = false;
}

static enum commons_found look(const struct coll_turn *c, unsigned i, struct commons_shown *shown)
{
	return commons_look(&c->own, c->seats[i], &c->name, shown);
}

/* Whose inputs are not here; nobody's, if somebody goes another way. */
static uint64_t lacked(const struct tr_group *group)
{
	const struct coll_turn *c = &group->turn;
	struct commons_shown shown;
	uint64_t seats = 0;
	for (unsigned i = 0; i < c->op.scope.count; i++) {
		enum commons_found found = i == c->index ? COMMONS_SHOWN : look(c, i, &shown);
		if (found == COMMONS_ELSEWHERE)
			return 0;
		if (found == COMMONS_NOT_YET)
			seats |= UINT64_C(1) << c->seats[i];
	}
	return seats;
}

/* It waits for the end of the attempt. */
static uint64_t others(const struct tr_group *group)
{
	return group->turn.readers;
}

/* Adds elements [first, first + count) of all inputs, in their members' order. */
static void add(const struct coll_turn *c, const struct commons_shown *shown, const uint8_t *own,
    uint8_t *out, size_t first, size_t count)
{
	const struct tr_op *op = &c->op;
	const void *inputs[COMMONS_SEATS];
	size_t chunk = CHUNK_BYTES / reduce_element_bytes(op->dtype);
	for (size_t at = first; at < first + count; at += chunk) {
		size_t n = first + count - at < chunk ? first + count - at : chunk;
		uint8_t *to = out + bytes_of(op, at - first);
		for (unsigned i = 0; i < op->scope.count; i++)
			inputs[i] = (i == c->index ? own : (const uint8_t *)shown[i].body) +
			    bytes_of(op, at);
		reduce_combine_many(op->dtype, op->reduce, to, inputs, op->scope.count, n);
		if (op->reduce == TR_AVG)
			reduce_divide(op->dtype, to, n, op->scope.count);
	}
}

static void gather(const struct coll_turn *c, const struct commons_shown *shown)
{
	const struct tr_op *op = &c->op;
	for (unsigned i = 0; i < op->scope.count; i++) {
		size_t first, elements;
		tr_block_range(op->count, op->scope.count, i, &first, &elements);
		uint8_t *to = (uint8_t *)op->output + bytes_of(op, first);
		const uint8_t *from = i == c->index ? input_of(op, first) : shown[i].body;
		if (to != from)
			copy(to, from, bytes_of(op, elements));
	}
}

static void make(const struct coll_turn *c, const struct commons_shown *shown)
{
	const struct tr_op *op = &c->op;
	size_t first, own;
	uint8_t *out = op->output;
	switch (op->collective) {
	case TR_ALL_GATHER:
		gather(c, shown);
		break;
	case TR_REDUCE_SCATTER:
		tr_block_range(op->count, op->scope.count, c->index, &first, &own);
		if (op->input == NULL)
			out += bytes_of(op, first);
		add(c, shown, input_of(op, 0), out, first, own);
		break;
	default:
		add(c, shown, input_of(op, 0), out, 0, op->count);
		break;
	}
}

static tr_status name_lacked(const struct tr_group *group, uint64_t milliseconds,
    struct tr_error *error)
{
	const struct coll_turn *c = &group->turn;
	char named[TR_ERROR_TEXT_MAX - 96];
	int used = 0;
	named[0] = '\0';
	for (uint64_t left = lacked(group); left != 0 && used < (int)sizeof(named) - 48;
	     left &= left - 1)
		used += snprintf(named + used, sizeof(named) - (size_t)used,
		    " peer %" PRIu64 " (of this node)",
		    commons_peer(&c->own, (unsigned)__builtin_ctzll(left)));
	return tr_error_set(error, TR_ETIMEDOUT,
	    "wait of round %" PRIu64 " waited %" PRIu64 " ms for%s", c->round, milliseconds, named);
}

tr_status coll_turn_wait(struct tr_group *group, uint64_t milliseconds, bool *passed,
    struct tr_error *error)
{
	struct coll_turn *c = &group->turn;
	struct commons_shown shown[COMMONS_SEATS];
	*passed = false;
	tr_status st = coll_turn_goes_on(group, error);
	if (st == TR_OK)
		st = await(group, lacked, milliseconds, error);
	if (st == TR_ETIMEDOUT)
		return name_lacked(group, milliseconds, error);
	for (unsigned i = 0; st == TR_OK && i < c->op.scope.count; i++)
		if (i != c->index && look(c, i, &shown[i]) != COMMONS_SHOWN)
			*passed = true;
	if (st != TR_OK || *passed) {
		c->here = false;
		return st;
	}
	unsigned mode = float_mode_set(FLOAT_EXACT); /* whatever the caller's program has */
	make(c, shown);
	(void)float_mode_set(mode);
	for (unsigned i = 0; i < c->op.scope.count; i++) {
		unsigned seat = c->seats[i];
		if (i == c->index)
			continue;
		/* Its worker has given up the attempt; so it is given up here as well, in a moment. */
		if (!commons_still(&c->own, seat, &shown[i]))
			return await(group, others, UINT64_MAX, error);
		commons_read(&c->own, seat, &shown[i]);
	}
	commons_wake(&c->own, c->readers);
	c->open = false;
	c->ops[c->op.collective]++;
	c->bytes[c->op.collective] += bytes_of(&c->op, c->op.count);
	return TR_OK;
}
