/* The caller waits for one op's result before it commits.
 *
 * What it has read is in its hands: it may have taken the samples from it that it will say, or put it into another op. So an attempt of
 * which a result was read is not redone behind the caller's back (ViewReport.read).
 *
 * While it waits it has not closed the round, and nobody compares its ops with those of the others. So after a while it asks: whoever has
 * closed the round without the op can never finish it with us.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "collectives/core/bits.h"
#include "collectives/core/member.h"

/* The op that is waited for, if it can be done now. */
static struct op *wait_op(const struct group_core *core)
{
	if (!core->waiting || core->proposal != 0 || core->stuck || !round_active(core))
		return NULL;
	return round_op(core, core->waited);
}

tr_status wait_begin(struct group_core *core, uint32_t tag, struct tr_error *error)
{
	if (!round_active(core))
		return round_refuse(core, "wait", error);
	if (!round_op(core, tag) && !core->stuck)
		return tr_error_set(error, TR_EINVAL,
		    "wait: op %" PRIu32 " was not submitted in this round", tag);
	core->waiting = true;
	core->waited = tag;
	struct op *op = round_op(core, tag);
	/* A caller that waits a little at a time, for this op and others, has waited since its first call. */
	if (op && op->ask_us == 0)
		op->ask_us = core->now_us + MEMBER_REPEAT_US;
	if (op)
		lack_wait(core, op);
	return TR_OK;
}

/* Of a broadcast or a receive: is some of it nobody's, since its source was lost (keep)? There the memory is as the caller left it, which it
 * must not take for a result. The op is over all the same: the round can be committed without it. */
static bool wait_in_vain(const struct op *op)
{
	if (op->source == ROSTER_NONE || op->sends)
		return false;
	for (uint32_t s = 0; s < op->segments; s++)
		if (op_is_void(op, s) && path_needs(op, s, op->roster->me))
			return true;
	return false;
}

void wait_advance(struct group_core *core)
{
	const struct op *op = wait_op(core);

	if (!op || !op_done(op))
		return;
	core->waiting = false;
	core->read = true;
	struct group_action *action = emit(core, GROUP_DO_OP_DONE);
	action->round = core->round;
	action->tag = op->tag;
	if (!wait_in_vain(op))
		return;
	action->status = TR_EPEERLOST;
	(void)snprintf(action->text, sizeof(action->text),
	    "op %" PRIu32 " was to come from peer %" PRIu64
	    ", which was lost before all of it was here",
	    op->tag, op->roster->contributors[op_contributor(op, 0)]);
}

uint64_t wait_deadline_us(const struct group_core *core)
{
	const struct op *op = wait_op(core);

	return op ? op->ask_us : UINT64_MAX;
}

/* ---- is the op known to those who have closed? ---- */

struct wait_question {
	unsigned waiter; /* participant */
	struct wait_of of;
};

void wait_say(struct group_core *core, unsigned to, unsigned about, const struct wait_of *of,
    enum segment_kind kind, enum segment_question question)
{
	emit_connect(core, core->roster.peers[to]);
	struct group_action *action = emit(core, GROUP_DO_SEND_SEGMENT);
	action->to = core->roster.peers[to];
	action->round = core->round;
	action->tag = of->tag;
	action->header = (struct segment_header){
		.view = core->view.number,
		.round = core->round,
		.attempt = core->roster.attempt,
		.tag = of->tag,
		.segment = about,
		.signature = *of->signature,
		.kind = (uint8_t)kind,
		.encoding = (uint8_t)question,
	};
	memcpy(action->header.contributors, of->bits, sizeof(action->header.contributors));
	action->payload = "";
}

static void wait_send(struct group_core *core, unsigned to, const struct wait_question *question)
{
	wait_say(core, to, question->waiter, &question->of, SEGMENT_AWAITED, SEGMENT_ASKS_CLOSED);
}

bool wait_concerns(const struct group_core *core, unsigned who, const struct wait_of *of)
{
	uint32_t bit = core->roster.bit[who];

	return of->signature->scope.count == 0 || (bit != ROSTER_NONE && bits_get(of->bits, bit));
}

/* Of an op of all the hub is asked: there is a connection to it, and it knows who has closed. */
static void wait_pass_on(struct group_core *core, const struct wait_question *question)
{
	for (unsigned i = 0; i < core->roster.n; i++)
		if (i != core->roster.me && i != question->waiter &&
		    wait_concerns(core, i, &question->of) &&
		    commit_is_closed(core, core->roster.peers[i]))
			wait_send(core, i, question);
}

/* Of a pair only the other end knows; ROSTER_NONE: it is gone. */
static unsigned wait_other_end(const struct group_core *core, const struct op *op)
{
	uint32_t other = op->sends ? op->signature.root : op->source;

	return other < op->roster->contributor_count
	    ? roster_find(&core->roster, op->roster->contributors[other])
	    : ROSTER_NONE;
}

void wait_ask(struct group_core *core)
{
	const struct roster *roster = &core->roster;
	struct op *op = wait_op(core);

	if (!op || core->now_us < op->ask_us)
		return;
	op->ask_us = core->now_us + MEMBER_REPEAT_US;
	const struct wait_question question = { roster->me,
		{ op->tag, &op->signature, op->scope.bits } };
	unsigned to = op->kind == OP_PAIR ? wait_other_end(core, op) : roster->hub;
	if (to == roster->me)
		wait_pass_on(core, &question);
	else if (to != ROSTER_NONE)
		wait_send(core, to, &question);
}

tr_status wait_asked(struct group_core *core, unsigned from, const struct segment_header *header,
    struct tr_error *error)
{
	const struct roster *roster = &core->roster;
	unsigned waiter = header->segment;
	bool pair = header->signature.collective == TR_SEND;

	if (waiter >= roster->n || waiter == roster->me || header->bytes > 0 ||
	    (from != waiter && (from != roster->hub || pair)))
		return tr_error_set(error, TR_EPROTO,
		    "peer %" PRIu64 " asks for somebody who does not wait", roster->peers[from]);
	struct op *op = round_op(core, header->tag);
	const struct wait_question question = { waiter,
		{ header->tag, &header->signature, header->contributors } };
	bool released = !op && release_has(&core->released, header->tag);
	if (wait_concerns(core, roster->me, &question.of)) {
		bool differs = !released || release_differs(&core->released, header);
		if (differs && (op || released || core->state == ROUND_CLOSED) &&
		    path_compare(core, roster->peers[waiter], op, header) != TR_OK)
			return TR_OK;
	}
	if (header->encoding != SEGMENT_ASKS_CLOSED)
		return lack_asked(core, from, header, error);
	if (op && from == waiter)
		bits_set(op->known.has, from);
	if (released)
		return TR_OK; /* it has its result by now, as all its members */
	if (roster->me == roster->hub && !pair)
		wait_pass_on(core, &question);
	return TR_OK;
}
