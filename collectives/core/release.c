#include "collectives/core/release.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "collectives/core/bits.h"
#include "collectives/core/member.h"
#include "collectives/core/tally.h"

static tr_status release_check(const struct group_core *core, const struct op *op, uint32_t tag,
    struct tr_error *error)
{
	if (!op)
		return tr_error_set(error, TR_EINVAL, "release: op %" PRIu32 " %s in this round",
		    tag,
		    release_has(&core->released, tag) ? "was released before" : "was not submitted");
	if (op->kind != OP_PAIR && !op_scoped(op))
		return tr_error_set(error, TR_EINVAL,
		    "release: op %" PRIu32
		    " is of all members; only ops in a scope, sends and receives can be released",
		    tag);
	if (!op_done(op))
		return tr_error_set(error, TR_EINVAL,
		    "release: op %" PRIu32 " has no result yet, so it was not waited for", tag);
	if (!op->repaired && ahead_unsent(core, op))
		return tr_error_set(error, TR_EINVAL,
		    "release: op %" PRIu32
		    " was not sent to all of its members yet, so not all have its result",
		    tag);
	return TR_OK;
}

static void release_members(const struct group_core *core, const struct op *op,
    uint8_t bits[ROUTE_SET_BYTES])
{
	if (op->kind != OP_PAIR) {
		memcpy(bits, op->scope.bits, ROUTE_SET_BYTES);
		return;
	}
	memset(bits, 0, ROUTE_SET_BYTES);
	bits_set(bits, core->roster.bit[core->roster.me]);
	bits_set(bits, tally_other_end(op));
}

/* NULL: out of memory. */
static struct release_party *release_party_of(struct group_core *core, const struct op *op)
{
	struct released *released = &core->released;
	struct release_party wanted = { .pairs = op->kind == OP_PAIR };

	release_members(core, op, wanted.bits);
	for (size_t i = 0; i < released->party_count; i++)
		if (released->parties[i].pairs == wanted.pairs &&
		    memcmp(released->parties[i].bits, wanted.bits, sizeof(wanted.bits)) == 0)
			return &released->parties[i];
	if (released->party_count == released->party_capacity) {
		size_t capacity = released->party_capacity ? 2 * released->party_capacity : 4;
		void *parties = realloc(released->parties, capacity * sizeof(wanted));
		if (!parties)
			return NULL;
		released->parties = parties;
		released->party_capacity = capacity;
	}
	released->parties[released->party_count] = wanted;
	return &released->parties[released->party_count++];
}

static uint32_t release_sign(const struct op_signature *s)
{
	const uint64_t words[] = { s->count, s->root,
		(uint64_t)s->dtype << 32 | (uint64_t)s->reduce << 24 | (uint64_t)s->codec << 16 |
		    (uint64_t)s->collective << 8 | s->algorithm,
		(uint64_t)s->scope.count << 16 | s->scope.digest };

	return (uint32_t)tr_digest_of(words, sizeof(words)).low;
}

bool release_differs(const struct released *released, const struct segment_header *header)
{
	const uint32_t *sign = tag_set_sign(&released->tags, header->tag);

	return sign && *sign != release_sign(&header->signature);
}

static tr_status release_reserve(struct released *released, const struct op *op)
{
	if (!released->notes)
		released->notes = malloc(RELEASE_NOTES_MAX * sizeof(released->notes[0]));
	if (!released->notes)
		return TR_ENOMEM;
	return tag_set_add(&released->tags, op->tag, release_sign(&op->signature));
}

static void release_count(struct released *released, const struct op *op)
{
	enum tr_collective collective = round_collective(op);

	released->ops[collective]++;
	released->op_bytes[collective] += op->signature.count * op->element_bytes;
	for (uint32_t s = 0; s < op->segments && !released->partial; s++)
		released->partial = op->segment[s].sealed &&
		    !op_whole(op, s, op->roster->contributor_count);
}

tr_status release_op(struct group_core *core, const struct group_event *event,
    struct tr_error *error)
{
	struct released *released = &core->released;

	if (core->state != ROUND_OPEN)
		return round_refuse(core, "release", error);
	struct op *op = round_op(core, event->tag);
	if (!op && core->stuck)
		return TR_OK; /* it was not taken any more; the round begins again */
	tr_status st = release_check(core, op, event->tag, error);
	if (st != TR_OK)
		return st;
	struct release_party *party = release_party_of(core, op);
	if (!party || release_reserve(released, op) != TR_OK)
		return tr_error_set(error, TR_ENOMEM, "release: out of memory");
	if (party->pairs) {
		party->sum ^= tally_signed(op);
	} else {
		party->sum += tally_signed(op);
		party->results += tally_result(op);
	}
	release_count(released, op);
	ahead_released(core, op, (uint32_t)(party - released->parties));
	round_remove(core, op);
	return TR_OK;
}

void release_forget(struct released *released)
{
	tag_set_clear(&released->tags);
	released->party_count = released->note_count = 0;
	memset(released->ops, 0, sizeof(released->ops));
	memset(released->op_bytes, 0, sizeof(released->op_bytes));
	released->partial = false;
}

void release_finish(struct released *released)
{
	tag_set_finish(&released->tags);
	free(released->parties);
	free(released->notes);
	*released = (struct released){ 0 };
}
