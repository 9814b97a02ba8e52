/* Records of committed rounds, for memberd's log. In steady state the hub sends each; everyone keeps those of which it does not know that they
 * are in the log, as the hub's commits say (TR_RECORDS_UNLOGGED_MAX of them).
 *
 * After an installation, and when it leaves, every member sends those that the log lacks: the hub may die with them unsent.
 * They are the same on all members; memberd takes the first of a round. Those of which memberd has not heard go along with the state to
 * a joiner: while it is away, all who were in those rounds may die, and the joiner be left.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "collectives/core/bits.h"
#include "collectives/core/member.h"
#include "common/limits.h"

static Traind__Peer__RoundCommit *record_copy(const Traind__Peer__RoundCommit *from)
{
	Traind__Peer__RoundCommit *record = malloc(sizeof(*record));
	if (!record)
		return NULL;
	*record = *from;
	record->contributors = calloc(from->n_contributors + 1, sizeof(uint64_t));
	if (!record->contributors) {
		free(record);
		return NULL;
	}
	if (from->n_contributors > 0)
		memcpy(record->contributors, from->contributors,
		    from->n_contributors * sizeof(uint64_t));
	return record;
}

static void record_emit(struct group_core *core, const Traind__Peer__RoundCommit *from)
{
	Traind__Peer__RoundCommit *record = record_copy(from);

	if (!record) {
		core->status = TR_ENOMEM;
		return;
	}
	struct group_action *action = emit(core, GROUP_DO_RECORD);
	action->round = record->round;
	action->record = record;
}

/* Whose data is in some segment; and is some contributor's missing in one? */
static void record_contributors(const struct group_core *core, Traind__Peer__RoundCommit *record)
{
	const struct roster *roster = &core->roster;
	uint8_t any[TR_GROUP_PEERS_MAX / 8] = { 0 };

	for (size_t i = 0; i < core->op_count; i++) {
		const struct op *op = core->ops[i];
		if (!op_common(op)) /* only some know: it is no part of what all members say */
			continue;
		for (uint32_t s = 0; s < op->segments; s++) {
			if (!op_whole(op, s, roster->contributor_count))
				record->partial = true;
			for (size_t b = 0; b < op->set_bytes; b++)
				any[b] |= op_set(op, s)[b];
		}
	}
	/* A round without results that all hold, or of void ones (a broadcast whose root died), is everybody's of the attempt, however often
	 * it is decided. */
	bool nobody = bits_count(any, sizeof(any)) == 0;
	for (unsigned i = 0; i < roster->contributor_count; i++)
		if (nobody || bits_get(any, i))
			record->contributors[record->n_contributors++] = roster->contributors[i];
}

/* Of what only this member knows. */
static bool record_partial_here(const struct group_core *core)
{
	if (core->released.partial)
		return true;
	for (size_t i = 0; i < core->op_count; i++) {
		const struct op *op = core->ops[i];
		for (uint32_t s = 0; !op_common(op) && s < op->segments; s++)
			if (op->segment[s].sealed && !op_whole(op, s, op->roster->contributor_count))
				return true;
	}
	return false;
}

static void record_drop(struct group_core *core, size_t count)
{
	for (size_t i = 0; i < count; i++)
		traind__peer__round_commit__free_unpacked(core->records[i], NULL);
	core->record_count -= count;
	memmove(core->records, core->records + count, core->record_count * sizeof(core->records[0]));
}

static bool record_room(struct group_core *core)
{
	if (core->record_count == TR_RECORDS_UNLOGGED_MAX)
		record_drop(core, 1);
	if (core->record_count < core->record_capacity)
		return true;
	size_t capacity = core->record_capacity > 0 ? 2 * core->record_capacity : 64;
	Traind__Peer__RoundCommit **grown = realloc(core->records, capacity * sizeof(grown[0]));
	if (!grown)
		return false;
	core->records = grown;
	core->record_capacity = capacity;
	return true;
}

static bool record_keep(struct group_core *core, const Traind__Peer__RoundCommit *record)
{
	Traind__Peer__RoundCommit *copy = record_room(core) ? record_copy(record) : NULL;

	if (!copy)
		return false;
	core->records[core->record_count++] = copy;
	return true;
}

void record_logged(struct group_core *core, uint64_t round)
{
	size_t logged = 0;

	if (round > core->recorded_round)
		core->recorded_round = round;
	while (logged < core->record_count && core->records[logged]->round <= core->recorded_round)
		logged++;
	if (logged > 0)
		record_drop(core, logged);
}

void record_add(struct group_core *core, struct tr_round *info)
{
	uint64_t contributors[TR_GROUP_PEERS_MAX];
	/* Who was frozen before it could vote holds the same. */
	struct tr_digest digest = core->voted ? core->digest : commit_digest(core);
	Traind__Peer__RoundCommit record;

	traind__peer__round_commit__init(&record);
	record.round = core->round;
	record.view = core->view.number;
	record.attempt = core->roster.attempt;
	record.samples = core->closing.samples;
	record.contributors = contributors;
	record.digest_low = digest.low;
	record.digest_high = digest.high;
	record_contributors(core, &record);
	info->partial = record.partial || record_partial_here(core);
	if (!record_keep(core, &record)) {
		core->status = TR_ENOMEM;
		return;
	}
	if (core->roster.me == core->roster.hub)
		record_emit(core, &record);
}

void record_again(struct group_core *core)
{
	for (size_t i = 0; i < core->record_count; i++)
		record_emit(core, core->records[i]);
}

size_t group_core_records(const struct group_core *core, uint64_t round,
    Traind__Peer__RoundCommit **records, size_t max)
{
	size_t end = core->record_count;

	while (end > 0 && core->records[end - 1]->round > round)
		end--;
	size_t first = end > max ? end - max : 0;
	for (size_t i = first; i < end; i++)
		records[i - first] = core->records[i];
	return end - first;
}

tr_status record_inherit(struct group_core *core, Traind__Peer__RoundCommit *const *records,
    size_t count, struct tr_error *error)
{
	uint64_t newest = core->recorded_round;

	if (core->record_count > 0)
		newest = core->records[core->record_count - 1]->round;
	for (size_t i = 0; i < count; i++) {
		if (!core->needs_state || records[i]->round <= newest)
			continue; /* we were there, or had it before */
		if (records[i]->round >= core->round ||
		    records[i]->n_contributors > TR_GROUP_PEERS_MAX)
			return tr_error_set(error, TR_EPROTO,
			    "a record of round %" PRIu64
			    " came with the state before round %" PRIu64,
			    records[i]->round, core->round);
		if (!record_keep(core, records[i]))
			return tr_error_set(error, TR_ENOMEM, "out of memory for records");
		newest = records[i]->round;
	}
	return TR_OK;
}

void record_finish(struct group_core *core)
{
	if (core->record_count > 0)
		record_drop(core, core->record_count);
	free(core->records);
	core->records = NULL;
	core->record_capacity = 0;
}
