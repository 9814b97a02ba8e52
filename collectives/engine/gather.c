#include "collectives/engine/gather.h"

#include <stdlib.h>
#include <string.h>

/* What two frames of one op have in common: their headers up to whose data it is. */
#define HEAD_ALIKE_BYTES (SEGMENT_HEADER_BYTES - TR_GROUP_PEERS_MAX / 8)

/* ---- life ---- */

void gather_init(struct gather *gather, struct board *mine, unsigned entries)
{
	*gather = (struct gather){ .mine = mine, .entries = entries };
}

static int ascending(const void *a, const void *b)
{
	uint64_t left = ((const struct gather_peer *)a)->peer,
	         right = ((const struct gather_peer *)b)->peer;
	return left < right ? -1 : left > right;
}

void gather_enter(struct gather *gather, uint64_t view, const uint64_t *peers, size_t count,
    uint64_t me)
{
	gather_init(gather, gather->mine, gather->entries);
	gather->view = view;
	if (gather->mine == NULL || view > BOARD_VIEW_MAX || count < 2 || count > BOARD_PEERS_MAX)
		return;
	for (size_t i = 0; i < count; i++)
		gather->peers[i].peer = peers[i];
	qsort(gather->peers, count, sizeof(gather->peers[0]), ascending);
	while (gather->me < count && gather->peers[gather->me].peer != me)
		gather->me++;
	if (gather->me == count)
		return;
	gather->count = (unsigned)count;
	gather->unread = gather->count - 1;
}

/* Its place, if its board is wanted and not read yet; else `count`. */
static unsigned lacks_at(const struct gather *gather, uint64_t peer)
{
	unsigned place = 0;
	while (place < gather->count &&
	    (gather->peers[place].peer != peer || place == gather->me ||
	        gather->peers[place].board != NULL))
		place++;
	return place;
}

bool gather_lacks(const struct gather *gather, uint64_t peer)
{
	return lacks_at(gather, peer) < gather->count;
}

void gather_attach(struct gather *gather, uint64_t peer, const struct board *board)
{
	unsigned place = lacks_at(gather, peer);
	if (place == gather->count)
		return;
	gather->peers[place].board = board;
	gather->unread--;
	board_say_read(gather->mine, place, gather->view, 0);
}

/* ---- ours ---- */

/* Until which entry ours may be written over: all have read those before. */
static uint64_t room(const struct gather *gather)
{
	uint64_t least = gather->done;
	for (unsigned i = 0; i < gather->count; i++) {
		uint64_t read = 0;
		if (i == gather->me)
			continue;
		if (!board_has_read(gather->peers[i].board, gather->me, gather->view, &read))
			return 0;
		if (read < least)
			least = read;
	}
	return least + gather->entries;
}

/* Of what came one by one nothing is under way any more: but for the op that is about to be shown every op has its result. */
static bool settled(struct gather *gather, const struct group_core *core, bool held)
{
	if (held || gather->shown < gather->look_at)
		return false;
	size_t open = group_core_open_ops(core);
	/* That was a look at all ops of the round: not for each of them. */
	gather->look_at = gather->shown + open / 4;
	return open <= 1;
}

bool gather_show(struct gather *gather, const struct group_core *core,
    const struct group_action *spread, bool held)
{
	if (gather->count == 0 || gather->unread > 0 || spread->header.view != gather->view)
		return false;
	if (gather->mixed) {
		gather->done = gather->shown;
		gather->matched = 0;
	}
	if (gather->shown >= gather->room)
		gather->room = room(gather);
	if (gather->shown >= gather->room)
		return false;
	if (gather->mixed && settled(gather, core, held))
		gather->mixed = false;
	gather->heads[gather->shown % BOARD_ENTRIES] = spread->header;
	board_put(gather->mine, gather->view, gather->shown, &spread->header, spread->payload,
	    spread->payload_bytes);
	gather->shown++;
	return true;
}

void gather_came(struct gather *gather, const struct segment_header *header)
{
	for (uint64_t i = gather->done; i < gather->shown && !gather->mixed; i++)
		if (gather->heads[i % BOARD_ENTRIES].tag == header->tag)
			gather->mixed = true;
}

/* ---- theirs ---- */

static const struct board_entry *next_of(const struct gather *gather, const struct gather_peer *from)
{
	return from->board == NULL ? NULL : board_at(from->board, gather->view, from->read);
}

static bool alike(const struct board_entry *a, const struct board_entry *b)
{
	return memcmp(a->head, b->head, HEAD_ALIKE_BYTES) == 0;
}

static void has_read(struct gather *gather, unsigned place)
{
	struct gather_peer *from = &gather->peers[place];
	from->read++;
	board_say_read(gather->mine, place, gather->view, from->read);
}

enum found { FOUND_ALL, FOUND_FEW, FOUND_OTHERS };

/* Beside our oldest that was not gathered. */
static enum found find(struct gather *gather)
{
	const struct board_entry *ours = &gather->mine->entries[gather->done % BOARD_ENTRIES];
	enum found found = FOUND_ALL;
	for (unsigned i = 0; i < gather->count; i++) {
		if ((gather->matched >> i & 1) != 0 || i == gather->me)
			continue;
		const struct board_entry *entry = next_of(gather, &gather->peers[i]);
		if (entry == NULL) {
			found = FOUND_FEW;
			continue;
		}
		if (!alike(entry, ours))
			return FOUND_OTHERS;
		gather->matched |= 1u << i;
	}
	return found;
}

/* Our oldest one: all others were found. */
static bool take_together(struct gather *gather, const struct gather_calls *calls)
{
	/* Only what is used of it is touched. */
	_Alignas(8) uint8_t bodies[BOARD_PEERS_MAX][BOARD_BODY_MAX];
	const struct segment_header *header = &gather->heads[gather->done % BOARD_ENTRIES];
	uint64_t peers[BOARD_PEERS_MAX], view = gather->view;
	const void *payloads[BOARD_PEERS_MAX];
	unsigned count = 0;
	for (unsigned i = 0; i < gather->count; i++) {
		const struct gather_peer *from = &gather->peers[i];
		if (i == gather->me)
			continue;
		const struct board_entry *entry = &from->board->entries[from->read % BOARD_ENTRIES];
		memcpy(bodies[i], entry->body, header->bytes);
		if (!board_still(entry, view, from->read)) {
			gather->count = 0; /* it has gone on without us */
			return false;
		}
		peers[count] = from->peer;
		payloads[count++] = bodies[i];
	}
	struct group_event event = { .kind = GROUP_GATHERED };
	event.gathered.header = header;
	event.gathered.peers = peers;
	event.gathered.payloads = payloads;
	event.gathered.count = count;
	tr_status st = calls->gathered(calls->arg, &event);
	if (gather->view != view || gather->count == 0)
		return false; /* the step went further than that */
	if (st == TR_ESTALE)
		gather->count = 0; /* until the next view */
	else if (st == TR_EAGAIN)
		gather->mixed = true;
	if (st == TR_ESTALE || st == TR_EAGAIN)
		return false;
	gather->done++;
	gather->matched = 0;
	for (unsigned i = 0; i < gather->count; i++)
		if (i != gather->me)
			has_read(gather, i);
	return true;
}

/* May the next entry of that peer go into the core by itself? Then `frame` has it: a header and `bytes` of body. */
static bool goes_alone(const struct gather *gather, const struct group_core *core,
    const struct gather_peer *from, uint8_t *frame, size_t *bytes)
{
	const struct board_entry *entry = next_of(gather, from);
	struct segment_header header;
	if (entry == NULL)
		return false;
	memcpy(frame, entry->head, SEGMENT_HEADER_BYTES);
	*bytes = board_copy_body(entry, frame + SEGMENT_HEADER_BYTES);
	if (!board_still(entry, gather->view, from->read))
		return false;
	return board_at(from->board, gather->view, from->read + 1) != NULL ||
	    segment_header_get(frame, SEGMENT_HEADER_BYTES + *bytes, &header, NULL) != TR_OK ||
	    group_core_takes(core, &header);
}

static bool take_alone(struct gather *gather, const struct group_core *core,
    const struct gather_calls *calls, unsigned place)
{
	_Alignas(8) uint8_t frame[SEGMENT_HEADER_BYTES + BOARD_BODY_MAX];
	const struct gather_peer *from = &gather->peers[place];
	uint64_t view = gather->view;
	unsigned taken = 0; /* no more than fit: it may write faster than we read */
	size_t bytes;
	while (gather->count > 0 && taken < BOARD_ENTRIES &&
	    goes_alone(gather, core, from, frame, &bytes)) {
		gather->mixed = true;
		tr_status st = calls->single(calls->arg, from->peer, frame, bytes);
		if (gather->view != view || gather->count == 0)
			return true;
		if (st == TR_EAGAIN)
			break;
		has_read(gather, place);
		taken++;
	}
	return taken > 0;
}

static bool together(const struct gather *gather)
{
	return !gather->mixed && gather->done < gather->shown;
}

static bool is_shown(const struct gather *gather, uint32_t tag)
{
	for (uint64_t i = gather->done; i < gather->shown; i++)
		if (gather->heads[i % BOARD_ENTRIES].tag == tag)
			return true;
	return false;
}

/* Only while the caller waits: else a peer that is ahead of us would be taken for one that has another order. What it waits for may stand behind what is
 * not complete, unless it is shown by us too. */
static bool one_by_one(const struct gather *gather, const struct group_core *core, enum found found)
{
	uint32_t tag;
	enum group_wait waits = gather->count > 0 ? group_core_waits(core, &tag) : GROUP_WAITS_NOT;
	if (waits == GROUP_WAITS_NOT)
		return false;
	return !together(gather) || found == FOUND_OTHERS ||
	    (waits == GROUP_WAITS_OP && !is_shown(gather, tag));
}

bool gather_look(struct gather *gather, const struct group_core *core,
    const struct gather_calls *calls)
{
	enum found found = FOUND_FEW;
	bool moved = false;
	while (gather->count > 0 && together(gather) && (found = find(gather)) == FOUND_ALL &&
	    take_together(gather, calls))
		moved = true;
	if (!one_by_one(gather, core, found))
		return moved;
	for (unsigned i = 0; i < gather->count; i++)
		if (i != gather->me)
			moved |= take_alone(gather, core, calls, i);
	return moved;
}

void gather_split(struct gather *gather, const struct group_core *core)
{
	uint32_t tag;
	if (gather->count > 0 && together(gather) && group_core_waits(core, &tag) != GROUP_WAITS_NOT)
		gather->mixed = true;
}

bool gather_pending(struct gather *gather, const struct group_core *core)
{
	_Alignas(8) uint8_t frame[SEGMENT_HEADER_BYTES + BOARD_BODY_MAX];
	enum found found = FOUND_FEW;
	size_t bytes;
	if (gather->count > 0 && together(gather))
		found = find(gather);
	if (found == FOUND_ALL)
		return true;
	if (!one_by_one(gather, core, found))
		return false;
	for (unsigned i = 0; i < gather->count; i++)
		if (i != gather->me && goes_alone(gather, core, &gather->peers[i], frame, &bytes))
			return true;
	return false;
}
