/* Who has not submitted the op that a caller waits for, or that a commit needs: for TR_ETIMEDOUT's text and memberd. Whom a member itself waits for
 * may only wait for somebody else.
 *
 * The keeper of an op is the hub, if it submits it too; of an op in a scope without it nobody is. Who waits asks the keeper, and again.
 * The keeper asks those of whom it does not know that they have the op, all once in an interval whoever asks, and tells who waits which of
 * them have not answered. Of what it has not submitted itself it knows nothing: there it names itself.
 */
#include <inttypes.h>
#include <string.h>

#include "collectives/core/bits.h"
#include "collectives/core/member.h"

#define LACK_ASK_US 250000u
#define LACK_APART_US \
	20000u /* between questions about different ops, of who looks at many in turn */
#define LACK_ANSWER_US 200000u /* who has not answered by then lacks it */

/* From one question to the next: of many members the hub hears some 250 in a second. */
static uint64_t lack_pause_us(const struct group_core *core)
{
	uint64_t pause = 4000u * (uint64_t)core->roster.n;

	return pause > LACK_ASK_US ? pause : LACK_ASK_US;
}

static struct wait_of lack_of(const struct op *op)
{
	return (struct wait_of){ op->tag, &op->signature, op->scope.bits };
}

/* There are links to it from all, and from it to all: nobody is dialled for a question. */
static unsigned lack_keeper(const struct group_core *core, const struct wait_of *of)
{
	return wait_concerns(core, core->roster.hub, of) ? core->roster.hub : ROSTER_NONE;
}

static void lack_question(struct group_core *core, unsigned to, const struct wait_of *of,
    enum segment_question question)
{
	wait_say(core, to, core->roster.me, of, SEGMENT_AWAITED, question);
}

static void lack_tell(struct group_core *core, unsigned to, const struct wait_of *of,
    enum segment_question about, const uint8_t lacks[TR_GROUP_PEERS_MAX / 8])
{
	const struct wait_of told = { of->tag, of->signature, lacks };

	wait_say(core, to, core->roster.me, &told, SEGMENT_LACKED, about);
}

/* ---- the keeper ---- */

/* A vote says that all ops of the round were submitted, or ends it. */
static bool lack_knows(const struct group_core *core, const struct op *op, unsigned who)
{
	return who == core->roster.me || bits_get(op->known.has, who) ||
	    commit_is_closed(core, core->roster.peers[who]);
}

static void lack_ask_others(struct group_core *core, struct op *op, const struct wait_of *of)
{
	if (op->known.asked && core->now_us < op->known.again_us)
		return;
	if (!op->known.asked)
		op->known.asked_us = core->now_us;
	op->known.asked = true;
	op->known.again_us = core->now_us + LACK_ANSWER_US;
	for (unsigned i = 0; i < core->roster.n; i++)
		if (wait_concerns(core, i, of) && !lack_knows(core, op, i))
			lack_question(core, i, of, SEGMENT_ASKS_LACKS);
}

static void lack_find(const struct group_core *core, const struct op *op, const struct wait_of *of,
    uint8_t lacks[TR_GROUP_PEERS_MAX / 8])
{
	memset(lacks, 0, TR_GROUP_PEERS_MAX / 8);
	if (!op) {
		if (!release_has(&core->released, of->tag))
			bits_set(lacks, core->roster.me);
		return;
	}
	if (core->now_us - op->known.asked_us < LACK_ANSWER_US)
		return; /* nobody had the time to answer */
	for (unsigned i = 0; i < core->roster.n; i++)
		if (wait_concerns(core, i, of) && !lack_knows(core, op, i))
			bits_set(lacks, i);
}

static void lack_answer(struct group_core *core, unsigned to, const struct wait_of *of)
{
	struct op *op = round_op(core, of->tag);
	uint8_t lacks[TR_GROUP_PEERS_MAX / 8];

	if (op) {
		bits_set(op->known.has, to);
		lack_ask_others(core, op, of);
	}
	lack_find(core, op, of, lacks);
	lack_tell(core, to, of, SEGMENT_ASKS_CLOSED, lacks);
}

tr_status lack_asked(struct group_core *core, unsigned from, const struct segment_header *header,
    struct tr_error *error)
{
	const struct wait_of of = { header->tag, &header->signature, header->contributors };
	unsigned me = core->roster.me, keeper = lack_keeper(core, &of);
	bool has = header->encoding == SEGMENT_HAS;
	struct op *op = round_op(core, header->tag);

	if (from != header->segment || header->signature.collective == TR_SEND ||
	    !wait_concerns(core, me, &of) || !wait_concerns(core, from, &of) ||
	    (keeper != me && (keeper != from || has)))
		return tr_error_set(error, TR_EPROTO,
		    "peer %" PRIu64 " asks who lacks an op of others", core->roster.peers[from]);
	if (keeper == me && !has)
		lack_answer(core, from, &of);
	else if (keeper == me && op)
		bits_set(op->known.has, from);
	else if (keeper == from && (op || release_has(&core->released, header->tag)))
		lack_question(core, from, &of, SEGMENT_HAS);
	return TR_OK;
}

/* ---- votes, which the hub counts ---- */

/* A header is always of some op. */
static const struct op_signature lack_no_op = { .dtype = TR_F32, .reduce = TR_SUM };

void lack_close(struct group_core *core)
{
	core->lack_us = core->now_us + LACK_ASK_US;
}

/* Who has not closed the round; if all have, who has not voted: who has closed it and not voted waits for others itself. In one pass: at the hub
 * of a large group all ask. */
static void lack_find_votes(const struct group_core *core, uint8_t lacks[TR_GROUP_PEERS_MAX / 8])
{
	const struct roster *roster = &core->roster;
	uint8_t closed[TR_GROUP_PEERS_MAX / 8] = { 0 }, voted[TR_GROUP_PEERS_MAX / 8] = { 0 };
	bool all = true;

	if (core->state == ROUND_CLOSED)
		bits_set(closed, roster->me);
	for (size_t i = 0; i < core->vote_count; i++) {
		const Traind__Peer__Vote *vote = &core->votes[i].vote;
		unsigned who = roster_find(roster, core->votes[i].peer);
		if (who == ROSTER_NONE || vote->view != core->view.number ||
		    vote->round != core->round || vote->attempt != roster->attempt)
			continue;
		bits_set(closed, who);
		if (!vote->early)
			bits_set(voted, who);
	}
	for (unsigned i = 0; i < roster->n; i++)
		all = all && bits_get(closed, i);
	memset(lacks, 0, TR_GROUP_PEERS_MAX / 8);
	for (unsigned i = 0; i < roster->n; i++)
		if (!bits_get(all ? voted : closed, i))
			bits_set(lacks, i);
}

/* A vote may come before this member has begun its round. */
void lack_vote_asked(struct group_core *core, uint64_t from)
{
	const struct wait_of of = { 0, &lack_no_op, NULL };
	const struct roster *roster = &core->roster;
	uint8_t lacks[TR_GROUP_PEERS_MAX / 8];
	unsigned to = roster_find(roster, from);

	if (to == ROSTER_NONE || to == roster->me || roster->me != roster->hub ||
	    core->proposal != 0 || core->stuck || !commit_has_vote(core, from))
		return;
	lack_find_votes(core, lacks);
	lack_tell(core, to, &of, SEGMENT_ASKS_LACKS, lacks);
}

void lack_voted(struct group_core *core)
{
	memset(core->lack_votes, 0, sizeof(core->lack_votes));
	lack_close(core);
}

static tr_status lack_votes_told(struct group_core *core, unsigned from,
    const struct segment_header *header, struct tr_error *error)
{
	const struct roster *roster = &core->roster;
	const uint8_t *lacks = header->contributors;

	if (!core->voted || from != roster->hub || header->segment != from || header->bytes > 0 ||
	    bits_any_from(lacks, sizeof(header->contributors), roster->n) ||
	    bits_get(lacks, roster->me))
		return tr_error_set(error, TR_EPROTO,
		    "peer %" PRIu64 " says who has not voted, which it cannot know",
		    roster->peers[from]);
	memcpy(core->lack_votes, lacks, sizeof(core->lack_votes));
	return TR_OK;
}

/* ---- who waits ---- */

/* One op that is not here, and no pair: the one that is waited for, or the first of those that the commit needs. */
static struct op *lack_op(const struct group_core *core)
{
	if (core->proposal != 0 || core->stuck)
		return NULL;
	if (core->waiting && round_active(core)) {
		struct op *op = round_op(core, core->waited);
		return op && op->kind != OP_PAIR && !op_done(op) ? op : NULL;
	}
	for (size_t i = 0; i < core->op_count && core->state == ROUND_CLOSED; i++)
		if (core->ops[i]->kind != OP_PAIR && !op_done(core->ops[i]))
			return core->ops[i];
	return NULL;
}

static bool lack_waits(const struct group_core *core)
{
	return core->state == ROUND_CLOSED || (core->waiting && round_active(core));
}

/* It was not waited for since the keeper answered, or we stood still. */
static bool lack_is_old(const struct group_core *core, const struct op *op)
{
	return core->now_us > op->known.ask_us + LACK_ASK_US;
}

void lack_wait(struct group_core *core, struct op *op)
{
	if (op->known.ask_us == 0)
		op->known.ask_us = core->now_us + LACK_ASK_US;
	core->lack_us = op->known.ask_us;
	if (core->lack_us < core->lack_apart_us)
		core->lack_us = core->lack_apart_us;
}

uint64_t lack_deadline_us(const struct group_core *core)
{
	return lack_waits(core) ? core->lack_us : UINT64_MAX;
}

void lack_ask(struct group_core *core)
{
	if (!lack_waits(core) || core->now_us < core->lack_us)
		return;
	core->lack_us = core->now_us + lack_pause_us(core);
	if (core->voted && core->proposal == 0 && !core->stuck) {
		commit_ask(core);
		return;
	}
	struct op *op = lack_op(core);
	if (!op)
		return;
	if (lack_is_old(core, op))
		memset(op->known.lacks, 0, sizeof(op->known.lacks));
	op->known.ask_us = core->lack_us;
	core->lack_apart_us = core->now_us + LACK_APART_US;
	const struct wait_of of = lack_of(op);
	unsigned keeper = lack_keeper(core, &of);
	if (keeper == core->roster.me) {
		lack_ask_others(core, op, &of);
		lack_find(core, op, &of, op->known.lacks);
	} else if (keeper != ROSTER_NONE) {
		lack_question(core, keeper, &of, SEGMENT_ASKS_LACKS);
	}
}

tr_status lack_told(struct group_core *core, unsigned from, const struct segment_header *header,
    struct tr_error *error)
{
	struct op *op = round_op(core, header->tag);
	const uint8_t *lacks = header->contributors;

	if (header->encoding == SEGMENT_ASKS_LACKS)
		return lack_votes_told(core, from, header, error);
	if (!op)
		return TR_OK; /* it was released meanwhile */
	const struct wait_of of = lack_of(op);
	bool valid = op->kind != OP_PAIR && op->known.ask_us != 0 && header->segment == from &&
	    header->bytes == 0 && from == lack_keeper(core, &of) &&
	    !bits_any_from(lacks, sizeof(header->contributors), core->roster.n) &&
	    !bits_get(lacks, core->roster.me);
	for (unsigned i = 0; valid && i < core->roster.n; i++)
		valid = !bits_get(lacks, i) || wait_concerns(core, i, &of);
	if (!valid)
		return tr_error_set(error, TR_EPROTO,
		    "peer %" PRIu64 " says who lacks op %u, which it cannot know",
		    core->roster.peers[from], header->tag);
	memcpy(op->known.lacks, lacks, sizeof(op->known.lacks));
	return TR_OK;
}

bool lack_names(const struct group_core *core, uint8_t lacks[TR_GROUP_PEERS_MAX / 8])
{
	const struct op *op = lack_op(core);
	const uint8_t *told = op && !lack_is_old(core, op) ? op->known.lacks : NULL;

	if (core->voted && core->roster.me == core->roster.hub) {
		lack_find_votes(core, lacks);
		return true;
	}
	if (core->voted)
		told = core->now_us <= core->lack_us + LACK_ASK_US ? core->lack_votes : NULL;
	if (told)
		memcpy(lacks, told, TR_GROUP_PEERS_MAX / 8);
	return told != NULL;
}
