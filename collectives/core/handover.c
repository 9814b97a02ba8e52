/* State for joiners. A joiner asks its donor once a view names it, and again until it has the state: a transfer's end is
 * certain at the joiner only. The donor serves when its caller has begun the round that the joiner enters: from then until
 * that round is decided its memory holds the state before it. It is not decided before the joiner has voted, which has the
 * state then: so a transfer that still runs serves nobody, and ends. All who hold that state hold the same bits: pieces of it
 * come from any of them, if the joiner's engine asks for some; its donor alone has to answer, and says the digests.
 *
 * Where it may come gradually (view_gradual) the joiner takes part in rounds without it: its caller says with each commit whether the round is to be
 * decided all the same (TR_DEFER_STATE). What it has by then its caller changes by the round's results, as all do, and the rest is asked for as it is after
 * that round, once the caller has begun the next one. Until it has all of it, it counts among nobody who holds anything, and does not contribute. Then it asks for a view
 * in which it does.
 */
#include <inttypes.h>
#include <stdlib.h>

#include "collectives/core/member.h"

/* Of a peer there may be one that is served, and one that waits for its round, or for the end of the first. */
static struct member_ask *handover_find(struct group_core *core, uint64_t peer, bool sending)
{
	for (size_t i = 0; i < core->ask_count; i++)
		if (core->asks[i].peer == peer && core->asks[i].sending == sending)
			return &core->asks[i];
	return NULL;
}

static void handover_remove(struct group_core *core, size_t i)
{
	core->asks[i] = core->asks[--core->ask_count];
	core->moved = true;
}

/* The joiner gets the rest elsewhere. What is served ends by the engine's hand; what is over is over. */
static void handover_take_back(struct group_core *core, uint64_t from, uint64_t round,
    const struct group_wish *wish)
{
	struct member_ask *ask = handover_find(core, from, false);
	if (!ask || ask->round != round || ask->wish.first != wish->first ||
	    ask->wish.end <= wish->end)
		return;
	if (wish->end > wish->first)
		ask->wish.end = wish->end;
	else if (ask->wish.pieces)
		handover_remove(core, (size_t)(ask - core->asks));
	else
		ask->wish.digests_only = true;
}

tr_status handover_asked(struct group_core *core, uint64_t from, uint64_t round,
    const struct group_wish *wish, struct tr_error *error)
{
	/* Who need not serve is asked in each view anew, or is not. */
	if (core->state == ROUND_FAILED || (wish->any && wish->view < core->view.number))
		return TR_ESTALE;
	if (wish->take_back) {
		handover_take_back(core, from, round, wish);
		return TR_OK;
	}
	const struct member_ask *served = handover_find(core, from, true);
	struct member_ask *ask = handover_find(core, from, false);
	if (served && served->round >= round)
		return TR_OK;
	if (ask) {
		ask->round = round;
		ask->wish = *wish;
		return TR_OK;
	}
	if (core->ask_count == 2ul * TR_GROUP_PEERS_MAX)
		return tr_error_set(error, TR_ELIMIT, "too many peers want the state");
	if (core->ask_count == core->ask_capacity) {
		size_t capacity = core->ask_capacity ? 2 * core->ask_capacity : 4;
		void *asks = realloc(core->asks, capacity * sizeof(core->asks[0]));
		if (!asks)
			return TR_ENOMEM;
		core->asks = asks;
		core->ask_capacity = capacity;
	}
	core->asks[core->ask_count++] = (struct member_ask){ .peer = from,
		.round = round,
		.wish = *wish };
	return TR_OK;
}

void handover_sent(struct group_core *core, uint64_t to, uint64_t round)
{
	const struct member_ask *ask = handover_find(core, to, true);

	if (ask && ask->round == round)
		handover_remove(core, (size_t)(ask - core->asks));
}

void handover_decided(struct group_core *core)
{
	for (size_t i = core->ask_count; i-- > 0;)
		if (core->asks[i].sending)
			handover_remove(core, i);
}

/* The caller's memory holds exactly what the joiner needs and stays so until we answer its commit. */
static bool handover_holds(const struct group_core *core, uint64_t round)
{
	return core->ready && !core->needs_state && core->state_round == round &&
	    core->committed == round && (round_active(core) || core->begin_wanted);
}

/* The state before that round is what it needs. */
static bool handover_enters(const struct view_peer *joiner, uint64_t round)
{
	return view_gradual(joiner) ? joiner->participate_from <= round
	                            : joiner->participate_from == round;
}

void handover_advance(struct group_core *core)
{
	if (core->view.number == 0 || core->state == ROUND_FAILED)
		return;
	for (size_t i = 0; i < core->ask_count; i++) {
		struct member_ask *ask = &core->asks[i];
		const struct view_peer *joiner = view_find(&core->view, ask->peer);
		if (ask->sending || handover_find(core, ask->peer, true) || !joiner ||
		    (joiner->donor != core->peer && !ask->wish.any) ||
		    !handover_enters(joiner, ask->round + 1) || !handover_holds(core, ask->round))
			continue;
		ask->sending = true;
		emit_connect(core, ask->peer);
		struct group_action *action = emit(core, GROUP_DO_STATE_SEND);
		action->to = ask->peer;
		action->round = ask->round;
		action->wish = ask->wish;
	}
}

/* Transfers that differ are counted of one donor and one state; where it comes gradually that goes on over rounds: what its caller changes otherwise than all do would come for ever. */
static bool handover_is_another(const struct group_core *core)
{
	const struct view_peer *me = view_find(&core->view, core->peer);

	return core->donor != core->asked_donor ||
	    (core->round - 1 != core->asked_round && !(me && view_gradual(me)));
}

static void handover_ask(struct group_core *core)
{
	if (handover_is_another(core))
		core->damaged = 0;
	core->asked_donor = core->donor;
	core->asked_round = core->round - 1;
	core->ask_lost = false;
	core->ask_again_us = core->now_us + MEMBER_REPEAT_US;
	emit_connect(core, core->donor);
	struct group_action *action = emit(core, GROUP_DO_STATE_ASK);
	action->to = core->donor;
	action->round = core->asked_round;
}

/* Our request or its answer is lost: asked again at the next view, or soon. */
void handover_lost(struct group_core *core)
{
	core->ask_lost = true;
}

/* What it has of a state that comes gradually the caller may be about to change, between a commit and the next begin; and what is deferred comes later. */
static bool handover_may_ask(const struct group_core *core)
{
	return core->needs_state && !core->deferred && !core->altering;
}

/* It has said that it has the state, and the view that counts it is on its way. If the round were decided before that, it would sit out another one. */
static bool handover_counts_soon(const struct group_core *core)
{
	const struct view_peer *me = view_find(&core->view, core->peer);

	return !core->needs_state && core->now_us < core->counted_us && me && view_gradual(me);
}

uint64_t handover_deadline_us(const struct group_core *core)
{
	if (handover_counts_soon(core))
		return core->counted_us;
	return handover_may_ask(core) && core->proposal == 0 ? core->ask_again_us : UINT64_MAX;
}

/* Whether what was asked for is on its way only the engine knows: it lets a transfer that moves go on. */
void handover_ask_again(struct group_core *core)
{
	if (core->view.number > 0 && core->needs_state && core->now_us >= handover_deadline_us(core))
		handover_ask(core);
}

void handover_begun(struct group_core *core)
{
	if (core->committed > 0)
		core->ask_again_us = core->now_us;
}

bool handover_may_defer(const struct group_core *core)
{
	const struct view_peer *me = view_find(&core->view, core->peer);

	return core->needs_state && me && view_gradual(me);
}

bool handover_awaited(const struct group_core *core)
{
	return (core->needs_state && !core->deferred) || handover_counts_soon(core);
}

/* The view is of before, or its report was. */
static void handover_tell(struct group_core *core)
{
	if (!core->needs_state && view_gradual(view_find(&core->view, core->peer)))
		repair_ask(core, "has the state now");
}

/* A view was installed: whom do we ask, and who no longer waits for us? */
void handover_installed(struct group_core *core)
{
	for (size_t i = core->ask_count; i-- > 0;) {
		const struct member_ask *ask = &core->asks[i];
		bool past = ask->round < core->committed ||
		    (ask->wish.any && ask->wish.view < core->view.number);
		if (past && !ask->sending)
			handover_remove(core, i);
	}
	handover_tell(core);
	if (!core->needs_state)
		return;
	core->donor = view_find(&core->view, core->peer)->donor;
	if (!view_find(&core->view, core->donor) || core->donor == core->peer) {
		emit_fail(core, TR_EPEERLOST,
		    "donor peer %" PRIu64 " was lost before the state after round %" PRIu64
		    " had arrived",
		    core->donor, core->round - 1);
		return;
	}
	bool fresh = core->donor != core->asked_donor || core->round - 1 != core->asked_round;
	if ((fresh || core->ask_lost) && handover_may_ask(core))
		handover_ask(core);
}

tr_status handover_got(struct group_core *core, uint64_t from, tr_status status, uint64_t round,
    const char *reason, struct tr_error *error)
{
	if (core->state == ROUND_FAILED || !handover_may_ask(core) || from != core->asked_donor ||
	    round != core->asked_round)
		return tr_error_set(error, TR_ESTALE,
		    "state after round %" PRIu64 " from peer %" PRIu64 " is not awaited", round,
		    from);
	if (status == TR_OK) {
		core->needs_state = false;
		core->committed = round;
		core->state_round = round;
		core->moved = true;
		core->counted_us = core->now_us + MEMBER_COUNTED_US;
		handover_tell(core);
		return TR_OK;
	}
	if (status == TR_EPEERLOST || status == TR_EIO) {
		handover_lost(core);
		return TR_OK;
	}
	if (status == TR_EDIGEST && ++core->damaged < MEMBER_DAMAGED_MAX) {
		handover_ask(core);
		return TR_OK;
	}
	emit_fail(core, status, "state from peer %" PRIu64 ": %s", from,
	    reason ? reason : tr_status_text(status));
	return TR_OK;
}
