/* Frames for peers that have not submitted their op yet.
 *
 * Peers submit the same ops in any order, and may wait for some of them before they submit others. What comes for an op that is not
 * submitted here is kept aside by whoever runs this core (TR_EAGAIN), and what is behind it must not wait for it: it may be what our
 * caller waits for. So a sender keeps that little: of all ops of which a peer has not said that it submitted them it sends
 * ahead_bytes / (n - 1) in all, n participants, and the frame that goes beyond; the others wait here, at the sender, where their bytes
 * are in the caller's memory, or in staging that the op's window bounds (window.c). A receiver keeps at most ahead_bytes and a frame of each other member.
 *
 * The word. A member that got half of that from a peer tells it all that it has submitted and not told it yet (Submitted). It
 * counts whatever came to it since its last word, and what it had parked then: that was of no op that it had submitted, so of none
 * in a word. What comes before it has begun the round is parked uncounted: a frame says whether it was counted, not who offers it. So if a peer has used up its bytes, all of them of ops that are in no word, we have counted
 * them all, and whatever we have submitted is said. Hence an op that all have submitted goes on, whatever else
 * was sent before. To those who send to us in this view a large op is said at once: over a long way they need not stop for it.
 * Words come in the same way as votes: reliably, or a new view comes, in which all is said anew.
 *
 * An op that we have released is said too (release.h): who sent of it may have it still, and counts its bytes until it is told. What is sent of it after
 * that, needlessly, is told one by one. A word says what its reader is a member of; so what it keeps of it, those that it has not submitted,
 * are ops that are still here.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "collectives/core/bits.h"
#include "collectives/core/member.h"
#include "collectives/core/tally.h"

struct ahead_frame {
	struct ahead_frame *next;
	struct op *op;
	uint32_t segment;
	unsigned to; /* of the op's participants */
	struct path_frame frame;
	uint8_t set[ROUTE_SET_BYTES];
};

struct ahead_peer {
	size_t bytes; /* sent to it of ops that it has not said */
	struct ahead_frame *first, **tail;
	size_t got;    /* counted since our last word to it, and what was parked then */
	size_t parked; /* counted, of ops that we have not submitted */
	uint64_t said; /* op.number up to which it knows what we submitted */
	size_t noted;  /* of released.notes, likewise */
	bool sends;    /* to us, in this view */
};

/* ---- sending ---- */

static size_t ahead_frame_bytes(const struct path_frame *frame)
{
	return SEGMENT_HEADER_BYTES + frame->bytes;
}

/* Without memory for it, it is not counted. */
static void ahead_count(struct group_core *core, struct op *op, unsigned to,
    const struct path_frame *frame)
{
	const size_t few = sizeof(op->ahead_few) / sizeof(op->ahead_few[0]);

	if (!op->ahead && core->roster.n <= few)
		op->ahead = memset(op->ahead_few, 0, sizeof(op->ahead_few));
	else if (!op->ahead)
		op->ahead = calloc(core->roster.n, sizeof(op->ahead[0]));
	if (!op->ahead)
		return;
	op->ahead[to] += (uint32_t)ahead_frame_bytes(frame);
	core->ahead[to].bytes += ahead_frame_bytes(frame);
}

/* Here peers are counted as participants of the round, whatever the op's scope. */
static unsigned ahead_outer(const struct op *op, unsigned who)
{
	return op->roster->outer ? op->roster->outer[who] : who;
}

bool ahead_keeps(struct group_core *core, struct op *op, uint32_t segment, unsigned who,
    const struct path_frame *frame)
{
	unsigned to = ahead_outer(op, who);
	struct ahead_peer *peer = &core->ahead[to];

	if (bits_get(op->submitted, to))
		return false;
	struct ahead_frame *kept = peer->bytes < core->ahead_share ? NULL : malloc(sizeof(*kept));
	if (!kept) {
		ahead_count(core, op, to, frame);
		return false;
	}
	*kept = (struct ahead_frame){ .op = op, .segment = segment, .to = who, .frame = *frame };
	memcpy(kept->set, frame->set, bits_bytes(op->roster->contributor_count));
	kept->frame.set = kept->set;
	if (frame->buffer)
		frame->buffer->references++;
	*peer->tail = kept;
	peer->tail = &kept->next;
	return true;
}

bool ahead_counts_all(struct group_core *core, struct op *op, const struct path_frame *frame)
{
	for (unsigned i = 0; i < core->roster.n; i++)
		if (!bits_get(op->submitted, i) && core->ahead[i].bytes >= core->ahead_share)
			return false;
	for (unsigned i = 0; i < core->roster.n; i++)
		if (i != core->roster.me && !bits_get(op->submitted, i))
			ahead_count(core, op, i, frame);
	return true;
}

static void ahead_free(struct group_core *core, struct ahead_frame *kept)
{
	buffer_put(&core->pool, kept->frame.buffer);
	free(kept);
}

/* The op is going. */
static void ahead_drop_op(struct group_core *core, struct ahead_peer *peer, const struct op *op)
{
	struct ahead_frame **at = &peer->first;

	while (*at) {
		struct ahead_frame *kept = *at;
		if (kept->op != op) {
			at = &kept->next;
			continue;
		}
		*at = kept->next;
		ahead_free(core, kept);
	}
	peer->tail = at;
}

/* Some of its ops were said: what waited for that goes, and as much of others as was sent of those. */
static void ahead_release(struct group_core *core, unsigned to)
{
	struct ahead_peer *peer = &core->ahead[to];
	struct ahead_frame *kept = peer->first;

	peer->first = NULL;
	peer->tail = &peer->first;
	while (kept) {
		struct ahead_frame *next = kept->next;
		path_send(core, kept->op, kept->segment, kept->to, &kept->frame);
		ahead_free(core, kept);
		kept = next;
	}
}

/* ---- words that come ---- */

/* Orders attempts; < 0: a is the older one. */
static int ahead_compare(uint64_t a, uint64_t b)
{
	return a < b ? -1 : a > b;
}

static int ahead_when(const struct ahead_word *word, uint64_t view, uint64_t round, uint64_t attempt)
{
	int order = ahead_compare(word->view, view);

	if (order == 0)
		order = ahead_compare(word->round, round);
	return order != 0 ? order : ahead_compare(word->attempt, attempt);
}

static bool ahead_now(const struct group_core *core, const struct ahead_word *word)
{
	return ahead_when(word, core->view.number, core->roster.round, core->roster.attempt) == 0;
}

/* Where the tag is, or would be. */
static size_t ahead_place(const struct ahead_word *word, uint32_t tag)
{
	size_t low = 0, high = word->count;

	while (low < high) {
		size_t middle = low + (high - low) / 2;
		if (word->tags[middle] < tag)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

static bool ahead_has(const struct ahead_word *word, uint32_t tag)
{
	size_t place = ahead_place(word, tag);

	return place < word->count && word->tags[place] == tag;
}

static tr_status ahead_add(struct ahead_word *word, uint32_t tag, size_t most,
    struct tr_error *error)
{
	if (ahead_has(word, tag))
		return TR_OK;
	if (word->count >= most)
		return tr_error_set(error, TR_EPROTO,
		    "peer %" PRIu64 " has submitted more than %zu ops", word->peer, most);
	if (word->count == word->capacity) {
		size_t capacity = word->capacity ? 2 * word->capacity : 16;
		uint32_t *tags = realloc(word->tags, capacity * sizeof(*tags));
		if (!tags)
			return tr_error_set(error, TR_ENOMEM, "out of memory");
		word->tags = tags;
		word->capacity = capacity;
	}
	size_t place = ahead_place(word, tag);
	memmove(&word->tags[place + 1], &word->tags[place],
	    (word->count - place) * sizeof(word->tags[0]));
	word->tags[place] = tag;
	word->count++;
	return TR_OK;
}

static void ahead_remove(struct ahead_word *word, uint32_t tag)
{
	size_t place = ahead_place(word, tag);

	memmove(&word->tags[place], &word->tags[place + 1],
	    (word->count - place - 1) * sizeof(word->tags[0]));
	word->count--;
}

/* Members of the view have their places whoever else says something. */
static bool ahead_has_place(const struct group_core *core, uint64_t peer)
{
	size_t others = 0;

	if (view_find(&core->view, peer))
		return true;
	for (size_t i = 0; i < core->word_count; i++)
		others += !view_find(&core->view, core->words[i].peer);
	return others < TR_GROUP_PEERS_MAX;
}

static struct ahead_word *ahead_word_of(struct group_core *core, uint64_t peer)
{
	for (size_t i = 0; i < core->word_count; i++)
		if (core->words[i].peer == peer)
			return &core->words[i];
	if (!ahead_has_place(core, peer))
		return NULL;
	if (core->word_count == core->word_capacity) {
		size_t capacity = core->word_capacity ? 2 * core->word_capacity : 8;
		void *words = realloc(core->words, capacity * sizeof(core->words[0]));
		if (!words)
			return NULL;
		core->words = words;
		core->word_capacity = capacity;
	}
	core->words[core->word_count] = (struct ahead_word){ .peer = peer };
	return &core->words[core->word_count++];
}

static bool ahead_is_known(const struct group_core *core, uint32_t tag)
{
	return round_op(core, tag) || release_has(&core->released, tag);
}

/* It may be ahead of us: of a view or a round to come. Of one that it has left nobody needs to know. */
static tr_status ahead_store(struct group_core *core, uint64_t from,
    const Traind__Peer__Submitted *said, struct ahead_word **stored, struct tr_error *error)
{
	struct ahead_word *word = ahead_word_of(core, from);
	tr_status st = TR_OK;

	if (!word)
		return tr_error_set(error, TR_ELIMIT, "no room for what peers have submitted");
	int order = ahead_when(word, said->view, said->round, said->attempt);
	if (order > 0)
		return TR_ESTALE;
	if (order < 0) {
		word->view = said->view;
		word->round = said->round;
		word->attempt = said->attempt;
		word->count = 0;
	}
	/* Of a view to come nothing is known here, nor what is released there. */
	bool now = ahead_now(core, word);
	size_t most = TR_ROUND_OPS_MAX + (now ? 0 : RELEASE_NOTES_MAX);
	for (size_t i = 0; i < said->n_tags && st == TR_OK; i++)
		if (!now || !ahead_is_known(core, said->tags[i]))
			st = ahead_add(word, said->tags[i], most, error);
	*stored = word;
	return st;
}

/* Nobody has a view before we were asked about it, unless it is our first. So no word of another one takes the place of what was said in ours. */
static bool ahead_may_be(const struct group_core *core, uint64_t from, uint64_t view)
{
	if (core->view.number == 0)
		return group_core_expects(core, view);
	if (view == core->view.number)
		return view_find(&core->view, from) != NULL;
	return view <= core->proposal;
}

tr_status ahead_word_got(struct group_core *core, uint64_t from,
    const Traind__Peer__Submitted *said, struct tr_error *error)
{
	struct ahead_word *word = NULL;

	if (core->state == ROUND_FAILED || said->view < core->view.number ||
	    (said->view == core->view.number && said->round < core->round))
		return TR_ESTALE;
	if (!ahead_may_be(core, from, said->view))
		return tr_error_set(error, TR_EPROTO,
		    "peer %" PRIu64 " has submitted ops in view %" PRIu64 ", which cannot be", from,
		    said->view);
	tr_status st = ahead_store(core, from, said, &word, error);
	if (st != TR_OK || !word)
		return st;
	unsigned who = roster_find(&core->roster, from);
	if (who == ROSTER_NONE || core->proposal != 0 || !ahead_now(core, word))
		return TR_OK;
	for (size_t i = 0; i < said->n_tags; i++) {
		struct op *op = round_op(core, said->tags[i]);
		if (!op || bits_get(op->submitted, who))
			continue;
		bits_set(op->submitted, who);
		core->ahead[who].bytes -= op->ahead ? op->ahead[who] : 0;
	}
	ahead_release(core, who);
	return TR_OK;
}

void ahead_start(struct group_core *core, struct op *op)
{
	for (size_t i = 0; i < core->word_count; i++) {
		struct ahead_word *word = &core->words[i];
		unsigned who = roster_find(&core->roster, word->peer);
		if (who == ROSTER_NONE || !ahead_now(core, word) || !ahead_has(word, op->tag))
			continue;
		bits_set(op->submitted, who);
		ahead_remove(word, op->tag);
	}
	if (op->signature.count * op->element_bytes >= core->ahead_share / 2 &&
	    op->number > core->newest_large)
		core->newest_large = op->number;
	core->ahead_moved = true;
}

/* ---- words of ours ---- */

void ahead_offered(struct group_core *core, unsigned from, const struct segment_header *header,
    bool known, bool *counted)
{
	struct ahead_peer *peer = &core->ahead[from];
	size_t bytes = SEGMENT_HEADER_BYTES + header->bytes;

	peer->sends = true;
	if (counted && *counted) {
		if (known)
			peer->parked -= bytes < peer->parked ? bytes : peer->parked;
		return;
	}
	if (counted)
		*counted = true;
	if (!known)
		peer->parked += bytes;
	peer->got += bytes;
	if (peer->got >= core->ahead_share / 2)
		core->ahead_moved = true;
}

static tr_status ahead_send(struct group_core *core, unsigned to, uint32_t *tags, size_t count)
{
	Traind__Peer__Submitted *word = malloc(sizeof(*word));

	if (!word)
		return TR_ENOMEM;
	traind__peer__submitted__init(word);
	word->view = core->view.number;
	word->round = core->roster.round;
	word->attempt = core->roster.attempt;
	word->tags = tags;
	word->n_tags = count;
	emit_connect(core, core->roster.peers[to]);
	struct group_action *action = emit(core, GROUP_DO_SEND_SUBMITTED);
	action->to = core->roster.peers[to];
	action->round = core->roster.round;
	action->submitted = word;
	return TR_OK;
}

/* Is that participant one of the op's members? */
static bool ahead_concerns(const struct group_core *core, const struct op *op, unsigned to)
{
	uint32_t bit = core->roster.bit[to];

	if (op->kind == OP_PAIR)
		return bit == tally_other_end(op);
	return !op_scoped(op) || (bit != ROSTER_NONE && bits_get(op->scope.bits, bit));
}

static bool ahead_concerns_note(const struct group_core *core, const struct release_note *note,
    unsigned to)
{
	uint32_t bit = core->roster.bit[to];

	return bit != ROSTER_NONE && bits_get(core->released.parties[note->party].bits, bit);
}

/* Fills in what that peer has not been told; NULL: only counts. */
static size_t ahead_untold(const struct group_core *core, unsigned to, uint32_t *tags)
{
	const struct ahead_peer *peer = &core->ahead[to];
	size_t count = 0;

	for (size_t i = peer->noted; i < core->released.note_count; i++) {
		const struct release_note *note = &core->released.notes[i];
		if (note->number <= peer->said || !ahead_concerns_note(core, note, to))
			continue;
		if (tags)
			tags[count] = note->tag;
		count++;
	}
	for (size_t i = 0; i < core->op_count; i++) {
		const struct op *op = core->ops[i];
		if (op->number <= peer->said || !ahead_concerns(core, op, to))
			continue;
		if (tags)
			tags[count] = op->tag;
		count++;
	}
	return count;
}

static void ahead_say(struct group_core *core, unsigned to)
{
	struct ahead_peer *peer = &core->ahead[to];
	size_t count = ahead_untold(core, to, NULL);

	if (count > 0) { /* else they are of an attempt before, or of others */
		uint32_t *tags = malloc(count * sizeof(*tags));
		if (tags)
			(void)ahead_untold(core, to, tags);
		if (!tags || ahead_send(core, to, tags, count) != TR_OK) {
			free(tags);
			if (core->voted) /* others may still send through us; somebody may have committed */
				core->ahead_moved = true;
			else
				repair_stuck(core, "out of memory to say what is submitted");
			return;
		}
		peer->got = peer->parked;
	}
	peer->said = core->ops_made;
	peer->noted = core->released.note_count;
}

/* No more of them fit: all who may wait to hear of one are told. */
static void ahead_say_notes(struct group_core *core)
{
	struct released *released = &core->released;

	if (released->note_count < RELEASE_NOTES_MAX)
		return;
	for (unsigned i = 0; i < core->roster.n && !core->stuck; i++)
		if (i != core->roster.me)
			ahead_say(core, i);
	released->note_count = 0;
	for (unsigned i = 0; i < core->roster.n; i++)
		core->ahead[i].noted = 0;
}

void ahead_advance(struct group_core *core)
{
	const struct roster *roster = &core->roster;

	if (!core->ahead_moved || core->proposal != 0 || core->stuck || !round_active(core))
		return;
	core->ahead_moved = false;
	ahead_say_notes(core);
	for (unsigned i = 0; i < roster->n && !core->stuck; i++) {
		const struct ahead_peer *peer = &core->ahead[i];
		bool large = peer->sends && core->newest_large > peer->said;
		if (i != roster->me && core->ops_made > peer->said &&
		    (large || peer->got >= core->ahead_share / 2))
			ahead_say(core, i);
	}
}

/* ---- released ops ---- */

void ahead_say_released(struct group_core *core, unsigned to, uint32_t tag)
{
	uint32_t *tags = malloc(sizeof(*tags));

	if (tags)
		*tags = tag;
	if (tags && ahead_send(core, to, tags, 1) == TR_OK)
		return;
	free(tags);
	core->status = TR_ENOMEM;
}

bool ahead_unsent(const struct group_core *core, const struct op *op)
{
	for (unsigned i = 0; i < core->roster.n && op->owed == 0; i++)
		for (const struct ahead_frame *kept = core->ahead[i].first; kept; kept = kept->next)
			if (kept->op == op)
				return true;
	return op->owed > 0;
}

/* All members have submitted it; what is kept of it nobody wants. */
void ahead_released(struct group_core *core, const struct op *op, uint32_t party)
{
	struct released *released = &core->released;

	for (unsigned i = 0; i < core->roster.n; i++) {
		struct ahead_peer *peer = &core->ahead[i];
		if (op->ahead && !bits_get(op->submitted, i))
			peer->bytes -= op->ahead[i];
		ahead_drop_op(core, peer, op);
	}
	if (core->proposal != 0 || core->stuck)
		return; /* all is said anew, or counted anew */
	released->notes[released->note_count++] = (struct release_note){ .number = op->number,
		.tag = op->tag,
		.party = party };
	core->ahead_moved = core->ahead_moved || released->note_count == RELEASE_NOTES_MAX;
}

void ahead_forget_released(struct group_core *core)
{
	for (size_t i = 0; i < core->word_count && core->released.tags.count > 0; i++) {
		struct ahead_word *word = &core->words[i];
		size_t kept = 0;
		for (size_t k = 0; k < word->count; k++)
			if (!ahead_now(core, word) || !release_has(&core->released, word->tags[k]))
				word->tags[kept++] = word->tags[k];
		word->count = kept;
	}
}

/* ---- life ---- */

tr_status ahead_enter(struct group_core *core, const struct roster *next)
{
	struct ahead_peer *peers = calloc(next->n + 1u, sizeof(*peers));

	if (!peers)
		return TR_ENOMEM;
	for (unsigned i = 0; i < next->n; i++) {
		unsigned before = core->ahead && core->ahead_view == core->view.number
		    ? roster_find(&core->roster, next->peers[i])
		    : ROSTER_NONE;
		peers[i].tail = &peers[i].first;
		peers[i].sends = before != ROSTER_NONE && core->ahead[before].sends;
	}
	ahead_drop(core);
	free(core->ahead);
	core->ahead = peers;
	core->ahead_view = core->view.number;
	core->ahead_share = core->ahead_bytes / (next->n > 1 ? next->n - 1 : 1);
	core->newest_large = 0;
	core->released.note_count = 0;
	return TR_OK;
}

void ahead_drop(struct group_core *core)
{
	for (unsigned i = 0; core->ahead && i < core->roster.n; i++) {
		struct ahead_peer *peer = &core->ahead[i];
		while (peer->first) {
			struct ahead_frame *next = peer->first->next;
			ahead_free(core, peer->first);
			peer->first = next;
		}
		peer->tail = &peer->first;
	}
}

void ahead_forget_words(struct group_core *core)
{
	size_t kept = 0;

	for (size_t i = 0; i < core->word_count; i++) {
		if (core->words[i].view >= core->view.number)
			core->words[kept++] = core->words[i];
		else
			free(core->words[i].tags);
	}
	core->word_count = kept;
}

void ahead_finish(struct group_core *core)
{
	ahead_drop(core);
	free(core->ahead);
	core->ahead = NULL;
	for (size_t i = 0; i < core->word_count; i++)
		free(core->words[i].tags);
	free(core->words);
}
